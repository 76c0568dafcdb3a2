"""Calibrate real class probabilities, beside scikit-learn and probmetrics.

Usage: UQFORMER_DATA=<folder> python benchmarks/bench_probabilities.py
       [--sets cifar10 ...] [--rows 500]

Every row is calibrated by rows of the other four of five folds, all of them or, with
--rows, only so many. Four out-of-sample prediction sets (images, digits, reviews and
newsgroups) are read from probs/. For each calibrator the log loss, the Brier score,
the 15-bin calibration error and the accuracy of all rows are kept in
results/probabilities.json, with the seconds of a fit. Calibrators of probmetrics take
part where it is installed.

The default penalties of vector, matrix and Dirichlet scaling were chosen by trials on
these sets: their rows here are not blind to that choice.
"""

import argparse
import json
import warnings
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from time import perf_counter
from typing import Any, TypeAlias

import numpy as np
from _common import RESULTS, data_folder, machine
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.frozen import FrozenEstimator
from sklearn.metrics import log_loss
from sklearn.model_selection import StratifiedKFold

from uqformer.calibration import (
    BaseCalibrator,
    BetaCalibrator,
    DirichletCalibrator,
    HistogramBinningCalibrator,
    IsotonicCalibrator,
    MatrixScalingCalibrator,
    PlattCalibrator,
    TemperatureCalibrator,
    VectorScalingCalibrator,
)
from uqformer.metrics import brier_loss, expected_calibration_error

SETS = ("cifar10", "mnist", "imdb", "20news")
SMALLEST = 1e-12  # for all alike: an infinite log loss could not be averaged
PROBMETRICS = ("temp-scaling", "ts-mix", "isotonic", "svs", "sms")

Calibrate: TypeAlias = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]


class LogProbabilities(ClassifierMixin, BaseEstimator):
    """Classifier whose rows are its predictions, for CalibratedClassifierCV."""

    def fit(self, X: np.ndarray, y: np.ndarray) -> "LogProbabilities":
        self.classes_ = np.arange(X.shape[1])
        return self

    def predict(self, X: np.ndarray) -> np.ndarray:
        return X.argmax(axis=1)

    def decision_function(self, X: np.ndarray) -> np.ndarray:
        logs = np.log(np.maximum(X, SMALLEST))
        return logs if X.shape[1] > 2 else logs[:, 1] - logs[:, 0]


def ours(calibrator: BaseCalibrator) -> Calibrate:
    return lambda X, y, new: calibrator.fit(X, y).transform(new)


def of_scikit_learn(method: str) -> Calibrate:
    def calibrate(X: np.ndarray, y: np.ndarray, new: np.ndarray) -> np.ndarray:
        guest = FrozenEstimator(LogProbabilities().fit(X, y))
        fitted = CalibratedClassifierCV(guest, method=method).fit(X, y)
        return fitted.predict_proba(new)

    return calibrate


def of_probmetrics(method: str) -> Calibrate:
    from probmetrics.calibrators import get_calibrator

    options = {"svs": {"svs_print_init_info": False}} | {
        "sms": {"sms_print_init_info": False}
    }

    def calibrate(X: np.ndarray, y: np.ndarray, new: np.ndarray) -> np.ndarray:
        calibrator = get_calibrator(method, **options.get(method, {}))
        return np.asarray(calibrator.fit(X, y).predict_proba(new))

    return calibrate


def calibrators() -> Iterator[tuple[str, Calibrate]]:
    """All that take part, by name."""
    yield "uncalibrated", lambda X, y, new: new
    for calibrator in (
        TemperatureCalibrator(),
        VectorScalingCalibrator(),
        MatrixScalingCalibrator(),
        DirichletCalibrator(),
        PlattCalibrator(),
        BetaCalibrator(),
        IsotonicCalibrator(),
        HistogramBinningCalibrator(),
    ):
        yield type(calibrator).__name__, ours(calibrator)
    for method in ("temperature", "sigmoid", "isotonic"):
        yield f"scikit-learn {method}", of_scikit_learn(method)
    if installed("probmetrics"):
        for method in PROBMETRICS:
            yield f"probmetrics {method}", of_probmetrics(method)


def installed(package: str) -> str | None:
    """Version of a package that may be missing."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def cross_fit(
    calibrate: Calibrate, y_proba: np.ndarray, y: np.ndarray, n_rows: int | None
) -> dict[str, float]:
    """Calibrate every row by others, and score them all together."""
    folds = StratifiedKFold(5, shuffle=True, random_state=0)
    calibrated, seconds = np.empty_like(y_proba), []
    for train, test in folds.split(y_proba, y):
        some = np.random.default_rng(0).permutation(train)[:n_rows]
        start = perf_counter()
        calibrated[test] = calibrate(y_proba[some], y[some], y_proba[test])
        seconds.append(perf_counter() - start)
    bounded = np.maximum(calibrated, SMALLEST)
    bounded /= bounded.sum(axis=1, keepdims=True)
    return {
        "log_loss": log_loss(y, bounded),
        "brier": brier_loss(y, calibrated),
        "ece": expected_calibration_error(y, calibrated, n_bins=15),
        "accuracy": float(np.mean(calibrated.argmax(axis=1) == y)),
        "seconds": float(np.median(seconds)),
    }


def load(name: str) -> tuple[np.ndarray, np.ndarray]:
    path = data_folder() / "probs" / f"{name}_test_probs.npz"
    with np.load(path, allow_pickle=False) as data:
        y_proba = data["probs"].astype(np.float64)
        return y_proba / y_proba.sum(axis=1, keepdims=True), data["labels"].astype(int)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=SETS)
    parser.add_argument("--rows", type=int, nargs="+", default=[])
    options = parser.parse_args()
    # what a calibrator warns of shows in its scores
    warnings.simplefilter("ignore")
    results: list[dict[str, Any]] = []
    for name in options.sets:
        y_proba, y = load(name)
        for n_rows in [None, *options.rows]:
            for label, calibrate in calibrators():
                scores = cross_fit(calibrate, y_proba, y, n_rows)
                row = {"set": name, "rows": n_rows or "all", "calibrator": label}
                results.append(row | scores)
                print(json.dumps(results[-1]), flush=True)
    packages = ("uqformer", "scikit-learn", "probmetrics", "numpy", "scipy")
    summary = {
        "machine": machine() | {name: installed(name) for name in packages},
        "results": results,
    }
    path = RESULTS / "probabilities.json"
    path.write_text(json.dumps(summary, indent=1) + "\n")


if __name__ == "__main__":
    main()
