"""DirectorRegressor on small UCI tables, beside its backbone and stochastic attention.

Usage: UQFORMER_DATA=<folder> OMP_NUM_THREADS=1 python benchmarks/bench_director_uci.py
       [--sets yacht concrete energy] [--splits 0 1]

An FT-Transformer of three blocks is trained twice on the training rows of a standard
split, from the same seed and so alike: once for `DirectorRegressor`, once for
`StochasticAttentionRegressor`. The test rows judge and never choose. Each run is kept
as a file of its own under results/director_uci.
"""

import argparse
import warnings
from typing import Any

import numpy as np
from _common import RESULTS, UCI, cached, load_uci, machine

from uqformer import DirectorRegressor, StochasticAttentionRegressor
from uqformer.exceptions import UQFormerWarning
from uqformer.metrics import coverage_score, crps_loss, winkler_loss

BACKBONE = {"d_token": 32, "n_heads": 4, "n_blocks": 3}
LEVEL = 0.9


def rmse(y: np.ndarray, y_pred: np.ndarray) -> float:
    return float(np.sqrt(np.mean((y - y_pred) ** 2)))


def judge(model: Any, X: np.ndarray, y: np.ndarray) -> dict[str, float]:
    interval = model.predict_interval(X, confidence_level=LEVEL)
    return {
        "rmse": rmse(y, model.predict(X)),
        "crps_members": crps_loss(y, model.predict_ensemble(X), fair=True),
        "coverage": coverage_score(y, interval),
        "winkler": winkler_loss(y, interval, confidence_level=LEVEL),
    }


def run(name: str, split: int) -> dict[str, Any]:
    X, y, X_test, y_test = load_uci(name, split)
    director = DirectorRegressor(
        backbone_params=BACKBONE, performance_weight=10.0, random_state=split
    ).fit(X, y)
    attention = StochasticAttentionRegressor(
        backbone_params=BACKBONE, random_state=split
    ).fit(X, y)
    return {
        "set": name,
        "split": split,
        "machine": machine(),
        "n_parameters": director.n_parameters_,
        "n_draws": director.n_draws_,
        "epochs": len(director.history_),
        "seconds": director.fit_times_,
        "rmse_backbone": rmse(y_test, director.backbone_predict(X_test)),
        "director": judge(director, X_test, y_test),
        "stochastic attention": judge(attention, X_test, y_test),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--sets", nargs="+", default=["yacht", "concrete", "energy"], choices=UCI
    )
    parser.add_argument("--splits", nargs="+", type=int, default=[0, 1])
    options = parser.parse_args()
    warnings.simplefilter("ignore", UQFormerWarning)
    for name in options.sets:
        for split in options.splits:
            path = RESULTS / "director_uci" / f"{name}_{split}.json"
            got = cached(path, lambda n=name, s=split: run(n, s))
            backbone = got["rmse_backbone"]
            print(name, split, f"backbone rmse {backbone:.3f}")
            for title in ("director", "stochastic attention"):
                scores = {key: round(value, 3) for key, value in got[title].items()}
                print(f"    {title:22s}", scores, flush=True)


if __name__ == "__main__":
    main()
