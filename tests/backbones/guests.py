"""Tiny models of Hugging Face with a tokenizer of twenty words, and what a guest is."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

D, H, N_WORDS, MAX_TOKENS = 8, 2, 20, 16
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[END]"]
WORDS += ["the", "cat", "dog", "sat", "ran", "on", "a", "red", "mat", "far", "away"]
WORDS += ["and", "then", "slept", "well"]
TEXTS = ["the cat sat on a red mat", "the dog ran", "a dog and a cat slept", "then"]

SIZE = {
    "hidden_size": D,
    "num_hidden_layers": 2,
    "num_attention_heads": H,
    "intermediate_size": 16,
    "initializer_range": 0.5,  # the usual 0.02 would leave attention flat
}
TEXT = SIZE | {"vocab_size": N_WORDS, "max_position_embeddings": MAX_TOKENS}
GROUPED = TEXT | {"num_key_value_heads": 1}
IMAGE = SIZE | {"image_size": 8, "patch_size": 4}
GPT2 = {
    "n_embd": D, "n_layer": 2, "n_head": H, "n_positions": MAX_TOKENS,
    "vocab_size": N_WORDS, "initializer_range": 0.5, "bos_token_id": 4,
    "eos_token_id": 4,
}  # fmt: skip
T5 = {"d_model": D, "d_kv": 4, "d_ff": 16, "num_heads": H, "num_layers": 2}
ROBERTA = TEXT | {"max_position_embeddings": MAX_TOKENS + 2}
SIZES: dict[str, dict[str, Any]] = {
    "Albert": TEXT | {"embedding_size": D},
    "Bert": TEXT,
    "ConvNext": {"hidden_sizes": [4, 4, 4, D], "depths": [1] * 4, "image_size": 32},
    "Dinov2": IMAGE,
    "GPT2": GPT2,
    "Llama": GROUPED,
    "Qwen2": GROUPED,
    "Roberta": ROBERTA,
    "T5Encoder": T5 | {"vocab_size": N_WORDS},
    "ViT": IMAGE,
    "XLNet": {"d_model": D, "n_layer": 2, "n_head": H, "d_inner": 16},
}
SIZES["XLNet"] |= {"vocab_size": N_WORDS, "initializer_range": 0.5}


def make(kind: str, task: str = "Model", **options: Any) -> Any:
    """Build a tiny model with random weights, in training mode as it is born."""
    transformers = pytest.importorskip(
        "transformers", reason="Hugging Face models need transformers"
    )
    transformers.logging.set_verbosity_error()
    model_class = getattr(transformers, f"{kind}{task}")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        config = model_class.config_class(**SIZES[kind] | options)
        model = model_class(config)
    return model.train()


def classifier(kind: str, n_labels: int = 3, **options: Any) -> Any:
    """Build a tiny classifier of texts."""
    return make(kind, "ForSequenceClassification", num_labels=n_labels, **options)


def tokenizer(**options: Any) -> Any:
    """Build a tokenizer as BERT's, of whole words: [CLS] text [SEP]."""
    tokenizers = pytest.importorskip("tokenizers")
    options = {
        "pad_token": "[PAD]",
        "unk_token": "[UNK]",
        "cls_token": "[CLS]",
        "sep_token": "[SEP]",
        "model_max_length": MAX_TOKENS,
        "model_input_names": ["input_ids", "token_type_ids", "attention_mask"],
    } | options
    core = _core()
    marks = [(mark, WORDS.index(mark)) for mark in ("[CLS]", "[SEP]")]
    core.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=marks,
    )
    return _fast(core, options)


def bare_tokenizer(**options: Any) -> Any:
    """Build a tokenizer as GPT-2's: words alone, and no padding."""
    return _fast(_core(), {"eos_token": "[END]", "padding_side": "left"} | options)


def spaced_words(words: list[str]) -> Any:
    """Build a tokenizer that parts at spaces and knows these words."""
    return _fast(_core(words), {"pad_token": "[PAD]", "unk_token": "[UNK]"})


def _core(words: list[str] = WORDS) -> Any:
    tokenizers = pytest.importorskip("tokenizers")
    vocabulary = {word: number for number, word in enumerate(words)}
    core = tokenizers.Tokenizer(
        tokenizers.models.WordPiece(vocabulary, unk_token="[UNK]")
    )
    core.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    return core


def _fast(core: Any, options: dict[str, Any]) -> Any:
    transformers = pytest.importorskip("transformers")
    return transformers.PreTrainedTokenizerFast(tokenizer_object=core, **options)


def pictures(n: int = 3, height: int = 8, width: int = 8) -> NDArray[np.uint8]:
    """Draw pictures (n, height, width, 3) of noise."""
    rng = np.random.default_rng(0)
    return rng.integers(0, 256, (n, height, width, 3), dtype=np.uint8)


def run(module: nn.Module, arrays: Mapping[str, NDArray[Any]]) -> Tensor:
    """Call a module as the estimators do."""
    tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
    output: Tensor = module(**tensors)
    return output


def digest(model: nn.Module) -> str:
    """Sum up all that a guest is: weights, buffers, flags, modes, gradients, hooks."""
    sha = hashlib.sha256(repr(getattr(model, "config", "")).encode())
    for name, value in [*model.named_parameters(), *model.named_buffers()]:
        sha.update(f"{name} {value.requires_grad} {value.grad is None}".encode())
        sha.update(value.detach().contiguous().flatten().view(torch.uint8).numpy())
    for name, part in model.named_modules():
        hooks = (len(part._forward_hooks), len(part._forward_pre_hooks))
        sha.update(f"{name} {type(part).__name__} {part.training} {hooks}".encode())
    return sha.hexdigest()


@contextmanager
def untouched(model: nn.Module) -> Iterator[None]:
    """Check that a block leaves a guest bit for bit as it came."""
    before = digest(model)
    yield
    assert digest(model) == before
