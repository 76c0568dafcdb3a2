"""Selective prediction: the error that is left if a model may decline to answer."""

import numpy as np
from numpy.typing import ArrayLike

from uqformer._typing import Float64Array
from uqformer.metrics._inputs import check_like_targets
from uqformer.metrics._labels import check_classes

__all__ = [
    "area_under_risk_coverage_error",
    "excess_area_under_risk_coverage_error",
    "failures",
    "risk_coverage_curve",
    "running_risks",
]


def risk_coverage_curve(
    y_true: ArrayLike,
    y_proba: ArrayLike,
    *,
    uncertainty: ArrayLike | None = None,
    labels: ArrayLike | None = None,
) -> tuple[Float64Array, Float64Array, Float64Array]:
    """Compute the error rate among the rows a classifier is surest of.

    Rows are answered in the order of rising uncertainty. A model that knows when it
    errs has a low risk until most rows are answered.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,)
        True labels: ints, strings, whatever the classifier was fitted on.
    y_proba : array-like of shape (n_samples, n_classes) or (n_samples,)
        Predicted probabilities; a flat array holds those of the positive one, the
        second, of two classes.
    uncertainty : array-like of shape (n_samples,), default=None
        Larger is less sure, in any unit: entropy, mutual information. None takes the
        largest probability of each row, turned around.
    labels : array-like of shape (n_classes,), default=None
        Label of each column, such as ``estimator.classes_``. None takes the sorted
        labels in `y_true` if there is one for each column, or else 0, 1, 2, ...

    Returns
    -------
    coverages : ndarray of shape (n_samples,)
        Share of the rows answered, from ``1 / n_samples`` to 1.
    risks : ndarray of shape (n_samples,)
        Share of wrong answers among them. Rows of equal uncertainty come in random
        order, over which this is the expectation.
    thresholds : ndarray of shape (n_samples,)
        Largest uncertainty that is answered.

    Raises
    ------
    ValueError
        If shapes do not fit, rows are no probabilities, NaN is found, or a label has
        no column.

    See Also
    --------
    area_under_risk_coverage_error : The curve in one number.

    References
    ----------
    .. [1] R. El-Yaniv and Y. Wiener (2010), "On the foundations of noise-free
       selective classification", Journal of Machine Learning Research 11.

    Examples
    --------
    >>> from uqformer.metrics import risk_coverage_curve
    >>> coverages, risks, thresholds = risk_coverage_curve(
    ...     [1, 1, 0, 0], [0.9, 0.8, 0.3, 0.6]
    ... )
    >>> coverages
    array([0.25, 0.5 , 0.75, 1.  ])
    >>> risks
    array([0.  , 0.  , 0.  , 0.25])
    """
    wrong, doubt = failures(y_true, y_proba, uncertainty, labels)
    coverages = np.arange(1, len(wrong) + 1) / len(wrong)
    return coverages, running_risks(wrong, doubt), np.sort(doubt)


def area_under_risk_coverage_error(
    y_true: ArrayLike,
    y_proba: ArrayLike,
    *,
    uncertainty: ArrayLike | None = None,
    labels: ArrayLike | None = None,
) -> float:
    """Compute the area under the risk-coverage curve.

    Known as AURC. It rewards few errors and, of models that err as often, the one
    that is least sure of its errors.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,)
        True labels: ints, strings, whatever the classifier was fitted on.
    y_proba : array-like of shape (n_samples, n_classes) or (n_samples,)
        Predicted probabilities; a flat array holds those of the positive one, the
        second, of two classes.
    uncertainty : array-like of shape (n_samples,), default=None
        Larger is less sure, in any unit: entropy, mutual information. None takes the
        largest probability of each row, turned around.
    labels : array-like of shape (n_classes,), default=None
        Label of each column, such as ``estimator.classes_``. None takes the sorted
        labels in `y_true` if there is one for each column, or else 0, 1, 2, ...

    Returns
    -------
    error : float
        Mean risk over all coverages ``1 / n_samples, ..., 1``, in [0, 1]. Lower is
        better; a useless uncertainty gives the error rate. Rows of equal uncertainty
        come in random order, over which this is the expectation.

    Raises
    ------
    ValueError
        If shapes do not fit, rows are no probabilities, NaN is found, or a label has
        no column.

    See Also
    --------
    excess_area_under_risk_coverage_error : Without what the error rate alone causes.
    risk_coverage_curve : The curve itself.

    References
    ----------
    .. [1] Y. Geifman, G. Uziel and R. El-Yaniv (2019), "Bias-reduced uncertainty
       estimation for deep neural classifiers", ICLR.

    Examples
    --------
    >>> from uqformer.metrics import area_under_risk_coverage_error
    >>> area_under_risk_coverage_error([1, 1, 0, 0], [0.9, 0.8, 0.3, 0.6])
    0.0625
    """
    _, risks, _ = risk_coverage_curve(
        y_true, y_proba, uncertainty=uncertainty, labels=labels
    )
    return float(risks.mean())


def excess_area_under_risk_coverage_error(
    y_true: ArrayLike,
    y_proba: ArrayLike,
    *,
    uncertainty: ArrayLike | None = None,
    labels: ArrayLike | None = None,
) -> float:
    """Compute how far the risk-coverage curve lies above the best possible one.

    Known as E-AURC. The best order answers every row that is right before any that is
    wrong; its area depends on the error rate alone and is taken off, so that what is
    left judges the uncertainty.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,)
        True labels: ints, strings, whatever the classifier was fitted on.
    y_proba : array-like of shape (n_samples, n_classes) or (n_samples,)
        Predicted probabilities; a flat array holds those of the positive one, the
        second, of two classes.
    uncertainty : array-like of shape (n_samples,), default=None
        Larger is less sure, in any unit: entropy, mutual information. None takes the
        largest probability of each row, turned around.
    labels : array-like of shape (n_classes,), default=None
        Label of each column, such as ``estimator.classes_``. None takes the sorted
        labels in `y_true` if there is one for each column, or else 0, 1, 2, ...

    Returns
    -------
    error : float
        Difference of two areas, in [0, 1]. Lower is better; 0 is the best order.

    Raises
    ------
    ValueError
        If shapes do not fit, rows are no probabilities, NaN is found, or a label has
        no column.

    See Also
    --------
    area_under_risk_coverage_error : The area itself.
    failure_auroc_score : The order alone, without weight on the surest rows.

    Notes
    -----
    The best area is that of the rows at hand, not its limit
    ``r + (1 - r) * log(1 - r)`` for an error rate r.

    References
    ----------
    .. [1] Y. Geifman, G. Uziel and R. El-Yaniv (2019), "Bias-reduced uncertainty
       estimation for deep neural classifiers", ICLR.

    Examples
    --------
    >>> from uqformer.metrics import excess_area_under_risk_coverage_error
    >>> excess_area_under_risk_coverage_error([1, 1, 0, 0], [0.9, 0.8, 0.3, 0.6])
    0.0
    """
    wrong, doubt = failures(y_true, y_proba, uncertainty, labels)
    return float((running_risks(wrong, doubt) - running_risks(wrong, wrong)).mean())


def failures(
    y_true: ArrayLike,
    y_proba: ArrayLike,
    uncertainty: ArrayLike | None,
    labels: ArrayLike | None,
) -> tuple[Float64Array, Float64Array]:
    """Return 1.0 for rows predicted wrongly, and how unsure the model is of each."""
    confidence, right = check_classes(y_true, y_proba, labels).confidence(None)
    if uncertainty is None:
        return 1 - right, -confidence
    return 1 - right, check_like_targets(uncertainty, right, "uncertainty")


def running_risks(losses: Float64Array, uncertainty: Float64Array) -> Float64Array:
    """Average the losses over the most certain rows, for each number of rows."""
    _, group, counts = np.unique(uncertainty, return_inverse=True, return_counts=True)
    # in a random order each row of a tie loses as much as the tie does on average
    shared = np.bincount(group, losses) / counts
    in_order = np.repeat(shared, counts)
    risks: Float64Array = np.cumsum(in_order) / np.arange(1, len(losses) + 1)
    return risks
