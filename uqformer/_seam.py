"""The seam at which uqformer's own backbones let their attention be redrawn.

A backbone asks `attention_weights` for its softmax. Outside a redraw that is the plain
softmax; inside, the handler installed on this thread answers instead, so no dispatch
mode has to watch every operator. Both the backbones and the attention room use this
file, and neither knows the other.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

import torch
from torch import Tensor, nn

__all__ = ["AttentionHandler", "attention_weights", "handled_by", "is_redrawing"]


class AttentionHandler(Protocol):
    """What answers for the softmax: probabilities in, weights of the same shape out."""

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


@contextmanager
def handled_by(handler: AttentionHandler) -> Iterator[None]:
    """Let `handler` answer for this thread's attention; the outer one comes back."""
    outer = _state.handler
    _state.handler = handler
    try:
        yield
    finally:
        _state.handler = outer
