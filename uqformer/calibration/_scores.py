"""How strange a target is beside a prediction, and what that makes of intervals.

All conformity scores here have one shape: a band ``[lower, upper]`` that is widened by
a multiple of a unit. Around a point the band is the point itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from sklearn.model_selection import KFold

from uqformer._response import interval_response, spread_response
from uqformer._typing import AnyArray, Float64Array
from uqformer.calibration._split import (
    fit_clone,
    is_frozen,
    take_params,
    take_rows,
)

__all__ = ["Band", "Score", "ScoreModel", "as_columns", "uncross"]

Score: TypeAlias = Literal["absolute", "spread", "quantile"]


@dataclass(frozen=True, slots=True, eq=False)
class Band:
    """A band to be widened until it holds as many targets as it should.

    Parameters
    ----------
    lower, upper : ndarray of shape (n_samples, n_outputs)
        Its ends, in units of `y`.
    unit : ndarray of shape (n_samples, n_outputs)
        By how much a score of 1 widens it on either side, in units of `y`.
    """

    lower: Float64Array
    upper: Float64Array
    unit: Float64Array

    def __getitem__(self, rows: Any) -> Band:
        return Band(self.lower[rows], self.upper[rows], self.unit[rows])

    def scores(self, y: Float64Array) -> Float64Array:
        """How many units the band must be widened by to reach `y`; negative inside."""
        excess = np.maximum(self.lower - y, y - self.upper)
        beyond_reach = np.where(excess > 0, np.inf, 0.0)
        scores: Float64Array = np.divide(
            excess, self.unit, out=beyond_reach, where=self.unit > 0
        )
        return scores

    def widened(self, radius: Float64Array) -> Float64Array:
        """Return ends (n_samples, 2, n_outputs), `radius` units farther out."""
        margin = np.full(self.unit.shape, np.inf)
        np.multiply(self.unit, radius, out=margin, where=~np.isposinf(radius))
        return uncross(self.lower - margin, self.upper + margin)


def uncross(lower: Float64Array, upper: Float64Array) -> Float64Array:
    """Stack ends on axis 1; where they crossed nothing is between, so they meet."""
    with np.errstate(invalid="ignore"):  # the middle of infinite ends is not used
        middle = (lower + upper) / 2
    crossed = lower > upper
    lower, upper = (np.where(crossed, middle, ends) for ends in (lower, upper))
    return np.stack([lower, upper], axis=1)


def as_columns(predicted: ArrayLike, n_outputs: int, name: str) -> Float64Array:
    """Return predictions as float64 (n_rows, n_outputs) after checking their shape."""
    array = np.asarray(predicted, dtype=np.float64)
    n_rows = len(array) if array.ndim else 1
    if array.size != n_rows * n_outputs:
        hint = ""
        if array.shape == (n_rows, 2) and n_outputs == 1:
            hint = " If it is a mean and a variance, wrap it to return the mean alone."
        wanted = f"({n_rows},)" if n_outputs == 1 else f"({n_rows}, {n_outputs})"
        raise ValueError(
            f"{name}.predict must return one number for each target, shape {wanted}; "
            f"got shape {array.shape}.{hint}"
        )
    return array.reshape(n_rows, n_outputs)


@dataclass(slots=True, eq=False)
class ScoreModel:
    """The fitted estimators behind one conformity score.

    Parameters
    ----------
    score : {"absolute", "spread", "quantile"}
        Which band and unit are made of their predictions.
    estimator : estimator
        Predicts the point, and perhaps its spread or intervals.
    spread_estimator : estimator or None
        Predicts the size of the error, if `estimator` does not.
    quantile_estimators : sequence of two estimators or None
        Predict the ends of the band, if `estimator` does not.
    spread_floor : float
        Added to the spread in quadrature, in units of `y`.
    n_outputs : int
        Number of targets.
    """

    score: Score
    estimator: Any
    spread_estimator: Any
    quantile_estimators: Any
    spread_floor: float
    n_outputs: int

    def parts(self) -> list[Any]:
        """List the estimators that this score uses."""
        if self.score == "spread":
            return [self.estimator, self.spread_estimator]
        if self.score == "quantile":
            return [self.estimator, *(self.quantile_estimators or ())]
        return [self.estimator]

    def is_frozen(self) -> bool:
        """Tell whether there is nothing to fit."""
        return all(is_frozen(part) for part in self.parts())

    def depends_on_level(self) -> bool:
        """Tell whether each confidence level has a band of its own."""
        return self.score == "quantile" and self.quantile_estimators is None

    def fit(self, X: Any, y: AnyArray, params: Mapping[str, Any]) -> Self:
        """Fit copies of the estimators that this score uses."""
        template = self.estimator
        self.estimator = fit_clone(template, X, y, params)
        if self.score == "spread" and self.spread_estimator is not None:
            frozen = is_frozen(self.spread_estimator)
            errors = y if frozen else self._held_out_errors(template, X, y, params)
            self.spread_estimator = fit_clone(self.spread_estimator, X, errors, {})
        if self.score == "quantile" and self.quantile_estimators is not None:
            self.quantile_estimators = [
                fit_clone(part, X, y, params) for part in self.quantile_estimators
            ]
        return self

    def predict(self, X: Any) -> Float64Array:
        """Predict the point, shape (n_samples, n_outputs)."""
        return self._predict(self.estimator, X)

    def band(self, X: Any, level: float) -> Band:
        """Return the band before it is widened; only some depend on the level."""
        if self.score == "quantile":
            lower, upper = self._quantiles(X, level)
            return Band(lower, upper, np.ones_like(lower))
        if self.score == "absolute":
            point = self.predict(X)
            return Band(point, point, np.ones_like(point))
        point, spread = self._point_and_spread(X)
        return Band(point, point, np.hypot(np.maximum(spread, 0), self.spread_floor))

    def _point_and_spread(self, X: Any) -> tuple[Float64Array, Float64Array]:
        if self.spread_estimator is not None:
            return self.predict(X), self._predict(self.spread_estimator, X)
        name = type(self.estimator).__name__
        point, spread = (
            as_columns(part, self.n_outputs, name)
            for part in spread_response(self.estimator, X)
        )
        return point, spread

    def _quantiles(self, X: Any, level: float) -> tuple[Float64Array, Float64Array]:
        if self.quantile_estimators is None:
            ends = interval_response(self.estimator, X, level)
            ends = ends.reshape(len(ends), 2, self.n_outputs)
            lower, upper = ends[:, 0], ends[:, 1]
        else:
            lower, upper = (self._predict(part, X) for part in self.quantile_estimators)
        # fitted apart, quantiles may cross
        return np.minimum(lower, upper), np.maximum(lower, upper)

    def _held_out_errors(
        self, template: Any, X: Any, y: AnyArray, params: Mapping[str, Any]
    ) -> Float64Array:
        """Sizes of the errors, shaped like `y`; seen rows would have smaller ones."""
        errors = np.empty(y.shape)
        for train, test in KFold().split(y):
            model = fit_clone(
                template,
                take_rows(X, train),
                y[train],
                take_params(params, train, len(y)),
            )
            point = self._predict(model, take_rows(X, test))
            errors[test] = np.abs(y[test] - point.reshape(y[test].shape))
        return errors

    def _predict(self, estimator: Any, X: Any) -> Float64Array:
        return as_columns(
            estimator.predict(X), self.n_outputs, type(estimator).__name__
        )
