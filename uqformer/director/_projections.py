"""The linear maps of a frozen attention module: queries and keys in, tokens out."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from uqformer.attention._locate import head_count
from uqformer.director._reading import AttentionHalf

__all__ = ["output_map", "queries_and_keys"]

_PAIRS = (("query", "key"), ("q_proj", "k_proj"), ("q_lin", "k_lin"))
_FUSED = ("qkv", "query_key_value")


def queries_and_keys(half: AttentionHalf) -> tuple[Tensor, Tensor]:
    """Return queries and keys (N, H, T, r), before any rotation by position."""
    attention = half.block.get_submodule(half.cut.attention)
    tokens = half.attention_input()  # (N, T, D)
    n_heads = _count_heads(half)
    query, key = _project(attention, tokens)
    width = query.shape[-1] // n_heads
    query = query.unflatten(-1, (n_heads, width)).transpose(1, 2)  # (N, H, T, r)
    key = key.unflatten(-1, (-1, width)).transpose(1, 2)  # (N, H or fewer, T, r)
    # heads that share a key each get it
    return query, key.repeat_interleave(n_heads // key.shape[1], dim=1)


def _count_heads(half: AttentionHalf) -> int:
    attention = half.block.get_submodule(half.cut.attention)
    # Hugging Face keeps the number with the model, not with its blocks
    config = getattr(attention, "config", None)
    n_heads: int | None = getattr(config, "num_attention_heads", None)
    return n_heads or head_count(half.block, half.cut.attention)


def _project(attention: Any, tokens: Tensor) -> tuple[Tensor, Tensor]:
    if isinstance(attention, nn.MultiheadAttention) and attention._qkv_same_embed_dim:
        both = 2 * attention.embed_dim
        bias = attention.in_proj_bias
        projected = F.linear(
            tokens,
            attention.in_proj_weight[:both],
            None if bias is None else bias[:both],
        )
        query, key = projected.chunk(2, dim=-1)
        return query, key
    for query_name, key_name in _PAIRS:
        if hasattr(attention, query_name) and hasattr(attention, key_name):
            query, key = getattr(attention, query_name), getattr(attention, key_name)
            return query(tokens), key(tokens)
    for name in _FUSED:
        if hasattr(attention, name):
            fused = getattr(attention, name)(tokens)  # (N, T, 3 * D)
            query, key, _ = fused.chunk(3, dim=-1)
            return query, key
    if hasattr(attention, "query") and hasattr(attention, "key_value"):
        return attention.query(tokens), attention.key_value(tokens).chunk(2, dim=-1)[0]
    raise ValueError(
        f"The queries and keys of {type(attention).__name__} are not known by name; "
        "use RedrawVariance, which needs none."
    )


def output_map(half: AttentionHalf) -> Tensor:
    """Return what each channel of each head adds to the tokens: (H, r, D)."""
    attention = half.block.get_submodule(half.cut.attention)
    branch = half.block.get_submodule(half.cut.branch)
    linears = [m for m in attention.modules() if isinstance(m, nn.Linear)]
    linear = (
        branch if isinstance(branch, nn.Linear) else linears[-1] if linears else None
    )
    if linear is None:
        raise ValueError(
            f"The output projection of {type(attention).__name__} is not an nn.Linear; "
            "use RedrawVariance, which needs none."
        )
    weight = linear.weight.detach().T  # (H * r, D)
    if branch is not attention and branch is not linear:
        with torch.no_grad():
            # a scale behind the projection
            weight = branch(weight) - branch(torch.zeros_like(weight))
    n_heads = _count_heads(half)
    return weight.reshape(n_heads, -1, weight.shape[1])  # (H, r, D)
