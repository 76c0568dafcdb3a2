import numpy as np
import pytest
import scoringrules
from scipy.stats import binom, norm

from uqformer.metrics import (
    coverage_error,
    coverage_score,
    mean_interval_width,
    winkler_loss,
)


@pytest.fixture
def drawn():
    """Targets (200,), intervals (200, 2) that often miss, weights (200,)."""
    rng = np.random.default_rng(0)
    y = rng.normal(size=200)
    interval = np.sort(rng.normal(size=(200, 2)), axis=1)
    return y, interval, rng.uniform(size=200)


def test_both_ends_belong_to_the_interval():
    interval = [[0.0, 1.0]] * 4
    assert coverage_score([0.0, 1.0, -1e-9, 1 + 1e-9], interval) == 0.5


def test_coverage_is_weighted():
    interval = [[0.0, 1.0], [0.0, 1.0]]
    assert coverage_score([0.5, 2.0], interval, sample_weight=[3.0, 1.0]) == 0.75


def test_coverage_of_several_levels(drawn):
    y, interval, weights = drawn
    levels = np.stack([interval, interval * 2, interval * 3], axis=2)
    coverages = coverage_score(y, levels, sample_weight=weights)
    alone = [
        coverage_score(y, levels[:, :, k], sample_weight=weights) for k in range(3)
    ]
    assert coverages.shape == (3,)
    np.testing.assert_allclose(coverages, alone)


def test_coverage_of_true_intervals_is_binomial():
    n_samples, level = 4000, 0.8
    y = np.random.default_rng(1).normal(size=n_samples)
    ends = norm.ppf([(1 - level) / 2, (1 + level) / 2])
    n_covered = n_samples * coverage_score(y, np.tile(ends, (n_samples, 1)))
    low, high = binom.interval(0.9999, n_samples, level)
    assert low <= n_covered <= high


def test_outputs_are_averaged():
    y = np.array([[0.0, 5.0], [0.0, 0.5]])
    interval = np.array([[[-1, 0], [1, 1]], [[-1, 0], [1, 1]]])
    assert coverage_score(y, interval) == 0.75
    np.testing.assert_allclose(mean_interval_width(interval), [2, 1])
    # widths 2 and 1; one miss by 4, charged 4 times at the level 0.5
    loss = winkler_loss(y, interval, confidence_level=0.5)
    assert loss == pytest.approx((2 + (1 + 16 + 1) / 2) / 2)


def test_coverage_errors_of_outputs_do_not_cancel():
    y = np.array([[0.0, 5.0], [0.0, 5.0]])
    interval = np.array([[[-1, 0], [1, 1]], [[-1, 0], [1, 1]]])
    assert coverage_score(y, interval) == 0.5
    assert coverage_error(y, interval, confidence_level=0.5) == 0.5


@pytest.fixture
def two_outputs():
    """Targets (300, 2) and intervals (300, 2, 2): one output covered, one hardly."""
    rng = np.random.default_rng(0)
    y = rng.normal(size=(300, 2))
    half = np.array([2.0, 0.5])
    return y, np.stack([-half + 0 * y, half + 0 * y], axis=1), rng.uniform(size=300)


@pytest.mark.parametrize("metric", [coverage_score, coverage_error, winkler_loss])
def test_raw_values_are_those_of_each_output_alone(two_outputs, metric):
    y, interval, weights = two_outputs
    options = {"sample_weight": weights}
    raw = metric(y, interval, multioutput="raw_values", **options)
    alone = [metric(y[:, k], interval[:, :, k], **options) for k in range(2)]
    assert raw.shape == (2,)
    np.testing.assert_allclose(raw, alone)
    assert abs(raw[0] - raw[1]) > 0.1
    mean = metric(y, interval, **options)
    assert isinstance(mean, float)
    assert mean == pytest.approx(np.mean(alone))
    assert metric(y, interval, multioutput="uniform_average", **options) == mean
    weighted = metric(y, interval, multioutput=[3, 1], **options)
    assert weighted == pytest.approx((3 * raw[0] + raw[1]) / 4)
    # one target is one output, as of mean_squared_error
    one = metric(y[:, 0], interval[:, :, 0], multioutput="raw_values", **options)
    np.testing.assert_allclose(one, alone[:1])


@pytest.mark.parametrize(("level", "error"), [(0.25, 0.25), (0.5, 0.0), (0.9, 0.4)])
def test_coverage_error_counts_both_sides(level, error):
    interval = [[0.0, 1.0], [0.0, 1.0]]
    found = coverage_error([0.5, 2.0], interval, confidence_level=level)
    assert found == pytest.approx(error)


def test_coverage_error_is_weighted():
    found = coverage_error(
        [0.5, 2.0],
        [[0.0, 1.0], [0.0, 1.0]],
        confidence_level=0.7,
        sample_weight=[9.0, 1.0],
    )
    assert found == pytest.approx(0.2)


def test_width_is_weighted_and_per_level():
    interval = np.array([[[0.0, -1.0], [1.0, 3.0]], [[0.0, 0.0], [3.0, 8.0]]])
    np.testing.assert_allclose(mean_interval_width(interval), [2, 6])
    assert mean_interval_width(interval[:, :, 0], sample_weight=[1, 3]) == 2.5


@pytest.mark.parametrize("level", [0.5, 0.9])
def test_winkler_agrees_with_scoringrules(drawn, level):
    y, interval, weights = drawn
    theirs = scoringrules.interval_score(y, interval[:, 0], interval[:, 1], 1 - level)
    ours = winkler_loss(y, interval, confidence_level=level)
    assert ours == pytest.approx(theirs.mean())
    ours = winkler_loss(y, interval, confidence_level=level, sample_weight=weights)
    assert ours == pytest.approx(np.average(theirs, weights=weights))


def test_winkler_is_least_for_the_true_interval():
    y = np.random.default_rng(2).normal(size=20_000)
    level, true = 0.9, norm.ppf(0.95)

    def loss(lower, upper):
        interval = np.tile([lower, upper], (len(y), 1))
        return winkler_loss(y, interval, confidence_level=level)

    others = [(-0.7, 0.7), (-1.3, 1.3), (-1.3, 1.0), (-1.0, 0.7)]
    assert all(
        loss(-true, true) < loss(left * true, right * true) for left, right in others
    )


@pytest.mark.parametrize("metric", [coverage_score, coverage_error, winkler_loss])
class TestRefusals:
    def test_crossed_ends(self, metric):
        with pytest.raises(ValueError, match="lower end"):
            metric([0.0], [[1.0, 0.0]])

    def test_nan(self, metric):
        with pytest.raises(ValueError, match="NaN"):
            metric([0.0], [[0.0, np.nan]])
        with pytest.raises(ValueError, match="NaN"):
            metric([np.nan], [[0.0, 1.0]])

    def test_lengths_that_differ(self, metric):
        with pytest.raises(ValueError, match=r"y_true\.shape=\(3, 1\)|\(3,\)"):
            metric([0.0, 0.0, 0.0], [[0.0, 1.0]] * 2)

    def test_column_of_targets_does_not_broadcast(self, metric):
        with pytest.raises(ValueError, match=r"\(n_samples, 2, n_outputs\)"):
            metric([[0.0], [0.0]], [[0.0, 1.0]] * 2)

    def test_outputs_that_differ(self, metric):
        with pytest.raises(ValueError, match=r"\(n_samples, 2, n_outputs\)"):
            metric(np.zeros((4, 3)), np.zeros((4, 2, 2)))


@pytest.mark.parametrize("metric", [coverage_score, coverage_error, winkler_loss])
@pytest.mark.parametrize("multioutput", ["mean", [1.0], [-1.0, 2.0], [0.0, 0.0]])
def test_other_ways_to_average_outputs_are_refused(metric, multioutput):
    with pytest.raises(ValueError, match=r"multioutput must .* got multioutput="):
        metric(np.zeros((4, 2)), np.zeros((4, 2, 2)), multioutput=multioutput)


@pytest.mark.parametrize("metric", [coverage_error, winkler_loss])
def test_several_levels_are_refused_where_one_is_meant(metric):
    with pytest.raises(ValueError, match="one confidence level; got 3 levels"):
        metric(np.zeros(4), np.zeros((4, 2, 3)))
    with pytest.raises(ValueError, match="confidence_level"):
        metric(np.zeros(4), np.zeros((4, 2)), confidence_level=90)
