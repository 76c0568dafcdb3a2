"""Training a backbone: skorch's loop, held inside and never shown.

The recipe is AdamW with a linear warm-up, clipped gradients, an exponential average of
the weights, and early stopping on the validation loss of that average. Only parameters
that require a gradient are trained; a part of the module without any stays as it is.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeAlias

import torch
import torch.nn.functional as F
from skorch import NeuralNet
from skorch.callbacks import Callback, GradientNormClipping, LRScheduler
from skorch.utils import to_tensor
from torch import Tensor, nn
from torch.func import functional_call
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import Dataset
from tqdm.auto import tqdm

from uqformer._random import seeded

__all__ = [
    "Inputs",
    "Rows",
    "TrainingRecipe",
    "WeightedCrossEntropy",
    "WeightedSquaredError",
    "train_backbone",
    "trim_padding",
]

AVERAGE_DECAY = 0.99
"""Weight of the past in the running average of the weights, per step."""

WARMUP_EPOCHS = 5
"""Epochs over which the learning rate rises to its full value."""

GRADIENT_NORM = 1.0
"""Gradients longer than this are shortened to it."""

EVALUATION_ROWS = 2048
"""Rows of a table judged at once; bounds memory, changes nothing else."""

Inputs: TypeAlias = Tensor | dict[str, Tensor]
"""One tensor, or tensors of equal length that are handed over as keywords."""


@dataclass(frozen=True, slots=True)
class Rows(Dataset[Any]):
    """Rows: inputs (N, ...), targets (N, C) or codes (N,), weights (N,) of mean 1."""

    x: Inputs
    y: Tensor
    weight: Tensor

    def __len__(self) -> int:
        return len(self.weight)

    def __getitem__(self, rows: Any) -> Self:
        """Take some rows, without the padding that none of them needs."""
        if isinstance(self.x, dict):
            x: Inputs = {name: tensor[rows] for name, tensor in self.x.items()}
        else:
            x = self.x[rows]
        return type(self)(trim_padding(x), self.y[rows], self.weight[rows])


def trim_padding(x: Inputs) -> Inputs:
    """Cut off the last tokens where they are padding in every row.

    What has as many columns as the `attention_mask` goes by tokens and is cut with it.
    """
    mask = x.get("attention_mask") if isinstance(x, dict) else None
    if isinstance(x, Tensor) or mask is None or mask.ndim != 2:
        return x
    width = mask.shape[1]
    used = torch.nonzero((mask != 0).any(dim=0))
    longest = int(used[-1]) + 1 if len(used) else width
    return {
        name: tensor[:, :longest] if tensor.shape[1:2] == (width,) else tensor
        for name, tensor in x.items()
    }


@dataclass(frozen=True, slots=True)
class TrainingRecipe:
    """The numbers of a training, named as in the estimators."""

    max_epochs: int
    learning_rate: float
    weight_decay: float
    batch_size: int
    n_iter_no_change: int


class WeightedSquaredError(nn.Module):
    """Mean of weighted squared errors."""

    def forward(self, output: Tensor, truth: Sequence[Tensor]) -> Tensor:
        """Compare `output` (N, C) with targets (N, C), given weights (N,)."""
        target, weight = truth
        # (N, 1) against (N,) would broadcast to (N, N) and train on nonsense
        if output.shape != target.shape:
            raise ValueError(
                f"The backbone must return shape {tuple(target.shape)}, one row for "
                f"each of the {len(target)} samples and one column for each output; "
                f"got {tuple(output.shape)}."
            )
        return (weight[:, None] * (output - target) ** 2).mean()


class WeightedCrossEntropy(nn.Module):
    """Mean of weighted cross-entropies, in nats."""

    def forward(self, output: Tensor, truth: Sequence[Tensor]) -> Tensor:
        """Compare logits (N, C) with codes of classes (N,), given weights (N,)."""
        codes, weight = truth
        return (weight * F.cross_entropy(output, codes, reduction="none")).mean()


def train_backbone(
    module: nn.Module,
    train: Rows,
    valid: Rows,
    recipe: TrainingRecipe,
    *,
    criterion: type[nn.Module],
    seed: int,
    device: torch.device,
    verbose: int = 0,
) -> list[dict[str, Any]]:
    """Train `module` in place, leave the best averaged weights in it, return history.

    Parameters
    ----------
    module : nn.Module
        From (N, ...), or keywords, to (N, C); left in eval mode on `device`.
    train, valid : Rows
        Rows to learn from, and rows that say when to stop.
    recipe : TrainingRecipe
        Learning rate, epochs and so on.
    criterion : type
        Class of the loss: `WeightedSquaredError` or `WeightedCrossEntropy`.
    seed : int
        Of dropout and of the order of rows; the global generators are given back.
    device : torch.device
        Where to train.
    verbose : int, default=0
        Above 0 a progress bar over epochs is shown.

    Returns
    -------
    history : list of dict
        ``epoch``, ``train_loss`` and ``valid_loss`` (mean of `criterion`), one entry
        an epoch.

    Raises
    ------
    ValueError
        If nothing in `module` requires a gradient, or its output does not have the
        shape of the targets.
    FloatingPointError
        If the loss stops being finite.
    """
    if not any(parameter.requires_grad for parameter in module.parameters()):
        raise ValueError(
            "A backbone must have parameters to train; got "
            f"{type(module).__name__}, of which none requires a gradient. Hand it in "
            "as FrozenBackbone(module) to use it as it is."
        )
    n_batches = len(ShuffledBatches(train, recipe.batch_size))
    net = Net(
        PartlyTrained(module),
        criterion=criterion,
        optimizer=torch.optim.AdamW,
        lr=recipe.learning_rate,
        optimizer__weight_decay=recipe.weight_decay,
        optimizer__fused=device.type in ("cpu", "cuda"),
        max_epochs=recipe.max_epochs,
        batch_size=recipe.batch_size,
        iterator_train=ShuffledBatches,
        train_split=None,
        callbacks=[
            ("clip", GradientNormClipping(GRADIENT_NORM)),
            ("warmup", _warmup(WARMUP_EPOCHS * n_batches)),
            ("stopping", AveragedEarlyStopping(valid, recipe, verbose)),
        ],
        callbacks__print_log=None,
        device=device,
        verbose=0,
    )
    with seeded(seed):
        _run(net, train)
    module.eval()
    return [
        {key: epoch[key] for key in ("epoch", "train_loss", "valid_loss")}
        for epoch in net.history
    ]


def _run(net: NeuralNet, train: Rows) -> None:
    """Run skorch's loop without its habit of swallowing Ctrl-C."""
    net.initialize()
    net.notify("on_train_begin", X=train, y=None)
    try:
        net.fit_loop(train, y=None)
    except StopTraining:
        pass
    finally:
        net.notify("on_train_end", X=train, y=None)


class PartlyTrained(nn.Module):
    """A module whose parts with nothing to train stay in eval mode while it trains.

    Dropout there would be noise on what is given, and batch statistics would change.
    """

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module
        # a tuple, so that the parts are not registered twice
        self.given = tuple(part for part in module.modules() if _is_given(part))

    def train(self, mode: bool = True) -> Self:
        """Switch all but the given parts."""
        super().train(mode)
        for part in self.given:
            part.eval()
        return self

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Call the module."""
        return self.module(*args, **kwargs)

    def changing(self) -> dict[str, Tensor]:
        """Name what training changes: parameters, and buffers that go with them."""
        given = {id(tensor) for part in self.given for tensor in part.buffers()}
        return {
            name: parameter.detach()
            for name, parameter in self.named_parameters()
            if parameter.requires_grad
        } | {
            name: buffer
            for name, buffer in self.named_buffers()
            if id(buffer) not in given
        }


def _is_given(part: nn.Module) -> bool:
    flags = [parameter.requires_grad for parameter in part.parameters()]
    return bool(flags) and not any(flags)


class Net(NeuralNet):
    """A net whose optimiser and clipping see only what requires a gradient."""

    def get_all_learnable_params(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Yield names and parameters to train."""
        for name, parameter in super().get_all_learnable_params():
            if parameter.requires_grad:
                yield name, parameter


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


class ShuffledBatches:
    """Shuffled batches of nearly equal size, sliced and not collated row by row.

    Equal sizes spare a lone last row, which batch normalisation could not train on.
    """

    def __init__(self, dataset: Rows, batch_size: int) -> None:
        self.rows = dataset
        self.batch_size = batch_size

    def __len__(self) -> int:
        return -(-len(self.rows) // self.batch_size)

    def __iter__(self) -> Iterator[tuple[Inputs, tuple[Tensor, Tensor]]]:
        order = torch.randperm(len(self.rows))
        for numbers in order.tensor_split(len(self)):
            batch = self.rows[numbers]
            yield batch.x, (batch.y, batch.weight)


class AveragedEarlyStopping(Callback):
    """Average the weights, judge the average, keep the best, stop in time."""

    def __init__(self, valid: Rows, recipe: TrainingRecipe, verbose: int) -> None:
        is_table = isinstance(valid.x, Tensor) and valid.x.ndim == 2
        self.judged_rows = EVALUATION_ROWS if is_table else recipe.batch_size
        self.valid = valid
        self.patience = recipe.n_iter_no_change
        self.verbose = verbose

    def on_train_begin(self, net: NeuralNet, **kwargs: Any) -> None:
        """Start the average, the memory of the best, and the bar."""
        self.average_: dict[str, Tensor] = {}
        self.n_averaged_ = 0
        self.best_loss_ = float("inf")
        self.best_: dict[str, Tensor] = {}
        self.misses_ = 0
        self.bar_ = tqdm(
            total=net.max_epochs, desc="fit", unit="epoch", disable=self.verbose == 0
        )

    def on_batch_end(self, net: NeuralNet, training: bool, **kwargs: Any) -> None:
        """Take one step of the average."""
        if not training:
            return
        current = net.module_.changing()
        if not self.average_:
            self.average_ = _copied(current)
        else:
            now = [current[name] for name in self.average_]
            _running_average(list(self.average_.values()), now, self.n_averaged_)
        self.n_averaged_ += 1

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
            self.best_ = _copied(self.average_)
            self.misses_ = 0
        if self.misses_ >= self.patience:
            raise StopTraining

    def on_train_end(self, net: NeuralNet, **kwargs: Any) -> None:
        """Leave the best average in the module."""
        self.bar_.close()
        if self.best_:
            for name, tensor in net.module_.changing().items():
                tensor.copy_(self.best_[name])

    def _valid_loss(self, net: NeuralNet) -> float:
        module = net.module_.eval()
        total = 0.0
        with torch.no_grad():
            for start in range(0, len(self.valid), self.judged_rows):
                rows = self.valid[start : start + self.judged_rows]
                x = to_tensor(rows.x, device=net.device)
                args, keywords = ((), x) if isinstance(x, dict) else ((x,), {})
                output = functional_call(module, self.average_, args, keywords)
                loss = net.get_loss(output, (rows.y, rows.weight))
                total += len(rows) * float(loss)
        return total / len(self.valid)


def _copied(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in tensors.items()}


def _running_average(
    average: Sequence[Tensor], current: Sequence[Tensor], n_averaged: int
) -> None:
    """Exponential average whose memory grows with the steps taken so far."""
    decay = min(AVERAGE_DECAY, (1 + n_averaged) / (10 + n_averaged))
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
