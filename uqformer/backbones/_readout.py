"""What is read from the outputs of Hugging Face models: logits, or pooled states."""

from inspect import signature
from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["has_token_head", "read_last_logits", "read_logits", "read_pooled"]


def has_token_head(model: nn.Module) -> bool:
    """Tell whether a model scores every token, and takes the last one's scores.

    Which token is the last, such a model knows from its padding id alone; many a
    checkpoint of a decoder has none.
    """
    return isinstance(getattr(model, "score", None), nn.Linear) and hasattr(
        model, "base_model"
    )


def read_logits(model: nn.Module, inputs: dict[str, Tensor]) -> Tensor:
    """Run a model with a head and take its logits (N, C)."""
    output = model(**inputs)
    logits = _pick(output, "logits")
    if logits is None or logits.ndim != 2:
        raise ValueError(
            f"{type(model).__name__} gives no logits of shape (n_samples, n_outputs), "
            "so it cannot be used as it is. Pass train='head' to train a new head on "
            "its states."
        )
    return logits


def read_last_logits(model: Any, inputs: dict[str, Tensor]) -> Tensor:
    """Run a decoder and score its last real token, (N, C)."""
    states = read_pooled(model.base_model, inputs, pooling="last")  # (N, D)
    logits: Tensor = model.score(states)  # (N, C)
    return logits


def read_pooled(model: nn.Module, inputs: dict[str, Tensor], *, pooling: str) -> Tensor:
    """Run a model and pool its last states over tokens, (N, D)."""
    options = {"use_cache": False} if _takes(model, "use_cache") else {}
    output = model(**inputs, **options)
    states = _pick(output, "last_hidden_state")  # (N, T, D)
    if states is None or not 3 <= states.ndim <= 4:
        raise ValueError(
            f"{type(model).__name__} gives no states of its tokens, so no head can be "
            "put on them. Hand over the text or the picture part of the model alone."
        )
    if states.ndim == 4:  # a map (N, D, height, width), of a convolutional model
        states = states.flatten(2).transpose(1, 2)  # (N, T, D)
    if pooling == "cls":
        return states[:, 0]  # (N, D)
    mask = inputs.get("attention_mask")
    if mask is None:
        mask = states.new_ones(states.shape[:2])
    if pooling == "last":
        places = torch.arange(mask.shape[1], device=mask.device)
        last = (places * (mask != 0)).argmax(dim=1)  # (N,)
        return states[torch.arange(len(states), device=states.device), last]  # (N, D)
    mask = (mask != 0).to(states.dtype)[..., None]  # (N, T, 1)
    # what stands on padding may be anything, infinite too
    total = states.masked_fill(mask == 0, 0).sum(dim=1)  # (N, D)
    return total / mask.sum(dim=1)


def _pick(output: Any, name: str) -> Tensor | None:
    # a tuple, of models told to return no dict, begins with what is wanted
    value = output[0] if isinstance(output, tuple) else getattr(output, name, None)
    return value if isinstance(value, Tensor) else None


def _takes(model: nn.Module, name: str) -> bool:
    return name in signature(model.forward).parameters
