"""Vector, matrix and Dirichlet scaling: what each can mend, and what few rows do."""

import numpy as np
import pytest
from scipy.special import log_softmax, softmax

from uqformer.calibration import (
    DirichletCalibrator,
    MatrixScalingCalibrator,
    TemperatureCalibrator,
    VectorScalingCalibrator,
)

LINEAR = [DirichletCalibrator, MatrixScalingCalibrator, VectorScalingCalibrator]


def calibrated_logits(n_rows, n_classes=3, seed=0):
    rng = np.random.default_rng(seed)
    logits = 1.5 * rng.normal(size=(n_rows, n_classes))
    return logits, (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)


def excess(calibrator, logits, broken, y, n_fit):
    """Log loss on new rows, less that of the true probabilities."""
    fitted = calibrator.fit(broken[:n_fit], y[:n_fit])
    new = np.arange(n_fit, len(y))
    found = np.log(fitted.transform(broken[n_fit:]))
    truth = log_softmax(logits[n_fit:], axis=1)
    columns = y[n_fit:]
    return float(np.mean(truth[new - n_fit, columns] - found[new - n_fit, columns]))


@pytest.mark.parametrize("calibrator", LINEAR)
def test_shifts_of_single_classes_are_mended(calibrator):
    logits, y = calibrated_logits(24_000)
    broken = 2 * logits + [0.0, 0.0, 3.0]
    one_number = excess(TemperatureCalibrator(), logits, broken, y, 4000)
    assert one_number > 0.05
    assert excess(calibrator(), logits, broken, y, 4000) < 0.1 * one_number


@pytest.mark.parametrize("calibrator", [DirichletCalibrator, MatrixScalingCalibrator])
def test_mixed_up_classes_are_mended_by_matrices_alone(calibrator):
    logits, y = calibrated_logits(24_000)
    broken = logits @ np.array([[1.0, 0.6, 0.0], [0.0, 1.0, 0.6], [0.6, 0.0, 1.0]])
    vector = excess(VectorScalingCalibrator(), logits, broken, y, 4000)
    assert vector > 0.05
    found = excess(calibrator(regularization=0.1), logits, broken, y, 4000)
    assert found < 0.1 * vector


def test_a_vector_has_nothing_off_the_diagonal():
    logits, y = calibrated_logits(300)
    coef = VectorScalingCalibrator().fit(logits, y).coef_
    assert np.count_nonzero(coef - np.diag(np.diag(coef))) == 0
    assert np.ptp(np.diag(coef)) > 0


@pytest.mark.parametrize(
    "calibrator", [MatrixScalingCalibrator, VectorScalingCalibrator]
)
def test_a_strong_penalty_is_temperature_scaling(calibrator):
    logits, y = calibrated_logits(300)
    fitted = calibrator(regularization=1e9).fit(4 * logits, y)
    temperature = TemperatureCalibrator().fit(4 * logits, y)
    np.testing.assert_allclose(
        fitted.transform(logits), temperature.transform(logits), atol=1e-5
    )
    np.testing.assert_allclose(
        fitted.coef_, np.eye(3) / temperature.temperature_, atol=1e-6
    )


@pytest.mark.parametrize("calibrator", LINEAR)
def test_few_rows_do_little_harm(calibrator):
    losses = []
    for seed in range(20):
        logits, y = calibrated_logits(3000, 10, seed)
        losses.append(excess(calibrator(), logits, logits, y, 100))
    assert np.mean(losses) < 0.08
    free = []
    for seed in range(20):
        logits, y = calibrated_logits(3000, 10, seed)
        free.append(excess(calibrator(regularization=0.01), logits, logits, y, 100))
    assert np.mean(free) > 2 * np.mean(losses)


def test_dirichlet_scaling_is_right_for_dirichlet_predictions():
    rng = np.random.default_rng(0)
    shapes = np.array([[4.0, 1.0, 1.0], [1.0, 3.0, 1.0], [1.0, 2.0, 3.0]])
    y = rng.integers(0, 3, size=30_000)
    draws = rng.standard_gamma(shapes[y])
    y_proba = draws / draws.sum(axis=1, keepdims=True)
    calibrator = DirichletCalibrator(regularization=0.0).fit(y_proba, y)
    differences = calibrator.coef_ - calibrator.coef_[0]
    np.testing.assert_allclose(differences, shapes - shapes[0], atol=0.1)


def test_dirichlet_scaling_reads_logits_as_their_probabilities():
    logits, y = calibrated_logits(300)
    shifts = np.random.default_rng(1).normal(size=(300, 1))
    from_logits = DirichletCalibrator(input="logits").fit(logits + shifts, y)
    from_proba = DirichletCalibrator().fit(softmax(logits, axis=1), y)
    np.testing.assert_allclose(from_logits.coef_, from_proba.coef_, rtol=1e-5)


@pytest.mark.parametrize("calibrator", LINEAR)
def test_penalties_are_not_negative(calibrator):
    logits, y = calibrated_logits(30)
    with pytest.raises(ValueError, match="'regularization' parameter"):
        calibrator(regularization=-1.0).fit(logits, y)
