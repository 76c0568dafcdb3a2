"""Behind a regressor's verbs: its fit, and its predictions in the network's units."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.preprocessing import StandardScaler
from torch import nn

from uqformer._random import derive_seed, member_seeds, seeded
from uqformer._training import Rows, TrainingRecipe, train_regressor
from uqformer._typing import AnyArray, Float64Array, IntArray
from uqformer._validation import check_sample_weight, validate_data
from uqformer.attention import find_attention_modules
from uqformer.backbones import make_backbone
from uqformer.calibration import AdaptiveConformal
from uqformer.estimators._base import (
    MIN_SAMPLES,
    BaseTransformerEstimator,
    clear_about_strings,
)
from uqformer.estimators._calibrated import HeldOutCalibration, point_and_spread
from uqformer.estimators._passes import Passes, resolve_device
from uqformer.estimators._rows import HeldOut, Parts, part_rows
from uqformer.exceptions import InsufficientCalibrationError, UQFormerWarning
from uqformer.predictive import RegressionEnsemble

__all__ = ["RegressorCore"]


class RegressorCore(BaseTransformerEstimator):
    """A regressor without its public verbs, which stand in the subclass."""

    def _fit_rows(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None,
        seed: int,
    ) -> None:
        rows, targets, weight = self._validate_rows(X, y, sample_weight)
        parts = part_rows(
            len(rows),
            validation_fraction=self.validation_fraction,
            calibration_fraction=self._calibration_fraction(),
            trains=not self._is_frozen(),
            seed=seed,
        )
        self._scale(rows, targets, weight, parts.train)
        inputs = self._scaled_inputs(rows)
        targets = (targets - self.target_center_) / self.target_scale_
        module = self._make_module(inputs, parts.train, seed)
        passes = self._passes(module)
        passes.check(inputs)
        self.fit_times_: dict[str, float] = {}
        if not self._is_frozen():
            with self._timed("training"):
                self.history_ = self._train(
                    module, inputs, targets, weight, parts, seed
                )
        self._hold_out(passes, inputs, targets, weight, parts, seed)
        self.seed_ = seed
        self.device_ = str(self._device(module))
        self._calibrate(passes)
        self.module_ = module  # last: only now is the estimator fitted

    def _calibration_fraction(self) -> float:
        return self.calibration_fraction if self.interval == "conformal" else 0.0

    def _validate_rows(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None
    ) -> tuple[Float64Array, Float64Array, Float64Array]:
        """Return X, y as (n, C) and weights, all float64, without rows of weight 0."""
        with clear_about_strings():
            inputs, targets = validate_data(
                self,
                X,
                y,
                dtype=np.float64,
                multi_output=True,
                y_numeric=True,
                allow_nd=self._allows_more_dimensions(),
                ensure_min_samples=MIN_SAMPLES,
            )
        targets = np.asarray(targets, dtype=np.float64)
        self.y_ndim_ = targets.ndim
        targets = targets.reshape(len(targets), -1)  # (n, C)
        weight = check_sample_weight(sample_weight, inputs, ensure_non_negative=True)
        kept = weight > 0
        if kept.sum() < MIN_SAMPLES:
            raise ValueError(
                f"At least {MIN_SAMPLES} rows must have a positive sample_weight; got "
                f"{int(kept.sum())} of {len(kept)}."
            )
        inputs, targets, weight = inputs[kept], targets[kept], weight[kept]
        if not self._is_frozen():
            _warn_of_constants(inputs, targets)
        return inputs, targets, np.asarray(weight, dtype=np.float64) / weight.mean()

    def _scale(
        self, X: Float64Array, y: Float64Array, weight: Float64Array, train: IntArray
    ) -> None:
        """Learn the scales of inputs and targets from the training rows alone."""
        self.n_outputs_ = y.shape[1]
        self.feature_scaler_ = None
        self.target_center_ = np.zeros(self.n_outputs_)
        self.target_scale_ = np.ones(self.n_outputs_)
        if self._is_frozen():
            return  # a guest takes and gives its own units
        scaler = StandardScaler().fit(y[train], sample_weight=weight[train])
        self.target_center_, self.target_scale_ = scaler.mean_, scaler.scale_
        if X.ndim == 2:
            self.feature_scaler_ = StandardScaler().fit(
                X[train], sample_weight=weight[train]
            )

    def _make_module(self, inputs: AnyArray, train: IntArray, seed: int) -> nn.Module:
        """Build the backbone, let it see the training rows, find its attention."""
        with seeded(derive_seed(seed, "weights")):
            module = make_backbone(
                self.backbone, inputs.shape[1], self.n_outputs_, self.backbone_params
            )
            adapt = getattr(module, "adapt", None)
            if adapt is not None and not self._is_frozen():
                adapt(torch.from_numpy(inputs[train]))
        find_attention_modules(module, self.layers)
        return module.to(self._device(module))

    def _device(self, module: nn.Module) -> torch.device:
        """Where the module runs: a guest stays where it is."""
        if self._is_frozen():
            places = (tensor.device for tensor in _state(module))
            return next(places, torch.device("cpu"))
        return resolve_device(self.device)

    def _passes(self, module: nn.Module) -> Passes:
        return Passes(
            module,
            self.n_outputs_,
            self.layers,
            self._device(module),
            self.predict_batch_size,
            self.verbose,
        )

    def _train(
        self,
        module: nn.Module,
        inputs: AnyArray,
        targets: Float64Array,
        weight: Float64Array,
        parts: Parts,
        seed: int,
    ) -> list[dict[str, float]]:
        """Train in place; returns the losses by epoch."""
        recipe = TrainingRecipe(
            self.max_epochs,
            self.learning_rate,
            self.weight_decay,
            self._training_batch_size(len(parts.train)),
            self.n_iter_no_change,
        )
        train, valid = (
            _tensors(inputs, targets, weight, rows)
            for rows in (parts.train, parts.validation)
        )
        return train_regressor(
            module,
            train,
            valid,
            recipe,
            seed=derive_seed(seed, "training"),
            device=self._device(module),
            verbose=self.verbose,
        )

    def _training_batch_size(self, n_rows: int) -> int:
        """About 50 steps an epoch on small tables, never more than 256 rows a step."""
        if self.batch_size != "auto":
            return int(self.batch_size)
        return int(np.clip(2 ** round(np.log2(n_rows / 50)), 32, 256))

    def _hold_out(
        self,
        passes: Passes,
        inputs: AnyArray,
        targets: Float64Array,
        weight: Float64Array,
        parts: Parts,
        seed: int,
    ) -> None:
        """Keep the rows that calibrate, and the size of the error on them."""
        validation, calibration = (
            HeldOut.run(passes, inputs[rows], targets[rows], weight[rows])
            for rows in (parts.validation, parts.calibration)
        )
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

    @contextmanager
    def _timed(self, stage: str) -> Iterator[None]:
        start = perf_counter()
        yield
        self.fit_times_[stage] = perf_counter() - start

    def _interval_ends(self, inputs: AnyArray, levels: Float64Array) -> Float64Array:
        """Return ends of shape (n, 2, n_levels[, n_outputs])."""
        if self.interval == "ensemble":
            return self._ensemble(inputs).interval(levels)
        point, spread = self._point_and_spread(inputs)
        half = self._conformal().half_width(spread, levels)  # (n, n_levels, C)
        middle = point[:, None]
        return self._in_units(np.stack([middle - half, middle + half], axis=1))

    def _quantiles(self, inputs: AnyArray, wanted: Float64Array) -> Float64Array:
        """Return quantiles of shape (n, n_quantiles[, n_outputs])."""
        if self.interval == "ensemble":
            return self._ensemble(inputs).quantile(wanted)
        point, spread = self._point_and_spread(inputs)
        level = np.abs(2 * wanted - 1)  # of the interval that ends at the quantile
        half = np.zeros((len(inputs), len(wanted), self.n_outputs_))
        apart = level > 0  # the median is the point itself
        if apart.any():
            half[:, apart] = self._conformal().half_width(spread, level[apart])
        side = np.sign(2 * wanted - 1)[:, None]
        return self._in_units(point[:, None] + side * half)

    def _ensemble(self, inputs: AnyArray) -> RegressionEnsemble:
        seeds = member_seeds(self.seed_, self.n_members)
        members = self._passes(self.module_).members(inputs, self.n_draws_, seeds)
        return RegressionEnsemble(self._in_units(members))

    def _point_and_spread(self, inputs: AnyArray) -> tuple[Float64Array, Float64Array]:
        """Return point and spread in the units of the module, (n, C) each."""
        passes = self._passes(self.module_)
        exact = passes.exact(inputs)
        seeds = member_seeds(self.seed_, self.n_members)
        moments = passes.deviations(inputs, exact, self.n_draws_, seeds)
        return point_and_spread(exact, moments, self.point)

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

    def _flat(self, values: Float64Array) -> Float64Array:
        return values[..., 0] if self.y_ndim_ == 1 else values


def _state(module: nn.Module) -> Iterator[torch.Tensor]:
    yield from module.parameters()
    yield from module.buffers()


def _tensors(
    inputs: AnyArray, targets: Float64Array, weight: Float64Array, rows: IntArray
) -> Rows:
    return Rows(
        torch.from_numpy(inputs[rows]),
        torch.from_numpy(targets[rows].astype(np.float32)),
        torch.from_numpy(weight[rows].astype(np.float32)),
    )


def _warn_of_constants(X: Float64Array, y: Float64Array) -> None:
    """Warn of columns and targets that never change, which is rarely meant."""
    if X.ndim == 2:
        constant = np.flatnonzero(np.ptp(X, axis=0) == 0)
        if 0 < len(constant) < X.shape[1]:
            warnings.warn(
                f"X has {len(constant)} columns that are constant, at positions "
                f"{constant.tolist()}; they tell no row from another and are ignored. "
                "Drop them to silence this.",
                UQFormerWarning,
                stacklevel=4,
            )
    if (np.ptp(y, axis=0) == 0).all():
        warnings.warn(
            f"y is constant at {y[0].tolist()}; there is nothing to learn, and "
            "intervals will be as narrow as the network can fit that number. Check "
            "that y is the target you meant.",
            UQFormerWarning,
            stacklevel=4,
        )
