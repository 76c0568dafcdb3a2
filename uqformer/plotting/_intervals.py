"""Targets and their prediction intervals as a figure, row by row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from uqformer._response import interval_response
from uqformer._typing import Float64Array
from uqformer._validation import (
    check_confidence_level,
    check_consistent_length,
    check_interval,
)
from uqformer.plotting._base import check_column, open_axes, percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Order: TypeAlias = Literal["prediction", "width"] | ArrayLike


class IntervalDisplay:
    """Targets and their prediction intervals, row by row.

    Rows stand side by side, ordered so that the eye can see whether intervals widen
    where errors grow. Covered targets are open circles and missed ones dark crosses,
    so the figure also reads in grey.

    Parameters
    ----------
    y_true : ndarray of shape (n_samples,)
        True targets.
    y_pred : ndarray of shape (n_samples,)
        Point predictions, in units of `y_true`.
    y_interval : ndarray of shape (n_samples, 2)
        Lower and upper ends, in units of `y_true`.
    order : {"prediction", "width"} or ndarray of shape (n_samples,), \
            default="prediction"
        Rows are ranked by their prediction or by the width of their interval, or
        stand at the values given, one feature's for instance.
    confidence_level : float, default=None
        Level the intervals were made for, in (0, 1). None leaves it out of the legend.
    xlabel : str, default=None
        What the values of `order` are, for the axis. None takes the name that a
        pandas Series brings along.
    name : str, default=None
        Name of the method in the legend.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Axes of the figure.
    figure_ : matplotlib Figure
        Figure that holds the axes.
    intervals_ : matplotlib LineCollection
        One vertical line per row.
    prediction_ : matplotlib Line2D
        Point predictions.
    covered_ : matplotlib Line2D
        Targets inside their interval, ends included.
    missed_ : matplotlib Line2D
        Targets outside their interval.

    See Also
    --------
    CoverageDisplay : Coverage over several levels at once.

    Examples
    --------
    >>> from uqformer.plotting import IntervalDisplay
    >>> display = IntervalDisplay.from_predictions(
    ...     [1.0, 4.0], [1.5, 2.0], [[0.5, 2.5], [1.0, 3.0]], confidence_level=0.9
    ... )
    >>> display.missed_.get_xydata()
    array([[2., 4.]])
    """

    def __init__(
        self,
        y_true: Float64Array,
        y_pred: Float64Array,
        y_interval: Float64Array,
        *,
        order: Order = "prediction",
        confidence_level: float | None = None,
        xlabel: str | None = None,
        name: str | None = None,
    ) -> None:
        self.y_true = y_true
        self.y_pred = y_pred
        self.y_interval = y_interval
        self.order = order
        self.confidence_level = confidence_level
        self.xlabel = xlabel
        self.name = name

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: ArrayLike,
        y: ArrayLike,
        *,
        confidence_level: float = 0.9,
        order: Order = "prediction",
        xlabel: str | None = None,
        name: str | None = None,
        ax: Axes | None = None,
        **kwargs: Any,
    ) -> Self:
        """Predict, then draw.

        Parameters
        ----------
        estimator : object
            Fitted, with `predict` and `predict_interval`; a pipeline or a search
            around such a one will do.
        X : array-like of shape (n_samples, n_features)
            Rows to predict.
        y : array-like of shape (n_samples,)
            True targets.
        confidence_level : float, default=0.9
            Level to ask the intervals for, strictly between 0 and 1.
        order : {"prediction", "width"} or array-like of shape (n_samples,), \
                default="prediction"
            Where the rows stand, as in the class.
        xlabel : str, default=None
            What the values of `order` are, as in the class.
        name : str, default=None
            Name in the legend. None takes the class of `estimator`.
        ax : matplotlib Axes, default=None
            Axes to draw on. None makes a new figure.
        **kwargs : dict
            Passed on to the lines of the intervals.

        Returns
        -------
        display : IntervalDisplay
            The display, drawn.
        """
        return cls.from_predictions(
            y,
            estimator.predict(X),
            interval_response(estimator, X, confidence_level),
            confidence_level=confidence_level,
            order=order,
            xlabel=xlabel,
            name=type(estimator).__name__ if name is None else name,
            ax=ax,
            **kwargs,
        )

    @classmethod
    def from_predictions(
        cls,
        y_true: ArrayLike,
        y_pred: ArrayLike,
        y_interval: ArrayLike,
        *,
        confidence_level: float | None = None,
        order: Order = "prediction",
        xlabel: str | None = None,
        name: str | None = None,
        ax: Axes | None = None,
        **kwargs: Any,
    ) -> Self:
        """Draw intervals that any method has made.

        Parameters
        ----------
        y_true : array-like of shape (n_samples,)
            True targets.
        y_pred : array-like of shape (n_samples,)
            Point predictions, in units of `y_true`.
        y_interval : array-like of shape (n_samples, 2)
            Lower and upper ends, in units of `y_true`.
        confidence_level : float, default=None
            Level the intervals were made for. None leaves it out of the legend.
        order : {"prediction", "width"} or array-like of shape (n_samples,), \
                default="prediction"
            Where the rows stand, as in the class.
        xlabel : str, default=None
            What the values of `order` are, as in the class.
        name : str, default=None
            Name in the legend.
        ax : matplotlib Axes, default=None
            Axes to draw on. None makes a new figure.
        **kwargs : dict
            Passed on to the lines of the intervals.

        Returns
        -------
        display : IntervalDisplay
            The display, drawn.

        Raises
        ------
        ValueError
            If lengths differ, an interval is infinite or crossed, or `order` is
            unknown.
        """
        if confidence_level is not None:
            check_confidence_level(confidence_level)
        truth, point = check_column(y_true, "y_true"), check_column(y_pred, "y_pred")
        ends = _check_finite_interval(y_interval)
        check_consistent_length(truth, point, ends)
        display = cls(
            truth,
            point,
            ends,
            order=_check_order(order, len(truth)),
            confidence_level=confidence_level,
            xlabel=xlabel or _own_name(order),
            name=name,
        )
        return display.plot(ax, **kwargs)

    def plot(
        self, ax: Axes | None = None, *, name: str | None = None, **kwargs: Any
    ) -> Self:
        """Draw the intervals, predictions and targets.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to draw on. None makes a new figure.
        name : str, default=None
            Name in the legend. None takes the display's own.
        **kwargs : dict
            Passed on to the lines of the intervals.

        Returns
        -------
        display : IntervalDisplay
            The display itself.
        """
        self.figure_, self.ax_ = open_axes(ax)
        x, xlabel = self._positions()
        lower, upper = self.y_interval.T
        inside = (lower <= self.y_true) & (self.y_true <= upper)
        style: dict[str, Any] = {
            "color": "0.75",
            "linewidth": 2,
            "label": self._label(inside, name),
        }
        self.intervals_ = self.ax_.vlines(x, lower, upper, **style | kwargs)
        dots: dict[str, Any] = {"linestyle": "none", "markersize": 5}
        (self.prediction_,) = self.ax_.plot(
            x, self.y_pred, marker="_", color="0.35", label="prediction", **dots
        )
        (self.covered_,) = self.ax_.plot(
            x[inside],
            self.y_true[inside],
            marker="o",
            markerfacecolor="none",
            color="tab:blue",
            label=f"target inside ({inside.sum()})",
            **dots,
        )
        (self.missed_,) = self.ax_.plot(
            x[~inside],
            self.y_true[~inside],
            marker="x",
            color="black",
            label=f"target outside ({(~inside).sum()})",
            **dots,
        )
        self.ax_.set(xlabel=xlabel, ylabel="target")
        self.ax_.legend()
        return self

    def _positions(self) -> tuple[Float64Array, str]:
        """Say where on the x axis each row stands, and what the axis means."""
        if not isinstance(self.order, str):
            values = np.asarray(self.order, dtype=np.float64)
            return values, self.xlabel or "value given for the row"
        width = self.y_interval[:, 1] - self.y_interval[:, 0]
        key = self.y_pred if self.order == "prediction" else width
        ranks = np.argsort(np.argsort(key, kind="stable")) + 1
        return ranks.astype(np.float64), self.xlabel or f"row, by {self.order}"

    def _label(self, inside: np.ndarray[Any, Any], name: str | None) -> str:
        """Write asked level and observed coverage side by side."""
        name = self.name if name is None else name
        who = f"{name}: " if name else ""
        asked = f"{percent(self.confidence_level)} " if self.confidence_level else ""
        return f"{who}{asked}interval, covers {percent(inside.mean())}"


def _check_finite_interval(y_interval: ArrayLike) -> Float64Array:
    """Return the intervals of one level, each with two ends that can be drawn."""
    ends = check_interval(y_interval)
    if ends.ndim == 3:
        raise ValueError(
            "y_interval must have shape (n_samples, 2), one level a figure; got "
            f"y_interval.shape={ends.shape}. Pass y_interval[:, :, 0], or see "
            "CoverageDisplay for several levels."
        )
    if not np.isfinite(ends).all():
        raise ValueError(
            "y_interval must be finite to be drawn; got an infinite end in row "
            f"{int(np.argwhere(~np.isfinite(ends))[0, 0])}. Try a lower "
            "confidence_level or more calibration rows."
        )
    return ends


def _check_order(order: Order, n_rows: int) -> Order:
    """Return a known word, or one finite number per row."""
    if isinstance(order, str):
        if order not in ("prediction", "width"):
            raise ValueError(
                "order must be 'prediction', 'width' or one number per row; got "
                f"order={order!r}."
            )
        return order
    column = check_column(order, "order")
    if len(column) != n_rows:
        raise ValueError(
            f"order must hold one number per row; got {len(column)} numbers for "
            f"{n_rows} rows."
        )
    return column


def _own_name(order: Order) -> str | None:
    """Return the name that a pandas Series brings along."""
    name = getattr(order, "name", None)
    return name if isinstance(name, str) else None
