"""What own backbones share: usual attention, and a redraw that keeps its promises."""

import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from uqformer._random import seeded
from uqformer._seam import handled_by
from uqformer.attention import forward_members, stochastic_attention
from uqformer.backbones import PatchTransformer, SequenceTransformer, TokenTransformer
from uqformer.backbones._blocks import (
    Attention,
    Block,
    ClsTransformer,
    channel_scales,
    start_near_zero,
)

TINY: dict[str, Any] = {"d_token": 16, "n_heads": 2, "n_blocks": 2}


def _rows(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


def _ids() -> Tensor:
    ids = torch.randint(1, 9, (12, 7), generator=torch.Generator().manual_seed(0))
    ids[::2, 4:] = 0
    ids[1, :3] = 0
    return ids


OWN: dict[str, tuple[Callable[..., ClsTransformer], Tensor]] = {
    "patch": (
        lambda **p: PatchTransformer(2, 3, patch_size=2, **p),
        _rows(12, 2, 5, 4),
    ),
    "field": (
        lambda **p: PatchTransformer(2, 40, patch_size=2, output="field", **p),
        _rows(12, 2, 5, 4),
    ),
    "series": (lambda **p: SequenceTransformer(9, 3, **p), _rows(12, 9)),
    "forecast": (
        lambda **p: SequenceTransformer(
            9, 4, normalise="window", target_channels=[1, 0], patch_length=2, **p
        ),
        _rows(12, 9, 3),
    ),
    "tokens": (lambda **p: TokenTransformer(7, 3, pad_id=0, **p), _ids()),
}


def _own(name: str, **params: Any) -> tuple[ClsTransformer, Tensor]:
    make, x = OWN[name]
    with seeded(0):
        model: Any = make(**(TINY | params))
        return model.adapt(x).eval(), x


@pytest.fixture(params=OWN)
def own(request: pytest.FixtureRequest) -> tuple[ClsTransformer, Tensor]:
    """Run a test for every own backbone and every way to use it."""
    return _own(request.param)


def _shapes(model: nn.Module, x: Tensor) -> list[tuple[int, ...]]:
    """Shapes (N, H, T, S) of the probabilities that a pass asks the seam for."""
    seen: list[tuple[int, ...]] = []

    def handler(probs: Tensor, module: nn.Module) -> Tensor:
        seen.append(tuple(probs.shape))
        return probs

    with handled_by(handler):
        model(x)
    return seen


# -- Attention ----------------------------------------------------------------------


@pytest.mark.parametrize("n_queries", [1, 5])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("path", ["fused", "seam"])
def test_attention_is_that_of_torch(n_queries: int, masked: bool, path: str) -> None:
    with seeded(0):
        ours = Attention(12, 3, dropout=0.0).eval()
        theirs = nn.MultiheadAttention(12, 3, batch_first=True).eval()
        state = torch.randn(7, 5, 12)
        seen = torch.rand(7, 5) < 0.5
    seen[:, 0] = True
    theirs.load_state_dict(
        {
            "in_proj_weight": torch.cat([ours.query.weight, ours.key_value.weight]),
            "in_proj_bias": torch.cat([ours.query.bias, ours.key_value.bias]),
            "out_proj.weight": ours.out.weight,
            "out_proj.bias": ours.out.bias,
        }
    )
    query = state[:, :n_queries]
    hidden = ~seen if masked else None
    expected, _ = theirs(query, state, state, key_padding_mask=hidden)
    mask = seen[:, None, None] if masked else None
    if path == "fused":
        mixed = ours(query, state, mask)
    else:
        with handled_by(lambda probs, module: probs):
            mixed = ours(query, state, mask)
    torch.testing.assert_close(mixed, expected, rtol=1e-5, atol=1e-5)


def test_a_block_adds_attention_then_a_gated_layer() -> None:
    with seeded(0):
        block = Block(8, 2, 10, 0.5).eval()
        state = torch.randn(6, 4, 8)
    normed = block.attention_norm(state)
    mixed = state + block.attention(normed, normed)
    gate, value = block.expand(block.feedforward_norm(mixed)).split(10, dim=-1)
    expected = mixed + block.contract(gate.clamp(min=0) * value)
    torch.testing.assert_close(block(state, state), expected)


def test_asking_with_cls_alone_changes_nothing() -> None:
    with seeded(0):
        block = Block(8, 2, 10, 0.0).eval()
        state = torch.randn(6, 4, 8)
    whole = block(state, state)
    torch.testing.assert_close(block(state[:, :1], state), whole[:, :1])


def test_attention_weights_and_hidden_units_are_dropped_in_training() -> None:
    with seeded(0):
        state = torch.randn(3, 4, 8)
        attention = Attention(8, 2, dropout=0.5)
        block = Block(8, 2, 10, 0.5)
        block.attention.dropout = 0.0
        for module in (attention, block):
            assert not torch.equal(module(state, state), module(state, state))
            module.eval()
            assert torch.equal(module(state, state), module(state, state))


# -- The redraw ---------------------------------------------------------------------


def test_both_paths_of_a_model_agree(own: tuple[ClsTransformer, Tensor]) -> None:
    model, x = own
    with handled_by(lambda probs, module: probs):
        open_path = model(x)
    torch.testing.assert_close(open_path, model(x), rtol=1e-5, atol=1e-5)


def test_only_cls_asks_in_the_last_block_unless_all_tokens_are_read() -> None:
    assert _shapes(*_own("patch")) == [(12, 2, 7, 7), (12, 2, 1, 7)]
    assert _shapes(*_own("field")) == [(12, 2, 7, 7), (12, 2, 7, 7)]
    assert _shapes(*_own("series")) == [(12, 2, 10, 10), (12, 2, 1, 10)]
    assert _shapes(*_own("forecast")) == [(12, 2, 6, 6), (12, 2, 1, 6)]
    assert _shapes(*_own("tokens")) == [(12, 2, 8, 8), (12, 2, 1, 8)]


def test_many_draws_come_near_the_plain_pass(
    own: tuple[ClsTransformer, Tensor],
) -> None:
    model, x = own
    plain = model(x).detach()
    errors = []
    for n_draws in (10, 100_000):
        with stochastic_attention(model, n_draws=n_draws, seed=0):
            errors.append(float((model(x) - plain).square().mean().sqrt()))
    assert 0 < errors[1] < 0.05 * errors[0]  # theory: a hundredth


def test_stacked_members_are_those_drawn_alone(
    own: tuple[ClsTransformer, Tensor],
) -> None:
    model, x = own
    seeds = [3, 1, 4]
    outputs = list(forward_members(model, x.split(7), n_draws=4, seeds=seeds))
    assert [(batch, member) for batch, member, _ in outputs] == [
        (batch, member) for batch in range(2) for member in range(3)
    ]
    for batch, member, output in outputs:
        with stochastic_attention(model, n_draws=4, seed=seeds[member]):
            alone = model(x.split(7)[batch])
        torch.testing.assert_close(output, alone, rtol=1e-4, atol=1e-5)
    assert not torch.allclose(outputs[0][2], outputs[1][2], atol=1e-3)


def test_a_row_does_not_depend_on_its_neighbours(
    own: tuple[ClsTransformer, Tensor],
) -> None:
    model, x = own
    torch.testing.assert_close(model(x)[3:5], model(x[3:5]), rtol=1e-5, atol=1e-5)
    with stochastic_attention(model, n_draws=4, seed=0):
        torch.testing.assert_close(model(x)[3:5], model(x[3:5]), rtol=1e-5, atol=1e-5)


def test_a_redraw_leaves_the_model_as_it_was(
    own: tuple[ClsTransformer, Tensor],
) -> None:
    model, x = own
    state = {name: value.clone() for name, value in model.state_dict().items()}
    plain = model(x)
    with stochastic_attention(model, n_draws=4, seed=0) as tap:
        assert not torch.allclose(model(x), plain, atol=1e-4)
    assert dict(tap.redraws) == {"blocks.0.attention": 1, "blocks.1.attention": 1}
    assert all(torch.equal(state[n], value) for n, value in model.state_dict().items())
    assert torch.equal(model(x), plain)


# -- Size, copies, errors -----------------------------------------------------------


def test_every_parameter_is_trained(own: tuple[ClsTransformer, Tensor]) -> None:
    model, x = own
    model(x).square().sum().backward()
    untouched = [n for n, p in model.named_parameters() if p.grad is None]
    assert untouched == []


@pytest.mark.parametrize("name", OWN)
def test_state_dict_goes_there_and_back(name: str) -> None:
    model, x = _own(name)
    with seeded(1):
        other: Any = OWN[name][0](**TINY)
        other.adapt(x.flip(1) if name == "tokens" else 3 * x + 1).eval()
    assert not torch.allclose(other(x), model(x), atol=1e-3)
    other.load_state_dict(model.state_dict())
    assert torch.equal(other(x), model(x))


def test_a_pickled_model_predicts_the_same(own: tuple[ClsTransformer, Tensor]) -> None:
    model, x = own
    assert torch.equal(pickle.loads(pickle.dumps(model))(x), model(x))


def test_dropout_only_in_training(own: tuple[ClsTransformer, Tensor]) -> None:
    model, x = own
    assert torch.equal(model(x), model(x))
    model.train()
    with seeded(0):
        assert not torch.equal(model(x), model(x))


def test_n_params_is_the_sum_of_its_parts() -> None:
    model = ClsTransformer(3, d_token=16, n_blocks=2, n_heads=2, dropout=0.0)
    d, h = 16, 21
    attention = (d + 1) * d + (d + 1) * 2 * d + (d + 1) * d
    feedforward = (d + 1) * 2 * h + (h + 1) * d
    block = attention + feedforward + 2 * 2 * d
    assert model.n_params == d + 2 * block + 2 * d + (d + 1) * 3
    model.head.requires_grad_(False)
    assert model.n_params == d + 2 * block + 2 * d


@pytest.mark.parametrize("name", OWN)
@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"d_token": 10, "n_heads": 4}, "multiple of n_heads; got d_token=10, n_heads"),
        ({"d_token": 0}, "positive multiple of n_heads; got d_token=0"),
        ({"n_heads": 0}, "at least 1; got n_heads=0"),
        ({"n_blocks": 0}, "at least 1; got .*n_blocks=0"),
    ],
)
def test_what_cannot_be_built_is_said(
    name: str, params: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        OWN[name][0](**(TINY | params))


@pytest.mark.parametrize("name", OWN)
def test_it_must_adapt_before_its_first_pass(name: str) -> None:
    make, x = OWN[name]
    with pytest.raises(
        RuntimeError, match=r"Transformer has not seen.*call adapt\(x\)"
    ):
        make(**TINY)(x)


# -- Scales -------------------------------------------------------------------------


@pytest.mark.parametrize("channel_dim", [1, 2])
def test_channels_are_measured_over_all_else(channel_dim: int) -> None:
    x = 3 * _rows(50, 2, 3) + 7
    mean, scale = channel_scales(x, channel_dim)
    channels = x.movedim(channel_dim, 0).flatten(1)
    torch.testing.assert_close(mean.flatten(), channels.mean(1))
    torch.testing.assert_close(scale.flatten(), channels.std(1, correction=0))
    assert mean.shape == scale.shape == ((2, 1) if channel_dim == 1 else (1, 3))


def test_a_constant_channel_has_scale_one_and_all_constant_is_an_error() -> None:
    x = _rows(50, 2, 3)
    x[:, 1] = 280.15
    _, scale = channel_scales(x, 1)
    assert scale[1] == 1
    assert scale[0] != 1
    with pytest.raises(ValueError, match="all 2 are constant over 5 rows"):
        channel_scales(torch.ones(5, 2, 3), 1)


def test_embeddings_start_with_length_one() -> None:
    with seeded(0):
        lengths = start_near_zero(2000, 64).detach().square().sum(1)
    assert abs(float(lengths.mean()) - 1) < 0.02  # 5 standard errors
