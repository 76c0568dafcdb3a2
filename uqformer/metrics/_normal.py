"""Scores of normal predictive distributions, each a mean and a standard deviation."""

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr

from uqformer._typing import Float64Array
from uqformer._validation import check_row_weights
from uqformer.metrics._inputs import (
    average_samples,
    check_like_targets,
    check_targets,
)

__all__ = ["crps_normal_loss", "gaussian_nll_loss"]


def crps_normal_loss(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    y_std: ArrayLike,
    *,
    sample_weight: ArrayLike | None = None,
) -> float:
    """Compute the continuous ranked probability score of normal predictions.

    Where `y_std` is 0 the prediction is a point and its score the absolute error, so
    models with and without uncertainty stand on one scale.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,) or (n_samples, n_outputs)
        True targets.
    y_pred : array-like of the shape of `y_true`
        Predicted means, in units of `y_true`.
    y_std : array-like of the shape of `y_true`
        Predicted standard deviations, in units of `y_true`, not negative.
    sample_weight : array-like of shape (n_samples,), default=None
        Weights of the samples. None weighs all alike.

    Returns
    -------
    loss : float
        Mean score over samples and outputs, in units of `y_true`. Lower is better.

    Raises
    ------
    ValueError
        If shapes differ, NaN or infinity is found, or a standard deviation is
        negative.

    See Also
    --------
    crps_loss : The same score for the members of an ensemble.
    gaussian_nll_loss : Logarithmic score, harsher on far misses.

    References
    ----------
    .. [1] T. Gneiting, A. E. Raftery, A. H. Westveld and T. Goldman (2005),
       "Calibrated probabilistic forecasting using ensemble model output statistics
       and minimum CRPS estimation", Monthly Weather Review 133.

    Examples
    --------
    >>> from uqformer.metrics import crps_normal_loss
    >>> round(crps_normal_loss([0.0, 1.0], [0.0, 0.0], [1.0, 1.0]), 4)
    0.4181
    >>> crps_normal_loss([0.0, 1.0], [0.0, 0.0], [0.0, 0.0])
    0.5
    """
    targets = check_targets(y_true)
    mean = check_like_targets(y_pred, targets, "y_pred")
    std = _check_std(y_std, targets)
    distance = np.abs(targets - mean)
    spread = np.where(std > 0, std, 1.0)
    z = distance / spread
    density = np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi)
    scores = spread * (z * (2 * ndtr(z) - 1) + 2 * density - 1 / np.sqrt(np.pi))
    losses = np.where(std > 0, scores, distance)
    weights = check_row_weights(sample_weight, targets)
    return float(average_samples(losses, weights).mean())


def gaussian_nll_loss(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    y_std: ArrayLike,
    *,
    sample_weight: ArrayLike | None = None,
) -> float:
    """Compute the negative log likelihood of normal predictions.

    One far miss beside a small standard deviation can outweigh everything else; the
    CRPS is the gentler score.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,) or (n_samples, n_outputs)
        True targets.
    y_pred : array-like of the shape of `y_true`
        Predicted means, in units of `y_true`.
    y_std : array-like of the shape of `y_true`
        Predicted standard deviations, in units of `y_true`, above 0.
    sample_weight : array-like of shape (n_samples,), default=None
        Weights of the samples. None weighs all alike.

    Returns
    -------
    loss : float
        Mean over samples and outputs, in nats, the constant ``log(2 pi) / 2``
        included. Lower is better; it may be negative and moves by the logarithm of
        the scale when `y` is rescaled.

    Raises
    ------
    ValueError
        If shapes differ, NaN or infinity is found, or a standard deviation is not
        above 0.

    See Also
    --------
    crps_normal_loss : Proper score that allows a standard deviation of 0.

    References
    ----------
    .. [1] T. Gneiting and A. E. Raftery (2007), "Strictly proper scoring rules,
       prediction, and estimation", Journal of the American Statistical
       Association 102, section 4.1.

    Examples
    --------
    >>> from uqformer.metrics import gaussian_nll_loss
    >>> round(gaussian_nll_loss([0.0, 1.0], [0.0, 0.0], [1.0, 1.0]), 4)
    1.1689
    """
    targets = check_targets(y_true)
    mean = check_like_targets(y_pred, targets, "y_pred")
    std = _check_std(y_std, targets)
    if (std == 0).any():
        raise ValueError(
            "y_std must be above 0 for a likelihood; got 0 in "
            f"{int((std == 0).sum())} of {std.size} places. Use crps_normal_loss, "
            "which allows it."
        )
    losses = 0.5 * ((targets - mean) / std) ** 2 + np.log(std) + 0.5 * np.log(2 * np.pi)
    weights = check_row_weights(sample_weight, targets)
    return float(average_samples(losses, weights).mean())


def _check_std(y_std: ArrayLike, targets: Float64Array) -> Float64Array:
    """Return standard deviations of the targets' shape after checking their sign."""
    std = check_like_targets(y_std, targets, "y_std")
    if (std < 0).any():
        raise ValueError(
            f"y_std must not be negative; got a smallest y_std of {std.min():g}."
        )
    return std
