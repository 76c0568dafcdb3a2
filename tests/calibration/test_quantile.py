"""The conformal quantile: its definition, with weights and without."""

import math
import re
from fractions import Fraction
from typing import TypeAlias

import numpy as np
import pytest
from numpy.typing import NDArray

from uqformer.calibration import conformal_quantile
from uqformer.exceptions import InsufficientCalibrationError

Array: TypeAlias = NDArray[np.float64]


# -- Without weights ----------------------------------------------------------------


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


@pytest.mark.parametrize(
    ("scores", "complaint"),
    [
        ([1.0, np.nan, 2.0], r"no NaN; got NaN in row 1"),
        ([[1.0], [2.0]], r"shape \(n_scores,\); got an array of shape \(2, 1\)"),
    ],
)
def test_scores_are_a_flat_list_of_numbers(scores: object, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        conformal_quantile(scores, 0.5)


# -- With weights -------------------------------------------------------------------


def _by_definition(
    scores: Array, weights: list[Fraction], new_weight: Fraction, level: Fraction
) -> float:
    """Smallest score whose weight from below is the level's share, in exact numbers."""
    total = sum(weights) + new_weight
    for score in sorted(scores):
        below = sum(w for s, w in zip(scores, weights, strict=True) if s <= score)
        if below >= level * total:
            return float(score)
    return np.inf


@pytest.mark.parametrize("seed", range(20))
def test_the_weighted_quantile_is_its_definition(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n_scores = int(rng.integers(1, 25))
    scores = rng.integers(0, 12, n_scores).astype(float)  # with ties
    weights = [Fraction(int(w), 10) for w in rng.integers(0, 30, n_scores)]
    new_weights = [Fraction(int(w), 10) for w in rng.integers(1, 30, 5)]
    levels = [Fraction(k, 20) for k in range(1, 20)]
    quantiles = conformal_quantile(
        scores,
        [float(level) for level in levels],
        sample_weight=[float(w) for w in weights],
        new_weight=[float(w) for w in new_weights],
    )
    assert quantiles.shape == (5, 19)
    for row, new_weight in zip(quantiles, new_weights, strict=True):
        expected = [_by_definition(scores, weights, new_weight, k) for k in levels]
        assert row.tolist() == expected


@pytest.mark.parametrize("n_scores", [9, 19, 99, 100, 1000])
def test_equal_weights_are_no_weights(n_scores: int) -> None:
    scores = np.random.default_rng(n_scores).standard_normal(n_scores)
    levels = np.arange(0.05, 0.9, 0.05)
    plain = conformal_quantile(scores, levels)
    for weight in (1.0, 0.1, 7.3):
        weighted = conformal_quantile(
            scores, levels, sample_weight=np.full(n_scores, weight), new_weight=weight
        )
        np.testing.assert_array_equal(weighted, plain)
    one_new = conformal_quantile(scores, levels, new_weight=[1.0])
    np.testing.assert_array_equal(one_new, plain[None])


def test_whole_weights_are_repeated_rows() -> None:
    scores, counts = np.array([3.0, 1.0, 2.0]), [2, 5, 4]
    levels = [0.2, 0.4, 0.6, 0.8, 0.9]
    np.testing.assert_array_equal(
        conformal_quantile(scores, levels, sample_weight=counts),
        conformal_quantile(np.repeat(scores, counts), levels),
    )


def test_a_row_without_weight_is_no_row() -> None:
    weighted = conformal_quantile([1, 50, 2, 3], 0.7, sample_weight=[1, 0, 1, 1])
    assert weighted.tolist() == conformal_quantile([1, 2, 3], 0.7).tolist() == [3]


def test_a_new_row_that_outweighs_the_scores_is_unbounded() -> None:
    quantiles = conformal_quantile(np.arange(20), 0.9, new_weight=[1.0, 2.0, 3.0])
    assert quantiles[:, 0].tolist() == [18.0, 19.0, np.inf]
    expected = r"at least the share 0.9 .* carry 0.87 beside new_weight=3"
    with pytest.raises(InsufficientCalibrationError, match=expected):
        conformal_quantile(np.arange(20), 0.9, new_weight=3.0)


@pytest.mark.parametrize(
    ("weights", "new_weight", "complaint"),
    [
        ([1.0, 1.0], 1.0, r"sample_weight must have shape \(3,\)"),
        ([1.0, -0.5, 1.0], 1.0, r"sample_weight must hold finite .* got -0.5"),
        ([1.0, np.nan, 1.0], 1.0, r"sample_weight must hold finite .* got nan"),
        ([1.0, 1.0, 1.0], np.inf, r"new_weight must hold finite .* got inf"),
        ([1.0, 1.0, 1.0], [[1.0]], r"new_weight must have shape \(\) or \(n_new,\)"),
    ],
)
def test_weights_are_checked(
    weights: list[float], new_weight: object, complaint: str
) -> None:
    with pytest.raises(ValueError, match=complaint):
        conformal_quantile([1, 2, 3], 0.5, sample_weight=weights, new_weight=new_weight)


def _covered_under_shift(rng: np.random.Generator, weighted: bool) -> float:
    """Share of new rows covered, where these come from the noisy side more often."""
    n, n_new, level = 60, 50, 0.8

    def errors(x: Array) -> Array:
        return np.abs((0.2 + x) * rng.standard_normal(x.shape))

    x = rng.uniform(size=n)
    x_new = rng.beta(3, 1, size=n_new)  # its density is 3 x^2 times the uniform one
    options = {"sample_weight": 3 * x**2, "new_weight": 3 * x_new**2}
    quantile = conformal_quantile(errors(x), level, **(options if weighted else {}))
    covered = errors(x_new) <= quantile.reshape(-1)
    return float(covered.mean())


def test_likelihood_ratios_restore_coverage_under_covariate_shift() -> None:
    rng = np.random.default_rng(0)
    weighted = np.array([_covered_under_shift(rng, True) for _ in range(600)])
    plain = np.array([_covered_under_shift(rng, False) for _ in range(600)])
    margin = 4 * weighted.std() / np.sqrt(600)
    # at least the level; the excess is at most the mean share of the largest weight
    assert 0.8 - margin <= weighted.mean() <= 0.8 + 3 / 60 + margin
    assert plain.mean() < 0.75


def test_recent_rows_that_count_more_follow_a_drift() -> None:
    rng = np.random.default_rng(0)
    n, level = 200, 0.8
    scale = np.linspace(1, 4, n + 1)
    weights = 0.97 ** np.arange(n, 0, -1)
    covered = np.zeros((2, 1500))
    for i in range(covered.shape[1]):
        scores = np.abs(scale * rng.standard_normal(n + 1))
        plain = conformal_quantile(scores[:-1], level)
        recent = conformal_quantile(scores[:-1], level, sample_weight=weights)
        covered[:, i] = scores[-1] <= plain[0], scores[-1] <= recent[0]
    assert covered[0].mean() < 0.7
    # the bound of the paper: the level less the weighted drift, which is small here
    assert covered[1].mean() > 0.75
