"""What guests share: they leave as they came, and only what is ours is trained."""

import copy
import pickle
import sys
import warnings

import pytest
import torch
from torch import Tensor, nn

from tests.backbones.guests import digest, untouched
from uqformer.backbones._guest import (
    Guest,
    GuestModule,
    import_library,
    settled,
    trainable_body,
)
from uqformer.exceptions import UQFormerWarning


class Body(nn.Module):
    """Dropout, running statistics and a weight held twice: what could go wrong."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = nn.Linear(4, 4)
        self.second.weight = self.first.weight
        self.norm = nn.BatchNorm1d(4)
        self.dropout = nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        return self.dropout(self.norm(self.second(self.first(x))))


def read(model: nn.Module, inputs: dict[str, Tensor]) -> Tensor:
    output: Tensor = model(inputs["x"])
    return output


@pytest.fixture
def guest() -> Body:
    """Build a guest that arrives in training mode, with flags and modes of its own."""
    torch.manual_seed(0)
    body = Body()
    body.first.bias.requires_grad = False
    body.norm.eval()
    return body


@pytest.fixture
def x() -> Tensor:
    return torch.randn(6, 4, generator=torch.Generator().manual_seed(1))


def with_head(guest: nn.Module, train: str) -> GuestModule:
    body = trainable_body(guest, train)
    frozen = train == "head"
    return GuestModule(body, read, nn.Linear(4, 2), n_outputs=2, is_frozen=frozen)


def take_a_step(module: nn.Module, x: Tensor) -> None:
    module.train()
    trained = [p for p in module.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=0.1, weight_decay=0.1)
    module(x=x).square().sum().backward()
    optimizer.step()


def test_a_frozen_guest_is_itself_and_runs_settled(guest: Body, x: Tensor) -> None:
    module = GuestModule(guest, read, n_outputs=4, is_frozen=True)
    assert module.guest is guest
    with untouched(guest):
        module.train()
        first, second = module(x=x), module(x=x)
        module.eval()
    assert torch.equal(first, second)
    assert not first.requires_grad
    assert torch.equal(first, copy.deepcopy(guest).eval()(x))


def test_a_guest_that_fails_gets_its_modes_back(guest: Body) -> None:
    with untouched(guest), pytest.raises(RuntimeError, match="shapes"), settled(guest):
        guest(torch.ones(2, 5))


@pytest.mark.parametrize("train", ["head", "all"])
def test_training_leaves_the_guest_as_it_came(
    guest: Body, x: Tensor, train: str
) -> None:
    with untouched(guest):
        take_a_step(with_head(guest, train), x)


def test_a_head_is_all_that_is_trained(guest: Body, x: Tensor) -> None:
    module = with_head(guest, "head")
    names = [name for name, p in module.named_parameters() if p.requires_grad]
    assert names == ["head.weight", "head.bias"]
    body, head = digest(module.guest), module.head.weight.clone()
    take_a_step(module, x)
    assert digest(module.guest) == body
    assert not torch.equal(module.head.weight, head)


def test_a_head_stands_on_the_memory_of_the_guest(guest: Body) -> None:
    twin = with_head(guest, "head").guest
    places = [p.data_ptr() for p in twin.parameters()]
    assert places == [p.data_ptr() for p in guest.parameters()]
    assert twin.second.weight is twin.first.weight
    twin.double()
    assert guest.first.weight.dtype == torch.float32


def test_all_trains_a_copy(guest: Body, x: Tensor) -> None:
    module = with_head(guest, "all")
    assert all(p.requires_grad for p in module.parameters())
    before = module.guest.first.weight.clone()
    take_a_step(module, x)
    assert not torch.equal(module.guest.first.weight, before)
    assert module.guest.second.weight is module.guest.first.weight
    assert module.train().guest.dropout.training


@pytest.mark.parametrize("train", ["head", "all"])
def test_a_pickled_module_predicts_the_same(guest: Body, x: Tensor, train: str) -> None:
    module = with_head(guest, train).eval()
    copy = pickle.loads(pickle.dumps(module))
    assert torch.equal(copy(x=x), module(x=x))


def test_a_guest_of_half_precision_is_fed_and_read(guest: Body, x: Tensor) -> None:
    module = GuestModule(guest.bfloat16(), read, n_outputs=4, is_frozen=True)
    output = module(x=x)
    assert output.dtype == torch.float32
    assert torch.equal(output, output.bfloat16().float())


@pytest.mark.parametrize("n_outputs", [1, 3])
def test_another_number_of_outputs_is_named(
    guest: Body, x: Tensor, n_outputs: int
) -> None:
    module = GuestModule(guest, read, n_outputs=n_outputs, is_frozen=True)
    expected = rf"Body must give .*\(6, {n_outputs}\).*got shape \(6, 4\)\. Pass train="
    with pytest.raises(ValueError, match=expected):
        module(x=x)


def test_a_guest_says_a_thing_once_and_shares_itself() -> None:
    guest = Guest("head", None)
    with pytest.warns(UQFormerWarning, match="^so it is$"):
        guest._tell_once("topic", "so it is")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        guest._tell_once("topic", "so it is")
    assert guest.__sklearn_clone__() is guest
    assert guest.trains
    assert not Guest(None, None).trains


@pytest.mark.parametrize("train", ["heads", True, ""])
def test_train_is_a_known_name(train: object) -> None:
    with pytest.raises(ValueError, match=rf"'lora'; got train={train!r}\.$"):
        Guest(train, None)  # type: ignore[arg-type]


def test_a_library_that_is_missing_is_named_with_its_extra() -> None:
    expected = r'needs no_such, .*pip install "uqformer\[timm\]", or not at all\.$'
    with pytest.raises(ImportError, match=expected):
        import_library("no_such", "timm", ", or not at all")


def test_low_rank_updates_are_all_that_is_trained(guest: Body, x: Tensor) -> None:
    pytest.importorskip("peft", reason="low-rank updates need peft")
    with untouched(guest):
        module = with_head(guest, "lora")
        names = {name for name, p in module.named_parameters() if p.requires_grad}
        assert {name for name in names if "lora" not in name} == {
            "head.weight",
            "head.bias",
        }
        plain = GuestModule(guest, read, n_outputs=4, is_frozen=True)(x=x)
        module.eval()
        assert torch.equal(read(module.guest, {"x": x}), plain)  # zero at first
        frozen = {k: p.clone() for k, p in module.named_parameters() if k not in names}
        for _ in range(2):  # one factor is zero, and hides the other in the first step
            take_a_step(module, x)
        module.eval()
        assert not torch.allclose(read(module.guest, {"x": x}), plain)
    now = dict(module.named_parameters())
    assert all(torch.equal(now[name], value) for name, value in frozen.items())


def test_without_peft_low_rank_updates_say_so(
    guest: Body, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(ImportError, match=r'pip install "uqformer\[lora\]"'):
        trainable_body(guest, "lora")
