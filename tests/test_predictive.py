"""Everything an ensemble says is a pure function of its members."""

import copy
import dataclasses
import pickle
import re
from typing import Any

import numpy as np
import pytest
from scipy.special import digamma, entr

from uqformer.predictive import ClassificationEnsemble, RegressionEnsemble

RNG = np.random.default_rng(0)
ONE = RNG.standard_normal((8, 5))
MANY = RNG.standard_normal((8, 5, 3))
PROBA = RNG.dirichlet([0.5, 1.0, 2.0], size=(8, 5))


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


# -- Classification -----------------------------------------------------------------


def test_probabilities_are_averaged_and_votes_counted() -> None:
    ensemble = ClassificationEnsemble(PROBA)
    np.testing.assert_allclose(ensemble.mean_proba(), PROBA.mean(axis=0))
    by_hand = [
        [np.mean([member[i].argmax() == k for member in PROBA]) for k in range(3)]
        for i in range(5)
    ]
    np.testing.assert_allclose(ensemble.vote_proba(), by_hand)
    np.testing.assert_allclose(ensemble.vote_proba().sum(axis=1), 1)


def test_of_equal_classes_the_first_gets_the_vote() -> None:
    votes = ClassificationEnsemble([[[0.4, 0.4, 0.2]]]).vote_proba()
    np.testing.assert_array_equal(votes, [[1, 0, 0]])


def test_entropies_are_those_of_their_definition() -> None:
    ensemble = ClassificationEnsemble(PROBA)
    mean = PROBA.mean(axis=0)
    np.testing.assert_allclose(ensemble.entropy(), -(mean * np.log(mean)).sum(axis=1))
    np.testing.assert_allclose(
        ensemble.expected_entropy(),
        -(PROBA * np.log(PROBA)).sum(axis=2).mean(axis=0),
    )


def test_the_total_doubt_is_the_sum_of_its_parts() -> None:
    ensemble = ClassificationEnsemble(PROBA)
    parts = ensemble.expected_entropy() + ensemble.mutual_information()
    np.testing.assert_allclose(parts, ensemble.entropy(), atol=1e-12)
    # mutual information is the members' mean divergence from their average
    divergence = (PROBA * np.log(PROBA / PROBA.mean(axis=0))).sum(axis=2).mean(axis=0)
    np.testing.assert_allclose(ensemble.mutual_information(), divergence, atol=1e-12)


def test_many_members_tell_the_doubt_of_their_distribution() -> None:
    """For a Dirichlet the expected entropy is known in closed form."""
    rng, shape, n_members = np.random.default_rng(1), np.array([1.0, 2.0, 3.0]), 20_000
    members = rng.dirichlet(shape, size=(n_members, 1))
    ensemble = ClassificationEnsemble(members)
    total = shape.sum()
    expected = digamma(total + 1) - (shape / total * digamma(shape + 1)).sum()
    error = entr(members).sum(axis=2).std() / np.sqrt(n_members)
    assert abs(ensemble.expected_entropy()[0] - expected) < 4 * error
    entropy = entr(shape / total).sum()
    assert ensemble.entropy()[0] == pytest.approx(entropy, abs=0.005)
    assert ensemble.mutual_information()[0] == pytest.approx(
        entropy - expected, abs=0.005 + 4 * error
    )


def test_members_that_agree_hold_no_information() -> None:
    ensemble = ClassificationEnsemble(np.repeat(PROBA[:1], 7, axis=0))
    information = ensemble.mutual_information()
    assert (information >= 0).all()
    np.testing.assert_allclose(information, 0, atol=1e-12)
    sure = ClassificationEnsemble([[[1.0, 0.0]], [[0.0, 1.0]]])
    np.testing.assert_allclose(sure.mutual_information(), np.log(2))
    np.testing.assert_array_equal(sure.expected_entropy(), [0])


def test_rounding_of_float32_is_taken_out() -> None:
    wide = RNG.dirichlet(np.ones(500), size=(3, 4)).astype(np.float32)
    members = ClassificationEnsemble(wide).members
    assert members.dtype == np.float64
    np.testing.assert_allclose(members.sum(axis=2), 1, rtol=1e-12)
    below = ClassificationEnsemble([[[-1e-8, 1 + 1e-8]]]).members
    np.testing.assert_array_equal(below, [[[0, 1]]])


@pytest.mark.parametrize("rows", [slice(1, 3), [0, 4], np.arange(5) > 2, 2, -3])
def test_rows_of_probabilities_are_selected(rows: Any) -> None:
    ensemble = ClassificationEnsemble(PROBA)
    kept = [rows] if isinstance(rows, int) else rows
    assert (len(ensemble), ensemble.n_members) == (5, 8)
    assert isinstance(ensemble[rows], ClassificationEnsemble)
    np.testing.assert_allclose(ensemble[rows].members, ensemble.members[:, kept])
    np.testing.assert_allclose(ensemble[rows].entropy(), ensemble.entropy()[kept])
    twin = pickle.loads(pickle.dumps(ensemble))
    np.testing.assert_array_equal(twin.members, ensemble.members)


@pytest.mark.parametrize(
    ("members", "sentence"),
    [
        (np.zeros((2, 3)), r"have shape .* got \(2, 3\)\.$"),
        (np.ones((2, 3, 1)), r"n_classes >= 2; got \(2, 3, 1\)\.$"),
        (np.zeros((0, 3, 2)), r"n_members >= 1 .* got \(0, 3, 2\)\.$"),
        ([[[0.5, np.nan]]], r"finite; got NaN or infinity in member 0\.$"),
        ([[[0.5, 0.5]], [[0.5, 0.6]]], r"got \[0.5, 0.6\] in row 0 of member 1\. "),
        ([[[-0.5, 1.5]]], r"got \[-0.5, 1.5\] in row 0 .* softmax to logits\.$"),
    ],
)
def test_probabilities_sentences(members: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=f"^members must .*{sentence}"):
        ClassificationEnsemble(members)
