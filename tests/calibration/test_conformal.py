"""Conformal intervals that follow a spread: exact coverage, a floor in doubt."""

import math
import warnings
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import binom

from uqformer.calibration import AdaptiveConformal
from uqformer.calibration._conformal import RELATIVE_FLOORS, choose_floors
from uqformer.exceptions import InsufficientCalibrationError
from uqformer.metrics import winkler_loss

Array: TypeAlias = NDArray[np.float64]
Maker: TypeAlias = Callable[[np.random.Generator, int], tuple[Array, Array]]


@pytest.fixture(autouse=True)
def _no_warning_of_numpy() -> Iterator[None]:
    """Dividing by nothing must not happen, warned of or not."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        yield


def _informative(rng: np.random.Generator, n_rows: int) -> tuple[Array, Array]:
    """Errors whose true scale is the spread."""
    spread = rng.uniform(0.1, 2.0, size=(n_rows, 1))
    return spread * rng.standard_normal((n_rows, 1)), spread


def _noise(rng: np.random.Generator, n_rows: int) -> tuple[Array, Array]:
    """Errors of one scale beside a spread that means nothing."""
    return rng.standard_normal((n_rows, 1)), rng.uniform(0.1, 2.0, size=(n_rows, 1))


def _misleading(rng: np.random.Generator, n_rows: int) -> tuple[Array, Array]:
    """Skewed errors, largest where the spread is smallest."""
    spread = rng.uniform(0.1, 2.0, size=(n_rows, 1))
    return (rng.exponential(size=(n_rows, 1)) - 0.3) / spread, spread


def _fit(rng: np.random.Generator, make: Maker, n_select: int, n: int) -> Any:
    return AdaptiveConformal.fit(*make(rng, n_select), *make(rng, n))


# -- Coverage -----------------------------------------------------------------------


@pytest.mark.parametrize("make", [_informative, _noise, _misleading])
@pytest.mark.parametrize(("n", "level"), [(9, 0.9), (25, 0.8), (40, 0.5)])
def test_coverage_is_exact_on_average(make: Maker, n: int, level: float) -> None:
    n_resamples, n_new = 500, 100
    covered = np.empty(n_resamples)
    for i in range(n_resamples):
        rng = np.random.default_rng([i, n])
        conformal = _fit(rng, make, 15, n)
        residual, spread = make(rng, n_new)
        half = conformal.half_width(spread, level)[:, 0]
        covered[i] = np.mean(np.abs(residual) <= half)
    # given the calibration rows the coverage is Beta(rank, n + 1 - rank) distributed
    rank = math.ceil(round((n + 1) * level, 9))
    expected = rank / (n + 1)
    variance = expected * (1 - expected) / (n + 2)
    binomial = expected * (1 - expected) / n_new
    margin = 4 * np.sqrt((variance + binomial) / n_resamples)
    assert covered.mean() == pytest.approx(expected, abs=margin)
    assert expected >= level


# -- The floor ----------------------------------------------------------------------


def _choose(residual: Array, spread: Array) -> float:
    """Choose for one output."""
    return float(choose_floors(residual.reshape(-1, 1), spread.reshape(-1, 1))[0])


def _share_finite(make: Maker, n_select: int, n_seeds: int = 300) -> float:
    parts = (make(np.random.default_rng(i), n_select) for i in range(n_seeds))
    return float(np.mean([np.isfinite(_choose(r, s)) for r, s in parts]))


@pytest.mark.parametrize("make", [_noise, _misleading])
def test_a_spread_that_says_nothing_is_seldom_followed(make: Maker) -> None:
    # one standard error of lead is asked for: chance alone has it in less than 16 %
    assert _share_finite(make, 100) <= 0.16
    assert _share_finite(make, 1) == 0.0


def test_a_spread_that_is_the_scale_is_followed() -> None:
    assert _share_finite(_informative, 30) >= 0.8
    assert _share_finite(_informative, 100) >= 0.99


def test_the_floor_grows_with_the_units() -> None:
    residual, spread = _informative(np.random.default_rng(0), 200)
    floor = _choose(residual, spread)
    in_millis = _choose(1000 * residual, 1000 * spread)
    assert 0 < floor < np.inf
    assert in_millis == pytest.approx(1000 * floor)


def test_the_floor_is_the_one_that_blurs_the_spread() -> None:
    # the error has two parts, of which the spread sees one: the floor is the other
    rng = np.random.default_rng(0)
    spread = rng.uniform(0.0, 3.0, size=5000)
    residual = np.sqrt(spread**2 + 1) * rng.standard_normal(5000)
    unit = np.sqrt(np.mean(residual**2))
    assert _choose(residual, spread) == pytest.approx(0.5 * unit)  # 0.5 * 2 = 1


@pytest.mark.parametrize(
    ("residual", "spread"),
    [
        (np.zeros(20), np.ones(20)),
        (np.linspace(-1, 1, 20), np.zeros(20)),
        (np.array([1.5]), np.array([0.3])),
    ],
)
def test_with_nothing_to_tell_it_is_infinite(residual: Array, spread: Array) -> None:
    assert _choose(residual, spread) == np.inf


@pytest.mark.parametrize("seed", range(25))
def test_rows_without_spread_never_give_nan(seed: int) -> None:
    rng = np.random.default_rng(seed)
    select, rows = _informative(rng, 60), _informative(rng, 40)
    rows[1][:10] = 0  # more than a tenth: they reach into the quantile
    rows[0][:3] = 0
    new = np.array([[0.0], [1.0]])
    for part in (select, (select[0], np.where(select[1] < 0.5, 0.0, select[1]))):
        conformal = AdaptiveConformal.fit(*part, *rows)
        half = conformal.half_width(new, [0.5, 0.9])
        assert np.isfinite(conformal.scores).all()
        assert np.isfinite(half).all()
        assert (half >= 0).all()


# -- The intervals ------------------------------------------------------------------


def _mean_scores(make: Maker, n_seeds: int = 100) -> tuple[Array, Array]:
    """Interval scores of adaptive and of plain split conformal, one a seed."""
    scores = np.empty((2, n_seeds))
    for i in range(n_seeds):
        rng = np.random.default_rng(i)
        select, (residual, spread) = make(rng, 60), make(rng, 100)
        adaptive = AdaptiveConformal.fit(*select, residual, spread)
        plain = AdaptiveConformal(np.abs(residual), np.array([np.inf]))
        new_residual, new_spread = make(rng, 400)
        for k, conformal in enumerate((adaptive, plain)):
            half = conformal.half_width(new_spread, 0.9)[:, 0, 0]
            interval = np.stack([-half, half], axis=1)
            scores[k, i] = winkler_loss(
                new_residual[:, 0], interval, confidence_level=0.9
            )
    return scores[0], scores[1]


@pytest.mark.parametrize("make", [_noise, _misleading])
def test_a_spread_that_says_nothing_does_no_harm(make: Maker) -> None:
    adaptive, plain = _mean_scores(make)
    assert adaptive.mean() <= 1.01 * plain.mean()


def test_a_spread_that_is_the_scale_helps() -> None:
    adaptive, plain = _mean_scores(_informative)
    gain = plain - adaptive
    assert gain.mean() > 4 * gain.std() / np.sqrt(len(gain))
    assert adaptive.mean() < 0.85 * plain.mean()


def test_an_infinite_floor_is_plain_split_conformal() -> None:
    residual, spread = _noise(np.random.default_rng(0), 39)
    conformal = AdaptiveConformal.fit(residual, 0 * spread, residual, spread)
    assert conformal.floor.tolist() == [np.inf]
    half = conformal.half_width(np.array([[0.0], [1.0], [50.0]]), [0.5, 0.9])
    radius = np.sort(np.abs(residual[:, 0]))[[19, 35]]
    np.testing.assert_array_equal(half[:, :, 0], np.tile(radius, (3, 1)))


def test_a_finite_floor_widens_with_the_spread() -> None:
    residual, spread = _informative(np.random.default_rng(0), 39)
    floor = np.array([0.7])
    score = np.abs(residual) / np.hypot(spread, 0.7)
    conformal = AdaptiveConformal(score, floor)
    new = np.array([[0.0], [0.5], [3.0]])
    half = conformal.half_width(new, 0.9)
    np.testing.assert_allclose(
        half[:, 0], np.hypot(new, 0.7) * np.sort(score[:, 0])[35]
    )


def test_fit_scores_with_the_floor_it_chose() -> None:
    rng = np.random.default_rng(0)
    select, rows = _informative(rng, 100), _informative(rng, 30)
    conformal = AdaptiveConformal.fit(*select, *rows)
    floor = _choose(*select)
    assert conformal.floor.tolist() == [floor]
    np.testing.assert_allclose(
        conformal.scores, np.abs(rows[0]) / np.hypot(rows[1], floor)
    )


def test_each_output_has_a_width_of_its_own() -> None:
    rng = np.random.default_rng(0)
    columns = [
        tuple(part for n in (80, 40) for part in make(rng, n))
        for make in (_informative, _noise, _misleading)
    ]
    together = AdaptiveConformal.fit(
        *(np.hstack(p) for p in zip(*columns, strict=True))
    )
    assert np.isfinite(together.floor).tolist() == [True, False, False]
    new, levels = rng.uniform(0.1, 2, size=(7, 3)), [0.5, 0.8, 0.9, 0.95]
    half = together.half_width(new, levels)
    assert half.shape == (7, 4, 3)
    for k in range(3):
        alone = AdaptiveConformal(together.scores[:, [k]], together.floor[[k]])
        np.testing.assert_array_equal(
            half[:, :, [k]], alone.half_width(new[:, [k]], levels)
        )


# -- Several outputs are judged together --------------------------------------------


def _partly(rng: np.random.Generator, n_rows: int, n_outputs: int = 12) -> Any:
    """Errors whose spread tells a part of their scale, alike for all outputs."""
    spread = np.exp(0.5 * rng.standard_normal((n_rows, n_outputs)))
    scale = np.sqrt((spread**2 + np.exp(0.5)) / 2)
    units = np.geomspace(0.1, 10, n_outputs)
    return units * scale * rng.standard_normal((n_rows, n_outputs)), units * spread


def _alone(residual: Array, spread: Array) -> Array:
    return np.array([_choose(*pair) for pair in zip(residual.T, spread.T, strict=True)])


def test_outputs_that_are_alike_lend_each_other_their_rows() -> None:
    n_seeds = 100
    wins = sum(
        np.isfinite(choose_floors(*rows)).sum() > np.isfinite(_alone(*rows)).sum()
        for rows in (_partly(np.random.default_rng(i), 40) for i in range(n_seeds))
    )
    # were neither better, more than 66 wins of 100 had a chance of 0.0005
    assert wins > binom.isf(0.0005, n_seeds, 0.5)


def test_a_spread_that_is_noise_everywhere_is_seldom_followed() -> None:
    rows = (np.random.default_rng(i) for i in range(60))
    finite = [
        np.isfinite(
            choose_floors(rng.standard_normal((40, 12)), rng.uniform(0.1, 2, (40, 12)))
        )
        for rng in rows
    ]
    assert np.mean(finite) <= 0.16


def test_outputs_that_differ_are_told_apart() -> None:
    right = np.empty((40, 12), dtype=bool)
    for i in range(len(right)):
        rng = np.random.default_rng(i)
        kinds = [_informative(rng, 100) for _ in range(6)]
        kinds += [_misleading(rng, 100) for _ in range(6)]
        residual, spread = (np.hstack(part) for part in zip(*kinds, strict=True))
        right[i] = np.isfinite(choose_floors(residual, spread)) == (np.arange(12) < 6)
    # at least 98 % of 480 choices; the 3 more allow for chance
    assert right.sum() >= binom.ppf(0.0005, right.size, 0.98)


def test_outputs_with_nothing_to_tell_are_left_out() -> None:
    rng = np.random.default_rng(0)
    residual, spread = _partly(rng, 60)
    nothing = np.zeros((60, 1))
    floors = choose_floors(
        np.hstack([nothing, residual, residual[:, :1]]),
        np.hstack([spread[:, :1], spread, nothing]),
    )
    assert floors[[0, -1]].tolist() == [np.inf, np.inf]
    np.testing.assert_allclose(floors[1:-1], choose_floors(residual, spread))
    assert np.isfinite(floors[1:-1]).all()


def test_one_output_is_judged_by_its_rows_alone() -> None:
    for seed in range(20):
        residual, spread = _partly(np.random.default_rng(seed), 40, 1)
        unit = np.sqrt(np.mean(residual**2))
        found = [_mean_lead(residual, spread, r * unit) for r in RELATIVE_FLOORS]
        lead, doubt, floor = max(found)
        expected = floor if lead > doubt else np.inf
        assert _choose(residual, spread) == pytest.approx(expected)


def _mean_lead(residual: Array, spread: Array, floor: float) -> tuple[float, ...]:
    """Lead over one width, its standard error, and the floor; level by level."""
    losses = []
    for scale in (np.ones_like(spread), np.hypot(spread, floor)):
        ratio, loss = np.sort(np.abs(residual) / scale, axis=0), 0.0
        for level in (0.5, 0.8, 0.9, 0.95):
            rank = min(math.ceil(round(41 * level, 9)), 40)
            half = (scale * ratio[rank - 1])[:, 0]
            loss += _winkler_rows(residual[:, 0], half, level) * (1 - level) / 2
        losses.append(loss)
    lead = losses[0] - losses[1]
    return float(np.mean(lead)), float(np.std(lead) / np.sqrt(40)), floor


def _winkler_rows(residual: Array, half: Array, level: float) -> Any:
    miss = np.maximum(np.abs(residual) - half, 0)
    return 2 * half + 2 / (1 - level) * miss


def test_too_high_a_level_is_refused_at_the_interval() -> None:
    conformal = _fit(np.random.default_rng(0), _noise, 20, 12)
    with pytest.raises(InsufficientCalibrationError, match=r"at least 19 .* got 12"):
        conformal.half_width(np.ones((2, 1)), [0.5, 0.95])
