"""What is asked of a series: whole numbers, values, channels and times."""

import warnings
from numbers import Integral
from typing import Any

import numpy as np

from uqformer._typing import AnyArray
from uqformer._validation import check_array

__all__ = ["check_times", "check_whole", "find_channels", "read_values"]

SPACING_TOLERANCE = 1e-3
"""By what share of a step two steps may differ: seconds since 1970 are rounded."""


def check_whole(name: str, value: Any, at_least: int) -> None:
    if not isinstance(value, Integral) or int(value) < at_least:
        raise ValueError(
            f"{name} must be a whole number of at least {at_least}; got {name}="
            f"{value!r}."
        )


def read_values(series: Any) -> tuple[AnyArray, list[Any] | None]:
    """Return values (time, n_channels) and the names of columns, if there are any."""
    names: list[Any] | None = None
    if hasattr(series, "columns"):
        names = list(series.columns)
    elif hasattr(series, "name"):
        names = [series.name]
    values: AnyArray = check_array(
        series,
        dtype=[np.float64, np.float32],
        ensure_2d=False,
        ensure_all_finite=False,
        input_name="series",
    )
    values = values[:, None] if values.ndim == 1 else values
    if not np.isfinite(values).all():
        row, column = np.argwhere(~np.isfinite(values))[0]
        channel = int(column) if names is None else names[column]
        raise ValueError(
            f"series must hold no NaN or infinity; got {values[row, column]} in row "
            f"{row} of channel {channel!r}. Fill the gap, or cut the series there and "
            "make the windows of each part."
        )
    return values, names


def find_channels(target: Any, names: list[Any] | None, n_channels: int) -> list[int]:
    """Return the positions of the channels that are to be forecast."""
    if target is None:
        return list(range(n_channels))
    asked = list(target) if isinstance(target, (list, tuple, np.ndarray)) else [target]
    known = names or []
    # a name may itself be a number, and then it is the name
    places = [known.index(one) if one in known else one for one in asked]
    found = [isinstance(one, Integral) and 0 <= int(one) < n_channels for one in places]
    if not (places and all(found)):
        channels = known or f"at the positions 0 to {n_channels - 1}"
        raise ValueError(
            f"target must name channels of the series, which are {channels}; got "
            f"target={target!r}."
        )
    return [int(place) for place in places]


def check_times(times: Any, n_times: int | None = None) -> None:
    """Raise unless times ascend in equal steps."""
    stamps = np.asarray(times.asi8 if hasattr(times, "asi8") else times)
    if stamps.dtype.kind in "OUS":
        stamps = stamps.astype("datetime64[us]")
    if n_times is not None and stamps.shape != (n_times,):
        raise ValueError(
            f"times must hold one time for each of {n_times} steps of the series; got "
            f"shape {stamps.shape}."
        )
    steps = np.diff(stamps)
    # neither NaN nor NaT is larger than anything
    descents = np.flatnonzero(~(steps > np.zeros(1, steps.dtype)))
    if descents.size:
        raise ValueError(
            "Times must be known and ascend; those of the series do not from row "
            f"{descents[0]} to the next. Sort it by time and keep one row a time."
        )
    if not len(steps):
        return
    usual = np.sort(steps)[len(steps) // 2]
    uneven = np.flatnonzero(np.abs(steps / usual - 1) > SPACING_TOLERANCE)
    if uneven.size and not _is_calendar(times):
        raise ValueError(
            f"Times must be equally spaced; after row {uneven[0]} comes a step that is "
            f"{steps[uneven[0]] / usual:.6g} times the usual one. Resample the series, "
            "or add the missing rows and fill them."
        )


def _is_calendar(times: Any) -> bool:
    """Tell whether pandas knows a rhythm, such as that of months, in uneven times."""
    with warnings.catch_warnings():
        # pandas is changing in what form it answers, not when it has an answer
        warnings.simplefilter("ignore")
        return getattr(times, "inferred_freq", None) is not None
