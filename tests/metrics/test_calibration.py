import numpy as np
import pytest
from scipy.stats import kstest, norm, wasserstein_distance

from uqformer.metrics import pit_values, pit_wasserstein_error
from uqformer.metrics._calibration import _distance_to_uniform
from uqformer.predictive import RegressionEnsemble


def forecasts(n_samples, n_members, spread, seed=0):
    """Standard normal targets and members `spread` times as wide."""
    rng = np.random.default_rng(seed)
    y = rng.normal(size=n_samples)
    return y, spread * rng.normal(size=(n_members, n_samples))


def test_values_lie_in_the_cell_of_their_rank():
    members = [[0.0] * 4, [1.0] * 4, [2.0] * 4]
    pit = pit_values([-1.0, 0.5, 1.5, 3.0], members, random_state=0)
    np.testing.assert_array_equal(np.floor(4 * pit), [0, 1, 2, 3])


@pytest.mark.parametrize("n_members", [1, 4, 50])
def test_calibrated_values_are_uniform(n_members):
    y, members = forecasts(4000, n_members, spread=1.0)
    pit = pit_values(y, members, random_state=0)
    assert kstest(pit, "uniform").pvalue > 1e-3


def test_ties_are_spread_evenly():
    rng = np.random.default_rng(1)
    y = rng.poisson(1.0, size=4000)
    members = rng.poisson(1.0, size=(10, 4000))
    pit = pit_values(y, members, random_state=0)
    assert kstest(pit, "uniform").pvalue > 1e-3


def test_wholly_tied_values_fill_the_whole_range():
    pit = pit_values(np.zeros(2000), np.zeros((9, 2000)), random_state=0)
    assert kstest(pit, "uniform").pvalue > 1e-3


def test_same_seed_same_values_and_shape_of_targets():
    y = np.zeros((5, 2))
    members = RegressionEnsemble(np.zeros((3, 5, 2)))
    first = pit_values(y, members, random_state=7)
    assert first.shape == (5, 2)
    np.testing.assert_array_equal(first, pit_values(y, members, random_state=7))
    assert (first != pit_values(y, members, random_state=8)).any()


def test_global_generator_is_left_alone():
    np.random.seed(0)  # noqa: NPY002
    before = np.random.get_state()[2]  # noqa: NPY002
    first = pit_values(np.zeros(5), np.zeros((3, 5)))
    assert np.random.get_state()[2] == before  # noqa: NPY002
    assert (first != pit_values(np.zeros(5), np.zeros((3, 5)))).any()


@pytest.mark.parametrize(
    ("spread", "error"),
    [
        (0.5, 0.103),
        (0.7, 0.055),
        (0.8, 0.033),
        (0.9, 0.017),
        (1.1, 0.015),
        (1.25, 0.035),
        (1.5, 0.063),
        (2.0, 0.103),
    ],
)
def test_reference_values_of_wrong_spreads(spread, error):
    y, members = forecasts(20_000, 200, spread)
    found = pit_wasserstein_error(y, members, random_state=0)
    assert found == pytest.approx(error, abs=0.006)


@pytest.mark.parametrize("spread", [0.5, 2.0])
def test_closed_form_of_a_wrong_spread(spread):
    # the PIT of a normal target is below t with probability cdf(spread * ppf(t))
    t = (np.arange(20_000) + 0.5) / 20_000
    exact = np.abs(norm.cdf(spread * norm.ppf(t)) - t).mean()
    members = spread * norm.ppf((np.arange(400) + 0.5) / 400)[:, None] * np.ones(8000)
    y = norm.ppf((np.arange(8000) + 0.5) / 8000)
    found = pit_wasserstein_error(y, members, random_state=0)
    assert found == pytest.approx(exact, abs=0.003)


def test_point_forecast_and_one_sided_forecast():
    y = np.random.default_rng(2).normal(size=5000)
    members = np.zeros((500, 5000))
    assert pit_wasserstein_error(y, members, random_state=0) == pytest.approx(
        0.25, abs=0.01
    )
    above = pit_wasserstein_error(y, members + 100, random_state=0)
    assert above == pytest.approx(0.5, abs=0.01)


def test_calibrated_error_falls_to_the_known_floor():
    n_samples, n_repeats = 200, 300
    errors = [
        pit_wasserstein_error(*forecasts(n_samples, 9, 1.0, seed), random_state=seed)
        for seed in range(n_repeats)
    ]
    floor = np.sqrt(2 / np.pi) * np.pi / 8 / np.sqrt(n_samples)
    margin = 4 * np.std(errors) / np.sqrt(n_repeats)
    assert np.mean(errors) == pytest.approx(floor, abs=margin)


@pytest.mark.parametrize("power", [0.3, 1.0, 4.0])
def test_distance_agrees_with_scipy(power):
    rng = np.random.default_rng(3)
    pit, weights = rng.uniform(size=60) ** power, rng.uniform(size=60)
    uniform = (np.arange(200_000) + 0.5) / 200_000
    theirs = wasserstein_distance(pit, uniform, u_weights=weights)
    assert _distance_to_uniform(pit, weights) == pytest.approx(theirs, abs=1e-5)


@pytest.mark.parametrize(
    ("pit", "distance"), [([0.5], 0.25), ([0.0], 0.5), ([0.25, 0.75], 0.125)]
)
def test_distance_by_hand(pit, distance):
    found = _distance_to_uniform(np.array(pit), np.ones(len(pit)))
    assert found == pytest.approx(distance)


def test_weights_count_as_repeats():
    y, members = forecasts(30, 5, 0.5)
    weights = np.arange(30) % 3
    pit = pit_values(y, members, random_state=0)
    repeated = np.repeat(pit, weights)
    found = pit_wasserstein_error(y, members, sample_weight=weights, random_state=0)
    assert found == pytest.approx(_distance_to_uniform(repeated, np.ones(30)))


def test_outputs_are_averaged_not_pooled():
    # one output always above, one always below: pooled they would look like a point
    y = np.array([[100.0, -100.0]] * 200)
    members = np.zeros((300, 200, 2))
    assert pit_wasserstein_error(y, members, random_state=0) > 0.49


@pytest.mark.parametrize("metric", [pit_values, pit_wasserstein_error])
def test_nan_is_refused(metric):
    with pytest.raises(ValueError, match="NaN"):
        metric([np.nan], [[0.0]])
    with pytest.raises(ValueError, match="NaN"):
        metric([0.0], [[np.nan]])
