"""A fitted estimator's network as a guest, in the units that its users speak."""

from collections.abc import Callable
from typing import Any, Self

from numpy.typing import ArrayLike
from torch import nn

from uqformer.backbones._adapters import InUnits
from uqformer.estimators._inputs import ArrayInputs

__all__ = ["FittedBackbone"]


class FittedBackbone:
    """A guest that takes the inputs of a fitted estimator, and is not trained.

    Parameters
    ----------
    read : callable
        From inputs, as users have them, to what the module takes.
    module : InUnits
        The trained network.
    classes : array-like of shape (n_classes,) or None
        Labels of the columns of a classifier, in their order.
    """

    trains = False

    allows_missing = True
    """Numbers that are missing were let through by the estimator, which knows why."""

    def __init__(
        self,
        read: Callable[[Any], ArrayInputs],
        module: InUnits,
        classes: ArrayLike | None,
    ) -> None:
        self.read = read
        self.module = module
        self.classes = classes

    def encode(self, X: Any) -> ArrayInputs:
        """Return what the module takes, by name."""
        inputs = self.read(X)
        return inputs if isinstance(inputs, dict) else {"x": inputs}

    def build(self, n_outputs: int) -> nn.Module:
        """Return the module; how many outputs it has is settled."""
        return self.module

    def __sklearn_clone__(self) -> Self:
        return self

    def __repr__(self) -> str:
        return f"FittedBackbone({type(self.module.module).__name__})"
