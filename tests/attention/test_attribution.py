"""Shares of layers and heads: what is known in closed form, and both ways together."""

import math

import pytest
import torch
from torch import nn

from uqformer._random import member_seeds
from uqformer._seam import attention_weights, match_rows
from uqformer.attention import (
    AttentionVariance,
    attention_variance,
    forward_members,
    redraw_moments,
)


class Attention(nn.Module):
    """Mixes fixed values with weights from scores; two heads, one query, two keys."""

    uses_attention_seam = True
    n_heads = 2

    def __init__(self, scale):
        super().__init__()
        self.scale = scale

    def forward(self, x):
        scores = torch.zeros(len(x), 2, 1, 2, dtype=x.dtype) + x[..., None, None] * 0
        weights = attention_weights(scores, self)  # (M * N, H, T, S)
        # head 1 counts twice; keys are +1 and -1, each with probability 1/2
        heads = torch.tensor([1.0, 2.0], dtype=x.dtype)
        return self.scale * ((weights[..., 0] - weights[..., 1])[..., 0] * heads)


class Pair(nn.Module):
    """Two such layers, added or multiplied: no interaction, or nothing else."""

    def __init__(self, multiplies):
        super().__init__()
        self.first, self.second = Attention(1.0), Attention(3.0)
        self.multiplies = multiplies

    def forward(self, x):
        first = self.first(x).sum(-1, keepdim=True)  # (M * N, 1)
        second = self.second(match_rows(x, first)).sum(-1, keepdim=True)
        # where only the second is redrawn, the members part there
        first, base = match_rows(first, second), match_rows(x, second)
        return first * second if self.multiplies else first + second + base


X = torch.linspace(0, 1, 4).double()[:, None]  # (N, 1)
# a head of weight c gives c^2 / n_draws, so a layer of scale s gives 5 s^2 / n_draws
ADDED = {"first": 5.0, "second": 45.0}


def test_derivatives_know_an_additive_model_exactly():
    model = Pair(multiplies=False).eval()
    result = attention_variance(model, X, n_draws=7, method="gradient")
    assert result.names == ("first", "second")
    for part, expected in zip(result.variance, ADDED.values(), strict=True):
        torch.testing.assert_close(part, torch.full_like(part, expected / 7))
    torch.testing.assert_close(result.total, torch.full_like(result.total, 50 / 7))
    assert result.shares == pytest.approx({"first": 0.1, "second": 0.9})
    assert result.interaction_share == pytest.approx(0, abs=1e-12)


def test_heads_are_told_apart():
    model = Pair(multiplies=False).eval()
    result = attention_variance(model, X, n_draws=1, method="gradient", by="head")
    assert result.shares == pytest.approx(
        {
            "first, head 0": 0.02,
            "first, head 1": 0.08,
            "second, head 0": 0.18,
            "second, head 1": 0.72,
        }
    )


def test_redraws_find_the_parts_of_an_additive_model():
    model, n_members = Pair(multiplies=False).eval(), 2000
    result = attention_variance(model, X, n_draws=5, n_members=n_members, seed=3)
    error = 4 * math.sqrt(2 / n_members)
    found = dict(zip(result.names, result.variance[:, 0, 0].tolist(), strict=True))
    assert found["first"] == pytest.approx(1, rel=error)
    assert found["second"] == pytest.approx(9, rel=error)
    assert result.total[0, 0] == pytest.approx(10, rel=error)
    # rows share their draws, and these outputs differ by a constant only
    torch.testing.assert_close(result.total, result.total[:1].expand(4, 1))


def test_what_layers_do_only_together_is_interaction():
    """The product of two independent factors of mean 0 has no other variance."""
    model, n_members = Pair(multiplies=True).eval(), 2000
    result = attention_variance(model, X, n_draws=5, n_members=n_members)
    assert result.shares == {"first": 0.0, "second": 0.0}
    assert result.interaction_share == 1.0
    # kurtosis of sums of four draws is below that of a normal, so 8 is safe for 9 - 1
    assert result.total[0, 0] == pytest.approx(9, rel=4 * math.sqrt(8 / n_members))


@pytest.mark.parametrize("name", ["by-seam", "encoder-causal"])
def test_both_ways_agree_for_many_draws(make_family, name):
    family, n_members = make_family(name), 40
    ways = {
        method: attention_variance(
            family.model,
            family.inputs,
            n_draws=1024,
            method=method,
            n_members=n_members,
            forward=family.call,
        )
        for method in ("redraw", "gradient")
    }
    drawn, derived = ways["redraw"], ways["gradient"]
    assert drawn.names == derived.names
    assert drawn.variance.shape == (2, *family.run().shape)
    for layer in drawn.names:
        relative = math.log(drawn.shares[layer] / derived.shares[layer])
        assert abs(relative) < 3 * math.sqrt(2 / n_members)
    assert abs(drawn.interaction_share) < 3 * math.sqrt(2 / n_members)


def test_variances_are_those_of_the_members(make_family):
    family = make_family("by-seam")
    x = family.inputs["x"]
    result = attention_variance(family.model, x, n_draws=4, n_members=5, seed=8)
    for part, layers in zip(
        [*result.variance, result.total], ([0], [1], "all"), strict=True
    ):
        outputs = forward_members(
            family.model, [x], n_draws=4, seeds=member_seeds(8, 5), layers=layers
        )
        members = torch.stack([output.double() for _, _, output in outputs])
        torch.testing.assert_close(part, members.var(dim=0))
    torch.testing.assert_close(
        result.interaction, result.total - result.variance[0] - result.variance[1]
    )
    assert sum(result.shares.values()) + result.interaction_share == pytest.approx(1)


def test_a_large_mean_costs_no_digits():
    class Lifted(Pair):
        def forward(self, x):
            return super().forward(x) + 1e7

    lifted, plain = Lifted(False).eval(), Pair(False).eval()
    results = [
        attention_variance(m, X, n_draws=5, n_members=9).total for m in (lifted, plain)
    ]
    torch.testing.assert_close(*results, rtol=1e-6, atol=0)


@pytest.mark.parametrize("method", ["redraw", "gradient"])
def test_batches_are_joined(make_family, method):
    family = make_family("by-seam")
    x = family.inputs["x"]
    options = {"n_draws": 4, "method": method, "n_members": 4}
    whole = attention_variance(family.model, x, **options)
    parted = attention_variance(family.model, iter(x.split(2)), **options)
    named = attention_variance(family.model, {"x": x}, **options, forward=family.call)
    for other in (parted, named):
        torch.testing.assert_close(other.variance, whole.variance, rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(other.total, whole.total, rtol=1e-4, atol=1e-6)


def test_total_of_derivatives_is_that_of_the_moments(make_family):
    family = make_family("by-seam")
    x = family.inputs["x"]
    result = attention_variance(family.model, x, n_draws=3, method="gradient")
    moments = redraw_moments(family.model, x, n_draws=3)
    torch.testing.assert_close(result.total, moments.variance.double())
    assert result.total.dtype == torch.float64


def test_chosen_layers_are_compared_alone(make_family):
    family = make_family("decoder")
    result = attention_variance(
        family.model,
        family.inputs,
        n_draws=4,
        n_members=4,
        layers=[-1, 0],
        forward=family.call,
    )
    assert result.names == ("layers.1.multihead_attn", "layers.0.self_attn")


# -- Shares -------------------------------------------------------------------------


def test_outputs_are_on_a_par_whatever_their_units():
    """Halves of one output and tenths of another, a million times larger."""
    variance = torch.tensor([[[1.0, 1e6]], [[1.0, 9e6]]])
    total = torch.tensor([[2.0, 1e7]])
    result = AttentionVariance(("a", "b"), variance, total)
    assert result.shares == pytest.approx({"a": 0.3, "b": 0.7})


def test_outputs_without_a_second_axis_and_outputs_that_never_move():
    flat = AttentionVariance(("a",), torch.ones(1, 3), torch.full((3,), 4.0))
    assert flat.shares == {"a": 0.25}
    assert flat.interaction_share == 0.75
    still = AttentionVariance(("a",), torch.zeros(1, 3, 2), torch.zeros(3, 2))
    assert still.shares == {"a": 0.0}
    half = AttentionVariance(
        ("a",), torch.tensor([[[1.0, 0.0]]]), torch.tensor([[2.0, 0.0]])
    )
    assert half.shares == {"a": 0.5}


# -- Mistakes -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"n_draws": None}, TypeError, "got n_draws=None"),
        ({"n_draws": 0}, ValueError, "got n_draws=0"),
        ({"seed": -1}, ValueError, "got seed=-1"),
        ({"n_members": 1}, ValueError, "at least 2.*got n_members=1"),
        ({"method": "jackknife"}, ValueError, "got method='jackknife'"),
        ({"by": "token", "method": "gradient"}, ValueError, "got by='token'"),
        ({"by": "head"}, ValueError, "by='head' needs method='gradient'"),
        ({"batches": []}, ValueError, "one batch at least"),
    ],
)
def test_mistakes_are_named(make_family, change, error, message):
    family = make_family("by-seam")
    arguments = {"batches": family.inputs["x"], "n_draws": 4} | change
    with pytest.raises(error, match=message):
        attention_variance(family.model, **arguments)
