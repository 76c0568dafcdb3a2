"""Synthetic data follow the formulas that their docstrings give."""

from typing import Any

import numpy as np
import pytest
from scipy.stats import kstest
from sklearn.neighbors import KNeighborsClassifier

from uqformer.datasets import (
    make_gapped_sine,
    make_heteroscedastic,
    make_moons_with_ood,
)

MAKERS = (make_heteroscedastic, make_gapped_sine, make_moons_with_ood)
EACH = pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)


@EACH
def test_the_same_seed_gives_the_same_rows(make: Any) -> None:
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    for one, other in zip(
        make(50, random_state=3), make(50, random_state=3), strict=True
    ):
        np.testing.assert_array_equal(one, other)
    assert not np.array_equal(make(50, random_state=4)[0], make(50, random_state=3)[0])
    np.testing.assert_array_equal(np.random.get_state()[1], before)  # noqa: NPY002


@EACH
def test_one_row_is_enough_and_none_is_not(make: Any) -> None:
    X, y, *_ = make(1, random_state=0)
    assert (len(X), y.shape) == (1, (1,))
    with pytest.raises(ValueError, match="n_samples must be at least 1; got n_samples"):
        make(0)


def test_noise_grows_from_left_to_right() -> None:
    X, y, std = make_heteroscedastic(
        5000, n_features=3, return_std=True, random_state=0
    )
    assert X.shape == (5000, 3)
    np.testing.assert_allclose(std, 0.1 + 0.4 * X[:, 0])
    noise = (y - np.sin(2 * np.pi * X[:, 0])) / std
    assert kstest(noise, "norm").pvalue > 1e-3
    for half in (X[:, 0] < 0.5, X[:, 0] >= 0.5):
        assert noise[half].std() == pytest.approx(1, rel=4 / np.sqrt(2 * half.sum()))
    for column in X.T:
        assert kstest(column, "uniform").pvalue > 1e-3
    assert len(make_heteroscedastic(random_state=0)) == 2
    with pytest.raises(ValueError, match="n_features must be at least 1"):
        make_heteroscedastic(n_features=0)


@pytest.mark.parametrize("gap", [(-1.0, 1.0), (0, 3), (-4, -1)])
def test_no_row_lies_in_the_gap(gap: tuple[float, float]) -> None:
    X, y, std = make_gapped_sine(
        4000, gap=gap, noise=0.2, return_std=True, random_state=0
    )
    start, end = gap
    x = X[:, 0]
    assert not ((x > start) & (x < end)).any()
    # what is left of the gap and what is right of it, joined, is even
    joined = np.where(x > start, x - (end - start), x)
    room = 8 - (end - start)
    assert kstest(joined, "uniform", args=(-4, room)).pvalue > 1e-3
    assert kstest((y - np.sin(x)) / 0.2, "norm").pvalue > 1e-3
    assert set(std) == {0.2}
    assert len(make_gapped_sine(random_state=0)) == 2


def test_without_noise_all_is_sine() -> None:
    X, y = make_gapped_sine(50, noise=0, random_state=0)
    np.testing.assert_allclose(y, np.sin(X[:, 0]))


@pytest.mark.parametrize("gap", [(1, -1), (0, 0), (-5, 0), (0, 4.1), (-4, 4)])
def test_gaps_that_are_none_raise(gap: Any) -> None:
    with pytest.raises(ValueError, match="gap must be two ascending numbers"):
        make_gapped_sine(gap=gap)


def test_strangers_lie_evenly_on_a_ring() -> None:
    X, y, X_ood = make_moons_with_ood(300, n_ood=3000, random_state=0)
    assert np.bincount(y).tolist() == [150, 150]
    away = X_ood - [0.5, 0.25]
    area = (away**2).sum(axis=1)
    assert kstest(area, "uniform", args=(9, 7)).pvalue > 1e-3
    angle = np.arctan2(away[:, 1], away[:, 0])
    assert kstest(angle, "uniform", args=(-np.pi, 2 * np.pi)).pvalue > 1e-3
    assert np.linalg.norm(X - [0.5, 0.25], axis=1).max() < 2.5
    assert KNeighborsClassifier(5).fit(X, y).score(X, y) > 0.98


def test_noise_and_strangers_that_are_none_raise() -> None:
    with pytest.raises(ValueError, match=r"noise must not be negative; got noise=-0.1"):
        make_moons_with_ood(noise=-0.1)
    with pytest.raises(ValueError, match="noise must not be negative"):
        make_gapped_sine(noise=np.nan)
    with pytest.raises(ValueError, match="n_ood must be at least 1"):
        make_moons_with_ood(n_ood=0)
