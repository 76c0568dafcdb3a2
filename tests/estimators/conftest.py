"""Small estimators, guests and their data, for the tests of this room."""

import warnings
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from uqformer import StochasticAttentionClassifier, StochasticAttentionRegressor
from uqformer.exceptions import CalibrationWarning

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


class Reader(nn.Module):
    """A transformer over words, called with keywords; padding is masked."""

    def __init__(self, n_outputs: int = 3) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.embed = nn.Embedding(20, 8)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(8, n_outputs)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        hidden = self.encoder(
            self.embed(input_ids), src_key_padding_mask=attention_mask == 0
        )  # (N, T, D)
        output: Tensor = self.head(hidden[:, 0])  # (N, C)
        return output


def texts(n_rows: int, seed: int = 0) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Padded texts of 2 to 9 words, each class with words of its own, but for noise."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(3, size=n_rows)
    own = 1 + 6 * codes[:, None] + rng.integers(6, size=(n_rows, 9))
    noise = rng.random((n_rows, 9)) < 0.4
    ids = np.where(noise, rng.integers(1, 19, size=(n_rows, 9)), own)
    mask = (np.arange(9) < rng.integers(2, 10, size=(n_rows, 1))).astype(np.int64)
    return {"input_ids": ids * mask, "attention_mask": mask}, codes


def tiny_classifier(**changes: Any) -> StochasticAttentionClassifier:
    """Make the classifier of most tests, with some parameters changed."""
    return StochasticAttentionClassifier(**(TINY | {"max_epochs": 12} | changes))


@pytest.fixture(scope="session")
def three_classes() -> tuple[np.ndarray, np.ndarray]:
    """120 rows of three classes that overlap, under words for labels."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((120, 3))
    logits = 2 * X + rng.gumbel(size=X.shape)
    return X, np.array(["cat", "ant", "bee"])[logits.argmax(axis=1)]


@pytest.fixture(scope="session")
def fitted_classifier(three_classes: tuple[np.ndarray, np.ndarray]) -> Any:
    """Fitted once; tests that change it copy it first."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrationWarning)
        return tiny_classifier().fit(*three_classes)


@pytest.fixture
def reader() -> Reader:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Reader()


@pytest.fixture
def guest() -> Guest:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Guest()


@pytest.fixture(scope="session")
def fitted(heteroscedastic: tuple[np.ndarray, np.ndarray]) -> Any:
    """Fitted once; tests that change it copy it first."""
    return tiny().fit(*heteroscedastic)
