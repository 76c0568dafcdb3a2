"""Bins along one axis: of equal width, or of equal share of the rows."""

import numpy as np

from uqformer._typing import Float64Array, IntArray
from uqformer.metrics._inputs import check_option

__all__ = ["bin_edges", "bin_means", "locate"]


def bin_edges(
    values: Float64Array, weights: Float64Array, n_bins: int, strategy: str
) -> Float64Array:
    """Return the edges of bins over [0, 1] for probabilities."""
    check_option(strategy, "strategy", ("uniform", "quantile"))
    if strategy == "uniform":
        return np.linspace(0, 1, n_bins + 1)
    return np.concatenate([[0.0], quantile_cuts(values, weights, n_bins), [1.0]])


def quantile_cuts(
    values: Float64Array, weights: Float64Array, n_bins: int
) -> Float64Array:
    """Return the inner edges of bins that hold equal shares of the weight.

    A bin begins with the first value that no longer fits into those before it. Equal
    values stay together, so there are fewer bins where values repeat.
    """
    order = np.argsort(values)
    filled = np.cumsum(weights[order])
    wanted = filled[-1] * np.arange(1, n_bins) / n_bins
    # a row of weight 0 at the end may lie beyond every share
    first = np.minimum(np.searchsorted(filled, wanted, side="right"), len(values) - 1)
    cuts = np.unique(values[order][first])
    inner: Float64Array = cuts[cuts > values.min()]
    return inner


def locate(values: Float64Array, cuts: Float64Array) -> IntArray:
    """Return the bin of each value; a value on an inner edge begins the next bin."""
    bins: IntArray = np.searchsorted(cuts, values, side="right")
    return bins


def bin_means(
    values: Float64Array, bins: IntArray, weights: Float64Array, n_bins: int
) -> Float64Array:
    """Average values in each bin; NaN where a bin weighs nothing."""
    totals = np.bincount(bins, weights * values, minlength=n_bins)
    mass = np.bincount(bins, weights, minlength=n_bins)
    means: Float64Array = np.full(n_bins, np.nan)
    np.divide(totals, mass, out=means, where=mass > 0)
    return means
