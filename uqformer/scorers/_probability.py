"""Scorers of the class probabilities of classifiers."""

from typing import Any

from numpy.typing import ArrayLike

from uqformer._response import proba_response
from uqformer.scorers._base import ResponseScorer, takes

__all__ = ["ProbabilityScorer"]


class ProbabilityScorer(ResponseScorer):
    """Score class probabilities, as ``scorer(estimator, X, y)``.

    The metric gets the whole matrix, also of two classes, and is told which class each
    column belongs to, so that rows that lack a class are scored like any others. The
    estimator may be wrapped in pipelines and searches.

    Parameters
    ----------
    score_func : callable
        Metric ``score_func(y_true, y_proba)`` that returns one number. The classes of
        the estimator and sample weights are passed on if it takes arguments named
        `labels` and `sample_weight`.
    greater_is_better : bool, default=True
        False for losses and errors: their sign is flipped.

    See Also
    --------
    get_scorer : Ready-made scorers by name.
    sklearn.metrics.make_scorer : Hands over one column of two, and no classes.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.linear_model import LogisticRegression
    >>> from uqformer.metrics import brier_loss
    >>> from uqformer.scorers import ProbabilityScorer
    >>> scorer = ProbabilityScorer(brier_loss, greater_is_better=False)
    >>> X, y = load_iris(return_X_y=True)
    >>> model = LogisticRegression(max_iter=500).fit(X, y)
    >>> round(scorer(model, X, y), 2)
    -0.05
    >>> round(scorer(model, X[:50], y[:50]), 2)  # one of three classes
    -0.0
    """

    def _score(
        self, estimator: Any, X: ArrayLike, y: ArrayLike, options: dict[str, Any]
    ) -> float:
        proba, classes = proba_response(estimator, X)
        if takes(self.score_func, "labels"):
            options = {**options, "labels": classes}
        return self.score_func(y, proba, **options)
