"""How sure is a metric? Confidence intervals by resampling rows."""

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr, ndtri

from uqformer._typing import AnyArray, Float64Array, IntArray
from uqformer.metrics._inputs import (
    check_generator,
    check_level,
    check_option,
    check_positive_int,
)

__all__ = ["bootstrap_interval"]

# keywords that hold one number a row wherever this package uses them
_ROW_KEYWORDS = ("sample_weight", "uncertainty")


def bootstrap_interval(
    metric: Callable[..., Any],
    *arrays: Any,
    n_bootstraps: int = 1000,
    confidence_level: float = 0.95,
    method: Literal["bca", "percentile"] = "bca",
    row_axes: Sequence[int] | None = None,
    random_state: int | np.random.RandomState | None = None,
    **kwargs: Any,
) -> Float64Array:
    """Compute a confidence interval of a metric by resampling rows.

    Rows are drawn with replacement, the same ones from all arrays, and the metric is
    computed again, many times. How much it varies tells how far the number from the
    rows at hand may lie from that of all rows.

    Parameters
    ----------
    metric : callable
        Called as ``metric(*arrays, **kwargs)``; returns a number or an array of
        numbers of one shape.
    *arrays : array-like
        What the metric takes by position, such as `y_true` and `y_proba`. An object
        that keeps its `members` is resampled along their rows.
    n_bootstraps : int, default=1000
        How often rows are drawn. Ends at 95 % want about 1000.
    confidence_level : float, default=0.95
        Share of such intervals that hold the number of all rows, strictly between 0
        and 1.
    method : {"bca", "percentile"}, default="bca"
        ``"percentile"`` cuts off equal tails of the resampled numbers. ``"bca"`` moves
        the cuts to correct for bias and skewness, as calibration errors need: they are
        larger in every resample. It leaves out parts of the rows in turn, which costs
        as many calls again.
    row_axes : sequence of int, default=None
        Which axis of each array counts rows, such as ``(0, 1)`` for a target and bare
        members of shape (n_members, n_samples). None is 0, and 1 for an object that
        keeps its `members`.
    random_state : int, RandomState instance or None, default=None
        Where the rows come from. Pass an int to get the same interval again.
    **kwargs : dict
        Passed on to the metric as they are, but for `sample_weight` and `uncertainty`,
        which are resampled with the rows. Hand any other array of one number a row by
        position, and a setting that has the name of one above, such as the
        `confidence_level` of an interval, by `functools.partial`.

    Returns
    -------
    interval : ndarray of shape (2,) or (2, ...)
        Lower end first, in units of the metric; further axes are those of its answer.

    Raises
    ------
    ValueError
        If arrays differ in rows, there is no row, a setting is out of range, or the
        metric gives NaN or infinity.

    See Also
    --------
    scipy.stats.bootstrap : The same for statistics of plain samples.

    Notes
    -----
    Rows must be independent; neighbours in time are not. Pass `labels` to metrics of
    classes, since a draw may lack one. An interval about a metric with a bias, such as
    a binned calibration error, is one about its expectation with as many rows.

    References
    ----------
    .. [1] B. Efron (1987), "Better bootstrap confidence intervals", Journal of the
       American Statistical Association 82.

    Examples
    --------
    >>> import numpy as np
    >>> from uqformer.metrics import bootstrap_interval, brier_loss
    >>> rng = np.random.default_rng(0)
    >>> p = rng.uniform(size=500)
    >>> y = (rng.uniform(size=500) < p).astype(int)
    >>> low, high = bootstrap_interval(
    ...     brier_loss, y, p, n_bootstraps=200, random_state=0
    ... )
    >>> bool(low < brier_loss(y, p) < high)
    True
    """
    check_positive_int(n_bootstraps, "n_bootstraps")
    check_option(method, "method", ("bca", "percentile"))
    tail = (1 - check_level(confidence_level)) / 2
    rows = _Rows(arrays, row_axes, kwargs)
    generator = check_generator(random_state)

    def compute(chosen: IntArray) -> Float64Array:
        picked, options = rows.pick(chosen)
        value = np.asarray(metric(*picked, **options), dtype=np.float64)
        if not np.isfinite(value).all():
            raise ValueError(
                "metric must give finite numbers on every draw of rows; got "
                f"{value}. Pass more rows, or a metric that is defined for all."
            )
        return value

    resampled = np.stack(
        [
            compute(generator.randint(rows.n_rows, size=rows.n_rows))
            for _ in range(n_bootstraps)
        ]
    )
    cuts = np.array([tail, 1 - tail])
    if method == "percentile":
        interval: Float64Array = np.quantile(resampled, cuts, axis=0)
        return interval
    value = compute(np.arange(rows.n_rows))
    parts = np.array_split(
        generator.permutation(rows.n_rows), min(rows.n_rows, n_bootstraps)
    )
    left_out = (
        [compute(np.delete(np.arange(rows.n_rows), part)) for part in parts]
        if len(parts) > 1
        else [value]
    )
    return _corrected_quantiles(resampled, value, np.stack(left_out), cuts)


class _Rows:
    """The arrays of a metric, of which any rows can be picked together."""

    def __init__(
        self,
        arrays: Sequence[Any],
        row_axes: Sequence[int] | None,
        kwargs: dict[str, Any],
    ) -> None:
        if row_axes is None:
            row_axes = [int(hasattr(array, "members")) for array in arrays]
        if len(row_axes) != len(arrays) or not arrays:
            raise ValueError(
                "row_axes must hold one axis for each of the arrays, at least one; got "
                f"{len(row_axes)} axes for {len(arrays)} arrays."
            )
        by_row = [name for name in _ROW_KEYWORDS if kwargs.get(name) is not None]
        self._arrays = [_to_array(array) for array in arrays]
        self._axes = list(row_axes)
        self._constants = {k: v for k, v in kwargs.items() if k not in by_row}
        self._by_row = {name: np.asarray(kwargs[name]) for name in by_row}
        counts = {
            array.shape[axis]
            for array, axis in zip(self._arrays, self._axes, strict=True)
        } | {len(array) for array in self._by_row.values()}
        if len(counts) != 1 or 0 in counts:
            raise ValueError(
                "The arrays must have the same rows, at least one; got "
                f"{sorted(counts)} rows. Say with row_axes where axis 0 is not rows."
            )
        self.n_rows = counts.pop()

    def pick(self, chosen: IntArray) -> tuple[list[AnyArray], dict[str, Any]]:
        """Return the chosen rows of the arrays, and the keywords."""
        arrays = [
            np.take(array, chosen, axis=axis)
            for array, axis in zip(self._arrays, self._axes, strict=True)
        ]
        by_row = {name: array[chosen] for name, array in self._by_row.items()}
        return arrays, self._constants | by_row


def _to_array(array: ArrayLike) -> AnyArray:
    return np.asarray(getattr(array, "members", array))


def _corrected_quantiles(
    resampled: Float64Array,
    value: Float64Array,
    left_out: Float64Array,
    cuts: Float64Array,
) -> Float64Array:
    """Quantiles at cuts moved by bias and acceleration, for each entry of the value."""
    n_bootstraps = len(resampled)
    below = (resampled < value).mean(axis=0) + (resampled == value).mean(axis=0) / 2
    # all on one side: as far off as so many draws can tell
    edge = 0.5 / n_bootstraps
    bias = ndtri(np.clip(below, edge, 1 - edge))
    pulls = left_out.mean(axis=0) - left_out
    sizes = 6 * (pulls**2).sum(axis=0) ** 1.5
    bent = (pulls**3).sum(axis=0)
    acceleration = np.divide(bent, sizes, out=np.zeros_like(sizes), where=sizes > 0)
    interval = np.empty((2, *value.shape))
    for end, cut in enumerate(cuts):
        z = bias + ndtri(cut)
        moved = ndtr(bias + z / (1 - acceleration * z))
        for entry in np.ndindex(value.shape):
            column = resampled[(slice(None), *entry)]
            interval[(end, *entry)] = np.quantile(column, moved[entry])
    return interval
