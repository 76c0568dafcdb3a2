"""Training a backbone: skorch's loop, held inside and never shown.

The recipe is AdamW with a linear warm-up, clipped gradients, an exponential average of
the weights, and early stopping on the validation loss of that average.
"""

import math
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import torch
from skorch import NeuralNet
from skorch.callbacks import Callback, GradientNormClipping, LRScheduler
from torch import Tensor, nn
from torch.optim.lr_scheduler import LambdaLR
from torch.optim.swa_utils import AveragedModel
from torch.utils.data import TensorDataset
from tqdm.auto import tqdm

from uqformer._random import seeded

__all__ = ["Rows", "TrainingRecipe", "train_regressor"]

AVERAGE_DECAY = 0.99
"""Weight of the past in the running average of the weights, per step."""

WARMUP_EPOCHS = 5
"""Epochs over which the learning rate rises to its full value."""

GRADIENT_NORM = 1.0
"""Gradients longer than this are shortened to it."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows: inputs (N, ...), targets (N, C) and weights (N,) of mean 1."""

    x: Tensor
    y: Tensor
    weight: Tensor

    def __len__(self) -> int:
        return len(self.x)

    def packed(self) -> Tensor:
        """Targets with the weight as one more column, the way the loss takes them."""
        return torch.cat([self.y, self.weight[:, None]], dim=1)  # (N, C + 1)


@dataclass(frozen=True, slots=True)
class TrainingRecipe:
    """The numbers of a training, named as in the estimators."""

    max_epochs: int
    learning_rate: float
    weight_decay: float
    batch_size: int
    n_iter_no_change: int


def train_regressor(
    module: nn.Module,
    train: Rows,
    valid: Rows,
    recipe: TrainingRecipe,
    *,
    seed: int,
    device: torch.device,
    verbose: int = 0,
) -> list[dict[str, Any]]:
    """Train `module` in place, leave the best averaged weights in it, return history.

    Parameters
    ----------
    module : nn.Module
        From (N, ...) to (N, C); left in eval mode on `device`.
    train, valid : Rows
        Rows to learn from, and rows that say when to stop.
    recipe : TrainingRecipe
        Learning rate, epochs and so on.
    seed : int
        Of dropout and of the order of rows; the global generators are given back.
    device : torch.device
        Where to train.
    verbose : int, default=0
        Above 0 a progress bar over epochs is shown.

    Returns
    -------
    history : list of dict
        ``epoch``, ``train_loss`` and ``valid_loss`` (mean squared error in the units of
        the scaled targets), one entry an epoch.

    Raises
    ------
    ValueError
        If the output of `module` does not have the shape of the targets.
    FloatingPointError
        If the loss stops being finite.
    """
    stopping = AveragedEarlyStopping(valid, recipe.n_iter_no_change, verbose)
    n_batches = len(TensorBatches(TensorDataset(train.x), recipe.batch_size))
    net = NeuralNet(
        module,
        criterion=WeightedSquaredError,
        optimizer=torch.optim.AdamW,
        lr=recipe.learning_rate,
        optimizer__weight_decay=recipe.weight_decay,
        optimizer__fused=device.type in ("cpu", "cuda"),
        max_epochs=recipe.max_epochs,
        batch_size=recipe.batch_size,
        iterator_train=TensorBatches,
        train_split=None,
        callbacks=[
            ("clip", GradientNormClipping(GRADIENT_NORM)),
            ("warmup", _warmup(WARMUP_EPOCHS * n_batches)),
            ("stopping", stopping),
        ],
        callbacks__print_log=None,
        device=device,
        verbose=0,
    )
    with seeded(seed):
        _run(net, TensorDataset(train.x, train.packed()))
    module.eval()
    return [
        {key: epoch[key] for key in ("epoch", "train_loss", "valid_loss")}
        for epoch in net.history
    ]


def _run(net: NeuralNet, dataset: TensorDataset) -> None:
    """Run skorch's loop without its habit of swallowing Ctrl-C."""
    net.initialize()
    net.notify("on_train_begin", X=dataset, y=None)
    try:
        net.fit_loop(dataset, y=None)
    except StopTraining:
        pass
    finally:
        net.notify("on_train_end", X=dataset, y=None)


def _warmup(n_steps: int) -> LRScheduler:
    return LRScheduler(policy=LambdaLR, lr_lambda=Warmup(n_steps), step_every="batch")


class Warmup:
    """Share of the full learning rate at a step; an object, so that it pickles."""

    def __init__(self, n_steps: int) -> None:
        self.n_steps = n_steps

    def __call__(self, step: int) -> float:
        return min(1.0, (step + 1) / self.n_steps)


class StopTraining(Exception):
    """Ends the loop; skorch itself would use KeyboardInterrupt for it."""


class TensorBatches:
    """Shuffled batches of nearly equal size, sliced and not collated row by row.

    Equal sizes spare a lone last row, which batch normalisation could not train on.
    """

    def __init__(self, dataset: TensorDataset, batch_size: int) -> None:
        self.tensors = dataset.tensors
        self.batch_size = batch_size

    def __len__(self) -> int:
        return -(-len(self.tensors[0]) // self.batch_size)

    def __iter__(self) -> Iterator[tuple[Tensor, ...]]:
        order = torch.randperm(len(self.tensors[0]))
        for rows in order.tensor_split(len(self)):
            yield tuple(tensor[rows] for tensor in self.tensors)


class WeightedSquaredError(nn.Module):
    """Mean of weighted squared errors; the target's last column is the weight."""

    def forward(self, output: Tensor, packed: Tensor) -> Tensor:
        """Compare `output` (N, C) with `packed` (N, C + 1)."""
        target, weight = packed[:, :-1], packed[:, -1:]
        # (N, 1) against (N,) would broadcast to (N, N) and train on nonsense
        if output.shape != target.shape:
            raise ValueError(
                f"The backbone must return shape {tuple(target.shape)}, one row for "
                f"each of the {len(target)} samples and one column for each output; "
                f"got {tuple(output.shape)}."
            )
        return (weight * (output - target) ** 2).mean()


class AveragedEarlyStopping(Callback):
    """Average the weights, judge the average, keep the best, stop in time."""

    def __init__(self, valid: Rows, patience: int, verbose: int) -> None:
        self.valid = valid
        self.patience = patience
        self.verbose = verbose

    def on_train_begin(self, net: NeuralNet, **kwargs: Any) -> None:
        """Start the average, the memory of the best, and the bar."""
        self.average_ = AveragedModel(
            net.module_, multi_avg_fn=_running_average, use_buffers=True
        )
        self.best_loss_ = float("inf")
        self.best_state_: dict[str, Tensor] | None = None
        self.misses_ = 0
        self.bar_ = tqdm(
            total=net.max_epochs, desc="fit", unit="epoch", disable=self.verbose == 0
        )

    def on_batch_end(self, net: NeuralNet, training: bool, **kwargs: Any) -> None:
        """Take one step of the average."""
        if training:
            self.average_.update_parameters(net.module_)

    def on_epoch_end(self, net: NeuralNet, **kwargs: Any) -> None:
        """Judge the average; remember it, or lose patience."""
        loss = self._valid_loss(net)
        net.history.record("valid_loss", loss)
        _check_finite(loss, net)
        self.bar_.set_postfix(
            train_loss=f"{net.history[-1, 'train_loss']:.4f}", valid_loss=f"{loss:.4f}"
        )
        self.bar_.update()
        self.misses_ += 1
        if loss < self.best_loss_:
            self.best_loss_ = loss
            self.best_state_ = deepcopy(self.average_.module.state_dict())
            self.misses_ = 0
        if self.misses_ >= self.patience:
            raise StopTraining

    def on_train_end(self, net: NeuralNet, **kwargs: Any) -> None:
        """Leave the best average in the module."""
        self.bar_.close()
        if self.best_state_ is not None:
            net.module_.load_state_dict(self.best_state_)

    def _valid_loss(self, net: NeuralNet) -> float:
        self.average_.eval()
        total = 0.0
        with torch.no_grad():
            parts = zip(
                self.valid.x.split(EVALUATION_ROWS),
                self.valid.packed().split(EVALUATION_ROWS),
                strict=True,
            )
            for x, packed in parts:
                output = self.average_(x.to(net.device))
                loss = net.criterion_(output, packed.to(net.device))
                total += len(x) * float(loss)
        return total / len(self.valid)


EVALUATION_ROWS = 2048
"""Rows judged at once; bounds memory, changes nothing else."""


def _running_average(
    average: Sequence[Tensor], current: Sequence[Tensor], n_averaged: Tensor | int
) -> None:
    """Exponential average whose memory grows with the steps taken so far."""
    n_steps = int(n_averaged)
    decay = min(AVERAGE_DECAY, (1 + n_steps) / (10 + n_steps))
    for old, new in zip(average, current, strict=True):
        if old.is_floating_point():
            old.lerp_(new, 1 - decay)
        else:
            old.copy_(new)


def _check_finite(loss: float, net: NeuralNet) -> None:
    if not math.isfinite(loss):
        raise FloatingPointError(
            f"Training diverged: the validation loss was {loss} after epoch "
            f"{net.history[-1, 'epoch']} with learning_rate={net.lr}. Try a smaller "
            "learning_rate, or scale the inputs of the backbone."
        )
