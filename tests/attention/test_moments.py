"""Moments from one pass: exact where the model is linear, right for many draws else."""

import itertools
import math
from copy import deepcopy
from threading import Thread

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from uqformer._seam import attend, attention_weights
from uqformer.attention import (
    find_attention_modules,
    forward_members,
    redraw_moments,
    stochastic_attention,
)
from uqformer.attention._moments import head_variances
from uqformer.exceptions import AttentionNotRedrawnError


class LinearReadout(nn.Module):
    """Scores in, a linear function of the weights out."""

    class Attention(nn.Module):
        uses_attention_seam = True
        n_heads = 2

        def forward(self, scores):
            return attention_weights(scores, self)

    def __init__(self, n_outputs=1):
        super().__init__()
        self.attention = self.Attention()
        self.readout = nn.Parameter(torch.randn(n_outputs, 2, 2, 3).double())

    def forward(self, scores):
        weights = self.attention(scores)  # (N, H, T, S)
        return torch.einsum("nhts,chts->nc", weights, self.readout)


def members(family, n_draws, n_members):
    outputs = forward_members(
        family.model,
        [family.inputs],
        n_draws=n_draws,
        seeds=range(n_members),
        forward=family.call,
    )
    return torch.stack([output.double() for _, _, output in outputs])


def moments(family, n_draws=64, **kwargs):
    return redraw_moments(
        family.model, family.inputs, n_draws=n_draws, forward=family.call, **kwargs
    )


# -- Exact on linear models ---------------------------------------------------------


@pytest.mark.parametrize("n_draws", [1, 2, 3])
def test_a_linear_model_has_exactly_this_variance(n_draws):
    """All outcomes of the draws are counted, each with its probability."""
    torch.manual_seed(0)
    model, scores = LinearReadout(), torch.randn(1, 2, 2, 3).double()
    probs, readout = scores.softmax(dim=-1).flatten(0, 2), model.readout.flatten(0, 2)
    expected = 0.0
    for p, r in zip(probs, readout, strict=True):  # rows are independent: they add up
        outcomes = itertools.product(range(3), repeat=n_draws)
        chances, values = zip(
            *((math.prod(p[list(o)]), r[list(o)].mean()) for o in outcomes), strict=True
        )
        chance, value = torch.stack(chances), torch.stack(values)
        expected += (chance * value**2).sum() - (chance * value).sum() ** 2
    result = redraw_moments(model.eval(), scores, n_draws=n_draws)
    torch.testing.assert_close(result.variance, expected.detach().reshape(1, 1))
    assert torch.equal(result.mean, model(scores).detach())


def test_heads_and_outputs_are_told_apart():
    torch.manual_seed(0)
    model, scores = LinearReadout(n_outputs=3).eval(), torch.randn(4, 2, 2, 3).double()
    _, variances = head_variances(model, {"attention": model.attention}, scores)
    p, r = scores.softmax(dim=-1)[:, None], model.readout.detach()[None]
    by_row = (p * r**2).sum(-1) - (p * r).sum(-1) ** 2  # (N, C, H, T)
    expected = by_row.sum(-1).permute(2, 0, 1)  # (H, N, C)
    torch.testing.assert_close(variances["attention"], expected)
    total = redraw_moments(model, scores, n_draws=5).variance
    torch.testing.assert_close(total, expected.sum(0) / 5)


def test_one_key_leaves_no_variance():
    attention = nn.MultiheadAttention(8, 2, batch_first=True).eval()
    result = redraw_moments(
        attention, torch.randn(3, 1, 8), n_draws=1, forward=lambda m, x: m(x, x, x)[0]
    )
    torch.testing.assert_close(result.variance, torch.zeros(3, 1, 8))


# -- Right for many draws -----------------------------------------------------------


def test_many_members_agree_to_a_few_percent(make_family):
    family, n_members = make_family("by-seam", torch.float64), 1500
    variance = members(family, 256, n_members).var(dim=0)
    error = 4 * math.sqrt(2 / n_members)
    ratio = moments(family, 256).variance / variance
    alive = variance > variance.max() * 1e-6  # the first token sees only itself
    assert alive.sum() >= 90
    # each output has its own chi-squared error, and the worst of 96 is bounded here
    assert ratio[alive].min() > 1 - 1.2 * error
    assert ratio[alive].max() < 1 + 1.4 * error
    assert ratio[alive].mean() == pytest.approx(1, abs=0.5 * error)


@pytest.mark.parametrize("sampler", ["dirichlet", "gaussian"])
def test_other_samplers_have_the_same_moments(make_family, sampler):
    family, n_members = make_family("by-seam"), 300
    outputs = forward_members(
        family.model,
        [family.inputs["x"]],
        n_draws=512.5,
        seeds=range(n_members),
        sampler=sampler,
    )
    sampled = torch.stack([output.double() for _, _, output in outputs]).var(dim=0)
    found = moments(family, 512.5).variance.double()
    assert found.sum() / sampled.sum() == pytest.approx(1, abs=0.2)
    both = torch.stack([sampled.flatten(), found.flatten()])
    assert torch.corrcoef(both)[0, 1] > 0.97


@pytest.mark.parametrize("name", ["encoder", "bert-eager", "by-seam"])
def test_half_precision_says_much_the_same(make_family, name):
    whole, half = (
        moments(make_family(name, dtype)) for dtype in (torch.float32, torch.bfloat16)
    )
    ratio = half.variance.double().sum() / whole.variance.double().sum()
    assert ratio == pytest.approx(1, abs=0.15)
    assert half.mean.dtype == torch.bfloat16


# -- A function of the row ----------------------------------------------------------


@pytest.mark.parametrize("name", ["encoder", "by-seam", "vit-sdpa", "llama-eager"])
def test_a_row_is_judged_alike_in_any_company(make_family, name):
    family = make_family(name)
    whole = moments(family).variance
    for row in range(3):
        rows = family.rows(slice(row, row + 1))
        alone = redraw_moments(family.model, rows, n_draws=64, forward=family.call)
        torch.testing.assert_close(
            alone.variance, whole[row : row + 1], rtol=1e-3, atol=1e-6
        )


def test_variance_falls_as_one_over_the_draws(make_family):
    family = make_family("by-seam")
    one, many = moments(family, 1), moments(family, 50)
    torch.testing.assert_close(one.variance, 50 * many.variance)
    assert torch.equal(moments(family, None).variance, torch.zeros(3, 5, 8))


def test_layers_are_parts_of_the_whole(make_family):
    family = make_family("decoder")
    whole = moments(family).variance
    parts = [moments(family, layers=[layer]).variance for layer in range(4)]
    torch.testing.assert_close(sum(parts), whole, rtol=1e-4, atol=1e-7)
    assert all(part.sum() > 0.01 * whole.sum() for part in parts)


def test_a_layer_run_twice_counts_twice(make_family):
    family = make_family("encoder-causal")
    layer = family.model.layers[0]
    twice = redraw_moments(
        layer, family.inputs["x"], n_draws=4, forward=lambda m, x: m(m(x))
    )
    copies = nn.Sequential(layer, deepcopy(layer)).eval()
    apart = redraw_moments(copies, family.inputs["x"], n_draws=4)
    torch.testing.assert_close(twice.variance, apart.variance)
    alone = redraw_moments(copies, family.inputs["x"], n_draws=4, layers=[0])
    assert not torch.allclose(twice.variance, alone.variance, rtol=0.1)


def test_three_dimensions_without_heads_are_one_head():
    class ScoreAttention(nn.Module):
        num_heads = 2  # as its owner may say for other reasons

        def forward(self, scores):
            return scores.softmax(dim=-1)

    torch.manual_seed(0)
    model, scores = ScoreAttention().eval(), torch.randn(3, 2, 4).double()
    output, parts = head_variances(model, {"": model}, scores)
    expected = output * (1 - output)  # (N, T, S)
    torch.testing.assert_close(parts[""], expected[None])


def test_a_flat_output_is_one_output(make_family):
    family = make_family("by-seam")
    x = family.inputs["x"]
    flat, full = (
        redraw_moments(family.model, x, n_draws=4, forward=forward)
        for forward in (lambda m, x: m(x)[:, 1, 2], lambda m, x: m(x))
    )
    assert flat.mean.shape == flat.variance.shape == (3,)
    torch.testing.assert_close(flat.variance, full.variance[:, 1, 2])


def test_a_softmax_over_another_axis_is_not_attention():
    class Gated(nn.Module):
        uses_attention_seam = True

        def forward(self, scores):
            gates = scores.softmax(dim=1)
            return attention_weights(scores, self) * gates.square().mean()

    model, scores = LinearReadout(), torch.randn(2, 2, 2, 3).double()
    plain = redraw_moments(model.eval(), scores, n_draws=1).variance
    model.attention = Gated()
    gated = redraw_moments(model.eval(), scores, n_draws=1).variance
    factor = scores.softmax(dim=1).square().mean()
    torch.testing.assert_close(gated, plain * factor**2)
    _, parts = head_variances(model, {"attention": model.attention}, scores)
    assert parts["attention"].shape == (2, 2, 1)


# -- Guests -------------------------------------------------------------------------


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("name", ["mha", "encoder", "by-seam", "vit-sdpa"])
def test_a_guest_leaves_as_it_came(make_family, switches, name, frozen):
    family = make_family(name)
    family.model.requires_grad_(not frozen)
    before = {k: v.clone() for k, v in family.model.state_dict().items()}
    state, kernels = torch.get_rng_state(), switches()
    result = moments(family)
    assert result.variance.sum() > 0
    assert not result.mean.requires_grad
    assert not result.variance.requires_grad
    after = family.model.state_dict()
    assert all(torch.equal(after[key], value) for key, value in before.items())
    assert all(p.grad is None for p in family.model.parameters())
    assert all(p.requires_grad == (not frozen) for p in family.model.parameters())
    assert not any(x.requires_grad for x in family.inputs.values())
    assert family.n_hooks() == 0
    assert torch.equal(torch.get_rng_state(), state)
    assert switches() == kernels


def test_frozen_weights_change_nothing(make_family):
    free, frozen = make_family("encoder"), make_family("encoder")
    frozen.model.requires_grad_(False)
    torch.testing.assert_close(moments(free).variance, moments(frozen).variance)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_the_mode_of_the_caller_does_not_matter(make_family, mode):
    family = make_family("by-seam")
    expected = moments(family)
    with mode():
        torch.testing.assert_close(moments(family).variance, expected.variance)


def test_a_module_that_works_in_place_can_be_asked():
    class InPlace(nn.MultiheadAttention):
        def forward(self, x):
            x += 1
            return super().forward(x, x, x)[0]

    model, x = InPlace(8, 2, batch_first=True).eval(), torch.randn(2, 3, 8)
    result = redraw_moments(model.requires_grad_(False), x.clone(), n_draws=1)
    with torch.no_grad():
        torch.testing.assert_close(result.mean, model(x.clone()))
    assert result.variance.sum() > 0


def test_another_thread_is_not_looked_at(make_family):
    family = make_family("by-seam")
    x, seen = family.inputs["x"], []

    def forward(model, batch):
        thread = Thread(target=lambda: seen.append(family.run()))
        thread.start()
        thread.join()
        return model(batch)

    result = redraw_moments(family.model, x, n_draws=4, forward=forward)
    expected = redraw_moments(family.model, x, n_draws=4)
    torch.testing.assert_close(result.variance, expected.variance)
    torch.testing.assert_close(seen[0], expected.mean)


# -- What cannot be found -----------------------------------------------------------


class Averaged(nn.Module):
    """Attention whose softmax autograd does not see as one."""

    uses_attention_seam = True

    def __init__(self, how):
        super().__init__()
        self.how = how

    def forward(self, x):
        def mix(x):
            q = x[:, None]
            return attend(q, q, q, self)[:, 0]

        if self.how == "by hand":
            weights = (x @ x.mT).exp()
            return weights / weights.sum(-1, keepdim=True) @ x
        if self.how == "checkpoint":
            return checkpoint(mix, x, use_reentrant=True)
        with torch.no_grad():
            return mix(x)


@pytest.mark.parametrize("how", ["by hand", "no_grad", "checkpoint"])
def test_attention_outside_the_graph_is_named(how):
    model = nn.Sequential(nn.Linear(4, 4), Averaged(how)).eval()
    with pytest.raises(AttentionNotRedrawnError, match=r"softmax that autograd.*: 1\."):
        redraw_moments(model, torch.randn(2, 3, 4), n_draws=4)


def test_an_output_without_attention_is_named(make_family):
    family = make_family("by-seam")
    x = family.inputs["x"]
    for forward in (lambda m, x: x, lambda m, x: m(x).detach()):
        with pytest.raises(AttentionNotRedrawnError, match="No attention softmax"):
            redraw_moments(family.model, x, n_draws=4, forward=forward)


def test_rows_must_come_first():
    layer = nn.TransformerEncoderLayer(8, 2, 16).eval()  # (T, N, D)
    x = torch.randn(5, 3, 8)
    with pytest.raises(ValueError, match=r"first axis .* output of 5 rows"):
        redraw_moments(layer, x, n_draws=4)
    result = redraw_moments(
        layer, x, n_draws=4, forward=lambda m, x: m(x).transpose(0, 1)
    )
    assert result.variance.shape == (3, 5, 8)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"n_draws": 0}, ValueError, "got n_draws=0"),
        ({"n_draws": float("inf")}, ValueError, "got n_draws=inf"),
        ({"n_draws": "auto"}, TypeError, "got n_draws='auto'"),
        ({"layers": [9]}, ValueError, "position 9 of 2"),
        ({"forward": lambda m, x: (m(x),)}, TypeError, r"got tuple\. Pass forward="),
    ],
)
def test_mistakes_are_named(make_family, change, error, message):
    family = make_family("by-seam")
    arguments = {"n_draws": 4} | change
    with pytest.raises(error, match=message):
        redraw_moments(family.model, family.inputs["x"], **arguments)
    assert family.n_hooks() == 0


def test_neither_in_training_nor_inside_a_redraw(make_family):
    family = make_family("by-seam")
    with stochastic_attention(family.model, n_draws=4, seed=0):
        family.run()
        with pytest.raises(ValueError, match="inside another one"):
            moments(family)
    family.model.train()
    with pytest.raises(ValueError, match="training=True"):
        moments(family)


def test_modules_chosen_by_hand_may_hold_others(make_family):
    """An inner module keeps its own attention; the outer one has what is left."""
    family = make_family("by-seam")
    inner = next(iter(find_attention_modules(family.model)))
    both = {"blocks": family.model.blocks, inner: family.model.get_submodule(inner)}
    _, parts = head_variances(family.model, both, family.inputs, family.call)
    apart = find_attention_modules(family.model)
    _, expected = head_variances(family.model, apart, family.inputs, family.call)
    for part, name in zip(("blocks", inner), reversed(expected), strict=True):
        torch.testing.assert_close(parts[part].sum(0), expected[name].sum(0))
