"""Behind a classifier's verbs: its labels, and the probabilities of its classes."""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import softmax
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets
from torch import nn

from uqformer._random import member_seeds
from uqformer._training import WeightedCrossEntropy
from uqformer._typing import AnyArray, Float64Array, IntArray
from uqformer.calibration import ConformalSets
from uqformer.estimators._class_calibration import (
    ClassSettings,
    HeldOutClassCalibration,
    sharpened,
)
from uqformer.estimators._core import TransformerCore
from uqformer.estimators._inputs import ArrayInputs, ReadInputs, UserInputs
from uqformer.estimators._passes import Mixture, Passes
from uqformer.estimators._rows import HeldOut, Parts
from uqformer.exceptions import InsufficientCalibrationError
from uqformer.predictive import ClassificationEnsemble

__all__ = ["ClassifierCore"]


class ClassifierCore(TransformerCore):
    """A classifier without its public verbs, which stand in the subclass."""

    _criterion = WeightedCrossEntropy

    @property
    def temperature_(self) -> float:
        """What the logarithms of the mean probabilities are divided by."""
        self._check_ready()
        return self.calibration_.temperature(
            self._passes(self.module_), self._settings(self.n_draws_)
        )

    def _validate_rows(
        self, X: UserInputs, y: ArrayLike, sample_weight: ArrayLike | None
    ) -> tuple[ReadInputs, AnyArray, Float64Array]:
        """Return X, codes of classes and weights, without rows of weight 0."""
        inputs, labels, weight = self._read_weighted(X, y, sample_weight)
        check_classification_targets(labels)
        found, n_rows = np.unique(labels, return_counts=True)
        if len(found) < 2:
            raise ValueError(
                "y must hold at least 2 classes among rows of positive sample_weight; "
                f"got 1 class, {found.tolist()[0]!r}, in all {n_rows[0]} of them. Add "
                "rows of another class."
            )
        self._name_columns(found)
        weight = weight * compute_sample_weight(self.class_weight, labels)
        if (weight <= 0).any():
            raise ValueError(
                "class_weight must be positive for every class; got "
                f"class_weight={self.class_weight}. Leave out the rows of a class that "
                "should not count."
            )
        codes: AnyArray = np.searchsorted(self.classes_, labels).astype(np.int64)
        return inputs, codes, weight / weight.mean()

    def _name_columns(self, found: AnyArray) -> None:
        """Set `classes_`, sorted, and which column of the module each one is."""
        named = getattr(self._guest(), "classes", None)
        if named is None:
            self.classes_, self.columns_ = found, np.arange(len(found))
            return
        classes = np.asarray(named)
        self.classes_, self.columns_ = np.unique(classes, return_index=True)
        unknown = [label for label in found.tolist() if label not in classes.tolist()]
        if unknown or len(self.classes_) < len(classes):
            raise ValueError(
                "classes of the guest must name each of its columns once, and every "
                f"label of y; got classes={classes.tolist()} and labels "
                f"{found.tolist()}. Name all columns in their order."
            )

    def _part(self, targets: AnyArray, seed: int) -> Parts:
        calibrates, classes = self.conformal is not None, self.classes_
        return self._parted(targets, seed, calibrates=calibrates, classes=classes)

    def _learn_targets(
        self, targets: AnyArray, weight: Float64Array, train: IntArray
    ) -> AnyArray:
        """Count the classes; codes need no scale."""
        self.n_outputs_ = len(self.classes_)
        return targets

    def _train(
        self,
        module: nn.Module,
        inputs: ArrayInputs,
        targets: AnyArray,
        weight: Float64Array,
        parts: Parts,
        seed: int,
    ) -> list[dict[str, Any]]:
        """Train in place, on numbers of the module's own columns."""
        codes = self.columns_[targets]
        return super()._train(module, inputs, codes, weight, parts, seed)

    def _passes(self, module: nn.Module) -> Passes:
        hint = (
            f"Its columns must be the logits of the {self.n_outputs_} classes of y; "
            "if y lacks some that the module knows, name them all with "
            "FrozenBackbone(module, classes=[...])."
        )
        return replace(super()._passes(module), columns=self.columns_, hint=hint)

    def _settings(self, n_draws: int | None) -> ClassSettings:
        return ClassSettings(n_draws, self.n_members, self.calibration == "temperature")

    def _keep(self, validation: HeldOut, calibration: HeldOut, seed: int) -> None:
        self.calibration_ = HeldOutClassCalibration(validation, calibration, seed)

    def _calibrate(self, passes: Passes) -> None:
        """Do now what the first prediction would otherwise wait for."""
        n_draws = self.n_draws
        if n_draws == "auto":
            with self._timed("search"):
                n_draws = self.calibration_.search(passes).n_draws
        settings = self._settings(n_draws)
        if settings.is_sharpened:
            with self._timed("temperature"):
                self.calibration_.temperature(passes, settings)
        if self.conformal is not None:
            with self._timed("conformal"):
                self.calibration_.conformal(passes, settings, self.conformal)

    def _mixture(self, inputs: ArrayInputs) -> Mixture:
        """Average the members' probabilities, holding one at a time."""
        seeds = member_seeds(self.seed_, self.n_members)
        return self._passes(self.module_).mixture(inputs, self.n_draws_, seeds)

    def _log_proba(self, inputs: ArrayInputs) -> Float64Array:
        """Return calibrated logarithms of the mean probabilities, (n, C)."""
        return sharpened(self._mixture(inputs).proba, self.temperature_)

    def _ensemble(self, inputs: ArrayInputs) -> ClassificationEnsemble:
        seeds = member_seeds(self.seed_, self.n_members)
        logits = self._passes(self.module_).members(inputs, self.n_draws_, seeds)
        return ClassificationEnsemble(softmax(logits, axis=2))

    def _conformal_sets(self) -> ConformalSets:
        if not len(self.calibration_.calibration):
            raise InsufficientCalibrationError(
                f"conformal={self.conformal!r} needs calibration rows, but the "
                "estimator was fitted with conformal=None and kept none. Fit it again."
            )
        return self.calibration_.conformal(
            self._passes(self.module_), self._settings(self.n_draws_), self.conformal
        )
