"""Conformal intervals from one model or many, each judged on rows it has not seen.

With one model this is split conformal. With many, a calibration row is judged by the
models that did not train on it: the folds of CV+, the bootstraps of the
jackknife+-after-bootstrap.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from uqformer._typing import AnyArray, Float64Array, IntArray
from uqformer.calibration._groups import Groups
from uqformer.calibration._quantile import (
    conformal_quantile,
    conformal_ranks,
    require_rows,
)
from uqformer.calibration._scores import Band, ScoreModel, uncross
from uqformer.calibration._split import count_rows, take_rows

__all__ = ["ConformalModels", "bootstrap_splits"]

CELLS = 2**20
"""Numbers that a temporary may hold: 8 MiB; about eight are alive at a time."""


def bootstrap_splits(
    n_rows: int, n_resamplings: int, rng: np.random.RandomState
) -> list[tuple[IntArray, IntArray]]:
    """Draw rows with replacement; those not drawn are held out."""
    splits = []
    for _ in range(n_resamplings):
        drawn = rng.randint(n_rows, size=n_rows)
        splits.append((drawn, np.setdiff1d(np.arange(n_rows), drawn)))
    return splits


@dataclass(slots=True, eq=False)
class ConformalModels:
    """Fitted models and the calibration rows that they are judged on.

    Parameters
    ----------
    models : sequence of ScoreModel
        Fitted, at least one.
    held_out : ndarray of shape (n_models, n_calibration), bool
        Whether a model has not seen a row. Every row is held out by some model.
    X : array-like of n_calibration rows or None
        Calibration rows; let go of once the scores are known for every level.
    y : ndarray of shape (n_calibration, n_outputs)
        Their targets.
    groups : Groups or None
        Groups that are calibrated apart.
    """

    models: Sequence[ScoreModel]
    held_out: AnyArray
    X: Any
    y: Float64Array
    groups: Groups | None
    _scores: dict[float | None, Float64Array] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self._depends_on_level():
            self.scores(0.5)  # the same at any level
            self.X = None

    def predict(self, X: Any) -> Float64Array:
        """Average the points of the models, shape (n_samples, n_outputs)."""
        points: Float64Array = np.mean([m.predict(X) for m in self.models], axis=0)
        return points

    def scores(self, level: float) -> Float64Array:
        """Score the calibration rows by models that have not seen them.

        Where a row is held out by several models, their bands are averaged first.
        """
        key = level if self._depends_on_level() else None
        if key not in self._scores:
            scores = self._held_out_band(level).scores(self.y)
            if np.isinf(scores).any():
                row = int(np.argwhere(np.isinf(scores))[0, 0])
                raise ValueError(
                    "The spread of a calibration row must be positive where the "
                    f"prediction errs; it is 0 in calibration row {row}. Set "
                    "spread_floor to a small error, in units of y."
                )
            self._scores[key] = scores
        return self._scores[key]

    def interval(
        self, X: Any, labels: AnyArray | None, levels: Float64Array
    ) -> Float64Array:
        """Predict intervals of shape (n_samples, 2, n_levels, n_outputs).

        `labels` are the groups of the rows of `X`, or None without groups.
        """
        n_rows = count_rows(X)
        parts = list(self._parts(labels, n_rows))
        for name, known, _ in parts:
            rows = "rows" if labels is None else f"rows in group {name!r}"
            require_rows(len(known), levels, rows)
        ends = np.empty((n_rows, 2, len(levels), self.y.shape[1]))
        for chunk in self._chunks(n_rows):
            inside = take_rows(X, np.arange(n_rows)[chunk])
            bands: list[Band] = []
            for k, level in enumerate(levels.tolist()):
                if not bands or self._depends_on_level():
                    bands = [model.band(inside, level) for model in self.models]
                scores = self.scores(level)
                for _, known, new in parts:
                    rows_here = new[(new >= chunk.start) & (new < chunk.stop)]
                    at = rows_here - chunk.start
                    ends[rows_here, :, k] = self._ends(
                        [band[at] for band in bands], scores, known, level
                    )
        return ends

    def _ends(
        self, bands: list[Band], scores: Float64Array, known: IntArray, level: float
    ) -> Float64Array:
        """Return ends (n_samples, 2, n_outputs) for one level and one group."""
        columns = scores[known]
        if len(bands) == 1:
            radius = [conformal_quantile(column, level)[0] for column in columns.T]
            return bands[0].widened(np.array(radius))
        weights = self._weights()[:, known].T  # (n_known, n_models)
        outputs = []
        for k, column in enumerate(columns.T):
            lower, upper, unit = (
                weights @ np.stack([getattr(band, end)[:, k] for band in bands])
                for end in ("lower", "upper", "unit")
            )  # (n_known, n_samples)
            margin = column[:, None] * unit
            outputs.append(_plus_ends(lower - margin, upper + margin, level))
        return np.stack(outputs, axis=2)

    def _held_out_band(self, level: float) -> Band:
        """Average the bands of the models that have not seen a row."""
        total = np.zeros((3, *self.y.shape))
        for model, held_out in zip(self.models, self.held_out, strict=True):
            rows = np.flatnonzero(held_out)
            if len(rows):
                band = model.band(take_rows(self.X, rows), level)
                total[:, rows] += np.stack([band.lower, band.upper, band.unit])
        return Band(*(total / self.held_out.sum(axis=0)[:, None]))

    def _weights(self) -> Float64Array:
        """Share of each model in what is said of a row, (n_models, n_calibration)."""
        weights: Float64Array = self.held_out / self.held_out.sum(axis=0)
        return weights

    def _parts(
        self, labels: AnyArray | None, n_rows: int
    ) -> Iterator[tuple[Any, IntArray, IntArray]]:
        if self.groups is None or labels is None:
            yield None, np.arange(len(self.y)), np.arange(n_rows)
        else:
            yield from self.groups.pairs(labels)

    def _chunks(self, n_rows: int) -> Iterator[slice]:
        """Cut new rows so that (n_calibration, n_samples) arrays stay small."""
        cells_per_row = 1 if len(self.models) == 1 else len(self.y)
        step = max(1, CELLS // cells_per_row)
        for start in range(0, n_rows, step):
            yield slice(start, min(start + step, n_rows))

    def _depends_on_level(self) -> bool:
        return self.models[0].depends_on_level()


def _plus_ends(lower: Float64Array, upper: Float64Array, level: float) -> Float64Array:
    """Choose ends (n_samples, 2) from one candidate a calibration row (first axis).

    The upper end is the ``ceil((n + 1) * level)``-th smallest candidate, the lower end
    the ``floor((n + 1) * (1 - level))``-th: as many from the other side.
    """
    rank = max(int(conformal_ranks(len(lower), np.array([level]))[0]), 1)
    below = np.partition(lower, len(lower) - rank, axis=0)[len(lower) - rank]
    above = np.partition(upper, rank - 1, axis=0)[rank - 1]
    return uncross(below, above)
