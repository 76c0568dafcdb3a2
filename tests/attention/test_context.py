"""The one door: the law of the redraw, masks, selection, errors, and threads."""

import math
import threading

import pytest
import torch
import torch.nn.functional as F
from scipy import stats
from torch import nn

from uqformer._random import torch_generator
from uqformer.attention import (
    AttentionTap,
    _samplers,
    multinomial_weights,
    stochastic_attention,
)
from uqformer.attention._draws import draw_weights
from uqformer.exceptions import AttentionNotRedrawnError

# ------------------------------------------------------- the law of the redraw


def mha_reading_values(n_draws, n_members):
    """Members of an attention that projects nothing, its weights, and its values."""
    torch.manual_seed(3)
    model = nn.MultiheadAttention(4, 2, bias=False, batch_first=True).eval()
    with torch.no_grad():
        model.in_proj_weight[8:] = torch.eye(4)
        model.out_proj.weight.copy_(torch.eye(4))
        model.in_proj_weight[:8] *= 0.5  # no rare keys
    x = torch.randn(1, 3, 4)
    members = []
    for seed in range(n_members):
        with stochastic_attention(model, n_draws=n_draws, seed=seed):
            members.append(model(x, x, x, need_weights=False)[0])
    with torch.no_grad():
        weights = model(x, x, x, average_attn_weights=False)[1][0]  # (H, T, S)
    values = x[0].unflatten(-1, (2, 2)).transpose(0, 1)  # (H, S, D / H)
    outputs = torch.cat(members).unflatten(-1, (2, 2)).transpose(1, 2)
    return outputs.double(), weights.double(), values.double()  # (M, H, T, D / H)


def test_output_has_the_mean_and_covariance_of_the_formula():
    n_draws, n_members = 3, 1_000
    outputs, weights, values = mha_reading_values(n_draws, n_members)
    mean = weights @ values  # (H, T, D / H)
    centred = values[:, None] - mean[:, :, None]  # (H, T, S, D / H)
    cov = torch.einsum("hts,htsi,htsj->htij", weights, centred, centred) / n_draws
    # zero between heads and between queries, which are independent
    expected = torch.block_diag(*cov.flatten(0, 1))
    noise = (outputs - mean).flatten(1)  # (M, H * T * D / H)
    mean_z = noise.mean(0) / (expected.diag() / n_members).sqrt()
    products = noise[:, :, None] * noise[:, None, :]
    cov_z = (products.mean(0) - expected) / (products.std(0) / math.sqrt(n_members))
    n_tests = noise.shape[1] + noise.shape[1] ** 2
    limit = stats.norm.isf(1e-3 / n_tests / 2)
    assert mean_z.abs().max() < limit
    assert cov_z.abs().max() < limit


class ReadWeights(nn.Module):
    """Gives the attention weights of fixed scores, one after the other, twice."""

    class Attention(nn.Module):
        def forward(self, scores):
            return torch.softmax(scores, dim=-1)

    def __init__(self):
        super().__init__()
        self.first = self.Attention()
        self.second = self.Attention()

    def forward(self, scores):
        return torch.stack([m(scores) for m in (self.first, self.second, self.second)])


def test_layers_and_calls_are_independent():
    """Also two calls of the same module within a pass, as in weight sharing."""
    model, scores = ReadWeights().eval(), torch.zeros(1, 2, 2, 2)
    draws = []
    for seed in range(1_000):
        with stochastic_attention(model, n_draws=2, seed=seed) as tap:
            draws.append(model(scores)[..., 0].flatten())  # (calls * H * T)
    assert tap.redraws == {"first": 1, "second": 2}
    correlation = torch.corrcoef(torch.stack(draws).T)
    off_diagonal = correlation[~torch.eye(12, dtype=torch.bool)]
    limit = stats.norm.isf(1e-3 / 66 / 2) / math.sqrt(len(draws))
    assert off_diagonal.abs().max() < limit


def test_redraw_equals_attention_written_out(monkeypatch):
    """One layer by torch against the same layer by hand, with the weights it drew."""
    torch.manual_seed(0)
    model = nn.MultiheadAttention(8, 2, bias=False, batch_first=True).eval()
    x, calls = torch.randn(2, 4, 8), []

    def spy(probs, uniforms):
        calls.append((probs, draw_weights(probs, uniforms)))
        return calls[-1][1]

    monkeypatch.setattr(_samplers, "draw_weights", spy)
    with stochastic_attention(model, n_draws=7, seed=11):
        output, weights = model(x, x, x, average_attn_weights=False)
    ((probs, drawn),) = calls
    with torch.no_grad():
        q, k, v = (
            part.unflatten(-1, (2, 4)).transpose(1, 2)
            for part in F.linear(x, model.in_proj_weight).chunk(3, dim=-1)
        )
        by_hand = torch.softmax(q @ k.transpose(-1, -2) / 2, dim=-1)
        mixed = (drawn @ v).transpose(1, 2).flatten(2)
        expected = F.linear(mixed, model.out_proj.weight)
    torch.testing.assert_close(probs, by_hand, atol=1e-6, rtol=1e-5)
    assert torch.equal(weights, drawn)
    assert ((drawn * 7).round() - drawn * 7).abs().max() < 1e-5
    torch.testing.assert_close(output, expected, atol=1e-6, rtol=1e-5)


# ------------------------------------------------------------------- the masks


@pytest.mark.parametrize(
    "masked", [-torch.inf, -1e9, torch.finfo().min, torch.finfo(torch.float16).min]
)
def test_rows_masked_as_a_whole_keep_their_softmax(masked):
    model, scores = ReadWeights().eval(), torch.randn(2, 2, 3, 4)
    scores[0, :, 1] = masked
    scores[1, :, 2, 1:] = masked
    plain = model(scores)
    with stochastic_attention(model, n_draws=2, seed=0):
        weights = model(scores)
    torch.testing.assert_close(
        weights[:, 0, :, 1], plain[:, 0, :, 1], atol=0, rtol=0, equal_nan=True
    )
    assert (weights[:, 1, :, 2, 0] == 1).all()
    assert not torch.equal(weights[:, 1], plain[:, 1])


@pytest.mark.parametrize("shape", [(3, 4), (6, 3, 4), (2, 2, 3, 4), (2, 2, 2, 3, 4)])
def test_any_layout_of_the_scores(shape):
    model = ReadWeights().eval()
    with stochastic_attention(model, n_draws=5, seed=0) as tap:
        weights = model(torch.randn(shape))
    assert weights.shape == (3, *shape)
    torch.testing.assert_close(weights.sum(-1), torch.ones(3, *shape[:-1]))
    assert tap.n_redraws == 3


def test_three_dimensions_with_and_without_known_heads():
    """Samples share their uniforms, heads do not."""
    model, scores = ReadWeights().eval(), torch.zeros(4, 3, 8)
    with stochastic_attention(model, n_draws=5, seed=0):
        as_samples = model(scores)[0]
    model.num_heads = 2
    with stochastic_attention(model, n_draws=5, seed=0):
        as_heads = model(scores)[0]
    assert torch.equal(as_samples[0], as_samples[1])
    assert not torch.equal(as_heads[0], as_heads[1])
    assert torch.equal(as_heads[:2], as_heads[2:])


# ------------------------------------------------------------------- selection


def test_softmax_outside_attention_is_left_alone():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.attn = nn.MultiheadAttention(4, 1, batch_first=True)

        def forward(self, x):
            return torch.softmax(self.attn(x, x, x)[0] * 0, dim=-1)

    model = Model().eval()
    with stochastic_attention(model, n_draws=1, seed=0):
        assert (model(torch.randn(2, 3, 4)) == 0.25).all()
        assert (torch.softmax(torch.zeros(2, 4), dim=-1) == 0.25).all()


# ------------------------------------------------------------- redraw or raise


def test_a_block_that_runs_nothing_raises(make_family):
    family = make_family("encoder")
    with (
        pytest.raises(
            AttentionNotRedrawnError,
            match=r"while running TransformerEncoder; an ensem",
        ),
        stochastic_attention(family.model, n_draws=4, seed=0),
    ):
        pass


class TwoMixers(nn.Module):
    """One attention in the open, and one that has no softmax over the keys."""

    class LinearAttention(nn.Module):
        def forward(self, x):
            return torch.softmax(x, dim=1) * x

    def __init__(self):
        super().__init__()
        self.open = nn.MultiheadAttention(4, 1, batch_first=True)
        self.closed = self.LinearAttention()

    def forward(self, x):
        return self.closed(self.open(x, x, x)[0])


def test_one_layer_that_cannot_be_redrawn_raises():
    """A model redrawn in part would be an ensemble of something else."""
    model, x = TwoMixers().eval(), torch.randn(2, 3, 4)
    with (
        pytest.raises(
            AttentionNotRedrawnError, match=r"Some modules of TwoMixers .*: closed\. "
        ),
        stochastic_attention(model, n_draws=4, seed=0),
    ):
        model(x)
    with stochastic_attention(model, n_draws=4, seed=0, layers=["open"]) as tap:
        model(x)
    assert tap.n_redraws == 1


def test_a_seam_that_is_not_used_raises():
    class Attention(nn.Module):
        uses_attention_seam = True

        def forward(self, x):
            return torch.softmax(x, dim=-1)

    with (
        pytest.raises(AttentionNotRedrawnError),
        stochastic_attention(model := Attention().eval(), n_draws=4, seed=0),
    ):
        model(torch.zeros(2, 2))


@pytest.mark.parametrize("name", ["encoder", "by-seam"])
def test_the_error_of_the_block_is_the_one_seen(make_family, name, switches):
    family = make_family(name)
    before = switches()
    with (
        pytest.raises(ZeroDivisionError),
        stochastic_attention(family.model, n_draws=4, seed=0),
    ):
        raise ZeroDivisionError
    assert switches() == before
    assert family.n_hooks() == 0
    assert torch.equal(family.redraw(), family.redraw())


def test_a_forward_that_raises_leaves_no_mark():
    """What follows in the block is not taken for the inside of attention."""
    model, bad = ReadWeights().eval(), torch.zeros(3, 3)
    with stochastic_attention(model, n_draws=1, seed=0) as tap:
        with pytest.raises(TypeError):
            model("not a tensor")
        assert (torch.softmax(bad, dim=-1) == bad.softmax(-1)[0, 0]).all()
        model(bad)
    assert tap.n_redraws == 3


def test_a_hook_of_the_user_that_raises_leaves_no_mark(recwarn):
    model, scores = ReadWeights().eval(), torch.zeros(3, 3)

    def refuse(module, args):
        raise ZeroDivisionError

    handle = model.first.register_forward_pre_hook(refuse)
    with stochastic_attention(model, n_draws=1, seed=0) as tap:
        with pytest.raises(ZeroDivisionError):
            model(scores)
        handle.remove()
        model(scores)
    assert tap.n_redraws == 3
    assert not recwarn.list


@pytest.mark.parametrize("name", ["encoder", "by-seam"])
def test_no_gradient_flows(make_family, name):
    family = make_family(name)
    with (
        pytest.raises(ValueError, match="passes no gradient"),
        stochastic_attention(family.model, n_draws=4, seed=0),
        torch.enable_grad(),
    ):
        family.call(family.model, family.inputs)


@pytest.mark.parametrize("name", ["encoder", "by-seam"])
def test_blocks_do_not_nest(make_family, name):
    family, other = make_family(name), make_family("mha")
    with stochastic_attention(family.model, n_draws=4, seed=0):
        expected = family.run()
        with pytest.raises(ValueError, match="must not be entered inside another"):
            other.redraw()
        assert torch.equal(family.run(), expected)
    other.redraw()


# --------------------------------------------------------------------- threads


@pytest.mark.parametrize("name", ["encoder", "mha-weights", "by-seam"])
def test_other_threads_are_not_redrawn(make_family, name):
    family = make_family(name)
    plain, outputs = family.run(), []
    other = threading.Thread(target=lambda: outputs.append(family.run()))
    with stochastic_attention(family.model, n_draws=1, seed=0) as tap:
        other.start()
        other.join()
        assert tap.n_redraws == 0
        family.run()
    torch.testing.assert_close(outputs[0], plain, atol=1e-5, rtol=1e-5)


def test_two_threads_at_once_leave_the_switches_as_they_were(make_family, switches):
    """Blocks that overlap without nesting disturb neither each other nor the rest."""
    family, before = make_family("encoder"), switches()
    expected = family.redraw(seed=0), family.redraw(seed=1)
    outputs, entered, left = [], threading.Event(), threading.Event()

    def run_second():
        with stochastic_attention(family.model, n_draws=4, seed=1):
            entered.set()
            left.wait(10)
            outputs.append(family.run())

    second = threading.Thread(target=run_second)
    with stochastic_attention(family.model, n_draws=4, seed=0):
        second.start()
        entered.wait(10)
        outputs.append(family.run())
    left.set()
    second.join()
    assert torch.equal(outputs[0], expected[0])
    assert torch.equal(outputs[1], expected[1])
    assert switches() == before


# ------------------------------------------------------------------- arguments


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"n_draws": 0}, ValueError, "at least 1; got n_draws=0"),
        ({"n_draws": 1.5}, TypeError, "whole number"),
        ({"seed": -1}, ValueError, "got seed=-1"),
        ({"seed": None}, TypeError, "got seed=None"),
        ({"layers": ["x"]}, ValueError, "'x' which this TransformerEncoder"),
        ({"layers": ["x"], "n_draws": None}, ValueError, "'x' which this"),
    ],
)
def test_wrong_arguments(make_family, changes, error, message):
    model = make_family("encoder").model
    with (
        pytest.raises(error, match=message),
        stochastic_attention(model, **({"n_draws": 4, "seed": 0} | changes)),
    ):
        pass


def test_training_mode_is_refused(make_family):
    model = make_family("encoder").model.train()
    with (
        pytest.raises(ValueError, match=r"training=True.*model\.eval\(\)"),
        stochastic_attention(model, n_draws=4, seed=0),
    ):
        pass
    assert model.training


def test_tap_counts():
    tap = AttentionTap()
    tap.redraws.update(["a", "b", "a"])
    assert tap.n_redraws == 3


def test_draw_of_the_context_is_the_public_one():
    """One attention call equals multinomial_weights with that call's generator."""
    model, scores = ReadWeights().eval(), torch.randn(2, 2, 3, 4)
    with stochastic_attention(model, n_draws=6, seed=9):
        drawn = model(scores)
    probs = torch.softmax(scores, dim=-1)
    for call in range(3):
        expected = multinomial_weights(probs, 6, torch_generator(9, call))
        assert torch.equal(drawn[call], expected)
