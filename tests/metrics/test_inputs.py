import subprocess
import sys

import numpy as np
import pytest

from uqformer._validation import check_row_weights
from uqformer.metrics._inputs import (
    average_outputs,
    average_samples,
    check_generator,
    check_level,
    check_like_targets,
    check_members,
    check_option,
    check_positive_int,
    check_targets,
    row_chunks,
)
from uqformer.predictive import RegressionEnsemble


def test_metrics_are_imported_without_torch():
    code = "import sys, uqformer.metrics; print('torch' in sys.modules)"
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert answer.stdout.strip() == "False"


@pytest.mark.parametrize("shape", [(3,), (3, 2)])
def test_targets_become_float64_of_the_same_shape(shape):
    targets = check_targets(np.ones(shape, dtype=np.float32))
    assert targets.shape == shape
    assert targets.dtype == np.float64


@pytest.mark.parametrize(
    "y_true", [[0.0, np.nan], [0.0, np.inf], [], np.zeros((2, 2, 2))]
)
def test_bad_targets_are_refused(y_true):
    with pytest.raises(ValueError, match=r"y_true|sample|dim"):
        check_targets(y_true)


def test_values_must_be_shaped_like_targets():
    with pytest.raises(ValueError, match=r"y_pred must have the shape.*\(2, 1\)"):
        check_like_targets([[0.0], [1.0]], np.zeros(2), "y_pred")
    with pytest.raises(ValueError, match=r"y_pred must be finite.*row 1"):
        check_like_targets([0.0, np.nan], np.zeros(2), "y_pred")


def test_members_may_come_inside_an_ensemble():
    members = np.arange(6.0).reshape(3, 2)
    found = check_members(RegressionEnsemble(members), np.zeros(2))
    np.testing.assert_array_equal(found, members)


@pytest.mark.parametrize("shape", [(2,), (2, 3), (0, 2), (3, 2, 1)])
def test_members_of_another_shape_are_refused(shape):
    with pytest.raises(ValueError, match="Members come first"):
        check_members(np.zeros(shape), np.zeros(2))


@pytest.mark.parametrize("value", [np.nan, -np.inf])
def test_members_must_be_finite(value):
    with pytest.raises(ValueError, match=r"members must be finite.*row 1"):
        check_members([[0.0, 0.0], [0.0, value]], np.zeros(2))


def test_no_weights_weigh_all_alike():
    np.testing.assert_array_equal(check_row_weights(None, np.zeros((3, 2))), np.ones(3))


@pytest.mark.parametrize("weights", [[3.0, -1.0], [0.0, 0.0], [1.0], [1.0, np.nan]])
def test_bad_weights_are_refused(weights):
    with pytest.raises(ValueError, match=r"[Ss]ample.weight"):
        check_row_weights(weights, np.zeros(2))


def test_level_is_one_number():
    assert check_level(0.8) == 0.8
    with pytest.raises(ValueError, match="Call once for each level"):
        check_level([0.8, 0.9])
    with pytest.raises(ValueError, match=r"pass 0\.95"):
        check_level(95)


def test_average_is_weighted_and_per_column():
    values = np.array([[0.0, 1.0], [4.0, 5.0]])
    np.testing.assert_allclose(average_samples(values, np.array([3.0, 1.0])), [1, 2])


@pytest.mark.parametrize(("n_rows", "cells"), [(10, 1), (9, 2**16), (3, 2**22), (0, 4)])
def test_chunks_cover_each_row_once_and_stay_small(n_rows, cells):
    rows = np.arange(n_rows)
    chunks = [rows[chunk] for chunk in row_chunks(n_rows, cells)]
    np.testing.assert_array_equal(np.concatenate([[], *chunks]), rows)
    assert all(len(chunk) * cells <= 2**18 or len(chunk) == 1 for chunk in chunks)


def test_options_are_listed():
    check_option("a", "letter", ("a", "b"))
    with pytest.raises(ValueError, match="letter must be one of 'a', 'b'; got lette"):
        check_option("c", "letter", ("a", "b"))


@pytest.mark.parametrize("value", [0, -1, 2.0, True, "3", None])
def test_counts_are_positive_ints(value):
    check_positive_int(np.int64(1), "n_bins")
    with pytest.raises(ValueError, match="n_bins must be an int of at least 1; got"):
        check_positive_int(value, "n_bins")


def test_no_state_is_a_fresh_generator_and_never_the_global_one():
    before = np.random.get_state()[2]  # noqa: NPY002
    first, second = check_generator(None), check_generator(None)
    assert first.uniform() != second.uniform()
    assert np.random.get_state()[2] == before  # noqa: NPY002
    assert check_generator(first) is first
    assert check_generator(3).uniform() == np.random.RandomState(3).uniform()


def test_metrics_are_imported_soon_after_sklearn():
    code = """if True:
        from time import perf_counter
        import sklearn.metrics
        start = perf_counter()
        import uqformer.metrics
        print(perf_counter() - start)
    """
    # the machine may be busy once, not three times
    assert any(
        float(subprocess.check_output([sys.executable, "-c", code], text=True)) < 0.5
        for _ in range(3)
    )


def test_outputs_are_averaged_in_the_words_of_sklearn():
    columns = np.array([1.0, 2.0, 6.0])
    assert average_outputs(columns, "uniform_average") == 3
    assert average_outputs(columns, [1, 1, 0]) == 1.5
    assert average_outputs(columns, "raw_values") is columns
    with pytest.raises(ValueError, match=r"for each of the 3 outputs.*=\[1, 1\]"):
        average_outputs(columns, [1, 1])
