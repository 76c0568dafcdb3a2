"""Observed shares against predicted probabilities, bin by bin, for any classes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike

from uqformer._typing import Float64Array
from uqformer.metrics import CalibrationBins, calibration_bins
from uqformer.metrics._conditional import share_bounds
from uqformer.plotting._base import (
    BAND_SHARE,
    draw_diagonal,
    marked_line,
    open_axes,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# left, bottom, width and height of the strip, in parts of the axes; the square of the
# figure stands on it, since strips beside the axes are cut off by tight layouts
STRIP = (0.0, 0.0, 1.0, 0.15)
BOTTOM = -0.22
STRIP_NAME = "rows per bin"


class ReliabilityDisplay:
    """Share of rows that were right against the probability they were given.

    A calibrated classifier follows the diagonal: of the rows that it called 80 % sure,
    four in five are right. Below the diagonal it is overconfident, above it
    underconfident. The bar at each point tells what the rows of its bin leave open,
    and the strip below how many rows there are.

    Parameters
    ----------
    bins : CalibrationBins
        Mean probability, share that came true and number of rows in each bin, as
        `uqformer.metrics.calibration_bins` counts them.
    pos_label : int, float, bool or str, default=None
        Class whose probability it is. None stands for the top label, whichever class
        is the most probable in a row.
    name : str, default=None
        Name of the method in the legend.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Axes of the figure, a square from 0 to 1 with a strip below.
    figure_ : matplotlib Figure
        Figure that holds the axes.
    line_ : matplotlib Line2D
        Observed share against mean probability, without empty bins.
    bars_ : matplotlib LineCollection
        Exact 95 % confidence interval of each share.
    diagonal_ : matplotlib Line2D
        Where share equals probability; shared by all displays of the axes.
    counts_ax_ : matplotlib Axes
        Strip below the square; shared by all displays of the axes.
    counts_ : matplotlib StepPatch
        Rows in each bin, on the strip.

    See Also
    --------
    uqformer.metrics.calibration_bins : The numbers that are drawn.
    sklearn.calibration.CalibrationDisplay : Two classes only, without bars.
    CoverageDisplay : The like for prediction intervals.

    Notes
    -----
    The bars are Clopper-Pearson intervals [2]_, bin by bin: each holds the share that
    endless rows would show in at least 95 % of the trials, so about one bar in twenty
    may miss the diagonal by chance. The calibration error in the legend averages the
    distance to the diagonal over all rows; it depends on the bins and is never below
    0 by chance, so small samples look worse than they are.

    For a class-wise diagram call once for each class on the same axes, as the example
    does: a classifier can be calibrated in its top label and in no single class.

    References
    ----------
    .. [1] A. Niculescu-Mizil and R. Caruana (2005), "Predicting good probabilities with
       supervised learning", International Conference on Machine Learning.
    .. [2] C. J. Clopper and E. S. Pearson (1934), "The use of confidence or fiducial
       limits illustrated in the case of the binomial", Biometrika 26.
    .. [3] M. Kull et al. (2019), "Beyond temperature scaling: obtaining well-calibrated
       multiclass probabilities with Dirichlet calibration", Advances in Neural
       Information Processing Systems 32.

    Examples
    --------
    >>> from uqformer.plotting import ReliabilityDisplay
    >>> y_true = ["cat", "dog", "dog", "cow"]
    >>> y_proba = [[0.9, 0.0, 0.1], [0.1, 0.0, 0.9], [0.6, 0.2, 0.2], [0.0, 0.6, 0.4]]
    >>> display = ReliabilityDisplay.from_predictions(y_true, y_proba, n_bins=2)
    >>> display.bins.accuracy
    array([ nan, 0.75])

    One line per class, in the order of the columns:

    >>> ax = None
    >>> for label in ["cat", "cow", "dog"]:
    ...     display = ReliabilityDisplay.from_predictions(
    ...         y_true, y_proba, pos_label=label, n_bins=2, ax=ax
    ...     )
    ...     ax = display.ax_
    """

    def __init__(
        self,
        bins: CalibrationBins,
        *,
        pos_label: Any = None,
        name: str | None = None,
    ) -> None:
        self.bins = bins
        self.pos_label = pos_label
        self.name = name

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: ArrayLike,
        y: ArrayLike,
        *,
        pos_label: Any = None,
        n_bins: int = 15,
        strategy: Literal["uniform", "quantile"] = "uniform",
        name: str | None = None,
        ax: Axes | None = None,
        **kwargs: Any,
    ) -> Self:
        """Ask a classifier for probabilities, then draw.

        Parameters
        ----------
        estimator : object
            Fitted, with `predict_proba` and `classes_`; a pipeline or a search around
            such a one will do.
        X : array-like of shape (n_samples, n_features)
            Rows to predict, fresh ones: neither trained nor calibrated on.
        y : array-like of shape (n_samples,)
            True labels. Classes may be missing.
        pos_label : int, float, bool or str, default=None
            Class to look at. None takes the most probable class of each row.
        n_bins : int, default=15
            Number of bins.
        strategy : {"uniform", "quantile"}, default="uniform"
            Bins of equal width, or of about equally many rows.
        name : str, default=None
            Name in the legend. None takes the class of `estimator`.
        ax : matplotlib Axes, default=None
            Axes to draw on. None makes a new figure.
        **kwargs : dict
            Passed on to the line.

        Returns
        -------
        display : ReliabilityDisplay
            The display, drawn.

        Raises
        ------
        ValueError
            If `y` holds a label that the estimator does not know.
        """
        return cls.from_predictions(
            y,
            estimator.predict_proba(X),
            labels=estimator.classes_,
            pos_label=pos_label,
            n_bins=n_bins,
            strategy=strategy,
            name=type(estimator).__name__ if name is None else name,
            ax=ax,
            **kwargs,
        )

    @classmethod
    def from_predictions(
        cls,
        y_true: ArrayLike,
        y_proba: ArrayLike,
        *,
        labels: ArrayLike | None = None,
        pos_label: Any = None,
        n_bins: int = 15,
        strategy: Literal["uniform", "quantile"] = "uniform",
        name: str | None = None,
        ax: Axes | None = None,
        **kwargs: Any,
    ) -> Self:
        """Draw probabilities that any method has made.

        Parameters
        ----------
        y_true : array-like of shape (n_samples,)
            True labels.
        y_proba : array-like of shape (n_samples, n_classes) or (n_samples,)
            Predicted probabilities; a flat array holds those of the positive one, the
            second, of two classes.
        labels : array-like of shape (n_classes,), default=None
            Class of each column. None takes the sorted labels of `y_true`.
        pos_label : int, float, bool or str, default=None
            Class to look at. None takes the most probable class of each row.
        n_bins : int, default=15
            Number of bins. A bin holds its lower edge, the last one also its upper.
        strategy : {"uniform", "quantile"}, default="uniform"
            Bins of equal width, or of about equally many rows; equal probabilities
            are never parted, so there may be fewer of these.
        name : str, default=None
            Name in the legend.
        ax : matplotlib Axes, default=None
            Axes to draw on. None makes a new figure.
        **kwargs : dict
            Passed on to the line.

        Returns
        -------
        display : ReliabilityDisplay
            The display, drawn.

        Raises
        ------
        ValueError
            If shapes do not fit, NaN is found, rows do not sum to 1, or a label has no
            column.
        """
        bins = calibration_bins(
            y_true,
            y_proba,
            n_bins=n_bins,
            strategy=strategy,
            pos_label=pos_label,
            labels=labels,
        )
        return cls(bins, pos_label=pos_label, name=name).plot(ax, **kwargs)

    @property
    def calibration_error(self) -> float:
        """Mean distance of shares and probabilities over rows, in [0, 1]."""
        gaps = np.abs(self.bins.accuracy - self.bins.confidence)
        return float(np.nansum(self.bins.share * gaps))

    def plot(
        self, ax: Axes | None = None, *, name: str | None = None, **kwargs: Any
    ) -> Self:
        """Draw the line and its bars, and the rows per bin on a strip below.

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
        display : ReliabilityDisplay
            The display itself.
        """
        self.figure_, self.ax_ = open_axes(ax)
        self.diagonal_ = draw_diagonal(self.ax_)
        style = marked_line(self.ax_, self._label(name))
        kept = self.bins.count > 0
        x, share = self.bins.confidence[kept], self.bins.accuracy[kept]
        (self.line_,) = self.ax_.plot(x, share, **style | kwargs)
        color = self.line_.get_color()
        low, high = share_interval(share, self.bins.count[kept])
        self.bars_ = self.ax_.vlines(x, low, high, color=color, linewidth=1, alpha=0.6)
        top = self.pos_label is None
        self.ax_.set(
            xlabel=f"mean probability of the {'top label' if top else 'class'}",
            ylabel=f"share of rows {'where it was right' if top else 'of the class'}",
            xlim=(0, 1),
            ylim=(BOTTOM, 1),
            yticks=np.linspace(0, 1, 6),
            aspect="equal",
        )
        # the square without the strip
        room = (0, BOTTOM / (BOTTOM - 1), 1, 1 / (1 - BOTTOM))
        self.ax_.legend(loc="best", fontsize="small", bbox_to_anchor=room)
        self._draw_counts(color)
        return self

    def _label(self, name: str | None) -> str:
        """Write method, class and calibration error."""
        of_class = None if self.pos_label is None else f"class {self.pos_label}"
        who = ", ".join(part for part in (name or self.name, of_class) if part)
        return f"{who or 'observed'} (ECE {self.calibration_error:.3f})"

    def _draw_counts(self, color: Any) -> None:
        """Draw the rows per bin on the strip, made by whoever comes first."""
        strip: Any = next(
            (a for a in self.ax_.child_axes if a.get_label() == STRIP_NAME), None
        )
        if strip is None:
            strip = self.ax_.inset_axes(STRIP, label=STRIP_NAME)
            strip.set(xlim=(0, 1), ylabel="rows", xticks=[])
            strip.locator_params(axis="y", nbins=2)
            strip.spines["top"].set_visible(False)
            self.ax_.axhline(0, color="black", linewidth=0.8)
        self.counts_ax_ = strip
        self.counts_ = strip.stairs(
            self.bins.count, self.bins.edges, color=color, linewidth=1.5
        )


def share_interval(
    shares: Float64Array, counts: Float64Array
) -> tuple[Float64Array, Float64Array]:
    """Say between which true shares the observed ones leave it open, exactly."""
    return share_bounds(shares * counts, counts, BAND_SHARE)
