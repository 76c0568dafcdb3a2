"""Windows against a loop over steps, and the errors of a series that cannot be cut."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

from uqformer.series import make_windows

SERIES = np.random.default_rng(0).standard_normal((23, 3))


@pytest.mark.parametrize("step", [1, 2, 5])
@pytest.mark.parametrize(("context_length", "horizon"), [(1, 1), (4, 3), (20, 3)])
def test_windows_are_those_of_a_loop(
    context_length: int, horizon: int, step: int
) -> None:
    X, y, first = make_windows(
        SERIES, context_length=context_length, horizon=horizon, target=[2, 0], step=step
    )
    row = 0
    for start in range(context_length, len(SERIES) - horizon + 1, step):
        np.testing.assert_array_equal(X[row], SERIES[start - context_length : start])
        ahead = [
            SERIES[start + h, channel] for h in range(horizon) for channel in (2, 0)
        ]
        np.testing.assert_array_equal(y[row], ahead)
        assert first[row] == start
        row += 1
    assert X.shape == (row, context_length, 3)
    assert y.shape == (row, 2 * horizon)
    assert first.shape == (row,)


def test_a_flat_series_has_one_channel() -> None:
    X, y, first = make_windows(np.arange(10), context_length=4, horizon=6)
    np.testing.assert_array_equal(X, [[[0], [1], [2], [3]]])
    np.testing.assert_array_equal(y, [[4, 5, 6, 7, 8, 9]])
    assert first.tolist() == [4]


def test_all_channels_are_targets_by_default() -> None:
    options: dict[str, Any] = {"context_length": 3, "horizon": 2}
    _, y, _ = make_windows(SERIES, **options)
    _, named, _ = make_windows(SERIES, target=[0, 1, 2], **options)
    np.testing.assert_array_equal(y, named)
    assert y.shape[1] == 6


def test_frames_give_the_same_windows() -> None:
    index = pd.date_range("2020-01-01", periods=23, freq="h")
    frame = pd.DataFrame(SERIES, columns=["a", "b", "OT"], index=index)
    options: dict[str, Any] = {"context_length": 4, "horizon": 2}
    expected = make_windows(SERIES, target=2, **options)
    for one, other in zip(
        make_windows(frame, target="OT", **options), expected, strict=True
    ):
        np.testing.assert_array_equal(one, other)
    X, y, first = make_windows(frame["OT"], **options)
    np.testing.assert_array_equal(X, expected[0][..., 2:])
    np.testing.assert_array_equal(y, expected[1])
    assert frame.index[first[0]] == pd.Timestamp("2020-01-01 04:00")


@pytest.mark.parametrize(
    ("given", "kept"),
    [(np.float32, np.float32), (np.float64, np.float64), (np.int16, np.float64)],
)
def test_floats_keep_their_precision(given: Any, kept: Any) -> None:
    X, y, _ = make_windows(SERIES.astype(given), context_length=3, horizon=2)
    assert (X.dtype, y.dtype) == (kept, kept)


def test_windows_are_copies() -> None:
    series = SERIES.copy()
    X, y, _ = make_windows(series, context_length=3, horizon=2)
    X[:], y[:] = 0, 0
    np.testing.assert_array_equal(series, SERIES)
    assert not np.shares_memory(X, series)


@pytest.mark.parametrize("name", ["context_length", "horizon", "step"])
def test_counts_are_whole(name: str) -> None:
    options = {"context_length": 3, "horizon": 2, "step": 1} | {name: 0}
    with pytest.raises(
        ValueError, match=f"{name} must be a whole number of at least 1"
    ):
        make_windows(SERIES, **options)


def test_a_window_longer_than_the_series_raises() -> None:
    expected = r"context_length \+ horizon = 20 \+ 4 steps; got 23. Choose shorter"
    with pytest.raises(ValueError, match=expected):
        make_windows(SERIES, context_length=20, horizon=4)


def test_missing_values_raise() -> None:
    series = SERIES.copy()
    series[7, 1] = np.nan
    with pytest.raises(ValueError, match="got nan in row 7 of channel 1"):
        make_windows(series, context_length=3, horizon=2)


def test_uneven_times_raise() -> None:
    index = pd.date_range("2020-01-01", periods=24, freq="h").delete(9)
    options: dict[str, Any] = {"context_length": 3, "horizon": 2}
    with pytest.raises(ValueError, match="Resample the series"):
        make_windows(pd.DataFrame(SERIES, index=index), **options)
    with pytest.raises(ValueError, match="Resample the series"):
        make_windows(SERIES, times=index, **options)
    with pytest.raises(ValueError, match="Sort it by time"):
        make_windows(SERIES, times=np.arange(23)[::-1], **options)
    with pytest.raises(ValueError, match="one time for each of 23 steps"):
        make_windows(SERIES, times=np.arange(22), **options)


def test_an_index_of_row_numbers_says_nothing_of_time() -> None:
    shuffled = pd.DataFrame(SERIES, index=np.arange(23)[::-1])
    X, _, _ = make_windows(shuffled, context_length=3, horizon=2)
    np.testing.assert_array_equal(X[0], SERIES[:3])
