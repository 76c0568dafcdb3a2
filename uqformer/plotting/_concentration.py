"""How the number of draws was chosen: spread against draws, and the error to match."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np

from uqformer.plotting._base import (
    count_methods,
    find_artist,
    marked_line,
    open_axes,
    percent,
    three_digits,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class ConcentrationDisplay:
    """Spread of the members against the number of draws, and where it meets the error.

    Spread falls with the draws along a power law, a line on logarithmic axes. The
    number of draws that was chosen stands where the line meets the model's error; its
    band says how well the passes made know that place. A line that stays below the
    error everywhere is a model whose attention cannot spread as far as it errs.

    Parameters
    ----------
    result : ConcentrationResult
        What `uqformer.calibration.concentration_search` found.
    name : str, default=None
        Name of the model in the legend.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Axes of the figure, both logarithmic.
    figure_ : matplotlib Figure
        Figure that holds the axes.
    line_ : matplotlib Line2D
        Spread of each pass tried, as points.
    law_ : matplotlib Line2D
        The power law that was fitted to them.
    target_ : matplotlib Line2D
        The error to match; shared by the displays of the axes that have the same.
    chosen_ : matplotlib Line2D
        The number of draws that was chosen.
    band_ : matplotlib Polygon or Rectangle
        Interval of the best number of draws.

    See Also
    --------
    uqformer.calibration.concentration_search : The numbers that are drawn.
    SpreadSkillDisplay : Whether spread matches error in each bin of rows.

    Examples
    --------
    >>> from uqformer.calibration import concentration_search
    >>> from uqformer.plotting import ConcentrationDisplay
    >>> result = concentration_search(lambda n, _: n**-0.5, target=0.25)
    >>> display = ConcentrationDisplay.from_result(result)
    >>> display.chosen_.get_label()
    'chosen: 16 draws'
    """

    def __init__(self, result: Any, *, name: str | None = None) -> None:
        self.result = result
        self.name = name

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        *,
        name: str | None = None,
        ax: Axes | None = None,
        **kwargs: Any,
    ) -> Self:
        """Draw the search that an estimator has made.

        Parameters
        ----------
        estimator : object
            Fitted, with the result of its search in ``search_``, such as a
            `StochasticAttentionRegressor`.
        name : str, default=None
            Name in the legend. None takes the class of `estimator`.
        ax : matplotlib Axes, default=None
            Axes to draw on. None makes a new figure.
        **kwargs : dict
            Passed on to the points.

        Returns
        -------
        display : ConcentrationDisplay
            The display, drawn.

        Raises
        ------
        AttributeError
            If `estimator` keeps no search.
        """
        if not hasattr(estimator, "search_"):
            raise AttributeError(
                "The estimator must be fitted and keep its search for n_draws in "
                f"search_; got {type(estimator).__name__}, which does not."
            )
        name = type(estimator).__name__ if name is None else name
        return cls.from_result(estimator.search_, name=name, ax=ax, **kwargs)

    @classmethod
    def from_result(
        cls,
        result: Any,
        *,
        name: str | None = None,
        ax: Axes | None = None,
        **kwargs: Any,
    ) -> Self:
        """Draw the result of a search.

        Parameters
        ----------
        result : ConcentrationResult
            What `uqformer.calibration.concentration_search` returned.
        name : str, default=None
            Name in the legend.
        ax : matplotlib Axes, default=None
            Axes to draw on. None makes a new figure.
        **kwargs : dict
            Passed on to the points.

        Returns
        -------
        display : ConcentrationDisplay
            The display, drawn.
        """
        return cls(result, name=name).plot(ax, **kwargs)

    def plot(
        self, ax: Axes | None = None, *, name: str | None = None, **kwargs: Any
    ) -> Self:
        """Draw the points and the law, the error, and the choice with its interval.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to draw on, those of another model for instance. None makes a new
            figure.
        name : str, default=None
            Name in the legend. None takes the display's own.
        **kwargs : dict
            Passed on to the points.

        Returns
        -------
        display : ConcentrationDisplay
            The display itself.
        """
        self.figure_, self.ax_ = open_axes(ax)
        result = self.result
        color = f"C{count_methods(self.ax_)}"
        self._draw_error()
        self.band_ = self.ax_.axvspan(
            *result.interval,
            color=color,
            alpha=0.15,
            linewidth=0,
            label=f"{percent(result.confidence_level)} interval of the best number",
        )
        self.chosen_ = self.ax_.axvline(
            result.n_draws,
            color=color,
            linestyle="--",
            label=f"chosen: {result.n_draws} draws",
        )
        draws = np.array([result.tried.min(), result.tried.max()])
        (self.law_,) = self.ax_.plot(
            draws,
            result.scale * draws**result.slope,
            color=color,
            linewidth=1,
            label=f"power law of slope {result.slope:.2f}",
        )
        points = marked_line(self.ax_, name or self.name or "spread")
        (self.line_,) = self.ax_.plot(
            result.tried, result.distances, **points | {"linestyle": "none"} | kwargs
        )
        self.ax_.set(
            xscale="log",
            yscale="log",
            xlabel="draws per attention row",
            ylabel="root mean square distance from the exact pass",
        )
        self.ax_.legend(loc="best")
        return self

    def _draw_error(self) -> None:
        """Draw the error to match, once for all displays that share it."""
        label = f"error of the exact pass: {three_digits(self.result.target)}"
        self.target_ = find_artist(self.ax_, label)
        if self.target_ is None:
            self.target_ = self.ax_.axhline(
                self.result.target, color="0.4", linestyle=":", label=label
            )
