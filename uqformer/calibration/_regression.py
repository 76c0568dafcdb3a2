"""Calibrators of spreads: stretch members, or scale standard deviations, to errors."""

from __future__ import annotations

from typing import Any, Literal, Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import minimize
from scipy.special import ndtr
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils import Tags

from uqformer._typing import Float64Array
from uqformer._validation import (
    StrOptions,
    check_is_fitted,
    fit_context,
    validate_data,
)
from uqformer.calibration._groups import Groups, check_labels

__all__ = ["LocationScaleCalibrator", "SpreadCalibrator"]

Input: TypeAlias = Literal["members", "mean_std"]

LEAST_FLOOR = 1e-6
"""Floor that keeps a perfect fit from dividing by zero, in units of the error."""


class _SpreadTransformer(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """What both share: predictions come as members, or as a mean and a deviation."""

    _parameter_constraints: dict[str, list[Any]] = {
        "input": [StrOptions({"members", "mean_std"})],
    }

    input: Input

    def _check_fit(self, X: ArrayLike, y: ArrayLike) -> tuple[Float64Array, ...]:
        """Return mean, standard deviation and target of each row."""
        rows, targets = validate_data(
            self, X, y, dtype=np.float64, y_numeric=True, ensure_min_features=2
        )
        return (*self._mean_and_std(rows), np.asarray(targets, dtype=np.float64))

    def _check_new(self, X: ArrayLike) -> Float64Array:
        check_is_fitted(self)
        rows: Float64Array = validate_data(self, X, dtype=np.float64, reset=False)
        return rows

    def _mean_and_std(self, X: Float64Array) -> tuple[Float64Array, Float64Array]:
        if self.input == "members":
            return X.mean(axis=1), X.std(axis=1)
        if X.shape[1] != 2 or (X[:, 1] < 0).any():
            raise ValueError(
                "X must hold two columns, a mean and a standard deviation of at least "
                f"0, for input='mean_std'; got X.shape={X.shape} with a smallest "
                f"second column of {X[:, 1].min():g}."
            )
        return X[:, 0], X[:, 1]

    def _put_back(
        self, X: Float64Array, mean: Float64Array, std: Float64Array
    ) -> Float64Array:
        """Return predictions of the kind of X with this mean and deviation."""
        if self.input == "mean_std":
            return np.column_stack([mean, std])
        old_mean, old_std = self._mean_and_std(X)
        # members that are all equal have no direction to be stretched in
        ratio = np.divide(std, old_std, out=np.ones_like(std), where=old_std > 0)
        members: Float64Array = mean[:, None] + ratio[:, None] * (X - old_mean[:, None])
        return members

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags


class SpreadCalibrator(_SpreadTransformer):
    """Scale spreads so that they match errors; means stay where they are.

    One factor is found, altogether or in each group, such that the root mean square of
    the spreads equals that of the errors.

    Parameters
    ----------
    input : {"members", "mean_std"}, default="members"
        What a row of `X` holds: the members of an ensemble, which are stretched about
        their mean; or a mean and a standard deviation.

    Attributes
    ----------
    scale_ : float
        Factor over all rows.

    group_scales_ : dict
        Factor of each group, if groups were given.

    n_features_in_ : int
        Number of columns of `X`.

    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the columns, where `X` had string names.

    See Also
    --------
    LocationScaleCalibrator : Correct the mean too.

    Notes
    -----
    Members have rows first here, as all transformers do: hand in ``members.T`` of a
    `RegressionEnsemble`.

    References
    ----------
    .. [1] M.-H. Laves, S. Ihler, J. F. Fast, L. A. Kahrs, T. Ortmaier (2020),
       "Well-Calibrated Regression Uncertainty in Medical Imaging with Deep Learning",
       MIDL: one factor for the spread; here by moments, not by likelihood, so that
       rows of next to no spread do not decide it.

    Examples
    --------
    >>> import numpy as np
    >>> from uqformer.calibration import SpreadCalibrator
    >>> members = np.array([[-1.0, 1.0], [9.0, 11.0]])
    >>> calibrator = SpreadCalibrator().fit(members, [2.0, 12.0])
    >>> calibrator.scale_
    2.0
    >>> calibrator.transform(members)
    array([[-2.,  2.],
           [ 8., 12.]])
    """

    def __init__(self, *, input: Input = "members") -> None:
        self.input = input

    @fit_context(prefer_skip_nested_validation=True)
    def fit(
        self, X: ArrayLike, y: ArrayLike, *, groups: ArrayLike | None = None
    ) -> Self:
        """Find the factor.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_members) or (n_samples, 2)
            Predictions of rows that the model was not trained on, in units of `y`.

        y : array-like of shape (n_samples,)
            True targets.

        groups : array-like of shape (n_samples,), default=None
            Group of each row, to be scaled apart. None is one group.

        Returns
        -------
        self : SpreadCalibrator
            The fitted calibrator.
        """
        mean, std, targets = self._check_fit(X, y)
        residuals = targets - mean
        self.scale_ = _scale(residuals, std, "")
        self.group_scales_: dict[Any, float] | None = None
        if groups is not None:
            self._groups = Groups(check_labels(groups, len(targets)))
            self.group_scales_ = {
                name: _scale(residuals[rows], std[rows], f" of group {name!r}")
                for name, rows, _ in self._groups.pairs(self._groups.labels)
            }
        return self

    def transform(
        self, X: ArrayLike, *, groups: ArrayLike | None = None
    ) -> Float64Array:
        """Scale the spreads.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_members) or (n_samples, 2)
            Predictions of the kind given to ``fit``.

        groups : array-like of shape (n_samples,), default=None
            Group of each row, if ``fit`` was given groups.

        Returns
        -------
        X_new : ndarray of the same shape
            Predictions of the same kind, in units of `y`.
        """
        rows = self._check_new(X)
        mean, std = self._mean_and_std(rows)
        return self._put_back(rows, mean, std * self._scales(len(rows), groups))

    def _scales(self, n_rows: int, groups: ArrayLike | None) -> Float64Array:
        if (groups is None) != (self.group_scales_ is None):
            given = ("fit", "transform") if groups is None else ("transform", "fit")
            raise ValueError(
                "groups must be given to fit and to transform, or to neither; got them "
                f"in {given[0]} and not in {given[1]}."
            )
        scales = np.full(n_rows, self.scale_)
        if groups is not None and self.group_scales_ is not None:
            for name, _, new in self._groups.pairs(check_labels(groups, n_rows)):
                scales[new] = self.group_scales_[name]
        return scales


class LocationScaleCalibrator(_SpreadTransformer):
    """Correct mean and spread: shift, slope, scale, and noise that no spread shows.

    The normal distribution with mean ``intercept + slope * mean`` and variance
    ``floor² + scale² * std²`` is fitted by the continuous ranked probability score
    (ensemble model output statistics) [1]_.

    Parameters
    ----------
    input : {"members", "mean_std"}, default="members"
        What a row of `X` holds: the members of an ensemble, which are moved and
        stretched together; or a mean and a standard deviation.

    Attributes
    ----------
    intercept_ : float
        Shift of the mean, in units of `y`.

    slope_ : float
        Factor of the mean.

    floor_ : float
        Standard deviation where the spread is zero, in units of `y`.

    scale_ : float
        Factor of the spread.

    n_features_in_ : int
        Number of columns of `X`.

    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the columns, where `X` had string names.

    See Also
    --------
    SpreadCalibrator : Leave the mean as it is.
    QuantileCalibrator : Correct the shape of the distribution.

    Notes
    -----
    Four numbers are fitted, so a few dozen rows are enough. Members that are all equal
    stay so: they are moved, but have no direction to be stretched in.

    References
    ----------
    .. [1] T. Gneiting, A. E. Raftery, A. H. Westveld, T. Goldman (2005), "Calibrated
       Probabilistic Forecasting Using Ensemble Model Output Statistics and Minimum
       CRPS Estimation", Monthly Weather Review 133.

    Examples
    --------
    >>> import numpy as np
    >>> from uqformer.calibration import LocationScaleCalibrator
    >>> rng = np.random.default_rng(0)
    >>> mean, std = rng.normal(size=500), rng.uniform(0.5, 2.0, size=500)
    >>> y = 1.0 + 2.0 * mean + 3.0 * std * rng.standard_normal(500)
    >>> calibrator = LocationScaleCalibrator(input="mean_std")
    >>> calibrator = calibrator.fit(np.column_stack([mean, std]), y)
    >>> bool(abs(calibrator.scale_ - 3) < 0.3)
    True
    """

    def __init__(self, *, input: Input = "members") -> None:
        self.input = input

    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Find the four numbers.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_members) or (n_samples, 2)
            Predictions of rows that the model was not trained on, in units of `y`.

        y : array-like of shape (n_samples,)
            True targets.

        Returns
        -------
        self : LocationScaleCalibrator
            The fitted calibrator.
        """
        mean, std, targets = self._check_fit(X, y)
        # in units of the error and about the middle the start below is a good one
        middle = float(mean.mean())
        unit = float(np.sqrt(np.mean((targets - mean) ** 2))) or 1.0
        found = minimize(
            _crps_and_gradient,
            x0=[0.0, 1.0, 0.5, 0.5],
            args=((mean - middle) / unit, std / unit, (targets - middle) / unit),
            jac=True,
            method="L-BFGS-B",
            bounds=[(None, None), (None, None), (LEAST_FLOOR, None), (0.0, None)],
        )
        shift, slope, floor, scale = (float(value) for value in found.x)
        self.intercept_ = middle + unit * shift - slope * middle
        self.slope_ = slope
        self.floor_ = unit * floor
        self.scale_ = scale
        return self

    def transform(self, X: ArrayLike) -> Float64Array:
        """Move and scale the predictions.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_members) or (n_samples, 2)
            Predictions of the kind given to ``fit``.

        Returns
        -------
        X_new : ndarray of the same shape
            Predictions of the same kind, in units of `y`.
        """
        rows = self._check_new(X)
        mean, std = self._mean_and_std(rows)
        return self._put_back(
            rows,
            self.intercept_ + self.slope_ * mean,
            np.hypot(self.floor_, self.scale_ * std),
        )


def _scale(residuals: Float64Array, std: Float64Array, where: str) -> float:
    """Ratio of the root mean squares of errors and spreads."""
    if not (std > 0).any():
        raise ValueError(
            "The spread must be positive in at least one row to be scaled; got "
            f"{len(std)} rows{where} without any spread."
        )
    return float(np.sqrt(np.sum(residuals**2) / np.sum(std**2)))


def _crps_and_gradient(
    numbers: Float64Array, mean: Float64Array, std: Float64Array, y: Float64Array
) -> tuple[float, Float64Array]:
    """Mean CRPS of the corrected normal distributions, and its derivatives."""
    shift, slope, floor, scale = numbers
    sigma = np.hypot(floor, scale * std)
    z = (y - shift - slope * mean) / sigma
    density = np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi)
    two_sided = 2 * ndtr(z) - 1
    by_sigma = 2 * density - 1 / np.sqrt(np.pi)
    loss = float(np.mean(sigma * (z * two_sided + by_sigma)))
    by_floor = by_sigma * floor / sigma
    by_scale = by_sigma * scale * std**2 / sigma
    parts = [-two_sided, -two_sided * mean, by_floor, by_scale]
    return loss, np.array([part.mean() for part in parts])
