"""Can one pass tell the spread? The delta method beside a thousand members.

Usage: UQFORMER_DATA=<folder> OMP_NUM_THREADS=1 python benchmarks/bench_moments.py

The regressor is fitted with its defaults on the training rows of a standard split. On
the test rows, standard deviations from `redraw_moments` are compared with those of
1,000 members: pooled ratio, median ratio, and correlation over rows; and the time with
that of 50 members. On the validation rows, the number of draws that the search chose
stands beside the one that the closed form gives at once, each with the ratio of spread
to error that 500 members show there; 1 is wanted. Also kept: what redraws of one layer
at a time, and derivatives, say of the layers. Results: results/moments.json.
"""

import argparse
import json
import warnings
from collections.abc import Callable
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
import torch
from _common import RESULTS, UCI, cached, load_uci, machine
from torch import Tensor, nn

from uqformer import StochasticAttentionRegressor
from uqformer.attention import attention_variance, forward_members, redraw_moments
from uqformer.exceptions import UQFormerWarning

DRAWS = (4, 16, 64, 256)
N_REFERENCE, N_MEMBERS, N_VALIDATION_MEMBERS, N_ROUNDS = 1000, 50, 500, 7


def members(model: nn.Module, x: Tensor, n_draws: int, n_members: int) -> Tensor:
    outputs = forward_members(model, [x], n_draws=n_draws, seeds=range(n_members))
    return torch.stack([output.double() for _, _, output in outputs])  # (M, N, C)


def pooled(deviation: Tensor) -> float:
    return float(deviation.square().mean().sqrt())


def agreement(model: nn.Module, x: Tensor, n_draws: int) -> dict[str, float]:
    """Spread of one pass against that of many members, over rows."""
    sampled = members(model, x, n_draws, N_REFERENCE)
    moments = redraw_moments(model, x, n_draws=n_draws)
    reference, found = sampled.std(dim=0), moments.variance.double().sqrt()
    pair = torch.stack([reference.flatten(), found.flatten()])
    halves = torch.stack([half.std(dim=0).flatten() for half in sampled.chunk(2)])
    return {
        "n_draws": n_draws,
        "pooled_ratio": pooled(found) / pooled(reference),
        "median_ratio": float((found / reference).median()),
        "correlation": float(torch.corrcoef(pair)[0, 1]),
        "correlation_of_500_members_with_500_others": float(
            torch.corrcoef(halves)[0, 1]
        ),
        "shift_of_the_mean_per_spread": pooled(sampled.mean(dim=0) - moments.mean)
        / pooled(reference),
    }


def times(model: nn.Module, x: Tensor) -> dict[str, float]:
    """Milliseconds, the median of several rounds in turn."""

    def plain() -> None:
        with torch.no_grad():
            model(x)

    runs: dict[str, Callable[[], object]] = {
        "plain_pass": plain,
        "moments": lambda: redraw_moments(model, x, n_draws=16),
        "members_50": lambda: members(model, x, 16, N_MEMBERS),
    }
    taken: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(N_ROUNDS):
        for name, run in runs.items():
            start = perf_counter()
            run()
            taken[name].append(1e3 * (perf_counter() - start))
    found = {name: median(values) for name, values in taken.items()}
    return found | {"members_per_moments": found["members_50"] / found["moments"]}


def choices(regressor: StochasticAttentionRegressor) -> list[dict[str, Any]]:
    """What the search chose and what the closed form gives, on the validation rows."""
    rows, model = regressor.calibration_.validation, regressor.module_
    search = regressor.calibration_.searches["all"]
    x = torch.from_numpy(np.ascontiguousarray(rows.x))
    start = perf_counter()
    single = redraw_moments(model, x, n_draws=1).variance.numpy()
    at_once = (rows.root_mean_square(single) / search.target) ** 2
    seconds = {
        "search": regressor.fit_times_["search"],
        "closed form": perf_counter() - start,
    }
    results = []
    for way, n_draws in ("search", search.n_draws), ("closed form", round(at_once)):
        sampled = members(model, x, max(1, n_draws), N_VALIDATION_MEMBERS).numpy()
        square = ((sampled - rows.exact) ** 2).mean(axis=0)
        ratio = rows.root_mean_square(square) / search.target
        results.append(
            {
                "way": way,
                "n_draws": n_draws,
                "spread_per_error": ratio,
                "seconds": seconds[way],
            }
        )
    return results


def run(name: str, split: int) -> dict[str, Any]:
    X_train, y_train, X_test, _ = load_uci(name, split)
    regressor = StochasticAttentionRegressor(random_state=split).fit(X_train, y_train)
    model = regressor.module_.eval()
    scaled = regressor.feature_scaler_.transform(X_test).astype(np.float32)
    x = torch.from_numpy(scaled)
    layers = {
        f"{method}, {n_draws} draws": attention_variance(
            model, x, n_draws=n_draws, method=method, n_members=200
        )
        for method in ("redraw", "gradient")
        for n_draws in (4, 64)
    }
    return {
        "set": name,
        "split": split,
        "n_test": len(X_test),
        "agreement": [agreement(model, x, n_draws) for n_draws in DRAWS],
        "milliseconds": times(model, x),
        "choices": choices(regressor),
        "layers": {
            way: result.shares | {"interaction": result.interaction_share}
            for way, result in layers.items()
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--splits", type=int, nargs="+", default=[0])
    parser.add_argument("--sets", nargs="+", default=["yacht", "concrete"], choices=UCI)
    options = parser.parse_args()
    warnings.simplefilter("ignore", UQFormerWarning)
    results = []
    for name in options.sets:
        for split in options.splits:
            path = RESULTS / "moments" / f"{name}_{split}.json"
            result = cached(path, lambda n=name, s=split: run(n, s))
            print(json.dumps(result), flush=True)
            results.append(result)
    summary = {"machine": machine(), "results": results}
    (RESULTS / "moments.json").write_text(json.dumps(summary, indent=1) + "\n")


if __name__ == "__main__":
    main()
