"""Recorded chains: cut behind attention, every family's own logits come back."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.director.conftest import digest
from tests.director.families import CAUSAL, FAMILIES, PADDED, Guest, build
from uqformer.attention._switches import explicit_kernels
from uqformer.backbones import FTTransformer
from uqformer.director import FeatureChain, cut_model, record_chain
from uqformer.director._blocks import call_model
from uqformer.director._shell import Shell


@pytest.fixture(params=FAMILIES)
def guest(request: pytest.FixtureRequest) -> Guest:
    return build(request.param)


def test_last_state_through_the_head_is_the_models_own_output(guest: Guest) -> None:
    cuts = cut_model(guest.model, guest.x)
    chain = record_chain(guest.model, guest.x, cuts)
    with torch.no_grad():
        own = call_model(guest.model, guest.x)
        head = Shell(guest.model, cuts)
        got = head(guest.x, lambda start, visible: chain.states[-1])
    assert chain.n_steps == guest.n_blocks
    assert {state.shape for state in chain.states} == {chain.states[0].shape}
    real = chain.real if own.ndim == 3 else slice(None)
    torch.testing.assert_close(
        chain.output[real], own[real], atol=guest.atol, rtol=guest.atol
    )
    torch.testing.assert_close(got[real], own[real], atol=guest.atol, rtol=guest.atol)
    # and the head does listen to the state
    with torch.no_grad():
        other = head(guest.x, lambda start, visible: chain.states[-1].flip(1))
    assert (other - own).abs().max() > 1e-3


def test_states_end_in_attention(guest: Guest) -> None:
    """A state differs from what entered its block by the attention's output alone."""
    chain = record_chain(guest.model, guest.x)
    cuts = cut_model(guest.model, guest.x)
    first = guest.blocks()[0]
    seen: list[Tensor] = []

    def note(module: nn.Module, args: Any, output: Any) -> None:
        seen.append(output[0] if isinstance(output, tuple) else output)

    handle = first.get_submodule(cuts[0].branch).register_forward_hook(note)
    with torch.no_grad(), explicit_kernels():
        call_model(guest.model, guest.x)
    handle.remove()
    added = chain.states[1] - chain.states[0]
    if added.shape == seen[0].shape:  # else only the first tokens ask
        real = chain.real
        torch.testing.assert_close(
            added[real], seen[0][real], atol=guest.atol, rtol=1e-4
        )


def test_the_model_leaves_as_it_came(guest: Guest) -> None:
    before = digest(guest.model)
    with torch.no_grad():
        plain = call_model(guest.model, guest.x)
    chain = record_chain(guest.model, guest.x)
    Shell(guest.model, cut_model(guest.model, guest.x))
    assert digest(guest.model) == before
    with torch.no_grad():
        assert torch.equal(call_model(guest.model, guest.x), plain)
    n_hooks = sum(
        len(module._forward_hooks) + len(module._forward_pre_hooks)
        for module in guest.model.modules()
    )
    assert n_hooks == 0
    assert not any(state.requires_grad for state in chain.states)


@pytest.mark.parametrize("name", PADDED)
def test_padding_is_seen_in_the_mask(name: str) -> None:
    guest = build(name)
    chain = record_chain(guest.model, guest.x)
    assert torch.equal(chain.real, guest.real)
    n_rows, n_tokens = guest.real.shape
    assert chain.visible is not None
    visible = chain.visible.expand(n_rows, -1, n_tokens, -1)
    # no real token looks at padding, and each looks at itself
    looks = visible[:, 0] & guest.real[:, :, None]
    assert not (looks & ~guest.real[:, None]).any()
    is_causal = name in CAUSAL
    rows = looks[0]  # the first row has no padding
    assert torch.equal(rows, torch.ones_like(rows).tril() if is_causal else rows | True)


@pytest.mark.parametrize("name", CAUSAL)
def test_causal_attention_is_known_without_a_mask(name: str) -> None:
    guest = build(name)
    visible = record_chain(guest.model, {"input_ids": guest.x["input_ids"][:1]}).visible
    assert visible is not None
    assert torch.equal(visible[0, 0], torch.ones_like(visible[0, 0]).tril())


def test_all_tokens_ask_where_the_model_lets_the_first_ask() -> None:
    """The chain's last state holds every token; the head reads the CLS token's."""
    x = torch.randn(20, 4, generator=torch.Generator().manual_seed(0))
    model = FTTransformer(4, 2, d_token=8, n_blocks=2, n_heads=2, n_bins=4)
    model.adapt(x).eval()
    cuts = cut_model(model, x)
    chain = record_chain(model, x, cuts)
    assert chain.states[-1].shape == (20, 5, 8)
    changed = chain.states[-1].clone()
    changed[:, 1:] = 7.0
    with torch.no_grad():
        got = Shell(model, cuts)(x, lambda start, visible: changed)
    torch.testing.assert_close(got, chain.output, atol=1e-6, rtol=1e-5)


def test_a_chain_without_a_mask_has_no_padding() -> None:
    chain = FeatureChain((torch.zeros(2, 3, 4),) * 2, torch.zeros(2), (((), {}),))
    assert chain.real.all()
    assert chain.n_steps == 1


class _ParallelBlock(nn.Module):
    """Attention and feed-forward side by side, as in GPT-J."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.attn = nn.MultiheadAttention(8, 2, batch_first=True)
        self.mlp = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        normed = self.norm(x)
        return x + self.attn(normed, normed, normed)[0] + self.mlp(normed)


class _Between(nn.Module):
    """Blocks with something between them."""

    def __init__(self, between: Callable[[Tensor], Tensor], n_runs: int = 1) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.blocks = nn.ModuleList([layer, nn.TransformerEncoderLayer(8, 2, 16)])
        self.blocks[1] = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.between = between
        self.n_runs = n_runs

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(self.n_runs):
            x = self.blocks[1](self.between(self.blocks[0](x)))
        return x


def _encoder(**options: Any) -> nn.Module:
    layer = nn.TransformerEncoderLayer(8, 2, 16, **options)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (nn.Sequential(_ParallelBlock(), _ParallelBlock()), "side by side"),
        (_Between(lambda x: 2 * x), "must follow one another"),
        (_Between(lambda x: x, n_runs=2), "must run once each"),
        (_encoder(), "batch_first=True"),
        (nn.Sequential(nn.Linear(8, 8)), "looks like attention"),
        (
            nn.TransformerDecoder(
                nn.TransformerDecoderLayer(8, 2, 16, batch_first=True), 2
            ),
            "one attention module",
        ),
    ],
    ids=["parallel", "between", "twice", "time-first", "no-attention", "cross"],
)
def test_a_model_that_cannot_be_cut_is_refused(model: nn.Module, message: str) -> None:
    x: Any = torch.ones(2, 3, 8) * torch.arange(3.0)[:, None]
    if isinstance(model, nn.TransformerDecoder):
        x = {"tgt": x, "memory": x}
    with pytest.raises(ValueError, match=message):
        record_chain(model.eval(), x)


def test_a_model_in_training_is_refused() -> None:
    model = _encoder(batch_first=True).train()
    with pytest.raises(ValueError, match="evaluation mode"):
        record_chain(model, torch.zeros(2, 3, 8))


def test_threads_record_apart() -> None:
    """Hooks of one thread neither stop nor see the passes of another."""
    guest = build("patches")
    batches = [guest.x + shift for shift in range(6)]
    cuts = cut_model(guest.model, guest.x)
    expected = [record_chain(guest.model, x, cuts) for x in batches]
    with ThreadPoolExecutor(3) as pool:
        got = list(pool.map(lambda x: record_chain(guest.model, x, cuts), batches * 5))
    for chain, alone in zip(got, expected * 5, strict=True):
        torch.testing.assert_close(chain.states[-1], alone.states[-1])
        torch.testing.assert_close(chain.output, alone.output)
