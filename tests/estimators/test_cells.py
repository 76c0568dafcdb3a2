"""Reading tables: the kind of each column, what is missing, and what cannot be read."""

from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from uqformer.estimators._cells import Column, Table, read_table

NAN = float("nan")
FRAMES = ["pandas", "polars", "pyarrow"]
COLUMNS: dict[str, list[Any]] = {
    "size": [1.5, None, 3.0],
    "count": [1, 2, None],
    "flag": [True, None, False],
    "word": ["a", None, "b"],
    "when": [datetime(1970, 1, 1, 1), None, datetime(1970, 1, 2)],
    "zone": [
        datetime(1970, 1, 1, 2, tzinfo=timezone(timedelta(hours=1))),
        None,
        datetime(1970, 1, 2, tzinfo=UTC),
    ],
    "wait": [timedelta(seconds=3600), None, timedelta(days=1)],
}


def _frame(library: str, columns: dict[str, list[Any]]) -> Any:
    module = pytest.importorskip(library)
    return module.table(columns) if library == "pyarrow" else module.DataFrame(columns)


def _column(cells: list[Any]) -> Column:
    """Read one column of Python objects."""
    array = np.empty((len(cells), 1), dtype=object)
    array[:, 0] = cells
    return read_table(array).columns[0]


# -- Frames -------------------------------------------------------------------------


@pytest.mark.parametrize("library", FRAMES)
def test_every_kind_of_frame_is_read_alike(library: str) -> None:
    table = read_table(_frame(library, COLUMNS))
    assert [column.name for column in table.columns] == list(COLUMNS)
    expected: dict[str, tuple[str, list[Any]]] = {
        "size": ("number", [1.5, NAN, 3.0]),
        "count": ("number", [1, 2, NAN]),
        "flag": ("number", [1, NAN, 0]),
        "word": ("text", ["a", None, "b"]),
        "when": ("time", [3600, NAN, 86400]),
        "zone": ("time", [3600, NAN, 86400]),
        "wait": ("number", [3600, NAN, 86400]),
    }
    for column in table.columns:
        kind, values = expected[str(column.name)]
        assert column.kind == kind
        np.testing.assert_array_equal(column.values, values)
        cells = COLUMNS[str(column.name)]
        there = [cell is not None for cell in cells]
        np.testing.assert_array_equal(column.present(), there)


def test_nullable_types_of_pandas_are_read() -> None:
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(
        {
            "count": pd.array([1, None, 3], dtype="Int64"),
            "flag": pd.array([True, None, False], dtype="boolean"),
            "size": pd.array([0.5, None, 2], dtype="Float64"),
            "word": pd.array(["a", None, "b"], dtype="string"),
            "cells": np.array([1, pd.NA, 2], dtype=object),
            "times": np.array([pd.Timestamp(0), pd.NaT, pd.NaT], dtype=object),
        }
    )
    columns = read_table(frame).columns
    assert [c.kind for c in columns] == [*["number"] * 3, "text", "number", "time"]
    np.testing.assert_array_equal([c.present()[1] for c in columns], [False] * 6)
    np.testing.assert_array_equal(columns[0].values, [1, NAN, 3])


@pytest.mark.parametrize("levels", [["x", "y"], [10, 20], [0.5, 1.0]])
def test_a_categorical_type_is_text_whatever_its_levels(levels: list[Any]) -> None:
    pd = pytest.importorskip("pandas")
    values = [levels[0], None, levels[1]]
    frame = pd.DataFrame({"c": pd.Categorical(values, categories=levels)})
    column = read_table(frame).columns[0]
    assert column.kind == "text"
    plain = _column(values)
    assert column.texts().tolist() == plain.texts().tolist()


def test_a_frame_needs_rows_and_columns() -> None:
    pd = pytest.importorskip("pandas")
    with pytest.raises(ValueError, match=r"at least 1 row .* 0 sample\(s\) and 1 feat"):
        read_table(pd.DataFrame({"a": []}))
    with pytest.raises(ValueError, match=r"3 sample\(s\) and 0 feature"):
        read_table(pd.DataFrame(index=range(3)))


# -- Arrays and lists ---------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "int8", "bool", "object", "uint64"])
def test_numbers_of_any_type_are_float64(dtype: str) -> None:
    X = np.array([[0, 1], [1, 0]], dtype=dtype)
    for place, column in enumerate(read_table(X).columns):
        assert column.kind == "number"
        assert column.name == place
        assert column.values.dtype == np.float64
        np.testing.assert_array_equal(column.values, X[:, place].astype(float))


def test_a_list_of_rows_keeps_its_numbers_beside_text() -> None:
    table = read_table([["a", 1.5, 3], ["b", None, 4]])
    assert [column.kind for column in table.columns] == ["text", "number", "number"]
    np.testing.assert_array_equal(table.columns[1].values, [1.5, NAN])


def test_arrays_of_text_and_of_times() -> None:
    text = read_table(np.array([["a", "1"], ["b", "2"]])).columns
    assert [column.kind for column in text] == ["text", "text"]
    times = np.array([["1970-01-02"], ["NaT"]], dtype="datetime64[ns]")
    (column,) = read_table(times).columns
    assert column.kind == "time"
    np.testing.assert_array_equal(column.values, [86400, NAN])
    (waits,) = read_table(times - np.datetime64(0, "s")).columns
    assert waits.kind == "number"
    np.testing.assert_array_equal(waits.values, [86400, NAN])


def test_a_table_that_was_read_is_given_back() -> None:
    table = read_table([[1.0], [2.0]])
    assert read_table(table) is table


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (np.ones(3), "Reshape your data"),
        (np.empty((0, 2)), "0 sample"),
        (np.empty((3, 0)), "0 feature"),
        (np.ones((2, 2), dtype=complex), "Complex data not supported"),
    ],
    ids=["flat", "no rows", "no columns", "complex"],
)
def test_what_is_no_table_is_said(X: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_table(X)


# -- Columns of objects -------------------------------------------------------------


@pytest.mark.parametrize(
    ("cells", "kind", "values"),
    [
        ([1, 2.5, np.float32(3), Decimal("4.5")], "number", [1, 2.5, 3, 4.5]),
        ([True, np.bool_(False)], "number", [1, 0]),
        ([None, NAN, Decimal("NaN"), 1], "number", [NAN, NAN, NAN, 1]),
        ([None, None], "number", [NAN, NAN]),
        (["a", NAN, None, np.str_("b")], "text", ["a", None, None, "b"]),
        ([1, "a", None], "mixed", ["1", "a", None]),
        ([date(1970, 1, 2), np.datetime64("1970-01-01T01"), None], "time", None),
        ([date(1970, 1, 2), "a"], "mixed", ["1970-01-02", "a"]),
    ],
    ids=["numbers", "flags", "gaps", "nothing", "text", "mixed", "times", "date+text"],
)
def test_cells_tell_the_kind_of_their_column(
    cells: list[Any], kind: str, values: list[Any] | None
) -> None:
    column = _column(cells)
    assert column.kind == kind
    expected = [86400, 3600, NAN] if values is None else values
    np.testing.assert_array_equal(column.values, expected)


@pytest.mark.parametrize("cell", [{"foo": "bar"}, [1, 2], b"bytes", 1j, object()])
def test_a_cell_of_another_type_is_named(cell: Any) -> None:
    # the words that scikit-learn's own check looks for
    with pytest.raises(
        TypeError, match=r"argument must be .* string.* number"
    ) as error:
        _column([cell, 1.0])
    assert f"got {type(cell).__name__} in column 0" in str(error.value)


def test_equal_numbers_have_equal_text() -> None:
    assert _column([1, 1.0, True, "1", Decimal(1)]).texts().tolist() == ["1"] * 5
    assert _column([0.5, np.float64(0.5), 2**53, None]).texts().tolist() == [
        "0.5",
        "0.5",
        str(2**53),
        None,
    ]


def test_a_column_of_numbers_shows_what_is_none() -> None:
    column = _column([1, 2, "?", 3])
    for part in (column, column[:2]):
        with pytest.raises(ValueError, match=r"numbers in column 0; got '\?'\. Clean"):
            part.floats("number")
    with pytest.raises(ValueError, match=r"must hold dates or times in .*; got 1\.0\."):
        _column([1, 2]).floats("time")


def test_an_empty_column_is_of_every_kind() -> None:
    empty = Column("a", "text", np.array([None, None], dtype=object))
    for kind in ("number", "time"):
        np.testing.assert_array_equal(empty.floats(kind), [NAN, NAN])
    assert _column([None, None]).texts().tolist() == [None, None]


def test_rows_are_picked_as_those_of_an_array() -> None:
    table = read_table([["a", 1.5], ["b", 2.5], ["c", 3.5]])
    assert np.shape(table) == (3, 2)
    for rows in (slice(1, 3), np.array([1, 2]), np.array([False, True, True])):
        part = table[rows]
        assert len(part) == 2
        assert part.columns[0].texts().tolist() == ["b", "c"]
        assert part.columns[1].values.tolist() == [2.5, 3.5]


# -- The same columns again ---------------------------------------------------------


def test_names_find_their_columns_in_any_order() -> None:
    columns = [Column(name, "number", np.ones(1)) for name in "abc"]
    table = Table(columns, has_names=True)
    found = table.like(["c", "a"], has_names=True)
    assert [column.name for column in found.columns] == ["c", "a"]
    with pytest.raises(ValueError, match=r"\['d'\] are missing from \['a', 'b', 'c'\]"):
        table.like(["a", "d"], has_names=True)


@pytest.mark.parametrize("names", [(True, False), (False, True), (False, False)])
def test_without_names_the_number_of_columns_counts(names: tuple[bool, bool]) -> None:
    table = Table([Column(0, "number", np.ones(1))], has_names=names[0])
    assert table.like(["a"], has_names=names[1]) is table
    with pytest.raises(ValueError, match="the 2 columns of fit; got 1 columns"):
        table.like(["a", "b"], has_names=names[1])


@pytest.mark.parametrize(
    ("cells", "constant"),
    [
        ([2, 2.0, 2], True),
        ([2, 3, 2], False),
        ([2, NAN, 2], False),
        (["a", "a"], True),
        (["a", None, "a"], False),
        ([True, 1], True),
        ([date(2024, 1, 1), date(2024, 1, 1)], True),
        ([None, None], False),
    ],
)
def test_a_column_that_never_changes(cells: list[Any], constant: bool) -> None:
    assert _column(cells).never_changes() is constant


def test_a_column_without_text_is_not_constant() -> None:
    empty = Column("deck", "text", np.array([None, None], dtype=object))
    assert not empty.never_changes()
