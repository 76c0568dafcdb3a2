"""What all displays share: matplotlib, an axes to draw on, clean numbers, one style."""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import binom

from uqformer._typing import Float64Array
from uqformer._validation import check_array, column_or_1d

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

BAND_SHARE = 0.95
MARKERS = "osD^v"
LINESTYLES = ("-", "--", "-.", ":")
# what carries this mark belongs to a method, what does not is reference
METHOD = "method"


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


def count_methods(ax: Axes) -> int:
    """Count the methods that earlier displays have drawn on the axes."""
    return sum(artist.get_gid() == METHOD for artist in ax.get_children())


def marked_line(ax: Axes, label: str) -> dict[str, Any]:
    """Style the next method's line: another colour, and another marker for grey."""
    k = count_methods(ax)
    marker = MARKERS[k % len(MARKERS)]
    return {"color": f"C{k}", "marker": marker, "label": label, "gid": METHOD}


def plain_line(ax: Axes, label: str) -> dict[str, Any]:
    """Style the next method's line of many points: another dash stands for grey."""
    k = count_methods(ax)
    dash = LINESTYLES[k % len(LINESTYLES)]
    return {"color": f"C{k}", "linestyle": dash, "label": label, "gid": METHOD}


def draw_diagonal(ax: Axes) -> Artist:
    """Draw where observed equals predicted on a square from 0 to 1, once."""
    diagonal = find_artist(ax, "calibrated")
    if diagonal is None:
        (diagonal,) = ax.plot(
            [0, 1], [0, 1], color="0.4", linestyle=":", label="calibrated"
        )
    return diagonal


def start_at_zero(ax: Axes) -> None:
    """Let the y axis reach from 0 to the highest point of all methods so far."""
    # limits that were set stop matplotlib from looking at what comes later
    ax.autoscale(axis="y")
    ax.set_ylim(bottom=0)


def binomial_range(
    share: ArrayLike, n_rows: ArrayLike
) -> tuple[Float64Array, Float64Array]:
    """Say between which shares chance keeps `n_rows` trials of probability `share`."""
    tail = (1 - BAND_SHARE) / 2
    low = binom.ppf(tail, n_rows, share) / n_rows
    high = binom.ppf(1 - tail, n_rows, share) / n_rows
    return low, high


def check_column(values: ArrayLike, name: str) -> Float64Array:
    """Return one finite float64 number per row."""
    array = check_array(values, ensure_2d=False, dtype=np.float64, input_name=name)
    column: Float64Array = column_or_1d(array, input_name=name)
    return column


def check_n_bins(n_bins: int) -> None:
    """Refuse a number of bins that means nothing."""
    if not isinstance(n_bins, (int, np.integer)) or n_bins < 1:
        raise ValueError(
            f"n_bins must be a whole number of at least 1; got n_bins={n_bins!r}."
        )


def three_digits(value: float) -> str:
    """Write 0.012345 as `0.0123` and 31234.5 as `31200`, never with an exponent."""
    return np.format_float_positional(
        value, precision=3, unique=False, fractional=False, trim="-"
    )


def percent(share: float) -> str:
    """Write 0.9 as `90 %` and 0.995 as `99.5 %`."""
    return f"{100 * share:.4g} %"
