import numpy as np
import pytest

from uqformer.metrics import coverage_score, worst_slab_coverage_score
from uqformer.metrics._slab import lowest_run

LEVEL = 0.9
Z = 1.6448536269514722  # of a normal, for two tails of 5 %


def noisy_corner(n_samples, seed):
    """Rows of which those with a large first feature are four times as noisy."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(n_samples, 3))
    scale = np.where(X[:, 0] > 0.6, 4.0, 1.0)
    return X, scale * rng.normal(size=n_samples), scale


def intervals(reach):
    return np.stack([-reach, reach], axis=1)


@pytest.mark.parametrize("n_min", [1, 2, 5, 11, 12])
@pytest.mark.parametrize("seed", range(5))
def test_the_lowest_run_is_found(n_min, seed):
    flags = np.random.default_rng(seed).integers(2, size=12).astype(float)
    share, first, last = lowest_run(flags, n_min)
    runs = [
        flags[i:j].mean() for i in range(12) for j in range(i + n_min, 13) if j <= 12
    ]
    assert share == pytest.approx(min(runs))
    assert last - first + 1 >= n_min
    assert flags[first : last + 1].mean() == pytest.approx(share)


def test_the_badly_covered_corner_is_found():
    X, y, _ = noisy_corner(4000, 0)
    half = np.quantile(np.abs(y), LEVEL)
    interval = intervals(np.full(4000, half))
    corner = X[:, 0] > 0.6
    inside = coverage_score(y[corner], interval[corner])
    assert coverage_score(y, interval) == pytest.approx(LEVEL, abs=1e-3)
    found = worst_slab_coverage_score(y, interval, X, n_directions=300, random_state=0)
    assert inside - 0.05 < found < 0.7


def test_intervals_right_everywhere_keep_their_level_on_average():
    scores = []
    for seed in range(60):
        X, y, scale = noisy_corner(600, seed)
        scores.append(
            worst_slab_coverage_score(
                y, intervals(Z * scale), X, n_directions=30, random_state=seed
            )
        )
    # the slab was chosen on other rows, so what is left is chance alone
    margin = 4 * np.std(scores) / np.sqrt(len(scores))
    assert np.mean(scores) == pytest.approx(LEVEL, abs=margin)
    assert margin < 0.04


def test_the_scale_of_a_feature_does_not_matter():
    X, y, _ = noisy_corner(400, 1)
    interval = intervals(np.full(400, 2.0))
    options = {"n_directions": 20, "random_state": 0}
    found = worst_slab_coverage_score(y, interval, X, **options)
    stretched = X * [1.0, 1e6, 1e-6] + [0.0, 5.0, -3.0]
    assert worst_slab_coverage_score(y, interval, stretched, **options) == found
    with_constant = np.column_stack([X, np.ones(400)])
    assert 0 <= worst_slab_coverage_score(y, interval, with_constant, **options) <= 1


def test_directions_in_blocks_are_all_tried(monkeypatch):
    X, y, _ = noisy_corner(400, 2)
    interval = intervals(np.full(400, 2.0))
    options = {"n_directions": 21, "random_state": 0}
    whole = worst_slab_coverage_score(y, interval, X, **options)
    monkeypatch.setattr("uqformer.metrics._inputs._CELLS_PER_CHUNK", 800)
    assert worst_slab_coverage_score(y, interval, X, **options) == whole


@pytest.mark.parametrize(("reach", "score"), [(1e-9, 0.0), (1e9, 1.0)])
def test_ends_of_the_scale(reach, score):
    X, y, _ = noisy_corner(100, 3)
    found = worst_slab_coverage_score(
        y, intervals(np.full(100, reach)), X, n_directions=5, random_state=0
    )
    assert found == score


def test_same_seed_same_score():
    X, y, _ = noisy_corner(200, 4)
    interval = intervals(np.full(200, 1.5))
    first, second, third = (
        worst_slab_coverage_score(y, interval, X, n_directions=9, random_state=seed)
        for seed in (0, 0, 1)
    )
    assert first == second != third


def test_mistakes_are_named():
    X, y, _ = noisy_corner(20, 5)
    interval = intervals(np.full(20, 1.0))
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        worst_slab_coverage_score(y, interval, X[1:])
    with pytest.raises(ValueError, match="min_share must lie strictly"):
        worst_slab_coverage_score(y, interval, X, min_share=10)
    with pytest.raises(ValueError, match="n_directions must be an int"):
        worst_slab_coverage_score(y, interval, X, n_directions=0)
    with pytest.raises(ValueError, match=r"No row is left to judge.*got 2 rows"):
        worst_slab_coverage_score(
            y[:2], interval[:2], X[:2], n_directions=1, random_state=0
        )
