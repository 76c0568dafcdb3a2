"""Inputs: one array or several by name, rows kept together, numbers made fit."""

import re
from typing import Any

import numpy as np
import pytest
import torch

from uqformer.estimators._cells import read_table
from uqformer.estimators._inputs import (
    as_batch,
    as_network_numbers,
    as_tensors,
    check_same_form,
    count_rows,
    form_of,
    take_rows,
)

TABLE = np.arange(12.0).reshape(4, 3)
NAMED = {
    "input_ids": np.arange(20).reshape(4, 5),
    "attention_mask": np.array([[1] * n + [0] * (5 - n) for n in (1, 2, 3, 5)]),
    "extra": np.arange(4.0),
}


@pytest.mark.parametrize("rows", [slice(1, 3), np.array([2, 0]), np.arange(4) > 1])
def test_rows_are_taken_of_all_arrays(rows: Any) -> None:
    np.testing.assert_array_equal(take_rows(TABLE, rows), TABLE[rows])
    taken: Any = take_rows(NAMED, rows)
    assert list(taken) == list(NAMED)
    for name, array in NAMED.items():
        np.testing.assert_array_equal(taken[name], array[rows])
    assert count_rows(TABLE) == count_rows(NAMED) == 4
    assert count_rows(taken) == 2


def test_tensors_hold_the_same_numbers() -> None:
    # every second column is not contiguous
    assert torch.equal(as_tensors(TABLE[:, ::2]), torch.tensor(TABLE[:, ::2]))
    tensors: Any = as_tensors(NAMED)
    assert torch.equal(tensors["input_ids"], torch.tensor(NAMED["input_ids"]))


def test_a_batch_has_no_padding_that_no_row_needs() -> None:
    batch: Any = as_batch(take_rows(NAMED, slice(0, 2)), torch.device("cpu"))
    assert torch.equal(batch["input_ids"], torch.tensor(NAMED["input_ids"][:2, :2]))
    assert batch["attention_mask"].tolist() == [[1, 0], [1, 1]]
    assert batch["extra"].tolist() == [0, 1]
    whole: Any = as_batch(NAMED, torch.device("cpu"))
    assert whole["input_ids"].shape == (4, 5)


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("bool", "bool"),
        ("uint8", "int64"),
        ("int32", "int64"),
        ("int64", "int64"),
        ("float16", "float32"),
        ("float64", "float32"),
    ],
)
def test_whole_numbers_stay_whole(given: str, wanted: str) -> None:
    array = np.array([[0, 1], [1, 0]], dtype=given)
    numbers = as_network_numbers(array)
    assert numbers.dtype == wanted
    np.testing.assert_array_equal(numbers, array)


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e300])
def test_numbers_beyond_the_network(value: float) -> None:
    expected = r"^X\['a'\] must be finite and fit .* 1 of its values do not"
    with pytest.raises(ValueError, match=expected):
        as_network_numbers(np.array([0.0, value]), "X['a']")


def test_a_missing_number_passes_only_where_it_may() -> None:
    array = np.array([[0.5, np.nan], [np.nan, 2.0]])
    numbers = as_network_numbers(array, allow_missing=True)
    np.testing.assert_array_equal(numbers, array.astype(np.float32))
    for value in (np.inf, 1e300):
        array[1, 1] = value
        largest = re.escape(f"{value:.3g}")
        with pytest.raises(ValueError, match=rf"1 of its .* largest is {largest}\."):
            as_network_numbers(array, allow_missing=True)


def test_rows_of_a_table_are_taken() -> None:
    table = read_table([[1.0, "a"], [2.0, "b"], [3.0, None]])
    taken = take_rows(table, np.array([2, 0]))
    assert count_rows(taken) == 2
    assert taken.columns[1].values.tolist() == [None, "a"]
    assert form_of(table) == (2,)


def test_rows_must_look_as_in_fit() -> None:
    for inputs in (TABLE, NAMED, np.zeros((2, 3, 4))):
        check_same_form(inputs, form_of(inputs))
    with pytest.raises(ValueError, match=r"rows of shape \(3,\) as in fit; got \(2,\)"):
        check_same_form(TABLE[:, :2], form_of(TABLE))
    expected = r"arrays named \['attention_mask', .*\] as in fit; got \['input_ids'\]"
    with pytest.raises(ValueError, match=expected):
        check_same_form({"input_ids": TABLE}, form_of(NAMED))
