"""Platt's sigmoid and the beta map against their definitions and other libraries."""

import numpy as np
import pytest
from scipy.special import expit, logit
from sklearn.calibration import CalibratedClassifierCV
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression

from uqformer.calibration import BetaCalibrator, PlattCalibrator
from uqformer.calibration._sigmoid import BetaMap, SigmoidMap


def odds_and_labels(n_rows=3000, seed=0):
    rng = np.random.default_rng(seed)
    odds = 2 * rng.normal(size=n_rows)
    return odds, (rng.logistic(size=n_rows) < odds).astype(int)


def doubled(features, y):
    """Rows for a plain regression whose weighted labels are Platt's targets."""
    positive, negative = y.sum(), len(y) - y.sum()
    hit = np.where(y == 1, (positive + 1) / (positive + 2), 1 / (negative + 2))
    labels = np.repeat([1, 0], len(y))
    return np.vstack([features, features]), labels, np.concatenate([hit, 1 - hit])


@pytest.mark.parametrize("n_rows", [10, 100, 3000])
def test_platt_is_logistic_regression_on_his_targets(n_rows):
    odds, y = odds_and_labels(n_rows)
    found = PlattCalibrator(input="logits").fit(3 * odds + 1, y).maps_[0]
    features, labels, weights = doubled(3 * odds[:, None] + 1, y)
    plain = LogisticRegression(C=1e8, tol=1e-10, max_iter=1000)
    plain.fit(features, labels, weights)
    assert found.slope == pytest.approx(plain.coef_[0, 0], rel=1e-4)
    assert found.intercept == pytest.approx(plain.intercept_[0], rel=1e-3, abs=1e-4)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_platt_agrees_with_scikit_learn_at_any_scale(scale):
    odds, y = odds_and_labels()
    X = odds[:, None] + np.random.default_rng(1).normal(size=(3000, 1))
    model = LogisticRegression().fit(scale * X[:500], y[:500])
    theirs = CalibratedClassifierCV(FrozenEstimator(model), method="sigmoid")
    theirs.fit(scale * X[500:], y[500:])
    decision = model.decision_function(scale * X)
    ours = PlattCalibrator(input="logits").fit(decision[500:], y[500:])
    np.testing.assert_allclose(
        ours.transform(decision), theirs.predict_proba(scale * X)[:, 1], atol=1e-4
    )


def test_platt_undoes_a_scale_and_a_shift():
    odds, y = odds_and_labels(200_000)
    found = PlattCalibrator(input="logits").fit(4 * odds - 1, y).maps_[0]
    assert found.slope == pytest.approx(0.25, rel=0.02)
    assert found.intercept == pytest.approx(0.25, rel=0.05)


@pytest.mark.parametrize("calibrator", [PlattCalibrator, BetaCalibrator])
def test_separable_rows_leave_a_doubt(calibrator):
    odds = np.linspace(-4, 4, 40)
    y = (odds > 0).astype(int)
    proba = calibrator(input="logits").fit(odds, y).transform(odds)
    # targets of 21 / 22 and 1 / 22 instead of 1 and 0
    assert 0.001 < proba[0] < 0.05
    assert 0.95 < proba[-1] < 0.999


@pytest.mark.parametrize("calibrator", [PlattCalibrator, BetaCalibrator])
def test_a_class_without_rows_gets_laplaces_share(calibrator):
    odds = np.random.default_rng(0).normal(size=48)
    fitted = calibrator(input="logits").fit(odds, np.zeros(48, dtype=int))
    np.testing.assert_allclose(fitted.transform(odds), 1 / 50, rtol=1e-3)


def test_beta_is_logistic_regression_on_two_logarithms():
    odds, y = odds_and_labels()
    proba = expit(2 * odds + 0.5)
    found = BetaCalibrator(input="proba").fit(proba, y).maps_[0]
    features, labels, weights = doubled(
        np.column_stack([np.log(proba), -np.log1p(-proba)]), y
    )
    plain = LogisticRegression(C=1e8, tol=1e-10, max_iter=2000)
    plain.fit(features, labels, weights)
    np.testing.assert_allclose([found.a, found.b], plain.coef_[0], rtol=1e-3)
    assert found.c == pytest.approx(plain.intercept_[0], abs=1e-3)


def test_beta_finds_the_shapes_of_beta_distributed_predictions():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, size=200_000)
    y_proba = np.where(y == 1, rng.beta(3, 1, len(y)), rng.beta(1, 2, len(y)))
    found = BetaCalibrator(input="proba").fit(y_proba, y).maps_[0]
    # log of 3 p^2 / (2 (1 - p)): the ratio of the two densities
    assert found.a == pytest.approx(2, abs=0.03)
    assert found.b == pytest.approx(1, abs=0.03)
    assert found.c == pytest.approx(np.log(1.5), abs=0.06)


def test_beta_never_falls():
    odds, y = odds_and_labels(500)
    found = BetaCalibrator(input="logits").fit(-odds, y).maps_[0]
    assert found.a >= 0
    assert found.b >= 0
    steps = found(np.linspace(-5, 5, 50))
    assert (np.diff(steps) >= -1e-12).all()


def test_beta_leaves_what_is_right():
    odds, y = odds_and_labels(200_000)
    found = BetaCalibrator(input="logits").fit(odds, y)
    np.testing.assert_allclose(
        found.transform(odds[:500]), expit(odds[:500]), atol=0.01
    )


def test_maps_are_their_formulas():
    p = np.array([0.1, 0.5, 0.9])
    sigmoid = SigmoidMap(0.5, 0.2)(logit(p))
    np.testing.assert_allclose(sigmoid, expit(0.5 * logit(p) + 0.2))
    beta = BetaMap(1.5, 0.5, -0.1)(logit(p))
    np.testing.assert_allclose(
        beta, 1 / (1 + 1 / (np.exp(-0.1) * p**1.5 / (1 - p) ** 0.5))
    )


def test_betacal_finds_the_same_map():
    betacal = pytest.importorskip("betacal")
    odds, y = odds_and_labels(20_000)
    proba = expit(2 * odds + 0.5)
    theirs = betacal.BetaCalibration(parameters="abm").fit(proba[:, None], y)
    ours = BetaCalibrator(input="proba").fit(proba, y)
    np.testing.assert_allclose(
        ours.transform(proba[:200]), theirs.predict(proba[:200, None]), atol=1e-3
    )
