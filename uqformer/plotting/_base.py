"""What all displays share: matplotlib, an axes to draw on, and clean columns."""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from uqformer._typing import Float64Array
from uqformer._validation import check_array, column_or_1d

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure


def import_pyplot() -> ModuleType:
    """Import `matplotlib.pyplot`, or say how to get it."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError(
            "Drawing a display needs matplotlib, which is not installed. Try "
            'pip install "uqformer[plot]".'
        ) from error
    return plt


def open_axes(ax: Axes | None) -> tuple[Figure | SubFigure, Axes]:
    """Return the figure and the axes to draw on, new ones when `ax` is None."""
    plt = import_pyplot()
    if ax is None:
        _, ax = plt.subplots(layout="constrained")
    return ax.figure, ax


def find_artist(ax: Axes, label: str) -> Artist | None:
    """Find what an earlier display drew under `label`, so that it is drawn once."""
    return next((a for a in ax.get_children() if a.get_label() == label), None)


def check_column(values: ArrayLike, name: str) -> Float64Array:
    """Return one finite float64 number per row."""
    array = check_array(values, ensure_2d=False, dtype=np.float64, input_name=name)
    column: Float64Array = column_or_1d(array, input_name=name)
    return column


def percent(share: float) -> str:
    """Write 0.9 as `90 %` and 0.995 as `99.5 %`."""
    return f"{100 * share:.4g} %"
