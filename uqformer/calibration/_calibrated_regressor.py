"""CalibratedRegressor: a predictive distribution, recalibrated on rows kept aside."""

from __future__ import annotations

from numbers import Real
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri
from sklearn.base import BaseEstimator, MetaEstimatorMixin, RegressorMixin
from sklearn.utils import Tags, check_random_state
from sklearn.utils.metadata_routing import MetadataRouter

from uqformer._response import interval_response, spread_response
from uqformer._typing import Float64Array
from uqformer._validation import (
    HasMethods,
    Interval,
    StrOptions,
    check_confidence_level,
    check_probabilities,
    column_or_1d,
    fit_context,
)
from uqformer.calibration._recalibration import QuantileCalibrator, read_quantiles
from uqformer.calibration._regression import LocationScaleCalibrator, SpreadCalibrator
from uqformer.calibration._split import (
    check_new_rows,
    check_rows,
    fit_clone,
    inherit_tags,
    is_frozen,
    part_calibration,
    pass_on_to_fit,
    route_fit,
    take_params,
    take_rows,
)

__all__ = ["CalibratedRegressor"]

LEVELS = np.array([0.98, 0.96, *np.arange(0.9, 0.05, -0.1)])
"""Intervals whose ends are the quantiles that are recalibrated."""

QUANTILES = np.concatenate([(1 - LEVELS) / 2, (1 + LEVELS[::-1]) / 2])
"""Those quantiles, rising."""

ONE_SIGMA = (0.15865525393145707, 0.8413447460685429)
"""Quantiles one standard deviation off the mean of a normal distribution."""


class CalibratedRegressor(RegressorMixin, MetaEstimatorMixin, BaseEstimator):
    """Recalibrate the predictive distribution of a regressor that has one.

    Every quantile, interval and standard deviation comes from the same recalibrated
    distribution. It fits the calibration rows as well as its form allows; a guarantee
    for new rows is what `ConformalRegressor` gives instead, for intervals alone.

    Parameters
    ----------
    estimator : estimator
        Regressor that knows its uncertainty; may be a whole `Pipeline`. Inside a
        `FrozenEstimator` it is not fitted, and all rows calibrate it.

    calibrator : {"location_scale", "spread", "quantile"}, default="location_scale"
        "spread" scales the standard deviation of a normal distribution, and
        "location_scale" corrects its mean too; both ask `estimator` for
        ``predict(X, return_std=True)``. "quantile" recalibrates the whole shape, and
        asks for ``predict_interval(X, confidence_level)``.

    calibration_fraction : float, default=0.2
        Share of the rows that are kept from training.

    random_state : int, RandomState instance or None, default=None
        Source of the parts.

    Attributes
    ----------
    estimator_ : estimator
        The fitted copy of `estimator`.

    calibrator_ : estimator
        The fitted `LocationScaleCalibrator`, `SpreadCalibrator` or
        `QuantileCalibrator`.

    n_features_in_ : int
        Number of columns seen in ``fit``, where `X` has columns.

    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the columns, where `X` had string names.

    See Also
    --------
    ConformalRegressor : Intervals with a guarantee, around any regressor.

    Notes
    -----
    "quantile" recalibrates 22 quantiles between 1 % and 99 %; what lies between them
    and beyond is read off straight lines over the quantiles of a normal distribution.
    An `estimator` whose intervals are conformal itself needs the 49 calibration rows
    of its own that an interval of level 0.98 takes.

    Keywords of ``fit`` are handed to the fit of `estimator`, and through metadata
    routing if that is switched on.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.linear_model import BayesianRidge
    >>> from uqformer.calibration import CalibratedRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = CalibratedRegressor(BayesianRidge(), random_state=0)
    >>> model = model.fit(X[:300], y[:300])
    >>> mean, std = model.predict(X[300:], return_std=True)
    >>> model.predict_interval(X[300:], confidence_level=0.9).shape
    (142, 2)
    >>> model.predict_quantiles(X[300:], [0.1, 0.5, 0.9]).shape
    (142, 3)
    """

    _parameter_constraints: dict[str, list[Any]] = {
        "estimator": [HasMethods(["fit", "predict"])],
        "calibrator": [StrOptions({"location_scale", "spread", "quantile"})],
        "calibration_fraction": [Interval(Real, 0, 1, closed="neither")],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        estimator: Any,
        *,
        calibrator: Literal["location_scale", "spread", "quantile"] = "location_scale",
        calibration_fraction: float = 0.2,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.estimator = estimator
        self.calibrator = calibrator
        self.calibration_fraction = calibration_fraction
        self.random_state = random_state

    @fit_context(prefer_skip_nested_validation=False)
    def fit(self, X: ArrayLike, y: ArrayLike, **fit_params: Any) -> Self:
        """Fit the estimator on one part of the rows and the calibrator on the other.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Inputs, as `estimator` takes them.

        y : array-like of shape (n_samples,)
            Targets.

        **fit_params : dict
            Handed to the fit of `estimator`, such as `sample_weight`. What has one
            entry a row is parted along with the rows.

        Returns
        -------
        self : CalibratedRegressor
            The fitted regressor.
        """
        rows, targets = check_rows(self, X, y)
        targets = column_or_1d(targets, warn=True)
        params = route_fit(self, fit_params)
        train = calibration = np.arange(len(targets))
        if not is_frozen(self.estimator):
            rng = check_random_state(self.random_state)
            train, calibration = part_calibration(
                len(targets), self.calibration_fraction, rng
            )
        self.estimator_ = fit_clone(
            self.estimator,
            take_rows(rows, train),
            targets[train],
            take_params(params, train, len(targets)),
        )
        predicted = self._distribution(take_rows(rows, calibration))
        self.calibrator_ = self._new_calibrator().fit(predicted, targets[calibration])
        return self

    def predict(
        self, X: ArrayLike, return_std: bool = False
    ) -> Float64Array | tuple[Float64Array, Float64Array]:
        """Predict the point, and the standard deviation if asked.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Inputs as in ``fit``.

        return_std : bool, default=False
            Whether to return the standard deviation too. The keyword also passes
            through a `Pipeline`.

        Returns
        -------
        y_pred : ndarray of shape (n_samples,)
            Mean of the recalibrated normal distribution, or the median with
            ``calibrator="quantile"``; in units of `y`.

        y_std : ndarray of shape (n_samples,)
            Its standard deviation; with ``calibrator="quantile"`` half the width of
            the interval that covers as often as one standard deviation does. Only with
            ``return_std=True``.
        """
        lower, middle, upper = self._read(X, (ONE_SIGMA[0], 0.5, ONE_SIGMA[1])).T
        return (middle, (upper - lower) / 2) if return_std else middle

    def predict_interval(
        self, X: ArrayLike, confidence_level: ArrayLike = 0.9
    ) -> Float64Array:
        """Predict intervals for one level or several.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Inputs as in ``fit``.

        confidence_level : float or array-like of shape (n_levels,), default=0.9
            Wanted coverage, strictly between 0 and 1.

        Returns
        -------
        y_interval : ndarray of shape (n_samples, 2[, n_levels])
            Lower ends first, in units of `y`, with equal tails. Without `n_levels` for
            a single number.
        """
        levels = check_confidence_level(confidence_level)
        read = self._read(X, np.concatenate([(1 - levels) / 2, (1 + levels) / 2]))
        ends = read.reshape(len(read), 2, len(levels))
        return ends[:, :, 0] if np.ndim(confidence_level) == 0 else ends

    def predict_quantiles(self, X: ArrayLike, quantiles: ArrayLike) -> Float64Array:
        """Predict quantiles, which never cross.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Inputs as in ``fit``.

        quantiles : float or array-like of shape (n_quantiles,)
            Each strictly between 0 and 1, in any order.

        Returns
        -------
        y_quantiles : ndarray of shape (n_samples[, n_quantiles])
            In units of `y` and in the order of `quantiles`; without `n_quantiles` for
            a single number.
        """
        read = self._read(X, check_probabilities(quantiles, "quantiles"))
        return read[:, 0] if np.ndim(quantiles) == 0 else read

    def get_metadata_routing(self) -> MetadataRouter:
        """Tell scikit-learn's metadata routing where keywords of ``fit`` go.

        Returns
        -------
        routing : MetadataRouter
            They go to the fit of `estimator`.
        """
        return pass_on_to_fit(self)

    def __sklearn_tags__(self) -> Tags:
        tags = inherit_tags(super().__sklearn_tags__(), self.estimator)
        tags.target_tags.multi_output = False
        return tags

    def _new_calibrator(self) -> Any:
        if self.calibrator == "quantile":
            return QuantileCalibrator(quantiles=QUANTILES)
        if self.calibrator == "spread":
            return SpreadCalibrator(input="mean_std")
        return LocationScaleCalibrator(input="mean_std")

    def _distribution(self, X: Any) -> Float64Array:
        """Describe what the estimator predicts by columns, as the calibrator wants."""
        if self.calibrator != "quantile":
            return np.column_stack(spread_response(self.estimator_, X))
        ends = interval_response(self.estimator_, X, LEVELS)
        return np.concatenate([ends[:, 0], ends[:, 1, ::-1]], axis=1)

    def _read(self, X: ArrayLike, quantiles: ArrayLike) -> Float64Array:
        """Quantiles (n_samples, n_quantiles) of the recalibrated distribution."""
        wanted = np.asarray(quantiles, dtype=np.float64)
        rows = check_new_rows(self, X)
        columns = self.calibrator_.transform(self._distribution(rows))
        if self.calibrator == "quantile":
            return read_quantiles(columns, QUANTILES, wanted)
        mean, std = columns.T
        read: Float64Array = mean[:, None] + std[:, None] * ndtri(wanted)
        return read
