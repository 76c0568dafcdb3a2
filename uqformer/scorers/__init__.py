"""Scorers of predicted uncertainty for `GridSearchCV` and `cross_val_score`.

`make_scorer` knows neither intervals nor ensembles, wrappers such as `Pipeline` do not
pass their methods on, and of two classes it hands over one. The callable objects here
do it all, and they pickle.
"""

from uqformer.scorers._named import SCORERS, get_scorer
from uqformer.scorers._probability import ProbabilityScorer
from uqformer.scorers._regression import (
    EnsembleScorer,
    IntervalScorer,
    PointSpreadScorer,
    QuantileScorer,
)

__all__ = [
    "SCORERS",
    "EnsembleScorer",
    "IntervalScorer",
    "PointSpreadScorer",
    "ProbabilityScorer",
    "QuantileScorer",
    "get_scorer",
]
