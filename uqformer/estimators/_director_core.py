"""Behind the estimators that distil: a backbone is trained, and a student taught."""

from abc import abstractmethod
from copy import deepcopy
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from uqformer._random import derive_seed, member_seeds
from uqformer._training import Inputs
from uqformer._typing import AnyArray, Float64Array, IntArray
from uqformer._validation import Interval, StrOptions
from uqformer.director import DistillationRecipe, Student, Task
from uqformer.director._rollout import n_steps_or_own
from uqformer.estimators._base import BaseTransformerEstimator
from uqformer.estimators._core import TransformerCore
from uqformer.estimators._director_distil import Distillation, Findings, PairOfRows
from uqformer.estimators._director_passes import ChainPasses
from uqformer.estimators._inputs import ArrayInputs, UserInputs, as_tensors, take_rows
from uqformer.estimators._passes import Passes, evaluating
from uqformer.estimators._rows import HeldOut, Parts

__all__ = ["DirectorCore"]

NOT_ITS_OWN = ("n_members", "layers")
"""Parameters of redrawn attention that mean nothing to chains."""


AUTO_STEPS = 3000
"""Steps of a distillation whose number of epochs is left to it."""

AUTO_EPOCHS = (40, 400)
"""Fewest and most epochs then."""

LEAST_PATIENCE = 3
"""Part of the epochs that is waited for a better validation loss, as one in so many.

On small sets an epoch is few steps, and the loss of few rows falls by leaps.
"""


class DirectorCore(TransformerCore):
    """An estimator whose module is a student of its backbone.

    It stands behind a `ClassifierCore` or `RegressorCore`, whose members are chains
    here.
    """

    findings_: Findings

    layers = "all"
    """The whole of the backbone becomes a chain; there is nothing to choose."""

    _parameter_constraints: dict[str, list[Any]] = {
        **{
            name: constraint
            for name, constraint in (
                BaseTransformerEstimator._parameter_constraints.items()
            )
            if name not in NOT_ITS_OWN
        },
        "n_chains": [Interval(Integral, 1, None, closed="left")],
        "variance": [StrOptions({"attention", "sgpa", "kep"})],
        "n_draws": [Interval(Integral, 1, None, closed="left"), StrOptions({"auto"})],
        "loss": [StrOptions({"kl", "mse"})],
        "performance_weight": [
            Interval(Real, 0, None, closed="left"),
            StrOptions({"auto"}),
        ],
        "soft_labels": [Interval(Real, 0, 1, closed="both")],
        "student_share": [Interval(Real, 0, None, closed="neither")],
        "n_kept_blocks": [Interval(Integral, 0, None, closed="left")],
        "student_dropout": [Interval(Real, 0, 1, closed="left")],
        "head": [StrOptions({"trained", "frozen"})],
        "n_steps": [Interval(Integral, 1, None, closed="left"), None],
        "distil_epochs": [
            Interval(Integral, 1, None, closed="left"),
            StrOptions({"auto"}),
        ],
        "distil_learning_rate": [Interval(Real, 0, None, closed="neither")],
        "mixed_precision": ["boolean"],
    }

    @abstractmethod
    def _task_targets(self, targets: AnyArray, weight: Float64Array) -> AnyArray:
        """Return targets as `_tasks` take them, weights in the last column."""

    @abstractmethod
    def _answers(self, train: HeldOut, validation: HeldOut) -> AnyArray:
        """Return the backbone's own targets for training rows, without the weights."""

    @abstractmethod
    def _tasks(self, targets: Tensor) -> tuple[Task, Task]:
        """Return how predictions are judged, and how numbers of draws are."""

    @property
    def n_members(self) -> int:
        """Chains behind each prediction, as ensembles call them."""
        n_chains: int = self.n_chains
        return n_chains

    @property
    def n_draws_(self) -> int | None:
        """Draws behind the teacher's variance."""
        self._check_ready()
        return self.findings_.n_draws

    @property
    def n_parameters_(self) -> dict[str, int]:
        """Numbers in the student and in the backbone, with embedding and head."""
        self._check_ready()
        return {"student": _count(self.module_), "backbone": _count(self.backbone_)}

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
        backbone, inputs = self._build(rows, weight, parts.train, seed)
        self._passes(backbone).check(inputs)
        self.fit_times_: dict[str, float] = {}
        if self._trains():
            with self._timed("training"):
                self.backbone_history_ = self._train(
                    backbone, inputs, targets, weight, parts, seed
                )
        student = self._distil(backbone, inputs, targets, weight, parts, seed)
        passes = self._passes(student)
        validation, calibration = (
            HeldOut.run(passes, take_rows(inputs, part), targets[part], weight[part])
            for part in (parts.validation, parts.calibration)
        )
        self._keep(validation, calibration, seed)
        self.seed_ = seed
        self.device_ = str(self._device(student))
        self._calibrate(passes)
        self._tell_units(backbone)
        self.backbone_ = backbone
        self.module_ = student  # last: only now is the estimator fitted

    def _distil(
        self,
        backbone: nn.Module,
        inputs: ArrayInputs,
        targets: AnyArray,
        weight: Float64Array,
        parts: Parts,
        seed: int,
    ) -> Student:
        device = self._device(backbone)
        (x, y), valid = (
            self._pair(inputs, targets, weight, part, device)
            for part in (parts.train, parts.validation)
        )
        tasks = self._tasks(y)
        if self.soft_labels > 0:
            train, validation = (
                HeldOut.run(
                    self._passes(backbone),
                    take_rows(inputs, part),
                    targets[part],
                    weight[part],
                )
                for part in (parts.train, parts.validation)
            )
            answers = torch.from_numpy(self._answers(train, validation)).to(y)
            y[:, :-1] = torch.lerp(y[:, :-1], answers, self.soft_labels)
        plan = Distillation(
            self.variance,
            self.n_draws,
            self.loss,
            self.performance_weight,
            self.student_share,
            self.student_dropout,
            self.head == "frozen",
            self._recipe(len(parts.train)),
            derive_seed(seed, "director"),
            self.n_kept_blocks,
            self.verbose,
        )
        with evaluating(backbone):
            student, found = plan.run(backbone, (x, y), valid, *tasks)
        self.n_steps_ = n_steps_or_own(student.transition, self.n_steps)
        self.findings_ = found
        self.performance_weight_ = found.performance_weight
        self.history_ = found.history
        self.fit_times_ |= found.seconds
        return student

    def _recipe(self, n_rows: int) -> DistillationRecipe:
        batch_size = self._training_batch_size(n_rows)
        n_epochs = self.distil_epochs
        if n_epochs == "auto":
            n_steps = -(-n_rows // batch_size)
            n_epochs = int(np.clip(AUTO_STEPS // n_steps, *AUTO_EPOCHS))
        return DistillationRecipe(
            n_epochs,
            self.distil_learning_rate,
            batch_size=batch_size,
            n_iter_no_change=max(self.n_iter_no_change, n_epochs // LEAST_PATIENCE),
            mixed_precision=self.mixed_precision,
        )

    def _pair(
        self,
        inputs: ArrayInputs,
        targets: AnyArray,
        weight: Float64Array,
        part: IntArray,
        device: torch.device,
    ) -> PairOfRows:
        y = torch.from_numpy(self._task_targets(targets[part], weight[part]))
        return _moved(as_tensors(take_rows(inputs, part)), device), y.float().to(device)

    def _trained_module(self) -> nn.Module:
        """Return the backbone: a student predicts by chains, and is no guest."""
        return self.backbone_

    def _needs_training_rows(self) -> bool:
        """Say yes: a student needs them, also where a guest does not."""
        return True

    def _passes(self, module: nn.Module) -> Passes:
        passes = super()._passes(module)
        if not isinstance(module, Student):
            return passes
        return ChainPasses(
            module,
            passes.n_outputs,
            passes.layers,
            passes.device,
            passes.batch_size,
            passes.verbose,
            n_steps=self.n_steps_,
        )

    def _seeds(self) -> list[int]:
        return member_seeds(self.seed_, self.n_members)

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        if state.get("module_") is not vars(self).get("module_"):
            # the student may share tensors with the backbone: both move as one
            both = deepcopy((self.backbone_, self.module_))
            state["backbone_"], state["module_"] = (module.cpu() for module in both)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if hasattr(self, "module_") and self._trains():
            self.backbone_.to(self._device(self.module_))


def _count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def _moved(x: Inputs, device: torch.device) -> Inputs:
    if isinstance(x, dict):
        return {name: tensor.to(device) for name, tensor in x.items()}
    return x.to(device)
