"""Three tables of numbers and categories, beside boosted trees.

Usage: UQFORMER_DATA=<folder> OMP_NUM_THREADS=1 python benchmarks/bench_tables.py
       [--sets adult ...] [--rows 10000] [--seeds 0 1 2] [--no-conformal]

`StochasticAttentionClassifier` with its defaults and scikit-learn's
`HistGradientBoostingClassifier` with its own are given the same data frame, text,
missing cells and all, and are judged on test rows that nothing else has seen: those of
adult's own split, a random fifth of bank and covtype15k. The classifier keeps a fifth
of its rows for conformal sets, which trees have no part in; with --no-conformal it
learns from these too. With --rows only so many training rows are used. Each run is kept
as a file of its own under results/tables, so a stopped benchmark goes on where it was;
results/tables.json has them all.
"""

import argparse
import json
import warnings
from time import perf_counter
from typing import Any

import numpy as np
import pandas as pd
from _common import RESULTS, cached, data_folder, machine
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import accuracy_score, log_loss
from sklearn.model_selection import train_test_split

from uqformer import StochasticAttentionClassifier
from uqformer.exceptions import UQFormerWarning
from uqformer.metrics import brier_loss, expected_calibration_error

TARGETS = {"adult": "income", "bank": "deposit", "covtype15k": "cover_type"}


def read(name: str) -> pd.DataFrame:
    """Read a file, its categories as such: some are numbers, and trees need to know."""
    path = data_folder() / "tabular" / f"{name}.csv.gz"
    frame = pd.read_csv(path)
    codes = [c for c in ("wilderness_area", "soil_type") if c in frame]
    text = frame.columns.difference([*TARGETS.values(), *codes])
    text = frame[text].select_dtypes(exclude="number").columns
    return frame.astype(dict.fromkeys([*codes, *text], "category"))


def load(name: str, seed: int, n_rows: int | None) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return training rows, as many as asked, and test rows."""
    if name == "adult":
        train, test = read("adult_train"), read("adult_test")
    else:
        train, test = train_test_split(read(name), test_size=0.2, random_state=seed)
    return train.sample(n_rows or len(train), random_state=seed), test


def judge(
    model: Any, train: pd.DataFrame, test: pd.DataFrame, y: str
) -> dict[str, Any]:
    """Fit a classifier and score its probabilities on the test rows."""
    start = perf_counter()
    model.fit(train.drop(columns=y), train[y])
    fitted = perf_counter()
    y_proba = model.predict_proba(test.drop(columns=y))
    seconds = {"fit": fitted - start, "predict": perf_counter() - fitted}
    labels = model.classes_
    return {
        "accuracy": accuracy_score(test[y], labels[y_proba.argmax(axis=1)]),
        "log_loss": log_loss(test[y], y_proba, labels=labels),
        "brier": brier_loss(test[y], y_proba, labels=labels),
        "ece": expected_calibration_error(test[y], y_proba, labels=labels),
        "seconds": seconds,
    }


def run(
    name: str, seed: int, n_rows: int | None, conformal: str | None
) -> dict[str, Any]:
    """Both classifiers on one table."""
    train, test = load(name, seed, n_rows)
    y = TARGETS[name]
    trees = HistGradientBoostingClassifier(
        categorical_features="from_dtype", random_state=seed
    )
    model = StochasticAttentionClassifier(conformal=conformal, random_state=seed)
    scores = {
        "trees": judge(trees, train, test, y),
        "network": judge(model, train, test, y),
    }
    return {
        "set": name,
        "conformal": conformal,
        "seed": seed,
        "n_train": len(train),
        "n_test": len(test),
        "majority": float(np.mean(test[y] == train[y].mode()[0])),
        "n_epochs": len(model.history_),
        "n_params": model.module_.n_params,
        **scores,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", nargs="+", default=list(TARGETS), choices=TARGETS)
    parser.add_argument("--rows", type=int, default=None)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--no-conformal", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore", UQFormerWarning)
    conformal = None if options.no_conformal else "lac"
    folder, ending = RESULTS / "tables", "_trained_on_all" * options.no_conformal
    for name in options.sets:
        for seed in options.seeds:
            path = folder / f"{name}_{options.rows or 'all'}_{seed}{ending}.json"
            result = cached(
                path, lambda n=name, s=seed: run(n, s, options.rows, conformal)
            )
            print(json.dumps(result), flush=True)
    results = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    summary = {"machine": machine(), "results": results}
    (RESULTS / "tables.json").write_text(json.dumps(summary, indent=1) + "\n")


if __name__ == "__main__":
    main()
