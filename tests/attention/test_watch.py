"""The watch: every attention call counted, and chosen ones answered."""

import pytest
import torch
from torch import Tensor

from uqformer.attention import (
    find_attention_modules,
    forward_members,
    stochastic_attention,
)
from uqformer.attention._watch import AttentionTap, answering
from uqformer.exceptions import AttentionNotRedrawnError

FAMILIES = ["by-seam", "by-hand", "by-sdpa", "encoder-causal", "vit-sdpa"]


@pytest.mark.parametrize("name", FAMILIES)
def test_answers_take_the_place_of_the_softmax(make_family, name) -> None:
    """Answering with the probabilities themselves changes nothing but rounding."""
    family, seen = make_family(name), []

    def answer(module: str, n_before: int, probs: Tensor) -> Tensor:
        seen.append((module, n_before))
        torch.testing.assert_close(
            probs.sum(dim=-1), torch.ones_like(probs[..., 0]), atol=1e-5, rtol=0
        )
        return probs

    selected = find_attention_modules(family.model)
    with answering(family.model, selected, answer) as tap:
        output = family.call(family.model, family.inputs)
    plain = family.call(family.model, family.inputs)
    torch.testing.assert_close(output, plain, atol=1e-5, rtol=1e-4)
    assert isinstance(tap, AttentionTap)
    assert [n for _, n in seen] == list(range(tap.n_redraws))
    assert {module for module, _ in seen} == set(selected)


@pytest.mark.parametrize("name", FAMILIES)
def test_a_call_has_one_number_whatever_is_selected(make_family, name) -> None:
    """So that redrawing one layer draws there what redrawing all would."""
    family = make_family(name)
    selected = find_attention_modules(family.model)

    def numbers(chosen: dict) -> dict[str, list[int]]:
        seen: dict[str, list[int]] = {}

        def answer(module: str, n_before: int, probs: Tensor) -> Tensor:
            seen.setdefault(module, []).append(n_before)
            return probs

        with answering(family.model, chosen, answer):
            family.call(family.model, family.inputs)
        return seen

    together = numbers(selected)
    apart = {}
    for module in selected:
        apart |= numbers({module: selected[module]})
    assert apart == together


def test_a_layer_draws_the_same_alone_and_with_others(make_family) -> None:
    """The last layer's draw depends on its input, so its input is held fixed."""
    model = make_family("by-seam").model
    x = make_family("by-seam").inputs["x"]
    first, *_, last = find_attention_modules(model)
    weights = {}

    def redraw(layers: list[str]) -> Tensor:
        with stochastic_attention(model, n_draws=4, seed=2, layers=layers):
            return model(x)

    # another draw in the first layer leaves the uniforms of the last one alone
    weights["last"], weights["both"] = redraw([last]), redraw([first, last])
    weights["first"] = redraw([first])
    plain = model(x)
    assert not torch.allclose(weights["last"], plain, atol=1e-4)
    assert not torch.allclose(weights["both"], weights["first"], atol=1e-4)


def test_modules_that_are_missed_are_named(make_family) -> None:
    family = make_family("by-seam")
    selected = find_attention_modules(family.model)
    with (
        pytest.raises(AttentionNotRedrawnError, match="No attention softmax"),
        answering(family.model, selected, lambda module, n, probs: probs),
    ):
        pass


def test_modules_with_numbers_of_their_own(make_family):
    """Each spreads as with its number alone; the others are left alone."""
    family = make_family("by-seam")
    model, x = family.model, family.inputs["x"]
    first, *_, last = find_attention_modules(model)

    def redraw(n_draws, **kwargs):
        with stochastic_attention(model, n_draws=n_draws, seed=3, **kwargs):
            return model(x)

    assert torch.equal(redraw({first: 4, last: 4}), redraw(4, layers=[first, last]))
    assert torch.equal(redraw({last: 9}), redraw(9, layers=[last]))
    # many draws in one leave the other's alone
    torch.testing.assert_close(
        redraw({first: 4, last: 10**6}), redraw({first: 4}), atol=2e-2, rtol=0
    )
    with pytest.raises(ValueError, match="layers must be left at 'all'"):
        redraw({first: 4}, layers=[first])
    with pytest.raises(ValueError, match="n_draws must be at least 1"):
        redraw({first: 4, last: 0})
    with pytest.raises(ValueError, match="does not have"):
        redraw({"nowhere": 4})
    members = forward_members(model, [x], n_draws={first: 4, last: 2}, seeds=[3, 4])
    torch.testing.assert_close(next(members)[2], redraw({first: 4, last: 2}))
