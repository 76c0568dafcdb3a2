"""Attention answers questions: what it was weighing, and what each key would add."""

import pytest
import torch

from tests.director.families import FAMILIES, build
from uqformer.director import Teacher
from uqformer.director._reading import head_readings
from uqformer.exceptions import AttentionNotRedrawnError


@pytest.mark.parametrize("name", FAMILIES)
def test_readings_make_up_what_attention_adds(name: str) -> None:
    """Probabilities times what keys add, over heads, differ by a constant alone."""
    guest = build(name)
    teacher = Teacher(guest.model, guest.x)
    chain = teacher.record(guest.x)
    for step in range(1, teacher.n_steps + 1):
        half = teacher.half(chain, chain.states[step - 1], step)
        probs, values = head_readings(half)
        real = chain.real
        sums = probs.sum(dim=-1).transpose(1, 2)[real]
        torch.testing.assert_close(sums, torch.ones_like(sums))
        mixed = sum(probs[:, head] @ value for head, value in enumerate(values))
        constant = half.answered(torch.zeros_like)
        with torch.no_grad():
            added = half.added()
        torch.testing.assert_close(
            (mixed + constant)[real], added[real], atol=guest.atol, rtol=1e-5
        )


def test_the_answer_takes_the_place_of_the_probabilities() -> None:
    half = _half("timm")
    with torch.no_grad():
        added = half.added()
    torch.testing.assert_close(half.answered(lambda probs: probs), added)
    assert (half.answered(lambda probs: probs.flip(-1)) - added).abs().max() > 1e-3


def test_the_input_of_the_attention_is_seen() -> None:
    half = _half("timm")
    with torch.no_grad():
        expected = half.block.norm1(half.state)
        torch.testing.assert_close(half.attention_input(), expected)


def test_attention_without_a_softmax_is_not_passed_over() -> None:
    half = _half("timm")
    attention = half.block.get_submodule("attn")
    attention.forward = attention.proj.forward  # an attention in name only
    with pytest.raises(AttentionNotRedrawnError, match="TimmBlock"):
        half.answered(lambda probs: probs)


def _half(name: str):
    guest = build(name)
    teacher = Teacher(guest.model, guest.x)
    chain = teacher.record(guest.x)
    return teacher.half(chain, chain.states[0], step=1)
