import tracemalloc

import numpy as np
import pytest
import scoringrules
from scipy.stats import norm

from uqformer.metrics import _inputs as inputs
from uqformer.metrics import crps_loss, crps_normal_loss, energy_loss
from uqformer.predictive import RegressionEnsemble


@pytest.fixture
def drawn():
    """Targets (40, 3), members (11, 40, 3) with ties, weights (40,)."""
    rng = np.random.default_rng(0)
    members = np.round(rng.normal(size=(11, 40, 3)), 1)
    return rng.normal(size=(40, 3)), members, rng.uniform(size=40)


@pytest.mark.parametrize(("fair", "estimator"), [(False, "nrg"), (True, "fair")])
class TestAgainstScoringrules:
    def test_crps(self, drawn, fair, estimator):
        y, members, weights = drawn
        theirs = scoringrules.crps_ensemble(
            y, members, m_axis=0, estimator=estimator, backend="numpy"
        )
        assert crps_loss(y, members, fair=fair) == pytest.approx(theirs.mean())
        ours = crps_loss(y[:, 0], members[..., 0], fair=fair, sample_weight=weights)
        assert ours == pytest.approx(np.average(theirs[:, 0], weights=weights))

    def test_energy(self, drawn, fair, estimator):
        y, members, weights = drawn
        theirs = scoringrules.es_ensemble(
            y, members, m_axis=0, estimator=estimator, backend="numpy"
        )
        assert energy_loss(y, members, fair=fair) == pytest.approx(theirs.mean())
        ours = energy_loss(y, members, fair=fair, sample_weight=weights)
        assert ours == pytest.approx(np.average(theirs, weights=weights))

    def test_energy_of_one_output_is_crps(self, drawn, fair, estimator):
        y, members, _ = drawn
        crps = crps_loss(y[:, 0], members[..., 0], fair=fair)
        assert energy_loss(y[:, 0], members[..., 0], fair=fair) == pytest.approx(crps)
        assert energy_loss(y[:, :1], members[..., :1], fair=fair) == pytest.approx(crps)


@pytest.mark.parametrize("loss", [crps_loss, energy_loss])
class TestBoth:
    def test_ensemble_and_bare_members_score_alike(self, loss, drawn):
        y, members, _ = drawn
        assert loss(y, RegressionEnsemble(members)) == loss(y, members)

    def test_order_of_members_does_not_matter(self, loss, drawn):
        y, members, _ = drawn
        assert loss(y, members[::-1]) == pytest.approx(loss(y, members))

    def test_blocks_of_rows_do_not_matter(self, loss, drawn, monkeypatch):
        y, members, _ = drawn
        whole = loss(y, members)
        monkeypatch.setattr(inputs, "_CELLS_PER_CHUNK", 100)
        assert loss(y, members) == pytest.approx(whole, rel=1e-12)

    def test_fair_score_needs_two_members(self, loss):
        with pytest.raises(ValueError, match="at least 2 members; got n_members=1"):
            loss([0.0], [[0.0]], fair=True)

    def test_nan_is_refused(self, loss):
        with pytest.raises(ValueError, match="finite"):
            loss([0.0], [[np.nan]])

    def test_far_from_zero_nothing_is_lost(self, loss, drawn):
        y, members, _ = drawn
        assert loss(y + 1e8, members + 1e8) == pytest.approx(loss(y, members), rel=1e-6)


def test_crps_of_one_member_is_the_absolute_error():
    assert crps_loss([1.0, -2.0], [[0.0, 0.0]]) == 1.5


@pytest.mark.parametrize("n_members", [2, 5])
def test_fair_score_does_not_depend_on_the_number_of_members(n_members):
    n_samples = 20_000
    rng = np.random.default_rng(n_members)
    y = rng.normal(size=n_samples)
    members = rng.normal(size=(n_members, n_samples))
    # E|X - X'| / 2 of two standard normals
    expected = 1 / np.sqrt(np.pi)
    assert crps_loss(y, members, fair=True) == pytest.approx(expected, abs=0.02)
    # the plain score keeps each member's zero distance to itself
    assert crps_loss(y, members) == pytest.approx(
        expected * (1 + 1 / n_members), abs=0.02
    )


def test_many_members_reach_the_closed_form():
    rng = np.random.default_rng(3)
    y = rng.normal(size=50)
    members = norm.ppf((np.arange(4000) + 0.5) / 4000)[:, None] * np.ones(50)
    closed = crps_normal_loss(y, np.zeros(50), np.ones(50))
    assert crps_loss(y, members) == pytest.approx(closed, rel=1e-3)


def test_crps_is_least_for_the_true_spread():
    rng = np.random.default_rng(4)
    y = rng.normal(size=5000)
    members = rng.normal(size=(50, 5000))
    right = crps_loss(y, members, fair=True)
    assert right < crps_loss(y, 0.6 * members, fair=True)
    assert right < crps_loss(y, 1.6 * members, fair=True)


def test_energy_sees_what_crps_cannot():
    rng = np.random.default_rng(5)
    shared = rng.normal(size=3000)
    y = np.stack([shared, shared], axis=1)
    draws = rng.normal(size=(30, 3000))
    together = np.stack([draws, draws], axis=2)
    apart = np.stack([draws, draws[::-1]], axis=2)
    assert crps_loss(y, together) == pytest.approx(crps_loss(y, apart), rel=1e-12)
    assert energy_loss(y, together) < energy_loss(y, apart) - 0.01


@pytest.mark.parametrize(
    ("loss", "shape"), [(crps_loss, (50, 40_000)), (energy_loss, (50, 20_000, 2))]
)
def test_memory_stays_below_the_members_themselves(loss, shape):
    y, members = np.zeros(shape[1:]), np.ones(shape)
    tracemalloc.start()
    loss(y, members)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    # all pairs would take fifty times the members
    assert peak < members.nbytes
