"""Brier score of predicted probabilities, and its three parts."""

import numpy as np
from numpy.typing import ArrayLike
from sklearn.isotonic import IsotonicRegression

from uqformer._typing import Float64Array
from uqformer._validation import check_row_weights
from uqformer.metrics._labels import check_classes

__all__ = ["brier_decomposition", "brier_loss"]


def brier_loss(
    y_true: ArrayLike,
    y_proba: ArrayLike,
    *,
    labels: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
) -> float:
    """Compute the Brier score of class probabilities.

    The squared distance of the probabilities to the truth, which is 1 for the true
    class and 0 for the others, *summed* over classes and averaged over rows. It is
    least in expectation for the true probabilities, so it is a score to choose by.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,)
        True labels: ints, strings, whatever the classifier was fitted on.
    y_proba : array-like of shape (n_samples, n_classes) or (n_samples,)
        Predicted probabilities; a flat array holds those of the positive one, the
        second, of two classes.
    labels : array-like of shape (n_classes,), default=None
        Label of each column, such as ``estimator.classes_``. None takes the sorted
        labels in `y_true` if there is one for each column, or else 0, 1, 2, ...
    sample_weight : array-like of shape (n_samples,), default=None
        Weights of the samples. None weighs all alike.

    Returns
    -------
    loss : float
        In [0, 2]. Lower is better. For two classes it is twice the mean squared error
        of the positive one's probability, which others call by the same name.

    Raises
    ------
    ValueError
        If shapes do not fit, rows are no probabilities, NaN is found, or a label has
        no column.

    See Also
    --------
    brier_decomposition : What the loss is made of.
    sklearn.metrics.log_loss : The other usual proper score, harsher on sure misses.
    sklearn.metrics.brier_score_loss : Half of it, for two classes.

    References
    ----------
    .. [1] G. W. Brier (1950), "Verification of forecasts expressed in terms of
       probability", Monthly Weather Review 78.

    Examples
    --------
    >>> from uqformer.metrics import brier_loss
    >>> y_proba = [[0.5, 0.25, 0.25], [0.0, 1.0, 0.0]]
    >>> brier_loss(["a", "b"], y_proba, labels=["a", "b", "c"])
    0.1875
    >>> brier_loss([1, 0], [0.5, 0.0])
    0.25
    """
    predictions = check_classes(y_true, y_proba, labels)
    squares = (predictions.proba - predictions.one_hot()) ** 2
    weights = check_row_weights(sample_weight, squares)
    return float(np.average(squares.sum(axis=1), weights=weights))


def brier_decomposition(
    y_true: ArrayLike,
    y_proba: ArrayLike,
    *,
    labels: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
) -> dict[str, float]:
    """Split the Brier score into reliability, resolution and uncertainty.

    A loss that is high because the probabilities are off can be cured by calibration,
    one that is high because they tell classes apart poorly cannot. The parts say
    which it is.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,)
        True labels: ints, strings, whatever the classifier was fitted on.
    y_proba : array-like of shape (n_samples, n_classes) or (n_samples,)
        Predicted probabilities; a flat array holds those of the positive one, the
        second, of two classes.
    labels : array-like of shape (n_classes,), default=None
        Label of each column, such as ``estimator.classes_``. None takes the sorted
        labels in `y_true` if there is one for each column, or else 0, 1, 2, ...
    sample_weight : array-like of shape (n_samples,), default=None
        Weights of the samples. None weighs all alike.

    Returns
    -------
    parts : dict of str to float
        ``reliability``, lower is better, what a perfect recalibration would take off;
        ``resolution``, higher is better, what the recalibrated probabilities gain over
        the class frequencies; and ``uncertainty``, the loss of the class frequencies,
        which no model can change. None is negative, and the `brier_loss` equals
        reliability - resolution + uncertainty exactly.

    Raises
    ------
    ValueError
        If shapes do not fit, rows are no probabilities, NaN is found, or a label has
        no column.

    See Also
    --------
    brier_loss : Their sum.

    Notes
    -----
    The perfect recalibration is the best rising function of each class's probability,
    found on the same rows by isotonic regression; each class is split by itself and
    the parts are summed [2]_. There are no bins to choose, and where the frequencies
    rise with the few probabilities that were predicted, it is the classical split
    [1]_. A function found on the rows it is judged on flatters itself: with few rows
    both reliability and resolution are too large, by the same amount.

    References
    ----------
    .. [1] A. H. Murphy (1973), "A new vector partition of the probability score",
       Journal of Applied Meteorology 12.
    .. [2] T. Dimitriadis, T. Gneiting and A. I. Jordan (2021), "Stable reliability
       diagrams for probabilistic classifiers", PNAS 118.

    Examples
    --------
    >>> from uqformer.metrics import brier_decomposition, brier_loss
    >>> y_true, y_proba = [0, 0, 0, 1, 0, 1, 1, 1], [0.0] * 4 + [1.0] * 4
    >>> brier_decomposition(y_true, y_proba)
    {'reliability': 0.125, 'resolution': 0.125, 'uncertainty': 0.5}
    >>> brier_loss(y_true, y_proba)
    0.5
    """
    predictions = check_classes(y_true, y_proba, labels)
    weights = check_row_weights(sample_weight, predictions.proba)
    loss = recalibrated = uncertainty = 0.0
    for scores, truth in zip(predictions.proba.T, predictions.one_hot().T, strict=True):
        loss += _mean_square(scores - truth, weights)
        recalibrated += _mean_square(_rising_fit(scores, truth, weights), weights)
        frequency = np.average(truth, weights=weights)
        uncertainty += _mean_square(frequency - truth, weights)
    return {
        "reliability": max(0.0, loss - recalibrated),
        "resolution": max(0.0, uncertainty - recalibrated),
        "uncertainty": uncertainty,
    }


def _rising_fit(
    scores: Float64Array, truth: Float64Array, weights: Float64Array
) -> Float64Array:
    """Return the errors of the best rising function of the scores."""
    # rows of weight 0 take no part in the fit and may lie beyond its ends
    isotonic = IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip")
    fitted: Float64Array = isotonic.fit(scores, truth, weights).predict(scores)
    return fitted - truth


def _mean_square(errors: Float64Array, weights: Float64Array) -> float:
    return float(np.average(errors**2, weights=weights))
