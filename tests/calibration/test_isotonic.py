"""Isotonic maps: scikit-learn's fit, bounded, and whole rows whatever happens."""

import numpy as np
import pytest
from scipy.special import softmax
from sklearn.isotonic import IsotonicRegression

from uqformer.calibration import IsotonicCalibrator


def predictions(n_rows=500, n_classes=3, seed=0):
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(n_rows, n_classes))
    y = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
    return softmax(2 * logits, axis=1), y


def test_at_the_calibration_rows_it_is_isotonic_regression_within_limits():
    y_proba, y = predictions(n_classes=2)
    found = IsotonicCalibrator().fit(y_proba, y).transform(y_proba)[:, 1]
    plain = IsotonicRegression().fit(y_proba[:, 1], y).predict(y_proba[:, 1])
    np.testing.assert_allclose(found, np.clip(plain, 1 / 502, 501 / 502), atol=1e-9)


def test_many_classes_are_normalised():
    y_proba, y = predictions()
    plain = np.column_stack(
        [
            IsotonicRegression(y_min=1 / 502, y_max=501 / 502)
            .fit(y_proba[:, k], y == k)
            .predict(y_proba[:, k])
            for k in range(3)
        ]
    )
    expected = plain / plain.sum(axis=1, keepdims=True)
    found = IsotonicCalibrator().fit(y_proba, y).transform(y_proba)
    np.testing.assert_allclose(found, expected, atol=1e-9)


def test_rows_that_no_class_wants_are_still_probabilities():
    # each class was only ever right when its probability was above 0.8
    y_proba = np.vstack([0.85 * np.eye(3) + 0.05] * 20)
    calibrator = IsotonicCalibrator().fit(y_proba, np.arange(60) % 3)
    proba = calibrator.transform(
        [[1 / 3, 1 / 3, 1 / 3], [1.0, 0.0, 0.0], [0, 0.5, 0.5]]
    )
    assert np.isfinite(proba).all()
    np.testing.assert_allclose(proba.sum(axis=1), 1)
    assert (proba > 0).all()


def test_maps_rise_and_hold_beyond_their_rows():
    y_proba, y = predictions(n_classes=2)
    calibrator = IsotonicCalibrator(input="proba").fit(y_proba[:, 1], y)
    steps = calibrator.transform(np.linspace(0, 1, 200))
    assert (np.diff(steps) >= -1e-12).all()
    assert steps[0] > 0
    assert steps[-1] < 1
    within = calibrator.transform([y_proba[:, 1].min(), y_proba[:, 1].max()])
    np.testing.assert_allclose(steps[[0, -1]], within)


@pytest.mark.parametrize("n_rows", [1, 8])
def test_one_class_alone_gets_laplaces_share(n_rows):
    y_proba = np.full(n_rows, 0.7)
    calibrator = IsotonicCalibrator(input="proba").fit(y_proba, np.ones(n_rows))
    np.testing.assert_allclose(
        calibrator.transform(y_proba), (n_rows + 1) / (n_rows + 2)
    )


def test_a_bent_but_rising_map_is_straightened():
    rng = np.random.default_rng(0)
    truth = rng.uniform(size=40_000)
    y = (rng.uniform(size=40_000) < truth).astype(int)
    calibrator = IsotonicCalibrator(input="proba").fit(truth**3, y)
    found = calibrator.transform(truth[:500] ** 3)
    assert np.abs(found - truth[:500]).mean() < 0.02
