"""Spread against skill: whether errors are as large as the predicted spread says."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from uqformer._typing import Float64Array, IntArray
from uqformer._validation import check_row_weights
from uqformer.metrics._bins import bin_means, locate, quantile_cuts
from uqformer.metrics._calibration import pit_values
from uqformer.metrics._inputs import (
    Members,
    average_samples,
    check_like_targets,
    check_members,
    check_positive_int,
    check_targets,
)

__all__ = [
    "SpreadSkillBins",
    "rank_histogram",
    "spread_skill_bins",
    "spread_skill_ratio",
]


@dataclass(frozen=True, slots=True, eq=False)
class SpreadSkillBins:
    """Predicted spread and true error in bins of equal numbers of rows.

    Parameters
    ----------
    spread : ndarray of shape (n_bins,)
        Root of the mean predicted variance in each bin, rising, in units of `y`.
    skill : ndarray of shape (n_bins,)
        Root mean squared error in each bin, in units of `y`.
    count : ndarray of shape (n_bins,)
        Number of rows.

    See Also
    --------
    spread_skill_bins : Where they come from.

    Examples
    --------
    >>> from uqformer.metrics import spread_skill_bins
    >>> bins = spread_skill_bins([1.0, -3.0], [0.0, 0.0], [1.0, 3.0], n_bins=2)
    >>> bins.spread, bins.skill
    (array([1., 3.]), array([1., 3.]))
    """

    spread: Float64Array
    skill: Float64Array
    count: IntArray


def spread_skill_ratio(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    y_std: ArrayLike,
    *,
    sample_weight: ArrayLike | None = None,
) -> float:
    """Compute the ratio of predicted spread to true error.

    Below 1 the model is too sure of itself, above 1 not sure enough.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,) or (n_samples, n_outputs)
        True targets.
    y_pred : array-like of the shape of `y_true`
        Predicted means, in units of `y_true`.
    y_std : array-like of the shape of `y_true`
        Predicted standard deviations, in units of `y_true`.
    sample_weight : array-like of shape (n_samples,), default=None
        Weights of the samples. None weighs all alike.

    Returns
    -------
    ratio : float
        Root of the mean variance over the root mean squared error, averaged over
        outputs. It describes; best is 1.

    Raises
    ------
    ValueError
        If shapes differ, NaN or infinity is found, a standard deviation is negative,
        or no prediction is off.

    See Also
    --------
    spread_skill_bins : Whether larger spreads go with larger errors.

    Notes
    -----
    Even a perfect ensemble of M members has a ratio of ``sqrt((M - 1) / (M + 1))``
    with the standard deviation and the mean of its members, since both are estimates.
    The ratio says nothing of single rows: a constant spread can have a ratio of 1.

    References
    ----------
    .. [1] V. Fortin, M. Abaza, F. Anctil and R. Turcotte (2014), "Why should ensemble
       spread match the RMSE of the ensemble mean?", Journal of Hydrometeorology 15.

    Examples
    --------
    >>> from uqformer.metrics import spread_skill_ratio
    >>> spread_skill_ratio([1.0, -3.0], [0.0, 0.0], [0.5, 1.5])
    0.5
    """
    targets = check_targets(y_true)
    squares, variances = _squares(targets, y_pred, y_std)
    weights = check_row_weights(sample_weight, targets)
    error = average_samples(squares, weights)
    if (error == 0).any():
        raise ValueError(
            "The ratio of spread to error needs an error; got y_pred equal to y_true "
            "everywhere."
        )
    return float(np.sqrt(average_samples(variances, weights) / error).mean())


def spread_skill_bins(
    y_true: ArrayLike, y_pred: ArrayLike, y_std: ArrayLike, *, n_bins: int = 10
) -> SpreadSkillBins:
    """Compute spread and error in bins of spread.

    If the spread is right row by row, both are equal in each bin up to chance, and the
    bins lie on the diagonal of a figure.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,)
        True targets.
    y_pred : array-like of shape (n_samples,)
        Predicted means, in units of `y_true`.
    y_std : array-like of shape (n_samples,)
        Predicted standard deviations, in units of `y_true`.
    n_bins : int, default=10
        Number of bins of equally many rows. Equal spreads stay together, so there may
        be fewer.

    Returns
    -------
    bins : SpreadSkillBins
        With ``spread``, ``skill`` and ``count``.

    Raises
    ------
    ValueError
        If shapes differ, there are several outputs, NaN or infinity is found, or a
        standard deviation is negative.

    See Also
    --------
    spread_skill_ratio : All rows in one number.

    References
    ----------
    .. [1] D. Levi, L. Gispan, N. Giladi and E. Fetaya (2022), "Evaluating and
       calibrating uncertainty prediction in regression tasks", Sensors 22.

    Examples
    --------
    >>> from uqformer.metrics import spread_skill_bins
    >>> bins = spread_skill_bins(
    ...     [1.0, -1.0, 2.0, 4.0], [0.0] * 4, [1.0, 1.0, 3.0, 3.0], n_bins=2
    ... )
    >>> bins.spread, bins.skill.round(2)
    (array([1., 3.]), array([1.  , 3.16]))
    """
    check_positive_int(n_bins, "n_bins")
    targets = check_targets(y_true)
    if targets.ndim != 1:
        raise ValueError(
            "y_true must have shape (n_samples,); got y_true.shape="
            f"{targets.shape}. Call once for each output."
        )
    squares, variances = _squares(targets, y_pred, y_std)
    alike = np.ones(len(targets))
    cuts = quantile_cuts(variances, alike, n_bins)
    bins = locate(variances, cuts)
    n_found = len(cuts) + 1
    return SpreadSkillBins(
        spread=np.sqrt(bin_means(variances, bins, alike, n_found)),
        skill=np.sqrt(bin_means(squares, bins, alike, n_found)),
        count=np.bincount(bins, minlength=n_found),
    )


def rank_histogram(
    y_true: ArrayLike,
    members: Members,
    *,
    random_state: int | np.random.RandomState | None = None,
) -> IntArray:
    """Count how many members lie below each target.

    If targets and members come from one distribution, all ranks are equally likely. A
    histogram heaped at both ends tells of too narrow an ensemble, heaped in the middle
    of too wide a one, sloping of a bias.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,) or (n_samples, n_outputs)
        True targets.
    members : RegressionEnsemble or array-like of shape (n_members, n_samples) or \
            (n_members, n_samples, n_outputs)
        Predictions of the members, in units of `y_true`.
    random_state : int, RandomState instance or None, default=None
        How ties are broken. Pass an int to get the same counts again.

    Returns
    -------
    counts : ndarray of shape (n_members + 1,)
        Number of targets with 0, 1, ..., n_members members below them, outputs taken
        together. A target equal to members takes a random rank among them.

    Raises
    ------
    ValueError
        If shapes do not fit, or NaN or infinity is found.

    See Also
    --------
    pit_values : Ranks on a scale from 0 to 1, whatever the number of members.

    References
    ----------
    .. [1] T. M. Hamill (2001), "Interpretation of rank histograms for verifying
       ensemble forecasts", Monthly Weather Review 129.

    Examples
    --------
    >>> from uqformer.metrics import rank_histogram
    >>> members = [[-1.0, -1.0, -1.0], [1.0, 1.0, 1.0]]
    >>> rank_histogram([0.0, 0.5, 3.0], members)
    array([0, 2, 1])
    """
    targets = check_targets(y_true)
    ensemble = check_members(members, targets)
    n_ranks = len(ensemble) + 1
    pit = pit_values(targets, ensemble, random_state=random_state)
    # a value lies inside the cell of its rank, one of n_ranks equal ones
    ranks = np.minimum((pit * n_ranks).astype(np.intp), n_ranks - 1)
    return np.bincount(ranks.reshape(-1), minlength=n_ranks)


def _squares(
    targets: Float64Array, y_pred: ArrayLike, y_std: ArrayLike
) -> tuple[Float64Array, Float64Array]:
    """Return squared errors and predicted variances."""
    std = check_like_targets(y_std, targets, "y_std")
    if (std < 0).any():
        raise ValueError(
            f"y_std must not be negative; got a smallest y_std of {std.min():g}."
        )
    return (targets - check_like_targets(y_pred, targets, "y_pred")) ** 2, std**2
