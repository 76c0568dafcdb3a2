"""Where the targets fall among the members: a histogram that should be flat."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike

from uqformer._response import ensemble_response
from uqformer._typing import Float64Array
from uqformer.metrics import pit_values, pit_wasserstein_error
from uqformer.plotting._base import (
    BAND_SHARE,
    binomial_range,
    check_column,
    check_n_bins,
    find_artist,
    open_axes,
    percent,
    plain_line,
    start_at_zero,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class PITHistogramDisplay:
    """Where targets fall among the members of an ensemble, as a histogram.

    A calibrated ensemble has a flat one. Heaped at both ends it is too narrow, heaped
    in the middle too wide, heaped on the right it predicts too low. The grey band
    tells how far chance alone takes a bin of a calibrated ensemble.

    Parameters
    ----------
    pit : ndarray of shape (n_samples,)
        Probability integral transforms of the targets, in [0, 1].
    n_bins : int, default=10
        Number of bins, all of one width.
    wasserstein_error : float, default=None
        Distance of `pit` from uniform, for the legend. None leaves it out.
    name : str, default=None
        Name of the method in the legend.

    Attributes
    ----------
    counts : ndarray of shape (n_bins,)
        Targets in each bin.
    ax_ : matplotlib Axes
        Axes of the figure.
    figure_ : matplotlib Figure
        Figure that holds the axes.
    steps_ : matplotlib StepPatch
        Share of the targets in each bin.
    level_ : matplotlib Line2D
        Share that a flat histogram has in each bin; shared by the displays of the axes
        that have as many bins.
    band_ : matplotlib Rectangle
        Central 95 % of what a bin of a calibrated ensemble shows; shared by the
        displays of the axes that have as many bins and rows.

    See Also
    --------
    CoverageDisplay : The like for prediction intervals.
    uqformer.metrics.pit_values : The values that are counted.
    uqformer.metrics.rank_histogram : The counts of one bin for each rank.
    uqformer.metrics.pit_wasserstein_error : Their distance from uniform.

    Notes
    -----
    The values are randomised, hence uniform for a calibrated ensemble of any size and
    with any number of bins. With ``n_bins=n_members + 1`` each bin is one rank of the
    target among the members: the rank histogram of weather forecasters [1]_.

    A bin of a calibrated ensemble holds a binomial number of targets, of probability
    ``1 / n_bins`` each. The band holds bin by bin, so about one bin in twenty may leave
    it by chance. Rows must be independent for that; neighbours in time are not.

    References
    ----------
    .. [1] T. M. Hamill (2001), "Interpretation of rank histograms for verifying
       ensemble forecasts", Monthly Weather Review 129.
    .. [2] T. Gneiting, F. Balabdaoui and A. E. Raftery (2007), "Probabilistic
       forecasts, calibration and sharpness", Journal of the Royal Statistical
       Society B 69.

    Examples
    --------
    >>> from uqformer.plotting import PITHistogramDisplay
    >>> members = [[-1.0, -1.0, -1.0], [0.0, 0.0, 0.0], [1.0, 1.0, 1.0]]
    >>> display = PITHistogramDisplay.from_predictions(
    ...     [-2.0, 0.5, 3.0], members, n_bins=4, random_state=0
    ... )
    >>> display.counts
    array([1, 0, 1, 1])
    """

    def __init__(
        self,
        pit: Float64Array,
        *,
        n_bins: int = 10,
        wasserstein_error: float | None = None,
        name: str | None = None,
    ) -> None:
        self.pit = pit
        self.n_bins = n_bins
        self.wasserstein_error = wasserstein_error
        self.name = name
        self.counts, _ = np.histogram(pit, n_bins, range=(0, 1))

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: ArrayLike,
        y: ArrayLike,
        *,
        n_bins: int = 10,
        random_state: int | np.random.RandomState | None = None,
        name: str | None = None,
        ax: Axes | None = None,
        **kwargs: Any,
    ) -> Self:
        """Ask for the members, then draw.

        Parameters
        ----------
        estimator : object
            Fitted, with `predict_ensemble`; a pipeline or a search around such a one
            will do.
        X : array-like of shape (n_samples, n_features)
            Rows to predict, fresh ones: neither trained nor calibrated on.
        y : array-like of shape (n_samples,)
            True targets.
        n_bins : int, default=10
            Number of bins.
        random_state : int, RandomState instance or None, default=None
            Where the jitter of the values comes from.
        name : str, default=None
            Name in the legend. None takes the class of `estimator`.
        ax : matplotlib Axes, default=None
            Axes to draw on. None makes a new figure.
        **kwargs : dict
            Passed on to the steps.

        Returns
        -------
        display : PITHistogramDisplay
            The display, drawn.
        """
        return cls.from_predictions(
            y,
            ensemble_response(estimator, X),
            n_bins=n_bins,
            random_state=random_state,
            name=type(estimator).__name__ if name is None else name,
            ax=ax,
            **kwargs,
        )

    @classmethod
    def from_predictions(
        cls,
        y_true: ArrayLike,
        members: Any,
        *,
        n_bins: int = 10,
        random_state: int | np.random.RandomState | None = None,
        name: str | None = None,
        ax: Axes | None = None,
        **kwargs: Any,
    ) -> Self:
        """Draw the histogram of an ensemble that any method has made.

        Parameters
        ----------
        y_true : array-like of shape (n_samples,)
            True targets.
        members : RegressionEnsemble or array-like of shape (n_members, n_samples)
            Predictions of the members, in units of `y_true`.
        n_bins : int, default=10
            Number of bins.
        random_state : int, RandomState instance or None, default=None
            Where the jitter of the values comes from. Pass an int to get the same
            figure again.
        name : str, default=None
            Name in the legend.
        ax : matplotlib Axes, default=None
            Axes to draw on. None makes a new figure.
        **kwargs : dict
            Passed on to the steps.

        Returns
        -------
        display : PITHistogramDisplay
            The display, drawn.

        Raises
        ------
        ValueError
            If shapes do not fit, or NaN or infinity is found.
        """
        check_n_bins(n_bins)
        truth = check_column(y_true, "y_true")
        # the number in the legend belongs to the very values in the figure
        seed = _fixed_seed(random_state)
        display = cls(
            pit_values(truth, members, random_state=seed),
            n_bins=n_bins,
            wasserstein_error=pit_wasserstein_error(truth, members, random_state=seed),
            name=name,
        )
        return display.plot(ax, **kwargs)

    def plot(
        self, ax: Axes | None = None, *, name: str | None = None, **kwargs: Any
    ) -> Self:
        """Draw the steps, and the flat level and its band unless they are there.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to draw on, those of another method for instance. None makes a new
            figure.
        name : str, default=None
            Name in the legend. None takes the display's own.
        **kwargs : dict
            Passed on to the steps.

        Returns
        -------
        display : PITHistogramDisplay
            The display itself.
        """
        self.figure_, self.ax_ = open_axes(ax)
        self._draw_reference()
        style = plain_line(self.ax_, self._label(name)) | {"linewidth": 2}
        edges = np.linspace(0, 1, self.n_bins + 1)
        shares = self.counts / self.counts.sum()
        self.steps_ = self.ax_.stairs(shares, edges, **style | kwargs)
        self.ax_.set(
            xlabel="place of the target among the members (PIT)",
            ylabel="share of the targets",
            xlim=(0, 1),
        )
        start_at_zero(self.ax_)
        self.ax_.legend(loc="best")
        return self

    def _label(self, name: str | None) -> str:
        """Write method and distance from uniform."""
        who = name or self.name or "observed"
        if self.wasserstein_error is None:
            return who
        return f"{who} (W1 {self.wasserstein_error:.3f})"

    def _draw_reference(self) -> None:
        """Draw what a calibrated ensemble shows: the flat level, and chance around."""
        flat = 1 / self.n_bins
        n_rows = int(self.counts.sum())
        label = (
            f"{percent(BAND_SHARE)} of calibrated results, {n_rows} rows in "
            f"{self.n_bins} bins"
        )
        self.band_ = find_artist(self.ax_, label)
        if self.band_ is None:
            low, high = map(float, binomial_range(flat, n_rows))
            self.band_ = self.ax_.axhspan(
                low, high, color="0.88", linewidth=0, label=label
            )
        label = f"calibrated: {percent(flat)} in each bin"
        self.level_ = find_artist(self.ax_, label)
        if self.level_ is None:
            self.level_ = self.ax_.axhline(
                flat, color="0.4", linestyle=":", label=label
            )


def _fixed_seed(random_state: int | np.random.RandomState | None) -> int:
    """Turn any source of chance into one number that can be used twice."""
    if isinstance(random_state, (int, np.integer)):
        return int(random_state)
    # a fresh generator, since None would move numpy's global one
    generator = np.random.RandomState() if random_state is None else random_state
    return int(generator.randint(np.iinfo(np.int32).max))
