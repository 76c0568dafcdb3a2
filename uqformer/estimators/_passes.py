"""The customs house: arrays in, forward passes of one module, float64 arrays out."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from scipy.special import entr, softmax
from torch import Tensor, nn
from tqdm.auto import tqdm

from uqformer._training import Inputs
from uqformer._typing import Float64Array, IntArray, LayerSelection
from uqformer.attention import attention_variance, forward_members, redraw_moments
from uqformer.estimators._inputs import ArrayInputs, as_batch, count_rows, take_rows
from uqformer.predictive import UncertaintyParts

__all__ = ["Deviations", "Mixture", "Passes", "evaluating", "resolve_device"]


REDRAWN_ROWS = 256
"""Rows in a redrawn pass at most: several members then share the pass, in the cache.

A pass that is derived holds all that it computed, and has no more rows either.
"""


@dataclass(frozen=True, slots=True)
class Deviations:
    """First two moments of the members' distance from the exact pass, (n, C) each."""

    mean: Float64Array
    mean_square: Float64Array

    def std(self) -> Float64Array:
        """Spread of the members about their own mean."""
        std: Float64Array = np.sqrt(np.maximum(self.mean_square - self.mean**2, 0))
        return std


@dataclass(frozen=True, slots=True)
class Mixture:
    """What members that give logits say together.

    Parameters
    ----------
    proba : ndarray of shape (n, C)
        Mean of their probabilities.
    entropy : ndarray of shape (n,)
        Mean of their entropies, in nats.
    """

    proba: Float64Array
    entropy: Float64Array

    def uncertainty(self) -> UncertaintyParts:
        """Part the doubt as `ClassificationEnsemble` does."""
        total: Float64Array = entr(self.proba).sum(axis=1)
        return UncertaintyParts(
            total, self.entropy, np.maximum(total - self.entropy, 0)
        )


@dataclass(frozen=True, slots=True)
class Passes:
    """Forward passes of `module`, in batches of rows.

    Parameters
    ----------
    module : nn.Module
        From (N, ...), or arrays by name, to (N, C) or, for one output, (N,).
    n_outputs : int
        C, which every output is checked against.
    layers : "all" or list of int and str
        Attention modules to redraw.
    device : torch.device
        Where the inputs go.
    batch_size : int
        Rows in a batch.
    verbose : int, default=0
        Above 0 a progress bar over batches is shown.
    columns : ndarray of shape (C,), default=None
        Order in which the columns of the outputs are taken.
    hint : str
        What to do where the outputs have another shape.
    """

    module: nn.Module
    n_outputs: int
    layers: LayerSelection
    device: torch.device
    batch_size: int
    verbose: int = 0
    columns: IntArray | None = None
    hint: str = "Wrap it in a module that picks its predictions."

    def exact(self, x: ArrayInputs) -> Float64Array:
        """Run the model as it is over rows (n, ...); returns (n, C)."""
        with evaluating(self.module), torch.no_grad():
            parts = [
                self._column(_call(self.module, batch), n_rows)
                for n_rows, batch in self._batches(x, self.batch_size)
            ]
        return np.concatenate(parts)

    def members(
        self, x: ArrayInputs, n_draws: int | None, seeds: Sequence[int]
    ) -> Float64Array:
        """Hold every member's prediction of rows (n, ...); returns (M, n, C)."""
        members = np.empty((len(seeds), count_rows(x), self.n_outputs))
        for rows, member, output in self._redrawn(x, n_draws, seeds):
            members[member, rows] = output
        return members

    def deviations(
        self,
        x: ArrayInputs,
        exact: Float64Array,
        n_draws: int | None,
        seeds: Sequence[int],
    ) -> Deviations:
        """Add up the members' moments about `exact` (n, C), holding one at a time."""
        total = np.zeros_like(exact)
        total_square = np.zeros_like(exact)
        if n_draws is not None:
            for rows, _, output in self._redrawn(x, n_draws, seeds):
                deviation = output - exact[rows]
                total[rows] += deviation
                total_square[rows] += deviation**2
        return Deviations(total / len(seeds), total_square / len(seeds))

    def mixture(
        self, x: ArrayInputs, n_draws: int | None, seeds: Sequence[int]
    ) -> Mixture:
        """Add up the members' probabilities of logits, holding one at a time."""
        if n_draws is None:
            proba = softmax(self.exact(x), axis=1)
            return Mixture(proba, entr(proba).sum(axis=1))
        n_rows = count_rows(x)
        total, entropy = np.zeros((n_rows, self.n_outputs)), np.zeros(n_rows)
        for rows, _, output in self._redrawn(x, n_draws, seeds):
            proba = softmax(output, axis=1)
            total[rows] += proba
            entropy[rows] += entr(proba).sum(axis=1)
        return Mixture(total / len(seeds), entropy / len(seeds))

    def variance(self, x: ArrayInputs, n_draws: int | None) -> Float64Array:
        """Derive the members' variance from one pass; returns (n, C)."""
        with evaluating(self.module):
            parts = [
                self._column(
                    redraw_moments(
                        self.module, batch, n_draws=n_draws, layers=self.layers
                    ).variance,
                    n_rows,
                )
                for n_rows, batch in self._batches(x, self._redrawn_rows)
            ]
        return np.concatenate(parts)

    def shares(
        self, x: ArrayInputs, by: Literal["layer", "head"], *, of_logits: bool
    ) -> dict[str, float]:
        """Derive the share of each layer or head in the members' variance."""
        with evaluating(self.module):
            batches = [batch for _, batch in self._batches(x, self._redrawn_rows)]
            return attention_variance(
                self.module,
                batches,
                n_draws=1,  # shares are the same for any number
                method="gradient",
                by=by,
                layers=self.layers,
                forward=_call_for_differences if of_logits else _call,
            ).shares

    def check(self, x: ArrayInputs) -> None:
        """Run two rows, so that a backbone's mistakes show before training."""
        self.exact(take_rows(x, slice(0, 2)))

    @property
    def _redrawn_rows(self) -> int:
        return min(self.batch_size, REDRAWN_ROWS)

    def _redrawn(
        self, x: ArrayInputs, n_draws: int | None, seeds: Sequence[int]
    ) -> Iterator[tuple[slice, int, Float64Array]]:
        """Yield rows, member and output (n_rows, C), batch by batch."""
        with evaluating(self.module):
            n_rows = self._redrawn_rows
            for batch, member, output in forward_members(
                self.module,
                (batch for _, batch in self._batches(x, n_rows)),
                n_draws=n_draws,
                seeds=seeds,
                layers=self.layers,
            ):
                start = batch * n_rows
                rows = slice(start, start + len(output))
                yield rows, member, self._column(output, len(output))

    def _batches(self, x: ArrayInputs, n_rows: int) -> Iterator[tuple[int, Inputs]]:
        """Yield batches on the device, each after its number of rows."""
        starts = range(0, count_rows(x), n_rows)
        # one batch is over before a bar could tell anything
        silent = self.verbose == 0 or len(starts) < 2
        bar = tqdm(starts, desc="predict", unit="batch", disable=silent)
        for start in bar:
            rows = take_rows(x, slice(start, start + n_rows))
            yield count_rows(rows), as_batch(rows, self.device)

    def _column(self, output: Tensor, n_rows: int) -> Float64Array:
        """Return an output as (n_rows, C) float64 on the CPU, after checking it."""
        name = type(self.module).__name__
        if not isinstance(output, Tensor):
            raise TypeError(
                f"The backbone must return a Tensor of shape (n_samples, n_outputs); "
                f"{name} returned {type(output).__name__}. Wrap it in a module that "
                "picks its predictions."
            )
        shape = tuple(output.shape)
        if shape == (n_rows,):
            output = output[:, None]  # (N, 1)
        if output.shape != (n_rows, self.n_outputs):
            raise ValueError(
                f"The backbone must return shape (n_samples, n_outputs) = "
                f"({n_rows}, {self.n_outputs}); {name} returned {shape}. {self.hint}"
            )
        array: Float64Array = output.double().cpu().numpy()
        if not np.isfinite(array).all():
            raise ValueError(
                f"The backbone must return finite numbers; {name} returned NaN or "
                f"infinity for {int((~np.isfinite(array)).any(axis=1).sum())} of "
                f"{n_rows} rows. Check the scale of X."
            )
        return array if self.columns is None else array[:, self.columns]


def _call(module: nn.Module, batch: Inputs) -> Tensor:
    output: Tensor = module(**batch) if isinstance(batch, dict) else module(batch)
    return output


def _call_for_differences(module: nn.Module, batch: Inputs) -> Tensor:
    """Call for logits less their mean: what moves all alike moves nothing."""
    output = _call(module, batch)  # (N, C)
    return output - output.mean(dim=1, keepdim=True)


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Run a block in eval mode and give every submodule its own mode back."""
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for part, mode in modes:
            part.training = mode


def resolve_device(device: str) -> torch.device:
    """Turn "auto" into the accelerator where there is one, else the CPU."""
    has_cuda = torch.cuda.is_available()
    if device == "auto":
        return torch.device("cuda" if has_cuda else "cpu")
    try:
        resolved = torch.device(device)
    except RuntimeError as error:
        raise ValueError(
            "device must be 'auto' or a device of torch such as 'cpu' or 'cuda:0'; got "
            f"device={device!r}."
        ) from error
    if resolved.type == "cuda" and not has_cuda:
        raise ValueError(
            f"device={device!r} needs a CUDA device, and torch sees none here. Pass "
            "device='auto' or 'cpu'."
        )
    return resolved
