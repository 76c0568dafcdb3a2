"""Tiny models of the libraries that users bring: a family is one line of a table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.attention.conftest import (
    AttentionByHand,
    D,
    Family,
    H,
    N,
    T,
    WrittenOut,
    build,
)
from uqformer.backbones import FTTransformer

Mask = Callable[[torch.dtype], Tensor]


def real_tokens(on_the_left: bool = False) -> Tensor:
    """Tell which tokens (N, T) are real: all of the first sample, fewer of others."""
    real = torch.arange(T) < torch.tensor([[T], [3], [4]])
    return real.flip(1) if on_the_left else real


def tokens(dtype: torch.dtype, n_tokens: int = T) -> Tensor:
    return torch.randn(N, n_tokens, D, dtype=dtype)


# ----------------------------------------------------------------------- torch


def bool_mask(dtype: torch.dtype) -> Tensor:
    """Hide the last two keys of one query, and the second key of another."""
    hidden = torch.zeros(4, T, dtype=torch.bool)
    hidden[1, 3:] = hidden[2, 1] = True
    return hidden  # (T, S)


def bias(dtype: torch.dtype) -> Tensor:
    """Hide the same keys, and favour the first key, all by numbers."""
    added = torch.zeros(4, T, dtype=dtype)
    added[:, 0] = 1
    return added.masked_fill(bool_mask(dtype), -torch.inf)  # (T, S)


def causal(dtype: torch.dtype) -> Tensor:
    return torch.ones(T, T, dtype=torch.bool).tril()  # (T, S)


def causal_bias(dtype: torch.dtype) -> Tensor:
    return torch.zeros(T, T, dtype=dtype).masked_fill(~causal(dtype), -torch.inf)


def mha(
    dtype: torch.dtype,
    mask: Mask | None = None,
    need_weights: bool = False,
    **options: Any,
) -> Family:
    """Attention of 4 queries to padded tokens, by `nn.MultiheadAttention`."""
    model = nn.MultiheadAttention(D, H, **options)

    def call(model: nn.Module, inputs: dict[str, Tensor]) -> Tensor:
        query, key, value = (inputs[name] for name in ("query", "x", "value"))
        if not model.batch_first:  # (T, N, D)
            query, key, value = (x.transpose(0, 1) for x in (query, key, value))
        hidden = torch.zeros(inputs["real"].shape, dtype=dtype)
        hidden = hidden.masked_fill(~inputs["real"], -torch.inf)  # (N, S)
        # torch wants both masks of one kind
        attn_mask = None if mask is None else mask(dtype)
        if attn_mask is None or attn_mask.dtype == torch.bool:
            hidden = hidden != 0
        output = model(query, key, value, hidden, need_weights, attn_mask)[0]
        return output if model.batch_first else output.transpose(0, 1)

    inputs = {
        "query": tokens(dtype, 4),
        "x": tokens(dtype)[..., : model.kdim],
        "value": tokens(dtype)[..., : model.vdim],
        "real": real_tokens(),
    }
    return Family(model, inputs, call, 1, real="real")


def transformer(dtype: torch.dtype, batch_first: bool) -> Family:
    """Two blocks of encoder and two of causal decoder, by `nn.Transformer`."""

    def call(model: nn.Module, inputs: dict[str, Tensor]) -> Tensor:
        x, target, hidden = inputs["x"], inputs["target"], ~inputs["real"]
        mask = ~causal(dtype)[:4, :4]
        if not batch_first:
            x, target = x.transpose(0, 1), target.transpose(0, 1)  # (T, N, D)
        padding = {"src_key_padding_mask": hidden, "memory_key_padding_mask": hidden}
        output = model(x, target, tgt_mask=mask, **padding)
        return output if batch_first else output.transpose(0, 1)  # (N, T, D)

    model = nn.Transformer(D, H, 2, 2, 16, batch_first=batch_first)
    model.encoder.use_nested_tensor = False  # its outputs could not be compared
    inputs = {"x": tokens(dtype), "target": tokens(dtype, 4), "real": real_tokens()}
    return Family(model, inputs, call, 6, real="real")


def sdpa(dtype: torch.dtype, mask: Mask | None = None, **options: Any) -> Family:
    """Two blocks that hand their attention to torch's functional."""

    class Attention(AttentionByHand):
        def mix(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            if options.get("enable_gqa"):
                k, v = k[:, :1], v[:, :1]  # (N, 1, S, D / H)
            attn_mask = None if mask is None else mask(q.dtype)
            return F.scaled_dot_product_attention(q, k, v, attn_mask, **options)

    model = WrittenOut(Attention)
    return Family(model, {"x": tokens(dtype)}, lambda m, i: m(i["x"]), 2)


TORCH: dict[str, Callable[[torch.dtype], Family]] = {
    "mha-kdim-vdim": lambda t: mha(t, kdim=6, vdim=4, batch_first=True),
    "mha-time-first": lambda t: mha(t),
    "mha-time-first-weights": lambda t: mha(t, need_weights=True),
    "mha-bool-mask": lambda t: mha(t, bool_mask, batch_first=True),
    "mha-bias": lambda t: mha(t, bias, batch_first=True),
    "mha-bias-weights": lambda t: mha(t, bias, need_weights=True, batch_first=True),
    "transformer": lambda t: transformer(t, batch_first=True),
    "transformer-time-first": lambda t: transformer(t, batch_first=False),
    "sdpa-bool-mask": lambda t: sdpa(t, causal),
    "sdpa-bias": lambda t: sdpa(t, causal_bias),
    "sdpa-causal": lambda t: sdpa(t, is_causal=True),
    "sdpa-grouped": lambda t: sdpa(t, is_causal=True, enable_gqa=True),
}

# ---------------------------------------------------------------- Hugging Face


def text(dtype: torch.dtype) -> dict[str, Tensor]:
    ids = torch.randint(3, 20, (N, T))
    return {"input_ids": ids, "attention_mask": real_tokens().long()}


def prompt(dtype: torch.dtype) -> dict[str, Tensor]:
    return text(dtype) | {"attention_mask": real_tokens(on_the_left=True).long()}


def two_texts(dtype: torch.dtype) -> dict[str, Tensor]:
    return text(dtype) | {"decoder_input_ids": torch.randint(3, 20, (N, 4))}


def image(dtype: torch.dtype) -> dict[str, Tensor]:
    return {"pixel_values": torch.randn(N, 3, 8, 8, dtype=dtype)}


def channels(dtype: torch.dtype) -> dict[str, Tensor]:
    return {"past_values": torch.randn(N, 12, 2, dtype=dtype)}


def series(dtype: torch.dtype) -> dict[str, Tensor]:
    padding = ~real_tokens(on_the_left=True).repeat_interleave(4, dim=1)
    return {
        "past_values": torch.randn(N, 4 * T, dtype=dtype),
        "past_values_padding": padding.to(dtype),
        "freq": torch.zeros(N, 1, dtype=torch.long),
    }


@dataclass(frozen=True)
class HuggingFace:
    """A family of Hugging Face: its class, what it is fed with, and its size."""

    name: str
    inputs: Callable[[torch.dtype], dict[str, Tensor]]
    size: dict[str, Any] = field(default_factory=dict)
    n_attention: int = 2

    def make(self, dtype: torch.dtype, attention: str) -> Family:
        inputs = self.inputs(dtype)
        real = None if "decoder_input_ids" in inputs else inputs.get("attention_mask")

        def call(model: nn.Module, inputs: dict[str, Tensor]) -> Tensor:
            output: Tensor = model(**inputs).last_hidden_state
            if real is None:
                return output
            return output * inputs["attention_mask"][..., None]  # padding is nobody's

        model = hugging_face(self.name, attention, **self.size)
        return Family(model, inputs, call, self.n_attention)


def hugging_face(name: str, attention: str, **size: Any) -> nn.Module:
    transformers = pytest.importorskip(
        "transformers", reason="Hugging Face models need transformers"
    )
    transformers.logging.set_verbosity_error()
    model_class = getattr(transformers, f"{name}Model")
    config = model_class.config_class(**size, attn_implementation=attention)
    return model_class(config)


# the usual 0.02 would leave attention flat and its values small
SHARP = {"initializer_range": 0.5}
SIZE = SHARP | {
    "hidden_size": D,
    "num_hidden_layers": 2,
    "num_attention_heads": H,
    "intermediate_size": 16,
}
TEXT = SIZE | {"vocab_size": 20, "max_position_embeddings": 16}
WINDOW = {"num_key_value_heads": 1, "sliding_window": 2}
IMAGE = SIZE | {"image_size": 8, "patch_size": 4}
ALBERT = TEXT | {"embedding_size": D, "num_hidden_layers": 3}
GPT2 = {"n_embd": D, "n_layer": 2, "n_head": H, "vocab_size": 20, "n_positions": 16}
DISTIL = {"dim": D, "n_layers": 2, "n_heads": H, "hidden_dim": 16, "vocab_size": 20}
T5 = {"d_model": D, "d_kv": 4, "d_ff": 16, "num_heads": H, "vocab_size": 20}
# a first stage of 2 x 2 windows, the second of its blocks shifted, and one of 1 window
SWIN = {"image_size": 8, "patch_size": 2, "window_size": 2, "embed_dim": D}
STAGES = {"depths": [2, 1], "num_heads": [H, H]}
PATCHTST = SIZE | {"num_input_channels": 2, "context_length": 12, "ffn_dim": 16}
PATCHES = {"patch_length": 3, "patch_stride": 3, "init_std": 0.5}
TIMESFM = SIZE | {"head_dim": 4, "patch_length": 4, "context_length": 4 * T}

HUGGING_FACE = {
    "roberta": HuggingFace("Roberta", text, TEXT),
    "albert": HuggingFace("Albert", text, ALBERT, 3),
    "distilbert": HuggingFace("DistilBert", text, SHARP | DISTIL),
    "deit": HuggingFace("DeiT", image, IMAGE),
    "dinov2": HuggingFace("Dinov2", image, IMAGE),
    "swin": HuggingFace("Swin", image, SHARP | SWIN | STAGES, 3),
    "clip-text": HuggingFace("CLIPText", text, TEXT),
    "clip-vision": HuggingFace("CLIPVision", image, IMAGE),
    "t5": HuggingFace("T5", two_texts, T5 | {"num_layers": 2}, 6),
    "mistral": HuggingFace("Mistral", prompt, TEXT | WINDOW),
    "gpt2": HuggingFace("GPT2", prompt, SHARP | GPT2),
    "timesfm": HuggingFace("TimesFm", series, TIMESFM),
    "patchtst": HuggingFace("PatchTST", channels, PATCHTST | PATCHES),
}

# ------------------------------------------------------------------- and others


def ft_transformer(dtype: torch.dtype) -> Family:
    """Its attention says nowhere in public how many heads it has."""
    rtdl = pytest.importorskip(
        "rtdl_revisiting_models", reason="this family needs rtdl_revisiting_models"
    )
    sizes = rtdl.FTTransformer.get_default_kwargs(2) | {"d_block": D}
    model = rtdl.FTTransformer(
        n_cont_features=4,
        cat_cardinalities=[3],
        d_out=2,
        **sizes | {"attention_n_heads": H, "_is_default": False},
    )
    inputs = {
        "x_cont": torch.randn(N, 4, dtype=dtype),
        "x_cat": torch.randint(3, (N, 1)),
    }
    return Family(model, inputs, lambda m, i: m(i["x_cont"], i["x_cat"]), 2)


def timm(dtype: torch.dtype, name: str, n_attention: int, **size: Any) -> Family:
    reason = "timm needs torchvision, which has no build beside the CPU build of torch"
    create_model = pytest.importorskip("timm", reason=reason).create_model
    model = create_model(name, img_size=8, num_classes=2, **size)
    inputs = {"x": torch.randn(N, 3, 8, 8, dtype=dtype)}
    return Family(model, inputs, lambda m, i: m(i["x"]), n_attention)


def backbone(dtype: torch.dtype) -> Family:
    """uqformer's own, which asks for its weights itself."""
    model = FTTransformer(4, 2, d_token=D, n_blocks=2, n_heads=H, n_bins=4)
    model.adapt(torch.randn(20, 4))
    inputs = {"x": torch.randn(N, 4, dtype=dtype)}
    return Family(model, inputs, lambda m, i: m(i["x"]), 2)


VIT = {"patch_size": 4, "embed_dim": D, "depth": 2, "num_heads": H}
TIMM_SWIN = {"patch_size": 2, "window_size": 2, "embed_dim": D, "depths": (2, 1)}

OTHERS: dict[str, Callable[[torch.dtype], Family]] = {
    "backbone": backbone,
    "ft-transformer": ft_transformer,
    "timm-vit": lambda t: timm(t, "vit_tiny_patch16_224", 2, **VIT),
    "timm-swin": lambda t: timm(
        t, "swin_tiny_patch4_window7_224", 3, num_heads=(H, H), **TIMM_SWIN
    ),
}

FAMILIES = (
    TORCH
    | {
        f"{name}-{attention}": lambda t, f=family, a=attention: f.make(t, a)
        for name, family in HUGGING_FACE.items()
        for attention in ("eager", "sdpa")
    }
    | OTHERS
)


@cache
def family(name: str, dtype: torch.dtype = torch.float32) -> Family:
    """Build a family once: that it leaves every test as it came is itself tested."""
    return build(FAMILIES[name], dtype)
