"""A compiled kernel for the draw, used where numba is installed (uqformer[fast]).

For sorted uniforms u and a cumulative probability c the count below c is wanted. A
guide table holds, for equal steps of c, the count at the start of the step; from there
only the uniforms inside the step are looked at, less than one on average. A key costs
the same for one draw as for a thousand, and no row is moved in memory.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib.util import find_spec
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

__all__ = ["draw_compiled", "has_kernel"]

Array: TypeAlias = NDArray[Any]

STEPS_PER_DRAW = 4
"""Steps of the guide table for each draw: a quarter of a uniform inside each."""

WEIGHTS_PER_THREAD = 2**18
"""Fewer weights are drawn sooner than a thread is started for them."""


def has_kernel() -> bool:
    """Tell whether the compiled kernel can be had."""
    return find_spec("numba") is not None


def draw_compiled(probs: Tensor, uniforms: Tensor) -> Tensor:
    """Draw weights like `probs` (G, N, H, T, S) from sorted `uniforms` (G, T, H, nu).

    On the CPU, in float32 or float64. Sums run in float64, so a draw that falls within
    rounding of an edge may differ from that of the path without numba.
    """
    kernel = _kernel()
    source, draws = probs.numpy(), uniforms.numpy()
    target = np.empty_like(source)  # (G, N, H, T, S)
    n_steps = min(STEPS_PER_DRAW * draws.shape[-1], probs.shape[1] * probs.shape[-1])
    n_threads = min(torch.get_num_threads(), probs.numel() // WEIGHTS_PER_THREAD)
    if n_threads < 2:
        kernel(source, draws, target, n_steps)
        return torch.from_numpy(target)
    # samples are independent, and the kernel holds no lock of the interpreter
    parts = np.array_split(np.arange(probs.shape[1]), n_threads)
    with ThreadPoolExecutor(n_threads) as pool:
        jobs = [
            pool.submit(
                kernel, source[:, _span(part)], draws, target[:, _span(part)], n_steps
            )
            for part in parts
            if len(part)
        ]
        for job in jobs:
            job.result()
    return torch.from_numpy(target)


def _span(part: NDArray[np.intp]) -> slice:
    return slice(int(part[0]), int(part[-1]) + 1)


@cache
def _kernel() -> Callable[[Array, Array, Array, int], None]:
    """Compile on first use: importing numba takes longer than many models do."""
    import numba

    compiled = numba.njit(nogil=True, error_model="numpy")
    # inlined, since a call for each row would hand over four arrays
    inlined = numba.njit(nogil=True, error_model="numpy", inline="always")
    fill_guide, draw_row = inlined(_fill_guide), inlined(_draw_row)

    @compiled
    def draw(probs: Array, uniforms: Array, weights: Array, n_steps: int) -> None:
        n_groups, n_rows, n_heads, n_queries, _ = probs.shape
        guide = np.empty((n_queries, n_heads, n_steps + 1), np.int32)
        for g in range(n_groups):
            for t in range(n_queries):
                for h in range(n_heads):
                    fill_guide(uniforms[g, t, h], guide[t, h])
            for n in range(n_rows):
                for h in range(n_heads):
                    for t in range(n_queries):
                        draw_row(
                            probs[g, n, h, t],
                            uniforms[g, t, h],
                            guide[t, h],
                            weights[g, n, h, t],
                        )

    kernel: Callable[[Array, Array, Array, int], None] = draw
    return kernel


def _fill_guide(uniforms: Array, guide: Array) -> None:
    """Count the uniforms below the start of each step."""
    n_steps, count = len(guide) - 1, 0
    for step in range(n_steps + 1):
        while count < len(uniforms) and uniforms[count] * n_steps < step:
            count += 1
        guide[step] = count


def _draw_row(probs: Array, uniforms: Array, guide: Array, weights: Array) -> None:
    """Fill the weights of one row of attention."""
    n_draws, n_steps = len(uniforms), len(guide) - 1
    total = 0.0
    for s in range(len(probs)):
        total += probs[s]
    if not total > 0:  # masked as a whole, or NaN
        weights[:] = total
        return
    running, before = 0.0, 0
    for s in range(len(probs)):
        running += probs[s]
        edge = running / total  # exactly 1 at the last key, so no draw is lost
        count = guide[int(edge * n_steps)]
        while count < n_draws and uniforms[count] < edge:
            count += 1
        weights[s] = (count - before) / n_draws
        before = count
