"""What displays share: a clear word about matplotlib, axes, columns and per cents."""

import re
import sys
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from uqformer.plotting import CoverageDisplay, IntervalDisplay
from uqformer.plotting._base import (
    check_column,
    find_artist,
    import_pyplot,
    open_axes,
    percent,
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
    ],
    ids=["interval", "coverage"],
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
