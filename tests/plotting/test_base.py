"""What displays share: a clear word about matplotlib, axes, columns and per cents."""

import re
import sys
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

from uqformer.plotting import (
    CalibrationDriftDisplay,
    CoverageDisplay,
    IntervalDisplay,
    PITHistogramDisplay,
    RiskCoverageDisplay,
)
from uqformer.plotting._base import (
    binomial_range,
    check_column,
    check_n_bins,
    count_methods,
    draw_diagonal,
    find_artist,
    import_pyplot,
    marked_line,
    open_axes,
    percent,
    plain_line,
    start_at_zero,
    three_digits,
)

NO_MATPLOTLIB = (
    "Drawing a display needs matplotlib, which is not installed. Try pip install "
    '"uqformer[plot]".'
)


def test_pyplot_is_found(pyplot: ModuleType) -> None:
    assert import_pyplot() is pyplot


@pytest.fixture
def no_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)


@pytest.mark.usefixtures("no_matplotlib")
@pytest.mark.parametrize(
    "display",
    [
        IntervalDisplay(np.zeros(1), np.zeros(1), np.zeros((1, 2))),
        CoverageDisplay(np.array([0.5]), np.array([0.5]), n_rows=10),
        PITHistogramDisplay(np.array([0.5])),
        RiskCoverageDisplay(np.ones(2), np.ones(2)),
        CalibrationDriftDisplay(np.ones(2), 0.9, window=2),
    ],
    ids=["interval", "coverage", "pit", "risk", "drift"],
)
def test_numbers_need_no_matplotlib_but_figures_do(display: Any) -> None:
    with pytest.raises(ImportError, match=f"^{re.escape(NO_MATPLOTLIB)}$"):
        display.plot()


def test_new_axes_are_made_only_when_none_are_given(pyplot: ModuleType) -> None:
    figure, ax = open_axes(None)
    assert ax.figure is figure
    assert pyplot.get_fignums() == [figure.number]
    assert open_axes(ax) == (figure, ax)
    assert pyplot.get_fignums() == [figure.number]


def test_artists_are_found_by_their_label(pyplot: ModuleType) -> None:
    _, ax = pyplot.subplots()
    (line,) = ax.plot([0, 1], label="mine")
    assert find_artist(ax, "mine") is line
    assert find_artist(ax, "yours") is None


@pytest.mark.parametrize("style", [marked_line, plain_line])
def test_methods_differ_in_colour_and_in_grey(pyplot: ModuleType, style: Any) -> None:
    _, ax = pyplot.subplots()
    draw_diagonal(ax)  # reference, not a method
    looks = set()
    for k in range(4):
        assert count_methods(ax) == k
        (line,) = ax.plot([0, 1], **style(ax, f"method {k}"))
        looks.add((line.get_marker(), line.get_linestyle()))
        assert line.get_color() == f"C{k}"
        assert line.get_label() == f"method {k}"
    assert len(looks) == 4


def test_the_diagonal_is_drawn_once(pyplot: ModuleType) -> None:
    _, ax = pyplot.subplots()
    diagonal = draw_diagonal(ax)
    assert draw_diagonal(ax) is diagonal
    np.testing.assert_array_equal(diagonal.get_xydata(), [[0, 0], [1, 1]])
    assert len(ax.lines) == 1


def test_an_axis_from_zero_makes_room_for_who_comes_later(pyplot: ModuleType) -> None:
    _, ax = pyplot.subplots()
    for height in (1.0, 9.0):
        ax.plot([0.5, height])
        start_at_zero(ax)
        low, high = ax.get_ylim()
        assert low == 0
        assert high > height


@pytest.mark.parametrize("n_rows", [1, 7, 100])
def test_band_holds_95_percent_and_no_more_than_it_must(n_rows: int) -> None:
    levels = np.linspace(0, 1, 41)
    low, high = binomial_range(levels, n_rows)
    counts_low, counts_high = np.rint(low * n_rows), np.rint(high * n_rows)
    inside = binom.cdf(counts_high, n_rows, levels) - binom.cdf(
        counts_low - 1, n_rows, levels
    )
    assert (inside >= 0.95 - 1e-12).all()
    # one count less on either side would leave more than 2.5 % in that tail
    assert (binom.cdf(counts_low, n_rows, levels) >= 0.025 - 1e-12).all()
    assert (binom.sf(counts_high - 1, n_rows, levels) >= 0.025 - 1e-12).all()


@pytest.mark.parametrize("values", [[1, 2], [[1], [2]], np.array([1, 2], np.float32)])
def test_columns_become_flat_float64(values: Any) -> None:
    column = check_column(values, "y_true")
    assert column.dtype == np.float64
    np.testing.assert_array_equal(column, [1.0, 2.0])


def test_columns_are_finite_and_single() -> None:
    with pytest.raises(ValueError, match="Input y_true contains NaN"):
        check_column([1.0, np.nan], "y_true")
    with pytest.raises(ValueError, match=r"1d array.*shape \(2, 2\)"):
        check_column(np.ones((2, 2)), "y_true")


@pytest.mark.parametrize(
    ("share", "text"), [(0.9, "90 %"), (0.995, "99.5 %"), (1.0, "100 %"), (0, "0 %")]
)
def test_percent_is_short_and_right(share: float, text: str) -> None:
    assert percent(share) == text


@pytest.mark.parametrize("n_bins", [0, -1, 2.5, "ten"])
def test_bins_are_counted_in_whole_numbers(n_bins: Any) -> None:
    sentence = f"n_bins must be a whole number of at least 1; got n_bins={n_bins!r}."
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        check_n_bins(n_bins)
    check_n_bins(np.int64(3))


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0123456, "0.0123"), (31234.5, "31200"), (2.0, "2"), (0.0, "0")],
)
def test_numbers_in_legends_are_short(value: float, text: str) -> None:
    assert three_digits(value) == text
