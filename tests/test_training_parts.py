"""Training of arrays by name, and of modules of which a part is given."""

from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from uqformer._random import seeded
from uqformer._training import (
    Rows,
    TrainingRecipe,
    WeightedCrossEntropy,
    WeightedSquaredError,
    train_backbone,
    trim_padding,
)


def _train(module: nn.Module, train: Rows, valid: Rows, **changes: Any) -> Any:
    criterion = changes.pop("criterion", WeightedCrossEntropy)
    numbers: dict[str, Any] = {
        "max_epochs": 10,
        "learning_rate": 1e-2,
        "weight_decay": 0.1,
        "batch_size": 4,
        "n_iter_no_change": 100,
    }
    return train_backbone(
        module,
        train,
        valid,
        TrainingRecipe(**(numbers | changes)),
        criterion=criterion,
        seed=0,
        device=torch.device("cpu"),
    )


class _Words(nn.Module):
    """Mean embedding of the words that the mask tells to be real; counts its widths."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(20, 8)
        self.given = nn.Sequential(nn.BatchNorm1d(8), nn.Dropout(0.9))
        self.given.requires_grad_(False)
        self.head = nn.Linear(8, 3)
        self.widths: list[int] = []

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        self.widths.append(input_ids.shape[1])
        real = attention_mask[..., None]
        words = self.embed(input_ids) * real
        mean = words.sum(dim=1) / real.sum(dim=1)
        output: Tensor = self.head(self.given(mean))
        return output


def _texts(n_rows: int, seed: int) -> Rows:
    """Class k has words from its own six; texts of 2 to 9 words."""
    rng = torch.Generator().manual_seed(seed)
    codes = torch.randint(3, (n_rows,), generator=rng)
    ids = 1 + 6 * codes[:, None] + torch.randint(6, (n_rows, 9), generator=rng)
    lengths = torch.randint(2, 10, (n_rows, 1), generator=rng)
    mask = (torch.arange(9) < lengths).long()
    return Rows(
        {"input_ids": ids * mask, "attention_mask": mask}, codes, torch.ones(n_rows)
    )


def test_arrays_by_name_train_and_given_parts_stay() -> None:
    with seeded(0):
        module = _Words()
    before = deepcopy(module.state_dict())
    train, valid = _texts(200, 0), _texts(60, 1)
    history = _train(module, train, valid)
    assert history[-1]["valid_loss"] < 0.2 < 1.0 < history[0]["valid_loss"]
    after = module.state_dict()
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed == {"embed.weight", "head.weight", "head.bias"}
    # batches of 4 texts are cut to the longest of them
    assert set(module.widths) <= set(range(2, 10))
    assert len(set(module.widths)) > 3


def test_padding_is_cut_where_no_row_needs_it() -> None:
    mask = torch.tensor([[1, 1, 0, 0, 0], [1, 0, 1, 0, 0]])
    x = {"attention_mask": mask, "input_ids": mask * 7, "bias": torch.ones(2, 3)}
    cut = trim_padding(x)
    assert {name: tuple(tensor.shape) for name, tensor in cut.items()} == {
        "attention_mask": (2, 3),
        "input_ids": (2, 3),
        "bias": (2, 3),
    }
    assert torch.equal(cut["input_ids"], mask[:, :3] * 7)
    left = {"attention_mask": mask.flip(1), "input_ids": mask}
    empty = {"attention_mask": 0 * mask, "input_ids": mask}
    assert trim_padding(left)["input_ids"].shape == (2, 5)
    assert trim_padding(empty)["input_ids"].shape == (2, 5)
    assert trim_padding(mask) is mask


def test_a_backbone_with_nothing_to_train_is_told() -> None:
    module = nn.Linear(3, 1).requires_grad_(False)
    rows = Rows(torch.zeros(5, 3), torch.zeros(5, 1), torch.ones(5))
    with pytest.raises(ValueError, match=r"none requires a gradient\. .*FrozenBackb"):
        _train(module, rows, rows, criterion=WeightedSquaredError)


def test_given_parts_that_share_a_module_with_trained_ones_are_trained_along() -> None:
    """Only what holds no trained weight at all stays in eval mode."""
    with seeded(0):
        module = _Words()
    module.given[0].weight.requires_grad_(True)
    before = deepcopy(module.state_dict())
    _train(module, _texts(50, 0), _texts(20, 1), max_epochs=1)
    after = module.state_dict()
    assert torch.equal(before["given.0.bias"], after["given.0.bias"])
    assert not torch.equal(before["given.0.weight"], after["given.0.weight"])
    assert not torch.equal(
        before["given.0.running_mean"], after["given.0.running_mean"]
    )


def test_what_is_not_trained_is_kept_from_the_optimiser() -> None:
    with seeded(0):
        module = _Words()
    module.given[0].weight.grad = torch.ones(8)  # from an earlier life
    _train(module, _texts(50, 0), _texts(20, 1), max_epochs=1)
    assert torch.equal(module.given[0].weight.grad, torch.ones(8))


def test_dropout_belongs_to_no_given_part() -> None:
    class Noted(nn.Dropout):
        modes: set[bool] = set()

        def forward(self, x: Tensor) -> Tensor:
            self.modes.add(self.training)
            return super().forward(x)

    module = nn.Sequential(nn.Linear(3, 1), Noted())
    rows = Rows(torch.ones(20, 3), torch.zeros(20, 1), torch.ones(20))
    _train(module, rows, rows, criterion=WeightedSquaredError, max_epochs=1)
    assert Noted.modes == {True, False}  # in training, and when judged
