"""What a series must be: whole numbers, finite values, known channels, even times."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

from uqformer.series._inputs import (
    check_times,
    check_whole,
    find_channels,
    read_values,
)


@pytest.mark.parametrize("value", [0, -3, 2.0, "2", None, np.nan])
def test_a_count_is_a_whole_number(value: Any) -> None:
    with pytest.raises(
        ValueError, match="horizon must be a whole number of at least 1"
    ):
        check_whole("horizon", value, at_least=1)


def test_numpy_counts_pass() -> None:
    check_whole("horizon", np.int64(1), at_least=1)


# -- values -------------------------------------------------------------------------


def test_a_flat_series_is_one_channel() -> None:
    values, names = read_values([1, 2, 3])
    np.testing.assert_array_equal(values, [[1.0], [2.0], [3.0]])
    assert names is None


def test_pandas_names_are_kept() -> None:
    frame = pd.DataFrame({"a": [1, 2], "b": [3, 4]})
    values, names = read_values(frame)
    np.testing.assert_array_equal(values, [[1, 3], [2, 4]])
    assert names == ["a", "b"]
    assert read_values(frame["b"])[1] == ["b"]


@pytest.mark.parametrize("gap", [np.nan, np.inf, -np.inf])
def test_a_gap_is_named(gap: float) -> None:
    frame = pd.DataFrame({"a": [1.0, 2, 3], "b": [1.0, gap, 3]})
    with pytest.raises(ValueError, match=r"in row 1 of channel 'b'. Fill the gap"):
        read_values(frame)
    with pytest.raises(ValueError, match=r"in row 1 of channel 1. Fill the gap"):
        read_values(frame.to_numpy())


@pytest.mark.parametrize("series", [np.zeros((2, 2, 2)), ["a", "b"], []])
def test_what_is_no_series_raises(series: Any) -> None:
    with pytest.raises(ValueError, match=r"dim|convert|minimum"):
        read_values(series)


# -- channels -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "names", "expected"),
    [
        (None, None, [0, 1, 2]),
        (2, None, [2]),
        ([2, 0], None, [2, 0]),
        ("b", ["a", "b", "c"], [1]),
        (["c", 0], ["a", "b", "c"], [2, 0]),
        # a name that is a number is a name
        (0, [2, 1, 0], [2]),
        (np.array([1]), None, [1]),
    ],
)
def test_channels_are_found(target: Any, names: Any, expected: list[int]) -> None:
    assert find_channels(target, names, 3) == expected


@pytest.mark.parametrize(
    ("target", "names"),
    [
        (3, None),
        (-1, None),
        ("b", None),
        ("d", ["a", "b", "c"]),
        ([], None),
        (1.5, None),
    ],
)
def test_channels_that_are_not_there_raise(target: Any, names: Any) -> None:
    with pytest.raises(ValueError, match=r"target must name channels .* got target="):
        find_channels(target, names, 3)


# -- times --------------------------------------------------------------------------

HOURS = pd.date_range("2020-03-28", periods=72, freq="h")


@pytest.mark.parametrize(
    "times",
    [
        HOURS,
        HOURS.to_numpy(),
        list(HOURS.to_pydatetime()),
        [str(time) for time in HOURS],
        pd.Series(HOURS),
        np.arange(10),
        np.linspace(0, 1, 11),
        1e9 + 0.1 * np.arange(1000),
        # clocks change on the 29th, time does not
        pd.date_range("2020-03-28", periods=72, freq="h", tz="Europe/Berlin"),
        pd.date_range("2020-03-25", periods=9, freq="D", tz="Europe/Berlin"),
        # months differ in days, weeks in workdays
        pd.date_range("2020-01-01", periods=30, freq="MS"),
        pd.date_range("2020-01-01", periods=30, freq="B"),
        pd.period_range("2020-01", periods=30, freq="M"),
        np.arange("2020-01", "2022-01", dtype="datetime64[M]"),
        HOURS[:1],
        HOURS[:2],
    ],
    ids=lambda times: f"{type(times).__name__}{len(times)}",
)
def test_even_times_pass(times: Any) -> None:
    check_times(times)
    check_times(times, n_times=len(times))


@pytest.mark.parametrize(
    "times",
    [
        HOURS[::-1],
        HOURS[[0, 1, 1, 2]],
        pd.DatetimeIndex(["2020-01-01", None, "2020-01-03"]),
        pd.DatetimeIndex([None, "2020-01-02", "2020-01-03"]),
        [0.0, np.nan, 2.0],
        [3, 1, 2],
        pd.PeriodIndex(["2020-02", "2020-01"], freq="M"),
    ],
    ids=["reversed", "twice", "nat", "nat_first", "nan", "mixed", "periods"],
)
def test_times_that_do_not_ascend_raise(times: Any) -> None:
    with pytest.raises(ValueError, match="Sort it by time and keep one row a time"):
        check_times(times)


@pytest.mark.parametrize(
    "times",
    [HOURS.delete(5), HOURS.delete(5).to_numpy(), np.delete(np.arange(20.0), 6)],
    ids=["index", "dates", "numbers"],
)
def test_a_missing_time_is_named(times: Any) -> None:
    message = r"after row [45] comes a step that is 2 times the usual one. Resample"
    with pytest.raises(ValueError, match=message):
        check_times(times)


def test_a_missing_period_is_named() -> None:
    months = pd.period_range("2020-01", periods=12, freq="M").delete(3)
    with pytest.raises(ValueError, match="after row 2 comes a step that is 2 times"):
        check_times(months)


def test_there_is_a_time_for_each_step() -> None:
    with pytest.raises(ValueError, match=r"one time for each of 5 steps .* \(4,\)"):
        check_times(np.arange(4), n_times=5)
