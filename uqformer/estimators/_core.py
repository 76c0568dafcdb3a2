"""Behind the verbs of regressors and classifiers: the course of a fit."""

import warnings
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from time import perf_counter
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.preprocessing import StandardScaler
from torch import nn

from uqformer._random import derive_seed, seeded
from uqformer._training import Rows, TrainingRecipe, train_backbone
from uqformer._typing import AnyArray, Float64Array, IntArray
from uqformer._validation import check_sample_weight
from uqformer.attention import find_attention_modules
from uqformer.backbones import make_backbone
from uqformer.backbones._adapters import STANDARDISED, GuestProtocol, InUnits
from uqformer.estimators._base import MIN_SAMPLES, BaseTransformerEstimator
from uqformer.estimators._cells import Table
from uqformer.estimators._frozen import FittedBackbone
from uqformer.estimators._inputs import (
    ArrayInputs,
    ReadInputs,
    UserInputs,
    as_network_numbers,
    as_tensors,
    form_of,
    take_rows,
)
from uqformer.estimators._passes import Passes, resolve_device
from uqformer.estimators._rows import (
    HeldOut,
    Parts,
    check_all_classes_train,
    part_rows,
)
from uqformer.estimators._tables import TableEncoder
from uqformer.exceptions import UQFormerWarning

__all__ = ["TransformerCore"]


class TransformerCore(BaseTransformerEstimator):
    """An estimator without its verbs: a subclass knows its targets and calibration."""

    _criterion: ClassVar[type[nn.Module]]
    """Class of the training loss."""

    @abstractmethod
    def _validate_rows(
        self, X: UserInputs, y: ArrayLike, sample_weight: ArrayLike | None
    ) -> tuple[ReadInputs, AnyArray, Float64Array]:
        """Return rows, targets and weights of mean 1, without rows of weight 0."""

    @abstractmethod
    def _part(self, targets: AnyArray, seed: int) -> Parts:
        """Part the rows for training, validation and calibration."""

    @abstractmethod
    def _learn_targets(
        self, targets: AnyArray, weight: Float64Array, train: IntArray
    ) -> AnyArray:
        """Set `n_outputs_`, and return targets in the units of the module."""

    @abstractmethod
    def _keep(self, validation: HeldOut, calibration: HeldOut, seed: int) -> None:
        """Set `calibration_`, which calibrates on the rows held out."""

    @abstractmethod
    def _calibrate(self, passes: Passes) -> None:
        """Do now what the first prediction would otherwise wait for."""

    def _parted(
        self,
        targets: AnyArray,
        seed: int,
        *,
        calibrates: bool,
        classes: AnyArray | None = None,
    ) -> Parts:
        """Part the rows as the parameters say; `targets` may be codes of `classes`."""
        parts = part_rows(
            len(targets),
            validation_fraction=self.validation_fraction,
            calibration_fraction=self.calibration_fraction if calibrates else 0.0,
            trains=self._needs_training_rows(),
            seed=seed,
            codes=None if classes is None else targets,
            shuffle=self.shuffle,
            embargo=self.embargo,
        )
        if classes is not None and not self.shuffle:
            check_all_classes_train(parts, targets, classes)
        return parts

    def _needs_training_rows(self) -> bool:
        return self._trains()

    @property
    def n_draws_(self) -> int | None:
        """Draws per attention row in use."""
        self._check_ready()
        n_draws: int | None = self.n_draws
        if self.n_draws == "auto":
            n_draws = self.calibration_.search(self._passes(self.module_)).n_draws
        return n_draws

    def as_frozen(self) -> GuestProtocol:
        """Return the trained network as a guest, to be calibrated on other rows.

        Returns
        -------
        guest : object
            What to hand to an estimator as `backbone`. It takes `X` as this estimator
            does and predicts in the units of `y`, where `module_` itself knows only
            standardised numbers. A later ``fit`` of this estimator does not change it.

        See Also
        --------
        uqformer.backbones.FrozenBackbone : For models that others have trained.

        Notes
        -----
        With a list of names for `layers`, put ``module.`` before each.

        Examples
        --------
        >>> import numpy as np
        >>> from uqformer import StochasticAttentionRegressor
        >>> X = np.random.default_rng(0).normal(size=(90, 3))
        >>> y = 100 + X.sum(axis=1)
        >>> model = StochasticAttentionRegressor(max_epochs=2, n_draws=8)
        >>> guest = model.fit(X[:60], y[:60]).as_frozen()
        >>> later = StochasticAttentionRegressor(guest, n_draws=8)
        >>> later = later.fit(X[60:], y[60:])  # only calibrates
        >>> bool(np.allclose(later.predict(X), model.predict(X), rtol=1e-4))
        True
        """
        self._check_ready()
        classes = getattr(self, "classes_", None)
        if classes is not None:
            classes = classes[np.argsort(self.columns_)]  # as the module has them
        module = self._trained_module()
        wrapped = InUnits(module, *self._units()).to(self._device(module))
        return FittedBackbone(copy(self)._validate_new, wrapped, classes)

    def _trained_module(self) -> nn.Module:
        module: nn.Module = self.module_
        return module

    def _units(self) -> tuple[Float64Array, Float64Array]:
        """Center and scale that turn outputs of the module into the units of `y`."""
        return np.zeros(self.n_outputs_), np.ones(self.n_outputs_)

    def _tell_units(self, module: nn.Module) -> None:
        """Note on a module that was trained here what it knows of nothing else."""
        if self._trains():
            scaled = {
                "inputs": self.feature_scaler_ is not None,
                "targets": (self._units()[1] != 1).any(),
            }
            setattr(
                module, STANDARDISED, tuple(side for side in scaled if scaled[side])
            )

    def _fit_rows(
        self,
        X: UserInputs,
        y: ArrayLike,
        sample_weight: ArrayLike | None,
        seed: int,
    ) -> None:
        rows, targets, weight = self._validate_rows(X, y, sample_weight)
        parts = self._part(targets, seed)
        targets = self._learn_targets(targets, weight, parts.train)
        module, inputs = self._build(rows, weight, parts.train, seed)
        passes = self._passes(module)
        passes.check(inputs)
        self.fit_times_: dict[str, float] = {}
        if self._trains():
            with self._timed("training"):
                self.history_ = self._train(
                    module, inputs, targets, weight, parts, seed
                )
        validation, calibration = (
            HeldOut.run(passes, take_rows(inputs, part), targets[part], weight[part])
            for part in (parts.validation, parts.calibration)
        )
        self._keep(validation, calibration, seed)
        self.seed_ = seed
        self.device_ = str(self._device(module))
        self._calibrate(passes)
        self._tell_units(module)
        self.module_ = module  # last: only now is the estimator fitted

    def _read_weighted(
        self,
        X: UserInputs,
        y: ArrayLike,
        sample_weight: ArrayLike | None,
        **checks: Any,
    ) -> tuple[ReadInputs, AnyArray, Float64Array]:
        """Check what fit is given and leave out rows of weight 0."""
        rows, targets = self._read_fit(X, y, **checks)
        weight = check_sample_weight(
            sample_weight, targets, dtype=np.float64, ensure_non_negative=True
        )
        kept = weight > 0
        if kept.sum() < MIN_SAMPLES:
            raise ValueError(
                f"At least {MIN_SAMPLES} rows must have a positive sample_weight; got "
                f"{int(kept.sum())} of {len(kept)}."
            )
        return take_rows(rows, kept), targets[kept], weight[kept]

    def _build(
        self, rows: ReadInputs, weight: Float64Array, train: IntArray, seed: int
    ) -> tuple[nn.Module, ArrayInputs]:
        """Make the backbone, bring the inputs to its scale and find its attention."""
        self.feature_scaler_: Any = None
        if isinstance(rows, Table):
            self.feature_scaler_ = TableEncoder(self.categorical_features).fit(
                rows[train], sample_weight=weight[train]
            )
        with seeded(derive_seed(seed, "weights")):
            module = self._make_module(rows)
            self.takes_tokens_ = bool(getattr(module, "takes_tokens", False))
            if self._needs_scale(module, rows):
                self.feature_scaler_ = StandardScaler().fit(
                    take_rows(rows, train), sample_weight=weight[train]
                )
            if self.feature_scaler_ is not None:
                _warn_of_constant_columns(rows)
            inputs = self._scaled_inputs(rows)
            adapt = getattr(module, "adapt", None)
            if adapt is not None and self._guest() is None:
                adapt(as_tensors(take_rows(inputs, train)))
        find_attention_modules(module, self.layers)
        return module.to(self._device(module)), inputs

    def _make_module(self, rows: ReadInputs) -> nn.Module:
        guest = self._guest()
        if guest is None:
            row_shape: Any = form_of(rows)
            n_features, params = row_shape[0], self.backbone_params
            if isinstance(rows, Table):
                sizes = self.feature_scaler_.n_categories_
                n_features = len(sizes)  # a date is several numbers
                params = (params or {}) | {"n_categories": sizes}
            return make_backbone(self.backbone, n_features, self.n_outputs_, params)
        if self.backbone_params:
            raise ValueError(
                "backbone_params shape a backbone that is built by name or by a "
                f"callable; got backbone_params={self.backbone_params} with the guest "
                f"{guest!r:.60}. Leave them out."
            )
        return guest.build(self.n_outputs_)

    def _needs_scale(self, module: nn.Module, rows: ReadInputs) -> bool:
        """Tell whether rows are columns of numbers that nobody else scales."""
        is_scaled = self.takes_tokens_ or getattr(module, "scales_inputs", False)
        if is_scaled or self._guest() is not None:
            return False
        return isinstance(rows, np.ndarray) and rows.ndim == 2

    def _device(self, module: nn.Module) -> torch.device:
        """Where the module runs: a guest that is used as it is stays where it is."""
        if self._trains():
            return resolve_device(self.device)
        places = (tensor.device for tensor in _state(module))
        return next(places, torch.device("cpu"))

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
        inputs: ArrayInputs,
        targets: AnyArray,
        weight: Float64Array,
        parts: Parts,
        seed: int,
    ) -> list[dict[str, Any]]:
        """Train in place; returns the losses by epoch."""
        recipe = TrainingRecipe(
            self.max_epochs,
            self.learning_rate,
            self.weight_decay,
            self._training_batch_size(len(parts.train)),
            self.n_iter_no_change,
        )
        train, valid = (
            Rows(
                as_tensors(take_rows(inputs, part)),
                torch.from_numpy(as_network_numbers(targets[part], "y")),
                torch.from_numpy(weight[part].astype(np.float32)),
            )
            for part in (parts.train, parts.validation)
        )
        return train_backbone(
            module,
            train,
            valid,
            recipe,
            criterion=self._criterion,
            seed=derive_seed(seed, "training"),
            device=self._device(module),
            verbose=self.verbose,
        )

    def _training_batch_size(self, n_rows: int) -> int:
        """About 50 steps an epoch on small tables, never more than 256 rows a step."""
        if self.batch_size != "auto":
            return int(self.batch_size)
        return int(np.clip(2 ** round(np.log2(n_rows / 50)), 32, 256))

    @contextmanager
    def _timed(self, stage: str) -> Iterator[None]:
        start = perf_counter()
        yield
        self.fit_times_[stage] = perf_counter() - start


def _state(module: nn.Module) -> Iterator[torch.Tensor]:
    yield from module.parameters()
    yield from module.buffers()


def _warn_of_constant_columns(X: ReadInputs) -> None:
    """Warn of columns that never change, which is rarely meant."""
    constant = _constant_columns(X)
    if constant:
        warnings.warn(
            f"X has {len(constant)} columns that are constant: {constant}; they tell "
            "no row from another and are ignored. Drop them to silence this.",
            UQFormerWarning,
            stacklevel=5,
        )


def _constant_columns(X: ReadInputs) -> list[Any]:
    """Name the columns that are constant, where others are not."""
    constant: list[Any] = []
    n_columns = 0
    if isinstance(X, Table):
        constant = [column.name for column in X.columns if column.never_changes()]
        n_columns = len(X.columns)
    elif isinstance(X, np.ndarray) and X.ndim == 2:
        constant = np.flatnonzero(np.ptp(X, axis=0) == 0).tolist()
        n_columns = X.shape[1]
    # where all are, the backbone has more to say
    return constant if len(constant) < n_columns else []
