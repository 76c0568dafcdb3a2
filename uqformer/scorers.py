"""Scorers of predicted uncertainty for `GridSearchCV` and `cross_val_score`.

`make_scorer` knows neither intervals nor ensembles, and wrappers such as `Pipeline`
do not pass their methods on. The callable objects here do both, and they pickle.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from copy import copy
from difflib import get_close_matches
from inspect import signature
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.metadata_routing import MetadataRequest

from uqformer._response import (
    ensemble_response,
    interval_response,
    spread_response,
)
from uqformer._typing import Float64Array
from uqformer._validation import check_confidence_level
from uqformer.metrics import (
    coverage_error,
    crps_loss,
    energy_loss,
    gaussian_nll_loss,
    mean_interval_width,
    pit_wasserstein_error,
    winkler_loss,
)

__all__ = [
    "SCORERS",
    "EnsembleScorer",
    "IntervalScorer",
    "PointSpreadScorer",
    "get_scorer",
]


class _ResponseScorer(ABC):
    """What the scorers share: a metric, its sign, and how weights reach it."""

    def __init__(
        self, score_func: Callable[..., float], *, greater_is_better: bool = True
    ) -> None:
        self.score_func = score_func
        self.greater_is_better = greater_is_better
        self._weight_request: bool | str | None = None

    @abstractmethod
    def _score(
        self, estimator: Any, X: ArrayLike, y: ArrayLike, options: dict[str, Any]
    ) -> float:
        """Ask the estimator and hand its answer to the metric."""

    def __call__(
        self,
        estimator: Any,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
    ) -> float:
        """Score a fitted estimator; more is better."""
        options = {}
        if sample_weight is not None:
            if not self._accept_sample_weight():
                raise TypeError(
                    "score_func must take sample_weight to weigh samples; got "
                    f"{_name(self.score_func)}, which does not."
                )
            options["sample_weight"] = sample_weight
        score = self._score(estimator, X, y, options)
        return float(score) if self.greater_is_better else -float(score)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({_name(self.score_func)}, "
            f"{self._repr_options()}greater_is_better={self.greater_is_better})"
        )

    def _repr_options(self) -> str:
        return ""

    # a search asks this of every scorer when it is fitted with sample_weight
    def _accept_sample_weight(self) -> bool:
        return _takes(self.score_func, "sample_weight")

    def set_score_request(self, *, sample_weight: bool | str | None) -> Self:
        """Say whether sample weights are for this scorer, with metadata routing on.

        Parameters
        ----------
        sample_weight : bool, str or None
            True asks for them, False ignores them, None raises when they are given,
            and a str asks for metadata of that name.

        Returns
        -------
        scorer : object
            The scorer itself.
        """
        self._weight_request = sample_weight
        return self

    def get_metadata_routing(self) -> MetadataRequest:
        """Tell scikit-learn's metadata routing what this scorer asks for.

        Returns
        -------
        routing : MetadataRequest
            Request for `sample_weight`, if the metric takes it.
        """
        routing = MetadataRequest(owner=self)
        if self._accept_sample_weight():
            routing.score.add_request(param="sample_weight", alias=self._weight_request)
        return routing


class IntervalScorer(_ResponseScorer):
    """Score prediction intervals, as ``scorer(estimator, X, y)``.

    The estimator may be wrapped in pipelines, searches and transformed targets.

    Parameters
    ----------
    score_func : callable
        Metric ``score_func(y_true, y_interval)`` that returns one number. The
        confidence level and sample weights are passed on if it takes arguments named
        `confidence_level` and `sample_weight`.
    confidence_level : float, default=0.9
        Level of the intervals asked for, strictly between 0 and 1.
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
        confidence_level: float = 0.9,
        greater_is_better: bool = True,
    ) -> None:
        super().__init__(score_func, greater_is_better=greater_is_better)
        check_confidence_level(confidence_level)
        self.confidence_level = confidence_level

    def _score(
        self, estimator: Any, X: ArrayLike, y: ArrayLike, options: dict[str, Any]
    ) -> float:
        interval = interval_response(estimator, X, self.confidence_level)
        if _takes(self.score_func, "confidence_level"):
            options = {**options, "confidence_level": self.confidence_level}
        return self.score_func(y, interval, **options)

    def _repr_options(self) -> str:
        return f"confidence_level={self.confidence_level}, "


class EnsembleScorer(_ResponseScorer):
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


class PointSpreadScorer(_ResponseScorer):
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


def get_scorer(name: str, *, confidence_level: float = 0.9) -> _ResponseScorer:
    """Get a ready-made scorer by name.

    Select models by a proper score: ``neg_winkler_loss``, ``neg_crps_loss``,
    ``neg_energy_loss`` or ``neg_gaussian_nll_loss``. The others are there to be
    watched; each of them can be had for nothing by a useless model.

    Parameters
    ----------
    name : str
        One of the keys of `SCORERS`.
    confidence_level : float, default=0.9
        Level of the intervals asked for, strictly between 0 and 1. Scorers that ask
        for no intervals do without.

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
    PointSpreadScorer : Build one from a metric of point and standard deviation.

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
    check_confidence_level(confidence_level)
    scorer = copy(SCORERS[name])
    if isinstance(scorer, IntervalScorer):
        scorer.confidence_level = confidence_level
    return scorer


def _name(score_func: Callable[..., float]) -> str:
    return getattr(score_func, "__name__", repr(score_func))


def _takes(score_func: Callable[..., float], argument: str) -> bool:
    """Ask whether a metric has an argument of that name."""
    return argument in signature(score_func).parameters


def _mean_interval_width(
    y_true: ArrayLike,
    y_interval: Float64Array,
    sample_weight: ArrayLike | None = None,
) -> float:
    """Average the widths over outputs; scorers hand over targets, widths need none."""
    return float(np.mean(mean_interval_width(y_interval, sample_weight=sample_weight)))


def _pit_wasserstein_error(
    y_true: ArrayLike,
    members: Float64Array,
    sample_weight: ArrayLike | None = None,
) -> float:
    """Fix the jitter, so that candidates differ by themselves and not by luck."""
    return pit_wasserstein_error(
        y_true, members, sample_weight=sample_weight, random_state=0
    )


SCORERS: dict[str, _ResponseScorer] = {
    "neg_coverage_error": IntervalScorer(coverage_error, greater_is_better=False),
    "neg_crps_loss": EnsembleScorer(crps_loss, greater_is_better=False),
    "neg_energy_loss": EnsembleScorer(energy_loss, greater_is_better=False),
    "neg_gaussian_nll_loss": PointSpreadScorer(
        gaussian_nll_loss, greater_is_better=False
    ),
    "neg_mean_interval_width": IntervalScorer(
        _mean_interval_width, greater_is_better=False
    ),
    "neg_pit_wasserstein_error": EnsembleScorer(
        _pit_wasserstein_error, greater_is_better=False
    ),
    "neg_winkler_loss": IntervalScorer(winkler_loss, greater_is_better=False),
}
"""Ready-made scorers by name, intervals at the level 0.9; see `get_scorer`."""
