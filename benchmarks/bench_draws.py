"""Time the draw of attention weights against two other ways, all in one run.

Prints a line for each number of draws: milliseconds of a plain softmax of the same
size, and how many times as long each way takes. Run as

    python benchmarks/bench_draws.py [--rows 256 --heads 8 --queries 13 --keys 13]
"""

import argparse
import time
from collections.abc import Callable

import torch
from torch import Tensor

from uqformer.attention import multinomial_weights

N_REPEATS = 7


def by_torch_multinomial(
    probs: Tensor, n_draws: int, generator: torch.Generator
) -> Tensor:
    """Draw keys one by one with torch, then count them."""
    flat = probs.flatten(0, -2)  # (N * H * T, S)
    picked = torch.multinomial(flat, n_draws, replacement=True, generator=generator)
    ones = torch.ones_like(picked, dtype=probs.dtype)
    counts = torch.zeros_like(flat).scatter_add_(1, picked, ones)
    return (counts / n_draws).view_as(probs)


def by_inverse_cdf(probs: Tensor, n_draws: int, generator: torch.Generator) -> Tensor:
    """Look up where the uniforms of every row fall in its own cumulative sum."""
    flat = probs.flatten(0, -2)  # (N * H * T, S)
    cdf = flat.cumsum(dim=-1)
    uniforms = torch.rand(len(flat), n_draws, generator=generator) * cdf[:, -1:]
    picked = torch.searchsorted(cdf, uniforms, right=True).clamp_max(flat.shape[1] - 1)
    ones = torch.ones_like(uniforms)
    counts = torch.zeros_like(flat).scatter_add_(1, picked, ones)
    return (counts / n_draws).view_as(probs)


def milliseconds(run: Callable[[], object]) -> float:
    """Least time of several runs after a first one."""
    run()
    times = []
    for _ in range(N_REPEATS):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return 1e3 * min(times)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, default in [("rows", 256), ("heads", 8), ("queries", 13), ("keys", 13)]:
        parser.add_argument(f"--{name}", type=int, default=default)
    args = parser.parse_args()
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    shape = (args.rows, args.heads, args.queries, args.keys)
    scores = torch.randn(shape, generator=generator)
    probs = torch.softmax(scores, dim=-1)
    plain = milliseconds(lambda: torch.softmax(scores, dim=-1))
    print(f"softmax of {shape}: {plain:.2f} ms; times that long for a draw:")
    print(f"{'n_draws':>8} {'shared':>12} {'independent':>12} {'cdf':>7} {'torch':>7}")
    for n_draws in (1, 4, 16, 64, 256, 1024):
        ways = [
            lambda n=n_draws: multinomial_weights(probs, n, generator),
            lambda n=n_draws: multinomial_weights(
                probs, n, generator, rows="independent"
            ),
            lambda n=n_draws: by_inverse_cdf(probs, n, generator),
            lambda n=n_draws: by_torch_multinomial(probs, n, generator),
        ]
        shared, independent, cdf, with_torch = (milliseconds(w) / plain for w in ways)
        print(
            f"{n_draws:>8} {shared:>12.1f} {independent:>12.1f} "
            f"{cdf:>7.1f} {with_torch:>7.1f}"
        )


if __name__ == "__main__":
    main()
