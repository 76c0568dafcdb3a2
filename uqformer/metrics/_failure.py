"""Failure detection: uncertainty that tells wrong predictions from right ones."""

import numpy as np
from numpy.typing import ArrayLike
from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve

from uqformer._typing import Float64Array
from uqformer._validation import check_probabilities, check_row_weights
from uqformer.metrics._selective import failures

__all__ = [
    "failure_aupr_score",
    "failure_auroc_score",
    "fpr_at_tpr_error",
    "share_let_through",
]


def failure_auroc_score(
    y_true: ArrayLike,
    y_proba: ArrayLike,
    *,
    uncertainty: ArrayLike | None = None,
    labels: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
) -> float:
    """Compute how well uncertainty ranks wrong predictions above right ones.

    It is the chance that a wrong prediction is less sure than a right one, ties
    counted half: the area under the ROC curve.

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
    sample_weight : array-like of shape (n_samples,), default=None
        Weights of the samples. None weighs all alike.

    Returns
    -------
    score : float
        In [0, 1]. Higher is better; 0.5 is an order by chance.

    Raises
    ------
    ValueError
        If all predictions are right or all are wrong, shapes do not fit, rows are no
        probabilities, NaN is found, or a label has no column.

    See Also
    --------
    failure_aupr_score : More weight on the rows of which the model is least sure.
    area_under_risk_coverage_error : Order and error rate in one number.

    Notes
    -----
    Models that err on unlike rows are asked unlike questions, and a model that errs
    more often may have the easier one: compare uncertainties of one model.

    References
    ----------
    .. [1] D. Hendrycks and K. Gimpel (2017), "A baseline for detecting misclassified
       and out-of-distribution examples in neural networks", ICLR.

    Examples
    --------
    >>> from uqformer.metrics import failure_auroc_score
    >>> round(failure_auroc_score([1, 1, 0, 0], [0.9, 0.6, 0.2, 0.7]), 3)
    0.667
    """
    wrong, doubt, weights = _both_kinds(
        y_true, y_proba, uncertainty, labels, sample_weight
    )
    return float(roc_auc_score(wrong, doubt, sample_weight=weights))


def failure_aupr_score(
    y_true: ArrayLike,
    y_proba: ArrayLike,
    *,
    uncertainty: ArrayLike | None = None,
    labels: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
) -> float:
    """Compute the average precision of uncertainty in finding wrong predictions.

    Also called AUPR-error: of the rows that are flagged, how many are wrong, averaged
    over the thresholds that find one more.

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
    sample_weight : array-like of shape (n_samples,), default=None
        Weights of the samples. None weighs all alike.

    Returns
    -------
    score : float
        In [0, 1]. Higher is better; an order by chance gives the error rate.

    Raises
    ------
    ValueError
        If all predictions are right or all are wrong, shapes do not fit, rows are no
        probabilities, NaN is found, or a label has no column.

    See Also
    --------
    failure_auroc_score : Does not depend on the error rate.

    References
    ----------
    .. [1] D. Hendrycks and K. Gimpel (2017), "A baseline for detecting misclassified
       and out-of-distribution examples in neural networks", ICLR.

    Examples
    --------
    >>> from uqformer.metrics import failure_aupr_score
    >>> failure_aupr_score([1, 1, 0, 0], [0.9, 0.6, 0.2, 0.7])
    0.5
    """
    wrong, doubt, weights = _both_kinds(
        y_true, y_proba, uncertainty, labels, sample_weight
    )
    return float(average_precision_score(wrong, doubt, sample_weight=weights))


def fpr_at_tpr_error(
    y_true: ArrayLike,
    y_proba: ArrayLike,
    *,
    tpr: float = 0.95,
    uncertainty: ArrayLike | None = None,
    labels: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
) -> float:
    """Compute the share of wrong predictions let through with most right ones.

    The threshold lets a share `tpr` of the right predictions through. "Positive" is a
    right prediction, so the false positive rate is that of the wrong ones.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,)
        True labels: ints, strings, whatever the classifier was fitted on.
    y_proba : array-like of shape (n_samples, n_classes) or (n_samples,)
        Predicted probabilities; a flat array holds those of the positive one, the
        second, of two classes.
    tpr : float, default=0.95
        Share of the right predictions let through, at least; strictly between 0 and 1.
    uncertainty : array-like of shape (n_samples,), default=None
        Larger is less sure, in any unit: entropy, mutual information. None takes the
        largest probability of each row, turned around.
    labels : array-like of shape (n_classes,), default=None
        Label of each column, such as ``estimator.classes_``. None takes the sorted
        labels in `y_true` if there is one for each column, or else 0, 1, 2, ...
    sample_weight : array-like of shape (n_samples,), default=None
        Weights of the samples. None weighs all alike.

    Returns
    -------
    error : float
        In [0, 1]. Lower is better; an order by chance gives `tpr`.

    Raises
    ------
    ValueError
        If all predictions are right or all are wrong, `tpr` is outside (0, 1), shapes
        do not fit, rows are no probabilities, NaN is found, or a label has no column.

    See Also
    --------
    ood_fpr_at_tpr_error : The same for outsiders instead of wrong predictions.

    References
    ----------
    .. [1] C. Corbiere, N. Thome, A. Bar-Hen, M. Cord and P. Perez (2019), "Addressing
       failure prediction by learning model confidence", NeurIPS.

    Examples
    --------
    >>> from uqformer.metrics import fpr_at_tpr_error
    >>> fpr_at_tpr_error([1, 1, 0, 0], [0.9, 0.6, 0.2, 0.7])
    1.0
    >>> fpr_at_tpr_error([1, 1, 0, 0], [0.9, 0.6, 0.2, 0.7], tpr=0.3)
    0.0
    """
    wrong, doubt, weights = _both_kinds(
        y_true, y_proba, uncertainty, labels, sample_weight
    )
    return share_let_through(wrong, doubt, tpr, weights)


def share_let_through(
    bad: Float64Array, doubt: Float64Array, tpr: float, weights: Float64Array
) -> float:
    """Return the share of the bad rows below a threshold that lets the good through."""
    check_probabilities(tpr, "tpr")
    bad_shares, good_shares, _ = roc_curve(
        1 - bad, -doubt, sample_weight=weights, drop_intermediate=False
    )
    return float(bad_shares[np.argmax(good_shares >= tpr)])


def _both_kinds(
    y_true: ArrayLike,
    y_proba: ArrayLike,
    uncertainty: ArrayLike | None,
    labels: ArrayLike | None,
    sample_weight: ArrayLike | None,
) -> tuple[Float64Array, Float64Array, Float64Array]:
    """Return failures, uncertainties and weights of rows of which some are wrong."""
    wrong, doubt = failures(y_true, y_proba, uncertainty, labels)
    weights = check_row_weights(sample_weight, wrong)
    rate = np.average(wrong, weights=weights)
    if rate in (0, 1):
        raise ValueError(
            "Failure detection needs right and wrong predictions; got only "
            f"{'wrong' if rate else 'right'} ones in {len(wrong)} rows. Judge by more "
            "rows, or by area_under_risk_coverage_error, which needs no failure."
        )
    return wrong, doubt, weights
