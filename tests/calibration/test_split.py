"""What wrappers share: rows of any container, metadata by row, frozen parts."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression, RidgeCV
from sklearn.utils import get_tags

from uqformer.calibration._split import (
    count_rows,
    fit_clone,
    inherit_tags,
    is_frozen,
    part_calibration,
    take_params,
    take_rows,
)

pd = pytest.importorskip("pandas")


def test_rows_of_any_container() -> None:
    X = np.arange(12.0).reshape(4, 3)
    rows = np.array([2, 0])
    np.testing.assert_array_equal(take_rows(X, rows), X[[2, 0]])
    np.testing.assert_array_equal(
        take_rows(sparse.csr_array(X), rows).toarray(), X[[2, 0]]
    )
    frame = pd.DataFrame(X, index=[7, 8, 9, 9])
    assert take_rows(frame, rows).index.tolist() == [9, 7]
    assert take_rows(["a", "b", "c", "d"], rows) == ["c", "a"]
    tokens = {"input_ids": X, "names": ["a", "b", "c", "d"]}
    assert count_rows(tokens) == 4
    taken = take_rows(tokens, rows)
    np.testing.assert_array_equal(taken["input_ids"], X[[2, 0]])
    assert taken["names"] == ["c", "a"]


def test_only_metadata_by_row_is_parted() -> None:
    params = {
        "sample_weight": np.arange(4.0),
        "groups": ["a", "b", "c", "d"],
        "check_input": True,
        "name": "four",
        "short": [1, 2],
        "none": None,
    }
    taken = take_params(params, np.array([3, 1]), 4)
    assert taken.pop("sample_weight").tolist() == [3, 1]
    assert taken == {
        "groups": ["d", "b"],
        "check_input": True,
        "name": "four",
        "short": [1, 2],
        "none": None,
    }


def test_parts_are_disjoint_and_complete() -> None:
    train, calibration = part_calibration(50, 0.3, np.random.RandomState(0))
    assert len(calibration) == 15
    assert sorted([*train, *calibration]) == list(range(50))


def test_a_frozen_part_is_not_fitted() -> None:
    X, y = np.array([[0.0], [1.0]]), np.array([0.0, 1.0])
    fitted = LinearRegression().fit(X, y)
    assert is_frozen(FrozenEstimator(fitted))
    assert is_frozen(None)
    assert not is_frozen(fitted)
    again = fit_clone(FrozenEstimator(fitted), X, 5 * y, {})
    assert again.predict(X).tolist() == pytest.approx([0, 1])
    assert fit_clone(fitted, X, 5 * y, {}).predict(X).tolist() == pytest.approx([0, 5])
    assert fitted.coef_.tolist() == pytest.approx([1])


def test_tags_are_those_of_the_estimator_inside() -> None:
    tags = inherit_tags(get_tags(RidgeCV()), LinearRegression())
    assert tags.input_tags.sparse == get_tags(LinearRegression()).input_tags.sparse
    assert tags.target_tags.multi_output
