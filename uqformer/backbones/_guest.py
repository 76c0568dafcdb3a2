"""What guests share: being run and left as they came, new heads, lazy libraries."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from copy import deepcopy
from importlib import import_module
from types import ModuleType
from typing import Any, Literal, Self, TypeAlias
from warnings import warn

import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from uqformer.exceptions import UQFormerWarning

__all__ = [
    "Adaptation",
    "Guest",
    "GuestModule",
    "import_library",
    "settled",
    "trainable_body",
]

Adaptation: TypeAlias = Literal["head", "all", "lora"]
"""What is trained: a new head, all of a copy, or low-rank updates of the layers."""

Read: TypeAlias = Callable[[nn.Module, dict[str, Tensor]], Tensor]
"""Runs a guest on its keyword inputs and picks numbers (N, D) from what it returns."""


def import_library(package: str, extra: str, way_out: str) -> ModuleType:
    """Import an optional library, or say how to get it and how to do without it."""
    try:
        return import_module(package)
    except ImportError as error:
        raise ImportError(
            f"This needs {package}, which cannot be imported ({error}). Try "
            f'pip install "uqformer[{extra}]"{way_out}.'
        ) from error


class Guest:
    """A pretrained model behind the words that the estimators speak."""

    def __init__(self, train: str | None, classes: ArrayLike | None) -> None:
        if train not in (None, "head", "all", "lora"):
            raise ValueError(
                f"train must be None, 'head', 'all' or 'lora'; got train={train!r}."
            )
        self.train = train
        self.classes = classes
        self._told: set[str] = set()

    @property
    def trains(self) -> bool:
        """Whether ``fit`` trains anything, or only calibrates."""
        return self.train is not None

    def _tell_once(self, topic: str, message: str) -> None:
        if topic not in self._told:
            self._told.add(topic)
            warn(message, UQFormerWarning, stacklevel=4)

    def __sklearn_clone__(self) -> Self:
        return self


class GuestModule(nn.Module):
    """Predictions (N, C) of a guest, with or without a new head.

    A frozen guest is run in eval mode and without gradient, and keeps its own mode.

    Parameters
    ----------
    guest : nn.Module
        The model, or the part of it that is used.
    read : callable
        ``read(guest, inputs)`` runs the guest and picks numbers (N, D), or (N, C) if
        there is no new head.
    head : nn.Module or None
        From (N, D) to (N, C).
    n_outputs : int
        C, which the output is checked against.
    is_frozen : bool
        Whether the guest must stay as it is.
    way_out : str
        What a user may do about outputs of another shape.
    """

    def __init__(
        self,
        guest: nn.Module,
        read: Read,
        head: nn.Module | None = None,
        *,
        n_outputs: int,
        is_frozen: bool,
        way_out: str = "Pass train='head' to train a new head of that size.",
    ) -> None:
        super().__init__()
        self.guest = guest
        self.read = read
        self.head = head
        self.n_outputs = n_outputs
        self.is_frozen = is_frozen
        self.way_out = way_out

    def train(self, mode: bool = True) -> Self:
        """Switch the mode of what is trained; a frozen guest keeps its own."""
        self.training = mode
        for name, child in self.named_children():
            if not (self.is_frozen and name == "guest"):
                child.train(mode)
        return self

    def forward(self, **inputs: Tensor) -> Tensor:
        """Predict from inputs (N, ...), named as the guest names them."""
        dtype = _float_dtype(self.guest)
        inputs = {
            name: value.to(dtype) if value.is_floating_point() else value
            for name, value in inputs.items()
        }
        with settled(self.guest) if self.is_frozen else nullcontext():
            output = self.read(self.guest, inputs).float()  # (N, D)
        if self.head is not None:
            output = self.head(output)  # (N, C)
        if output.ndim != 2 or output.shape[1] != self.n_outputs:
            raise ValueError(
                f"{type(self.guest).__name__} must give (n_samples, n_outputs) = "
                f"({len(output)}, {self.n_outputs}) numbers, one for each class or "
                f"target; got shape {tuple(output.shape)}. {self.way_out}"
            )
        return output


@contextmanager
def settled(model: nn.Module) -> Iterator[None]:
    """Run a block in eval mode and without gradient; modes come back as they were."""
    modes = [part for part in model.modules() if part.training]
    for part in modes:
        part.training = False
    try:
        with torch.no_grad():
            yield
    finally:
        for part in modes:
            part.training = True


def trainable_body(guest: nn.Module, train: str) -> nn.Module:
    """Make the body that goes under a new head; training it leaves `guest` alone.

    For ``"all"`` it is a copy. Else it is a twin: the same weights in the same memory,
    held by parameters of its own, so that neither flags, modes nor devices of the
    guest change with those of the twin.
    """
    if train == "all":
        copy = deepcopy(guest)
        for weight in copy.parameters():
            weight.requires_grad_(weight.is_floating_point())
        return copy
    twins: dict[int, Any] = {
        id(weight): nn.Parameter(weight.detach(), requires_grad=False)
        for weight in guest.parameters()
        if type(weight) is nn.Parameter  # what quantised models hold is theirs
    }
    body = deepcopy(guest, twins)
    return body if train == "head" else _with_adapters(body)


def _with_adapters(body: nn.Module) -> nn.Module:
    """Put low-rank updates, zero at first, beside every linear layer."""
    peft = import_library("peft", "lora", " or train='head' or 'all'")
    config = peft.LoraConfig(target_modules="all-linear")
    adapted: nn.Module = peft.inject_adapter_in_model(config, body)
    return adapted


def _float_dtype(model: nn.Module) -> torch.dtype:
    floats = (p.dtype for p in model.parameters() if p.is_floating_point())
    return next(floats, torch.float32)
