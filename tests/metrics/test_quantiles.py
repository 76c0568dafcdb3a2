import numpy as np
import pytest
import scoringrules
from scipy.stats import binom, norm
from sklearn.metrics import mean_pinball_loss

from uqformer.metrics import (
    crps_normal_loss,
    pinball_loss,
    quantile_calibration_error,
    weighted_interval_loss,
    winkler_loss,
)

QUANTILES = [0.1, 0.25, 0.5, 0.75, 0.9]


@pytest.fixture
def drawn():
    """Targets (200,), intervals (200, 2) that often miss, weights (200,)."""
    rng = np.random.default_rng(0)
    y = rng.normal(size=200)
    interval = np.sort(rng.normal(size=(200, 2)), axis=1)
    return y, interval, rng.uniform(size=200)


@pytest.fixture
def nested(drawn):
    """Targets, quantiles (200, 5), and two nested intervals (200, 2, 2) of them."""
    y = drawn[0]
    centre = np.random.default_rng(1).normal(size=(200, 1))
    predicted = centre + 0.5 * norm.ppf(QUANTILES)
    interval = np.stack([predicted[:, [1, 3]], predicted[:, [0, 4]]], axis=2)
    return y, predicted, interval


def test_pinball_of_one_quantile_agrees_with_sklearn(drawn):
    y, interval, weights = drawn
    theirs = mean_pinball_loss(y, interval[:, 0], alpha=0.1, sample_weight=weights)
    ours = pinball_loss(y, interval[:, :1], quantiles=[0.1], sample_weight=weights)
    assert ours == pytest.approx(theirs)


def test_pinball_averages_over_quantiles_and_outputs(drawn):
    y, interval, _ = drawn
    levels = [0.2, 0.7]
    alone = [mean_pinball_loss(y, interval[:, k], alpha=levels[k]) for k in range(2)]
    assert pinball_loss(y, interval, quantiles=levels) == pytest.approx(np.mean(alone))
    two_outputs = pinball_loss(
        np.stack([y, 3 * y], axis=1),
        np.stack([interval, 3 * interval], axis=2),
        quantiles=levels,
    )
    assert two_outputs == pytest.approx(2 * np.mean(alone))


def test_winkler_is_pinball_of_the_two_ends(drawn):
    y, interval, _ = drawn
    pinball = pinball_loss(y, interval, quantiles=[0.1, 0.9])
    assert winkler_loss(y, interval, confidence_level=0.8) == pytest.approx(
        2 * pinball / 0.1
    )


def test_twice_pinball_on_a_grid_approaches_crps(drawn):
    y, _, _ = drawn
    grid = (np.arange(2000) + 0.5) / 2000
    predicted = np.tile(norm.ppf(grid), (len(y), 1))
    crps = crps_normal_loss(y, np.zeros_like(y), np.ones_like(y))
    assert 2 * pinball_loss(y, predicted, quantiles=grid) == pytest.approx(
        crps, rel=1e-3
    )


@pytest.mark.parametrize("predicted", [[[0.0]], [[0.0, np.nan]], [0.0, 1.0]])
def test_pinball_refuses_other_shapes_and_nan(predicted):
    with pytest.raises(ValueError, match=r"y_quantiles must have shape \(1, 2\)"):
        pinball_loss([0.0], predicted, quantiles=[0.1, 0.9])


class TestQuantileCalibration:
    def test_by_hand(self):
        # one of two targets below the first quantile, both below the second
        found = quantile_calibration_error(
            [0.0, 2.0], [[1.0, 3.0], [1.0, 3.0]], quantiles=[0.1, 0.9]
        )
        assert found == pytest.approx((0.4 + 0.1) / 2)

    def test_a_target_on_the_quantile_lies_below(self):
        assert quantile_calibration_error([1.0], [[1.0]], quantiles=[0.9]) < 0.11

    def test_true_quantiles_err_by_chance_alone(self):
        n_samples = 4000
        y = np.random.default_rng(2).normal(size=n_samples)
        for level in QUANTILES:
            predicted = np.full((n_samples, 1), norm.ppf(level))
            error = quantile_calibration_error(y, predicted, quantiles=[level])
            low, high = binom.interval(0.9999, n_samples, level)
            assert error * n_samples <= max(n_samples * level - low, high - level)

    def test_too_narrow_a_normal_errs_as_computed(self):
        y = norm.ppf((np.arange(20_000) + 0.5) / 20_000)
        predicted = np.tile(0.5 * norm.ppf(QUANTILES), (len(y), 1))
        exact = np.abs(norm.cdf(0.5 * norm.ppf(QUANTILES)) - QUANTILES).mean()
        found = quantile_calibration_error(y, predicted, quantiles=QUANTILES)
        assert found == pytest.approx(exact, abs=1e-3)

    def test_outputs_do_not_cancel(self):
        y = np.array([[0.0, 2.0], [0.0, 2.0]])
        predicted = np.ones((2, 1, 2))  # one output always below, one always above
        assert quantile_calibration_error(y, predicted, quantiles=[0.5]) == 0.5

    def test_weights_count_as_repeats(self, nested):
        y, predicted, _ = nested
        weights = np.arange(200) % 3
        repeated = quantile_calibration_error(
            np.repeat(y, weights),
            predicted.repeat(weights, axis=0),
            quantiles=QUANTILES,
        )
        found = quantile_calibration_error(
            y, predicted, quantiles=QUANTILES, sample_weight=weights
        )
        assert found == pytest.approx(repeated)


class TestWeightedIntervals:
    LEVELS = (0.5, 0.8)

    def test_it_is_twice_the_pinball_loss_of_ends_and_median(self, nested):
        y, predicted, interval = nested
        found = weighted_interval_loss(
            y, interval, confidence_level=self.LEVELS, y_pred=predicted[:, 2]
        )
        pinball = pinball_loss(y, predicted, quantiles=QUANTILES)
        assert found == pytest.approx(2 * pinball)

    def test_it_is_twice_the_pinball_loss_of_the_ends_without(self, nested):
        y, predicted, interval = nested
        ends = [0, 1, 3, 4]
        pinball = pinball_loss(
            y, predicted[:, ends], quantiles=np.array(QUANTILES)[ends]
        )
        found = weighted_interval_loss(y, interval, confidence_level=self.LEVELS)
        assert found == pytest.approx(2 * pinball)

    def test_it_agrees_with_scoringrules(self, nested):
        y, predicted, interval = nested
        theirs = scoringrules.weighted_interval_score(
            y,
            predicted[:, 2],
            interval[:, 0],
            interval[:, 1],
            1 - np.array(self.LEVELS),
        )
        found = weighted_interval_loss(
            y, interval, confidence_level=self.LEVELS, y_pred=predicted[:, 2]
        )
        assert found == pytest.approx(theirs.mean())

    def test_one_level_is_a_share_of_winkler(self, drawn):
        y, interval, weights = drawn
        for shaped in (interval, interval[:, :, None]):
            found = weighted_interval_loss(
                y, shaped, confidence_level=0.8, sample_weight=weights
            )
            assert found == pytest.approx(
                0.1
                * winkler_loss(y, interval, confidence_level=0.8, sample_weight=weights)
            )

    def test_many_levels_approach_the_crps(self, drawn):
        y, _, weights = drawn
        levels = (np.arange(500) + 0.5) / 500
        reach = norm.ppf((1 + levels) / 2)
        interval = np.tile([-reach, reach], (len(y), 1, 1))
        crps = crps_normal_loss(
            y, np.zeros_like(y), np.ones_like(y), sample_weight=weights
        )
        found = weighted_interval_loss(
            y, interval, confidence_level=levels, sample_weight=weights
        )
        assert found == pytest.approx(crps, rel=2e-3)

    @pytest.mark.parametrize("shape", [(4, 2), (4, 2, 3), (5, 2, 2)])
    def test_other_shapes_are_refused(self, shape):
        with pytest.raises(ValueError, match=r"\(n_samples, 2, n_levels\).*2 levels"):
            weighted_interval_loss(
                np.zeros(4), np.zeros(shape), confidence_level=self.LEVELS
            )

    def test_several_outputs_are_refused(self):
        with pytest.raises(ValueError, match=r"y_true\.shape=\(4, 2\)"):
            weighted_interval_loss(
                np.zeros((4, 2)), np.zeros((4, 2, 2)), confidence_level=self.LEVELS
            )
