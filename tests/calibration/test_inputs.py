"""Reading predictions: kinds told apart or refused, labels put to their columns."""

import numpy as np
import pytest
from scipy.special import log_softmax, logit, softmax

from uqformer._validation import check_row_weights
from uqformer.calibration._inputs import (
    column_labels,
    encode_labels,
    full_logits,
    infer_kind,
    log_odds,
)

PROBA = np.random.default_rng(0).dirichlet(np.ones(4), size=50)


# -- Kinds --------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
def test_rows_that_sum_to_one_are_probabilities(dtype):
    assert infer_kind(PROBA.astype(dtype).astype(np.float64)) == "proba"


@pytest.mark.parametrize(
    "predictions",
    [
        np.array([[-1.0, 2.0]]),
        np.array([[0.2, 1.3]]),
        np.array([[0.2, 0.3], [0.9, 0.8]]),
        np.array([[3.0], [0.5]]),
        np.array([[-0.1], [0.5]]),
    ],
)
def test_what_cannot_be_probabilities_is_logits(predictions):
    assert infer_kind(predictions) == "logits"


@pytest.mark.parametrize(
    ("predictions", "sentence"),
    [
        (np.array([[0.0], [0.4], [1.0]]), "single column"),
        (np.array([[0.33, 0.33, 0.33], [0.5, 0.2, 0.3]]), "nearly sum to 1"),
        (PROBA.round(1), "nearly sum to 1"),
        (np.vstack([PROBA, [[0.9, 0.9, 0.9, 0.9]]]), "nearly sum to 1"),
    ],
)
def test_what_may_be_both_is_refused(predictions, sentence):
    with pytest.raises(ValueError, match=sentence):
        infer_kind(predictions)


def test_one_column_belongs_to_the_positive_class():
    proba = np.array([[0.2], [0.9]])
    from_proba = full_logits(proba, "proba")
    np.testing.assert_allclose(softmax(from_proba, axis=1)[:, 1:], proba)
    from_logits = full_logits(logit(proba), "logits")
    np.testing.assert_allclose(softmax(from_logits, axis=1)[:, 1:], proba)


def test_logits_come_back_as_they_are_and_zeros_stay_finite():
    logits = np.array([[1.0, -2.0, 0.5]])
    assert full_logits(logits, "logits") is logits
    sure = full_logits(np.array([[0.0, 1.0]]), "proba")
    np.testing.assert_allclose(sure, [[np.log(1e-12), 0.0]])


@pytest.mark.parametrize(
    "row", [[0.5, 0.6, 0.5], [-0.1, 0.6, 0.5], [2.0, -1.0, 0.0], [0.2, 0.2, 0.2]]
)
def test_rows_that_are_no_probabilities_are_named(row):
    predictions = np.array([[0.2, 0.3, 0.5], row])
    with pytest.raises(ValueError, match=r"got row 1 with .* Pass input='logits'"):
        full_logits(predictions, "proba")


def test_a_single_probability_above_one_is_refused():
    with pytest.raises(ValueError, match=r"lie in \[0, 1\]"):
        full_logits(np.array([[1.2]]), "proba")


# -- Log-odds -----------------------------------------------------------------------


@pytest.mark.parametrize("n_classes", [2, 3, 20])
def test_log_odds_are_those_of_the_probabilities(n_classes):
    logits = 3 * np.random.default_rng(0).normal(size=(200, n_classes))
    expected = logit(softmax(logits, axis=1))
    np.testing.assert_allclose(log_odds(logits), expected, rtol=1e-9, atol=1e-9)


def test_log_odds_stay_exact_where_probabilities_round_to_one():
    logits = np.array([[1000.0, 0.0, -5.0], [0.0, 0.0, 0.0]])
    odds = log_odds(logits)
    others = np.log1p(np.exp(-5.0))
    np.testing.assert_allclose(odds[0], [1000 - others, -1000, -1005])
    np.testing.assert_allclose(odds[1], -np.log(2))
    assert np.isfinite(odds).all()


def test_log_odds_of_two_classes_are_opposite():
    logits = log_softmax(np.random.default_rng(0).normal(size=(50, 2)), axis=1)
    odds = log_odds(logits)
    np.testing.assert_allclose(odds[:, 0], -odds[:, 1], atol=1e-12)


# -- Labels -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("y", "classes", "expected"),
    [
        ([0, 2, 1], None, [0, 1, 2]),
        ([0, 2], None, [0, 1, 2]),
        ([1.0], None, [0, 1, 2]),
        ([7, 8, 9], None, [7, 8, 9]),
        (["b", "a", "c"], None, ["a", "b", "c"]),
        (["b", "a"], ["c", "b", "a"], ["c", "b", "a"]),
        ([5], [7, 5, 3], [7, 5, 3]),
    ],
)
def test_columns_are_given_labels(y, classes, expected):
    found = column_labels(np.array(y), 3, classes, n_features=3)
    assert found.tolist() == expected


@pytest.mark.parametrize("y", [["a", "b"], [1, 2, 3, 4], [-1, 1], [0.5, 1.0]])
def test_labels_that_name_no_column_ask_for_classes(y):
    with pytest.raises(ValueError, match=r"whole numbers from 0 to 2 .*Pass classes"):
        column_labels(np.array(y), 3, None, n_features=3)


@pytest.mark.parametrize("classes", [["a", "b"], ["a", "b", "b"], [["a", "b", "c"]]])
def test_classes_that_do_not_fit_are_refused(classes):
    with pytest.raises(ValueError, match="3 different labels, one for each column"):
        column_labels(np.array(["a"]), 3, classes, n_features=3)


def test_labels_become_column_numbers_in_the_order_given():
    classes = np.array(["dog", "cat", "eel"])
    codes = encode_labels(np.array(["eel", "dog", "cat", "dog"]), classes)
    assert codes.tolist() == [2, 0, 1, 0]


@pytest.mark.parametrize("label", ["ant", "zoo"])
def test_a_label_without_a_column_is_named(label):
    with pytest.raises(ValueError, match=f"'{label}', which is not among"):
        encode_labels(np.array(["dog", label]), np.array(["cat", "dog"]))


# -- Weights ------------------------------------------------------------------------


@pytest.mark.parametrize("weights", [[1.0, -1.0], [0.0, 0.0]])
def test_weights_that_weigh_nothing_are_refused(weights):
    with pytest.raises(ValueError, match=r"[Ww]eight"):
        check_row_weights(weights, np.ones((2, 3)))


def test_no_weights_are_equal_weights():
    assert check_row_weights(None, np.ones((3, 2))).tolist() == [1.0, 1.0, 1.0]
