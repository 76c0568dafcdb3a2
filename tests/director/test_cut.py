"""Both halves of a block: attention with its residual, and the rest without it."""

import copy
import pickle

import pytest
import torch
from torch import nn

from tests.director.families import FAMILIES, TimmBlock, build
from uqformer._random import seeded
from uqformer.director import cut_model, record_chain
from uqformer.director._blocks import first_tensor, state_of, with_state
from uqformer.director._cut import added_by, cut_block, hollow, silenced


def test_a_scale_behind_the_attention_belongs_to_it() -> None:
    guest = build("timm")
    assert [cut.branch for cut in cut_model(guest.model, guest.x)] == ["ls1"] * 3
    bert = build("bert-sdpa")
    (cut, *_) = cut_model(bert.model, bert.x)
    assert cut.attention == "attention.self"
    assert cut.branch == "attention.output.dense"


def test_attention_that_adds_nothing_is_still_told_from_the_rest() -> None:
    with seeded(0):
        block = TimmBlock()
    nn.init.zeros_(block.ls1.gamma)
    x = torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(0))
    assert cut_block(block, ((x,), {}), "block 0").branch == "ls1"


@pytest.mark.parametrize("name", FAMILIES)
def test_the_halves_make_the_block(name: str) -> None:
    guest = build(name)
    chain = record_chain(guest.model, guest.x)
    cuts = cut_model(guest.model, guest.x)
    block, cut, call = guest.blocks()[0], cuts[0], chain.calls[0]
    with torch.no_grad():
        start = chain.states[0]
        state = start + added_by(block, cut, start, call)
        torch.testing.assert_close(state, chain.states[1], atol=1e-6, rtol=1e-6)
        if len(cuts) > 1:
            rest = silenced(block, cut, share=True)
            args, kwargs = with_state(call, state, all_ask=True)
            tokens = first_tensor(rest(*args, **kwargs), name)
            entered = state_of(chain.calls[1])
            torch.testing.assert_close(
                tokens, entered, atol=guest.atol, rtol=guest.atol
            )


def test_a_silenced_copy_shares_or_copies_its_weights() -> None:
    guest = build("encoder-pre-norm")
    (cut, *_) = cut_model(guest.model, guest.x)
    block = guest.blocks()[0]
    shared, copied = (silenced(block, cut, share=share) for share in (True, False))
    assert shared.linear1.weight is block.linear1.weight
    assert copied.linear1.weight is not block.linear1.weight
    assert torch.equal(copied.linear1.weight, block.linear1.weight)
    # the attention's weights are in neither
    assert not any(name.startswith("self_attn") for name in shared.state_dict())
    assert shared.self_attn.num_heads == block.self_attn.num_heads
    with pytest.raises(AttributeError, match="no_such"):
        _ = shared.self_attn.no_such
    again = pickle.loads(pickle.dumps(copied))
    assert again.self_attn.num_heads == block.self_attn.num_heads
    assert copy.deepcopy(copied).self_attn.batch_first


def test_a_hollow_copy_holds_no_numbers() -> None:
    layer = nn.BatchNorm1d(3)
    empty = hollow(layer)
    assert empty.num_features == 3
    assert {value.device.type for value in empty.state_dict().values()} == {"meta"}
    assert layer.weight.device.type == "cpu"
