"""Behind a regressor's verbs: its targets, and predictions in the network's units."""

import warnings

import numpy as np
from numpy.typing import ArrayLike
from sklearn.preprocessing import StandardScaler
from sklearn.utils import Tags

from uqformer._random import member_seeds
from uqformer._training import WeightedSquaredError
from uqformer._typing import AnyArray, Float64Array, IntArray
from uqformer.calibration import AdaptiveConformal
from uqformer.estimators._calibrated import HeldOutCalibration, point_and_spread
from uqformer.estimators._core import TransformerCore
from uqformer.estimators._inputs import (
    ArrayInputs,
    ReadInputs,
    UserInputs,
    count_rows,
)
from uqformer.estimators._passes import Passes
from uqformer.estimators._rows import HeldOut, Parts
from uqformer.exceptions import InsufficientCalibrationError, UQFormerWarning
from uqformer.predictive import RegressionEnsemble

__all__ = ["RegressorCore"]


class RegressorCore(TransformerCore):
    """A regressor without its public verbs, which stand in the subclass."""

    _criterion = WeightedSquaredError

    def _validate_rows(
        self, X: UserInputs, y: ArrayLike, sample_weight: ArrayLike | None
    ) -> tuple[ReadInputs, AnyArray, Float64Array]:
        """Return X, y as (n, C) and weights, without rows of weight 0."""
        inputs, targets, weight = self._read_weighted(
            X, y, sample_weight, multi_output=True, y_numeric=True
        )
        targets = np.asarray(targets, dtype=np.float64)
        self.y_ndim_ = targets.ndim
        targets = targets.reshape(len(targets), -1)  # (n, C)
        if self._trains():
            _warn_of_constant_targets(targets)
        return inputs, targets, weight / weight.mean()

    def _part(self, targets: AnyArray, seed: int) -> Parts:
        return self._parted(targets, seed, calibrates=self.interval == "conformal")

    def _learn_targets(
        self, targets: AnyArray, weight: Float64Array, train: IntArray
    ) -> AnyArray:
        """Learn the scale of the targets from the training rows alone."""
        self.n_outputs_ = targets.shape[1]
        self.target_center_ = np.zeros(self.n_outputs_)
        self.target_scale_ = np.ones(self.n_outputs_)
        if self._trains():  # a guest that is used as it is gives its own units
            scaler = StandardScaler().fit(targets[train], sample_weight=weight[train])
            self.target_center_, self.target_scale_ = scaler.mean_, scaler.scale_
        scaled: AnyArray = (targets - self.target_center_) / self.target_scale_
        return scaled

    def _keep(self, validation: HeldOut, calibration: HeldOut, seed: int) -> None:
        """Keep the rows that calibrate, and the size of the error on them."""
        self.calibration_ = HeldOutCalibration(validation, calibration, seed)
        judged = calibration if len(calibration) else validation
        error = np.sqrt((judged.residuals() ** 2).mean(axis=0)) * self.target_scale_
        self.residual_std_ = error[0] if self.y_ndim_ == 1 else error

    def _calibrate(self, passes: Passes) -> None:
        """Do now what the first prediction would otherwise wait for."""
        n_draws = self.n_draws
        if n_draws == "auto":
            with self._timed("search"):
                n_draws = self.calibration_.search(passes).n_draws
        if len(self.calibration_.calibration):
            with self._timed("conformal"):
                self.calibration_.conformal(passes, n_draws, self.n_members, self.point)

    def _interval_ends(self, inputs: ArrayInputs, levels: Float64Array) -> Float64Array:
        """Return ends of shape (n, 2, n_levels[, n_outputs])."""
        if self.interval == "ensemble":
            return self._ensemble(inputs).interval(levels)
        point, spread = self._point_and_spread(inputs)
        half = self._conformal().half_width(spread, levels)  # (n, n_levels, C)
        middle = point[:, None]
        return self._in_units(np.stack([middle - half, middle + half], axis=1))

    def _quantiles(self, inputs: ArrayInputs, wanted: Float64Array) -> Float64Array:
        """Return quantiles of shape (n, n_quantiles[, n_outputs])."""
        if self.interval == "ensemble":
            return self._ensemble(inputs).quantile(wanted)
        point, spread = self._point_and_spread(inputs)
        level = np.abs(2 * wanted - 1)  # of the interval that ends at the quantile
        half = np.zeros((count_rows(inputs), len(wanted), self.n_outputs_))
        apart = level > 0  # the median is the point itself
        if apart.any():
            half[:, apart] = self._conformal().half_width(spread, level[apart])
        side = np.sign(2 * wanted - 1)[:, None]
        return self._in_units(point[:, None] + side * half)

    def _ensemble(self, inputs: ArrayInputs) -> RegressionEnsemble:
        seeds = member_seeds(self.seed_, self.n_members)
        members = self._passes(self.module_).members(inputs, self.n_draws_, seeds)
        return RegressionEnsemble(self._in_units(members))

    def _point_and_spread(
        self, inputs: ArrayInputs
    ) -> tuple[Float64Array, Float64Array]:
        """Return point and spread in the units of the module, (n, C) each."""
        passes = self._passes(self.module_)
        exact = passes.exact(inputs)
        seeds = member_seeds(self.seed_, self.n_members)
        moments = passes.deviations(inputs, exact, self.n_draws_, seeds)
        return point_and_spread(exact, moments, self.point)

    def _derived_spread(self, inputs: ArrayInputs) -> Float64Array:
        """Return the spread (n, C) that one pass without any member tells."""
        variance = self._passes(self.module_).variance(inputs, self.n_draws_)
        spread: Float64Array = np.sqrt(variance)
        return spread

    def _conformal(self) -> AdaptiveConformal:
        if not len(self.calibration_.calibration):
            raise InsufficientCalibrationError(
                "interval='conformal' needs calibration rows, but the estimator was "
                "fitted with interval='ensemble' and kept none. Fit it again."
            )
        return self.calibration_.conformal(
            self._passes(self.module_), self.n_draws_, self.n_members, self.point
        )

    def _in_units(self, values: Float64Array) -> Float64Array:
        """Turn (..., C) outputs into units of `y`, without C for a flat `y`."""
        return self._flat(self.target_center_ + self.target_scale_ * values)

    def _stretched(self, spread: Float64Array) -> Float64Array:
        """Turn (..., C) spreads into units of `y`."""
        return self._flat(self.target_scale_ * spread)

    def _units(self) -> tuple[Float64Array, Float64Array]:
        return self.target_center_, self.target_scale_

    def _flat(self, values: Float64Array) -> Float64Array:
        return values[..., 0] if self.y_ndim_ == 1 else values

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.target_tags.single_output = True
        return tags


def _warn_of_constant_targets(y: AnyArray) -> None:
    """Warn of targets that never change, which is rarely meant."""
    if (np.ptp(y, axis=0) == 0).all():
        warnings.warn(
            f"y is constant at {y[0].tolist()}; there is nothing to learn, and "
            "intervals will be as narrow as the network can fit that number. Check "
            "that y is the target you meant.",
            UQFormerWarning,
            stacklevel=4,
        )
