"""Calibrators that map each class by itself and then share the rows out again."""

from abc import abstractmethod
from collections.abc import Callable

import numpy as np

from uqformer._typing import Float64Array, IntArray
from uqformer.calibration._base import BaseCalibrator
from uqformer.calibration._inputs import log_odds

__all__ = ["PerClassCalibrator"]

SMALLEST = float(np.finfo(np.float64).tiny)
"""Keeps the logarithm of a share that has rounded to 0 finite."""


class PerClassCalibrator(BaseCalibrator):
    """Fit one map per class against all others; for two classes one map is enough.

    Maps work on log-odds, which keep apart what probabilities round to 1.
    """

    maps_: list[Callable[[Float64Array], Float64Array]]

    @abstractmethod
    def _fit_map(
        self, odds: Float64Array, hits: Float64Array, weights: Float64Array
    ) -> Callable[[Float64Array], Float64Array]:
        """Learn the probability of a hit (0.0 or 1.0) given log-odds."""

    def _fit_logits(
        self, logits: Float64Array, codes: IntArray, weights: Float64Array
    ) -> None:
        odds = log_odds(logits)
        columns = [1] if odds.shape[1] == 2 else range(odds.shape[1])
        self.maps_ = [
            self._fit_map(odds[:, k], (codes == k).astype(np.float64), weights)
            for k in columns
        ]

    def _map_logits(self, logits: Float64Array) -> Float64Array:
        odds = log_odds(logits)
        if len(self.maps_) == 1:
            positive = self.maps_[0](odds[:, 1])
            shares = np.column_stack([1 - positive, positive])
        else:
            columns = zip(self.maps_, odds.T, strict=True)
            shares = np.column_stack([mapped(column) for mapped, column in columns])
        # softmax of the logarithms divides by the sum of the shares
        logs: Float64Array = np.log(np.maximum(shares, SMALLEST))
        return logs
