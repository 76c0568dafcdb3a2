import numpy as np
import pytest
from scipy.stats import chisquare

from uqformer.metrics import (
    pit_values,
    rank_histogram,
    spread_skill_bins,
    spread_skill_ratio,
)
from uqformer.predictive import RegressionEnsemble


def normal_errors(n_samples, factor, seed=0):
    """Targets about 0 with rising deviations, and deviations `factor` times as wide."""
    rng = np.random.default_rng(seed)
    std = rng.uniform(0.5, 2, size=n_samples)
    return std * rng.normal(size=n_samples), np.zeros(n_samples), factor * std


class TestRatio:
    def test_by_hand(self):
        found = spread_skill_ratio([1.0, 3.0], [0.0, 0.0], [2.0, 4.0])
        assert found == pytest.approx(np.sqrt(20 / 10))
        weighted = spread_skill_ratio(
            [1.0, 3.0], [0.0, 0.0], [2.0, 4.0], sample_weight=[3, 1]
        )
        assert weighted == pytest.approx(np.sqrt((3 * 4 + 16) / (3 + 9)))

    @pytest.mark.parametrize("factor", [0.5, 1.0, 2.0])
    def test_it_tells_how_much_too_wide(self, factor):
        found = spread_skill_ratio(*normal_errors(20_000, factor))
        assert found == pytest.approx(factor, rel=0.03)

    @pytest.mark.parametrize("n_members", [2, 5, 20])
    def test_perfect_ensembles_have_the_ratio_of_the_notes(self, n_members):
        draws = np.random.default_rng(1).normal(size=(n_members + 1, 40_000))
        ensemble = RegressionEnsemble(draws[1:])
        found = spread_skill_ratio(draws[0], ensemble.mean(), ensemble.std())
        expected = np.sqrt((n_members - 1) / (n_members + 1))
        assert found == pytest.approx(expected, rel=0.02)

    def test_outputs_do_not_cancel(self):
        y, std = np.ones((4, 2)), np.tile([0.5, 2.0], (4, 1))
        assert spread_skill_ratio(y, np.zeros((4, 2)), std) == pytest.approx(1.25)

    def test_no_error_has_no_ratio(self):
        with pytest.raises(ValueError, match="needs an error; got y_pred equal"):
            spread_skill_ratio([1.0], [1.0], [0.5])


class TestBins:
    def test_they_agree_with_a_loop(self):
        y, mean, std = normal_errors(120, 1.0)
        bins = spread_skill_bins(y, mean, std, n_bins=6)
        order = np.argsort(std).reshape(6, 20)
        np.testing.assert_array_equal(bins.count, [20] * 6)
        np.testing.assert_allclose(
            bins.spread, [np.sqrt((std[rows] ** 2).mean()) for rows in order]
        )
        np.testing.assert_allclose(
            bins.skill, [np.sqrt((y[rows] ** 2).mean()) for rows in order]
        )

    def test_right_spreads_lie_on_the_diagonal(self):
        bins = spread_skill_bins(*normal_errors(50_000, 1.0))
        np.testing.assert_allclose(bins.skill, bins.spread, rtol=0.06)

    def test_spreads_without_meaning_are_flat(self):
        y, mean, std = normal_errors(50_000, 1.0)
        bins = spread_skill_bins(y, mean, np.random.default_rng(2).permutation(std))
        assert np.ptp(bins.skill) < 0.1 < np.ptp(bins.spread)

    def test_constant_spread_is_one_bin(self):
        bins = spread_skill_bins([3.0, 4.0], [0.0, 0.0], [1.0, 1.0])
        np.testing.assert_allclose(bins.skill, [np.sqrt(12.5)])

    def test_several_outputs_are_refused(self):
        with pytest.raises(ValueError, match="Call once for each output"):
            spread_skill_bins(*np.ones((3, 4, 2)))


@pytest.mark.parametrize("metric", [spread_skill_ratio, spread_skill_bins])
def test_mistakes_are_named(metric):
    with pytest.raises(ValueError, match=r"not be negative; got a smallest.*-1"):
        metric([0.0], [1.0], [-1.0])
    with pytest.raises(ValueError, match="y_std must have the shape of y_true"):
        metric([0.0], [1.0], [[1.0]])
    with pytest.raises(ValueError, match="NaN"):
        metric([0.0], [np.nan], [1.0])


class TestRanks:
    def test_members_below_are_counted(self):
        members = np.array([[0.0] * 5, [1.0] * 5, [2.0] * 5])
        counts = rank_histogram([-1.0, 0.5, 0.6, 1.5, 9.0], members)
        np.testing.assert_array_equal(counts, [1, 2, 1, 1])

    @pytest.mark.parametrize("n_members", [1, 9, 20])
    def test_calibrated_ranks_are_equally_likely(self, n_members):
        draws = np.random.default_rng(3).normal(size=(n_members + 1, 5000))
        counts = rank_histogram(draws[0], draws[1:], random_state=0)
        assert counts.sum() == 5000
        assert chisquare(counts).pvalue > 1e-3

    def test_ties_are_spread_evenly(self):
        counts = rank_histogram(np.zeros(5000), np.zeros((9, 5000)), random_state=0)
        assert chisquare(counts).pvalue > 1e-3

    def test_too_narrow_an_ensemble_is_heaped_at_the_ends(self):
        draws = np.random.default_rng(4).normal(size=(10, 2000))
        counts = rank_histogram(draws[0], 0.5 * draws[1:])
        assert min(counts[0], counts[-1]) > 2 * counts[1:-1].max()

    def test_they_are_the_cells_of_the_pit_values(self):
        draws = np.random.default_rng(5).normal(size=(8, 500, 2))
        ensemble = RegressionEnsemble(draws[1:])
        pit = pit_values(draws[0], ensemble, random_state=0)
        counts, _ = np.histogram(pit, bins=8, range=(0, 1))
        found = rank_histogram(draws[0], ensemble, random_state=0)
        np.testing.assert_array_equal(found, counts)

    def test_members_come_first(self):
        with pytest.raises(ValueError, match="Members come first"):
            rank_histogram([0.0, 1.0], np.zeros((2, 3)))
