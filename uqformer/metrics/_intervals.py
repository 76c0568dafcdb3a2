"""Scores of prediction intervals."""

from typing import Literal, overload

import numpy as np
from numpy.typing import ArrayLike

from uqformer._typing import Float64Array
from uqformer._validation import check_interval, check_row_weights
from uqformer.metrics._inputs import (
    MultiOutput,
    average_outputs,
    average_samples,
    check_level,
    check_targets,
)

__all__ = [
    "coverage_error",
    "coverage_score",
    "mean_interval_width",
    "winkler_loss",
]


def coverage_score(
    y_true: ArrayLike,
    y_interval: ArrayLike,
    *,
    sample_weight: ArrayLike | None = None,
    multioutput: MultiOutput = "uniform_average",
) -> float | Float64Array:
    """Compute the share of targets inside their prediction interval.

    Both ends belong to the interval. Coverage says nothing about width, so infinite
    intervals are always right: choose models by a proper score such as
    `winkler_loss`, and watch coverage.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,) or (n_samples, n_outputs)
        True targets.
    y_interval : array-like of shape (n_samples, 2), (n_samples, 2, n_levels) or \
            (n_samples, 2, n_outputs)
        Lower and upper ends, in units of `y_true`. A third axis holds outputs if
        `y_true` has several and confidence levels if it has one.
    sample_weight : array-like of shape (n_samples,), default=None
        Weights of the samples. None weighs all alike.
    multioutput : {"raw_values", "uniform_average"} or array-like of shape \
            (n_outputs,), default="uniform_average"
        How several outputs become one number: by their mean, by a mean with these
        weights, or not at all, with one number for each. What matters for a horizon or
        a map is often the worst of them.

    Returns
    -------
    coverage : float or ndarray of shape (n_levels,) or (n_outputs,)
        Share of the targets that are covered, in [0, 1]; one for each confidence level
        if there are several, and for each output with ``"raw_values"``.

    Raises
    ------
    ValueError
        If shapes do not fit, a lower end lies above its upper end, or NaN is found.

    See Also
    --------
    coverage_error : Distance of the coverage from the level that was asked for.
    winkler_loss : Proper score that pays for width and for misses.

    Examples
    --------
    >>> from uqformer.metrics import coverage_score
    >>> coverage_score([0.0, 1.0], [[-1.0, 0.0], [2.0, 3.0]])
    0.5
    >>> two_levels = [[[-1.0, -2.0], [0.0, 0.0]], [[2.0, 1.0], [3.0, 4.0]]]
    >>> coverage_score([0.0, 1.0], two_levels)
    array([0.5, 1. ])
    >>> two_outputs = [[0.0, 5.0], [1.0, 4.0]]
    >>> coverage_score(two_outputs, two_levels, multioutput="raw_values")
    array([0.5, 0.5])
    """
    targets, interval = _check_columns(y_true, y_interval)
    weights = check_row_weights(sample_weight, targets)
    coverages = average_samples(_is_covered(targets, interval), weights)
    if np.ndim(y_true) == 1 and np.ndim(y_interval) == 3:
        return coverages
    return average_outputs(coverages, multioutput)


@overload
def coverage_error(
    y_true: ArrayLike,
    y_interval: ArrayLike,
    *,
    confidence_level: float = 0.9,
    sample_weight: ArrayLike | None = None,
    multioutput: Literal["uniform_average"] = ...,
) -> float: ...
@overload
def coverage_error(
    y_true: ArrayLike,
    y_interval: ArrayLike,
    *,
    confidence_level: float = 0.9,
    sample_weight: ArrayLike | None = None,
    multioutput: MultiOutput,
) -> float | Float64Array: ...
def coverage_error(
    y_true: ArrayLike,
    y_interval: ArrayLike,
    *,
    confidence_level: float = 0.9,
    sample_weight: ArrayLike | None = None,
    multioutput: MultiOutput = "uniform_average",
) -> float | Float64Array:
    """Compute the distance of the coverage from the confidence level.

    Too wide and too narrow count alike. Several outputs are measured one by one
    before averaging, so that one output's excess does not hide another's lack.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,) or (n_samples, n_outputs)
        True targets.
    y_interval : array-like of shape (n_samples, 2) or (n_samples, 2, n_outputs)
        Lower and upper ends, in units of `y_true`.
    confidence_level : float, default=0.9
        Level the intervals were made for, strictly between 0 and 1.
    sample_weight : array-like of shape (n_samples,), default=None
        Weights of the samples. None weighs all alike.
    multioutput : {"raw_values", "uniform_average"} or array-like of shape \
            (n_outputs,), default="uniform_average"
        How several outputs become one number: by their mean, by a mean with these
        weights, or not at all, with one number for each. What matters for a horizon or
        a map is often the worst of them.

    Returns
    -------
    error : float or ndarray of shape (n_outputs,)
        Absolute difference of coverage and level, in [0, 1]; one for each output with
        ``"raw_values"``. Lower is better.

    Raises
    ------
    ValueError
        If shapes do not fit, a lower end lies above its upper end, NaN is found, or
        `confidence_level` is outside (0, 1).

    See Also
    --------
    coverage_score : The coverage itself.

    Examples
    --------
    >>> from uqformer.metrics import coverage_error
    >>> interval = [[-1.0, 0.0], [2.0, 3.0]]
    >>> coverage_error([0.0, 1.0], interval, confidence_level=0.75)
    0.25
    """
    targets, interval = _check_one_level(y_true, y_interval)
    level = check_level(confidence_level)
    weights = check_row_weights(sample_weight, targets)
    coverages = average_samples(_is_covered(targets, interval), weights)
    return average_outputs(np.abs(coverages - level), multioutput)


def mean_interval_width(
    y_interval: ArrayLike, *, sample_weight: ArrayLike | None = None
) -> float | Float64Array:
    """Compute the average width of prediction intervals.

    Also called sharpness. It never looks at the targets, so it ranks only models of
    equal coverage.

    Parameters
    ----------
    y_interval : array-like of shape (n_samples, 2), (n_samples, 2, n_levels) or \
            (n_samples, 2, n_outputs)
        Lower and upper ends, in units of `y`.
    sample_weight : array-like of shape (n_samples,), default=None
        Weights of the samples. None weighs all alike.

    Returns
    -------
    width : float or ndarray of shape (n_levels,) or (n_outputs,)
        Average of upper minus lower end, in units of `y`; an array if `y_interval`
        has a third axis.

    Raises
    ------
    ValueError
        If the shape does not fit, a lower end lies above its upper end, or NaN is
        found.

    See Also
    --------
    winkler_loss : Proper score that pays for width and for misses.

    Examples
    --------
    >>> from uqformer.metrics import mean_interval_width
    >>> mean_interval_width([[0.0, 1.0], [2.0, 5.0]])
    2.0
    """
    interval = check_interval(y_interval)
    widths = interval[:, 1] - interval[:, 0]
    means = average_samples(widths, check_row_weights(sample_weight, widths))
    return float(means[0]) if widths.ndim == 1 else means


@overload
def winkler_loss(
    y_true: ArrayLike,
    y_interval: ArrayLike,
    *,
    confidence_level: float = 0.9,
    sample_weight: ArrayLike | None = None,
    multioutput: Literal["uniform_average"] = ...,
) -> float: ...
@overload
def winkler_loss(
    y_true: ArrayLike,
    y_interval: ArrayLike,
    *,
    confidence_level: float = 0.9,
    sample_weight: ArrayLike | None = None,
    multioutput: MultiOutput,
) -> float | Float64Array: ...
def winkler_loss(
    y_true: ArrayLike,
    y_interval: ArrayLike,
    *,
    confidence_level: float = 0.9,
    sample_weight: ArrayLike | None = None,
    multioutput: MultiOutput = "uniform_average",
) -> float | Float64Array:
    """Compute the average Winkler loss of prediction intervals.

    Also called interval score. It rewards narrow intervals and charges for each miss
    in proportion to its distance, so that its expectation is least for the true
    equal-tailed interval.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,) or (n_samples, n_outputs)
        True targets.
    y_interval : array-like of shape (n_samples, 2) or (n_samples, 2, n_outputs)
        Lower and upper ends, in units of `y_true`.
    confidence_level : float, default=0.9
        Level the intervals were made for, strictly between 0 and 1.
    sample_weight : array-like of shape (n_samples,), default=None
        Weights of the samples. None weighs all alike.
    multioutput : {"raw_values", "uniform_average"} or array-like of shape \
            (n_outputs,), default="uniform_average"
        How several outputs become one number: by their mean, by a mean with these
        weights, or not at all, with one number for each. What matters for a horizon or
        a map is often the worst of them.

    Returns
    -------
    loss : float or ndarray of shape (n_outputs,)
        Mean loss, in units of `y_true`; one for each output with ``"raw_values"``.
        Lower is better; the best value is 0 only if the targets are known exactly.

    Raises
    ------
    ValueError
        If shapes do not fit, a lower end lies above its upper end, NaN is found, or
        `confidence_level` is outside (0, 1).

    See Also
    --------
    coverage_score : Share of targets inside their interval.
    pinball_loss : Proper score of quantiles, of which this is a multiple.

    References
    ----------
    .. [1] R. L. Winkler (1972), "A decision-theoretic approach to interval
       estimation", Journal of the American Statistical Association 67.
    .. [2] T. Gneiting and A. E. Raftery (2007), "Strictly proper scoring rules,
       prediction, and estimation", Journal of the American Statistical
       Association 102, equation 43.

    Examples
    --------
    >>> from uqformer.metrics import winkler_loss
    >>> winkler_loss([0.0, 3.0], [[-1.0, 1.0], [0.0, 2.0]], confidence_level=0.5)
    4.0
    """
    targets, interval = _check_one_level(y_true, y_interval)
    miss_rate = 1 - check_level(confidence_level)
    lower, upper = interval[:, 0], interval[:, 1]
    distance = np.maximum(lower - targets, 0) + np.maximum(targets - upper, 0)
    losses = upper - lower + 2 / miss_rate * distance
    weights = check_row_weights(sample_weight, targets)
    return average_outputs(average_samples(losses, weights), multioutput)


def _check_columns(
    y_true: ArrayLike, y_interval: ArrayLike
) -> tuple[Float64Array, Float64Array]:
    """Return targets (n_samples, 1 or columns) and intervals (n_samples, 2, columns).

    The columns are outputs or, beside a single target column, confidence levels.
    """
    targets = check_targets(y_true)
    interval = check_interval(y_interval)
    fits = targets.ndim == 1 or interval.shape[2:] == targets.shape[1:]
    if len(interval) != len(targets) or not fits:
        raise ValueError(
            "y_interval must have shape (n_samples, 2) for y_true of shape "
            "(n_samples,) and (n_samples, 2, n_outputs) for (n_samples, n_outputs); "
            f"got y_interval.shape={interval.shape}, y_true.shape={targets.shape}."
        )
    n_samples = len(targets)
    return targets.reshape(n_samples, -1), interval.reshape(n_samples, 2, -1)


def _check_one_level(
    y_true: ArrayLike, y_interval: ArrayLike
) -> tuple[Float64Array, Float64Array]:
    """Return targets and intervals of the same number of columns."""
    targets, interval = _check_columns(y_true, y_interval)
    if interval.shape[2] != targets.shape[1]:
        raise ValueError(
            "y_interval must hold the intervals of one confidence level; got "
            f"{interval.shape[2]} levels. Call once for each y_interval[:, :, k]."
        )
    return targets, interval


def _is_covered(targets: Float64Array, interval: Float64Array) -> Float64Array:
    """Tell by 1.0 and 0.0 which targets lie inside their closed interval."""
    inside = (interval[:, 0] <= targets) & (targets <= interval[:, 1])
    return inside.astype(np.float64)
