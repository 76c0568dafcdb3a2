"""Conditional coverage: whether the level is also kept in parts of the data."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betaincinv
from sklearn.utils import assert_all_finite

from uqformer._typing import AnyArray, Float64Array, IntArray
from uqformer._validation import (
    check_consistent_length,
    check_interval,
    check_probabilities,
    column_or_1d,
)
from uqformer.metrics._bins import bin_means, locate, quantile_cuts
from uqformer.metrics._inputs import check_positive_int, check_targets

__all__ = [
    "CoverageTable",
    "coverage_by_group",
    "coverage_by_width",
    "covered_rows",
    "share_bounds",
]


@dataclass(frozen=True, slots=True, eq=False)
class CoverageTable:
    """Coverage of prediction intervals in parts of the data.

    Parameters
    ----------
    group : ndarray of shape (n_groups,)
        What each part is called: a label, or the mean width of its intervals.
    count : ndarray of shape (n_groups,)
        Number of rows.
    coverage : ndarray of shape (n_groups,)
        Share of the targets inside their interval, in [0, 1].
    lower, upper : ndarray of shape (n_groups,)
        Bounds on the coverage that more rows of the same kind would show.

    See Also
    --------
    coverage_by_group : Parts by a label.
    coverage_by_width : Parts by the width of the interval.

    Examples
    --------
    >>> from uqformer.metrics import coverage_by_group
    >>> table = coverage_by_group(
    ...     [0.5, 0.5, 2.0], [[0.0, 1.0]] * 3, ["near", "near", "far"]
    ... )
    >>> dict(zip(table.group.tolist(), table.coverage.tolist()))
    {'far': 0.0, 'near': 1.0}
    """

    group: AnyArray
    count: IntArray
    coverage: Float64Array
    lower: Float64Array
    upper: Float64Array


def coverage_by_group(
    y_true: ArrayLike,
    y_interval: ArrayLike,
    groups: ArrayLike,
    *,
    bound_level: float = 0.95,
) -> CoverageTable:
    """Compute the coverage within each group of rows, with binomial bounds.

    Intervals that cover 90 % of all rows may cover 99 % of one group and 60 % of
    another.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,)
        True targets.
    y_interval : array-like of shape (n_samples, 2)
        Lower and upper ends, in units of `y_true`.
    groups : array-like of shape (n_samples,)
        Label of each row's group, of one kind: all ints or all strings.
    bound_level : float, default=0.95
        How often a pair of bounds holds the true coverage, at least; strictly between
        0 and 1.

    Returns
    -------
    table : CoverageTable
        With ``group`` (sorted), ``count``, ``coverage``, ``lower`` and ``upper``.

    Raises
    ------
    ValueError
        If shapes do not fit, a lower end lies above its upper end, or NaN is found.

    See Also
    --------
    coverage_by_width : Groups by the width of the interval.
    coverage_score : All rows in one group.

    Notes
    -----
    The bounds are exact, not approximate: they hold for any number of independent
    rows [1]_, each pair by itself. Of 20 groups one pair is expected to miss.

    References
    ----------
    .. [1] C. J. Clopper and E. S. Pearson (1934), "The use of confidence or fiducial
       limits illustrated in the case of the binomial", Biometrika 26.

    Examples
    --------
    >>> from uqformer.metrics import coverage_by_group
    >>> table = coverage_by_group(
    ...     [0.5, 0.5, 2.0], [[0.0, 1.0]] * 3, ["near", "near", "far"]
    ... )
    >>> table.group, table.coverage
    (array(['far', 'near'], dtype='<U4'), array([0., 1.]))
    >>> table.lower.round(3), table.upper.round(3)
    (array([0.   , 0.158]), array([0.975, 1.   ]))
    """
    covered = covered_rows(y_true, y_interval)
    labels = column_or_1d(groups)
    assert_all_finite(labels, input_name="groups")
    check_consistent_length(covered, labels)
    names, codes = np.unique(labels, return_inverse=True)
    return _tabulate(names, covered, codes, bound_level)


def coverage_by_width(
    y_true: ArrayLike,
    y_interval: ArrayLike,
    *,
    n_bins: int = 5,
    bound_level: float = 0.95,
) -> CoverageTable:
    """Compute the coverage of narrow intervals, of wide ones and of those between.

    If widths follow the difficulty of the rows, all are covered alike. Low coverage
    of the narrow ones means that the model is too sure where it is surest.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,)
        True targets.
    y_interval : array-like of shape (n_samples, 2)
        Lower and upper ends, in units of `y_true`.
    n_bins : int, default=5
        Number of bins of equally many rows, from narrow to wide. Equal widths stay
        together, so there may be fewer.
    bound_level : float, default=0.95
        How often a pair of bounds holds the true coverage, at least; strictly between
        0 and 1.

    Returns
    -------
    table : CoverageTable
        With ``group``, the mean width of the intervals in each bin in units of
        `y_true`, ``count``, ``coverage``, ``lower`` and ``upper``.

    Raises
    ------
    ValueError
        If shapes do not fit, a lower end lies above its upper end, or NaN is found.

    See Also
    --------
    coverage_by_group : Groups by a label.
    worst_slab_coverage_score : Groups sought in the space of the features.

    References
    ----------
    .. [1] A. N. Angelopoulos, S. Bates, J. Malik and M. I. Jordan (2021),
       "Uncertainty sets for image classifiers using conformal prediction", ICLR:
       coverage stratified by size.

    Examples
    --------
    >>> from uqformer.metrics import coverage_by_width
    >>> y_interval = [[-1.0, 1.0], [-1.0, 1.0], [-3.0, 3.0], [-3.0, 3.0]]
    >>> table = coverage_by_width([0.0, 2.0, 2.0, 2.0], y_interval, n_bins=2)
    >>> table.group, table.coverage
    (array([2., 6.]), array([0.5, 1. ]))
    """
    check_positive_int(n_bins, "n_bins")
    covered = covered_rows(y_true, y_interval)
    ends = np.asarray(y_interval, dtype=np.float64)
    widths, alike = ends[:, 1] - ends[:, 0], np.ones(len(ends))
    cuts = quantile_cuts(widths, alike, n_bins)
    bins = locate(widths, cuts)
    means = bin_means(widths, bins, alike, len(cuts) + 1)
    return _tabulate(means, covered, bins, bound_level)


def covered_rows(y_true: ArrayLike, y_interval: ArrayLike) -> Float64Array:
    """Return 1.0 for rows whose target lies in its closed interval; one output only."""
    targets = check_targets(y_true)
    interval = check_interval(y_interval)
    if interval.shape != (*targets.shape, 2):
        raise ValueError(
            "y_interval must have shape (n_samples, 2) for y_true of shape "
            f"(n_samples,); got y_interval.shape={interval.shape}, y_true.shape="
            f"{targets.shape}. Take one output and one level at a time."
        )
    inside = (interval[:, 0] <= targets) & (targets <= interval[:, 1])
    return inside.astype(np.float64)


def _tabulate(
    names: AnyArray, covered: Float64Array, codes: IntArray, bound_level: float
) -> CoverageTable:
    """Count covered rows in each group and bound their share."""
    check_probabilities(bound_level, "bound_level")
    count = np.bincount(codes, minlength=len(names))
    hits = np.bincount(codes, covered, minlength=len(names))
    lower, upper = share_bounds(hits, count, bound_level)
    return CoverageTable(names, count, hits / count, lower, upper)


def share_bounds(
    hits: AnyArray, count: AnyArray, level: float
) -> tuple[Float64Array, Float64Array]:
    """Bound the true share behind `hits` of `count`, as Clopper and Pearson do."""
    tail = (1 - level) / 2
    lower, upper = np.zeros(len(hits)), np.ones(len(hits))
    # no beta law belongs to no hits or no misses, where the bound is 0 or 1
    some, gaps = hits > 0, hits < count
    lower[some] = betaincinv(hits[some], (count - hits + 1)[some], tail)
    upper[gaps] = betaincinv((hits + 1)[gaps], (count - hits)[gaps], 1 - tail)
    return lower, upper
