"""Detection of outsiders: rows from another distribution than the training data."""

import numpy as np
from numpy.typing import ArrayLike
from sklearn.metrics import average_precision_score, roc_auc_score

from uqformer._typing import Float64Array
from uqformer._validation import check_array, column_or_1d
from uqformer.metrics._failure import share_let_through

__all__ = ["ood_aupr_score", "ood_auroc_score", "ood_fpr_at_tpr_error"]


def ood_auroc_score(in_scores: ArrayLike, out_scores: ArrayLike) -> float:
    """Compute how well a score ranks outsiders above rows like the training data.

    It is the chance that an outsider scores higher than an insider, ties counted half:
    the area under the ROC curve.

    Parameters
    ----------
    in_scores : array-like of shape (n_in,)
        How strange each row from the distribution of the training data looks to the
        model. *Larger is stranger*, as with an entropy or a mutual information; turn
        the sign of a confidence or a logit around.
    out_scores : array-like of shape (n_out,)
        The same of the outsiders.

    Returns
    -------
    score : float
        In [0, 1]. Higher is better; 0.5 is chance, and below it the sign is wrong.

    Raises
    ------
    ValueError
        If an array is not flat or empty, or NaN or infinity is found.

    See Also
    --------
    ood_aupr_score : More weight on the strangest rows.
    failure_auroc_score : Wrong predictions instead of outsiders.

    References
    ----------
    .. [1] D. Hendrycks and K. Gimpel (2017), "A baseline for detecting misclassified
       and out-of-distribution examples in neural networks", ICLR.

    Examples
    --------
    >>> from uqformer.metrics import ood_auroc_score
    >>> ood_auroc_score([0.1, 0.2, 0.6], [0.5, 0.9])
    0.8333333333333334
    """
    outside, scores = _stack(in_scores, out_scores)
    return float(roc_auc_score(outside, scores))


def ood_aupr_score(in_scores: ArrayLike, out_scores: ArrayLike) -> float:
    """Compute the average precision of a score in finding outsiders.

    Also called AUPR-out: of the rows that are flagged, how many are outsiders,
    averaged over the thresholds that find one more.

    Parameters
    ----------
    in_scores : array-like of shape (n_in,)
        How strange each row from the distribution of the training data looks to the
        model. *Larger is stranger*; turn the sign of a confidence around.
    out_scores : array-like of shape (n_out,)
        The same of the outsiders.

    Returns
    -------
    score : float
        In [0, 1]. Higher is better; chance gives the share of outsiders, so compare
        only where this share is the same.

    Raises
    ------
    ValueError
        If an array is not flat or empty, or NaN or infinity is found.

    See Also
    --------
    ood_auroc_score : Does not depend on the share of outsiders.

    References
    ----------
    .. [1] D. Hendrycks and K. Gimpel (2017), "A baseline for detecting misclassified
       and out-of-distribution examples in neural networks", ICLR.

    Examples
    --------
    >>> from uqformer.metrics import ood_aupr_score
    >>> ood_aupr_score([0.1, 0.2, 0.6], [0.5, 0.9])
    0.8333333333333333
    """
    outside, scores = _stack(in_scores, out_scores)
    return float(average_precision_score(outside, scores))


def ood_fpr_at_tpr_error(
    in_scores: ArrayLike, out_scores: ArrayLike, *, tpr: float = 0.95
) -> float:
    """Compute the share of outsiders let through with most insiders.

    Known as FPR95. The threshold lets a share `tpr` of the rows like the training data
    through. "Positive" is such a row, so the false positive rate is that of the
    outsiders.

    Parameters
    ----------
    in_scores : array-like of shape (n_in,)
        How strange each row from the distribution of the training data looks to the
        model. *Larger is stranger*; turn the sign of a confidence around.
    out_scores : array-like of shape (n_out,)
        The same of the outsiders.
    tpr : float, default=0.95
        Share of the insiders let through, at least; strictly between 0 and 1.

    Returns
    -------
    error : float
        In [0, 1]. Lower is better; chance gives `tpr`.

    Raises
    ------
    ValueError
        If an array is not flat or empty, NaN or infinity is found, or `tpr` is outside
        (0, 1).

    See Also
    --------
    fpr_at_tpr_error : Wrong predictions instead of outsiders.

    References
    ----------
    .. [1] S. Liang, Y. Li and R. Srikant (2018), "Enhancing the reliability of
       out-of-distribution image detection in neural networks", ICLR.

    Examples
    --------
    >>> from uqformer.metrics import ood_fpr_at_tpr_error
    >>> ood_fpr_at_tpr_error([0.1, 0.2, 0.6], [0.5, 0.9])
    0.5
    """
    outside, scores = _stack(in_scores, out_scores)
    return share_let_through(outside, scores, tpr, np.ones_like(scores))


def _stack(
    in_scores: ArrayLike, out_scores: ArrayLike
) -> tuple[Float64Array, Float64Array]:
    """Return 1.0 for outsiders, and all scores in one array."""
    inside, outside = (
        column_or_1d(
            check_array(scores, dtype=np.float64, ensure_2d=False, input_name=name)
        )
        for name, scores in (("in_scores", in_scores), ("out_scores", out_scores))
    )
    is_outside = np.concatenate([np.zeros(len(inside)), np.ones(len(outside))])
    return is_outside, np.concatenate([inside, outside])
