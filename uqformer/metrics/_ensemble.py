"""Proper scores of the members of an ensemble: CRPS and energy score."""

import numpy as np
from numpy.typing import ArrayLike

from uqformer._typing import Float64Array
from uqformer._validation import check_row_weights
from uqformer.metrics._inputs import (
    Members,
    average_samples,
    check_members,
    check_targets,
    row_chunks,
)

__all__ = ["crps_loss", "energy_loss"]


def crps_loss(
    y_true: ArrayLike,
    members: Members,
    *,
    fair: bool = False,
    sample_weight: ArrayLike | None = None,
) -> float:
    """Compute the continuous ranked probability score of an ensemble.

    It is the mean distance of the members to the target less half the mean distance
    of the members to each other: a proper score in units of `y_true` that becomes the
    absolute error for a single member.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,) or (n_samples, n_outputs)
        True targets.
    members : RegressionEnsemble or array-like of shape (n_members, n_samples) or \
            (n_members, n_samples, n_outputs)
        Predictions of the members, in units of `y_true`.
    fair : bool, default=False
        Whether to score the distribution from which the members were drawn instead of
        the members themselves. The fair score does not depend on `n_members` in
        expectation, so ensembles of unlike sizes compare; it needs two members.
    sample_weight : array-like of shape (n_samples,), default=None
        Weights of the samples. None weighs all alike.

    Returns
    -------
    loss : float
        Mean score over samples and outputs, in units of `y_true`. Lower is better.

    Raises
    ------
    ValueError
        If shapes do not fit, NaN or infinity is found, or `fair` meets one member.

    See Also
    --------
    crps_normal_loss : The same score of a normal distribution.
    energy_loss : Joint score of several outputs.

    Notes
    -----
    Members are sorted, in blocks of rows, so that time grows as ``n log n`` with
    their number and no pair of members is ever formed.

    References
    ----------
    .. [1] T. Gneiting and A. E. Raftery (2007), "Strictly proper scoring rules,
       prediction, and estimation", Journal of the American Statistical
       Association 102, equation 21.
    .. [2] C. A. T. Ferro (2014), "Fair scores for ensemble forecasts", Quarterly
       Journal of the Royal Meteorological Society 140.

    Examples
    --------
    >>> from uqformer.metrics import crps_loss
    >>> crps_loss([0.0], [[-1.0], [1.0]])
    0.5
    >>> crps_loss([0.0], [[-1.0], [1.0]], fair=True)
    0.0
    """
    targets = check_targets(y_true)
    ensemble = check_members(members, targets)
    n_pairs = _number_of_pairs(len(ensemble), fair)
    flat_targets = targets.reshape(-1)
    flat_members = ensemble.reshape(len(ensemble), -1)
    losses = np.empty_like(flat_targets)
    for cells in row_chunks(len(losses), len(ensemble)):
        errors = flat_members[:, cells] - flat_targets[cells]
        losses[cells] = _crps(errors, n_pairs)
    weights = check_row_weights(sample_weight, targets)
    return float(average_samples(losses.reshape(targets.shape), weights).mean())


def energy_loss(
    y_true: ArrayLike,
    members: Members,
    *,
    fair: bool = False,
    sample_weight: ArrayLike | None = None,
) -> float:
    """Compute the energy score of an ensemble with several outputs.

    The outputs of a sample are one vector, so members that get each output right but
    not how they move together pay for it. With one output it is the CRPS.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,) or (n_samples, n_outputs)
        True targets, the outputs in comparable units: distances are Euclidean.
    members : RegressionEnsemble or array-like of shape (n_members, n_samples) or \
            (n_members, n_samples, n_outputs)
        Predictions of the members, in units of `y_true`.
    fair : bool, default=False
        Whether to score the distribution from which the members were drawn instead of
        the members themselves; it needs two members.
    sample_weight : array-like of shape (n_samples,), default=None
        Weights of the samples. None weighs all alike.

    Returns
    -------
    loss : float
        Mean score over samples, in units of `y_true`. Lower is better.

    Raises
    ------
    ValueError
        If shapes do not fit, NaN or infinity is found, or `fair` meets one member.

    See Also
    --------
    crps_loss : Score of each output on its own.

    Notes
    -----
    Time grows with the square of `n_members`, memory does not.

    References
    ----------
    .. [1] T. Gneiting and A. E. Raftery (2007), "Strictly proper scoring rules,
       prediction, and estimation", Journal of the American Statistical
       Association 102, equation 22.

    Examples
    --------
    >>> from uqformer.metrics import energy_loss
    >>> energy_loss([[0.0, 0.0]], [[[3.0, 4.0]], [[-3.0, -4.0]]])
    2.5
    """
    targets = check_targets(y_true)
    ensemble = check_members(members, targets)
    n_pairs = _number_of_pairs(len(ensemble), fair)
    vectors = targets.reshape(len(targets), -1)
    clouds = ensemble.reshape(len(ensemble), *vectors.shape)
    losses = np.empty(len(vectors))
    for rows in row_chunks(len(vectors), clouds[:, 0].size):
        losses[rows] = _energy(clouds[:, rows] - vectors[rows], n_pairs)
    return float(np.average(losses, weights=check_row_weights(sample_weight, targets)))


def _number_of_pairs(n_members: int, fair: bool) -> int:
    """Count ordered pairs of members; a fair score leaves out each with itself."""
    if fair and n_members < 2:
        raise ValueError(
            "A fair score needs at least 2 members; got n_members=1. Try fair=False."
        )
    return n_members * (n_members - 1) if fair else n_members**2


def _crps(errors: Float64Array, n_pairs: int) -> Float64Array:
    """CRPS of each column from errors (n_members, columns).

    The k-th smallest of n members stands above k - 1 and below n - k others, so the
    sum of all distances is linear in the sorted members.
    """
    n_members = len(errors)
    signs = 2.0 * np.arange(1, n_members + 1) - n_members - 1
    half_distance = signs @ np.sort(errors, axis=0) / n_pairs
    crps: Float64Array = np.abs(errors).mean(axis=0) - half_distance
    return crps


def _energy(errors: Float64Array, n_pairs: int) -> Float64Array:
    """Energy score of each row from errors (n_members, rows, n_outputs)."""
    half_distance = np.zeros(errors.shape[1])
    for k in range(1, len(errors)):
        gaps = np.linalg.norm(errors[:k] - errors[k], axis=-1)
        half_distance += gaps.sum(axis=0) / n_pairs
    energy: Float64Array = np.linalg.norm(errors, axis=-1).mean(axis=0) - half_distance
    return energy
