"""Size of the errors against the spread predicted for them, bin by bin."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import chi2

from uqformer._response import spread_response
from uqformer._typing import Float64Array, IntArray
from uqformer.metrics import SpreadSkillBins, spread_skill_bins
from uqformer.plotting._base import (
    BAND_SHARE,
    find_artist,
    marked_line,
    open_axes,
    percent,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class SpreadSkillDisplay:
    """Root mean squared error against predicted spread, in bins of equal size.

    An honest spread is as large as the errors it announces, in each bin: the points
    follow the diagonal. Above it the spread is too small, below it too large. A flat
    row of points is a spread that does not know where the errors are.

    Parameters
    ----------
    bins : SpreadSkillBins
        Spread, error and number of rows in each bin, as
        `uqformer.metrics.spread_skill_bins` counts them.
    name : str, default=None
        Name of the method in the legend.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Axes of the figure, a square from 0.
    figure_ : matplotlib Figure
        Figure that holds the axes.
    line_ : matplotlib Line2D
        Error against spread.
    band_ : matplotlib PolyCollection
        Central 95 % of the error that each bin shows if its spread is right.
    diagonal_ : matplotlib AxLine
        Where error equals spread; shared by all displays of the axes.

    See Also
    --------
    uqformer.metrics.spread_skill_bins : The numbers that are drawn.
    PITHistogramDisplay : The whole distribution, not only its size.

    Notes
    -----
    The band holds for independent normal errors: the sum of `n` squared errors over
    their variances is then chi-squared with `n` degrees of freedom. Errors of heavier
    tails leave it more often. Within a bin the spread counts as one.

    Even a perfect ensemble is too narrow when it is small: its mean errs more than the
    members spread, by the factor ``sqrt((n_members + 1) / (n_members - 1))`` for a
    standard deviation with divisor `n_members` [1]_. For 5 members that is 22 %;
    multiply their spread by it.

    References
    ----------
    .. [1] V. Fortin, M. Abaza, F. Anctil and R. Turcotte (2014), "Why should ensemble
       spread match the RMSE of the ensemble mean?", Journal of Hydrometeorology 15.
    .. [2] D. Levi, L. Gispan, N. Giladi and E. Fetaya (2022), "Evaluating and
       calibrating uncertainty prediction in regression tasks", Sensors 22.

    Examples
    --------
    >>> from uqformer.plotting import SpreadSkillDisplay
    >>> display = SpreadSkillDisplay.from_predictions(
    ...     [1.0, -1.0, 2.0, -4.0], [0.0] * 4, [1.0, 1.0, 3.0, 3.0], n_bins=2
    ... )
    >>> display.bins.spread, display.bins.skill.round(2)
    (array([1., 3.]), array([1.  , 3.16]))
    """

    def __init__(
        self,
        bins: SpreadSkillBins,
        *,
        name: str | None = None,
    ) -> None:
        self.bins = bins
        self.name = name

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: ArrayLike,
        y: ArrayLike,
        *,
        n_bins: int = 10,
        name: str | None = None,
        ax: Axes | None = None,
        **kwargs: Any,
    ) -> Self:
        """Predict with spread, then draw.

        Parameters
        ----------
        estimator : object
            Fitted, with ``predict(X, return_std=True)``; a pipeline or a search around
            such a one will do.
        X : array-like of shape (n_samples, n_features)
            Rows to predict, fresh ones: neither trained nor calibrated on.
        y : array-like of shape (n_samples,)
            True targets.
        n_bins : int, default=10
            Number of bins.
        name : str, default=None
            Name in the legend. None takes the class of `estimator`.
        ax : matplotlib Axes, default=None
            Axes to draw on. None makes a new figure.
        **kwargs : dict
            Passed on to the line.

        Returns
        -------
        display : SpreadSkillDisplay
            The display, drawn.
        """
        point, std = spread_response(estimator, X)
        return cls.from_predictions(
            y,
            point,
            std,
            n_bins=n_bins,
            name=type(estimator).__name__ if name is None else name,
            ax=ax,
            **kwargs,
        )

    @classmethod
    def from_predictions(
        cls,
        y_true: ArrayLike,
        y_pred: ArrayLike,
        y_std: ArrayLike,
        *,
        n_bins: int = 10,
        name: str | None = None,
        ax: Axes | None = None,
        **kwargs: Any,
    ) -> Self:
        """Draw points and spreads that any method has made.

        Parameters
        ----------
        y_true : array-like of shape (n_samples,)
            True targets.
        y_pred : array-like of shape (n_samples,)
            Point predictions, in units of `y_true`.
        y_std : array-like of shape (n_samples,)
            Predicted standard deviations, in units of `y_true`, not negative.
        n_bins : int, default=10
            Number of bins, of about equally many rows. Equal spreads are never parted,
            so there may be fewer: one for a constant spread.
        name : str, default=None
            Name in the legend.
        ax : matplotlib Axes, default=None
            Axes to draw on. None makes a new figure.
        **kwargs : dict
            Passed on to the line.

        Returns
        -------
        display : SpreadSkillDisplay
            The display, drawn.

        Raises
        ------
        ValueError
            If lengths differ, NaN is found, or a standard deviation is negative.
        """
        bins = spread_skill_bins(y_true, y_pred, y_std, n_bins=n_bins)
        return cls(bins, name=name).plot(ax, **kwargs)

    def plot(
        self, ax: Axes | None = None, *, name: str | None = None, **kwargs: Any
    ) -> Self:
        """Draw the points and the band, and the diagonal unless it is there already.

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
        display : SpreadSkillDisplay
            The display itself.
        """
        self.figure_, self.ax_ = open_axes(ax)
        self._draw_reference()
        style = marked_line(self.ax_, name or self.name or "observed")
        (self.line_,) = self.ax_.plot(
            self.bins.spread, self.bins.skill, **style | kwargs
        )
        # one scale for both axes, wide enough for all methods drawn so far
        drawn = [self.ax_.dataLim.x1, self.ax_.dataLim.y1]
        side = 1.05 * max(drawn) or 1.0
        self.ax_.set(
            xlabel="predicted spread, root mean square",
            ylabel="root mean squared error",
            xlim=(0, side),
            ylim=(0, side),
            aspect="equal",
        )
        self.ax_.legend(loc="best")
        return self

    def _draw_reference(self) -> None:
        """Draw where error equals spread, and chance around it in each bin."""
        label = f"{percent(BAND_SHARE)} of calibrated results"
        seen = find_artist(self.ax_, label) is not None
        low, high = calibrated_errors(self.bins.spread, self.bins.count)
        # no spread leaves no room for errors: the band opens from the corner
        self.band_ = self.ax_.fill_between(
            np.append(0, self.bins.spread),
            np.append(0, low),
            np.append(0, high),
            color="0.88",
            linewidth=0,
            zorder=0,
            label="_nolegend_" if seen else label,
        )
        self.diagonal_ = find_artist(self.ax_, "calibrated")
        if self.diagonal_ is None:
            self.diagonal_ = self.ax_.axline(
                (0, 0), slope=1, color="0.4", linestyle=":", label="calibrated"
            )


def calibrated_errors(
    spreads: Float64Array, counts: IntArray
) -> tuple[Float64Array, Float64Array]:
    """Say between which errors chance keeps a bin of normal targets."""
    tail = (1 - BAND_SHARE) / 2
    low = spreads * np.sqrt(chi2.ppf(tail, counts) / counts)
    high = spreads * np.sqrt(chi2.ppf(1 - tail, counts) / counts)
    return low, high
