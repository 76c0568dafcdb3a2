"""Is it still calibrated? Observed coverage in a window that moves through time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike

from uqformer._response import interval_response
from uqformer._typing import AnyArray, Float64Array
from uqformer._validation import (
    check_confidence_level,
    check_consistent_length,
    check_interval,
    column_or_1d,
)
from uqformer.plotting._base import (
    BAND_SHARE,
    binomial_range,
    check_column,
    find_artist,
    open_axes,
    percent,
    plain_line,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class CalibrationDriftDisplay:
    """Observed coverage in a moving window of rows, against the level asked.

    Coverage over a whole test set can be right while it is too high in one season and
    too low in the next, or falls month by month as the world moves away from the
    training data. A method that stays calibrated stays in the band.

    Parameters
    ----------
    hits : ndarray of shape (n_samples,)
        Whether what was said of each row came true, in order of time: the interval or
        the set held the target, or the label was right.
    expected : float or ndarray of shape (n_samples,)
        Probability with which it was said, in [0, 1]: the level of the intervals or
        sets, or the probability of each label.
    window : int, default=100
        Rows in a window. Long ones show small drifts, short ones show them early.
    time : ndarray of shape (n_samples,), default=None
        When each row was seen, numbers or dates, rising. None counts the rows from 1.
    name : str, default=None
        Name of the method in the legend.

    Attributes
    ----------
    ends : ndarray of shape (n_windows,)
        Time of the last row of each window.
    observed : ndarray of shape (n_windows,)
        Share of hits in each window, in [0, 1].
    promised : ndarray of shape (n_windows,)
        Mean of `expected` in each window, in [0, 1].
    ax_ : matplotlib Axes
        Axes of the figure.
    figure_ : matplotlib Figure
        Figure that holds the axes.
    line_ : matplotlib Line2D
        Observed share against time.
    level_ : matplotlib Line2D
        Promised share against time; shared by the displays of the axes that promise
        the same.
    band_ : matplotlib PolyCollection
        Central 95 % of what a window of a calibrated method shows; shared like
        `level_` by displays of one window length.

    See Also
    --------
    CoverageDisplay : Coverage at several levels, over all rows.
    ReliabilityDisplay : Probabilities at all heights, over all rows.
    uqformer.metrics.coverage_by_group : Coverage in parts of any kind.
    uqformer.calibration.AdaptiveConformal : What to do against a drift.

    Notes
    -----
    The number of hits in a window of a calibrated method is binomial with `window`
    trials. Where `expected` differs within a window its mean is taken, which makes the
    band slightly too wide [1]_. The band holds window by window: neighbouring windows
    share rows, so a line that leaves it once stays out for a while, and over a long
    time some excursion is to be expected. Count windows that do not overlap.

    References
    ----------
    .. [1] W. Hoeffding (1956), "On the distribution of the number of successes in
       independent trials", Annals of Mathematical Statistics 27.

    Examples
    --------
    >>> import numpy as np
    >>> from uqformer.plotting import CalibrationDriftDisplay
    >>> display = CalibrationDriftDisplay.from_predictions(
    ...     [0.0, 0.0, 3.0, 0.0],
    ...     [[-1.0, 1.0]] * 4,
    ...     confidence_level=0.5,
    ...     window=2,
    ... )
    >>> display.observed
    array([1. , 0.5, 0.5])

    Labels and their probabilities, or any other promise:

    >>> labels_right = np.array([True, True, False, True])
    >>> display = CalibrationDriftDisplay(
    ...     labels_right, np.array([0.9, 0.7, 0.5, 0.7]), window=2
    ... ).plot()
    >>> display.promised
    array([0.8, 0.6, 0.6])
    """

    def __init__(
        self,
        hits: AnyArray,
        expected: float | Float64Array,
        *,
        window: int = 100,
        time: AnyArray | None = None,
        name: str | None = None,
    ) -> None:
        self.hits = hits
        self.expected = expected
        self.window = window
        self.time = time
        self.name = name
        when = np.arange(1, len(hits) + 1) if time is None else np.asarray(time)
        self.ends = when[window - 1 :]
        self.observed = _moving_mean(hits, window)
        self.promised = (
            np.full(len(self.ends), float(expected))
            if np.ndim(expected) == 0
            else _moving_mean(np.asarray(expected), window)
        )

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: ArrayLike,
        y: ArrayLike,
        *,
        confidence_level: float = 0.9,
        window: int = 100,
        time: ArrayLike | None = None,
        name: str | None = None,
        ax: Axes | None = None,
        **kwargs: Any,
    ) -> Self:
        """Ask for intervals, then draw.

        Parameters
        ----------
        estimator : object
            Fitted, with `predict_interval`; a pipeline or a search around such a one
            will do.
        X : array-like of shape (n_samples, n_features)
            Rows to predict, fresh ones: neither trained nor calibrated on.
        y : array-like of shape (n_samples,)
            True targets.
        confidence_level : float, default=0.9
            Level to ask the intervals for, strictly between 0 and 1.
        window : int, default=100
            Rows in a window.
        time : array-like of shape (n_samples,), default=None
            When each row was seen, numbers or dates, in any order. None takes the rows
            as they come.
        name : str, default=None
            Name in the legend. None takes the class of `estimator`.
        ax : matplotlib Axes, default=None
            Axes to draw on. None makes a new figure.
        **kwargs : dict
            Passed on to the line.

        Returns
        -------
        display : CalibrationDriftDisplay
            The display, drawn.
        """
        return cls.from_predictions(
            y,
            interval_response(estimator, X, confidence_level),
            confidence_level=confidence_level,
            window=window,
            time=time,
            name=type(estimator).__name__ if name is None else name,
            ax=ax,
            **kwargs,
        )

    @classmethod
    def from_predictions(
        cls,
        y_true: ArrayLike,
        y_interval: ArrayLike,
        *,
        confidence_level: float,
        window: int = 100,
        time: ArrayLike | None = None,
        name: str | None = None,
        ax: Axes | None = None,
        **kwargs: Any,
    ) -> Self:
        """Draw the coverage of intervals that any method has made.

        Parameters
        ----------
        y_true : array-like of shape (n_samples,)
            True targets.
        y_interval : array-like of shape (n_samples, 2)
            Lower and upper ends, in units of `y_true`.
        confidence_level : float
            Level the intervals were made for, strictly between 0 and 1.
        window : int, default=100
            Rows in a window.
        time : array-like of shape (n_samples,), default=None
            When each row was seen, numbers or dates, in any order. None takes the rows
            as they come.
        name : str, default=None
            Name in the legend.
        ax : matplotlib Axes, default=None
            Axes to draw on. None makes a new figure.
        **kwargs : dict
            Passed on to the line.

        Returns
        -------
        display : CalibrationDriftDisplay
            The display, drawn.

        Raises
        ------
        ValueError
            If lengths differ, an interval is crossed, NaN is found, or there are fewer
            rows than a window has.
        """
        level = check_confidence_level(confidence_level)
        truth = check_column(y_true, "y_true")
        ends = check_interval(y_interval)
        if ends.ndim == 3 or len(level) > 1:
            raise ValueError(
                "y_interval must have shape (n_samples, 2), one level a line; got "
                f"y_interval.shape={ends.shape}. Call once for each level."
            )
        check_consistent_length(truth, ends)
        _check_window(window, len(truth))
        hits = (ends[:, 0] <= truth) & (truth <= ends[:, 1])
        if time is not None:
            time = _check_time(time, len(truth))
            order = np.argsort(time, kind="stable")
            hits, time = hits[order], time[order]
        display = cls(hits, float(level[0]), window=window, time=time, name=name)
        return display.plot(ax, **kwargs)

    def plot(
        self, ax: Axes | None = None, *, name: str | None = None, **kwargs: Any
    ) -> Self:
        """Draw the line, and level and band unless they are there already.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to draw on, those of another method for instance. None makes a new
            figure.
        name : str, default=None
            Name in the legend. None takes the display's own.
        **kwargs : dict
            Passed on to the line.

        Returns
        -------
        display : CalibrationDriftDisplay
            The display itself.
        """
        self.figure_, self.ax_ = open_axes(ax)
        self._draw_reference()
        style = plain_line(self.ax_, name or self.name or "observed")
        (self.line_,) = self.ax_.plot(self.ends, self.observed, **style | kwargs)
        when = "row" if self.time is None else "time"
        self.ax_.set(
            xlabel=f"{when}, at the end of each window of {self.window} rows",
            ylabel="observed share in the window",
        )
        # limits that were set would cut off a method that comes later
        self.ax_.autoscale(axis="y")
        self.ax_.set_ylim(top=1)
        self.ax_.legend(loc="best")
        return self

    def _draw_reference(self) -> None:
        """Draw what was promised, and how far chance takes a window around it."""
        level = f"promised: {percent(self.promised.mean())}"
        if np.ptp(self.promised) > 0:
            level += " on average"
        label = (
            f"{percent(BAND_SHARE)} of calibrated results at "
            f"{percent(self.promised.mean())}, {self.window} rows"
        )
        self.band_ = find_artist(self.ax_, label)
        if self.band_ is None:
            low, high = binomial_range(self.promised, self.window)
            self.band_ = self.ax_.fill_between(
                self.ends, low, high, color="0.88", linewidth=0, label=label
            )
        self.level_ = find_artist(self.ax_, level)
        if self.level_ is None:
            (self.level_,) = self.ax_.plot(
                self.ends, self.promised, color="0.4", linestyle=":", label=level
            )


def _moving_mean(values: AnyArray, window: int) -> Float64Array:
    """Average each run of `window` values."""
    sums = np.concatenate(([0.0], np.cumsum(values, dtype=np.float64)))
    means: Float64Array = (sums[window:] - sums[:-window]) / window
    return means


def _check_window(window: int, n_rows: int) -> None:
    """Refuse a window that no or every row would fit in."""
    if not isinstance(window, (int, np.integer)) or not 1 <= window <= n_rows:
        raise ValueError(
            f"window must be a whole number from 1 to the number of rows, {n_rows}; "
            f"got window={window!r}."
        )


def _check_time(time: ArrayLike, n_rows: int) -> AnyArray:
    """Return one number or date per row."""
    column: AnyArray = column_or_1d(time, input_name="time")
    if column.dtype.kind not in "iufM" or len(column) != n_rows:
        raise ValueError(
            f"time must hold a number or a date for each of {n_rows} rows; got "
            f"{len(column)} values of dtype {column.dtype}. Try pandas.to_datetime "
            "for dates in words."
        )
    if (column != column).any():
        raise ValueError("time must hold no NaN or NaT; drop these rows first.")
    return column
