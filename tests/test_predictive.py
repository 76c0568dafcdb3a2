"""Everything an ensemble says is a pure function of its members."""

import copy
import dataclasses
import pickle
import re
from typing import Any

import numpy as np
import pytest

from uqformer.predictive import RegressionEnsemble

RNG = np.random.default_rng(0)
ONE = RNG.standard_normal((8, 5))
MANY = RNG.standard_normal((8, 5, 3))


@pytest.mark.parametrize("members", [ONE, MANY], ids=["one output", "three outputs"])
def test_moments_and_quantiles_are_those_of_the_members(members: Any) -> None:
    ensemble = RegressionEnsemble(members)
    np.testing.assert_allclose(ensemble.mean(), members.mean(axis=0))
    np.testing.assert_allclose(
        ensemble.std() ** 2,
        (members**2).mean(axis=0) - members.mean(axis=0) ** 2,
    )
    np.testing.assert_allclose(
        ensemble.quantile(0.3), np.quantile(members, 0.3, axis=0)
    )
    several = ensemble.quantile([0.3, 0.7])
    assert several.shape == (5, 2, *members.shape[2:])
    np.testing.assert_allclose(several[:, 1], np.quantile(members, 0.7, axis=0))


@pytest.mark.parametrize("members", [ONE, MANY], ids=["one output", "three outputs"])
def test_interval_is_made_of_the_two_tails(members: Any) -> None:
    ensemble = RegressionEnsemble(members)
    interval = ensemble.interval(0.8)
    np.testing.assert_allclose(interval[:, 0], np.quantile(members, 0.1, axis=0))
    np.testing.assert_allclose(interval[:, 1], np.quantile(members, 0.9, axis=0))
    several = ensemble.interval([0.5, 0.8])
    assert several.shape == (5, 2, 2, *members.shape[2:])
    np.testing.assert_array_equal(several[:, :, 1], interval)
    np.testing.assert_array_equal(ensemble.interval([0.8])[:, :, 0], interval)


def test_default_interval_is_the_90_percent_one() -> None:
    ensemble = RegressionEnsemble(ONE)
    np.testing.assert_array_equal(ensemble.interval(), ensemble.interval(0.9))


def test_wider_levels_give_wider_intervals() -> None:
    interval = RegressionEnsemble(ONE).interval([0.1, 0.5, 0.9])
    assert (np.diff(interval[:, 0], axis=1) < 0).all()
    assert (np.diff(interval[:, 1], axis=1) > 0).all()


def test_interval_covers_as_often_as_the_members_are_right() -> None:
    rng = np.random.default_rng(1)
    interval = RegressionEnsemble(rng.standard_normal((2000, 1))).interval(0.8)
    fresh = rng.standard_normal(20_000)
    inside = np.mean((interval[0, 0] <= fresh) & (fresh <= interval[0, 1]))
    # sd of the coverage: members 0.4 / sqrt(2000) = 0.009, fresh rows 0.003
    assert abs(inside - 0.8) < 4 * 0.0095


def test_one_member_has_no_spread() -> None:
    ensemble = RegressionEnsemble(ONE[:1])
    np.testing.assert_array_equal(ensemble.std(), np.zeros(5))
    np.testing.assert_array_equal(ensemble.interval(0.5)[:, 1], ONE[0])


def test_members_become_float64() -> None:
    ensemble = RegressionEnsemble(ONE.astype(np.float32))
    assert ensemble.members.dtype == np.float64
    assert RegressionEnsemble([[1, 2], [3, 4]]).mean().dtype == np.float64


def test_length_and_number_of_members() -> None:
    ensemble = RegressionEnsemble(ONE)
    assert len(ensemble) == 5
    assert ensemble.n_members == 8


@pytest.mark.parametrize(
    "rows", [slice(1, 3), [0, 4], np.array([True, False, True, False, False])]
)
def test_rows_are_selected_before_or_after(rows: Any) -> None:
    selected = RegressionEnsemble(MANY)[rows]
    assert isinstance(selected, RegressionEnsemble)
    np.testing.assert_array_equal(selected.members, MANY[:, rows])
    np.testing.assert_array_equal(
        selected.mean(), RegressionEnsemble(MANY).mean()[rows]
    )


@pytest.mark.parametrize("row", [2, np.int64(2), -3])
def test_a_single_row_keeps_its_axis(row: Any) -> None:
    np.testing.assert_array_equal(RegressionEnsemble(ONE)[row].members, ONE[:, [2]])


def test_ensembles_are_frozen_and_travel() -> None:
    ensemble = RegressionEnsemble(ONE)
    with pytest.raises(dataclasses.FrozenInstanceError):
        ensemble.members = MANY
    for twin in (pickle.loads(pickle.dumps(ensemble)), copy.deepcopy(ensemble)):
        np.testing.assert_array_equal(twin.members, ONE)


@pytest.mark.parametrize(
    ("members", "sentence"),
    [
        (
            np.zeros(3),
            "members must have shape (n_members, n_samples) or (n_members, n_samples, "
            "n_outputs) with n_members >= 1; got (3,).",
        ),
        (
            np.zeros((0, 3)),
            "members must have shape (n_members, n_samples) or (n_members, n_samples, "
            "n_outputs) with n_members >= 1; got (0, 3).",
        ),
        (
            [[0.0, 1.0], [0.0, np.nan]],
            "members must be finite; got NaN or infinity in member 1.",
        ),
        (
            [[0.0, -np.inf], [0.0, np.nan]],
            "members must be finite; got NaN or infinity in member 0.",
        ),
    ],
)
def test_members_sentences(members: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        RegressionEnsemble(members)


def test_levels_are_checked() -> None:
    ensemble = RegressionEnsemble(ONE)
    with pytest.raises(
        ValueError, match=r"got confidence_level=90\. For 90 % pass 0.9"
    ):
        ensemble.interval(90)
    with pytest.raises(
        ValueError, match=r"^quantiles must lie strictly .* quantiles=0"
    ):
        ensemble.quantile([0.0, 0.5])
