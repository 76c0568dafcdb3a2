"""What an ensemble costs: time of 50 members over time of 50 plain passes.

Usage: OMP_NUM_THREADS=1 python benchmarks/bench_members.py

Both run in one process, in turn, on 1,024 rows; the median of several rounds is kept in
results/members.json. The FT-Transformer is run as the regressor runs it, in batches of
256 rows; the guest is a plain `nn.TransformerEncoder`.
"""

import json
from collections.abc import Callable
from statistics import median
from time import perf_counter
from typing import Any

import torch
from _common import RESULTS, machine
from torch import Tensor, nn

from uqformer.attention import forward_members
from uqformer.attention._kernel import has_kernel
from uqformer.backbones import FTTransformer

N_ROWS, N_MEMBERS, N_ROUNDS = 1024, 50, 5


def seconds(run: Callable[[], Any]) -> float:
    start = perf_counter()
    run()
    return perf_counter() - start


def ratio(model: nn.Module, x: Tensor, n_rows: int, n_draws: int) -> float:
    """Members over plain passes; both made of the same batches of rows."""
    batches, seeds = x.split(n_rows), list(range(N_MEMBERS))

    def plain() -> None:
        with torch.no_grad():
            for _ in seeds:
                for batch in batches:
                    model(batch)

    def redrawn() -> None:
        for _ in forward_members(model, batches, n_draws=n_draws, seeds=seeds):
            pass

    redrawn()  # compiles the kernel, warms the caches
    return median(seconds(redrawn) / seconds(plain) for _ in range(N_ROUNDS))


def main() -> None:
    torch.manual_seed(0)
    results = []
    for n_columns in (8, 20):
        x = torch.randn(N_ROWS, n_columns)
        model = FTTransformer(n_columns, 1).adapt(x).eval()
        for n_draws in (1, 16, 256):
            value = ratio(model, x, 256, n_draws)
            results.append(["FTTransformer", n_columns, n_draws, round(value, 2)])
            print(*results[-1], flush=True)
    layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
    guest = nn.TransformerEncoder(layer, 3).eval()
    tokens = torch.randn(64, 32, 64)
    for n_draws in (1, 16, 256):
        value = ratio(guest, tokens, 64, n_draws)
        results.append(["nn.TransformerEncoder", 32, n_draws, round(value, 2)])
        print(*results[-1], flush=True)
    names = ("model", "n_tokens_in", "n_draws", "ratio")
    summary = {
        "machine": machine() | {"kernel": "numba" if has_kernel() else "bisection"},
        "results": [dict(zip(names, row, strict=True)) for row in results],
    }
    (RESULTS / "members.json").write_text(json.dumps(summary, indent=1) + "\n")


if __name__ == "__main__":
    main()
