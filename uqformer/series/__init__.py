"""From a series to rows: windows, splits that leak no target, and a plain rival."""

from uqformer.series._naive import SeasonalNaiveRegressor
from uqformer.series._split import EmbargoedTimeSeriesSplit
from uqformer.series._windows import make_windows

__all__ = ["EmbargoedTimeSeriesSplit", "SeasonalNaiveRegressor", "make_windows"]
