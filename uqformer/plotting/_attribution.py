"""Where the spread comes from: a bar for each layer of attention, or for each head."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from uqformer.plotting._base import METHOD, count_methods, find_artist, open_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class AttentionVarianceDisplay:
    """Share of each part of the attention in the variance of the predictions.

    A long bar is a layer whose attention makes the spread. Where one layer has nearly
    all of it, redrawing that layer alone gives nearly the same spread.

    Parameters
    ----------
    shares : mapping of str to float
        Share of each part in the variance, in the order to draw. What parts do only
        together may stand among them under a name of its own.
    name : str, default=None
        Name of the method in the legend.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Axes of the figure, one line a part.
    figure_ : matplotlib Figure
        Figure that holds the axes.
    bars_ : matplotlib BarContainer
        Bars of the shares.

    See Also
    --------
    uqformer.attention.attention_variance : The numbers that are drawn.

    Examples
    --------
    >>> from uqformer.plotting import AttentionVarianceDisplay
    >>> display = AttentionVarianceDisplay.from_shares(
    ...     {"first": 0.75, "second": 0.3, "interaction": -0.05}
    ... )
    >>> [float(bar.get_width()) for bar in display.bars_]
    [0.75, 0.3, -0.05]
    """

    def __init__(self, shares: Mapping[str, float], *, name: str | None = None) -> None:
        self.shares = shares
        self.name = name

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        *,
        by: str = "layer",
        name: str | None = None,
        ax: Axes | None = None,
        **kwargs: Any,
    ) -> Self:
        """Ask an estimator for the shares, then draw.

        Parameters
        ----------
        estimator : object
            Fitted, with a method ``attention_shares(X, by=...)`` that returns a mapping
            of names to shares, such as a `StochasticAttentionRegressor`.
        X : array-like of shape (n_samples, n_features)
            Rows whose predictions vary.
        by : {"layer", "head"}, default="layer"
            What has a bar.
        name : str, default=None
            Name in the legend. None takes the class of `estimator`.
        ax : matplotlib Axes, default=None
            Axes to draw on. None makes a new figure.
        **kwargs : dict
            Passed on to the bars.

        Returns
        -------
        display : AttentionVarianceDisplay
            The display, drawn.

        Raises
        ------
        AttributeError
            If `estimator` has no such method.
        """
        if not hasattr(estimator, "attention_shares"):
            raise AttributeError(
                "The estimator must offer attention_shares; got "
                f"{type(estimator).__name__}, which does not. Of a pipeline, pass the "
                "last step and rows as that step takes them."
            )
        return cls.from_shares(
            estimator.attention_shares(X, by=by),
            name=type(estimator).__name__ if name is None else name,
            ax=ax,
            **kwargs,
        )

    @classmethod
    def from_shares(
        cls,
        shares: Mapping[str, float],
        *,
        name: str | None = None,
        ax: Axes | None = None,
        **kwargs: Any,
    ) -> Self:
        """Draw shares that are known already.

        Parameters
        ----------
        shares : mapping of str to float
            Share of each part in the variance, in the order to draw, such as
            ``attention_variance(...).shares``.
        name : str, default=None
            Name in the legend.
        ax : matplotlib Axes, default=None
            Axes to draw on. None makes a new figure.
        **kwargs : dict
            Passed on to the bars.

        Returns
        -------
        display : AttentionVarianceDisplay
            The display, drawn.

        Raises
        ------
        ValueError
            If there is no share, or one is not finite.
        """
        if not shares or not np.isfinite(list(shares.values())).all():
            raise ValueError(
                "shares must map at least one name to a finite share; got "
                f"shares={dict(shares)}."
            )
        return cls(dict(shares), name=name).plot(ax, **kwargs)

    def plot(
        self, ax: Axes | None = None, *, name: str | None = None, **kwargs: Any
    ) -> Self:
        """Draw the bars; those of further methods are outlines over the first.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to draw on, those of another method for instance: bars of the same name
            meet. None makes a new figure.
        name : str, default=None
            Name in the legend. None takes the display's own.
        **kwargs : dict
            Passed on to the bars.

        Returns
        -------
        display : AttentionVarianceDisplay
            The display itself.
        """
        self.figure_, self.ax_ = open_axes(ax)
        k = count_methods(self.ax_)
        style: dict[str, Any] = {"color": f"C{k}", "alpha": 0.6}
        if k > 0:
            style = {"facecolor": "none", "edgecolor": f"C{k}", "linewidth": 1.5}
        self.bars_ = self.ax_.barh(
            list(self.shares),
            list(self.shares.values()),
            **style | {"label": name or self.name or "shares"} | kwargs,
        )
        self.bars_[0].set_gid(METHOD)  # one mark a method, whatever its bars
        if find_artist(self.ax_, "_zero") is None:
            # an underscore keeps a label out of the legend
            self.ax_.axvline(0, color="0.4", linewidth=1, label="_zero")
            self.ax_.invert_yaxis()
        self.ax_.set(xlabel="share of the variance")
        self.ax_.legend(loc="best")
        return self
