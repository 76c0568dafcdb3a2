"""A tiny image transformer, digits under heavy noise, and what is asked of models."""

import hashlib
from dataclasses import dataclass

import pytest
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import Tensor, nn

from uqformer._random import seeded


class TinyViT(nn.Module):
    """Patches of 2 x 2 pixels of 8 x 8 images, pre-norm blocks, mean pooling."""

    def __init__(self, width: int = 32, n_blocks: int = 4, n_classes: int = 10) -> None:
        super().__init__()
        self.embed = nn.Linear(4, width)
        self.position = nn.Parameter(0.1 * torch.randn(16, width))
        layer = nn.TransformerEncoderLayer(
            width, 4, 2 * width, dropout=0.0, batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(
            layer, n_blocks, norm=nn.LayerNorm(width), enable_nested_tensor=False
        )
        self.head = nn.Linear(width, n_classes)

    def forward(self, x: Tensor) -> Tensor:
        patches = F.unfold(x.reshape(-1, 1, 8, 8), 2, stride=2)  # (N, 4, T)
        tokens = self.embed(patches.transpose(1, 2)) + self.position  # (N, T, D)
        return self.head(self.encoder(tokens).mean(dim=1))  # (N, C)


@dataclass
class Digits:
    """Noisy digits in three parts, and a model that was trained on the first."""

    model: TinyViT
    train: tuple[Tensor, Tensor]
    valid: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]


def noisy_digits(n_train: int, n_valid: int, noise: float) -> list[tuple[Tensor, ...]]:
    images, labels = load_digits(return_X_y=True)
    generator = torch.Generator().manual_seed(0)
    order = torch.randperm(len(labels), generator=generator)
    x = torch.tensor(images, dtype=torch.float32)[order] / 16
    x = (x - 0.3 + noise * torch.randn(x.shape, generator=generator)).float()
    y = torch.tensor(labels)[order]
    sizes = [n_train, n_valid, len(y) - n_train - n_valid]
    return list(zip(x.split(sizes), y.split(sizes), strict=True))


def trained_vit(
    train: tuple[Tensor, ...], n_epochs: int, n_blocks: int = 4, width: int = 32
) -> TinyViT:
    """Train long enough to be far too sure, as pretrained models often are."""
    x, y = train
    with seeded(0):
        model = TinyViT(width, n_blocks)
        optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
        for _ in range(n_epochs):
            for rows in torch.randperm(len(y)).split(64):
                optimizer.zero_grad()
                F.cross_entropy(model(x[rows]), y[rows]).backward()
                optimizer.step()
    model.zero_grad()
    return model.eval()


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def digits() -> Digits:
    """A few digits and a small model, for everyday tests."""
    train, valid, test = noisy_digits(300, 60, noise=0.4)
    return Digits(trained_vit(train, 40, n_blocks=3, width=16), train, valid, test)


def digest(module: nn.Module) -> str:
    total = hashlib.sha256()
    for name, value in module.state_dict().items():
        total.update(name.encode() + value.detach().numpy().tobytes())
    return total.hexdigest()
