"""Moments from one pass beside members, for every family of models."""

import math

import pytest
import torch

from tests.attention import hub
from uqformer.attention import forward_members, redraw_moments


def _moments(family):
    return redraw_moments(
        family.model, family.inputs, n_draws=1024, forward=family.call
    )


def _members(family, n_members):
    outputs = forward_members(
        family.model,
        [family.inputs],
        n_draws=1024,
        seeds=range(n_members),
        forward=family.call,
    )
    return torch.stack([output.double() for _, _, output in outputs])


def test_every_family_agrees_with_its_members(make_family, family_name):
    _check_family(make_family(family_name))


@pytest.mark.slow
@pytest.mark.parametrize("name", hub.FAMILIES)
def test_every_family_of_the_libraries_agrees_with_its_members(name):
    family, real = hub.family(name), 1
    if name.startswith("timesfm"):  # outputs that belong to padding are not asked for
        real = hub.real_tokens(on_the_left=True)[..., None]
    _check_family(family, real)


def _check_family(family, real=1):
    n_members = 40
    sampled = _members(family, n_members).var(dim=0) * real
    found = _moments(family).variance.double() * real
    both = torch.stack([sampled.flatten(), found.flatten()])
    assert torch.corrcoef(both)[0, 1] > 0.85
    # as if all the variance lay in one direction; it never does
    spread = 4 * math.sqrt(2 / (n_members - 1))
    assert abs(math.log(found.sum() / sampled.sum())) < spread / 2


@pytest.mark.parametrize("name", ["vit", "bert", "llama", "qwen2"])
def test_kernels_do_not_matter(make_family, name):
    eager, fused = (_moments(make_family(f"{name}-{k}")) for k in ("eager", "sdpa"))
    torch.testing.assert_close(eager.variance, fused.variance, rtol=1e-3, atol=1e-6)
    torch.testing.assert_close(eager.mean, fused.mean, rtol=1e-4, atol=1e-5)
