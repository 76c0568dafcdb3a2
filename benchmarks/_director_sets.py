"""Data and backbones of the DIRECTOR benchmark; training that keeps two epochs."""

import copy
import io
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from _common import data_folder
from sklearn.datasets import load_digits
from sklearn.preprocessing import StandardScaler
from torch import Tensor, nn

from uqformer._random import seeded
from uqformer.backbones import FTTransformer, PatchTransformer

Pair: TypeAlias = tuple[Tensor, Tensor]

WARMUP_EPOCHS = 5


@dataclass(frozen=True)
class Problem:
    """Rows in three parts, rows from elsewhere, and how to build a backbone."""

    train: Pair
    valid: Pair
    test: Pair
    outsiders: Tensor | None
    build: Callable[[], nn.Module]
    max_epochs: int
    distil_epochs: int
    distil_batch_size: int
    is_small: bool


def _parted(
    x: np.ndarray, y: np.ndarray, sizes: tuple[int, ...], seed: int
) -> list[Pair]:
    order = np.random.default_rng(seed).permutation(len(y))[: sum(sizes)]
    parts = np.split(order, np.cumsum(sizes)[:-1])
    return [
        (torch.from_numpy(x[part]).float(), torch.from_numpy(y[part]).long())
        for part in parts
    ]


def digits(seed: int, noise: float) -> Problem:
    """scikit-learn's digits, 8 x 8, under normal noise; grey values lie in [0, 1]."""
    x, y = load_digits(return_X_y=True)
    rng = np.random.default_rng(seed)
    x = x.reshape(-1, 8, 8) / 16 + noise * rng.standard_normal((len(y), 8, 8))
    train, valid, test = _parted(x, y, (700, 150, 947), seed)

    def build() -> nn.Module:
        return PatchTransformer(8, 10, patch_size=2, d_token=32, n_blocks=4).adapt(
            train[0]
        )

    return Problem(train, valid, test, None, build, 60, 60, 32, is_small=True)


def mnist(seed: int) -> Problem:
    """Few of MNIST's test images; handwriting of other scripts as outsiders."""
    folder = data_folder() / "images"
    with np.load(folder / "mnist_t10k.npz", allow_pickle=False) as data:
        x, y = data["x"] / 255, data["y"]
    with np.load(folder / "omniglot_small1_28x28.npz", allow_pickle=False) as data:
        outsiders = torch.from_numpy(data["x"] / 255).float()
    train, valid, test = _parted(x, y, (1500, 300, 2000), seed)
    rows = np.random.default_rng(seed).permutation(len(outsiders))[:1000]

    def build() -> nn.Module:
        return PatchTransformer(28, 10, patch_size=7, d_token=32, n_blocks=4).adapt(
            train[0]
        )

    return Problem(
        train, valid, test, outsiders[rows], build, 25, 25, 32, is_small=False
    )


def covtype(seed: int) -> Problem:
    """Forest cover of seven kinds, from ten numbers and two categories."""
    frame = pd.read_csv(data_folder() / "tabular" / "covtype15k.csv.gz")
    y = frame.pop("cover_type").to_numpy() - 1
    categories = ["wilderness_area", "soil_type"]
    codes = frame[categories].apply(lambda column: column.astype("category").cat.codes)
    numbers = frame.drop(columns=categories).to_numpy(dtype=float)
    x = np.column_stack([StandardScaler().fit_transform(numbers), codes])
    sizes = [0] * numbers.shape[1] + (codes.max() + 1).tolist()
    train, valid, test = _parted(x, y, (3000, 500, 2000), seed)

    def build() -> nn.Module:
        return FTTransformer(
            x.shape[1], 7, n_categories=sizes, d_token=32, n_heads=4, n_blocks=3
        ).adapt(train[0])

    return Problem(train, valid, test, None, build, 25, 25, 32, is_small=False)


def cifar10(seed: int) -> Problem:
    """A few thousand small photographs; the network sees 16 patches of 8 x 8 pixels."""
    x, y = _photographs("cifar10_train20k.npz")
    train, valid, test = _parted(x, y, (8000, 1000, 2000), seed)

    def build() -> nn.Module:
        return PatchTransformer(3, 10, patch_size=8, d_token=64, n_blocks=5).adapt(
            train[0]
        )

    return Problem(train, valid, test, None, build, 15, 15, 64, is_small=False)


def _photographs(name: str) -> tuple[np.ndarray, np.ndarray]:
    from PIL import Image

    with np.load(data_folder() / "cifar10" / name, allow_pickle=False) as data:
        blob, ends, y = data["jpeg"].tobytes(), data["offsets"], data["y"]
    files = (blob[a:b] for a, b in itertools.pairwise(ends))
    x = np.stack([np.asarray(Image.open(io.BytesIO(file))) for file in files])
    return x.transpose(0, 3, 1, 2) / np.float32(255), y.astype(np.int64)


PROBLEMS: dict[str, Callable[[int], Problem]] = {
    "digits, noise 0.4": lambda seed: digits(seed, 0.4),
    "mnist": mnist,
    "covtype": covtype,
    "digits, noise 0.6": lambda seed: digits(seed, 0.6),
    "cifar10": cifar10,
}


def train(problem: Problem, seed: int) -> tuple[nn.Module, nn.Module, int]:
    """Train a backbone as the estimators do, but to the last epoch.

    Returns the average of weights at the best epoch, the weights as they are after the
    last, as training without a validation set would leave them, and which was the best.
    Students are taught with the same average and choice of epoch.
    """
    x, y = problem.train
    with seeded(seed):
        module = problem.build()
        average = copy.deepcopy(module)
        optimizer = torch.optim.AdamW(module.parameters(), lr=1e-3, weight_decay=1e-4)
        n_batches, n_steps = -(-len(y) // 64), 0
        best, best_loss, best_epoch = average, np.inf, 0
        for epoch in range(1, problem.max_epochs + 1):
            module.train()
            for rows in torch.randperm(len(y)).tensor_split(n_batches):
                n_steps += 1
                warm = min(1.0, n_steps / (WARMUP_EPOCHS * n_batches))
                optimizer.param_groups[0]["lr"] = 1e-3 * warm
                optimizer.zero_grad()
                F.cross_entropy(module(x[rows]), y[rows]).backward()
                nn.utils.clip_grad_norm_(module.parameters(), 1.0)
                optimizer.step()
                with torch.no_grad():
                    _average(average, module, n_steps)
            output = logits(average, problem.valid[0])
            loss = float(F.cross_entropy(output, problem.valid[1]))
            if loss < best_loss:
                best, best_loss, best_epoch = copy.deepcopy(average), loss, epoch
    for kept in (best, module):
        kept.zero_grad()
        kept.eval()
    return best, module, best_epoch


def _average(average: nn.Module, module: nn.Module, n_steps: int) -> None:
    pairs = zip(average.parameters(), module.parameters(), strict=True)
    decay = min(0.99, (1 + n_steps) / (10 + n_steps))
    for old, new in pairs:
        old.lerp_(new, 1 - decay)


def logits(module: nn.Module, x: Tensor, batch_size: int = 256) -> Tensor:
    """Run a module as it is over rows."""
    module.eval()
    with torch.no_grad():
        return torch.cat([module(rows) for rows in x.split(batch_size)])
