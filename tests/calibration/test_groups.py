"""Groups: from columns and callables, known and unknown."""

import numpy as np
import pytest
from scipy import sparse

from uqformer.calibration._groups import Groups, check_labels, group_labels

pd = pytest.importorskip("pandas")

COLUMNS = np.array([[0.5, 1.0], [0.1, 2.0], [0.7, 1.0]])


def test_a_column_by_position_from_any_container() -> None:
    frame = pd.DataFrame(COLUMNS, columns=["x", "site"])
    for X in (COLUMNS, COLUMNS.tolist(), frame, sparse.csr_array(COLUMNS)):
        assert group_labels(X, 1, 3).tolist() == [1, 2, 1]


def test_a_column_by_name() -> None:
    frame = pd.DataFrame({"x": [1.0, 2.0, 3.0], "site": ["a", "b", "a"]})
    assert group_labels(frame, "site", 3).tolist() == ["a", "b", "a"]
    with pytest.raises(ValueError, match=r"position or a callable .* group_by='site'"):
        group_labels(COLUMNS, "site", 3)


def test_a_callable_names_the_groups() -> None:
    labels = group_labels(COLUMNS, lambda X: np.where(X[:, 0] > 0.4, "hi", "lo"), 3)
    assert labels.tolist() == ["hi", "lo", "hi"]
    with pytest.raises(ValueError, match=r"shape \(3,\); got groups of shape \(2,\)"):
        group_labels(COLUMNS, lambda X: X[:2, 0], 3)


@pytest.mark.parametrize("missing", [None, np.nan])
def test_every_row_has_a_group(missing: object) -> None:
    with pytest.raises(ValueError, match="missing in row 1"):
        check_labels(np.array(["a", missing, "b"], dtype=object), 3)


def test_old_and_new_rows_are_paired() -> None:
    groups = Groups(np.array(["b", "a", "b"]))
    assert groups.names == ["a", "b"]
    pairs = [
        (name, known.tolist(), new.tolist())
        for name, known, new in groups.pairs(np.array(["b", "b", "a", "b"]))
    ]
    assert pairs == [("a", [1], [2]), ("b", [0, 2], [0, 1, 3])]
    # groups without a new row are not asked for
    assert [name for name, *_ in groups.pairs(np.array(["a"]))] == ["a"]


def test_a_stranger_is_named() -> None:
    groups = Groups(np.arange(30) % 15)
    expected = r"seen in fit, 0, 1, .*, 9, \.\.\.; got group 99\. Fit"
    with pytest.raises(ValueError, match=expected):
        list(groups.pairs(np.array([3, 99])))
