"""Conformal intervals: the quantile's definition, exact coverage, a floor in doubt."""

import math
import re
import warnings
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np
import pytest
from numpy.typing import NDArray

from uqformer.calibration import AdaptiveConformal, conformal_quantile
from uqformer.calibration._conformal import choose_floor
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


# -- The quantile -------------------------------------------------------------------


@pytest.mark.parametrize("n_scores", range(1, 61))
def test_the_quantile_is_its_definition(n_scores: int) -> None:
    rng = np.random.default_rng(n_scores)
    scores = rng.standard_normal(n_scores)
    ordered = sorted(scores)
    for per_mille in range(5, 1000, 5):
        level = Fraction(per_mille, 1000)
        rank = math.ceil((n_scores + 1) * level)
        if rank <= n_scores:
            (quantile,) = conformal_quantile(scores, float(level))
            assert quantile == ordered[rank - 1]
        else:
            with pytest.raises(InsufficientCalibrationError):
                conformal_quantile(scores, float(level))


@pytest.mark.parametrize(
    ("level", "n_scores", "rank"),
    [
        (0.9, 9, 9),
        (0.9, 19, 18),
        (0.9, 99, 90),
        (0.95, 19, 19),
        (0.8, 4, 4),
        (0.7, 9, 7),
        (0.3, 9, 3),
        (0.1, 9, 1),
        (0.55, 19, 11),
        (0.99, 99, 99),
        (0.001, 5, 1),
    ],
)
def test_whole_ranks_are_not_rounded_up(level: float, n_scores: int, rank: int) -> None:
    assert conformal_quantile(range(1, n_scores + 1), level).tolist() == [rank]


def test_several_levels_keep_their_order() -> None:
    scores = np.random.default_rng(0).permutation(np.arange(1, 20))
    assert conformal_quantile(scores, [0.9, 0.5, 0.95]).tolist() == [18, 10, 19]
    assert conformal_quantile(scores, 0.5).shape == (1,)


def test_ties_and_infinities_are_scores_like_any_other() -> None:
    assert conformal_quantile([2.0, 1.0, 2.0, 2.0], 0.5).tolist() == [2.0]
    assert conformal_quantile([1.0] * 9, 0.9).tolist() == [1.0]
    scores = [np.inf, 1.0, 2.0, np.inf, 3.0, 4.0, 5.0, 6.0, 7.0]
    assert conformal_quantile(scores, [0.7, 0.8]).tolist() == [7.0, np.inf]


@pytest.mark.parametrize(
    "level",
    [Fraction(k, 1000) for k in range(7, 1000, 31)]
    + [Fraction(k, 20) for k in range(1, 20)]
    + [1 - Fraction(1, 10**k) for k in range(2, 7)],
    ids=str,
)
def test_the_error_asks_for_just_enough_rows(level: Fraction) -> None:
    needed = math.ceil(level / (1 - level))
    assert conformal_quantile(np.arange(needed), float(level)) >= 0
    if needed == 1:
        return
    with pytest.raises(InsufficientCalibrationError) as caught:
        conformal_quantile(np.arange(needed - 1), float(level))
    numbers = re.findall(
        r"at least (\d+) calibration rows; got (\d+)", str(caught.value)
    )
    assert numbers == [(str(needed), str(needed - 1))]


def test_the_error_speaks_of_the_highest_level() -> None:
    expected = r"confidence_level=0.99 needs at least 99 .* raise calibration_fraction"
    with pytest.raises(InsufficientCalibrationError, match=expected):
        conformal_quantile(np.arange(20), [0.5, 0.99, 0.9])


def test_no_score_is_too_few() -> None:
    with pytest.raises(InsufficientCalibrationError, match=r"at least 9 .* got 0"):
        conformal_quantile([], 0.9)


@pytest.mark.parametrize("level", [0.0, 1.0, 90])
def test_levels_lie_between_zero_and_one(level: float) -> None:
    with pytest.raises(ValueError, match="strictly between 0 and 1"):
        conformal_quantile(np.arange(20), level)


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


def _share_finite(make: Maker, n_select: int, n_seeds: int = 300) -> float:
    parts = (make(np.random.default_rng(i), n_select) for i in range(n_seeds))
    return float(
        np.mean([np.isfinite(choose_floor(r[:, 0], s[:, 0])) for r, s in parts])
    )


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
    floor = choose_floor(residual[:, 0], spread[:, 0])
    in_millis = choose_floor(1000 * residual[:, 0], 1000 * spread[:, 0])
    assert 0 < floor < np.inf
    assert in_millis == pytest.approx(1000 * floor)


def test_the_floor_is_the_one_that_blurs_the_spread() -> None:
    # the error has two parts, of which the spread sees one: the floor is the other
    rng = np.random.default_rng(0)
    spread = rng.uniform(0.0, 3.0, size=5000)
    residual = np.sqrt(spread**2 + 1) * rng.standard_normal(5000)
    unit = np.sqrt(np.mean(residual**2))
    assert choose_floor(residual, spread) == pytest.approx(0.5 * unit)  # 0.5 * 2 = 1


@pytest.mark.parametrize(
    ("residual", "spread"),
    [
        (np.zeros(20), np.ones(20)),
        (np.linspace(-1, 1, 20), np.zeros(20)),
        (np.array([1.5]), np.array([0.3])),
    ],
)
def test_with_nothing_to_tell_it_is_infinite(residual: Array, spread: Array) -> None:
    assert choose_floor(residual, spread) == np.inf


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
    floor = choose_floor(select[0][:, 0], select[1][:, 0])
    assert conformal.floor.tolist() == [floor]
    np.testing.assert_allclose(
        conformal.scores, np.abs(rows[0]) / np.hypot(rows[1], floor)
    )


def test_outputs_do_not_look_at_each_other() -> None:
    rng = np.random.default_rng(0)
    columns = [
        tuple(part for n in (80, 40) for part in make(rng, n))
        for make in (_informative, _noise, _misleading)
    ]
    together = AdaptiveConformal.fit(
        *(np.hstack(p) for p in zip(*columns, strict=True))
    )
    new = rng.uniform(0.1, 2, size=(7, 3))
    half = together.half_width(new, [0.5, 0.8, 0.9, 0.95])
    assert half.shape == (7, 4, 3)
    for k, column in enumerate(columns):
        alone = AdaptiveConformal.fit(*column)
        assert alone.floor[0] == together.floor[k]
        np.testing.assert_array_equal(
            half[:, :, [k]], alone.half_width(new[:, [k]], [0.5, 0.8, 0.9, 0.95])
        )
    assert np.isfinite(together.floor).tolist() == [True, False, False]


def test_too_high_a_level_is_refused_at_the_interval() -> None:
    conformal = _fit(np.random.default_rng(0), _noise, 20, 12)
    with pytest.raises(InsufficientCalibrationError, match=r"at least 19 .* got 12"):
        conformal.half_width(np.ones((2, 1)), [0.5, 0.95])
