"""The penalised log loss: its slope, its curvature, and its least point."""

import numpy as np
import pytest
from scipy.optimize import check_grad
from sklearn.linear_model import LogisticRegression

from uqformer.calibration import DirichletCalibrator, MatrixScalingCalibrator
from uqformer.calibration import _linear as room
from uqformer.calibration._linear import _PenalisedLogLoss
from uqformer.exceptions import CalibrationWarning


def problem(n_rows=80, n_classes=3, strength=0.5, held=False, seed=0):
    rng = np.random.default_rng(seed)
    features = 2 * rng.normal(size=(n_rows, n_classes))
    targets = rng.dirichlet(np.ones(n_classes), size=n_rows)
    weights = rng.uniform(size=n_rows)
    strengths = np.full((n_classes, n_classes + 1), strength)
    if held:
        strengths[np.triu_indices(n_classes, 1)] = np.inf
    return _PenalisedLogLoss(
        np.hstack([features, np.ones((n_rows, 1))]),
        targets,
        weights / weights.sum(),
        np.eye(n_classes, n_classes + 1),
        strengths,
    )


@pytest.mark.parametrize("held", [False, True])
def test_the_slope_is_that_of_the_loss(held):
    loss = problem(held=held)
    rng = np.random.default_rng(1)
    entries = rng.normal(size=int(loss.free.sum()))
    error = check_grad(
        lambda e: loss.loss_and_slope(e)[0],
        lambda e: loss.loss_and_slope(e)[1],
        entries,
    )
    assert error < 1e-5


@pytest.mark.parametrize("held", [False, True])
def test_the_curvature_is_that_of_the_slope(held):
    loss = problem(held=held)
    rng = np.random.default_rng(1)
    entries, step = rng.normal(size=(2, int(loss.free.sum())))
    ahead, behind = (
        loss.loss_and_slope(entries + sign * 1e-5 * step)[1] for sign in (1, -1)
    )
    expected = (ahead - behind) / 2e-5
    np.testing.assert_allclose(
        loss.curvature(entries, step), expected, rtol=1e-5, atol=1e-8
    )


def test_the_least_point_is_flat_and_held_entries_stay():
    loss = problem(held=True)
    table = loss.minimise()
    np.testing.assert_array_equal(table[~loss.free], loss.start[~loss.free])
    assert np.abs(loss.loss_and_slope(table[loss.free])[1]).max() < 1e-6


def test_an_overwhelming_penalty_leaves_the_start():
    loss = problem(strength=1e9)
    np.testing.assert_allclose(loss.minimise(), loss.start, atol=1e-6)


def test_without_a_penalty_it_is_logistic_regression():
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(20000, 3))
    y = (2 * logits @ [[1, 0.3, 0], [0, 1, 0], [0, 0, 1]] + [0, 0.5, 0]) + rng.gumbel(
        size=logits.shape
    )
    y = y.argmax(axis=1)
    ours = MatrixScalingCalibrator(regularization=1e-6, input="logits").fit(logits, y)
    centred = logits - logits.mean(axis=1, keepdims=True)
    theirs = LogisticRegression(C=1e6, tol=1e-8, max_iter=1000).fit(centred, y)
    np.testing.assert_allclose(
        ours.transform(logits[:200]), theirs.predict_proba(centred[:200]), atol=1e-3
    )


@pytest.mark.filterwarnings("ignore:No temperature")
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
@pytest.mark.parametrize("calibrator", [MatrixScalingCalibrator, DirichletCalibrator])
def test_the_scale_of_the_logits_does_not_matter(calibrator, scale):
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(800, 4))
    y = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
    expected = calibrator(input="logits").fit(logits, y).transform(logits)
    found = calibrator(input="logits").fit(scale * logits, y).transform(scale * logits)
    np.testing.assert_allclose(found, expected, atol=0.02)


def test_a_descent_that_does_not_settle_warns(monkeypatch):
    monkeypatch.setattr(room, "MAX_ITERATIONS", 1)
    with pytest.warns(CalibrationWarning, match="not yet settled after 1 steps"):
        problem(strength=1e-3).minimise()
