"""Stochastic attention on eight UCI tables, beside rivals on the same network.

Usage: UQFORMER_DATA=<folder> python benchmarks/bench_uci.py [--splits 0 1 2]
       [--sets concrete ...] [--point-only]

For every set and split the regressor is fitted with its defaults on the training rows
of the standard split; the test rows judge and never choose. Each run is kept as a file
of its own under results/uci, so a stopped benchmark goes on where it was.

With --point-only the network's exact pass alone is judged against scikit-learn's
HistGradientBoostingRegressor with its defaults; no calibration rows are kept then.
"""

import argparse
import json
import warnings
from time import perf_counter
from typing import Any

import numpy as np
from _common import RESULTS, UCI, cached, load_uci, machine
from sklearn.ensemble import HistGradientBoostingRegressor

from uqformer import StochasticAttentionRegressor
from uqformer.comparison import compare_intervals
from uqformer.exceptions import UQFormerWarning


def rmse(y_true: np.ndarray, y_pred: np.ndarray) -> float:
    return float(np.sqrt(np.mean((y_true - y_pred) ** 2)))


def run_point(name: str, split: int) -> dict[str, Any]:
    """RMSE of the network and of boosted trees on one split."""
    X_train, y_train, X_test, y_test = load_uci(name, split)
    trees = HistGradientBoostingRegressor(random_state=0).fit(X_train, y_train)
    model = StochasticAttentionRegressor(
        interval="ensemble", n_draws=None, random_state=split
    )
    model.fit(X_train, y_train)
    return {
        "set": name,
        "split": split,
        "rmse_trees": rmse(y_test, trees.predict(X_test)),
        "rmse_network": rmse(y_test, model.predict(X_test)),
        "n_epochs": len(model.history_),
        "seconds": model.fit_times_,
    }


def run_intervals(name: str, split: int) -> dict[str, Any]:
    """All reports of one split."""
    X_train, y_train, X_test, y_test = load_uci(name, split)
    model = StochasticAttentionRegressor(random_state=split).fit(X_train, y_train)
    start = perf_counter()
    reports = compare_intervals(model, X_test, y_test, random_state=split)
    search = model.calibration_.searches["all"]
    conformal = next(iter(model.calibration_.conformals.values()))
    return {
        "set": name,
        "split": split,
        "n_train": len(X_train),
        "n_test": len(X_test),
        "n_calibration": len(conformal.scores),
        "n_draws": model.n_draws_,
        "error_reached": search.reached,
        "width_follows_spread": bool(np.isfinite(conformal.floor[0])),
        "n_epochs": len(model.history_),
        "seconds": {**model.fit_times_, "reports": perf_counter() - start},
        "reports": reports,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--splits", type=int, nargs="+", default=[0])
    parser.add_argument("--sets", nargs="+", default=list(UCI), choices=UCI)
    parser.add_argument("--point-only", action="store_true")
    options = parser.parse_args()
    # constant columns and unreachable errors are recorded, not warned of
    warnings.simplefilter("ignore", UQFormerWarning)
    kind, run = (
        ("uci_point", run_point) if options.point_only else ("uci", run_intervals)
    )
    results: list[dict[str, Any]] = []
    for name in options.sets:
        for split in options.splits:
            path = RESULTS / kind / f"{name}_{split}.json"
            result = cached(path, lambda n=name, s=split: run(n, s))
            print(json.dumps(result), flush=True)
            results.append(result)
    results.sort(key=lambda result: (result["set"], result["split"]))
    summary = {"machine": machine(), "results": results}
    (RESULTS / f"{kind}.json").write_text(json.dumps(summary, indent=1) + "\n")


if __name__ == "__main__":
    main()
