"""What all scorers share: a metric, its sign, and how weights reach it."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from inspect import signature
from typing import Any, Self

from numpy.typing import ArrayLike
from sklearn.utils.metadata_routing import MetadataRequest

__all__ = ["ResponseScorer", "name_of", "takes"]


class ResponseScorer(ABC):
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
                    f"{name_of(self.score_func)}, which does not."
                )
            options["sample_weight"] = sample_weight
        score = self._score(estimator, X, y, options)
        return float(score) if self.greater_is_better else -float(score)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({name_of(self.score_func)}, "
            f"{self._repr_options()}greater_is_better={self.greater_is_better})"
        )

    def _repr_options(self) -> str:
        return ""

    # a search asks this of every scorer when it is fitted with sample_weight
    def _accept_sample_weight(self) -> bool:
        return takes(self.score_func, "sample_weight")

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


def name_of(score_func: Callable[..., float]) -> str:
    return getattr(score_func, "__name__", repr(score_func))


def takes(score_func: Callable[..., float], argument: str) -> bool:
    """Ask whether a metric has an argument of that name."""
    return argument in signature(score_func).parameters
