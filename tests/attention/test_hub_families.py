"""The contract of the redraw for the models that users bring, a family a line."""

import itertools
import math
from collections.abc import Callable
from contextlib import suppress

import pytest
import torch
from scipy import stats
from torch import Tensor, nn

from tests.attention.conftest import Family
from tests.attention.hub import FAMILIES, TEXT, family, hugging_face
from uqformer.attention import find_attention_modules, stochastic_attention
from uqformer.exceptions import AttentionNotRedrawnError

# by torch itself, where time comes first
pytestmark = pytest.mark.filterwarnings("ignore:enable_nested_tensor is True")

DTYPES = [torch.float32, torch.bfloat16, torch.float16]
# what they leave out of sight is the test of their masks
UNMASKED = ("deit", "dino", "clip-v", "swin", "patchtst", "backbone", "ft-", "timm")
MASKED = [name for name in FAMILIES if not name.startswith(UNMASKED)]
# ALBERT's attention module ends in a norm
LINEAR = [name for name in FAMILIES if not name.startswith("albert")]


@pytest.fixture(params=FAMILIES)
def name(request: pytest.FixtureRequest) -> str:
    """Run a test for every family."""
    return request.param


# ---------------------------------------------------------------- the contract


@pytest.mark.parametrize("dtype", DTYPES)
def test_each_call_of_a_layer_is_redrawn_once(name, dtype):
    subject = family(name, dtype)
    found = find_attention_modules(subject.model)
    with stochastic_attention(subject.model, n_draws=4, seed=0) as tap:
        output = subject.run()
    # shared layers, as in ALBERT, are called more than once
    assert tap.redraws == dict.fromkeys(found, subject.n_attention // len(found))
    assert tap.n_redraws == subject.n_attention
    assert output.dtype == dtype
    assert output.isfinite().all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_many_draws_give_the_model_back(name, dtype):
    subject = family(name, dtype)
    plain = subject.run()
    single = (subject.redraw(n_draws=1) - plain).abs().max()
    many = (subject.redraw(n_draws=20_000) - plain).abs().max()
    assert many < 0.1 * single


@pytest.mark.parametrize("dtype", DTYPES)
def test_same_seed_same_member(name, dtype):
    subject = family(name, dtype)
    first, again, other = (subject.redraw(seed=seed) for seed in (5, 5, 6))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_a_member_does_not_see_the_batch(name):
    """One sample, the rest, and all of them in another order: the same outputs."""
    subject = family(name)
    whole = subject.redraw()
    order = torch.tensor([2, 0, 1])
    parts = [subject.redraw(inputs=subject.rows(rows)) for rows in (slice(1), order)]
    torch.testing.assert_close(parts[0], whole[:1], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(parts[1], whole[order], atol=1e-5, rtol=1e-5)


def test_the_model_leaves_as_it_came(name):
    subject = family(name)
    model = subject.model
    # buffers that are not saved count as well
    held = [*model.named_parameters(), *model.named_buffers()]
    before = {key: value.detach().clone() for key, value in held}
    plain, hooks = subject.run(), subject.n_hooks()
    subject.redraw()
    after = [*model.named_parameters(), *model.named_buffers()]
    assert [key for key, _ in after] == list(before)
    assert all(value is held[i][1] for i, (_, value) in enumerate(after))
    assert all(torch.equal(value, before[key]) for key, value in after)
    assert torch.equal(subject.run(), plain)
    assert subject.n_hooks() == hooks


def test_inference_mode_outside_and_inside(name):
    subject = family(name)
    expected = subject.redraw()
    with torch.inference_mode():
        inputs = {key: value.clone() for key, value in subject.inputs.items()}
        outside = subject.redraw(inputs=inputs)
    assert torch.equal(outside, expected)
    with (
        stochastic_attention(subject.model, n_draws=4, seed=0) as tap,
        torch.inference_mode(),
    ):
        inside = subject.run(inputs)
    assert tap.n_redraws == subject.n_attention
    torch.testing.assert_close(inside, expected, atol=1e-5, rtol=1e-5)


# ------------------------------------------------------------------- the masks


def seen(subject: Family, n_draws: int | None) -> Tensor:
    """Tell which outputs (N, T) move with each place of each input (places, N, T)."""

    def run(inputs: dict[str, Tensor]) -> Tensor:
        if n_draws is None:
            return subject.run(inputs)
        return subject.redraw(n_draws=n_draws, inputs=inputs)

    before, moves = run(subject.inputs), []
    for key, value in subject.inputs.items():
        if key == "freq" or key.endswith(("real", "mask", "padding")):
            continue
        for place in range(value.shape[1]):
            other = value.clone()
            # norms take no notice of a shift or a scale
            other[:, place] = value[:, place] * -2 if value.is_floating_point() else 2
            after = run(subject.inputs | {key: other})
            moves.append((before != after).any(dim=-1))
    return torch.stack(moves)


@pytest.mark.parametrize("name", MASKED)
def test_what_is_masked_is_never_drawn(name):
    """Padding, causality and windows: what the model cannot see, no draw can see."""
    plain = seen(family(name), None)
    redrawn = seen(family(name), 50)
    assert not plain.all()
    assert not (redrawn & ~plain).any()
    # most of what there is to see is drawn at times
    assert redrawn.sum() > 0.8 * plain.sum()


def first_attention(subject: Family, **redraw: int) -> Tensor:
    """Run a model up to the output of its first attention."""

    class Enough(Exception):
        pass

    outputs = []

    def stop(module: nn.Module, args: object, output: object) -> None:
        outputs.append(output[0] if isinstance(output, tuple) else output)
        raise Enough

    (module, *_) = find_attention_modules(subject.model).values()
    handle = module.register_forward_hook(stop)
    with suppress(Enough):
        subject.redraw(**redraw) if redraw else subject.run()
    handle.remove()
    return outputs[0]


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("model", ["gpt2", "mistral"])
def test_rows_masked_as_a_whole_stay_as_the_model_leaves_them(model, attention):
    """Causal, with padding on the left: there the first queries see no key at all."""
    subject = family(f"{model}-{attention}")
    real = subject.inputs["attention_mask"].bool()
    plain, redrawn = first_attention(subject), first_attention(subject, n_draws=2)
    assert (~real).any()
    torch.testing.assert_close(redrawn[~real], plain[~real], atol=1e-6, rtol=1e-5)
    assert not torch.equal(redrawn[real], plain[real])


@pytest.mark.slow
@pytest.mark.parametrize("name", LINEAR)
def test_the_first_attention_is_unbiased(name):
    """Its mean over many members is the plain one, up to Monte Carlo error."""
    subject, n_members = family(name), 500
    plain = first_attention(subject)
    members = torch.stack(
        [first_attention(subject, seed=seed, n_draws=4) for seed in range(n_members)]
    ).double()
    error = (members.mean(dim=0) - plain).abs()
    scale = members.std(dim=0) / math.sqrt(n_members)
    limit = stats.norm.isf(1e-4 / error.numel() / 2)
    assert (scale > 0).any()
    assert (error <= limit * scale + 1e-5).all()


# ------------------------------------------------- what the samples share, or not


def swin_weights(block: int, n_draws: int | None, pixels: Tensor) -> Tensor:
    """Weights (N * windows, H, T, S) of a block of Swin's first stage."""
    model, kept = family("swin-eager").model, []
    attention = model.encoder.layers[0].blocks[block].attention
    keep = attention.register_forward_hook(lambda _, __, output: kept.append(output[1]))
    with keep, stochastic_attention(model, n_draws=n_draws, seed=0):
        model(pixels)
    return kept[0]


def blank_windows(n_draws: int | None) -> Tensor:
    """Weights of the windows of two images that are blank."""
    weights = swin_weights(0, n_draws, torch.ones(2, 3, 8, 8))
    return weights.unflatten(0, (2, 4))  # (N, windows, H, T, S)


def twin_channels(n_draws: int | None) -> Tensor:
    """Features of two equal channels of two equal series."""
    subject = family("patchtst-sdpa")
    values = torch.linspace(0, 1, 12).square().expand(2, 2, 12).transpose(1, 2)
    with stochastic_attention(subject.model, n_draws=n_draws, seed=0):
        return subject.run({"past_values": values})  # (N, channels, T, D)


class Unsaid(nn.Module):
    """Attention that folds its two heads into the batch, and tells nobody."""

    class Attention(nn.Module):
        def forward(self, scores: Tensor) -> Tensor:
            return torch.softmax(scores.flatten(0, 1), dim=-1)  # (N * H, T, S)

    def __init__(self) -> None:
        super().__init__()
        self.mix = self.Attention()

    def forward(self, *scores: Tensor) -> list[Tensor]:
        return [self.mix(each) for each in scores]


def unsaid_heads(n_draws: int | None) -> Tensor:
    with stochastic_attention(model := Unsaid().eval(), n_draws=n_draws, seed=0):
        return model(torch.zeros(2, 2, 3, 8))[0].unflatten(0, (2, 2))


@pytest.mark.parametrize("by_part", [blank_windows, twin_channels, unsaid_heads])
def test_parts_of_a_sample_are_drawn_apart(by_part):
    """Samples share their uniforms; windows, channels and heads of one do not."""
    plain, redrawn = by_part(None), by_part(4)
    torch.testing.assert_close(plain, plain[:1, :1].expand_as(plain))
    torch.testing.assert_close(redrawn[0], redrawn[1])
    for first, second in itertools.combinations(redrawn[0], 2):
        assert not torch.allclose(first, second)


def test_shifted_windows_draw_nothing_from_beyond_their_seam():
    """Swin masks by a large number, not by infinity; it is large enough."""
    pixels = family("swin-eager").inputs["pixel_values"]
    plain, redrawn = (swin_weights(1, n_draws, pixels) for n_draws in (None, 50))
    hidden = plain < 1e-30
    assert 0.3 < hidden.float().mean() < 0.7
    assert (redrawn[hidden] == 0).all()


def test_where_time_comes_first_no_sample_is_taken_for_a_part():
    """Twice as many samples as tokens, all equal, all drawn alike."""
    torch.manual_seed(0)
    model = nn.TransformerEncoderLayer(8, 2, 16).eval()
    x = torch.randn(3, 1, 8).expand(3, 6, 8)  # (T, N, D)
    with stochastic_attention(model, n_draws=4, seed=0):
        redrawn = model(x)
    torch.testing.assert_close(redrawn, redrawn[:, :1].expand_as(redrawn))


def test_samples_that_are_counted_in_two_ways_are_not_parted():
    """Two captions and four images, say: nobody's fourth is another's part."""
    model = Unsaid().eval()
    model.num_heads = 2
    with stochastic_attention(model, n_draws=4, seed=0):
        captions, images = model(torch.zeros(2, 2, 3, 8), torch.zeros(4, 2, 3, 8))
    for weights, n_samples in ((captions, 2), (images, 4)):
        by_sample = weights.unflatten(0, (n_samples, 2))
        assert (by_sample == by_sample[:1]).all()
        assert not torch.equal(by_sample[0, 0], by_sample[0, 1])


# ------------------------------------------------------------------ redraw or raise


@torch.library.custom_op("uqformer_tests::fused_attention", mutates_args=())
def fused_attention(x: Tensor) -> Tensor:
    return torch.softmax(x @ x.mT, dim=-1) @ x


def flex(x: Tensor) -> Tensor:
    from torch.nn.attention.flex_attention import flex_attention

    return flex_attention(x, x, x)


class Closed(nn.Module):
    """A model whose one attention is computed out of sight."""

    class Attention(nn.Module):
        def __init__(self, attend: Callable[[Tensor], Tensor]) -> None:
            super().__init__()
            self.attend = attend

        def forward(self, x: Tensor) -> Tensor:
            return self.attend(x)

    def __init__(self, attend: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.open = nn.MultiheadAttention(16, 1, batch_first=True)
        self.closed = self.Attention(attend)

    def forward(self, x: Tensor) -> Tensor:
        return self.closed(self.open(x, x, x)[0][:, None])


@pytest.mark.parametrize(
    ("attend", "message"),
    [
        (fused_attention, r"Some modules of Closed .*: closed\."),
        pytest.param(flex, "^'closed' computes .* flex_att", marks=pytest.mark.slow),
    ],
)
def test_a_fused_operator_raises_and_names_its_module(attend, message):
    model, x = Closed(attend).eval(), torch.randn(2, 16, 16)
    with (
        pytest.raises(AttentionNotRedrawnError, match=message),
        stochastic_attention(model, n_draws=4, seed=0),
    ):
        model(x)


def test_linear_attention_beside_full_attention_raises_until_it_is_left_out():
    linear = {f"linear_{kind}_head_dim": 4 for kind in ("key", "value")}
    linear |= {f"linear_num_{kind}_heads": 2 for kind in ("key", "value")}
    model = hugging_face(
        "Qwen3Next",
        "sdpa",
        **TEXT | linear,
        head_dim=4,
        num_key_value_heads=1,
        num_experts=2,
        num_experts_per_tok=1,
        moe_intermediate_size=8,
        shared_expert_intermediate_size=8,
        layer_types=["linear_attention", "full_attention"],
    ).eval()
    ids = torch.randint(3, 20, (2, 5))
    with (
        pytest.raises(AttentionNotRedrawnError, match=r"layers\.0\.linear_attn\."),
        stochastic_attention(model, n_draws=4, seed=0),
    ):
        model(ids)
    with stochastic_attention(
        model, n_draws=4, seed=0, layers=["layers.1.self_attn"]
    ) as tap:
        model(ids)
    assert tap.n_redraws == 1


@pytest.mark.parametrize("name", ["FNet", "Mamba"])
def test_a_model_without_attention_raises(name):
    model = hugging_face(
        name, "eager", hidden_size=8, num_hidden_layers=1, vocab_size=20
    )
    with pytest.raises(ValueError, match=f"No module of {name}Model looks like atten"):
        find_attention_modules(model)
