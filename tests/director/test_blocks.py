"""Which blocks a model has, and what stands among the arguments of one."""

import pytest
import torch
from torch import Tensor, nn

from tests.director.families import FAMILIES, build
from uqformer.director import find_blocks
from uqformer.director._blocks import call_model, state_of, visible_keys, with_state

STATE = torch.arange(24.0).reshape(2, 3, 4)


@pytest.mark.parametrize("name", FAMILIES)
def test_the_list_of_blocks_is_found(name: str) -> None:
    guest = build(name)
    _, blocks = find_blocks(guest.model)
    assert len(blocks) == guest.n_blocks


def test_the_longest_list_wins_and_others_are_refused() -> None:
    short = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(8, 2), 2, enable_nested_tensor=False
    )
    long = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(8, 2), 3, enable_nested_tensor=False
    )
    assert find_blocks(nn.ModuleDict({"a": short, "b": long}))[0] == "b.layers"
    mixed = nn.ModuleList([nn.TransformerEncoderLayer(8, 2), nn.Linear(8, 8)])
    with pytest.raises(ValueError, match="No list of blocks"):
        find_blocks(nn.Sequential(mixed))


def test_the_state_is_found_behind_its_first_tokens() -> None:
    mask = torch.ones(2, 1, 1, 3)
    assert state_of(((STATE,), {"mask": mask})) is STATE
    assert state_of(((), {"hidden_states": STATE})) is STATE
    assert state_of(((STATE[:, :1], STATE), {})) is STATE
    with pytest.raises(ValueError, match="three dimensions"):
        state_of(((mask,), {}))


def test_a_state_takes_the_place_of_another() -> None:
    new, memory = STATE + 1, STATE.flip(0)
    call = ((STATE[:, :1], STATE, memory, None), {"x": STATE, "n": 3})
    args, kwargs = with_state(call, new, all_ask=False)
    assert torch.equal(args[0], new[:, :1])
    assert args[1] is new
    assert args[2] is memory
    assert kwargs == {"x": new, "n": 3}
    args, _ = with_state(call, new, all_ask=True)
    assert args[0] is new


def test_caches_are_taken_out() -> None:
    class DynamicCache:
        pass

    call = ((STATE, DynamicCache()), {"cache": DynamicCache(), "use_cache": True})
    args, kwargs = with_state(call, STATE, all_ask=True)
    assert args[1] is None
    assert kwargs == {"cache": None, "use_cache": False}


HIDDEN = torch.tensor([[False, False, True], [False, False, False]])
SEEN = ~HIDDEN[:, None, None]
INF = torch.inf


@pytest.mark.parametrize(
    ("kwargs", "expected"),
    [
        ({}, None),
        ({"src_key_padding_mask": HIDDEN}, SEEN),
        ({"src_key_padding_mask": torch.where(HIDDEN, -INF, 0.0)}, SEEN),
        ({"attention_mask": ~HIDDEN}, SEEN),
        ({"mask": SEEN}, SEEN),
        ({"attention_mask": torch.where(SEEN, 0.0, -1e9)}, SEEN),
        ({"src_mask": torch.ones(3, 3).triu(1).bool()}, torch.ones(3, 3).tril().bool()),
        ({"position_ids": torch.zeros(1, 3, dtype=torch.long)}, None),
    ],
)
def test_masks_are_read(kwargs: dict[str, Tensor], expected: Tensor | None) -> None:
    visible = visible_keys(((STATE,), kwargs), is_causal=False)
    if expected is None:
        assert visible is None
    else:
        assert visible is not None
        assert visible.ndim == 4
        assert torch.equal(visible, expected.expand_as(visible))


def test_masks_are_joined_and_causal_attention_needs_none() -> None:
    causal = torch.ones(3, 3).tril().bool()
    both = {"src_mask": ~causal, "src_key_padding_mask": HIDDEN}
    visible = visible_keys(((STATE,), both), is_causal=False)
    assert visible is not None
    assert torch.equal(visible, SEEN & causal)
    visible = visible_keys(((STATE,), {}), is_causal=True)
    assert visible is not None
    assert torch.equal(visible, causal[None, None])


def test_the_output_is_picked() -> None:
    class Pair(nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor, None]:
            return x, None

    class Text(nn.Module):
        def forward(self, x: Tensor) -> str:
            return "logits"

    assert call_model(Pair(), STATE) is STATE
    assert call_model(nn.Identity(), STATE) is STATE
    with pytest.raises(TypeError, match="must return a Tensor"):
        call_model(Text(), STATE)
