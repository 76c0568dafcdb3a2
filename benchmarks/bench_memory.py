"""Peak memory of a prediction against members and rows, and time as each thing grows.

Usage: OMP_NUM_THREADS=1 python benchmarks/bench_memory.py

Each number of members and rows runs in a process of its own, whose peak above what it
held before is kept in results/memory.json; `growth` there has the time of an ensemble
as rows, members, tokens and layers double, beside plain passes.
"""

import json
import subprocess
import sys
from statistics import median
from time import perf_counter

import torch
from _common import RESULTS, machine

from uqformer.attention import forward_members
from uqformer.backbones import FTTransformer

CHILD = """
import resource, sys, numpy as np, torch
from uqformer import StochasticAttentionRegressor
from uqformer.backbones import FrozenBackbone, FTTransformer

n_members, n_rows, verb = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
torch.manual_seed(0)
rng = np.random.default_rng(0)
X = rng.standard_normal((n_rows, 16))
model = FTTransformer(16, 1).adapt(torch.from_numpy(X[:500]).float()).eval()
regressor = StochasticAttentionRegressor(
    FrozenBackbone(model), n_draws=16, n_members=n_members, random_state=0
)
regressor.fit(X[:500], X[:500, 0])
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
getattr(regressor, verb)(X[:500])
before = peak()
getattr(regressor, verb)(X)
print((peak() - before) / 1024)
"""
N_ROUNDS = 3


def peak(n_members: int, n_rows: int, verb: str) -> float:
    """Return MiB at the peak above what a small prediction needed."""
    command = [sys.executable, "-c", CHILD, str(n_members), str(n_rows), verb]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return round(float(done.stdout), 1)


def seconds(n_rows: int, n_members: int, n_columns: int, n_blocks: int) -> list[float]:
    """Median seconds of an ensemble and of as many plain passes."""
    torch.manual_seed(0)
    x = torch.randn(n_rows, n_columns)
    model = FTTransformer(n_columns, 1, n_blocks=n_blocks).adapt(x).eval()
    batches, spent = x.split(256), []
    for _ in range(N_ROUNDS):
        start = perf_counter()
        for _ in forward_members(
            model, batches, n_draws=16, seeds=list(range(n_members))
        ):
            pass
        middle = perf_counter()
        with torch.no_grad():
            for _ in range(n_members):
                for batch in batches:
                    model(batch)
        spent.append((middle - start, perf_counter() - middle))
    return [round(median(times), 3) for times in zip(*spent, strict=True)]


def main() -> None:
    memory = [
        {"verb": verb, "members": m, "rows": n, "mebibytes": peak(m, n, verb)}
        for verb in ("predict_std", "predict_interval", "predict_ensemble")
        for m, n in [(10, 4_000), (50, 4_000), (200, 4_000), (50, 16_000)]
    ]
    base = {"rows": 512, "members": 10, "columns": 8, "blocks": 3}
    growth = []
    for name, values in {
        "rows": (256, 512, 1024, 2048),
        "members": (5, 10, 20, 40),
        "columns": (4, 8, 16, 32),
        "blocks": (1, 2, 4, 8),
    }.items():
        for value in values:
            size = base | {name: value}
            redrawn, plain = seconds(*size.values())
            growth.append({"grows": name, **size, "redrawn": redrawn, "plain": plain})
            print(growth[-1], flush=True)
    summary = {"machine": machine(), "memory": memory, "growth": growth}
    (RESULTS / "memory.json").write_text(json.dumps(summary, indent=1) + "\n")


if __name__ == "__main__":
    main()
