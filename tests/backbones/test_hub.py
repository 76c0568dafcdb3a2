"""Asking models about themselves: bodies, widths, decoders, limits and loading."""

import sys
from pathlib import Path

import pytest
import torch

from tests.backbones.guests import (
    MAX_TOKENS,
    SIZES,
    D,
    bare_tokenizer,
    classifier,
    make,
    tokenizer,
)
from uqformer.backbones._hub import (
    accepted_inputs,
    body_of,
    end_id,
    has_row_head,
    is_decoder,
    length_limit,
    load_from_hub,
    load_model,
    pad_id,
    position_limit,
    reads_last_column,
    width_of,
)

DECODERS = {"GPT2", "Llama", "Qwen2"}


@pytest.mark.parametrize("kind", [kind for kind in SIZES if kind != "XLNet"])
def test_a_decoder_is_known_by_its_attention(kind: str) -> None:
    assert is_decoder(make(kind)) == (kind in DECODERS)


@pytest.mark.parametrize("kind", SIZES)
def test_width_is_that_of_the_states(kind: str) -> None:
    assert width_of(make(kind)) == D


def test_the_body_has_neither_head_nor_decoder() -> None:
    model = classifier("Bert")
    assert body_of(model) is model.bert
    assert body_of(model.bert) is model.bert
    double = make("T5Encoder").config.to_dict() | {"num_decoder_layers": 1}
    from transformers import T5Config, T5Model

    model = T5Model(T5Config(**double | {"is_encoder_decoder": True}))
    assert body_of(model) is model.encoder


def test_only_xlnet_reads_its_last_column() -> None:
    assert reads_last_column(make("XLNet"))
    assert not any(map(reads_last_column, [make("Bert"), make("GPT2"), make("ViT")]))


def test_heads_are_known_by_the_names_of_classes() -> None:
    assert has_row_head(classifier("Bert"))
    assert has_row_head(make("ViT", "ForImageClassification"))
    assert not has_row_head(make("Bert", "ForMaskedLM"))
    assert not has_row_head(make("Bert"))


def test_labels_and_options_are_no_inputs() -> None:
    names = accepted_inputs(classifier("Bert"))
    assert {"input_ids", "attention_mask", "token_type_ids"} <= set(names)
    assert "labels" not in names
    assert "token_type_ids" not in accepted_inputs(classifier("Llama"))
    assert "encoder_attention_mask" not in accepted_inputs(make("Bert"))
    assert "pixel_values" in accepted_inputs(make("ViT"))


@pytest.mark.parametrize("kind", ["Bert", "Roberta", "GPT2", "T5Encoder", "XLNet"])
def test_a_model_runs_at_its_limit_of_positions(kind: str) -> None:
    """RoBERTa has two positions in its table that no token takes."""
    model, limit = make(kind).eval(), position_limit(make(kind))
    assert limit == (None if kind in ("T5Encoder", "XLNet") else MAX_TOKENS)
    model(input_ids=torch.full((1, limit or 3), 5))
    if limit is not None:
        with pytest.raises((IndexError, RuntimeError)):
            model(input_ids=torch.full((1, limit + 1), 5))


def test_the_shortest_limit_holds() -> None:
    model = make("Bert")
    assert length_limit(model, tokenizer(model_max_length=9), None) == 9
    assert length_limit(model, tokenizer(model_max_length=10**30), None) == MAX_TOKENS
    assert length_limit(model, tokenizer(), 5) == 5
    assert length_limit(make("T5Encoder"), bare_tokenizer(), None) is None
    with pytest.raises(ValueError, match=r"no more than the 16 tokens .*max_length=17"):
        length_limit(model, tokenizer(), 17)


def test_padding_is_what_tokenizer_or_config_say() -> None:
    bert, llama = make("Bert", pad_token_id=3), make("Llama")
    assert pad_id(bert, tokenizer()) == 0
    assert pad_id(bert, bare_tokenizer()) == 3
    assert pad_id(bert, None) == 3
    assert pad_id(llama, bare_tokenizer()) is None
    assert end_id(llama, bare_tokenizer()) == 4
    assert end_id(llama, None) == llama.config.eos_token_id
    assert end_id(make("Llama", eos_token_id=[3, 4]), None) == 0


@pytest.mark.parametrize(
    ("kind", "task"),
    [
        ("Bert", "ForSequenceClassification"),
        ("Bert", "ForMaskedLM"),
        ("Llama", "ForSequenceClassification"),
        ("ViT", "ForImageClassification"),
        ("ViT", "Model"),
    ],
)
def test_a_folder_is_loaded_with_its_head_for_rows(
    kind: str, task: str, tmp_path: Path
) -> None:
    saved = make(kind, task)
    saved.save_pretrained(tmp_path)
    before = torch.get_rng_state()
    loaded = load_model(str(tmp_path))
    assert torch.equal(torch.get_rng_state(), before)
    assert type(loaded).__name__ == kind + ("Model" if task == "ForMaskedLM" else task)
    expected = (
        saved.state_dict() if has_row_head(saved) else body_of(saved).state_dict()
    )
    values = loaded.state_dict()
    kept = [name for name in expected if "pooler" not in name]
    assert all(torch.equal(values[name], expected[name]) for name in kept)


def test_weights_that_a_folder_lacks_are_the_same_each_time(tmp_path: Path) -> None:
    make("Bert", "ForMaskedLM").save_pretrained(tmp_path)  # it has no pooler
    first, second = (load_model(str(tmp_path)).pooler.dense for _ in range(2))
    assert torch.equal(first.weight, second.weight)


@pytest.mark.parametrize("name", ["./no_such_folder", "nobody/nothing"])
def test_what_cannot_be_reached_is_said(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    expected = rf"^'{name}' must be a local folder .*or its name on a hub .*AutoConfig"
    with pytest.raises(ValueError, match=expected):
        load_model(name)


def test_without_transformers_a_name_cannot_be_loaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    expected = r'pip install "uqformer\[huggingface\]", or hand over a model'
    with pytest.raises(ImportError, match=expected):
        load_from_hub("AutoModel", "any")
