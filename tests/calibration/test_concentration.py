"""The concentration search: right on power laws, sensible off them, never silent."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import binom

from uqformer.calibration import ConcentrationResult, concentration_search
from uqformer.calibration._concentration import (
    _fit,
    _PowerLaw,
    _reaches,
    log_ratio_std_error,
)

LOW, HIGH = 1, 1024


def _power_law(scale: float, slope: float) -> Callable[[int, int], float]:
    return lambda n_draws, _: scale * n_draws**slope


def _noisy(
    scale: float, slope: float, noise: float, seed: int
) -> Callable[[int, int], float]:
    """Log-normal distances about a power law, as single passes give them."""
    rng = np.random.default_rng([seed, 99])
    return lambda n, _: scale * n**slope * np.exp(noise * rng.standard_normal())


def _mismatch(
    n_draws: NDArray[Any], scale: float, slope: float, noise: float, target: float
) -> NDArray[Any]:
    """Expected squared difference of a log-normal distance and the target."""
    median = scale * n_draws**slope
    mean = median * np.exp(noise**2 / 2)
    second = median**2 * np.exp(2 * noise**2)
    return second - 2 * target * mean + target**2


# -- The closed form ----------------------------------------------------------------


@pytest.mark.parametrize("slope", [-0.35, -0.5, -0.6])
@pytest.mark.parametrize("noise", [0.0, 0.1, 0.3, 0.8])
@pytest.mark.parametrize("target", [0.1, 0.4])
def test_the_closed_form_is_the_minimum_of_a_grid(
    slope: float, noise: float, target: float
) -> None:
    grid = np.geomspace(0.01, 1e5, 200_001)
    law = _PowerLaw(np.log(1.3), slope, noise**2, np.eye(2), 4)
    by_hand = _mismatch(grid, 1.3, slope, noise, target)
    np.testing.assert_allclose(law.cost(grid, target), by_hand, rtol=1e-6, atol=1e-12)
    assert law.best(target) == pytest.approx(grid[np.argmin(by_hand)], rel=1e-3)


def test_the_cost_is_the_mismatch_one_would_measure() -> None:
    measure = _noisy(1.3, -0.5, 0.3, seed=0)
    squares = [(measure(20, i) - 0.25) ** 2 for i in range(40_000)]
    law = _PowerLaw(np.log(1.3), -0.5, 0.09, np.eye(2), 4)
    error = np.std(squares) / np.sqrt(len(squares))
    cost = float(law.cost(np.array([20.0]), 0.25)[0])
    assert np.mean(squares) == pytest.approx(cost, abs=4 * error)


def test_the_line_is_that_of_least_squares() -> None:
    rng = np.random.default_rng(0)
    n_draws = rng.integers(1, 500, size=12).astype(float)
    distances = 2 * n_draws**-0.4 * np.exp(0.2 * rng.standard_normal(12))
    law = _fit(n_draws, distances)
    slope, intercept = np.polyfit(np.log(n_draws), np.log(distances), 1)
    residual = np.log(distances) - intercept - slope * np.log(n_draws)
    assert law.slope == pytest.approx(slope)
    assert law.intercept == pytest.approx(intercept)
    assert law.variance == pytest.approx(residual @ residual / 10)


# -- Power laws ---------------------------------------------------------------------


@pytest.mark.parametrize("slope", [-0.35, -0.5, -0.6])
@pytest.mark.parametrize("noise", [0.0, 0.1, 0.3])
def test_answers_scatter_about_the_optimum(slope: float, noise: float) -> None:
    best = 60.0
    target = 1.3 * best**slope * np.exp(1.5 * noise**2)
    logs = np.array(
        [
            np.log(
                concentration_search(
                    _noisy(1.3, slope, noise, seed), target, seed=seed
                ).n_draws
            )
            for seed in range(200)
        ]
    )
    margin = 4 * logs.std(ddof=1) / np.sqrt(len(logs))
    # rounding to whole draws, and the quotient of two estimates, shift by a little
    assert logs.mean() == pytest.approx(np.log(best), abs=margin + 0.01)
    assert logs.std() < 1e-9 + 2 * noise  # a few passes know it to a fraction of noise


def test_what_it_finds_costs_little_more_than_the_optimum() -> None:
    target = 0.2
    costs = [
        _mismatch(
            np.array(
                concentration_search(_noisy(1.0, -0.5, 0.15, s), target, seed=s).n_draws
            ),
            1.0,
            -0.5,
            0.15,
            target,
        )
        for s in range(100)
    ]
    best = _mismatch(np.arange(1, 1025), 1.0, -0.5, 0.15, target).min()
    assert np.median(costs) < 1.1 * best
    assert np.mean(costs) < 1.5 * best


@pytest.mark.parametrize(
    ("target", "n_draws", "reached"),
    [
        (0.25, 16, True),
        (1.0, 1, True),
        (1.01, 1, False),
        (5.0, 1, False),
        (1 / 32, 1024, True),
        (1e-6, 1024, True),
        (1e-38, 1024, True),
    ],
)
def test_both_ends_hold(target: float, n_draws: int, reached: bool) -> None:
    result = concentration_search(_power_law(1.0, -0.5), target)
    assert (result.n_draws, result.reached) == (n_draws, reached)
    assert isinstance(result.n_draws, int)
    assert isinstance(result.reached, bool)


def test_another_range_is_kept_to() -> None:
    for target, n_draws, reached in (
        (0.9, 4, False),
        (0.3, 11, True),
        (0.01, 32, True),
    ):
        result = concentration_search(
            _power_law(1.0, -0.5), target, n_draws_range=(4, 32)
        )
        assert (result.n_draws, result.reached) == (n_draws, reached)
        assert set(result.tried) <= set(range(4, 33))


# -- Off the power law --------------------------------------------------------------


@pytest.mark.parametrize("knee", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("target", [0.9, 0.7, 0.5, 0.3])
def test_a_spread_that_saturates_is_matched_all_the_same(
    knee: int, target: float
) -> None:
    def distance(n_draws: int, _: int = 0) -> float:
        return float((1 + n_draws / knee) ** -0.5)

    result = concentration_search(distance, target)
    if distance(1) >= target:
        assert distance(result.n_draws) == pytest.approx(target, rel=0.06)
        assert result.reached
    else:
        assert result.n_draws <= 2
        assert result.reached == (distance(1) > 0.99 * target)


def test_no_spread_at_all_asks_for_the_fewest_draws() -> None:
    result = concentration_search(lambda n, i: 0.0, 0.5)
    assert (result.n_draws, result.reached) == (LOW, False)
    np.testing.assert_array_equal(result.distances, 1e-12)


def test_a_spread_that_grows_does_not_turn_the_search_around() -> None:
    result = concentration_search(_power_law(0.01, 0.3), 0.5)
    assert result.slope < 0
    assert (result.n_draws, result.reached) == (LOW, False)


@pytest.mark.parametrize(("target", "reached"), [(1.28, True), (1.29, False)])
def test_reach_is_judged_by_the_mean_distance(target: float, reached: bool) -> None:
    law = _PowerLaw(0.0, -0.5, 0.5, np.eye(2), 4)  # of mean exp(0.25) = 1.284
    assert _reaches(law, 1, target) == reached


# -- The trace ----------------------------------------------------------------------


class _Recorder:
    """Noisy power law that keeps what it was asked."""

    def __init__(self, seed: int = 0) -> None:
        self.rng = np.random.default_rng(seed)
        self.asked: list[tuple[int, int]] = []
        self.told: list[float] = []

    def __call__(self, n_draws: int, pass_index: int) -> float:
        self.asked.append((n_draws, pass_index))
        distance = float(n_draws**-0.5 * np.exp(0.3 * self.rng.standard_normal()))
        self.told.append(distance)
        return distance


def _search(seed: int = 0, **options: Any) -> tuple[ConcentrationResult, _Recorder]:
    measure = _Recorder(seed)
    return concentration_search(measure, 0.2, **options), measure


@pytest.mark.parametrize("max_passes", [6, 8, 9, 24, 40])
def test_passes_count_up_and_never_too_far(max_passes: int) -> None:
    for seed in range(20):
        result, measure = _search(seed, max_passes=max_passes)
        assert 6 <= len(result.tried) <= max_passes
        assert [i for _, i in measure.asked] == list(range(len(result.tried)))
        assert [n for n, _ in measure.asked] == result.tried.tolist()
        assert measure.told == result.distances.tolist()
        assert all(isinstance(n, int) and LOW <= n <= HIGH for n, _ in measure.asked)
        assert result.target == 0.2


def test_first_passes_are_even_in_the_logarithm() -> None:
    result, _ = _search()
    assert result.tried[:6].tolist() == [1, 4, 16, 64, 256, 1024]


def test_later_passes_gather_where_the_answer_is() -> None:
    later = [_search(seed)[0].tried[6:] for seed in range(20)]
    logs = np.log(np.concatenate(later))
    assert np.median(np.abs(logs - np.log(25 * np.exp(3 * 0.09)))) < 0.5


def test_an_exact_law_needs_one_round() -> None:
    result = concentration_search(_power_law(1.0, -0.5), 0.25)
    assert len(result.tried) == 6
    assert result.slope == pytest.approx(-0.5)


def test_the_seed_moves_the_passes_and_nothing_else_does() -> None:
    first, second, moved = (
        concentration_search(_Recorder(), 0.2, seed=seed) for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(first.tried, second.tried)
    assert first.n_draws == second.n_draws
    assert moved.tried.tolist() != first.tried.tolist()


# -- The interval -------------------------------------------------------------------


@pytest.mark.parametrize("slope", [-0.35, -0.5])
@pytest.mark.parametrize(
    ("noise", "rows"), [(0.1, 0.0), (0.3, 0.0), (0.1, 0.1), (0.0, 0.1)]
)
def test_intervals_hold_the_best_number_about_as_often_as_they_say(
    slope: float, noise: float, rows: float
) -> None:
    """Passes are noisy, and so is the error that other rows would have shown."""
    best, n_repeats, held = 60.0, 200, 0
    target = 1.3 * best**slope * np.exp(1.5 * noise**2)
    for seed in range(n_repeats):
        shift = np.exp(rows * np.random.default_rng([seed, 5]).standard_normal())
        low, high = concentration_search(
            _noisy(1.3, slope, noise, seed),
            target * shift,
            seed=seed,
            rows_std_error=rows,
        ).interval
        held += low <= best <= high
    # where to look and when to stop follow the passes, which costs a few percent
    assert binom.cdf(held, n_repeats, 0.86) > 1e-3
    assert binom.sf(held - 1, n_repeats, 0.92) > 1e-3


def test_a_higher_level_is_wider_and_the_answer_stays() -> None:
    narrow, wide, unsure = (
        _search(confidence_level=level, rows_std_error=rows)[0]
        for level, rows in ((0.5, 0.0), (0.95, 0.0), (0.95, 0.5))
    )
    assert narrow.n_draws == wide.n_draws == unsure.n_draws
    assert narrow.tried.tolist() == wide.tried.tolist() == unsure.tried.tolist()
    assert wide.interval[0] < narrow.interval[0] < narrow.n_draws
    assert narrow.n_draws < narrow.interval[1] < wide.interval[1] < unsure.interval[1]
    assert (narrow.confidence_level, wide.confidence_level) == (0.5, 0.95)


def test_the_interval_ends_where_the_range_does() -> None:
    result = concentration_search(
        _power_law(1.0, -0.5), 0.3, n_draws_range=(8, 12), rows_std_error=1.0
    )
    assert result.interval == (8, 12)


def test_the_fitted_law_is_kept() -> None:
    result = concentration_search(_power_law(1.3, -0.4), 0.2)
    assert result.scale == pytest.approx(1.3)
    np.testing.assert_allclose(
        result.scale * result.tried**result.slope, result.distances
    )


@pytest.mark.parametrize("weighted", [False, True])
def test_the_error_of_the_rows_is_that_of_repeated_samples(weighted: bool) -> None:
    rng, n_rows = np.random.default_rng(0), 300
    logs, told = [], []
    for _ in range(400):
        spread = rng.gamma(4, size=n_rows)
        error = (spread * rng.standard_normal(n_rows)) ** 2
        weight = rng.uniform(0.2, 2, n_rows) if weighted else np.ones(n_rows)
        ratio = (weight * error).sum() / (weight * spread**2).sum()
        logs.append(np.log(ratio) / 2)
        told.append(log_ratio_std_error(error, spread**2, weight if weighted else None))
    # a standard deviation of 400 logarithms is known to about 4 %
    assert np.mean(told) == pytest.approx(np.std(logs), rel=0.15)


def test_rows_that_err_and_spread_alike_tell_the_ratio_exactly() -> None:
    squares = np.random.default_rng(0).gamma(1, size=20)
    assert log_ratio_std_error(squares, 7 * squares) == pytest.approx(0, abs=1e-12)


def test_rows_of_weight_zero_are_not_there() -> None:
    errors, distances = np.array([1.0, 3, 2, 9]), np.array([1.0, 1, 2, 5])
    expected = log_ratio_std_error(errors[:3], distances[:3])
    found = log_ratio_std_error(errors, distances, [1, 1, 1, 0])
    assert found == pytest.approx(expected)
    assert found > 0


@pytest.mark.parametrize(
    ("errors", "distances", "message"),
    [
        ([1.0, -1.0], [1.0, 1.0], "squared_errors must hold one finite square"),
        ([1.0, 1.0], [1.0, np.nan], "squared_distances must hold one finite square"),
        ([[1.0]], [1.0], r"squared_errors .* shape \(1, 1\)"),
        ([1.0, 1.0], [0.0, 0.0], "squared_distances must not be 0 in all of 2 rows"),
        ([1.0, 1.0], [1.0], "inconsistent numbers of samples"),
    ],
)
def test_squares_must_be_some(errors: Any, distances: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        log_ratio_std_error(errors, distances)


@pytest.mark.parametrize("bad", [-0.1, np.nan, np.inf])
def test_an_error_of_the_rows_must_be_one(bad: float) -> None:
    with pytest.raises(ValueError, match="rows_std_error must be a finite"):
        concentration_search(_power_law(1.0, -0.5), 0.5, rows_std_error=bad)


def test_a_level_must_be_one() -> None:
    with pytest.raises(ValueError, match="confidence_level must lie strictly"):
        concentration_search(_power_law(1.0, -0.5), 0.5, confidence_level=90)


# -- What goes wrong ----------------------------------------------------------------


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_distance_must_be_finite(bad: float) -> None:
    def measure(n_draws: int, pass_index: int) -> float:
        return bad if n_draws == 64 else 1.0

    with pytest.raises(ValueError, match=r"n_draws=64 gave a distance of -?(nan|inf)"):
        concentration_search(measure, 0.5)


@pytest.mark.parametrize("target", [0.0, -1.0, np.nan, np.inf])
def test_a_target_must_be_a_positive_number(target: float) -> None:
    with pytest.raises(ValueError, match=f"positive, finite.*got target={target}"):
        concentration_search(_power_law(1.0, -0.5), target)


@pytest.mark.parametrize("limits", [(0, 10), (5, 5), (9, 3), (-2, 4)])
def test_a_range_must_be_one(limits: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match=r"1 <= fewest < most; got n_draws_range=\("):
        concentration_search(_power_law(1.0, -0.5), 0.5, n_draws_range=limits)


def test_a_first_round_must_be_allowed() -> None:
    with pytest.raises(ValueError, match=r"at least 6.*got max_passes=5"):
        concentration_search(_power_law(1.0, -0.5), 0.5, max_passes=5)
