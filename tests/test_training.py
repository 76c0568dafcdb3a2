"""Training: it learns, repeats bit for bit, keeps the best average, stops in time."""

import pickle
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from uqformer._random import seeded
from uqformer._training import (
    Rows,
    ShuffledBatches,
    TrainingRecipe,
    Warmup,
    WeightedCrossEntropy,
    WeightedSquaredError,
    _running_average,
    train_backbone,
)
from uqformer.backbones import FTTransformer

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Sums add up in one order only, so that bits can be compared."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def _recipe(**changes: Any) -> TrainingRecipe:
    numbers: dict[str, Any] = {
        "max_epochs": 5,
        "learning_rate": 1e-2,
        "weight_decay": 0.0,
        "batch_size": 16,
        "n_iter_no_change": 100,
    }
    return TrainingRecipe(**(numbers | changes))


def _rows(n_rows: int, seed: int = 0, noise: float = 0.0) -> Rows:
    """Rows of y = sum of x; three columns."""
    rng = torch.Generator().manual_seed(seed)
    x = torch.randn(n_rows, 3, generator=rng)
    y = x.sum(dim=1, keepdim=True) + noise * torch.randn(n_rows, 1, generator=rng)
    return Rows(x, y, torch.ones(n_rows))


def _mlp(dropout: float = 0.0) -> nn.Module:
    with seeded(0):
        return nn.Sequential(
            nn.Linear(3, 16), nn.ReLU(), nn.Dropout(dropout), nn.Linear(16, 1)
        )


def _train(module: nn.Module, train: Rows, valid: Rows, **changes: Any) -> Any:
    options = {"seed": 0, "verbose": 0, "criterion": WeightedSquaredError}
    options |= {name: changes.pop(name) for name in options if name in changes}
    return train_backbone(
        module, train, valid, _recipe(**changes), device=CPU, **options
    )


def _r2(module: nn.Module, rows: Rows) -> float:
    with torch.no_grad():
        error = ((module(rows.x) - rows.y) ** 2).mean()
    return float(1 - error / rows.y.var())


def _same_bits(first: nn.Module, second: nn.Module) -> bool:
    pairs = zip(first.state_dict().values(), second.state_dict().values(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


# -- It learns ----------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["mlp", "ft_transformer"])
def test_it_learns_a_sum(kind: str) -> None:
    train, valid, test = _rows(300, 0), _rows(60, 1), _rows(200, 2)
    module = _mlp()
    if kind == "ft_transformer":
        with seeded(0):
            module = FTTransformer(3, 1, d_token=16, n_heads=2, n_blocks=2)
            module.adapt(train.x)
    assert _r2(module.eval(), test) < 0.5
    _train(module, train, valid, max_epochs=30)
    assert _r2(module, test) > 0.9
    assert not module.training


def test_several_outputs_are_learned_together() -> None:
    train = _rows(300)
    y = torch.cat([train.y, -2 * train.y], dim=1)
    rows = Rows(train.x, y, train.weight)
    with seeded(0):
        module = nn.Linear(3, 2)
    history = _train(module, rows, rows, max_epochs=40)
    assert history[-1]["valid_loss"] < 0.05 * history[0]["valid_loss"]


def test_batch_normalisation_never_meets_a_lone_row() -> None:
    with seeded(0):
        module = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Linear(8, 1))
    history = _train(module, _rows(33), _rows(10, 1), batch_size=8, max_epochs=2)
    assert len(history) == 2


# -- It repeats, and leaves the world alone -----------------------------------------


def test_same_seed_gives_the_same_bits() -> None:
    train, valid = _rows(50), _rows(20, 1)
    modules = [_mlp(dropout=0.3) for _ in range(3)]
    for module, seed in zip(modules, (7, 7, 8), strict=True):
        torch.rand(seed)  # whatever the global generator has been through
        _train(module, train, valid, seed=seed)
    assert _same_bits(modules[0], modules[1])
    assert not _same_bits(modules[0], modules[2])


def test_global_generators_are_given_back() -> None:
    torch_before, numpy_before = torch.get_rng_state(), np.random.get_state()  # noqa: NPY002
    _train(_mlp(dropout=0.3), _rows(50), _rows(20, 1))
    assert torch.equal(torch.get_rng_state(), torch_before)
    numpy_after = np.random.get_state()  # noqa: NPY002
    assert all(map(np.array_equal, numpy_before, numpy_after))


# -- The best average stays, and training stops -------------------------------------


@pytest.mark.parametrize("n_valid", [20, 2500])  # 2500 are judged in two parts
def test_the_best_average_is_left_in_the_module(n_valid: int) -> None:
    train, valid = _rows(40, noise=2.0), _rows(n_valid, 1, noise=2.0)
    weight = torch.linspace(0.5, 1.5, n_valid)
    valid = Rows(valid.x, valid.y, weight)
    module = _mlp()
    history = _train(module, train, valid, max_epochs=80, learning_rate=0.1)
    losses = [epoch["valid_loss"] for epoch in history]
    assert min(losses) < losses[-1]  # the last is not the best, or nothing is shown
    with torch.no_grad():
        left = float((weight[:, None] * (module(valid.x) - valid.y) ** 2).mean())
    assert left == pytest.approx(min(losses), rel=1e-5)


@pytest.mark.parametrize("patience", [1, 4])
def test_it_stops_after_so_many_misses(patience: int) -> None:
    train = _rows(64)
    against = Rows(train.x, -train.y, train.weight)  # each step forward makes it worse
    module = nn.Linear(3, 1)
    nn.init.zeros_(module.weight)
    nn.init.zeros_(module.bias)
    history = _train(module, train, against, n_iter_no_change=patience, max_epochs=50)
    losses = [epoch["valid_loss"] for epoch in history]
    assert len(losses) == 1 + patience
    assert losses == sorted(losses)


def test_misses_are_counted_from_the_last_best_epoch() -> None:
    train, valid = _rows(40, noise=2.0), _rows(30, 1, noise=2.0)
    history = _train(
        _mlp(), train, valid, max_epochs=400, learning_rate=0.05, n_iter_no_change=9
    )
    losses = [epoch["valid_loss"] for epoch in history]
    assert 10 < len(losses) < 400
    assert len(losses) == 1 + int(np.argmin(losses)) + 9


def test_history_holds_losses_by_epoch() -> None:
    history = _train(_mlp(), _rows(50), _rows(20, 1), max_epochs=3)
    assert [set(epoch) for epoch in history] == [
        {"epoch", "train_loss", "valid_loss"}
    ] * 3
    assert [epoch["epoch"] for epoch in history] == [1, 2, 3]


def test_the_average_forgets_slowly_and_the_longer_the_slower() -> None:
    average, steps = [torch.tensor([0.0])], [torch.tensor([3])]
    for n_steps, decay in ((0, 0.1), (89, 90 / 99), (10**6, 0.99)):
        average[0].fill_(1.0)
        _running_average(average, [torch.tensor([0.0])], n_steps)
        assert float(average[0]) == pytest.approx(decay)
    _running_average(steps, [torch.tensor([8])], 5)
    assert int(steps[0]) == 8  # counts are no quantities to average


# -- Weights of rows ----------------------------------------------------------------


def test_targets_of_weightless_rows_do_not_matter() -> None:
    train, valid = _rows(40), _rows(20, 1)
    weight = torch.cat([torch.full((30,), 4 / 3), torch.zeros(10)])
    spoilt = train.y.clone()
    spoilt[30:] = 1e3
    modules = [_mlp(), _mlp()]
    for module, y in zip(modules, (train.y, spoilt), strict=True):
        _train(module, Rows(train.x, y, weight), valid)
    assert _same_bits(*modules)


def test_weight_two_trains_like_the_row_twice() -> None:
    rows, valid = _rows(30), _rows(20, 1)
    weight = torch.ones(30)
    weight[:10] = 2
    twice = torch.cat([torch.arange(30), torch.arange(10)])
    variants = {
        "weighted": Rows(rows.x, rows.y, weight / weight.mean()),
        "repeated": Rows(rows.x[twice], rows.y[twice], torch.ones(40)),
        "neither": rows,
    }
    left = {}
    for name, train in variants.items():
        module = _mlp()
        _train(module, train, valid, batch_size=64, max_epochs=20)
        left[name] = module(valid.x).detach()
    torch.testing.assert_close(left["weighted"], left["repeated"], rtol=1e-4, atol=1e-4)
    assert (left["weighted"] - left["neither"]).abs().max() > 1e-3


def test_loss_is_the_weighted_mean_over_rows_and_outputs() -> None:
    rng = torch.Generator().manual_seed(0)
    output, target = torch.randn(2, 5, 3, generator=rng)
    weight = torch.rand(5, generator=rng)
    by_hand = np.mean(
        [
            [float(weight[i] * (output[i, j] - target[i, j]) ** 2) for j in range(3)]
            for i in range(5)
        ]
    )
    loss = float(WeightedSquaredError()(output, (target, weight)))
    assert loss == pytest.approx(by_hand)


def test_cross_entropy_is_the_weighted_mean_over_rows() -> None:
    rng = torch.Generator().manual_seed(0)
    logits, weight = torch.randn(5, 3, generator=rng), torch.rand(5, generator=rng)
    codes = torch.tensor([0, 2, 1, 1, 0])
    proba = logits.exp() / logits.exp().sum(dim=1, keepdim=True)
    by_hand = sum(-float(weight[i] * proba[i, codes[i]].log()) for i in range(5)) / 5
    loss = float(WeightedCrossEntropy()(logits, (codes, weight)))
    assert loss == pytest.approx(by_hand, rel=1e-5)


# -- What goes wrong ----------------------------------------------------------------


class _Squeezed(nn.Module):
    """Forgets the axis of outputs: (N,) where (N, 1) is due."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 1)

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.linear(x)[:, 0]
        return output


def test_a_wrong_output_shape_is_not_broadcast() -> None:
    expected = r"must return shape \(16, 1\).*got \(16,\)"
    with pytest.raises(ValueError, match=expected):
        _train(_Squeezed(), _rows(16), _rows(8, 1))


def test_divergence_is_an_error_with_advice() -> None:
    expected = r"diverged.* after epoch 1 with learning_rate=1e\+30.*smaller"
    with pytest.raises(FloatingPointError, match=expected):
        _train(_mlp(), _rows(40), _rows(20, 1), learning_rate=1e30)


class _Interrupted(nn.Module):
    """Meets Ctrl-C in its third batch."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 1)
        self.n_calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.n_calls += 1
        if self.n_calls == 3:
            raise KeyboardInterrupt
        output: Tensor = self.linear(x)
        return output


def test_an_interrupt_inside_a_batch_comes_through() -> None:
    module = _Interrupted()
    with pytest.raises(KeyboardInterrupt):
        _train(module, _rows(100), _rows(20, 1))
    assert module.n_calls == 3


# -- Batches, warm-up and the bar ---------------------------------------------------


@pytest.mark.parametrize("batch_size", [3, 7, 32, 100])
@pytest.mark.parametrize("n_rows", [2, 4, 33, 64, 65, 101])
def test_batches_hold_every_row_once_and_none_alone(
    n_rows: int, batch_size: int
) -> None:
    numbers = torch.arange(n_rows)
    batches = ShuffledBatches(Rows(numbers, 10 * numbers, 2 * numbers), batch_size)
    with seeded(0):
        first, second = list(batches), list(batches)
    sizes = [len(rows) for rows, _ in first]
    assert len(sizes) == len(batches)
    assert max(sizes) <= batch_size
    assert min(sizes) >= 2
    assert max(sizes) - min(sizes) <= 1
    for epoch in (first, second):
        order = torch.cat([rows for rows, _ in epoch])
        assert torch.equal(order.sort().values, numbers)
        assert torch.equal(torch.cat([tens for _, (tens, _) in epoch]), 10 * order)
        assert torch.equal(torch.cat([twos for _, (_, twos) in epoch]), 2 * order)
    if n_rows > 30:
        orders = [torch.cat([rows for rows, _ in epoch]) for epoch in (first, second)]
        assert not torch.equal(*orders)


def test_warmup_rises_in_a_line_and_pickles() -> None:
    warmup = pickle.loads(pickle.dumps(Warmup(4)))
    assert [warmup(step) for step in range(6)] == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]


def test_warmup_makes_the_first_steps_short() -> None:
    # 10 batches an epoch: Adam moves each weight by the learning rate at most, so the
    # first epoch's ten steps sum to (1 + ... + 10) / 50 of it
    train = _rows(100)
    module = nn.Linear(3, 1)
    before = deepcopy(module.state_dict())
    _train(module, train, train, batch_size=10, max_epochs=1, learning_rate=1e-3)
    moved = [
        float((value - before[name]).abs().max())
        for name, value in module.state_dict().items()
    ]
    assert 0 < max(moved) <= 1e-3 * 55 / 50 * 1.01


@pytest.mark.parametrize("verbose", [0, 1])
def test_the_bar_is_shown_only_when_asked(
    verbose: int, capsys: pytest.CaptureFixture[str]
) -> None:
    _train(_mlp(), _rows(40), _rows(20, 1), max_epochs=2, verbose=verbose)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert ("2/2" in shown.err and "valid_loss" in shown.err) == bool(verbose)
    assert bool(shown.err) == bool(verbose)
