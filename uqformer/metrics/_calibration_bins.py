"""Confidence beside accuracy, bin by bin: the numbers of a reliability diagram."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from uqformer._typing import Float64Array
from uqformer._validation import check_row_weights
from uqformer.metrics._bins import bin_edges, bin_means, locate
from uqformer.metrics._inputs import check_positive_int
from uqformer.metrics._labels import Label, check_classes

__all__ = ["BinStrategy", "CalibrationBins", "calibration_bins"]

BinStrategy = Literal["uniform", "quantile"]


@dataclass(frozen=True, slots=True, eq=False)
class CalibrationBins:
    """Confidence and accuracy of predicted probabilities in bins of confidence.

    Parameters
    ----------
    edges : ndarray of shape (n_bins + 1,)
        From 0 to 1. A bin holds its lower edge, and the last one its upper edge too.
    confidence : ndarray of shape (n_bins,)
        Mean probability of the rows in each bin; NaN in empty bins.
    accuracy : ndarray of shape (n_bins,)
        Share of them where what was predicted is true; NaN in empty bins.
    count : ndarray of shape (n_bins,)
        Number of rows. With weights it is the number of equally weighted rows whose
        mean would vary as much, which need not be whole.
    share : ndarray of shape (n_bins,)
        Part of all rows, or of the whole weight, that lies in each bin; sums to 1.

    See Also
    --------
    calibration_bins : Where they come from.

    Examples
    --------
    >>> from uqformer.metrics import calibration_bins
    >>> bins = calibration_bins([0, 1], [0.25, 0.875], n_bins=2)
    >>> bins.confidence, bins.accuracy
    (array([   nan, 0.8125]), array([nan,  1.]))
    """

    edges: Float64Array
    confidence: Float64Array
    accuracy: Float64Array
    count: Float64Array
    share: Float64Array


def calibration_bins(
    y_true: ArrayLike,
    y_proba: ArrayLike,
    *,
    n_bins: int = 15,
    strategy: BinStrategy = "uniform",
    pos_label: Label = None,
    labels: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
) -> CalibrationBins:
    """Compute confidence and accuracy in bins of confidence.

    The numbers behind a reliability diagram and behind every binned calibration
    error: of a calibrated model, accuracy equals confidence in each bin up to chance.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,)
        True labels: ints, strings, whatever the classifier was fitted on.
    y_proba : array-like of shape (n_samples, n_classes) or (n_samples,)
        Predicted probabilities; a flat array holds those of the positive one, the
        second, of two classes.
    n_bins : int, default=15
        Number of bins over [0, 1].
    strategy : {"uniform", "quantile"}, default="uniform"
        Bins of equal width, or of equal numbers of rows. Equal probabilities stay
        together, so there may be fewer bins of the latter kind.
    pos_label : label, default=None
        None looks at the class predicted, with its probability as the confidence. A
        label looks at that class alone: how often it comes true at each probability.
    labels : array-like of shape (n_classes,), default=None
        Label of each column, such as ``estimator.classes_``. None takes the sorted
        labels in `y_true` if there is one for each column, or else 0, 1, 2, ...
    sample_weight : array-like of shape (n_samples,), default=None
        Weights of the samples. None weighs all alike.

    Returns
    -------
    bins : CalibrationBins
        With ``edges``, ``confidence``, ``accuracy``, ``count`` and ``share``.

    Raises
    ------
    ValueError
        If shapes do not fit, rows are no probabilities, NaN is found, or a label has
        no column.

    See Also
    --------
    expected_calibration_error : The bins in one number.
    sklearn.calibration.calibration_curve : Binary, and without counts and edges.

    References
    ----------
    .. [1] A. Niculescu-Mizil and R. Caruana (2005), "Predicting good probabilities
       with supervised learning", ICML.
    .. [2] C. Guo, G. Pleiss, Y. Sun and K. Q. Weinberger (2017), "On calibration of
       modern neural networks", ICML.

    Examples
    --------
    >>> from uqformer.metrics import calibration_bins
    >>> y_proba = [[0.9, 0.1], [0.7, 0.3], [0.2, 0.8], [0.6, 0.4]]
    >>> bins = calibration_bins(["a", "b", "b", "a"], y_proba, n_bins=4)
    >>> bins.accuracy
    array([nan, nan, 0.5, 1. ])
    >>> bins.count
    array([0., 0., 2., 2.])
    """
    check_positive_int(n_bins, "n_bins")
    scores, hits = check_classes(y_true, y_proba, labels).confidence(pos_label)
    weights = check_row_weights(sample_weight, scores)
    edges = bin_edges(scores, weights, n_bins, strategy)
    n_found = len(edges) - 1
    bins = locate(scores, edges[1:-1])
    mass = np.bincount(bins, weights, minlength=n_found)
    squares = np.bincount(bins, weights**2, minlength=n_found)
    count = np.divide(mass**2, squares, out=np.zeros(n_found), where=squares > 0)
    return CalibrationBins(
        edges=edges,
        confidence=bin_means(scores, bins, weights, n_found),
        accuracy=bin_means(hits, bins, weights, n_found),
        count=count,
        share=mass / mass.sum(),
    )
