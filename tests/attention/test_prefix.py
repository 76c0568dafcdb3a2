"""The shared prefix: run once, given again only while nothing differs."""

import pytest
import torch
from torch import Tensor, nn

from uqformer.attention import _prefix, forward_members, stochastic_attention
from uqformer.attention._prefix import SharedPrefix

aten = torch.ops.aten
SEEDS = [3, 1, 4]


class ByHand(nn.Module):
    """A guest: an embedding, attention with its softmax in the open, a head."""

    def __init__(self, embed: nn.Module) -> None:
        super().__init__()
        self.embed = embed
        self.attention = OpenAttention([nn.Linear(4, 4), nn.Linear(4, 4)])
        self.head = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.attention(self.embed(x)).mean(dim=1))


class OpenAttention(nn.ModuleList):
    def forward(self, x: Tensor) -> Tensor:
        scores = self[0](x) @ x.transpose(-1, -2)
        return x + torch.softmax(scores, dim=-1) @ self[1](x)


def guest(embed: nn.Module | None = None) -> ByHand:
    torch.manual_seed(0)
    return ByHand(embed or nn.Linear(4, 4)).eval()


def members(model: nn.Module, x: Tensor) -> list[Tensor]:
    runs = forward_members(model, [x], n_draws=3, seeds=SEEDS)
    return [output for _, _, output in runs]


def alone(model: nn.Module, x: Tensor) -> list[Tensor]:
    outputs = []
    for seed in SEEDS:
        with stochastic_attention(model, n_draws=3, seed=seed):
            outputs.append(model(x))
    return outputs


def count_matrix_products(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """List the operators that a prefix really runs."""
    ran: list[str] = []
    run = SharedPrefix.run

    def spy(self, func, args, kwargs):
        def counted(*args, **kwargs):
            ran.append(func.__name__)
            return func(*args, **kwargs)

        counted._schema, counted.tags = func._schema, func.tags
        spied = known.setdefault(func, counted)
        return run(self, spied, args, kwargs)

    known: dict = {}
    monkeypatch.setattr(SharedPrefix, "run", spy)
    return ran


def test_members_share_it_and_nothing_changes(monkeypatch) -> None:
    model, x = guest(), torch.randn(2, 5, 4)
    expected = alone(model, x)
    ran = count_matrix_products(monkeypatch)
    for one, other in zip(members(model, x), expected, strict=True):
        assert torch.equal(one, other)
    # embedding and queries, once for three members
    assert ran.count("addmm.default") == 2
    assert ran.count("_softmax.default") == 1


def test_a_random_layer_is_not_shared() -> None:
    """What comes at random before attention is each member's own."""

    class Noise(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x + torch.rand_like(x)

    model, x = guest(Noise()), torch.randn(2, 5, 4)
    torch.manual_seed(1)
    outputs = members(model, x)
    torch.manual_seed(1)
    for one, other in zip(outputs, alone(model, x), strict=True):
        assert torch.equal(one, other)


def test_a_result_written_to_is_computed_again() -> None:
    """The residual is added in place, to what the embedding gave."""

    class InPlace(OpenAttention):
        def forward(self, x: Tensor) -> Tensor:
            scores = self[0](x) @ x.transpose(-1, -2)
            x += torch.softmax(scores, dim=-1) @ self[1](x)
            return x

    model, x = guest(), torch.randn(2, 5, 4)
    model.attention.__class__ = InPlace
    for one, other in zip(members(model, x), alone(model, x), strict=True):
        assert torch.equal(one, other)


def test_a_model_that_changes_from_call_to_call() -> None:
    class Counter(nn.Module):
        n_calls = 0

        def forward(self, x: Tensor) -> Tensor:
            self.n_calls += 1
            return x * self.n_calls if self.n_calls != 2 else x.tanh()

    model, x = guest(Counter()), torch.randn(2, 5, 4)
    outputs = members(model, x)
    model.embed.n_calls = 0
    for one, other in zip(outputs, alone(model, x), strict=True):
        assert torch.equal(one, other)


def test_memory_is_bounded(monkeypatch) -> None:
    """Past the budget operators run again, to the same effect."""
    monkeypatch.setattr(_prefix, "BYTES_KEPT", 200)
    model, x = guest(), torch.randn(2, 5, 4)
    expected = alone(model, x)
    ran = count_matrix_products(monkeypatch)
    for one, other in zip(members(model, x), expected, strict=True):
        assert torch.equal(one, other)
    assert ran.count("addmm.default") > 2


def test_arguments_are_compared_by_memory_and_value() -> None:
    prefix, x, calls = SharedPrefix(), torch.ones(3), []

    class Op:
        _schema, tags = aten.mul.Tensor._schema, aten.mul.Tensor.tags

        def __call__(self, one, other):
            calls.append(other)
            return one * other

    op = Op()
    first = prefix.run(op, (x, 2), {})
    prefix.restart()
    assert torch.equal(prefix.run(op, (x.view(3), 2), {}), first)
    assert calls == [2]
    prefix.restart()
    assert torch.equal(prefix.run(op, (x.clone(), 2), {}), first)
    assert calls == [2, 2]
    prefix.restart()
    assert torch.equal(prefix.run(op, (x, 3), {}), 3 * x)
    # having gone its own way, a pass takes nothing more from the others
    assert torch.equal(prefix.run(op, (x, 2), {}), first)
    assert calls == [2, 2, 3, 2]
    prefix.restart()
    x.add_(1)
    assert torch.equal(prefix.run(op, (x, 2), {}), 2 * x)


def test_operators_that_give_numbers_or_several_tensors() -> None:
    class Several(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            one, other = x.sort(dim=-1)
            return one * other.sum().item() if bool((x > -9).all()) else x

    model, x = guest(Several()), torch.randn(2, 5, 4)
    for one, other in zip(members(model, x), alone(model, x), strict=True):
        assert torch.equal(one, other)
