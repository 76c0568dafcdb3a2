from itertools import pairwise, permutations

import numpy as np
import pytest

from uqformer.metrics import (
    area_under_risk_coverage_error,
    excess_area_under_risk_coverage_error,
    risk_coverage_curve,
)


def by_hand(wrong, doubt):
    """Average the curve over all orders that keep doubt rising."""
    orders = [
        order
        for order in permutations(range(len(wrong)))
        if all(doubt[i] <= doubt[j] for i, j in pairwise(order))
    ]
    counts = np.arange(1, len(wrong) + 1)
    return np.mean([np.cumsum(wrong[list(o)]) / counts for o in orders], axis=0)


def test_curve_by_hand():
    y_proba = [[0.6, 0.4], [0.9, 0.1], [0.2, 0.8], [0.3, 0.7]]
    coverages, risks, thresholds = risk_coverage_curve([1, 0, 0, 1], y_proba)
    np.testing.assert_allclose(coverages, [0.25, 0.5, 0.75, 1])
    np.testing.assert_allclose(risks, [0, 1 / 2, 1 / 3, 2 / 4])
    np.testing.assert_allclose(thresholds, [-0.9, -0.8, -0.7, -0.6])


@pytest.mark.parametrize("seed", range(5))
def test_ties_are_averaged_over_their_orders(seed):
    rng = np.random.default_rng(seed)
    y, doubt = rng.integers(2, size=6), rng.integers(3, size=6)
    proba = rng.uniform(size=6)
    wrong = (proba > 0.5) != y
    _, risks, _ = risk_coverage_curve(y, proba, uncertainty=doubt)
    expected = by_hand(wrong, doubt)
    np.testing.assert_allclose(risks, expected)
    found = area_under_risk_coverage_error(y, proba, uncertainty=doubt)
    assert found == pytest.approx(expected.mean())


def test_thresholds_answer_the_rows_of_the_curve(classes):
    y, proba = classes
    doubt = np.random.default_rng(0).normal(size=300)
    wrong = proba.argmax(axis=1) != y
    curve = risk_coverage_curve(y, proba, uncertainty=doubt)
    for coverage, risk, threshold in zip(*curve, strict=True):
        answered = doubt <= threshold
        assert answered.mean() == pytest.approx(coverage)
        assert wrong[answered].mean() == pytest.approx(risk)


def test_without_doubt_the_surest_class_speaks(classes):
    y, proba = classes
    assert area_under_risk_coverage_error(y, proba) == (
        area_under_risk_coverage_error(y, proba, uncertainty=-proba.max(axis=1))
    )


def test_constant_doubt_gives_the_error_rate_at_every_coverage(classes):
    y, proba = classes
    rate = (proba.argmax(axis=1) != y).mean()
    _, risks, _ = risk_coverage_curve(y, proba, uncertainty=np.zeros(300))
    np.testing.assert_allclose(risks, rate)


def test_random_doubt_gives_the_error_rate_on_average(classes):
    y, proba = classes
    rng = np.random.default_rng(1)
    areas = [
        area_under_risk_coverage_error(y, proba, uncertainty=rng.normal(size=300))
        for _ in range(400)
    ]
    rate = (proba.argmax(axis=1) != y).mean()
    assert np.mean(areas) == pytest.approx(rate, abs=4 * np.std(areas) / 20)


class TestExcess:
    def test_the_best_order_has_none_and_the_worst_most(self, classes):
        y, proba = classes
        wrong = (proba.argmax(axis=1) != y).astype(float)
        jitter = 0.1 * np.random.default_rng(2).uniform(size=300)

        def excess(doubt):
            return excess_area_under_risk_coverage_error(y, proba, uncertainty=doubt)

        assert excess(wrong + jitter) == pytest.approx(0)
        assert 0 < excess(-proba.max(axis=1)) < excess(jitter) < excess(-wrong)

    def test_what_is_taken_off_is_near_its_limit(self):
        n_samples, rate = 10_000, 0.2
        y = (np.arange(n_samples) >= rate * n_samples).astype(int)
        doubt = np.zeros(n_samples)
        area = area_under_risk_coverage_error(y, np.ones(n_samples), uncertainty=doubt)
        excess = excess_area_under_risk_coverage_error(
            y, np.ones(n_samples), uncertainty=doubt
        )
        limit = rate + (1 - rate) * np.log(1 - rate)
        assert area - excess == pytest.approx(limit, abs=1e-3)

    @pytest.mark.parametrize(("y", "area"), [([1, 1], 0.0), ([0, 0], 1.0)])
    def test_all_right_or_all_wrong_has_none(self, y, area):
        assert area_under_risk_coverage_error(y, [0.9, 0.8]) == area
        assert excess_area_under_risk_coverage_error(y, [0.9, 0.8]) == 0


METRICS = [
    risk_coverage_curve,
    area_under_risk_coverage_error,
    excess_area_under_risk_coverage_error,
]


@pytest.mark.parametrize("metric", METRICS)
def test_mistakes_are_named(metric):
    with pytest.raises(ValueError, match="uncertainty must have the shape of y_true"):
        metric([0, 1], [0.5, 0.5], uncertainty=[0.0])
    with pytest.raises(ValueError, match="uncertainty must be finite"):
        metric([0, 1], [0.5, 0.5], uncertainty=[0.0, np.nan])
    with pytest.raises(ValueError, match="labels must be given"):
        metric(["a"], [0.5])
