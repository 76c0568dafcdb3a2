"""Calibrators and sets on real predictions of four classifiers."""

import os
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import betabinom
from sklearn.metrics import log_loss

from uqformer.calibration import (
    BetaCalibrator,
    ConformalSets,
    DirichletCalibrator,
    IsotonicCalibrator,
    MatrixScalingCalibrator,
    PlattCalibrator,
    TemperatureCalibrator,
    VectorScalingCalibrator,
)
from uqformer.metrics import expected_calibration_error

ROOT = Path(__file__).resolve().parents[2]
CALIBRATORS = [
    BetaCalibrator(),
    DirichletCalibrator(),
    IsotonicCalibrator(),
    MatrixScalingCalibrator(),
    PlattCalibrator(),
    TemperatureCalibrator(),
    VectorScalingCalibrator(),
]
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def probs_dir():
    """Folder with predicted probabilities as `.npz`; UQFORMER_DATA says where."""
    data = Path(os.environ.get("UQFORMER_DATA", ROOT.parent / "shared" / "data"))
    if not (data / "probs").is_dir():
        pytest.skip(f"no folder {data / 'probs'}; set UQFORMER_DATA to one that has it")
    return data / "probs"


def load(probs_dir, name, seed=0):
    """Rows in random order, as exchangeable rows are."""
    with np.load(probs_dir / f"{name}_test_probs.npz", allow_pickle=False) as data:
        y_proba, y = data["probs"], data["labels"].astype(int)
    order = np.random.default_rng(seed).permutation(len(y))
    return y_proba[order], y[order]


def _bounded(y_proba):
    """As they are, but for zeros, which have no logarithm."""
    bounded = np.maximum(y_proba.astype(np.float64), 1e-12)
    return bounded / bounded.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("calibrator", CALIBRATORS, ids=lambda c: type(c).__name__)
@pytest.mark.parametrize("name", ["cifar10", "imdb", "20news"])
def test_miscalibrated_predictions_are_mended(probs_dir, name, calibrator):
    y_proba, y = load(probs_dir, name)
    n = len(y) // 2
    found = calibrator.fit(y_proba[:n], y[:n]).transform(y_proba[n:])
    before, after = (
        (log_loss(y[n:], proba), expected_calibration_error(y[n:], proba))
        for proba in (_bounded(y_proba[n:]), found)
    )
    assert after[0] < before[0]
    assert after[1] < 0.7 * before[1]


def test_calibrated_predictions_are_not_spoilt(probs_dir):
    y_proba, y = load(probs_dir, "mnist")
    found = TemperatureCalibrator().fit(y_proba[:5000], y[:5000])
    after = log_loss(y[5000:], found.transform(y_proba[5000:]))
    assert after < 1.02 * log_loss(y[5000:], _bounded(y_proba[5000:]))
    assert 0.8 < found.temperature_ < 1.25


@pytest.mark.parametrize("method", ["lac", "aps", "raps"])
@pytest.mark.parametrize("name", ["cifar10", "20news"])
def test_sets_cover_real_labels(probs_dir, name, method):
    n, n_new, level, counts = 200, 200, 0.95, []
    for seed in range(200):
        y_proba, y = load(probs_dir, name, seed)
        sets = ConformalSets(method, allow_empty=True, random_state=seed)
        sets.fit(y_proba[:n], y[:n])
        found = sets.predict_set(y_proba[n : n + n_new], level)
        counts.append(found[np.arange(n_new), y[n : n + n_new]].sum())
    law = betabinom(n_new, 191, n + 1 - 191)  # the 191st of 200 scores
    margin = 4 * law.std() / np.sqrt(200)
    assert np.mean(counts) >= law.mean() - margin
    # rows with the same rounded predictions share a score, which covers a little more
    assert np.mean(counts) <= law.mean() + margin + 0.01 * n_new


@pytest.mark.parametrize("method", ["lac", "aps"])
def test_each_class_of_real_labels_is_covered(probs_dir, method):
    shares = []
    for seed in range(40):
        y_proba, y = load(probs_dir, "cifar10", seed)
        sets = ConformalSets(method, per_class=True, allow_empty=True, random_state=0)
        found = sets.fit(y_proba[:2000], y[:2000]).predict_set(y_proba[2000:], 0.9)
        inside = found[np.arange(8000), y[2000:]]
        shares.append([inside[y[2000:] == k].mean() for k in range(10)])
    np.testing.assert_allclose(np.mean(shares, axis=0), 0.9, atol=0.02)
