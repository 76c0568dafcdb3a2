"""The seam at which uqformer's own backbones let their attention be redrawn.

A backbone lets `attend` do its attention. Outside a redraw that is the fused kernel;
inside, the handler installed on this thread answers for the softmax, so no dispatch
mode has to watch every operator. Both the backbones and the attention room use this
file, and neither knows the other.

The handler may answer for several members at once: it gives M * N rows of weights for N
rows of probabilities, member by member. What comes before the first redraw is then
computed once for all members. A backbone brings its other tensors to that length with
`match_rows`.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

__all__ = [
    "AttentionHandler",
    "attend",
    "attention_weights",
    "handled_by",
    "is_redrawing",
    "match_rows",
]


class AttentionHandler(Protocol):
    """What answers for the softmax: from probabilities (N, H, T, S) to weights.

    The weights have the same shape, or (M * N, H, T, S) for M members.
    """

    def __call__(self, probs: Tensor, module: nn.Module) -> Tensor: ...


class _ThreadState(threading.local):
    """Handlers are per thread: another thread running the same model is not redrawn."""

    handler: AttentionHandler | None = None


_state = _ThreadState()


def is_redrawing() -> bool:
    """Tell whether this thread's attention is being redrawn right now."""
    return _state.handler is not None


def attention_weights(scores: Tensor, module: nn.Module) -> Tensor:
    """Turn attention scores (N, H, T, S) into weights that sum to one over S."""
    probs = torch.softmax(scores, dim=-1)  # (N, H, T, S)
    return probs if _state.handler is None else _state.handler(probs, module)


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    module: nn.Module,
    *,
    mask: Tensor | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """Mix values (N, H, S, D) for each query (N, H, T, D); M * N rows if redrawn.

    `mask` is boolean, True where a query may look at a key, of shape (N or 1, H or 1,
    T or 1, S); every query must be left with one key.
    """
    if mask is not None and len(mask) > 1:
        mask = match_rows(mask, query)  # (M * N, ...)
    if not is_redrawing():
        return F.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, dropout_p=dropout
        )
    # scaled before, where there are fewer numbers
    query = query * query.shape[-1] ** -0.5
    scores = query @ key.transpose(-1, -2)  # (N, H, T, S)
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    weights = attention_weights(scores, module)  # (M * N, H, T, S)
    return weights @ match_rows(value, weights)  # (M * N, H, T, D)


def match_rows(x: Tensor, like: Tensor) -> Tensor:
    """Repeat `x` (N, ...) member by member to the length M * N of `like`."""
    n_members = len(like) // max(1, len(x))
    return x if n_members < 2 else x.repeat(n_members, *[1] * (x.ndim - 1))


@contextmanager
def handled_by(handler: AttentionHandler) -> Iterator[None]:
    """Let `handler` answer for this thread's attention; the outer one comes back."""
    outer = _state.handler
    _state.handler = handler
    try:
        yield
    finally:
        _state.handler = outer
