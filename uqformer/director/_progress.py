"""Where a training stands: the average of its weights, the best of it, its history."""

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["Progress"]

AVERAGE_DECAY = 0.99
"""Weight of the past in the running average of the weights, per step."""


class Progress:
    """Weights in training, with their running average and the best of it so far.

    Parameters
    ----------
    trained : dict of str to nn.Parameter
        What is trained.
    optimizer : torch.optim.Optimizer
        What trains it; its state is saved along.
    """

    def __init__(
        self, trained: dict[str, nn.Parameter], optimizer: torch.optim.Optimizer
    ) -> None:
        self._trained = trained
        self._optimizer = optimizer
        self._average = _copied(trained)
        self._best = _copied(trained)
        self.n_updates = 0
        self.best_loss = math.inf
        self.misses = 0
        self.history: list[dict[str, float]] = []

    def update(self) -> None:
        """Average exponentially, with a memory that grows with the steps so far."""
        self.n_updates += 1
        decay = min(AVERAGE_DECAY, (1 + self.n_updates) / (10 + self.n_updates))
        with torch.no_grad():
            for name, parameter in self._trained.items():
                self._average[name].lerp_(parameter, 1 - decay)

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """Put the average in the place of the weights while a block lasts."""
        own = _copied(self._trained)
        _fill(self._trained, self._average)
        try:
            yield
        finally:
            _fill(self._trained, own)

    def remember(self, entry: dict[str, float]) -> None:
        """Note an epoch, and the average if it is the best so far."""
        self.history.append(entry)
        self.misses += 1
        if entry["valid_loss"] < self.best_loss:
            self.best_loss = entry["valid_loss"]
            self._best = _copied(self._average)
            self.misses = 0

    def leave_best(self) -> None:
        """Put the best average in the place of the weights, for good."""
        _fill(self._trained, self._best)

    def state_dict(self) -> dict[str, Any]:
        """Return all that is needed to go on: tensors, numbers, lists and dicts."""
        return {
            "weights": _copied(self._trained),
            "average": _copied(self._average),
            "best": _copied(self._best),
            "optimizer": deepcopy(self._optimizer.state_dict()),
            "n_updates": self.n_updates,
            "best_loss": self.best_loss,
            "misses": self.misses,
            "history": [dict(entry) for entry in self.history],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from where `state_dict` was taken."""
        _fill(self._trained, state["weights"])
        self._optimizer.load_state_dict(state["optimizer"])
        self._average = _copied(state["average"])
        self._best = _copied(state["best"])
        self.n_updates = state["n_updates"]
        self.best_loss = state["best_loss"]
        self.misses = state["misses"]
        self.history = [dict(entry) for entry in state["history"]]


def _copied(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in tensors.items()}


def _fill(parameters: dict[str, nn.Parameter], values: Mapping[str, Tensor]) -> None:
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(values[name])
