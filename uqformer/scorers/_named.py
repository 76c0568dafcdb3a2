"""Ready-made scorers by name."""

from collections.abc import Sequence
from copy import copy
from difflib import get_close_matches

import numpy as np
from numpy.typing import ArrayLike
from sklearn.metrics import log_loss

from uqformer import metrics
from uqformer._typing import Float64Array
from uqformer._validation import check_confidence_level
from uqformer.scorers._base import ResponseScorer
from uqformer.scorers._probability import ProbabilityScorer
from uqformer.scorers._regression import (
    EnsembleScorer,
    IntervalScorer,
    PointSpreadScorer,
    QuantileScorer,
)

__all__ = ["SCORERS", "get_scorer"]


def get_scorer(
    name: str, *, confidence_level: float | Sequence[float] | None = None
) -> ResponseScorer:
    """Get a ready-made scorer by name.

    Select models by a proper score: regressors by ``neg_winkler_loss``,
    ``neg_weighted_interval_loss``, ``neg_pinball_loss``, ``neg_crps_loss``,
    ``neg_energy_loss``, ``neg_crps_normal_loss`` or ``neg_gaussian_nll_loss``,
    classifiers by ``neg_log_loss`` or ``neg_brier_loss``. The others are there to be
    watched; most of them can be had for nothing by a useless model.

    Parameters
    ----------
    name : str
        One of the keys of `SCORERS`.
    confidence_level : float or sequence of float, default=None
        Level of the intervals asked for, strictly between 0 and 1. None leaves what
        `SCORERS` says: 0.9, and 0.5, 0.8 and 0.95 for ``neg_weighted_interval_loss``,
        the one that takes several. Scorers that ask for no intervals do without.

    Returns
    -------
    scorer : callable
        A new object ``scorer(estimator, X, y)``; more is better.

    Raises
    ------
    ValueError
        If there is no scorer of that name, or `confidence_level` is outside (0, 1).

    See Also
    --------
    IntervalScorer : Build one from a metric of intervals.
    EnsembleScorer : Build one from a metric of members.
    QuantileScorer : Build one from a metric of quantiles.
    PointSpreadScorer : Build one from a metric of point and standard deviation.
    ProbabilityScorer : Build one from a metric of class probabilities.

    Examples
    --------
    >>> from uqformer.scorers import get_scorer
    >>> get_scorer("neg_crps_loss")
    EnsembleScorer(crps_loss, greater_is_better=False)
    >>> get_scorer("neg_winkler_loss", confidence_level=0.5)
    IntervalScorer(winkler_loss, confidence_level=0.5, greater_is_better=False)
    """
    if name not in SCORERS:
        guesses = get_close_matches(str(name), SCORERS, n=1)
        hint = f"Did you mean {guesses[0]!r}?" if guesses else "Try another."
        raise ValueError(
            f"name must be one of {', '.join(SCORERS)}; got name={name!r}. {hint}"
        )
    scorer = copy(SCORERS[name])
    if confidence_level is not None:
        check_confidence_level(confidence_level)
        if isinstance(scorer, IntervalScorer):
            scorer.confidence_level = confidence_level
    return scorer


def _mean_interval_width(
    y_true: ArrayLike,
    y_interval: Float64Array,
    sample_weight: ArrayLike | None = None,
) -> float:
    """Average the widths over outputs; scorers hand over targets, widths need none."""
    return float(
        np.mean(metrics.mean_interval_width(y_interval, sample_weight=sample_weight))
    )


def _pit_wasserstein_error(
    y_true: ArrayLike,
    members: Float64Array,
    sample_weight: ArrayLike | None = None,
) -> float:
    """Fix the jitter, so that candidates differ by themselves and not by luck."""
    return metrics.pit_wasserstein_error(
        y_true, members, sample_weight=sample_weight, random_state=0
    )


def _log_loss(
    y_true: ArrayLike,
    y_proba: Float64Array,
    labels: ArrayLike,
    sample_weight: ArrayLike | None = None,
) -> float:
    """Name the columns to scikit-learn's loss, which it would guess from `y_true`."""
    return float(log_loss(y_true, y_proba, labels=labels, sample_weight=sample_weight))


SCORERS: dict[str, ResponseScorer] = {
    # classifiers
    **{
        f"neg_{loss.__name__}": ProbabilityScorer(loss, greater_is_better=False)
        for loss in (
            metrics.area_under_risk_coverage_error,
            metrics.brier_loss,
            metrics.classwise_calibration_error,
            metrics.excess_area_under_risk_coverage_error,
            metrics.expected_calibration_error,
            metrics.fpr_at_tpr_error,
            metrics.maximum_calibration_error,
            metrics.smooth_calibration_error,
        )
    },
    "failure_aupr_score": ProbabilityScorer(metrics.failure_aupr_score),
    "failure_auroc_score": ProbabilityScorer(metrics.failure_auroc_score),
    "neg_log_loss": ProbabilityScorer(_log_loss, greater_is_better=False),
    # regressors
    **{
        f"neg_{loss.__name__}": scorer(loss, greater_is_better=False)
        for scorer, loss in (
            (IntervalScorer, metrics.coverage_error),
            (EnsembleScorer, metrics.crps_loss),
            (PointSpreadScorer, metrics.crps_normal_loss),
            (EnsembleScorer, metrics.energy_loss),
            (PointSpreadScorer, metrics.gaussian_nll_loss),
            (QuantileScorer, metrics.pinball_loss),
            (QuantileScorer, metrics.quantile_calibration_error),
            (IntervalScorer, metrics.winkler_loss),
        )
    },
    "neg_mean_interval_width": IntervalScorer(
        _mean_interval_width, greater_is_better=False
    ),
    "neg_pit_wasserstein_error": EnsembleScorer(
        _pit_wasserstein_error, greater_is_better=False
    ),
    "neg_weighted_interval_loss": IntervalScorer(
        metrics.weighted_interval_loss,
        confidence_level=(0.5, 0.8, 0.95),
        greater_is_better=False,
    ),
}
"""Ready-made scorers by name, intervals at the level 0.9; see `get_scorer`."""
