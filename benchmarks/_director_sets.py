"""Data and backbones of the DIRECTOR benchmark; training that keeps two epochs."""

import copy
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
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
from uqformer.backbones import FTTransformer, PatchTransformer, TokenTransformer
from uqformer.datasets import CORRUPTIONS, corrupt_images, fetch_cifar10

Pair: TypeAlias = tuple[Tensor, Tensor]

WARMUP_EPOCHS = 5

N_WORDS = 80
"""Words of a review that are read, the first ones."""

MIN_COUNT = 5
"""Words that are rarer in the training rows are all the same one."""

SEVERE = 3
"""Severity of corruptions, of 1 to 5."""


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Rows in three parts, rows from elsewhere, and how to build a backbone."""

    train: Pair
    valid: Pair
    test: Pair
    build: Callable[[], nn.Module]
    max_epochs: int
    distil_epochs: int
    batch_size: int = 64
    has_ensemble: bool = True
    outsiders: dict[str, Tensor] = field(default_factory=dict)
    shifts: dict[str, Pair] = field(default_factory=dict)


def _parted(
    x: np.ndarray, y: np.ndarray, sizes: tuple[int, ...], seed: int
) -> list[Pair]:
    order = np.random.default_rng(seed).permutation(len(y))[: sum(sizes)]
    parts = np.split(order, np.cumsum(sizes)[:-1])
    return [_pair(x[part], y[part]) for part in parts]


def _pair(x: np.ndarray, y: np.ndarray) -> Pair:
    return torch.tensor(x).float(), torch.tensor(y).long()


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

    return Problem(
        train=train, valid=valid, test=test, build=build,
        max_epochs=60, distil_epochs=90, batch_size=32,
    )  # fmt: skip


def mnist(seed: int) -> Problem:
    """Few of MNIST's test images; handwriting of other scripts as outsiders."""
    folder = data_folder() / "images"
    with np.load(folder / "mnist_t10k.npz", allow_pickle=False) as data:
        x, y = data["x"] / 255, data["y"]
    with np.load(folder / "omniglot_small1_28x28.npz", allow_pickle=False) as data:
        others = torch.from_numpy(data["x"] / 255).float()
    train, valid, test = _parted(x, y, (1500, 300, 3000), seed)
    rows = np.random.default_rng(seed).permutation(len(others))[:1000]

    def build() -> nn.Module:
        return PatchTransformer(28, 10, patch_size=7, d_token=32, n_blocks=4).adapt(
            train[0]
        )

    return Problem(
        train=train, valid=valid, test=test, build=build,
        max_epochs=40, distil_epochs=60, batch_size=32,
        outsiders={"other scripts": others[rows]},
    )  # fmt: skip


def covtype(seed: int) -> Problem:
    """Forest cover of seven kinds, from ten numbers and two categories."""
    frame = pd.read_csv(data_folder() / "tabular" / "covtype15k.csv.gz")
    y = frame.pop("cover_type").to_numpy() - 1
    categories = ["wilderness_area", "soil_type"]
    codes = frame[categories].apply(lambda column: column.astype("category").cat.codes)
    numbers = frame.drop(columns=categories).to_numpy(dtype=float)
    x = np.column_stack([StandardScaler().fit_transform(numbers), codes])
    sizes = [None] * numbers.shape[1] + (codes.max() + 1).tolist()
    train, valid, test = _parted(x, y, (4000, 600, 4000), seed)

    def build() -> nn.Module:
        return FTTransformer(
            x.shape[1], 7, n_categories=sizes, d_token=32, n_heads=4, n_blocks=3
        ).adapt(train[0])

    return Problem(
        train=train, valid=valid, test=test, build=build,
        max_epochs=40, distil_epochs=60,
    )  # fmt: skip


def imdb(seed: int) -> Problem:
    """Film reviews as their first words; a network of two blocks that knows no text."""
    folder = data_folder() / "imdb"
    frames = [pd.read_csv(folder / f"{part}5k.csv.gz") for part in ("train", "test")]
    texts = [frame["text"].str.lower().str.findall(r"[a-z']+") for frame in frames]
    labels = [frame["label"].to_numpy() for frame in frames]
    order = np.random.default_rng(seed).permutation(len(labels[0]))
    parts = order[:4000], order[4000:]
    counts = Counter(word for row in parts[0] for word in texts[0][row])
    words = sorted(word for word, count in counts.items() if count >= MIN_COUNT)
    known = {word: number + 2 for number, word in enumerate(words)}

    def ids(rows: pd.Series) -> np.ndarray:
        filled = np.zeros((len(rows), N_WORDS))  # 0 fills up, 1 is any rare word
        for row, found in enumerate(rows):
            some = [known.get(word, 1) for word in found[:N_WORDS]]
            filled[row, : len(some)] = some
        return filled

    train, valid = (_pair(ids(texts[0][part]), labels[0][part]) for part in parts)
    test = _pair(ids(texts[1]), labels[1])

    def build() -> nn.Module:
        return TokenTransformer(
            N_WORDS, 2, n_tokens=len(words) + 2, pad_id=0, d_token=32, n_blocks=2
        ).adapt(train[0])

    return Problem(
        train=train, valid=valid, test=test, build=build,
        max_epochs=12, distil_epochs=20,
    )  # fmt: skip


def cifar10(seed: int) -> Problem:
    """Small photographs, 8,000 to learn from; the network sees 16 patches."""
    x, y = fetch_cifar10(subset="train", return_X_y=True)
    train, valid = _parted(_channels_first(x), y, (8000, 1000), seed)
    x, y = fetch_cifar10(subset="test", return_X_y=True)
    some = np.random.default_rng(seed).permutation(len(y))[:1200]
    spoilt = [
        corrupt_images(x[part], kind, SEVERE, random_state=seed)
        for kind, part in zip(
            CORRUPTIONS, np.array_split(some, len(CORRUPTIONS)), strict=True
        )
    ]

    def build() -> nn.Module:
        return PatchTransformer(3, 10, patch_size=8, d_token=64, n_blocks=5).adapt(
            train[0]
        )

    with np.load(data_folder() / "images" / "mnist_t10k.npz") as data:
        digit = torch.from_numpy(data["x"][:1000] / 255).float()
    digit = nn.functional.pad(digit, (2, 2, 2, 2))  # (N, 32, 32)
    return Problem(
        train=train, valid=valid, test=_pair(_channels_first(x[:4000]), y[:4000]),
        build=build, max_epochs=20, distil_epochs=40,
        outsiders={"MNIST": digit[:, None].repeat(1, 3, 1, 1)},
        shifts={
            "CIFAR-10-C": _pair(_channels_first(np.concatenate(spoilt)), y[some])
        },
    )  # fmt: skip


def _channels_first(x: np.ndarray) -> np.ndarray:
    return x.transpose(0, 3, 1, 2) / np.float32(255)


PROBLEMS: dict[str, Callable[[int], Problem]] = {
    "digits, noise 0.5": lambda seed: digits(seed, 0.5),
    "imdb": imdb,
    "covtype": covtype,
    "mnist": mnist,
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
