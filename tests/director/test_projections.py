"""The maps of frozen attention: they rebuild what the model itself computes."""

import pytest
import torch
from torch import nn

from tests.director.families import FAMILIES, build
from uqformer.director import Teacher
from uqformer.director._projections import output_map, queries_and_keys
from uqformer.director._reading import AttentionHalf, head_readings

ROTATED = ("llama", "qwen2")  # queries are turned by position before they meet keys


def _half(name: str) -> AttentionHalf:
    guest = build(name)
    teacher = Teacher(guest.model, guest.x)
    chain = teacher.record(guest.x)
    return teacher.half(chain, chain.states[0], step=1)


@pytest.mark.parametrize("name", FAMILIES)
def test_queries_and_keys_give_the_models_scores(name: str) -> None:
    half = _half(name)
    with torch.no_grad():
        query, key = queries_and_keys(half)
    probs, _ = head_readings(half)
    assert query.shape == key.shape
    assert query.shape[:3] == probs.shape[:3]
    if name.startswith(ROTATED):
        return
    scores = query @ key.transpose(-1, -2) * query.shape[-1] ** -0.5
    hidden = probs == 0
    got = scores.masked_fill(hidden, -torch.inf).softmax(dim=-1)
    torch.testing.assert_close(got, probs, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", FAMILIES)
def test_the_output_map_spans_what_values_add(name: str) -> None:
    """What a head's keys add lies in the span of its channels."""
    half = _half(name)
    output = output_map(half)
    _, values = head_readings(half)
    assert output.shape == (len(values), 4, 8)
    for channels, value in zip(output, values, strict=True):
        added = value.flatten(0, 1).T  # (D, N * S)
        weights = torch.linalg.lstsq(channels.T, added).solution
        torch.testing.assert_close(channels.T @ weights, added, atol=1e-4, rtol=1e-3)


def test_unknown_maps_are_named() -> None:
    half = _half("timm")
    attention = half.block.get_submodule("attn")
    attention.mixture = attention.qkv
    del attention.qkv
    attention.forward = lambda x: attention.proj(x)
    with pytest.raises(ValueError, match="not known by name"):
        queries_and_keys(half)
    attention.proj, attention.mixture = nn.Identity(), nn.Identity()
    with pytest.raises(ValueError, match=r"not an nn\.Linear"):
        output_map(half)
