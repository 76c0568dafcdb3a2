import numpy as np
import pytest
import scoringrules
from scipy.stats import norm

from uqformer.metrics import crps_loss, crps_normal_loss, gaussian_nll_loss


@pytest.fixture
def drawn():
    """Targets, means, standard deviations and weights, each (300,)."""
    rng = np.random.default_rng(0)
    y, mean = rng.normal(size=(2, 300))
    return y, mean, rng.uniform(0.1, 3, size=300), rng.uniform(size=300)


def test_crps_agrees_with_scoringrules(drawn):
    y, mean, std, weights = drawn
    theirs = scoringrules.crps_normal(y, mean, std)
    assert crps_normal_loss(y, mean, std) == pytest.approx(theirs.mean())
    ours = crps_normal_loss(y, mean, std, sample_weight=weights)
    assert ours == pytest.approx(np.average(theirs, weights=weights))


def test_nll_agrees_with_scipy(drawn):
    y, mean, std, weights = drawn
    theirs = -norm.logpdf(y, mean, std)
    assert gaussian_nll_loss(y, mean, std) == pytest.approx(theirs.mean())
    ours = gaussian_nll_loss(y, mean, std, sample_weight=weights)
    assert ours == pytest.approx(np.average(theirs, weights=weights))


def test_crps_is_the_ensemble_score_of_many_members(drawn):
    y, mean, std, _ = drawn
    grid = norm.ppf((np.arange(2000) + 0.5) / 2000)
    members = mean + std * grid[:, None]
    assert crps_normal_loss(y, mean, std) == pytest.approx(
        crps_loss(y, members), rel=1e-3
    )


@pytest.mark.parametrize("std", [0.0, 1e-12])
def test_crps_without_spread_is_the_absolute_error(std):
    loss = crps_normal_loss([0.0, 1.0, -2.0], [0.0, 0.0, 0.0], [std, std, std])
    assert loss == pytest.approx(1.0)


def test_crps_mixes_points_and_distributions():
    loss = crps_normal_loss([1.0, 0.0], [0.0, 0.0], [0.0, 1.0])
    assert loss == pytest.approx((1 + (np.sqrt(2) - 1) / np.sqrt(np.pi)) / 2)


@pytest.mark.parametrize("loss", [crps_normal_loss, gaussian_nll_loss])
class TestBoth:
    def test_is_least_for_the_truth(self, loss):
        y = np.random.default_rng(1).normal(2.0, 1.5, size=20_000)

        def expected(mean, std):
            return loss(y, np.full_like(y, mean), np.full_like(y, std))

        others = [(2.0, 1.2), (2.0, 1.9), (1.7, 1.5), (2.3, 1.5)]
        assert all(expected(2.0, 1.5) < expected(*other) for other in others)

    def test_outputs_are_averaged(self, loss, drawn):
        y, mean, std, _ = drawn
        halves = [loss(y[k::2], mean[k::2], std[k::2]) for k in range(2)]
        columns = [a.reshape(-1, 2) for a in (y, mean, std)]
        assert loss(*columns) == pytest.approx(np.mean(halves))

    def test_negative_std_is_refused(self, loss):
        with pytest.raises(ValueError, match="y_std must not be negative"):
            loss([0.0], [0.0], [-1.0])

    def test_nothing_is_broadcast(self, loss):
        with pytest.raises(ValueError, match="y_std must have the shape"):
            loss([0.0, 1.0], [0.0, 1.0], [1.0])
        with pytest.raises(ValueError, match="y_pred must have the shape"):
            loss([0.0, 1.0], [[0.0], [1.0]], [1.0, 1.0])

    def test_nan_is_refused(self, loss):
        with pytest.raises(ValueError, match="y_pred must be finite"):
            loss([0.0], [np.nan], [1.0])


def test_likelihood_needs_a_spread():
    with pytest.raises(ValueError, match="crps_normal_loss"):
        gaussian_nll_loss([0.0, 0.0], [0.0, 0.0], [1.0, 0.0])
