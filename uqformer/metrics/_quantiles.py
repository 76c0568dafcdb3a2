"""Scores of predicted quantiles, and of the nested intervals between them."""

import numpy as np
from numpy.typing import ArrayLike

from uqformer._typing import Float64Array
from uqformer._validation import (
    check_confidence_level,
    check_interval,
    check_probabilities,
    check_row_weights,
)
from uqformer.metrics._inputs import (
    average_samples,
    check_like_targets,
    check_targets,
)
from uqformer.metrics._intervals import winkler_loss

__all__ = ["pinball_loss", "quantile_calibration_error", "weighted_interval_loss"]


def pinball_loss(
    y_true: ArrayLike,
    y_quantiles: ArrayLike,
    *,
    quantiles: ArrayLike,
    sample_weight: ArrayLike | None = None,
) -> float:
    """Compute the pinball loss averaged over several predicted quantiles.

    Twice this average over an even grid of quantiles approaches the CRPS of the
    distribution they describe. For a single quantile use
    `sklearn.metrics.mean_pinball_loss`.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,) or (n_samples, n_outputs)
        True targets.
    y_quantiles : array-like of shape (n_samples, n_quantiles) or \
            (n_samples, n_quantiles, n_outputs)
        Predicted quantiles, in units of `y_true`.
    quantiles : array-like of shape (n_quantiles,)
        The probabilities they belong to, strictly between 0 and 1.
    sample_weight : array-like of shape (n_samples,), default=None
        Weights of the samples. None weighs all alike.

    Returns
    -------
    loss : float
        Mean loss over samples, quantiles and outputs, in units of `y_true`. Lower is
        better.

    Raises
    ------
    ValueError
        If shapes do not fit, NaN is found, or a quantile is outside (0, 1).

    See Also
    --------
    crps_loss : The same idea for members instead of quantiles.
    quantile_calibration_error : Whether as many targets lie below as should.

    References
    ----------
    .. [1] R. Koenker and G. Bassett (1978), "Regression quantiles", Econometrica 46.

    Examples
    --------
    >>> from uqformer.metrics import pinball_loss
    >>> pinball_loss([1.0, 2.0], [[0.0, 1.0], [2.0, 4.0]], quantiles=[0.25, 0.75])
    0.1875
    """
    targets, predicted, levels = _check_quantiles(y_true, y_quantiles, quantiles)
    above = np.expand_dims(targets, 1) - predicted
    losses = np.maximum(levels * above, (levels - 1) * above)
    weights = check_row_weights(sample_weight, targets)
    return float(average_samples(losses, weights).mean())


def quantile_calibration_error(
    y_true: ArrayLike,
    y_quantiles: ArrayLike,
    *,
    quantiles: ArrayLike,
    sample_weight: ArrayLike | None = None,
) -> float:
    """Compute how far the shares of targets below predicted quantiles are off.

    Of a calibrated model a tenth of the targets lies below the quantile 0.1, half of
    them below the median, and so on.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,) or (n_samples, n_outputs)
        True targets.
    y_quantiles : array-like of shape (n_samples, n_quantiles) or \
            (n_samples, n_quantiles, n_outputs)
        Predicted quantiles, in units of `y_true`.
    quantiles : array-like of shape (n_quantiles,)
        The probabilities they belong to, strictly between 0 and 1.
    sample_weight : array-like of shape (n_samples,), default=None
        Weights of the samples. None weighs all alike.

    Returns
    -------
    error : float
        Absolute difference of share and probability, averaged over quantiles and
        outputs, in [0, 1]. Lower is better.

    Raises
    ------
    ValueError
        If shapes do not fit, NaN is found, or a quantile is outside (0, 1).

    See Also
    --------
    pinball_loss : Proper score of quantiles, by which to choose a model.
    pit_wasserstein_error : The same idea for members, at all quantiles at once.

    Notes
    -----
    It is not a proper score: the quantiles of the climate of `y` are calibrated and
    the same for every row.

    References
    ----------
    .. [1] V. Kuleshov, N. Fenner and S. Ermon (2018), "Accurate uncertainties for
       deep learning using calibrated regression", ICML; absolute differences here,
       squared ones there.

    Examples
    --------
    >>> from uqformer.metrics import quantile_calibration_error
    >>> y_quantiles = [[-1.0, 1.0]] * 4
    >>> quantile_calibration_error(
    ...     [-2.0, 0.0, 0.5, 0.8], y_quantiles, quantiles=[0.25, 0.75]
    ... )
    0.125
    """
    targets, predicted, levels = _check_quantiles(y_true, y_quantiles, quantiles)
    below = (np.expand_dims(targets, 1) <= predicted).astype(np.float64)
    shares = average_samples(below, check_row_weights(sample_weight, targets))
    return float(np.abs(shares.reshape(below.shape[1:]) - levels).mean())


def weighted_interval_loss(
    y_true: ArrayLike,
    y_interval: ArrayLike,
    *,
    confidence_level: ArrayLike,
    y_pred: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
) -> float:
    r"""Compute the Winkler loss of nested intervals, weighted by their miss rates.

    Also called weighted interval score: several intervals about one target tell of
    the whole distribution, and the loss approaches its CRPS as they become more.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,)
        True targets.
    y_interval : array-like of shape (n_samples, 2, n_levels) or (n_samples, 2)
        Lower and upper ends, in units of `y_true`.
    confidence_level : float or array-like of shape (n_levels,)
        Levels the intervals were made for, strictly between 0 and 1.
    y_pred : array-like of shape (n_samples,), default=None
        Predicted medians, the interval of level 0. None leaves them out.
    sample_weight : array-like of shape (n_samples,), default=None
        Weights of the samples. None weighs all alike.

    Returns
    -------
    loss : float
        Mean loss over samples, in units of `y_true`. Lower is better.

    Raises
    ------
    ValueError
        If shapes do not fit, a lower end lies above its upper end, NaN is found, or a
        level is outside (0, 1).

    See Also
    --------
    winkler_loss : One level.
    pinball_loss : Half of it, given the ends and the median as quantiles.

    Notes
    -----
    With K levels, miss rates :math:`\alpha_k`, Winkler losses :math:`W_k` and the
    median m it is

    .. math::

       \frac{1}{K + 1/2} \Big( \frac12 |y - m|
       + \sum_{k=1}^K \frac{\alpha_k}{2} W_k \Big),

    and without a median the first term and the 1/2 below are left out.

    References
    ----------
    .. [1] J. Bracher, E. L. Ray, T. Gneiting and N. G. Reich (2021), "Evaluating
       epidemic forecasts in an interval format", PLOS Computational Biology 17,
       equation 1.

    Examples
    --------
    >>> from uqformer.metrics import weighted_interval_loss
    >>> y_interval = [[[-1.0, -2.0], [1.0, 2.0]]]
    >>> weighted_interval_loss([1.5], y_interval, confidence_level=[0.5, 0.75])
    0.75
    >>> weighted_interval_loss(
    ...     [1.5], y_interval, confidence_level=[0.5, 0.75], y_pred=[0.0]
    ... )
    0.9
    """
    targets = check_targets(y_true)
    levels = check_confidence_level(confidence_level)
    interval = check_interval(y_interval)
    wanted = (*targets.shape, 2, len(levels))
    if targets.ndim != 1 or interval[..., None].shape[:3] != wanted:
        raise ValueError(
            "y_interval must have shape (n_samples, 2, n_levels) for y_true of shape "
            f"(n_samples,); got y_interval.shape={interval.shape}, y_true.shape="
            f"{targets.shape} and {len(levels)} levels."
        )
    interval = interval.reshape(wanted)
    weights = check_row_weights(sample_weight, targets)
    total, n_terms = 0.0, float(len(levels))
    for k, level in enumerate(levels):
        total += (
            (1 - level)
            / 2
            * winkler_loss(
                targets,
                interval[:, :, k],
                confidence_level=level,
                sample_weight=weights,
            )
        )
    if y_pred is not None:
        distance = np.abs(targets - check_like_targets(y_pred, targets, "y_pred"))
        total += float(np.average(distance, weights=weights)) / 2
        n_terms += 0.5
    return float(total / n_terms)


def _check_quantiles(
    y_true: ArrayLike, y_quantiles: ArrayLike, quantiles: ArrayLike
) -> tuple[Float64Array, Float64Array, Float64Array]:
    """Return targets, quantiles (n_samples, n_quantiles, ...) and broadcast levels."""
    targets = check_targets(y_true)
    levels = check_probabilities(quantiles, "quantiles")
    predicted = np.asarray(y_quantiles, dtype=np.float64)
    wanted = (len(targets), len(levels), *targets.shape[1:])
    if predicted.shape != wanted or np.isnan(predicted).any():
        raise ValueError(
            f"y_quantiles must have shape {wanted}, one column for each of the "
            f"quantiles, and hold no NaN; got y_quantiles.shape={predicted.shape} "
            f"with {int(np.isnan(predicted).sum())} NaN."
        )
    return targets, predicted, levels.reshape(-1, *[1] * (targets.ndim - 1))
