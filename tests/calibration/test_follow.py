"""The rule of adaptive conformal inference: sorted scores, late targets, both ends."""

import numpy as np
import pytest

from uqformer.calibration._follow import Follower
from uqformer.calibration._quantile import conformal_quantile
from uqformer.calibration._scores import Band


def _started(scores: list[float], **changes: float | int | None) -> Follower:
    options = {"wanted": 0.25, "step_size": 0.1, "window": None, "delay": 1} | changes
    return Follower.start(scores, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("window", [None, 1, 7, 40])
def test_the_sorted_scores_are_the_latest(window: int | None) -> None:
    rng = np.random.default_rng(0)
    scores = rng.integers(5, size=100).astype(float)  # with many ties
    scores[rng.random(100) < 0.1] = np.inf
    follower = _started(scores[:20].tolist(), window=window)
    for i, score in enumerate(scores[20:], start=21):
        follower.learn(float(score), is_missed=False)
        kept = scores[max(0, i - (window or i)) : i]
        assert list(follower.scores) == kept.tolist()
        assert follower.ordered == sorted(kept)


def test_the_radius_is_the_conformal_quantile() -> None:
    scores = np.random.default_rng(0).exponential(size=99)
    for wanted in (0.01, 0.1, 0.25, 0.5, 0.99):
        radius = _started(scores.tolist(), wanted=wanted).radius
        assert radius == conformal_quantile(scores, 1 - wanted)[0]
    assert _started(scores.tolist(), wanted=0.009).radius == np.inf


def test_misses_and_hits_move_the_share_that_is_asked_for() -> None:
    follower = _started([1.0, 2.0, 3.0], step_size=0.5)
    follower.learn(9.0, is_missed=True)
    assert (follower.miss_rate, follower.radius) == (-0.125, np.inf)
    follower.learn(0.0, is_missed=False)
    assert (follower.miss_rate, follower.radius) == (0.0, np.inf)
    for _ in range(8):
        follower.learn(0.5, is_missed=False)
    assert (follower.miss_rate, follower.radius) == (1.0, 0.0)
    follower.learn(0.0, is_missed=False)  # the point was hit, but by chance
    assert follower.miss_rate == 0.625


def test_a_walk_judges_by_the_ends_it_returns() -> None:
    rng = np.random.default_rng(1)
    point = rng.normal(size=300)
    unit = np.where(np.arange(300) % 3 == 0, 0.0, 1.0)  # some rows know no spread
    y = point + unit * rng.normal(size=300)
    y[::30] += 1  # missed by rows without a spread
    for delay in (1, 5):
        follower = _started([0.5, 1.0, 2.0], delay=delay, step_size=0.02)
        ends = follower.walk(Band(point, point, unit), y)
        missed = ~((ends[:, 0] <= y) & (y <= ends[:, 1]))
        moved = follower.miss_rate - 0.25
        assert moved == pytest.approx(0.02 * (0.25 * 300 - missed.sum()))
        assert not np.isnan(ends).any()
    assert _started([1.0]).walk(Band(*np.empty((3, 0))), np.empty(0)).shape == (0, 2)


def test_with_a_delay_the_first_rows_share_the_first_radius() -> None:
    point, y = np.zeros(10), np.full(10, 5.0)
    ends = _started([1.0, 2.0, 3.0, 4.0], delay=4).walk(
        Band(point, point, np.ones(10)), y
    )
    assert ends[:4, 1].tolist() == [4.0] * 4
    assert (ends[4:, 1] > 4).all()
