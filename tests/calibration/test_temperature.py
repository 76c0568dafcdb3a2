"""The temperature: its optimum at any scale, its limits, and decisions untouched."""

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, softmax
from sklearn.calibration import CalibratedClassifierCV
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression

from uqformer.calibration import TemperatureCalibrator
from uqformer.calibration._temperature import (
    _Evidence,
    fit_temperature,
    smooth_targets,
)
from uqformer.exceptions import CalibrationWarning


def calibrated_logits(n_rows, n_classes, spread=1.0, seed=0):
    """Logits that are right as they are, with labels drawn from them."""
    rng = np.random.default_rng(seed)
    logits = spread * rng.normal(size=(n_rows, n_classes))
    return logits, (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)


def log_loss(logits, y, temperature=1.0):
    return -log_softmax(logits / temperature, axis=1)[np.arange(len(y)), y].mean()


def plain_optimum(logits, y):
    """Temperature of least log loss, by a search that knows the answer's size."""
    found = minimize_scalar(
        lambda log_t: log_loss(logits, y, np.exp(log_t)),
        bounds=(-3, 3),
        method="bounded",
        options={"xatol": 1e-9},
    )
    return float(np.exp(found.x))


@pytest.mark.parametrize("scale", [1e-3, 1e-2, 0.1, 1.0, 5.0, 20.0, 1e3, 1e6])
@pytest.mark.parametrize(("n_classes", "spread"), [(2, 1.0), (10, 3.0)])
def test_the_scale_of_the_logits_does_not_matter(scale, n_classes, spread):
    logits, y = calibrated_logits(5000, n_classes, spread)
    ideal = scale * plain_optimum(logits, y)
    calibrator = TemperatureCalibrator(input="logits").fit(scale * logits, y)
    assert calibrator.temperature_ == pytest.approx(ideal, rel=0.01)
    np.testing.assert_allclose(
        calibrator.transform(scale * logits),
        softmax(logits / plain_optimum(logits, y), axis=1),
        atol=0.01,
    )


def test_the_true_temperature_is_found_within_its_standard_error():
    found = [
        np.log(fit_temperature(*calibrated_logits(1000, 4, seed=seed), np.ones(1000)))
        for seed in range(200)
    ]
    margin = 4 * np.std(found) / np.sqrt(len(found))
    assert np.mean(found) == pytest.approx(0, abs=margin + 0.005)
    assert 0.02 < np.std(found) < 0.1


def test_common_shifts_of_the_logits_do_not_matter():
    logits, y = calibrated_logits(500, 3)
    shifts = np.random.default_rng(1).normal(scale=100, size=(500, 1))
    expected = fit_temperature(logits, y, np.ones(500))
    found = fit_temperature(logits + shifts, y, np.ones(500))
    assert found == pytest.approx(expected)


@pytest.mark.parametrize("n_rows", [20, 200, 2000])
def test_no_mistake_does_not_ask_for_certainty(n_rows):
    # all margins alike: Laplace's rule says n + 1 right of n + 2, the prior rather less
    margin = 2.0
    logits = np.zeros((n_rows, 2))
    logits[:, 1] = margin
    calibrator = TemperatureCalibrator().fit(logits, np.ones(n_rows, dtype=int))
    laplace = margin / np.log(n_rows + 1)
    assert laplace < calibrator.temperature_ < 1.13 * laplace < 1
    (_, right), *_ = calibrator.transform(logits)
    assert 0.98 * (n_rows + 1) / (n_rows + 2) < right < (n_rows + 1) / (n_rows + 2)


@pytest.mark.filterwarnings("ignore::uqformer.exceptions.CalibrationWarning")
@pytest.mark.parametrize("n_classes", [2, 10])
def test_separable_rows_do_not_ask_for_certainty(n_classes):
    logits, _ = calibrated_logits(1000, n_classes, 3.0)
    y = logits.argmax(axis=1)
    temperature = TemperatureCalibrator().fit(logits, y).temperature_
    assert 0.05 < temperature <= 1


def test_predictions_that_need_nothing_more_are_left_as_they_are():
    # surer than twenty rows can confirm, and never wrong: nothing lowers the loss
    logits = np.tile([0.0, 12.0], (20, 1))
    with pytest.warns(CalibrationWarning, match="No temperature lowers .* 20 rows"):
        calibrator = TemperatureCalibrator().fit(logits, np.ones(20, dtype=int))
    assert calibrator.temperature_ == 1


def test_constant_predictions_are_left_as_they_are():
    with pytest.warns(CalibrationWarning, match="says the same of all classes"):
        calibrator = TemperatureCalibrator().fit(np.full((9, 3), 5.0), [0, 1, 2] * 3)
    assert calibrator.temperature_ == 1
    np.testing.assert_allclose(calibrator.transform(np.zeros((1, 3))), 1 / 3)


def test_predictions_worse_than_chance_end_near_uniform():
    logits, _ = calibrated_logits(300, 3)
    with pytest.warns(CalibrationWarning, match="no better than by chance"):
        calibrator = TemperatureCalibrator().fit(logits, logits.argmin(axis=1))
    proba = calibrator.transform(logits)
    np.testing.assert_allclose(proba, 1 / 3, atol=2e-3)
    np.testing.assert_array_equal(proba.argmax(axis=1), logits.argmax(axis=1))


@pytest.mark.parametrize("scale", [0.01, 0.3, 1.0, 1.7, 20.0])
def test_ties_that_are_never_both_wrong_rule_the_third_class_out(scale):
    logits, y = np.tile([scale, scale, -scale], (40, 1)), np.arange(40) % 2
    calibrator = TemperatureCalibrator().fit(logits, y)
    first, second, third = calibrator.transform(logits)[0]
    assert first == second
    assert third < 1 / 100


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
@pytest.mark.parametrize("n_classes", [2, 20])
def test_decisions_never_change(scale, n_classes):
    logits, y = calibrated_logits(2000, n_classes)
    calibrator = TemperatureCalibrator(input="logits").fit(scale * logits, y)
    after = calibrator.transform(scale * logits)
    np.testing.assert_array_equal(after.argmax(axis=1), logits.argmax(axis=1))


@pytest.mark.filterwarnings("ignore::uqformer.exceptions.CalibrationWarning")
@pytest.mark.parametrize("seed", range(30))
def test_the_log_loss_of_the_calibration_rows_never_rises(seed):
    rng = np.random.default_rng(seed)
    n_rows, n_classes = rng.integers(1, 60), rng.integers(2, 6)
    logits, y = calibrated_logits(n_rows, n_classes, rng.uniform(0.1, 6), seed)
    scale = np.exp(rng.normal(scale=2))
    temperature = fit_temperature(scale * logits, y, np.ones(n_rows))
    after = log_loss(scale * logits, y, temperature)
    assert after <= log_loss(scale * logits, y) + 1e-12


@pytest.mark.parametrize(
    ("gap", "wrong", "low", "high"),
    [(0.1, 0, 0.9, 1), (0.1, 2, 1, 1.1), (1.0, 1, 1, 1.3), (3.0, 0, 1, 1)],
)
@pytest.mark.filterwarnings("ignore::uqformer.exceptions.CalibrationWarning")
def test_two_rows_hardly_move_the_temperature(gap, wrong, low, high):
    logits = np.tile([gap, 0.0], (2, 1))
    y = (np.arange(2) < wrong).astype(int)
    assert low <= fit_temperature(logits, y, np.ones(2)) <= high


def test_two_rows_that_are_surely_wrong_do_move_it():
    logits = np.tile([10.0, 0.0], (2, 1))
    with pytest.warns(CalibrationWarning, match="no better than by chance"):
        temperature = fit_temperature(logits, np.ones(2, dtype=int), np.ones(2))
    assert temperature > 10


@pytest.mark.filterwarnings("ignore::uqformer.exceptions.CalibrationWarning")
@pytest.mark.parametrize("scale", [0.02, 0.3, 1.0, 4.0, 300.0])
@pytest.mark.parametrize("n_rows", [3, 12, 60])
def test_the_temperature_is_the_most_probable_one(n_rows, scale):
    logits, y = calibrated_logits(n_rows, 3, 2.0, seed=n_rows)
    targets = (n_rows + 2) * smooth_targets(logits, y, np.ones(n_rows)) / n_rows
    log_t = np.linspace(-8, 8, 3201)
    minus_log_posterior = [
        -(targets * log_softmax(scale * logits / np.exp(u), axis=1)).sum()
        + np.log1p((u / np.log(2)) ** 2)
        for u in log_t
    ]
    found = fit_temperature(scale * logits, y, np.ones(n_rows))
    best = log_t[np.argmin(minus_log_posterior)]
    if log_loss(scale * logits, y, np.exp(best)) > log_loss(scale * logits, y):
        best = 0.0
    assert np.log(found) == pytest.approx(best, abs=5e-3)


def test_it_takes_rows_enough_to_leave_the_given_scale():
    # all right, by margins so small that two scales are likely: theirs, and a far one
    found = {}
    for n_rows in (8, 14):
        logits = np.tile([0.01, 0.0], (n_rows, 1))
        found[n_rows] = fit_temperature(logits, np.zeros(n_rows, int), np.ones(n_rows))
    assert 0.9 < found[8] < 1
    assert found[14] == pytest.approx(0.01 / np.log(15), rel=0.1)


def _excess_losses(n_rows, true_temperature, seeds):
    """Log loss of new rows above the true temperature's, with the prior and without."""
    excess = []
    for seed in seeds:
        logits, y = calibrated_logits(n_rows + 1000, 3, 2.0, seed)
        logits *= true_temperature
        few, ones = logits[:n_rows], np.ones(n_rows)
        unit = few - few.mean(axis=1, keepdims=True)
        targets = smooth_targets(few, y[:n_rows], ones)
        found = [
            fit_temperature(few, y[:n_rows], ones),
            np.exp(-_Evidence(unit, targets, ones).likeliest()),
        ]
        new = logits[n_rows:], y[n_rows:]
        least = log_loss(*new, true_temperature)
        excess.append([log_loss(*new, temperature) - least for temperature in found])
    return np.transpose(excess)


@pytest.mark.filterwarnings("ignore::uqformer.exceptions.CalibrationWarning")
def test_the_prior_helps_where_rows_are_few_and_predictions_fair():
    with_prior, without = _excess_losses(5, 1.0, range(200))
    gap = without - 3 * with_prior
    assert gap.mean() > 3 * gap.std() / np.sqrt(len(gap))


@pytest.mark.parametrize("true_temperature", [0.2, 1.0, 5.0])
def test_the_prior_costs_nothing_where_rows_are_plenty(true_temperature):
    with_prior, without = _excess_losses(1000, true_temperature, range(30))
    np.testing.assert_allclose(with_prior, without, atol=1e-3)


def test_targets_make_room_for_the_second_choice():
    logits = np.array([[3.0, 1.0, 2.0], [0.0, 5.0, -1.0]])
    targets = smooth_targets(logits, np.array([0, 2]), np.array([3.0, 1.0]))
    expected = np.array([[1.25, 0, 0.25], [0.25, 0.25, 1.0]]) / 1.5
    np.testing.assert_allclose(targets, expected)


def test_weights_count_as_repeats():
    logits, y = calibrated_logits(60, 3)
    weights = np.arange(60) % 3
    rows = np.repeat(np.arange(60), weights)
    weighted = TemperatureCalibrator().fit(logits, y, sample_weight=weights)
    repeated = TemperatureCalibrator().fit(logits[rows], y[rows])
    assert weighted.temperature_ == pytest.approx(repeated.temperature_)


@pytest.mark.parametrize("n_classes", [2, 4])
def test_scikit_learn_finds_the_same_temperature(n_classes):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(6000, 4))
    logits = 1.5 * X @ rng.normal(size=(4, n_classes))
    y = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
    # fitted with next to no penalty to too few rows: too sure
    model = LogisticRegression(C=1e6, max_iter=1000).fit(X[:30], y[:30])
    theirs = CalibratedClassifierCV(FrozenEstimator(model), method="temperature")
    theirs.fit(X[30:3000], y[30:3000])
    ours = TemperatureCalibrator(input="logits")
    ours.fit(model.decision_function(X[30:3000]), y[30:3000])
    assert abs(np.log(ours.temperature_)) > 0.05
    found = ours.transform(model.decision_function(X[3000:]))
    found = np.column_stack([1 - found, found]) if n_classes == 2 else found
    np.testing.assert_allclose(found, theirs.predict_proba(X[3000:]), atol=2e-3)


def test_probmetrics_finds_the_same_temperature():
    calibrators = pytest.importorskip("probmetrics.calibrators")
    logits, y = calibrated_logits(5000, 5)
    proba = softmax(3 * logits, axis=1)
    theirs = calibrators.get_calibrator("temp-scaling").fit(proba, y)
    ours = TemperatureCalibrator(input="proba").fit(proba, y)
    np.testing.assert_allclose(
        ours.transform(proba[:100]), theirs.predict_proba(proba[:100]), atol=2e-3
    )
