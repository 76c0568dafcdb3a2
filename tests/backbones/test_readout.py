"""What is read from models: logits, or states pooled over the tokens that are real."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.backbones.guests import classifier, make
from uqformer.backbones._readout import (
    has_token_head,
    read_last_logits,
    read_logits,
    read_pooled,
)

STATES = torch.arange(24.0).reshape(2, 4, 3)
MASK = torch.tensor([[1, 1, 0, 0], [0, 1, 0, 1]])


class Fixed(nn.Module):
    """Gives what it was built with."""

    def __init__(self, **output: Any) -> None:
        super().__init__()
        self.output = output

    def forward(self, **inputs: Tensor) -> Any:
        return SimpleNamespace(**self.output)


def pooled(pooling: str, mask: Tensor | None, states: Tensor = STATES) -> Tensor:
    inputs = {} if mask is None else {"attention_mask": mask}
    return read_pooled(Fixed(last_hidden_state=states), inputs, pooling=pooling)


def test_pooling_goes_over_real_tokens() -> None:
    torch.testing.assert_close(pooled("cls", MASK), STATES[:, 0])
    torch.testing.assert_close(
        pooled("last", MASK), torch.stack([STATES[0, 1], STATES[1, 3]])
    )
    torch.testing.assert_close(
        pooled("mean", MASK),
        torch.stack([STATES[0, :2].mean(0), STATES[1, [1, 3]].mean(0)]),
    )


def test_without_a_mask_all_tokens_are_real() -> None:
    torch.testing.assert_close(pooled("mean", None), STATES.mean(dim=1))
    torch.testing.assert_close(pooled("last", None), STATES[:, -1])


def test_what_stands_on_padding_may_be_anything() -> None:
    states = STATES.clone()
    states[MASK == 0] = torch.nan
    torch.testing.assert_close(pooled("mean", MASK, states), pooled("mean", MASK))


def test_a_map_of_features_is_pooled_over_its_places() -> None:
    states = torch.randn(2, 3, 4, 5, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(pooled("mean", None, states), states.mean(dim=(2, 3)))


@pytest.mark.parametrize("output", [{}, {"last_hidden_state": torch.ones(2, 3)}])
def test_a_model_without_states_is_named(output: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="Fixed gives no states of its tokens"):
        read_pooled(Fixed(**output), {}, pooling="mean")


@pytest.mark.parametrize("output", [{}, {"logits": STATES}, {"logits": None}])
def test_a_model_without_logits_of_rows_is_named(output: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"Fixed gives no logits .* Pass train='head'"):
        read_logits(Fixed(**output), {})


def test_a_model_that_returns_tuples_is_read_alike() -> None:
    ids = torch.tensor([[2, 5, 6, 3]])
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    named, bare = (
        classifier("Bert", return_dict=flag).eval() for flag in (True, False)
    )
    assert torch.equal(read_logits(bare, inputs), read_logits(named, inputs))
    states = (read_pooled(m.bert, inputs, pooling="mean") for m in (named, bare))
    assert torch.equal(*states)


@pytest.mark.parametrize("kind", ["Llama", "GPT2"])
def test_scores_of_the_last_token_are_those_of_the_model(kind: str) -> None:
    model = classifier(kind).eval()
    ids = torch.tensor([[5, 6, 7]])
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    assert has_token_head(model)
    torch.testing.assert_close(
        read_last_logits(model, inputs), model(input_ids=ids).logits
    )


def test_heads_for_whole_texts_are_no_token_heads() -> None:
    assert not has_token_head(classifier("Bert"))
    assert not has_token_head(make("Llama"))
