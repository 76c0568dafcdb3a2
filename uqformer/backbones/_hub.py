"""Hugging Face's models: loading them, and asking them about themselves."""

from inspect import signature
from typing import Any

from torch import nn

from uqformer._random import seeded
from uqformer.backbones._guest import import_library

__all__ = [
    "accepted_inputs",
    "body_of",
    "end_id",
    "first_position",
    "has_row_head",
    "is_decoder",
    "length_limit",
    "load_from_hub",
    "load_model",
    "pad_id",
    "position_limit",
    "reads_last_column",
    "width_of",
]

_HEADS = {
    "ForSequenceClassification": "AutoModelForSequenceClassification",
    "ForImageClassification": "AutoModelForImageClassification",
}
# how the names of inputs end that are arrays with a row for each sample
_ARRAYS = ("ids", "mask", "values", "pos", "bbox")
# tokenizers without a limit say so by a number beyond all texts
_NO_LIMIT = 10**6


def load_model(name: str) -> Any:
    """Load a model with its head for whole rows, or without if it has none."""
    config = load_from_hub("AutoConfig", name)
    architecture = (config.architectures or [""])[0]
    kinds = [kind for end, kind in _HEADS.items() if architecture.endswith(end)]
    # what the checkpoint lacks is drawn at random, but not from the user's generator
    with seeded(0):
        return load_from_hub(kinds[0] if kinds else "AutoModel", name)


def load_from_hub(loader: str, name: str) -> Any:
    """Load by one of the Auto classes, or say which names can be loaded."""
    transformers = import_library(
        "transformers", "huggingface", ", or hand over a model that is loaded already"
    )
    try:
        return getattr(transformers, loader).from_pretrained(name)
    except (OSError, ValueError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ValueError(
            f"{name!r} must be a local folder with a Hugging Face model, or its name "
            f"on a hub that can be reached; {loader} could not load it: {reason:.200}"
        ) from error


def has_row_head(model: nn.Module) -> bool:
    """Tell whether the class of a model says that it classifies whole rows."""
    return type(model).__name__.endswith(tuple(_HEADS))


def body_of(model: Any) -> nn.Module:
    """Return the part of a model that gives states: without head, without decoder."""
    body = getattr(model, "base_model", model)
    is_double = getattr(model.config, "is_encoder_decoder", False)
    part: nn.Module = body.get_encoder() if is_double else body
    return part


def width_of(model: Any) -> int:
    """Return the width D of the states of a model."""
    config = model.config
    width = getattr(config, "hidden_size", None) or config.hidden_sizes[-1]
    return int(width)


def is_decoder(model: nn.Module) -> bool:
    """Tell whether each token sees those before it alone."""
    causal = [bool(m.is_causal) for m in model.modules() if hasattr(m, "is_causal")]
    return bool(causal) and all(causal)


def reads_last_column(model: Any) -> bool:
    """Tell whether the head of a model reads the last column, whatever stands there."""
    return getattr(model.config, "summary_type", None) == "last"


def accepted_inputs(model: nn.Module) -> list[str]:
    """List the keywords by which a model takes arrays."""
    return [
        name
        for name in signature(model.forward).parameters
        if name.endswith(_ARRAYS) and not name.startswith(("encoder_", "decoder_"))
    ]


def position_limit(model: Any) -> int | None:
    """Return how many tokens a model has positions for; None if it does not say."""
    limit = int(getattr(model.config, "max_position_embeddings", None) or 0)
    return limit - first_position(model) if limit > 0 else None


def first_position(model: nn.Module) -> int:
    """Count the rows of a table of positions that stand before the first token's."""
    tables = [
        part
        for name, part in model.named_modules()
        if name.endswith("position_embeddings") and isinstance(part, nn.Embedding)
    ]
    padding = [table.padding_idx for table in tables]
    return max((index + 1 for index in padding if index is not None), default=0)


def length_limit(model: Any, tokenizer: Any, max_length: int | None) -> int | None:
    """Return to how many tokens texts are cut, by the user's wish or the model's."""
    limits = [tokenizer.model_max_length, position_limit(model)]
    known = [int(n) for n in limits if n is not None and n < _NO_LIMIT]
    own = min(known, default=None)
    if own is not None and max_length is not None and max_length > own:
        raise ValueError(
            f"max_length must be no more than the {own} tokens that the model takes; "
            f"got max_length={max_length}."
        )
    return max_length or own


def pad_id(model: Any, tokenizer: Any) -> int | None:
    """Return the id of padding, as the tokenizer or the model's config says."""
    ids = [getattr(part, "pad_token_id", None) for part in (tokenizer, model.config)]
    return next((int(number) for number in ids if number is not None), None)


def end_id(model: Any, tokenizer: Any) -> int:
    """Return the id that ends a text, or 0: any id will do behind a mask."""
    ids = [getattr(part, "eos_token_id", None) for part in (tokenizer, model.config)]
    return next((number for number in ids if isinstance(number, int)), 0)
