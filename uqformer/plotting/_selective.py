"""Risk of the rows answered, when the least certain ones are passed on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from uqformer._response import spread_response
from uqformer._typing import AnyArray, Float64Array
from uqformer._validation import check_consistent_length, column_or_1d
from uqformer.metrics._selective import running_risks
from uqformer.plotting._base import (
    check_column,
    find_artist,
    open_axes,
    plain_line,
    three_digits,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

Loss: TypeAlias = Literal["zero_one", "squared", "absolute"]

# below this share a risk is the mean of too few rows to set the scale of the axis
STEADY_SHARE = 0.05
RISK_NAMES = {
    "zero_one": "error rate",
    "squared": "mean squared error",
    "absolute": "mean absolute error",
}


class RiskCoverageDisplay:
    """Risk of the rows answered against their share, the most certain ones first.

    Someone who passes the least certain rows on to a person wants to know what is left
    to fear in the others. A useful uncertainty lets the risk fall from right to left,
    at best as the oracle that knows the losses; a useless one stays at the level of a
    random order.

    Parameters
    ----------
    losses : ndarray of shape (n_samples,)
        Loss of each row, 0 or 1 for a label that is right or wrong.
    uncertainty : ndarray of shape (n_samples,)
        How uncertain each row is, in any unit: only the order counts.
    risk_name : str, default="mean loss"
        What the mean of the losses is called on the axis.
    name : str, default=None
        Name of the method in the legend.

    Attributes
    ----------
    coverages : ndarray of shape (n_samples,)
        Share of the rows answered, rising from ``1 / n_samples`` to 1.
    risks : ndarray of shape (n_samples,)
        Mean loss of the rows answered, the most certain ones first.
    oracle_risks : ndarray of shape (n_samples,)
        The same with the least losses first.
    ax_ : matplotlib Axes
        Axes of the figure.
    figure_ : matplotlib Figure
        Figure that holds the axes.
    line_ : matplotlib Line2D
        Risk against coverage.
    oracle_ : matplotlib Line2D
        Best curve that these losses allow; shared by the displays of the axes that
        have the same losses.
    random_ : matplotlib Line2D
        Risk of a random order; shared by the displays of the axes with the same risk.

    See Also
    --------
    uqformer.metrics.risk_coverage_curve : The curve of a classifier, with thresholds.
    uqformer.metrics.area_under_risk_coverage_error : Its area.
    ReliabilityDisplay : Whether the probabilities themselves are right.

    Notes
    -----
    AURC, in the legend, is the mean of the risks over all coverages [2]_. It mixes how
    good the predictions are with how well they are ordered, so methods that predict
    differently are to be judged by the distance to their own oracle. Rows of equal
    uncertainty count as if in random order, by their mean loss, so the figure does not
    depend on the order of the rows. The left end averages few rows and is noisy: the
    first twentieth has no say in the height of the axis and may stick out.

    References
    ----------
    .. [1] R. El-Yaniv and Y. Wiener (2010), "On the foundations of noise-free selective
       classification", Journal of Machine Learning Research 11.
    .. [2] Y. Geifman, G. Uziel and R. El-Yaniv (2019), "Bias-reduced uncertainty
       estimation for deep neural classifiers", International Conference on Learning
       Representations.

    Examples
    --------
    >>> from uqformer.plotting import RiskCoverageDisplay
    >>> display = RiskCoverageDisplay.from_predictions(
    ...     ["cat", "dog", "dog", "cow"],
    ...     ["cat", "dog", "cow", "cow"],
    ...     [0.1, 0.2, 0.9, 0.3],
    ... )
    >>> display.coverages
    array([0.25, 0.5 , 0.75, 1.  ])
    >>> display.risks
    array([0.  , 0.  , 0.  , 0.25])
    """

    def __init__(
        self,
        losses: Float64Array,
        uncertainty: Float64Array,
        *,
        risk_name: str = "mean loss",
        name: str | None = None,
    ) -> None:
        self.losses = losses
        self.uncertainty = uncertainty
        self.risk_name = risk_name
        self.name = name
        self.coverages = np.arange(1, len(losses) + 1) / len(losses)
        self.risks = running_risks(losses, uncertainty)
        self.oracle_risks = running_risks(losses, losses)

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: ArrayLike,
        y: ArrayLike,
        *,
        name: str | None = None,
        ax: Axes | None = None,
        **kwargs: Any,
    ) -> Self:
        """Predict with uncertainty, then draw.

        Parameters
        ----------
        estimator : object
            Fitted classifier with `predict_proba`, of which labels count as right or
            wrong and the largest probability as certainty, or regressor with
            ``predict(X, return_std=True)``, of which squared errors count. A pipeline
            or a search around such a one will do.
        X : array-like of shape (n_samples, n_features)
            Rows to predict.
        y : array-like of shape (n_samples,)
            True labels or targets.
        name : str, default=None
            Name in the legend. None takes the class of `estimator`.
        ax : matplotlib Axes, default=None
            Axes to draw on. None makes a new figure.
        **kwargs : dict
            Passed on to the line.

        Returns
        -------
        display : RiskCoverageDisplay
            The display, drawn.
        """
        loss: Loss
        if hasattr(estimator, "predict_proba"):
            proba = np.asarray(estimator.predict_proba(X), dtype=np.float64)
            y_pred = np.asarray(estimator.classes_)[proba.argmax(axis=1)]
            loss, uncertainty = "zero_one", 1 - proba.max(axis=1)
        else:
            y_pred, uncertainty = spread_response(estimator, X)
            loss = "squared"
        return cls.from_predictions(
            y,
            y_pred,
            uncertainty,
            loss=loss,
            name=type(estimator).__name__ if name is None else name,
            ax=ax,
            **kwargs,
        )

    @classmethod
    def from_predictions(
        cls,
        y_true: ArrayLike,
        y_pred: ArrayLike,
        uncertainty: ArrayLike,
        *,
        loss: Loss = "zero_one",
        name: str | None = None,
        ax: Axes | None = None,
        **kwargs: Any,
    ) -> Self:
        """Draw predictions and uncertainties that any method has made.

        Parameters
        ----------
        y_true : array-like of shape (n_samples,)
            True labels or targets.
        y_pred : array-like of shape (n_samples,)
            Predicted labels, or point predictions in units of `y_true`.
        uncertainty : array-like of shape (n_samples,)
            How uncertain each row is, such as an entropy, a standard deviation or the
            width of an interval: only the order counts.
        loss : {"zero_one", "squared", "absolute"}, default="zero_one"
            What a row costs: 1 if its label is wrong, or its error squared or without
            sign, for targets.
        name : str, default=None
            Name in the legend.
        ax : matplotlib Axes, default=None
            Axes to draw on. None makes a new figure.
        **kwargs : dict
            Passed on to the line.

        Returns
        -------
        display : RiskCoverageDisplay
            The display, drawn.

        Raises
        ------
        ValueError
            If lengths differ, NaN is found, or `loss` is unknown.
        """
        losses = _check_losses(y_true, y_pred, loss)
        order = check_column(uncertainty, "uncertainty")
        check_consistent_length(losses, order)
        display = cls(losses, order, risk_name=RISK_NAMES[loss], name=name)
        return display.plot(ax, **kwargs)

    @property
    def aurc(self) -> float:
        """Mean of the risks over all coverages, in units of the loss."""
        return float(self.risks.mean())

    def plot(
        self, ax: Axes | None = None, *, name: str | None = None, **kwargs: Any
    ) -> Self:
        """Draw the curve, and oracle and random order unless they are there already.

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
        display : RiskCoverageDisplay
            The display itself.
        """
        self.figure_, self.ax_ = open_axes(ax)
        self.random_ = self._draw_reference(
            "random order", np.full_like(self.risks, self.losses.mean()), (0, (1, 1))
        )
        self.oracle_ = self._draw_reference("oracle", self.oracle_risks, (0, (5, 1)))
        who = f"{name or self.name or 'observed'} (AURC {three_digits(self.aurc)})"
        style = plain_line(self.ax_, who) | {"linewidth": 2}
        (self.line_,) = self.ax_.plot(self.coverages, self.risks, **style | kwargs)
        self.ax_.set(
            xlabel="share of the rows answered, the most certain first",
            ylabel=f"{self.risk_name} of the rows answered",
            xlim=(0, 1),
            ylim=(0, 1.05 * max(map(_steady_top, self.ax_.lines)) or 1),
        )
        self.ax_.legend(loc="best")
        return self

    def _draw_reference(self, word: str, risks: Float64Array, dash: Any) -> Any:
        """Draw a curve that depends on the losses alone, once for the same losses."""
        label = f"{word} (AURC {three_digits(risks.mean())})"
        line = find_artist(self.ax_, label)
        if line is None:
            (line,) = self.ax_.plot(
                self.coverages, risks, color="0.5", linestyle=dash, label=label
            )
        return line


def _check_losses(y_true: ArrayLike, y_pred: ArrayLike, loss: Loss) -> Float64Array:
    """Return what each row costs."""
    if loss not in RISK_NAMES:
        raise ValueError(
            f"loss must be one of {', '.join(map(repr, RISK_NAMES))}; got "
            f"loss={loss!r}."
        )
    if loss == "zero_one":
        labels = _check_labels(y_true, "y_true"), _check_labels(y_pred, "y_pred")
        check_consistent_length(*labels)
        wrong: Float64Array = np.not_equal(*labels).astype(np.float64)
        return wrong
    truth, point = check_column(y_true, "y_true"), check_column(y_pred, "y_pred")
    check_consistent_length(truth, point)
    return np.abs(truth - point) if loss == "absolute" else (truth - point) ** 2


def _check_labels(values: ArrayLike, name: str) -> AnyArray:
    """Return one label per row, of any kind that can be compared."""
    labels: AnyArray = column_or_1d(values, input_name=name)
    if labels.dtype.kind == "f" and np.isnan(labels).any():
        raise ValueError(
            f"{name} must hold no NaN; got NaN in row "
            f"{int(np.argmax(np.isnan(labels)))}."
        )
    return labels


def _steady_top(line: Line2D) -> float:
    """Return the highest point of a curve where it averages enough rows."""
    shares, risks = np.asarray(line.get_xdata()), np.asarray(line.get_ydata())
    return float(risks[shares >= STEADY_SHARE].max(initial=0))
