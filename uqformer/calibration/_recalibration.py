"""Calibrators of quantiles and intervals: the levels they say, made the ones they have.

Quantiles are joined by straight lines over the quantiles of a standard normal
distribution, so that the tails beyond the outermost ones are those of a normal one.
"""

from __future__ import annotations

from numbers import Real
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr, ndtri
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils import Tags

from uqformer._typing import Float64Array
from uqformer._validation import (
    Interval,
    check_is_fitted,
    check_probabilities,
    fit_context,
    validate_data,
)
from uqformer.calibration._quantile import conformal_quantile
from uqformer.calibration._scores import Band

__all__ = ["ConformalCalibrator", "QuantileCalibrator", "read_quantiles"]

FARTHEST = 40.0
"""Normal score at which tails end; what lies beyond counts as there."""


class QuantileCalibrator(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """Recalibrate predicted quantiles, so that each has its share of targets below.

    Where the 10 % quantile has 25 % of the targets below it, a lower one is read off
    the predicted distribution instead: the one that has had 10 %.

    Parameters
    ----------
    quantiles : array-like of shape (n_quantiles,), default=None
        What the columns of `X` are quantiles of, strictly between 0 and 1, rising.
        None stands for ``(k - 1/2) / n_quantiles``, for which the members of an
        ensemble may be handed in.

    Attributes
    ----------
    levels_ : ndarray of shape (n_quantiles,)
        Quantile of the prediction that is read off for each of `quantiles`, in [0, 1];
        far out in the tails it is rounded to 0 or 1.

    n_features_in_ : int
        Number of columns of `X`.

    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the columns, where `X` had string names.

    See Also
    --------
    LocationScaleCalibrator : Fewer numbers to fit, for few rows.
    ConformalCalibrator : One interval, with a guarantee.

    Notes
    -----
    The map of levels is the empirical distribution of the probability integral
    transform on the calibration rows. Isotonic regression of empirical on predicted
    levels [1]_ passes through the same points. Rows of `X` are sorted first, and come
    back sorted: quantiles that were predicted apart may cross.

    References
    ----------
    .. [1] V. Kuleshov, N. Fenner, S. Ermon (2018), "Accurate Uncertainties for Deep
       Learning Using Calibrated Regression", ICML, algorithm 1.

    Examples
    --------
    >>> import numpy as np
    >>> from uqformer.calibration import QuantileCalibrator
    >>> rng = np.random.default_rng(0)
    >>> y = rng.standard_normal(2000)
    >>> too_narrow = np.tile([-0.64, 0.0, 0.64], (2000, 1))
    >>> calibrator = QuantileCalibrator(quantiles=[0.1, 0.5, 0.9]).fit(too_narrow, y)
    >>> calibrator.transform(too_narrow[:1]).round(1) + 0.0
    array([[-1.3,  0. ,  1.3]])
    """

    _parameter_constraints: dict[str, list[Any]] = {"quantiles": ["array-like", None]}

    def __init__(self, *, quantiles: ArrayLike | None = None) -> None:
        self.quantiles = quantiles

    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Find the level to read off for each quantile.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_quantiles)
            Predicted quantiles of rows that the model was not trained on, in units of
            `y`.

        y : array-like of shape (n_samples,)
            True targets.

        Returns
        -------
        self : QuantileCalibrator
            The fitted calibrator.
        """
        rows, targets = validate_data(
            self, X, y, dtype=np.float64, y_numeric=True, ensure_min_features=2
        )
        wanted = self._check_quantiles(rows.shape[1])
        scores = _normal_scores(np.sort(rows, axis=1), ndtri(wanted), targets)
        # of n scores the k-th has k / (n + 1) below it, as in conformal prediction
        self._normal_levels = np.quantile(scores, wanted, method="weibull")
        self.levels_ = ndtr(self._normal_levels)
        return self

    def transform(self, X: ArrayLike) -> Float64Array:
        """Read the recalibrated quantiles off.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_quantiles)
            Predicted quantiles, as in ``fit``.

        Returns
        -------
        X_new : ndarray of shape (n_samples, n_quantiles)
            Quantiles of the same levels, rising, in units of `y`.
        """
        check_is_fitted(self)
        rows = validate_data(self, X, dtype=np.float64, reset=False)
        normal = ndtri(self._check_quantiles(rows.shape[1]))
        return _read(np.sort(rows, axis=1), normal, self._normal_levels)

    def _check_quantiles(self, n_columns: int) -> Float64Array:
        if self.quantiles is None:
            middles: Float64Array = (np.arange(n_columns) + 0.5) / n_columns
            return middles
        quantiles = check_probabilities(self.quantiles, "quantiles")
        if len(quantiles) != n_columns or (np.diff(quantiles) <= 0).any():
            raise ValueError(
                "quantiles must rise and have one entry for each column of X; got "
                f"quantiles={quantiles.tolist()} for X of {n_columns} columns."
            )
        return quantiles

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags


class ConformalCalibrator(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """Widen or narrow intervals so that they cover a new row with the wanted chance.

    Both ends move by the same distance, a finite-sample quantile of how far targets
    were outside [1]_.

    Parameters
    ----------
    confidence_level : float, default=0.9
        Wanted coverage, strictly between 0 and 1.

    Attributes
    ----------
    correction_ : float
        Distance that each end moves outwards, in units of `y`; negative if the
        intervals were too wide.

    n_features_in_ : int
        Number of columns of `X`, which is 2.

    feature_names_in_ : ndarray of shape (2,)
        Names of the columns, where `X` had string names.

    See Also
    --------
    ConformalRegressor : The same around an estimator, for any level.

    References
    ----------
    .. [1] Y. Romano, E. Patterson, E. Candes (2019), "Conformalized Quantile
       Regression", NeurIPS 32.

    Examples
    --------
    >>> from uqformer.calibration import ConformalCalibrator
    >>> interval, y = [[0.0, 1.0]] * 9, [0.5, 1.5, 2, 3, -1, 0.1, 1, 0, 4]
    >>> calibrator = ConformalCalibrator(confidence_level=0.8).fit(interval, y)
    >>> calibrator.correction_
    2.0
    >>> calibrator.transform([[10.0, 11.0]])
    array([[ 8., 13.]])
    """

    _parameter_constraints: dict[str, list[Any]] = {
        "confidence_level": [Interval(Real, 0, 1, closed="neither")],
    }

    def __init__(self, *, confidence_level: float = 0.9) -> None:
        self.confidence_level = confidence_level

    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Find the distance to move by.

        Parameters
        ----------
        X : array-like of shape (n_samples, 2)
            Predicted intervals of rows that the model was not trained on, in units of
            `y`. Ends that crossed are put in order.

        y : array-like of shape (n_samples,)
            True targets.

        Returns
        -------
        self : ConformalCalibrator
            The fitted calibrator.

        Raises
        ------
        InsufficientCalibrationError
            If there are too few rows for the level.
        """
        rows, targets = validate_data(
            self, X, y, dtype=np.float64, y_numeric=True, ensure_min_features=2
        )
        scores = _band(rows).scores(np.asarray(targets, dtype=np.float64)[:, None])
        (correction,) = conformal_quantile(scores[:, 0], self.confidence_level)
        self.correction_ = float(correction)
        return self

    def transform(self, X: ArrayLike) -> Float64Array:
        """Move the ends.

        Parameters
        ----------
        X : array-like of shape (n_samples, 2)
            Predicted intervals, in units of `y`.

        Returns
        -------
        X_new : ndarray of shape (n_samples, 2)
            Intervals, lower ends first; ends that would cross meet in the middle.
        """
        check_is_fitted(self)
        rows = validate_data(self, X, dtype=np.float64, reset=False)
        return _band(rows).widened(np.array([self.correction_]))[:, :, 0]

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags


def read_quantiles(
    values: Float64Array, quantiles: Float64Array, wanted: Float64Array
) -> Float64Array:
    """Quantiles (n_samples, n_wanted) of rows whose rising `values` are `quantiles`."""
    return _read(values, ndtri(quantiles), ndtri(wanted))


def _read(
    values: Float64Array, known: Float64Array, wanted: Float64Array
) -> Float64Array:
    """Follow each row's line through (known, values) and its tails to `wanted`."""
    values, known = _with_tails(values, known)
    left = np.clip(np.searchsorted(known, wanted, side="right") - 1, 0, len(known) - 2)
    share = (wanted - known[left]) / (known[left + 1] - known[left])
    low, high = values[:, left], values[:, left + 1]
    read: Float64Array = low + share * (high - low)
    return read


def _with_tails(
    values: Float64Array, known: Float64Array
) -> tuple[Float64Array, Float64Array]:
    """Continue each line on either side, as steep as it is from the middle outwards.

    The two outermost quantiles alone would make a poor slope where they are the
    outermost members of an ensemble.
    """
    last = len(known) - 1
    below, above = last // 2, last - last // 2  # the same for an odd number
    left = (values[:, above] - values[:, 0]) / (known[above] - known[0])
    right = (values[:, -1] - values[:, below]) / (known[-1] - known[below])
    first = values[:, 0] - left * (known[0] + FARTHEST)
    final = values[:, -1] + right * (FARTHEST - known[-1])
    return (
        np.column_stack([first, values, final]),
        np.concatenate([[-FARTHEST], known, [FARTHEST]]),
    )


def _normal_scores(
    values: Float64Array, known: Float64Array, y: Float64Array
) -> Float64Array:
    """Where on its row's line each target lies: `_read` turned around."""
    values, known = _with_tails(values, known)
    n_below = (values <= y[:, None]).sum(axis=1)
    left = np.clip(n_below - 1, 0, len(known) - 2)
    rows = np.arange(len(values))
    low, high = values[rows, left], values[rows, left + 1]
    # on a flat piece a target is in its middle, or out of reach
    share = np.select([y < low, y > high], [-np.inf, np.inf], default=0.5)
    np.divide(y - low, high - low, out=share, where=high > low)
    scores = known[left] + share * (known[left + 1] - known[left])
    clipped: Float64Array = np.clip(scores, -FARTHEST, FARTHEST)
    return clipped


def _band(interval: Float64Array) -> Band:
    """Take intervals as bands that are widened in units of y."""
    if interval.shape[1] != 2:
        raise ValueError(
            "X must hold intervals of shape (n_samples, 2), lower ends first; got "
            f"X.shape={interval.shape}."
        )
    ordered = np.sort(interval, axis=1)
    return Band(ordered[:, :1], ordered[:, 1:], np.ones((len(interval), 1)))
