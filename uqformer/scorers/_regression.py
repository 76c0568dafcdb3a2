"""Scorers of intervals, members, quantiles and spreads of regressors."""

from collections.abc import Callable, Sequence
from typing import Any

from numpy.typing import ArrayLike

from uqformer._response import (
    ensemble_response,
    interval_response,
    quantile_response,
    spread_response,
)
from uqformer._validation import check_confidence_level, check_probabilities
from uqformer.scorers._base import ResponseScorer, takes

__all__ = ["EnsembleScorer", "IntervalScorer", "PointSpreadScorer", "QuantileScorer"]


TWENTIETHS = tuple(k / 20 for k in range(1, 20))
"""Quantiles in even steps, enough to stand for a distribution."""


class IntervalScorer(ResponseScorer):
    """Score prediction intervals, as ``scorer(estimator, X, y)``.

    The estimator may be wrapped in pipelines, searches and transformed targets.

    Parameters
    ----------
    score_func : callable
        Metric ``score_func(y_true, y_interval)`` that returns one number. The
        confidence level and sample weights are passed on if it takes arguments named
        `confidence_level` and `sample_weight`.
    confidence_level : float or sequence of float, default=0.9
        Level of the intervals asked for, strictly between 0 and 1. Several levels are
        for metrics that take an axis of them, such as `weighted_interval_loss`.
    greater_is_better : bool, default=True
        False for losses and errors: their sign is flipped.

    Raises
    ------
    ValueError
        If `confidence_level` is outside (0, 1).

    See Also
    --------
    EnsembleScorer : Score the members of an ensemble.
    get_scorer : Ready-made scorers by name.

    Examples
    --------
    >>> from uqformer.metrics import winkler_loss
    >>> from uqformer.scorers import IntervalScorer
    >>> IntervalScorer(winkler_loss, confidence_level=0.8, greater_is_better=False)
    IntervalScorer(winkler_loss, confidence_level=0.8, greater_is_better=False)
    """

    def __init__(
        self,
        score_func: Callable[..., float],
        *,
        confidence_level: float | Sequence[float] = 0.9,
        greater_is_better: bool = True,
    ) -> None:
        super().__init__(score_func, greater_is_better=greater_is_better)
        check_confidence_level(confidence_level)
        self.confidence_level = confidence_level

    def _score(
        self, estimator: Any, X: ArrayLike, y: ArrayLike, options: dict[str, Any]
    ) -> float:
        interval = interval_response(estimator, X, self.confidence_level)
        if takes(self.score_func, "confidence_level"):
            options = {**options, "confidence_level": self.confidence_level}
        return self.score_func(y, interval, **options)

    def _repr_options(self) -> str:
        return f"confidence_level={self.confidence_level}, "


class EnsembleScorer(ResponseScorer):
    """Score the members of an ensemble, as ``scorer(estimator, X, y)``.

    The estimator may be wrapped in pipelines, searches and transformed targets.

    Parameters
    ----------
    score_func : callable
        Metric ``score_func(y_true, members)`` that returns one number. Sample weights
        are passed on if it takes an argument named `sample_weight`.
    greater_is_better : bool, default=True
        False for losses and errors: their sign is flipped.

    See Also
    --------
    IntervalScorer : Score prediction intervals.
    get_scorer : Ready-made scorers by name.

    Examples
    --------
    >>> from uqformer.metrics import crps_loss
    >>> from uqformer.scorers import EnsembleScorer
    >>> EnsembleScorer(crps_loss, greater_is_better=False)
    EnsembleScorer(crps_loss, greater_is_better=False)
    """

    def _score(
        self, estimator: Any, X: ArrayLike, y: ArrayLike, options: dict[str, Any]
    ) -> float:
        return self.score_func(y, ensemble_response(estimator, X), **options)


class QuantileScorer(ResponseScorer):
    """Score predicted quantiles, as ``scorer(estimator, X, y)``.

    They come from ``predict_quantiles(X, quantiles)``. The estimator may be wrapped in
    pipelines, searches and transformed targets.

    Parameters
    ----------
    score_func : callable
        Metric ``score_func(y_true, y_quantiles, quantiles=...)`` that returns one
        number. Sample weights are passed on if it takes an argument named
        `sample_weight`.
    quantiles : sequence of float, default=(0.05, 0.1, ..., 0.95)
        Quantiles asked for, each strictly between 0 and 1.
    greater_is_better : bool, default=True
        False for losses and errors: their sign is flipped.

    Raises
    ------
    ValueError
        If a quantile is outside (0, 1).

    See Also
    --------
    IntervalScorer : Score prediction intervals.
    get_scorer : Ready-made scorers by name.

    Examples
    --------
    >>> from uqformer.metrics import pinball_loss
    >>> from uqformer.scorers import QuantileScorer
    >>> QuantileScorer(pinball_loss, quantiles=[0.1, 0.9], greater_is_better=False)
    QuantileScorer(pinball_loss, quantiles=(0.1, 0.9), greater_is_better=False)
    """

    def __init__(
        self,
        score_func: Callable[..., float],
        *,
        quantiles: Sequence[float] = TWENTIETHS,
        greater_is_better: bool = True,
    ) -> None:
        super().__init__(score_func, greater_is_better=greater_is_better)
        self.quantiles = tuple(check_probabilities(quantiles, "quantiles").tolist())

    def _score(
        self, estimator: Any, X: ArrayLike, y: ArrayLike, options: dict[str, Any]
    ) -> float:
        predicted = quantile_response(estimator, X, self.quantiles)
        return self.score_func(y, predicted, quantiles=self.quantiles, **options)

    def _repr_options(self) -> str:
        return f"quantiles={self.quantiles}, "


class PointSpreadScorer(ResponseScorer):
    """Score a point and its standard deviation, as ``scorer(estimator, X, y)``.

    Both come from ``predict(X, return_std=True)``, so that scikit-learn's own
    Gaussian processes and Bayesian regressions stand beside uqformer's. The estimator
    may be wrapped in pipelines and searches, not in transformed targets.

    Parameters
    ----------
    score_func : callable
        Metric ``score_func(y_true, y_pred, y_std)`` that returns one number. Sample
        weights are passed on if it takes an argument named `sample_weight`.
    greater_is_better : bool, default=True
        False for losses and errors: their sign is flipped.

    See Also
    --------
    EnsembleScorer : Score the members of an ensemble.
    get_scorer : Ready-made scorers by name.

    Examples
    --------
    >>> from sklearn.linear_model import BayesianRidge
    >>> from uqformer.metrics import gaussian_nll_loss
    >>> from uqformer.scorers import PointSpreadScorer
    >>> scorer = PointSpreadScorer(gaussian_nll_loss, greater_is_better=False)
    >>> X, y = [[0.0], [1.0], [2.0], [3.0]], [0.1, 0.9, 2.1, 2.9]
    >>> scorer(BayesianRidge().fit(X, y), X, y) > 0
    True
    """

    def _score(
        self, estimator: Any, X: ArrayLike, y: ArrayLike, options: dict[str, Any]
    ) -> float:
        mean, std = spread_response(estimator, X)
        return self.score_func(y, mean, std, **options)
