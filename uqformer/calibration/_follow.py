"""The rule of adaptive conformal inference, for one target at a time."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from math import ceil, inf, isinf

import numpy as np

from uqformer._typing import Float64Array
from uqformer.calibration._scores import Band

__all__ = ["Follower"]


@dataclass(slots=True, eq=False)
class Follower:
    """Ask for a higher level after a miss, and for a slightly lower one after a hit.

    Scores are kept sorted, so that a step takes a time that hardly grows with their
    number.

    Parameters
    ----------
    scores : iterable of float
        Scores known at the start, oldest first.
    wanted : float
        Share of misses that is wanted; the first interval is made for it.
    step_size : float
        By how much a miss moves the share that is asked for.
    window : int or None
        Most recent scores that are looked at.
    delay : int
        Rows after which a target is seen, at least 1.
    """

    scores: deque[float]
    wanted: float
    step_size: float
    delay: int
    miss_rate: float
    radii: deque[float] = field(init=False)
    """Radii of the last states, oldest first; -1 stands for "the point alone"."""
    ordered: list[float] = field(init=False)

    @classmethod
    def start(
        cls,
        scores: Iterable[float],
        wanted: float,
        step_size: float,
        window: int | None,
        delay: int,
    ) -> Follower:
        """Know some scores, and nothing of misses."""
        return cls(deque(scores, maxlen=window), wanted, step_size, delay, wanted)

    def __post_init__(self) -> None:
        self.ordered = sorted(self.scores)
        self.radii = deque([self._radius()] * self.delay, maxlen=self.delay)

    @property
    def radius(self) -> float:
        """Radius of an interval that is made now."""
        return max(self.radii[-1], 0.0)

    def walk(self, band: Band, y: Float64Array) -> Float64Array:
        """Make the interval of each row in turn, then see its target; returns (n, 2).

        The interval is the one that was in force when a row was `delay` rows ahead of
        the last target seen.
        """
        ends = []
        columns = (band.lower, band.upper, band.unit, y, band.scores(y))
        rows = zip(*(column.tolist() for column in columns), strict=True)
        for low, high, unit, target, score in rows:
            radius = max(self.radii[0], 0.0)
            # infinitely many units of nothing are infinite too
            margin = radius if isinf(radius) else radius * unit
            ends.append((low - margin, high + margin))
            self.learn(score, not low - margin <= target <= high + margin)
        return np.array(ends, dtype=np.float64).reshape(-1, 2)

    def learn(self, score: float, is_missed: bool) -> None:
        """See a target: whether the interval made for it then missed it."""
        # a point that was hit by chance is no reason to stay without a width
        is_missed = is_missed or self.radii[0] < 0
        self.miss_rate += self.step_size * (self.wanted - is_missed)
        if len(self.scores) == self.scores.maxlen:
            del self.ordered[bisect_left(self.ordered, self.scores[0])]
        self.scores.append(score)
        insort(self.ordered, score)
        self.radii.append(self._radius())

    def _radius(self) -> float:
        if self.miss_rate >= 1:
            return -1.0
        n_scores = len(self.ordered)
        # rounded as the ranks of split conformal prediction are
        rank = ceil(round((n_scores + 1) * (1 - self.miss_rate), 9))
        return inf if rank > n_scores else self.ordered[max(rank, 1) - 1]
