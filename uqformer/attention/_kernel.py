"""The compiled draw, used where numba is installed (uqformer[fast])."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib.util import find_spec
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

__all__ = ["draw_compiled", "has_kernel"]

STEPS_PER_DRAW = 4
"""Steps of the guide table for each draw: a quarter of a uniform inside each."""

STEPS_PER_TILE = 4096
"""Steps in the guides of the queries that are drawn together; they stay in the cache,
and the probabilities of these queries are read in one go."""

WEIGHTS_PER_THREAD = 2**18
"""Fewer weights are drawn sooner than a thread is started for them."""


@cache
def has_kernel() -> bool:
    """Tell whether the compiled kernel can be had."""
    return find_spec("numba") is not None


def draw_compiled(probs: Tensor, uniforms: Tensor) -> Tensor:
    """Draw weights like `probs` (G, N, H, T, S) from sorted `uniforms` (G, T, H, nu).

    On the CPU, in float32 or float64. Sums run in float64, so a draw that falls within
    rounding of an edge may differ from that of the path without numba.
    """
    kernel = _kernel()
    source, draws = probs.contiguous().numpy(), uniforms.numpy()
    target = np.empty_like(source)  # (G, N, H, T, S)
    n_rows = probs.shape[1]
    n_steps = max(1, min(STEPS_PER_DRAW * draws.shape[-1], n_rows * probs.shape[-1]))
    n_tile = max(1, STEPS_PER_TILE // n_steps)
    n_threads = min(torch.get_num_threads(), probs.numel() // WEIGHTS_PER_THREAD)
    if n_threads < 2:
        kernel(source, draws, target, n_steps, n_tile, 0, n_rows)
        return torch.from_numpy(target)
    # samples are independent, and the kernel holds no lock of the interpreter
    bounds = np.linspace(0, n_rows, n_threads + 1).astype(int)
    with ThreadPoolExecutor(n_threads) as pool:
        jobs = [
            pool.submit(kernel, source, draws, target, n_steps, n_tile, first, last)
            for first, last in pairwise(bounds)
        ]
        for job in jobs:
            job.result()
    return torch.from_numpy(target)


@cache
def _kernel() -> Callable[..., None]:
    """Compile on first use: importing numba takes longer than many models do."""
    from uqformer.attention._compiled import draw

    return draw
