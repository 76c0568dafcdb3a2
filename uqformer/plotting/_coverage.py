"""Observed coverage against the level asked, over all levels at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike

from uqformer._response import interval_response
from uqformer._typing import Float64Array
from uqformer._validation import check_confidence_level, check_interval
from uqformer.metrics import coverage_score
from uqformer.plotting._base import (
    BAND_SHARE,
    binomial_range,
    check_column,
    draw_diagonal,
    find_artist,
    marked_line,
    open_axes,
    percent,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LEVELS = tuple(level / 10 for level in range(1, 10))


class CoverageDisplay:
    """Observed coverage of prediction intervals against the level asked.

    A calibrated method follows the diagonal. Below it the intervals are too narrow,
    above it wider than need be. The grey band tells how far chance alone takes a
    calibrated method that is tried on as many rows.

    Parameters
    ----------
    confidence_levels : ndarray of shape (n_levels,)
        Levels asked, rising, in (0, 1).
    coverages : ndarray of shape (n_levels,)
        Share of the targets inside their interval at each level, in [0, 1].
    n_rows : int
        Number of targets that the shares were counted on.
    name : str, default=None
        Name of the method in the legend.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Axes of the figure, a square from 0 to 1.
    figure_ : matplotlib Figure
        Figure that holds the axes.
    line_ : matplotlib Line2D
        Coverage against level.
    diagonal_ : matplotlib Line2D
        Where coverage equals the level; shared by all displays of the axes.
    band_ : matplotlib PolyCollection
        Central 95 % of what a calibrated method shows; shared by the displays of the
        axes that have as many rows.

    See Also
    --------
    IntervalDisplay : The intervals themselves, row by row.
    uqformer.metrics.coverage_score : The share that is drawn.

    Notes
    -----
    At level `p` the number of covered rows of a calibrated method is binomial with
    `n_rows` independent trials of probability `p`. The band reaches from the 2.5 % to
    the 97.5 % quantile of that law, divided by `n_rows`, level by level: it holds at
    least 95 % of the results at each level, not of the whole curves. A conformal
    method is calibrated on average over its calibration rows, so a small set of these
    adds a variation that the band does not count.

    Examples
    --------
    >>> import numpy as np
    >>> from uqformer.plotting import CoverageDisplay
    >>> y_interval = np.array([[[-1.0, -2.0], [1.0, 2.0]]] * 2)
    >>> display = CoverageDisplay.from_predictions(
    ...     [0.5, 1.5], y_interval, confidence_levels=[0.5, 0.9]
    ... )
    >>> display.coverages
    array([0.5, 1. ])
    """

    def __init__(
        self,
        confidence_levels: Float64Array,
        coverages: Float64Array,
        *,
        n_rows: int,
        name: str | None = None,
    ) -> None:
        self.confidence_levels = confidence_levels
        self.coverages = coverages
        self.n_rows = n_rows
        self.name = name

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: ArrayLike,
        y: ArrayLike,
        *,
        confidence_levels: ArrayLike = LEVELS,
        name: str | None = None,
        ax: Axes | None = None,
        **kwargs: Any,
    ) -> Self:
        """Ask for intervals at several levels, then draw.

        Parameters
        ----------
        estimator : object
            Fitted, with `predict_interval`; a pipeline or a search around such a one
            will do.
        X : array-like of shape (n_samples, n_features)
            Rows to predict, fresh ones: neither trained nor calibrated on.
        y : array-like of shape (n_samples,)
            True targets.
        confidence_levels : array-like of shape (n_levels,), default=(0.1, ..., 0.9)
            Levels to ask for, each strictly between 0 and 1.
        name : str, default=None
            Name in the legend. None takes the class of `estimator`.
        ax : matplotlib Axes, default=None
            Axes to draw on. None makes a new figure.
        **kwargs : dict
            Passed on to the line.

        Returns
        -------
        display : CoverageDisplay
            The display, drawn.

        Raises
        ------
        InsufficientCalibrationError
            If a conformal estimator has too few calibration rows for the highest
            level.
        """
        levels = check_confidence_level(confidence_levels)
        return cls.from_predictions(
            y,
            interval_response(estimator, X, levels),
            confidence_levels=levels,
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
        confidence_levels: ArrayLike,
        name: str | None = None,
        ax: Axes | None = None,
        **kwargs: Any,
    ) -> Self:
        """Draw the coverage of intervals that any method has made.

        Parameters
        ----------
        y_true : array-like of shape (n_samples,)
            True targets.
        y_interval : array-like of shape (n_samples, 2, n_levels)
            Lower and upper ends at each level, in units of `y_true`.
        confidence_levels : array-like of shape (n_levels,)
            Levels that the intervals were made for, in any order.
        name : str, default=None
            Name in the legend.
        ax : matplotlib Axes, default=None
            Axes to draw on. None makes a new figure.
        **kwargs : dict
            Passed on to the line.

        Returns
        -------
        display : CoverageDisplay
            The display, drawn.

        Raises
        ------
        ValueError
            If the intervals have another number of levels or rows.
        """
        levels = check_confidence_level(confidence_levels)
        truth = check_column(y_true, "y_true")
        ends = check_interval(y_interval)
        if ends.shape != (len(truth), 2, len(levels)):
            raise ValueError(
                "y_interval must have shape (n_samples, 2, n_levels) = "
                f"({len(truth)}, 2, {len(levels)}) to go with y_true and "
                f"confidence_levels; got y_interval.shape={ends.shape}."
            )
        rising = np.argsort(levels)
        coverages = np.asarray(coverage_score(truth, ends))
        display = cls(levels[rising], coverages[rising], n_rows=len(truth), name=name)
        return display.plot(ax, **kwargs)

    def plot(
        self, ax: Axes | None = None, *, name: str | None = None, **kwargs: Any
    ) -> Self:
        """Draw the line, and the diagonal and band unless they are there already.

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
        display : CoverageDisplay
            The display itself.
        """
        self.figure_, self.ax_ = open_axes(ax)
        self._draw_reference()
        style = marked_line(self.ax_, name or self.name or "observed")
        (self.line_,) = self.ax_.plot(
            self.confidence_levels, self.coverages, **style | kwargs
        )
        self.ax_.set(
            xlabel="confidence level asked",
            ylabel="observed coverage",
            xlim=(0, 1),
            ylim=(0, 1),
            aspect="equal",
        )
        self.ax_.legend(loc="upper left")
        return self

    def _draw_reference(self) -> None:
        """Draw what a calibrated method shows: the diagonal, and chance around it."""
        label = f"{percent(BAND_SHARE)} of calibrated results, {self.n_rows} rows"
        self.band_ = find_artist(self.ax_, label)
        if self.band_ is None:
            levels = np.linspace(0, 1, 201)
            low, high = binomial_range(levels, self.n_rows)
            self.band_ = self.ax_.fill_between(
                levels, low, high, color="0.88", linewidth=0, label=label
            )
        self.diagonal_ = draw_diagonal(self.ax_)
