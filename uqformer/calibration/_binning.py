"""Cut the predictions into bins and say how often the class came in each."""

from dataclasses import dataclass
from numbers import Integral
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit, logit

from uqformer._typing import Float64Array
from uqformer._validation import Interval, StrOptions
from uqformer.calibration._per_class import PerClassCalibrator

__all__ = ["BinMap", "HistogramBinningCalibrator"]


@dataclass(frozen=True, slots=True, eq=False)
class BinMap:
    """Probability of log-odds: `proba` of the bin between inner `edges`."""

    edges: Float64Array  # (n_bins - 1,), in nats
    proba: Float64Array  # (n_bins,)

    def __call__(self, odds: Float64Array) -> Float64Array:
        return self.proba[np.searchsorted(self.edges, odds)]


class HistogramBinningCalibrator(PerClassCalibrator):
    """Replace predictions by the frequency of the class among like predictions.

    The simplest map without a shape, and the one whose error is best understood: a
    handful of frequencies, each with its count of rows. It gives up the order within
    a bin.

    Parameters
    ----------
    n_bins : int, default=15
        Bins of each class, at least 1.
    strategy : {"uniform", "quantile"}, default="uniform"
        "uniform" makes bins equally wide in probability. "quantile" puts equally many
        rows in each, which suits two classes; of many classes each is unlikely in
        most rows, and most bins would be spent on those.
    input : {"auto", "logits", "proba"}, default="auto"
        What the columns of `X` are. "auto" takes rows in [0, 1] that sum to 1 for
        probabilities and others for logits, and raises where both are possible.
    classes : array-like of shape (n_classes,), default=None
        Label of each column. None takes whole numbers in `y` for column numbers, and
        other labels in sorted order if they are as many as the columns.

    Attributes
    ----------
    maps_ : list of callable
        One map of log-odds a class, with the inner `edges` and the `proba` of its
        bins; for two classes only that of the second.
    classes_ : ndarray of shape (n_classes,)
        Label of each column.
    input_ : {"logits", "proba"}
        What the columns were taken for.
    n_features_in_ : int
        Columns of `X`.

    See Also
    --------
    IsotonicCalibrator : Steps whose places follow the rows.

    Notes
    -----
    Each bin counts one more row, with the mean prediction of the bin for its target
    (the middle of an empty bin), so that no frequency is exactly 0 or 1.

    References
    ----------
    .. [1] B. Zadrozny and C. Elkan (2001), "Obtaining calibrated probability
       estimates from decision trees and naive Bayesian classifiers", ICML.
    .. [2] C. Guo, G. Pleiss, Y. Sun and K. Q. Weinberger (2017), "On calibration of
       modern neural networks", ICML: one map a class, normalised.

    Examples
    --------
    >>> from uqformer.calibration import HistogramBinningCalibrator
    >>> y_proba, y = [0.1, 0.2, 0.3, 0.7, 0.8, 0.9], [0, 0, 1, 1, 0, 1]
    >>> calibrator = HistogramBinningCalibrator(n_bins=2, input="proba")
    >>> calibrator.fit(y_proba, y).transform([0.0, 0.4, 0.6, 1.0])
    array([0.3, 0.3, 0.7, 0.7])
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **PerClassCalibrator._parameter_constraints,
        "n_bins": [Interval(Integral, 1, None, closed="left")],
        "strategy": [StrOptions({"quantile", "uniform"})],
    }

    def __init__(
        self,
        *,
        n_bins: int = 15,
        strategy: str = "uniform",
        input: str = "auto",
        classes: ArrayLike | None = None,
    ) -> None:
        super().__init__(input=input, classes=classes)
        self.n_bins = n_bins
        self.strategy = strategy

    def _fit_map(
        self, odds: Float64Array, hits: Float64Array, weights: Float64Array
    ) -> BinMap:
        edges = self._inner_edges(odds, weights)
        places = np.searchsorted(edges, odds)
        n_bins = len(edges) + 1
        counts = np.bincount(places, weights, n_bins)
        sums = np.bincount(places, weights * hits, n_bins)
        predicted = np.bincount(places, weights * expit(odds), n_bins)
        ends = np.concatenate([[0.0], expit(edges), [1.0]])
        middles = (ends[1:] + ends[:-1]) / 2
        prior = np.divide(predicted, counts, out=middles, where=counts > 0)
        return BinMap(edges, (sums + prior) / (counts + 1))

    def _inner_edges(self, odds: Float64Array, weights: Float64Array) -> Float64Array:
        shares = np.arange(1, self.n_bins) / self.n_bins
        if self.strategy == "uniform":
            uniform: Float64Array = logit(shares)
            return uniform
        counted = weights > 0
        values, places = np.unique(odds[counted], return_inverse=True)
        grown = np.cumsum(np.bincount(places, weights[counted]))
        last_inside = np.unique(np.searchsorted(grown, shares * grown[-1]))
        # predictions that are alike share one bin, so there may be fewer
        last_inside = last_inside[last_inside < len(values) - 1]
        edges: Float64Array = (values[last_inside] + values[last_inside + 1]) / 2
        return edges
