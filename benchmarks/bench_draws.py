"""The draw alone, beside two other ways to draw counts, over keys and draws.

Usage: OMP_NUM_THREADS=1 python benchmarks/bench_draws.py

Milliseconds for 64 samples of 4 heads and 16 queries, least of several runs, in turn;
kept in results/draws.json. The others draw every row with uniforms of its own, as
``rows="independent"`` does here.
"""

import json
from collections.abc import Callable
from time import perf_counter

import numpy as np
import torch
from _common import RESULTS, machine
from torch import Tensor

from uqformer.attention import multinomial_weights
from uqformer.attention._kernel import has_kernel

N_ROWS, N_HEADS, N_QUERIES, N_ROUNDS = 64, 4, 16, 7
KEYS, DRAWS = (9, 32, 128, 512, 1024), (1, 4, 16, 64, 256, 1024)
SLOW = 2**28
"""Numbers that torch.multinomial would pick at once before it is left out."""


def by_torch(probs: Tensor, n_draws: int, generator: torch.Generator) -> Tensor:
    """Pick keys one by one, then count them."""
    flat = probs.flatten(0, -2)  # (N * H * T, S)
    picked = torch.multinomial(flat, n_draws, replacement=True, generator=generator)
    ones = torch.ones_like(picked, dtype=probs.dtype)
    counts = torch.zeros_like(flat).scatter_add_(1, picked, ones)
    return (counts / n_draws).view_as(probs)


def by_numpy(probs: Tensor, n_draws: int, rng: np.random.Generator) -> Tensor:
    """Draw counts by conditional binomials."""
    p = probs.double().numpy()
    counts = rng.multinomial(n_draws, p / p.sum(axis=-1, keepdims=True))
    return torch.from_numpy((counts / n_draws).astype(np.float32))


def least(ways: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Milliseconds of each way, run in turn."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(N_ROUNDS + 1):
        for name, way in ways.items():
            start = perf_counter()
            way()
            times[name].append(perf_counter() - start)
    return {name: round(1e3 * min(spent[1:]), 3) for name, spent in times.items()}


def measure(n_keys: int, n_draws: int) -> dict[str, float]:
    generator, rng = torch.Generator().manual_seed(0), np.random.default_rng(0)
    shape = (N_ROWS, N_HEADS, N_QUERIES, n_keys)
    scores = torch.randn(shape, generator=generator)
    probs = torch.softmax(scores, dim=-1)
    ways: dict[str, Callable[[], object]] = {
        "softmax": lambda: torch.softmax(scores, dim=-1),
        "shared": lambda: multinomial_weights(probs, n_draws, generator),
        "independent": lambda: multinomial_weights(
            probs, n_draws, generator, rows="independent"
        ),
        "numpy": lambda: by_numpy(probs, n_draws, rng),
    }
    if N_ROWS * N_HEADS * N_QUERIES * n_draws * n_keys <= SLOW:
        ways["torch"] = lambda: by_torch(probs, n_draws, generator)
    return {"n_keys": n_keys, "n_draws": n_draws, **least(ways)}


def main() -> None:
    torch.set_num_threads(1)
    results = []
    for n_keys in KEYS:
        for n_draws in DRAWS:
            results.append(measure(n_keys, n_draws))
            print(results[-1], flush=True)
    draw = "numba" if has_kernel() else "bisection"
    summary = {
        "machine": machine() | {"draw": draw},
        "rows": N_ROWS * N_HEADS * N_QUERIES,
        "unit": "milliseconds",
        "results": results,
    }
    (RESULTS / "draws.json").write_text(json.dumps(summary, indent=1) + "\n")


if __name__ == "__main__":
    main()
