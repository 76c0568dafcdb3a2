"""A small regressor and its data, for the tests of this room."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from uqformer import StochasticAttentionRegressor

TINY: dict[str, Any] = {
    "max_epochs": 3,
    "n_members": 4,
    "n_draws": 8,
    "backbone_params": {"d_token": 16, "n_heads": 2, "n_blocks": 2},
    "random_state": 0,
}


class Guest(nn.Module):
    """A transformer over columns, as somebody else might have written it."""

    def __init__(self, n_features: int = 3, n_outputs: int = 1) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.lift = nn.Linear(1, 8)
        self.encoder = nn.TransformerEncoder(layer, 2)
        self.head = nn.Linear(8 * n_features, n_outputs)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.encoder(self.lift(x[..., None]))  # (N, T, D)
        output: Tensor = self.head(hidden.flatten(1))  # (N, C)
        return output


def tiny(**changes: Any) -> StochasticAttentionRegressor:
    """Make the estimator of most tests, with some parameters changed."""
    return StochasticAttentionRegressor(**(TINY | changes))


@pytest.fixture
def guest() -> Guest:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Guest()


@pytest.fixture(scope="session")
def fitted(heteroscedastic: tuple[np.ndarray, np.ndarray]) -> Any:
    """Fitted once; tests that change it copy it first."""
    return tiny().fit(*heteroscedastic)
