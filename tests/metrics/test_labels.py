import numpy as np
import pandas as pd
import pytest

from uqformer.metrics._labels import check_classes

UNIFORM = np.full((3, 3), 1 / 3)


@pytest.mark.parametrize(
    ("y_true", "labels", "codes"),
    [
        ([0, 1, 2], None, [0, 1, 2]),
        ([2, 2, 0], None, [2, 2, 0]),  # a class is missing: counted from 0
        ([7, 3, 5], None, [2, 0, 1]),  # one label a column: sorted
        (["c", "a", "b"], None, [2, 0, 1]),
        (["c", "a", "a"], ["a", "b", "c"], [2, 0, 0]),
        (["c", "a", "a"], ["c", "b", "a"], [0, 2, 2]),  # columns as told, unsorted
        (np.array([0.0, 1.0, 1.0]), None, [0, 1, 1]),
        (pd.Series(["c", "a", "b"]), None, [2, 0, 1]),
        (pd.Categorical(["c", "a", "c"]), ["a", "b", "c"], [2, 0, 2]),
        (np.array(["x", 1, 1], dtype=object), ["x", 1, None], [0, 1, 1]),
    ],
)
def test_columns_of_the_true_labels(y_true, labels, codes):
    found = check_classes(y_true, UNIFORM, labels)
    assert found.codes.tolist() == codes
    np.testing.assert_array_equal(found.one_hot().argmax(axis=1), codes)


@pytest.mark.parametrize(
    ("y_true", "codes"),
    [([1, 0], [1, 0]), ([1, 1], [1, 1]), ([True, True], [1, 1]), ([-1, -1], [0, 0])],
)
def test_flat_probabilities_are_those_of_the_positive_class(y_true, codes):
    found = check_classes(y_true, [0.25, 1.0], None)
    np.testing.assert_allclose(found.proba, [[0.75, 0.25], [0.0, 1.0]])
    assert found.codes.tolist() == codes


def test_one_column_is_one_class():
    found = check_classes(["a", "a"], [[1.0], [1.0]], None)
    assert found.codes.tolist() == [0, 0]


@pytest.mark.parametrize("pos_label", [None, "a", "b"])
def test_confidence_and_truth(pos_label):
    proba = [[0.75, 0.25], [0.5, 0.5], [0.25, 0.75]]
    scores, hits = check_classes(["a", "b", "b"], proba, None).confidence(pos_label)
    expected = {
        None: ([0.75, 0.5, 0.75], [1, 0, 1]),  # a tie goes to the first column
        "a": ([0.75, 0.5, 0.25], [1, 0, 0]),
        "b": ([0.25, 0.5, 0.75], [0, 1, 1]),
    }[pos_label]
    np.testing.assert_array_equal(scores, expected[0])
    np.testing.assert_array_equal(hits, expected[1])


def test_unknown_pos_label_is_named():
    with pytest.raises(ValueError, match=r"one of the labels \['a', 'b'\].*='z'"):
        check_classes(["a", "b"], [0.5, 0.5], None).confidence("z")


def test_half_precision_is_taken():
    """And leaves as float64; others fail on float32 by rounding (MAPIE#321, #557)."""
    rng = np.random.default_rng(0)
    proba = rng.dirichlet(np.ones(200), size=50).astype(np.float16)
    found = check_classes(np.arange(50), proba, None).proba
    assert found.dtype == np.float64
    np.testing.assert_array_equal(found, proba)


def test_rounding_beyond_the_ends_is_cut_off():
    found = check_classes([0], [[1 + 1e-9, -1e-9]], None).proba
    np.testing.assert_array_equal(found, [[1.0, 0.0]])


@pytest.mark.parametrize(
    ("y_true", "y_proba", "labels", "sentence"),
    [
        ([0], [[0.5, np.nan]], None, "NaN or infinity in row 0"),
        ([0], [[3.0, -2.0]], None, r"from -2 to 3.*softmax"),
        ([0, 0], [[0.5, 0.5], [0.5, 0.4]], None, r"row 1 sums to 0\.9"),
        ([0], [[[1.0]]], None, r"y_proba\.shape=\(1, 1, 1\)"),
        ([], np.empty((0, 2)), None, r"y_proba\.shape=\(0, 2\)"),
        ([0, 1], [[0.5, 0.5]], None, "2 labels and y_proba"),
        ([0.0, np.nan], [0.5, 0.5], None, "NaN"),
        ([[0, 1], [1, 0]], [0.5, 0.5], None, "1d array"),
        (["a", "a"], [0.5, 0.5], None, r"2 classes.*y_true with \['a'\].*classes_"),
        ([3, 4, 9, 9], [[0.25] * 4] * 4, None, "labels must be given"),
        (["a"], [[0.5, 0.5]], ["a"], "each of the 2 columns"),
        (["a"], [[0.5, 0.5]], ["a", "a"], "none of them twice"),
        (["a", "z"], [0.5, 0.5], ["a", "b"], r"\['a', 'b'\]; got 'z' in 1 rows"),
        ([1], [[0.5, 0.5]], ["0", "1"], "got 1 in 1 rows"),
        ([0], [[0.1] * 10], list("abcdefghij"), r"'e', \.\.\. 10 in all"),
    ],
)
def test_mistakes_are_named(y_true, y_proba, labels, sentence):
    with pytest.raises(ValueError, match=sentence):
        check_classes(y_true, y_proba, labels)
