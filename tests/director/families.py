"""Models of every family whose chain must be recorded, small and seeded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from uqformer._random import seeded
from uqformer.backbones import (
    FTTransformer,
    PatchTransformer,
    SequenceTransformer,
    TokenTransformer,
)
from uqformer.director import find_blocks

N, T, D, H = 3, 5, 8, 2  # samples, tokens, width, heads


@dataclass
class Guest:
    """A model and a batch for it; `real` says which tokens are not padding."""

    model: nn.Module
    x: Any
    n_blocks: int = 3
    real: Tensor | None = None
    atol: float = 1e-6

    def blocks(self) -> list[nn.Module]:
        return list(find_blocks(self.model)[1])


def _real(on_the_left: bool = False) -> Tensor:
    real = torch.arange(T) < torch.tensor([[T], [3], [4]])
    return real.flip(1) if on_the_left else real


def _encoder(norm_first: bool, padded: bool) -> Guest:
    layer = nn.TransformerEncoderLayer(
        D, H, 16, batch_first=True, norm_first=norm_first, activation="gelu"
    )
    norm = nn.LayerNorm(D) if norm_first else None
    model = nn.TransformerEncoder(layer, 3, norm, enable_nested_tensor=not norm_first)
    for block in model.layers:
        # copies of one layer would hide a chain that takes the wrong block
        for parameter in block.parameters():
            nn.init.normal_(parameter, std=0.5)
    x = torch.randn(N, T, D)
    if not padded:
        return Guest(model, x)
    return Guest(model, {"src": x, "src_key_padding_mask": ~_real()}, real=_real())


def _causal_encoder() -> Guest:
    guest = _encoder(norm_first=True, padded=False)
    mask = nn.Transformer.generate_square_subsequent_mask(T, dtype=torch.float64)
    return Guest(guest.model, {"src": guest.x, "mask": mask})


class TimmBlock(nn.Module):
    """Named and ordered as timm's blocks are, with a scale behind each branch."""

    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.num_heads = H
            self.qkv = nn.Linear(D, 3 * D)
            self.proj = nn.Linear(D, D)

        def forward(self, x: Tensor) -> Tensor:
            q, k, v = (
                part.unflatten(-1, (H, -1)).transpose(1, 2)
                for part in self.qkv(x).chunk(3, dim=-1)
            )  # (N, H, T, D / H)
            mixed = F.scaled_dot_product_attention(q, k, v)
            return self.proj(mixed.transpose(1, 2).flatten(2))

    class LayerScale(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gamma = nn.Parameter(0.1 + torch.rand(D))

        def forward(self, x: Tensor) -> Tensor:
            return x * self.gamma

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(D), nn.LayerNorm(D)
        self.attn = self.Attention()
        self.ls1, self.ls2 = self.LayerScale(), self.LayerScale()
        self.drop_path1 = nn.Identity()
        self.mlp = nn.Sequential(nn.Linear(D, 16), nn.GELU(), nn.Linear(16, D))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.drop_path1(self.ls1(self.attn(self.norm1(x))))
        return x + self.ls2(self.mlp(self.norm2(x)))


def _timm(n_blocks: int = 3) -> Guest:
    blocks = nn.Sequential(*(TimmBlock() for _ in range(n_blocks)))
    head = nn.Linear(D, 4)
    return Guest(nn.Sequential(blocks, head), torch.randn(N, T, D), n_blocks)


def _tabular() -> Guest:
    x = torch.randn(20, 4)
    model = FTTransformer(4, 2, d_token=D, n_blocks=3, n_heads=H, embedding="linear")
    return Guest(model.adapt(x), x[:N])


def _patches(output: Literal["vector", "field"] = "vector") -> Guest:
    x = torch.randn(20, 1, 8, 8)
    n_outputs = 10 if output == "vector" else 64
    model = PatchTransformer(1, n_outputs, output=output, d_token=D, n_heads=H)
    return Guest(model.adapt(x), x[:N])


def _sequence() -> Guest:
    x = torch.randn(20, 12)
    model = SequenceTransformer(12, 2, normalise="window", d_token=D, n_heads=H)
    return Guest(model.adapt(x), x[:N])


def _tokens() -> Guest:
    ids = torch.randint(1, 20, (N, T)).masked_fill(~_real(), 0)
    model = TokenTransformer(T, 2, pad_id=0, d_token=D, n_heads=H).adapt(ids)
    return Guest(model, ids, real=F.pad(_real(), (1, 0), value=True))


def _hugging_face(name: str, attention: str) -> Guest:
    transformers = pytest.importorskip(
        "transformers", reason="Hugging Face models need transformers"
    )
    transformers.logging.set_verbosity_error()
    size = {
        "hidden_size": D,
        "num_hidden_layers": 3,
        "num_attention_heads": H,
        "intermediate_size": 16,
        "initializer_range": 0.5,
        "attn_implementation": attention,
        "num_labels": 3,
    }
    if name in ("ViT", "Dinov2"):
        size |= {"image_size": 8, "patch_size": 4}
        kind = f"{name}ForImageClassification"
        x: dict[str, Tensor] = {"pixel_values": torch.randn(N, 3, 8, 8)}
        real = None
    else:
        size |= {"vocab_size": 20, "max_position_embeddings": 16, "pad_token_id": 0}
        kind = f"{name}ForSequenceClassification"
        is_causal = name != "Bert"
        if is_causal:
            size |= {"num_key_value_heads": 1}
        real = _real(on_the_left=is_causal)
        ids = torch.randint(1, 20, (N, T)).masked_fill(~real, 0)
        x = {"input_ids": ids, "attention_mask": real.long()}
    model_class = getattr(transformers, kind)
    model = model_class(model_class.config_class(**size))
    for parameter_name, parameter in model.named_parameters():
        if "layer_scale" in parameter_name:
            nn.init.uniform_(parameter, 0.1, 1.0)
    return Guest(model, x, real=real)


FAMILIES: dict[str, Callable[[], Guest]] = {
    "encoder-post-norm": lambda: _encoder(norm_first=False, padded=False),
    "encoder-post-norm-padded": lambda: _encoder(norm_first=False, padded=True),
    "encoder-pre-norm": lambda: _encoder(norm_first=True, padded=False),
    "encoder-pre-norm-padded": lambda: _encoder(norm_first=True, padded=True),
    "encoder-causal": _causal_encoder,
    "timm": _timm,
    "timm-one-block": lambda: _timm(n_blocks=1),
    "tabular": _tabular,
    "patches": _patches,
    "patches-field": lambda: _patches("field"),
    "sequence": _sequence,
    "tokens-padded": _tokens,
}
for _attention in ("eager", "sdpa"):
    for _name in ("Bert", "ViT", "Dinov2", "Llama", "Qwen2"):
        FAMILIES[f"{_name.lower()}-{_attention}"] = lambda n=_name, a=_attention: (
            _hugging_face(n, a)
        )
CAUSAL = [name for name in FAMILIES if name.split("-")[0] in ("llama", "qwen2")]
PADDED = [
    name for name in FAMILIES if name.endswith("padded") or name.startswith("bert-")
] + CAUSAL


def build(name: str) -> Guest:
    """Make a family with the same weights and inputs each time."""
    with seeded(0):
        guest = FAMILIES[name]()
    guest.model.eval()
    if name.endswith("eager"):
        # their masks overflow when the model is widened, so rounding is float32's
        guest.atol = 2e-5
        return guest
    guest.model.double()
    guest.x = _double(guest.x)
    return guest


def _double(x: Any) -> Any:
    if isinstance(x, dict):
        return {name: _double(value) for name, value in x.items()}
    return x.double() if x.is_floating_point() else x
