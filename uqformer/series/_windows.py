"""Windows of a series as rows: what was seen, and what came next."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import ArrayLike

from uqformer._typing import AnyArray, IntArray
from uqformer.series._inputs import check_times, check_whole, find_channels, read_values

__all__ = ["make_windows"]


def make_windows(
    series: Any,
    *,
    context_length: int,
    horizon: int,
    target: int | str | Sequence[int | str] | None = None,
    step: int = 1,
    times: ArrayLike | None = None,
) -> tuple[AnyArray, AnyArray, IntArray]:
    """Cut a series into windows: what was seen, and what came next.

    Parameters
    ----------
    series : array-like, Series or DataFrame of shape (time,) or (time, n_channels)
        Values in the order of time, equally spaced. A pandas index of dates or periods
        is checked; any other index is not looked at.
    context_length : int
        Number of steps that are seen.
    horizon : int
        Number of steps that come next.
    target : int, str, or list of such, default=None
        Channels that are to be forecast, as positions or names of columns. None takes
        all.
    step : int, default=1
        Steps from one window to the next.
    times : array-like of shape (time,), default=None
        Times of the values as dates or numbers, checked to ascend in equal steps. None
        trusts that they do, apart from the index that `series` may have.

    Returns
    -------
    X : ndarray of shape (n_samples, context_length, n_channels)
        All channels in each window, oldest first.
    y : ndarray of shape (n_samples, horizon) or (n_samples, horizon * n_targets)
        Targets step by step: all of the first step, then all of the second.
    first_target : ndarray of shape (n_samples,)
        Position in `series` of the first step of each window's target.

    Raises
    ------
    ValueError
        If the series is shorter than one window, holds NaN, or its times do not ascend
        in equal steps; or if there is no such target.

    See Also
    --------
    EmbargoedTimeSeriesSplit : Splits of such windows.

    Examples
    --------
    >>> import numpy as np
    >>> from uqformer.series import make_windows
    >>> X, y, first_target = make_windows(np.arange(6), context_length=3, horizon=2)
    >>> X[..., 0]
    array([[0., 1., 2.],
           [1., 2., 3.]])
    >>> y
    array([[3., 4.],
           [4., 5.]])
    >>> first_target
    array([3, 4])
    """
    for name, value in (
        ("context_length", context_length),
        ("horizon", horizon),
        ("step", step),
    ):
        check_whole(name, value, at_least=1)
    index = getattr(series, "index", None)
    if hasattr(index, "asi8"):
        check_times(index)
    values, names = read_values(series)
    if times is not None:
        check_times(times, n_times=len(values))
    if len(values) < context_length + horizon:
        raise ValueError(
            f"series must have at least context_length + horizon = {context_length} + "
            f"{horizon} steps; got {len(values)}. Choose shorter windows."
        )
    wanted = find_channels(target, names, values.shape[1])
    first = np.arange(context_length, len(values) - horizon + 1, step)
    seen = sliding_window_view(values, context_length, axis=0)[first - context_length]
    ahead = sliding_window_view(values[:, wanted], horizon, axis=0)[first]
    # windows come with time last
    X = np.ascontiguousarray(seen.transpose(0, 2, 1))
    return X, ahead.transpose(0, 2, 1).reshape(len(first), -1), first
