"""The usual numbers of a regression ensemble in one call."""

import numpy as np
from numpy.typing import ArrayLike

from uqformer._typing import Float64Array
from uqformer._validation import check_row_weights
from uqformer.metrics._calibration import pit_wasserstein_error
from uqformer.metrics._ensemble import crps_loss
from uqformer.metrics._inputs import (
    Members,
    average_samples,
    check_level,
    check_like_targets,
    check_members,
    check_targets,
)
from uqformer.metrics._intervals import (
    coverage_score,
    mean_interval_width,
    winkler_loss,
)

__all__ = ["regression_report"]


def regression_report(
    y_true: ArrayLike,
    members: Members,
    *,
    y_pred: ArrayLike | None = None,
    y_interval: ArrayLike | None = None,
    confidence_level: float = 0.9,
    sample_weight: ArrayLike | None = None,
    random_state: int | np.random.RandomState | None = None,
) -> dict[str, float]:
    """Summarise point, spread and interval of a regression ensemble.

    Accuracy, proper scores and calibration side by side, since any of them alone can
    be had cheaply at the expense of the others.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,) or (n_samples, n_outputs)
        True targets.
    members : RegressionEnsemble or array-like of shape (n_members, n_samples) or \
            (n_members, n_samples, n_outputs)
        Predictions of the members, in units of `y_true`.
    y_pred : array-like of the shape of `y_true`, default=None
        Point predictions. None takes the mean of the members.
    y_interval : array-like of shape (n_samples, 2) or (n_samples, 2, n_outputs), \
            default=None
        Prediction intervals. None takes the equal-tailed interval of the members.
    confidence_level : float, default=0.9
        Level the intervals were made for, strictly between 0 and 1.
    sample_weight : array-like of shape (n_samples,), default=None
        Weights of the samples. None weighs all alike.
    random_state : int, RandomState instance or None, default=None
        Where the jitter of the PIT values comes from.

    Returns
    -------
    report : dict of str to float
        In this order: ``rmse``, the root mean squared error of `y_pred`, ``crps``,
        ``coverage`` (in [0, 1]), ``width`` and ``winkler`` of the intervals, and
        ``pit_w1``, the distance of the PIT values from uniform (in [0, 0.5]). The
        others are in units of `y_true`. Each is the average over outputs.

    Raises
    ------
    ValueError
        If shapes do not fit, NaN is found, or `confidence_level` is outside (0, 1).

    See Also
    --------
    crps_loss : Proper score of the members.
    winkler_loss : Proper score of the intervals.

    Examples
    --------
    >>> from uqformer.metrics import regression_report
    >>> members = [[-1.0, 0.0], [1.0, 4.0]]
    >>> report = regression_report(
    ...     [0.0, 2.0], members, confidence_level=0.5, random_state=0
    ... )
    >>> {name: round(value, 3) for name, value in report.items() if name != "pit_w1"}
    {'rmse': 0.0, 'crps': 0.75, 'coverage': 1.0, 'width': 1.5, 'winkler': 1.5}
    """
    targets = check_targets(y_true)
    ensemble = check_members(members, targets)
    level = check_level(confidence_level)
    weights = check_row_weights(sample_weight, targets)
    if y_pred is None:
        y_pred = ensemble.mean(axis=0)
    if y_interval is None:
        y_interval = _equal_tailed_interval(ensemble, level)
    squared = (check_like_targets(y_pred, targets, "y_pred") - targets) ** 2
    width = mean_interval_width(y_interval, sample_weight=weights)
    return {
        "rmse": float(np.sqrt(average_samples(squared, weights)).mean()),
        "crps": crps_loss(targets, ensemble, sample_weight=weights),
        "coverage": float(coverage_score(targets, y_interval, sample_weight=weights)),
        "width": float(np.mean(width)),
        "winkler": winkler_loss(
            targets, y_interval, confidence_level=level, sample_weight=weights
        ),
        "pit_w1": pit_wasserstein_error(
            targets, ensemble, sample_weight=weights, random_state=random_state
        ),
    }


def _equal_tailed_interval(members: Float64Array, level: float) -> Float64Array:
    """Leave the same share of the members out on either side."""
    ends = np.quantile(members, [(1 - level) / 2, (1 + level) / 2], axis=0)
    interval: Float64Array = np.moveaxis(ends, 0, 1)  # (n_samples, 2, ...)
    return interval
