"""Adaptive conformal inference: intervals for series, which learn from every miss."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, MetaEstimatorMixin, RegressorMixin
from sklearn.utils import Tags
from sklearn.utils.metadata_routing import MetadataRouter

from uqformer._typing import Float64Array, IntArray
from uqformer._validation import (
    HasMethods,
    Interval,
    StrOptions,
    check_array,
    check_consistent_length,
    check_is_fitted,
    column_or_1d,
    fit_context,
)
from uqformer.calibration._follow import Follower
from uqformer.calibration._scores import Band, ScoreModel
from uqformer.calibration._split import (
    check_new_rows,
    check_rows,
    count_rows,
    inherit_tags,
    is_frozen,
    pass_on_to_fit,
    route_fit,
    take_params,
    take_rows,
)

__all__ = ["AdaptiveOnlineConformal"]


class AdaptiveOnlineConformal(RegressorMixin, MetaEstimatorMixin, BaseEstimator):
    """Prediction intervals for a series, corrected after every target that is seen.

    After a miss the next interval is asked for at a higher level, after a hit at a
    slightly lower one. In the long run the share of misses is the one that was wanted,
    whatever the series does: rows need not be exchangeable [1]_. Of several targets
    each is followed by itself.

    Parameters
    ----------
    estimator : estimator
        Regressor that predicts the point. Inside a `FrozenEstimator` it is not fitted,
        and all rows calibrate it.

    confidence_level : float, default=0.9
        Wanted long-run coverage, strictly between 0 and 1.

    conformity_score : {"absolute", "spread"}, default="absolute"
        "absolute": the size of the error. "spread": the error in units of the spread
        from ``predict(X, return_std=True)``.

    step_size : float, default=0.01
        By how much a miss moves the level that is asked for; larger follows faster and
        wavers more. With a `delay`, a spell of misses is answered until the first
        answer is seen to work: smaller steps then save from infinite intervals.

    window : int, default=None
        Most recent scores that are looked at. None looks at all.

    delay : int, default=1
        Rows after which a target is seen: that of row t is known when the interval of
        row ``t + delay`` is made. A forecast `horizon` steps ahead, made at every step,
        has ``delay=horizon``.

    calibration_fraction : float, default=0.2
        Share of the rows, the last ones, that ``fit`` keeps from training.

    Attributes
    ----------
    estimator_ : estimator
        The fitted copy of `estimator`.

    miss_rate_ : float or ndarray of shape (n_outputs,)
        Share of misses that the next interval is made for. It may leave [0, 1]: from 0
        downwards the interval is infinite, from 1 upwards it is the point alone.

    scores_ : ndarray of shape (n_scores,) or (n_scores, n_outputs)
        Conformity scores, oldest first.

    n_features_in_ : int
        Number of columns seen in ``fit``, where `X` has columns.

    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the columns, where `X` had string names.

    See Also
    --------
    ConformalRegressor : For rows in no order.

    Notes
    -----
    After T updates the share of misses differs from the wanted one by at most
    ``(1 + delay * step_size) / (step_size * T)``: that of the paper [1]_ for a delay of
    1, and by the same argument for others, since the level may go on in its direction
    for the rows that are on their way. What is judged is the interval in force when a
    row's forecast was made, ``delay - 1`` updates before its target was seen. The
    estimator is not fitted again by ``update``.

    References
    ----------
    .. [1] I. Gibbs, E. Candes (2021), "Adaptive Conformal Inference Under Distribution
       Shift", NeurIPS 34, proposition 4.1.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LinearRegression
    >>> from uqformer.calibration import AdaptiveOnlineConformal
    >>> rng = np.random.default_rng(0)
    >>> X = np.arange(400.0)[:, None]
    >>> y = 0.1 * X[:, 0] + rng.standard_normal(400)
    >>> online = AdaptiveOnlineConformal(LinearRegression()).fit(X[:200], y[:200])
    >>> for t in range(200, 300):
    ...     interval = online.predict_interval(X[t : t + 1])
    ...     online = online.update(X[t : t + 1], y[t : t + 1])

    The same in one go, each interval made before its target was seen:

    >>> online.predict_interval_online(X[300:], y[300:]).shape
    (100, 2)

    Targets of the next three steps, each known only three rows later:

    >>> Y = np.stack([y[1:-2], y[2:-1], y[3:]], axis=1)
    >>> online = AdaptiveOnlineConformal(LinearRegression(), delay=3)
    >>> online = online.fit(X[:200], Y[:200])
    >>> online.predict_interval_online(X[200:-3], Y[200:]).shape
    (197, 2, 3)
    """

    _parameter_constraints: dict[str, list[Any]] = {
        "estimator": [HasMethods(["fit", "predict"])],
        "confidence_level": [Interval(Real, 0, 1, closed="neither")],
        "conformity_score": [StrOptions({"absolute", "spread"})],
        "step_size": [Interval(Real, 0, None, closed="neither")],
        "window": [Interval(Integral, 1, None, closed="left"), None],
        "delay": [Interval(Integral, 1, None, closed="left")],
        "calibration_fraction": [Interval(Real, 0, 1, closed="neither")],
    }

    def __init__(
        self,
        estimator: Any,
        *,
        confidence_level: float = 0.9,
        conformity_score: Literal["absolute", "spread"] = "absolute",
        step_size: float = 0.01,
        window: int | None = None,
        delay: int = 1,
        calibration_fraction: float = 0.2,
    ) -> None:
        self.estimator = estimator
        self.confidence_level = confidence_level
        self.conformity_score = conformity_score
        self.step_size = step_size
        self.window = window
        self.delay = delay
        self.calibration_fraction = calibration_fraction

    @fit_context(prefer_skip_nested_validation=False)
    def fit(self, X: ArrayLike, y: ArrayLike, **fit_params: Any) -> Self:
        """Fit the estimator on the first rows and score the last ones.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Inputs in order of time, as `estimator` takes them.

        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Targets.

        **fit_params : dict
            Handed to the fit of `estimator`, such as `sample_weight`. What has one
            entry a row is parted along with the rows.

        Returns
        -------
        self : AdaptiveOnlineConformal
            The fitted regressor, before its first update.
        """
        rows, targets = check_rows(self, X, y)
        params = route_fit(self, fit_params)
        train, calibration = self._split(len(targets))
        self._y_ndim = targets.ndim
        columns = targets.astype(np.float64).reshape(len(targets), -1)
        self._n_outputs = columns.shape[1]
        model = self._new_model(self.estimator).fit(
            take_rows(rows, train),
            targets[train],
            take_params(params, train, len(targets)),
        )
        self.estimator_ = model.estimator
        band = self._band(take_rows(rows, calibration))
        self._followers = [
            Follower.start(
                scores.tolist(),
                1 - self.confidence_level,
                self.step_size,
                self.window,
                self.delay,
            )
            for scores in band.scores(columns[calibration]).T
        ]
        return self

    @property
    def miss_rate_(self) -> float | Float64Array:
        """Share of misses that the next interval is made for."""
        check_is_fitted(self)
        rates = np.array([follower.miss_rate for follower in self._followers])
        return float(rates[0]) if self._y_ndim == 1 else rates

    @property
    def scores_(self) -> Float64Array:
        """Conformity scores, oldest first."""
        check_is_fitted(self)
        scores = np.array([follower.scores for follower in self._followers]).T
        return self._flat(scores)

    def predict(self, X: ArrayLike) -> Float64Array:
        """Predict the point; updates do not move it.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Inputs as in ``fit``.

        Returns
        -------
        y_pred : ndarray of shape (n_samples,) or (n_samples, n_outputs)
            Prediction of `estimator_`, in units of `y`.
        """
        rows = check_new_rows(self, X)
        return self._flat(self._new_model(self.estimator_).predict(rows))

    def predict_interval(
        self, X: ArrayLike, confidence_level: float | None = None
    ) -> Float64Array:
        """Predict intervals from what is known before the targets of these rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Inputs as in ``fit``; several rows are predicted from the same past.

        confidence_level : float, default=None
            There is one level that the past was learnt for, that of the constructor.
            The argument is here for scorers and figures, which name the level.

        Returns
        -------
        y_interval : ndarray of shape (n_samples, 2[, n_outputs])
            Lower ends first, in units of `y`; infinite after too many misses.

        Raises
        ------
        ValueError
            If another level is asked for.
        """
        check_is_fitted(self)
        if confidence_level not in (None, self.confidence_level):
            raise ValueError(
                "confidence_level must be the one that is followed, "
                f"{self.confidence_level:g}; got confidence_level={confidence_level}. "
                "Fit another AdaptiveOnlineConformal for it."
            )
        band = self._band(check_new_rows(self, X))
        radius = np.array([follower.radius for follower in self._followers])
        return self._flat(band.widened(radius))

    def update(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Learn from targets that have been seen.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Inputs in order of time; none may be left out.

        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Their targets.

        Returns
        -------
        self : AdaptiveOnlineConformal
            The same object, with a new `miss_rate_` and more `scores_`.
        """
        self.predict_interval_online(X, y)
        return self

    def predict_interval_online(self, X: ArrayLike, y: ArrayLike) -> Float64Array:
        """Go through a series: predict a row's interval, see its target, update.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Inputs in order of time.

        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Their targets; none is looked at before the interval `delay` rows later.

        Returns
        -------
        y_interval : ndarray of shape (n_samples, 2[, n_outputs])
            Lower ends first, in units of `y`.
        """
        rows = check_new_rows(self, X)
        targets = self._check_targets(y)
        check_consistent_length(range(count_rows(rows)), targets)
        band = self._band(rows)
        ends = [
            follower.walk(band[:, k], targets[:, k])
            for k, follower in enumerate(self._followers)
        ]
        return self._flat(np.stack(ends, axis=2))

    def get_metadata_routing(self) -> MetadataRouter:
        """Tell scikit-learn's metadata routing where keywords of ``fit`` go.

        Returns
        -------
        routing : MetadataRouter
            They go to the fit of `estimator`.
        """
        return pass_on_to_fit(self)

    def __sklearn_tags__(self) -> Tags:
        return inherit_tags(super().__sklearn_tags__(), self.estimator)

    def _split(self, n_rows: int) -> tuple[IntArray, IntArray]:
        """Part rows in their order: those to train on come first."""
        rows = np.arange(n_rows)
        if is_frozen(self.estimator):
            return rows, rows
        n_calibration = max(1, round(n_rows * self.calibration_fraction))
        if n_calibration >= n_rows:
            raise ValueError(
                "fit must have rows to train on besides those that calibrate; got "
                f"n_samples={n_rows} with calibration_fraction="
                f"{self.calibration_fraction:g}. Add rows, or lower it."
            )
        return rows[:-n_calibration], rows[-n_calibration:]

    def _new_model(self, estimator: Any) -> ScoreModel:
        return ScoreModel(
            score=self.conformity_score,
            estimator=estimator,
            spread_estimator=None,
            quantile_estimators=None,
            spread_floor=0.0,
            n_outputs=self._n_outputs,
        )

    def _band(self, X: Any) -> Band:
        return self._new_model(self.estimator_).band(X, self.confidence_level)

    def _check_targets(self, y: ArrayLike) -> Float64Array:
        """Return targets (n_samples, n_outputs), which must be as many as in fit."""
        targets: Float64Array = check_array(
            y, ensure_2d=False, dtype=np.float64, input_name="y"
        )
        if self._y_ndim == 1:
            targets = column_or_1d(targets)[:, None]
        if targets.shape[1:] != (self._n_outputs,):
            raise ValueError(
                f"y must hold {self._n_outputs} targets a row as in fit; got "
                f"y.shape={np.shape(y)}."
            )
        return targets

    def _flat(self, values: Float64Array) -> Float64Array:
        """Drop the axis of outputs for a flat `y`."""
        return values[..., 0] if self._y_ndim == 1 else values
