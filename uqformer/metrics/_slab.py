"""Worst-slab coverage: where in feature space intervals cover least."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from uqformer._typing import Float64Array
from uqformer._validation import (
    check_array,
    check_consistent_length,
    check_probabilities,
)
from uqformer.metrics._conditional import covered_rows
from uqformer.metrics._inputs import check_generator, check_positive_int, row_chunks

__all__ = ["worst_slab_coverage_score"]


def worst_slab_coverage_score(
    y_true: ArrayLike,
    y_interval: ArrayLike,
    X: ArrayLike,
    *,
    min_share: float = 0.1,
    n_directions: int = 1000,
    random_state: int | np.random.RandomState | None = None,
) -> float:
    """Compute the coverage in the slab of feature space that looks worst covered.

    A slab holds all rows between two parallel planes. The worst one of many
    directions is sought on half of the rows and judged on the other half, so that
    what was found by chance does not count.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,)
        True targets.
    y_interval : array-like of shape (n_samples, 2)
        Lower and upper ends, in units of `y_true`.
    X : array-like of shape (n_samples, n_features)
        Where to look: the features, or any numbers that describe the rows. Columns
        are scaled to one deviation.
    min_share : float, default=0.1
        Share of the rows that a slab holds, at least; strictly between 0 and 1.
    n_directions : int, default=1000
        How many random directions are tried.
    random_state : int, RandomState instance or None, default=None
        Where the halves and the directions come from.

    Returns
    -------
    score : float
        Share of covered targets in the slab found, on rows that did not choose it, in
        [0, 1]. Higher is better; intervals that keep their level everywhere have
        their level, up to chance.

    Raises
    ------
    ValueError
        If shapes do not fit, a lower end lies above its upper end, NaN is found, or
        there are so few rows that none is left to judge the slab.

    See Also
    --------
    coverage_by_group : Parts of the data that are known beforehand.

    References
    ----------
    .. [1] M. Cauchois, S. Gupta and J. C. Duchi (2021), "Knowing what you know: valid
       and validated confidence sets in multiclass and multilabel prediction",
       Journal of Machine Learning Research 22.
    .. [2] Y. Romano, M. Sesia and E. J. Candes (2020), "Classification with valid and
       adaptive coverage", NeurIPS: the half that is held out.

    Examples
    --------
    >>> import numpy as np
    >>> from uqformer.metrics import coverage_score, worst_slab_coverage_score
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, size=(2000, 2))
    >>> y = np.where(X[:, 0] > 0.5, 3.0, 0.3) * rng.normal(size=2000)
    >>> y_interval = np.tile([-2.0, 2.0], (2000, 1))
    >>> coverage_score(y, y_interval) > 0.8
    True
    >>> worst_slab_coverage_score(
    ...     y, y_interval, X, n_directions=50, random_state=0
    ... ) < 0.6
    True
    """
    covered = covered_rows(y_true, y_interval)
    features = check_array(X, dtype=np.float64, input_name="X")
    check_consistent_length(covered, features)
    check_probabilities(min_share, "min_share")
    check_positive_int(n_directions, "n_directions")
    deviations = features.std(axis=0)
    features = features / np.where(deviations > 0, deviations, 1.0)
    generator = check_generator(random_state)
    seek, judge = np.array_split(generator.permutation(len(covered)), 2)
    directions = generator.normal(size=(features.shape[1], n_directions))
    direction, low, high = _worst_slab(
        features[seek], covered[seek], directions, min_share
    )
    places = features[judge] @ direction
    inside = (low <= places) & (places <= high)
    if not inside.any():
        raise ValueError(
            f"No row is left to judge the slab on; got {len(covered)} rows and "
            f"min_share={min_share:g}. Pass more rows, or a larger min_share."
        )
    return float(covered[judge][inside].mean())


def _worst_slab(
    features: Float64Array,
    covered: Float64Array,
    directions: Float64Array,
    min_share: float,
) -> tuple[Float64Array, float, float]:
    """Return direction and ends of the slab with the lowest share of covered rows."""
    n_min = int(np.ceil(min_share * len(covered)))
    worst = np.inf
    found: tuple[Float64Array, float, float] = (directions[:, 0], -np.inf, np.inf)
    for chunk in row_chunks(directions.shape[1], len(covered)):
        places = features @ directions[:, chunk]  # (n_samples, n_directions)
        order = np.argsort(places, axis=0)
        for k in range(places.shape[1]):
            share, first, last = lowest_run(covered[order[:, k]], n_min)
            if share < worst:
                low, high = places[order[[first, last], k], k]
                worst, found = share, (directions[:, chunk][:, k], low, high)
    return found


def lowest_run(flags: Float64Array, n_min: int) -> tuple[float, int, int]:
    """Return mean, first and last place of the run of `n_min` or more with least mean.

    A run has a mean below m if and only if its flags, m taken off each, sum below 0.
    The run of the least such sum is found in one pass, and its mean is the next m,
    until nothing lies below (Dinkelbach's method).
    """
    sums = np.concatenate([[0.0], np.cumsum(flags)])
    places = np.arange(len(sums))
    start, stop = 0, len(flags)
    while True:
        mean = (sums[stop] - sums[start]) / (stop - start)
        heights = sums - mean * places
        highest_before = np.maximum.accumulate(heights[: len(heights) - n_min])
        drops = heights[n_min:] - highest_before
        if drops.min() > -1e-9:
            return float(mean), start, stop - 1
        stop = int(drops.argmin()) + n_min
        start = int(heights[: stop - n_min + 1].argmax())
