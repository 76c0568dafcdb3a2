"""Find the blocks of a model, and read or change what a block is called with."""

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from uqformer.attention import find_attention_modules

__all__ = [
    "Call",
    "Inputs",
    "call_model",
    "find_blocks",
    "first_tensor",
    "real_tokens",
    "state_of",
    "visible_keys",
    "with_state",
]

Inputs: TypeAlias = Tensor | Mapping[str, Tensor]
Call: TypeAlias = tuple[tuple[Any, ...], dict[str, Any]]

# a logit below this is a mask written as a number
_MASKED_LOGIT = torch.finfo(torch.float16).min / 2


def find_blocks(model: nn.Module) -> tuple[str, nn.ModuleList | nn.Sequential]:
    """Find the list of blocks that a transformer is made of.

    Parameters
    ----------
    model : nn.Module
        Any transformer.

    Returns
    -------
    name : str
        Name of the list in `model`.

    blocks : nn.ModuleList or nn.Sequential
        The longest list of modules of one type that all contain attention; of equally
        long ones the first.

    Raises
    ------
    ValueError
        If `model` has no attention, or no such list.

    See Also
    --------
    record_chain : Record the features between these blocks.

    Examples
    --------
    >>> from torch import nn
    >>> from uqformer.director import find_blocks
    >>> layer = nn.TransformerEncoderLayer(8, 2, batch_first=True)
    >>> name, blocks = find_blocks(nn.TransformerEncoder(layer, num_layers=3))
    >>> name, len(blocks)
    ('layers', 3)
    """
    attention = list(find_attention_modules(model))
    found = [
        (name, module)
        for name, module in model.named_modules()
        if isinstance(module, (nn.ModuleList, nn.Sequential))
        and _are_blocks(name, module, attention)
    ]
    if not found:
        raise ValueError(
            f"No list of blocks was found in {type(model).__name__}; its blocks must "
            "be of one type, each with attention in it, in an nn.ModuleList or "
            "nn.Sequential."
        )
    # max keeps the first of equals
    return max(found, key=lambda item: len(item[1]))


def _are_blocks(
    name: str, modules: nn.ModuleList | nn.Sequential, attention: list[str]
) -> bool:
    prefix = f"{name}." if name else ""
    types = {type(module) for module in modules}
    # a list that holds a list cannot be called
    return (
        len(types) == 1
        and nn.ModuleList not in types
        and all(
            any(found.startswith(f"{prefix}{index}.") for found in attention)
            for index in range(len(modules))
        )
    )


def call_model(model: nn.Module, x: Inputs) -> Tensor:
    """Call a model and pick what it predicts (N, ...): logits, or its last state."""
    output = model(**x) if isinstance(x, Mapping) else model(x)
    for name in ("logits", "last_hidden_state"):
        picked = getattr(output, name, None)
        if isinstance(picked, Tensor):
            return picked
    return first_tensor(output, type(model).__name__)


def first_tensor(output: Any, name: str) -> Tensor:
    """Return a tensor itself, or the first entry of a tuple."""
    first = output[0] if isinstance(output, (tuple, list)) and output else output
    if not isinstance(first, Tensor):
        raise TypeError(
            f"{name} must return a Tensor or a tuple that begins with one; got "
            f"{type(output).__name__}."
        )
    return first


def state_of(call: Call) -> Tensor:
    """Find the tokens (N, T, D) among what a block is called with.

    A block may be given the first tokens alone as its queries, before the state they
    come from: then it is the state.
    """
    candidates = [value for _, value in _entries(call) if _is_state(value)]
    if not candidates:
        raise ValueError(
            "A block must be called with its tokens, a floating tensor of shape "
            "(n_samples, n_tokens, width); no argument has three dimensions."
        )
    query = candidates[0]
    longer = [value for value in candidates if _begins_with(value, query)]
    state: Tensor = max(longer, key=lambda value: value.shape[1])
    return state


def with_state(call: Call, new: Tensor, *, all_ask: bool) -> Call:
    """Put `new` (N, T, D) where the state, or its first tokens, stood in a call.

    With `all_ask` every token of `new` becomes a query where only the first were. The
    caches of generation are taken out.
    """
    old = state_of(call)

    def swap(value: Any) -> Any:
        # a cache remembers earlier calls, and a block called again would append to it
        if type(value).__name__.endswith("Cache"):
            return None
        if not (_is_state(value) and _begins_with(old, value)):
            return value
        n_asked = new.shape[1] if all_ask else value.shape[1]
        return new if n_asked == new.shape[1] else new[:, :n_asked]

    args, kwargs = call
    swapped = {name: swap(value) for name, value in kwargs.items()}
    if "use_cache" in swapped:
        swapped["use_cache"] = False
    return tuple(map(swap, args)), swapped


def visible_keys(call: Call, *, is_causal: bool) -> Tensor | None:
    """Read from a block's masks which keys a query may look at, or None for all.

    The result is boolean, of shape (N or 1, 1, T or 1, S), True where a query may look.
    """
    n_tokens = state_of(call).shape[1]
    visible = None
    for name, value in _entries(call):
        found = _visible(name, value, n_tokens)
        if found is not None:
            visible = found if visible is None else visible & found
    if visible is None and is_causal:
        device = state_of(call).device
        causal = torch.ones(n_tokens, n_tokens, dtype=torch.bool, device=device)
        visible = causal.tril()[None, None]  # (1, 1, T, S)
    return visible


def real_tokens(visible: Tensor | None, state: Tensor) -> Tensor:
    """Tell which tokens of a state (N, T, D) are not padding, boolean (N, T)."""
    n_rows, n_tokens, _ = state.shape
    if visible is None:
        return state.new_ones(n_rows, n_tokens, dtype=torch.bool)
    # a real token sees itself under every mask, and padding nobody sees
    square = visible[:, 0].expand(n_rows, n_tokens, n_tokens)  # (N, T, T)
    return square.diagonal(dim1=1, dim2=2)  # (N, T)


def _visible(name: str, value: Any, n_tokens: int) -> Tensor | None:
    if not isinstance(value, Tensor) or value.shape[-1:] != (n_tokens,):
        return None
    if value.ndim not in (2, 4) or value.dtype == torch.long:
        return None
    allowed = value > _MASKED_LOGIT if value.is_floating_point() else value.bool()
    if value.ndim == 4:
        return allowed.any(dim=1, keepdim=True)  # (N, 1, T, S)
    # torch.nn says True for what is hidden, all others for what is seen
    if value.dtype == torch.bool and name.startswith("src_"):
        allowed = ~allowed
    # a mask of queries and keys, or one of the keys of each sample
    by_query: Tensor = allowed[None, None]  # (1, 1, T, S)
    by_sample: Tensor = allowed[:, None, None]  # (N, 1, 1, S)
    return by_query if name == "src_mask" else by_sample


def _entries(call: Call) -> Iterator[tuple[str, Any]]:
    args, kwargs = call
    yield from (("", value) for value in args)
    yield from kwargs.items()


def _is_state(value: Any) -> bool:
    return isinstance(value, Tensor) and value.ndim == 3 and value.is_floating_point()


def _begins_with(state: Tensor, part: Tensor) -> bool:
    if len(state) != len(part) or state.shape[2] != part.shape[2]:
        return False
    # the same memory is the same tokens, also where padding holds NaN
    return state.data_ptr() == part.data_ptr() or torch.equal(
        state[:, : part.shape[1]], part
    )
