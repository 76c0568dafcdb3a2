"""The forecast that any model must beat."""

from collections.abc import Sequence
from numbers import Integral
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils import Tags

from uqformer._typing import AnyArray
from uqformer._validation import Interval, check_is_fitted, fit_context, validate_data
from uqformer.series._inputs import find_channels

__all__ = ["SeasonalNaiveRegressor"]


class SeasonalNaiveRegressor(RegressorMixin, BaseEstimator):
    """Forecast that the last season comes again: the rival that any model must beat.

    Parameters
    ----------
    period : int, default=1
        Steps in a season, as 24 for hourly values with a daily rhythm. With 1 the last
        value stays.

    target : int or list of int, default=None
        Channels that are forecast, as positions, in the order that `y` was made with.
        None means all.

    Attributes
    ----------
    horizon_ : int
        Steps that are forecast, known from `y`.

    n_channels_ : int
        Number of channels of `X`.

    n_features_in_ : int
        Steps that a window sees.

    See Also
    --------
    make_windows : Rows as this expects them.

    References
    ----------
    .. [1] R. J. Hyndman, G. Athanasopoulos (2021), "Forecasting: Principles and
       Practice", 3rd edition, OTexts, section 5.2.

    Examples
    --------
    >>> import numpy as np
    >>> from uqformer.series import SeasonalNaiveRegressor, make_windows
    >>> X, y, _ = make_windows([1, 2, 3] * 5, context_length=6, horizon=4)
    >>> naive = SeasonalNaiveRegressor(period=3).fit(X, y)
    >>> bool(np.all(naive.predict(X) == y))
    True
    """

    _parameter_constraints: dict[str, list[Any]] = {
        "period": [Interval(Integral, 1, None, closed="left")],
        "target": [Interval(Integral, 0, None, closed="left"), list, tuple, None],
    }

    def __init__(
        self, period: int = 1, *, target: int | Sequence[int] | None = None
    ) -> None:
        self.period = period
        self.target = target

    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Learn how far to forecast; nothing else is learned.

        Parameters
        ----------
        X : array-like of shape (n_samples, context_length) or \
                (n_samples, context_length, n_channels)
            Windows, oldest step first.
        y : array-like of shape (n_samples,) or (n_samples, horizon * n_targets)
            What came next.

        Returns
        -------
        self : SeasonalNaiveRegressor
            Fitted.

        Raises
        ------
        ValueError
            If a window is shorter than the period, or the columns of `y` are not so
            many steps of the target.
        """
        rows, targets = validate_data(
            self, X, y, allow_nd=True, multi_output=True, y_numeric=True
        )
        windows = _with_channels(rows)
        if windows.shape[1] < self.period:
            raise ValueError(
                f"X must hold at least period={self.period} steps a window; got "
                f"{windows.shape[1]}."
            )
        wanted = find_channels(self.target, None, windows.shape[2])
        n_columns = 1 if targets.ndim == 1 else targets.shape[1]
        if n_columns % len(wanted):
            raise ValueError(
                f"y must have as many columns for each of {len(wanted)} targets; got "
                f"{n_columns}. Name the channels it was made from in target."
            )
        self.horizon_ = n_columns // len(wanted)
        self.n_channels_ = windows.shape[2]
        self._flat = targets.ndim == 1
        return self

    def predict(self, X: ArrayLike) -> AnyArray:
        """Repeat the last season.

        Parameters
        ----------
        X : array-like of shape (n_samples, context_length) or \
                (n_samples, context_length, n_channels)
            Windows, oldest step first.

        Returns
        -------
        y_pred : ndarray of shape (n_samples,) or (n_samples, horizon * n_targets)
            Forecasts, in the columns of the `y` that `fit` saw.
        """
        check_is_fitted(self)
        windows = _with_channels(validate_data(self, X, reset=False, allow_nd=True))
        if windows.shape[2] != self.n_channels_:
            raise ValueError(
                f"X must have {self.n_channels_} channels as in fit; got "
                f"{windows.shape[2]}."
            )
        season = np.arange(self.horizon_) % self.period
        last = windows[:, windows.shape[1] - self.period + season]
        wanted = find_channels(self.target, None, self.n_channels_)
        y_pred: AnyArray = last[:, :, wanted].reshape(len(windows), -1)
        return y_pred[:, 0] if self._flat else y_pred

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        tags.target_tags.multi_output = True
        # on rows that are no series, the last column says little about the target
        tags.regressor_tags.poor_score = True
        return tags


def _with_channels(X: AnyArray) -> AnyArray:
    """Read rows of a table as windows of one channel."""
    if X.ndim not in (2, 3):
        raise ValueError(
            "X must have shape (n_samples, context_length) or (n_samples, "
            f"context_length, n_channels); got {X.shape}."
        )
    return X[:, :, None] if X.ndim == 2 else X
