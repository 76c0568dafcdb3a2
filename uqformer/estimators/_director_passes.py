"""Forward passes of a student: its members are chains, and their spread is learned."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch

from uqformer._typing import Float64Array
from uqformer.director import Student
from uqformer.estimators._inputs import ArrayInputs
from uqformer.estimators._passes import Deviations, Mixture, Passes, evaluating

__all__ = ["ChainPasses"]

SPREAD = 1
"""Any number of draws: to `Passes` none would mean members that are all equal."""


@dataclass(frozen=True)
class ChainPasses(Passes):
    """Passes of a `Student`, in batches of rows.

    Parameters
    ----------
    n_steps : int, default=None
        Steps of a chain; None takes one for each block.
    """

    n_steps: int | None = None

    @property
    def student(self) -> Student:
        """The module, by its own type."""
        return cast(Student, self.module)

    def exact(self, x: ArrayInputs) -> Float64Array:
        """Walk by the means alone over rows (n, ...); returns (n, C)."""
        with evaluating(self.module), torch.no_grad():
            parts = [
                self._column(self.student(batch, self.n_steps), n_rows)
                for n_rows, batch in self._batches(x, self.batch_size)
            ]
        return np.concatenate(parts)

    def deviations(
        self,
        x: ArrayInputs,
        exact: Float64Array,
        n_draws: int | None,
        seeds: Sequence[int],
    ) -> Deviations:
        """Add up the chains' moments about `exact` (n, C); draws play no part."""
        return super().deviations(x, exact, SPREAD, seeds)

    def mixture(
        self, x: ArrayInputs, n_draws: int | None, seeds: Sequence[int]
    ) -> Mixture:
        """Add up the chains' probabilities of logits; draws play no part."""
        return super().mixture(x, SPREAD, seeds)

    def traced(
        self, x: ArrayInputs, seeds: Sequence[int]
    ) -> tuple[Float64Array, Float64Array]:
        """Hold every chain's prediction, and how far the chains part on their way.

        Returns members (M, n, C) and variances of the state after each step (n, L).
        """
        members, variances = [], []
        with evaluating(self.module), torch.no_grad():
            for n_rows, batch in self._batches(x, self._rows_at_once(seeds)):
                outputs, spread = self.student.traced(batch, seeds, self.n_steps)
                members.append([self._column(output, n_rows) for output in outputs])
                variances.append(spread.double().cpu().numpy())
        return np.concatenate(members, axis=1), np.concatenate(variances)

    def _redrawn(
        self, x: ArrayInputs, n_draws: int | None, seeds: Sequence[int]
    ) -> Iterator[tuple[slice, int, Float64Array]]:
        """Yield rows, chain and output (n_rows, C), batch by batch."""
        start = 0
        with evaluating(self.module), torch.no_grad():
            for n_rows, batch in self._batches(x, self._rows_at_once(seeds)):
                outputs = self.student.members(batch, seeds, self.n_steps)
                for chain, output in enumerate(outputs):
                    yield (
                        slice(start, start + n_rows),
                        chain,
                        self._column(output, n_rows),
                    )
                start += n_rows

    def _rows_at_once(self, seeds: Sequence[int]) -> int:
        """Rows whose chains, side by side, are no more than a batch."""
        return max(1, self.batch_size // len(seeds))
