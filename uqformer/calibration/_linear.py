"""What linear maps of logits share: a penalised log loss, and its descent."""

import warnings
from abc import abstractmethod
from dataclasses import dataclass
from numbers import Real
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import minimize
from scipy.special import logsumexp, softmax

from uqformer._typing import AnyArray, Float64Array, IntArray
from uqformer._validation import Interval
from uqformer.calibration._base import BaseCalibrator
from uqformer.calibration._temperature import fit_temperature, smooth_targets
from uqformer.exceptions import CalibrationWarning

__all__ = ["LinearCalibrator"]

MAX_ITERATIONS = 200
"""Steps of the descent at most; the data sets tried have asked for some twenty."""

GRADIENT_TOLERANCE = 1e-9
"""Where the descent stops; the loss it goes by is a mean, in nats."""


class LinearCalibrator(BaseCalibrator):
    """Fit ``softmax(coef_ @ logits + intercept_)``, shrunk towards a temperature."""

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **BaseCalibrator._parameter_constraints,
        "regularization": [Interval(Real, 0, None, closed="left")],
    }

    def __init__(
        self,
        *,
        regularization: float,
        input: str = "auto",
        classes: ArrayLike | None = None,
    ) -> None:
        super().__init__(input=input, classes=classes)
        self.regularization = regularization

    @abstractmethod
    def _strengths(self, n_classes: int) -> Float64Array:
        """Penalty on each entry of (coef, intercept), infinite for those held fast."""

    def _features(self, logits: Float64Array) -> Float64Array:
        """Take out what softmax ignores, so that only what is said counts."""
        centred: Float64Array = logits - logits.mean(axis=1, keepdims=True)
        return centred

    def _fit_logits(
        self, logits: Float64Array, codes: IntArray, weights: Float64Array
    ) -> None:
        temperature = fit_temperature(logits, codes, weights)
        features = self._features(logits) / temperature
        total, n_classes = weights.sum(), logits.shape[1]
        table = _PenalisedLogLoss(
            design=np.hstack([features, np.ones((len(features), 1))]),
            targets=smooth_targets(logits, codes, weights),
            weights=weights / total,
            start=np.eye(n_classes, n_classes + 1),
            strengths=self._strengths(n_classes) / total,
        ).minimise()
        self.coef_: Float64Array = table[:, :-1] / temperature
        self.intercept_: Float64Array = table[:, -1]

    def _map_logits(self, logits: Float64Array) -> Float64Array:
        mapped: Float64Array = self._features(logits) @ self.coef_.T + self.intercept_
        return mapped


@dataclass(frozen=True, slots=True)
class _PenalisedLogLoss:
    """Mean log loss of softmax(table @ row), a table's free entries being variables.

    The penalty counts once, not once a row, so more rows overrule it.
    """

    design: Float64Array  # (n_samples, n_classes + 1), last column 1
    targets: Float64Array  # (n_samples, n_classes)
    weights: Float64Array  # (n_samples,), sum 1
    start: Float64Array  # (n_classes, n_classes + 1)
    strengths: Float64Array  # same shape, infinite where an entry is held fast

    @property
    def free(self) -> AnyArray:
        mask: AnyArray = np.isfinite(self.strengths)
        return mask

    def table(self, entries: Float64Array) -> Float64Array:
        table = self.start.copy()
        table[self.free] = entries
        return table

    def loss_and_slope(self, entries: Float64Array) -> tuple[float, Float64Array]:
        logits = self.design @ self.table(entries).T
        norms = logsumexp(logits, axis=1, keepdims=True)
        moved, strengths = entries - self.start[self.free], self.strengths[self.free]
        loss = self.weights @ (norms[:, 0] - (self.targets * logits).sum(axis=1))
        errors = (np.exp(logits - norms) - self.targets) * self.weights[:, None]
        slope = (errors.T @ self.design)[self.free] + strengths * moved
        return float(loss + 0.5 * strengths @ moved**2), slope

    def curvature(self, entries: Float64Array, step: Float64Array) -> Float64Array:
        """Hessian times a step, without ever building the Hessian."""
        proba = softmax(self.design @ self.table(entries).T, axis=1)
        steps = np.zeros_like(self.start)
        steps[self.free] = step
        shift = self.design @ steps.T
        moved = proba * (shift - (proba * shift).sum(axis=1, keepdims=True))
        bent: Float64Array = (moved * self.weights[:, None]).T @ self.design
        return bent[self.free] + self.strengths[self.free] * step

    def minimise(self) -> Float64Array:
        """Return the table of least loss; the loss is convex."""
        found = minimize(
            self.loss_and_slope,
            self.start[self.free],
            jac=True,
            hessp=self.curvature,
            method="trust-ncg",
            options={"gtol": GRADIENT_TOLERANCE, "maxiter": MAX_ITERATIONS},
        )
        if found.nit >= MAX_ITERATIONS:
            warnings.warn(
                f"The linear map was not yet settled after {MAX_ITERATIONS} steps; "
                "raise regularization, or pass more rows.",
                CalibrationWarning,
                stacklevel=4,
            )
        return self.table(found.x)
