"""Decide which modules of a model count as attention."""

from numbers import Integral
from typing import Any

from torch import nn

from uqformer._typing import LayerSelection

__all__ = ["all_attention", "find_attention_modules", "head_count", "uses_seam"]

_ATTENTION_WORDS = ("attn", "attention")
# a name that ends so belongs to something beside the attention, not to attention, and
# so does one that begins with "norm_"
_HELPER_WORDS = (
    "bias", "drop", "dropout", "mask", "mlp", "norm", "out", "output", "proj",
    "projection",
)  # fmt: skip
_HEAD_COUNT_NAMES = ("num_heads", "num_attention_heads", "n_heads", "n_head")


def find_attention_modules(
    model: nn.Module, layers: LayerSelection = "all"
) -> dict[str, nn.Module]:
    """Find the modules of a model whose attention can be redrawn.

    Each layer of attention counts once: where one attention module wraps another,
    as in BERT, the inner one is taken.

    Parameters
    ----------
    model : nn.Module
        Any transformer.

    layers : "all" or list of int and str, default="all"
        Which modules to take: all of them, or positions among all of them in the
        order of ``model.named_modules()``, negative ones counting from the end, or
        names. A name may be that of any module of the model, also one that would not
        be taken for attention.

    Returns
    -------
    modules : dict of str to nn.Module
        The chosen modules by their names in `model`, without repetition.

    Raises
    ------
    ValueError
        If nothing in `model` looks like attention, or `layers` is empty or asks for
        what `model` does not have.
    TypeError
        If `layers` is neither "all" nor a list of int and str.

    See Also
    --------
    stochastic_attention : Redraw the attention of these modules.

    Notes
    -----
    A module is attention if it is an ``nn.MultiheadAttention``, if its class says
    ``uses_attention_seam = True``, if the name of its class contains "attn" or
    "attention", or if it has children and the attribute it is kept in is so named. A
    name that ends in "norm", "dropout", "output" and the like does not count, nor one
    that begins with "norm_", nor do the ready-made layers of ``torch.nn``.

    Examples
    --------
    >>> from torch import nn
    >>> from uqformer.attention import find_attention_modules
    >>> layer = nn.TransformerDecoderLayer(8, 2, batch_first=True)
    >>> list(find_attention_modules(layer))
    ['self_attn', 'multihead_attn']
    >>> list(find_attention_modules(layer, layers=[-1]))
    ['multihead_attn']
    """
    found = all_attention(model)
    if isinstance(layers, str):
        if layers != "all":
            raise TypeError(
                "layers must be 'all' or a list of positions and module names; got "
                f"layers={layers!r}. Try layers=[{layers!r}]."
            )
        if not found:
            raise ValueError(_nothing_found(model))
        return found
    if len(layers) == 0:
        raise ValueError("layers must choose at least one module; got layers=[].")
    names = [_resolve(model, found, layer) for layer in layers]
    return {name: model.get_submodule(name) for name in names}


def all_attention(model: nn.Module) -> dict[str, nn.Module]:
    """Collect the innermost modules that look like attention."""
    found = {
        name: module
        for name, module in model.named_modules()
        if _looks_like_attention(name, module)
    }
    return {
        name: module
        for name, module in found.items()
        if not any(_lies_in(other, name) for other in found)
    }


def _lies_in(name: str, owner: str) -> bool:
    return name.startswith(f"{owner}.") if owner else name != ""


def _looks_like_attention(name: str, module: nn.Module) -> bool:
    if isinstance(module, nn.MultiheadAttention) or _says_seam(module):
        return True
    if type(module).__module__.startswith("torch.nn."):
        return False
    attribute = name.rpartition(".")[2]
    has_children = next(module.children(), None) is not None
    return _names_attention(type(module).__name__) or (
        has_children and _names_attention(attribute)
    )


def _names_attention(name: str) -> bool:
    lowered = name.lower()
    named = any(word in lowered for word in _ATTENTION_WORDS)
    is_helper = lowered.startswith("norm_") or lowered.endswith(_HELPER_WORDS)
    return named and not is_helper


def _resolve(model: nn.Module, found: dict[str, nn.Module], layer: int | str) -> str:
    """Turn one entry of `layers` into the name of a module."""
    if isinstance(layer, str):
        if layer not in dict(model.named_modules(remove_duplicate=False)):
            raise ValueError(
                f"layers names {layer!r} which this {type(model).__name__} does not "
                f"have; its attention modules are: {_listing(found)}."
            )
        return layer
    if isinstance(layer, bool) or not isinstance(layer, Integral):
        raise TypeError(
            "layers must hold positions (int) and module names (str); got "
            f"{layer!r} of type {type(layer).__name__}."
        )
    if not found:
        raise ValueError(_nothing_found(model))
    if not -len(found) <= layer < len(found):
        raise ValueError(
            f"layers asks for position {layer} of {len(found)} attention modules; "
            f"those of this {type(model).__name__} are: {_listing(found)}."
        )
    return list(found)[layer]


def _nothing_found(model: nn.Module) -> str:
    return (
        f"No module of {type(model).__name__} looks like attention; name the modules "
        "to redraw with layers=[module names]."
    )


def _listing(found: dict[str, nn.Module]) -> str:
    # the model itself has the empty name
    names = [name or "'' (the model itself)" for name in found]
    if len(names) > 12:
        names[6:-3] = ["…"]
    return ", ".join(names) or "none"


def _says_seam(module: nn.Module) -> bool:
    return getattr(type(module), "uses_attention_seam", False) is True


def uses_seam(modules: dict[str, nn.Module]) -> bool:
    """Tell whether all these modules ask uqformer's seam for their weights."""
    return all(_says_seam(module) for module in modules.values())


def head_count(model: nn.Module, name: str) -> int:
    """Return how many heads the module `name` has, as it or its owners say, or 1."""
    while True:
        module: Any = model.get_submodule(name)
        for attribute in _HEAD_COUNT_NAMES:
            value = getattr(module, attribute, None)
            if isinstance(value, int) and value > 0:
                return value
        if not name:
            return 1
        name = name.rpartition(".")[0]
