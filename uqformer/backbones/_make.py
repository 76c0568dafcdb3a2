"""From what a user calls a backbone to a module ready for training."""

from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from difflib import get_close_matches
from inspect import Parameter, signature
from typing import Any, TypeAlias

from torch import nn

from uqformer.backbones._adapters import FrozenBackbone
from uqformer.backbones._sequence import SequenceTransformer
from uqformer.backbones._tabular import FTTransformer
from uqformer.backbones._token_sequence import TokenTransformer
from uqformer.backbones._vision import PatchTransformer

__all__ = ["BACKBONES", "BackboneSpec", "make_backbone"]

BackboneSpec: TypeAlias = str | Callable[..., nn.Module] | nn.Module | FrozenBackbone

BACKBONES: dict[str, Callable[..., nn.Module]] = {
    "ft_transformer": FTTransformer,
    "patch": PatchTransformer,
    "sequence": SequenceTransformer,
    "tokens": TokenTransformer,
}

_SMALL = {"d_token": 64, "n_blocks": 3, "n_heads": 4}
_BASE = {"d_token": 128, "n_blocks": 6, "n_heads": 8}

SIZES: dict[str, dict[str, dict[str, int]]] = {
    "ft_transformer": {
        "small": {"d_token": 32, "n_blocks": 3, "n_heads": 4},
        # the paper's default
        "base": {"d_token": 192, "n_blocks": 3, "n_heads": 8},
    },
    "patch": {"small": _SMALL, "base": _BASE},
    "sequence": {"small": _SMALL, "base": _BASE},
    "tokens": {"small": _SMALL, "base": _BASE},
}
"""What ``size`` stands for, in backbones called by their name or class."""


def make_backbone(
    spec: BackboneSpec,
    n_features: int,
    n_outputs: int,
    params: Mapping[str, Any] | None = None,
) -> nn.Module:
    """Build the module that `spec` stands for.

    Parameters
    ----------
    spec : str, callable, torch.nn.Module or FrozenBackbone
        "ft_transformer" for tables, "patch" for images and fields on a grid,
        "sequence" for windows of a series, "tokens" for token ids; a class or function
        called as ``spec(n_features, n_outputs, **params)``; a module, which is copied;
        or a frozen guest, whose module is returned itself.
    n_features : int
        Length of the inputs' second axis: columns of a table, channels of an image,
        steps of a window.
    n_outputs : int
        Numbers to predict for each row.
    params : mapping, default=None
        Further keyword arguments for a name or a callable. uqformer's own backbones
        also take ``size``, "small" (their default) or "base", for `d_token`,
        `n_blocks` and `n_heads` in one word; any of these given as well comes first.

    Returns
    -------
    module : torch.nn.Module
        Ready to be trained, or the guest.

    Raises
    ------
    ValueError
        If `spec` or ``size`` is an unknown name, `params` holds a keyword that `spec`
        does not take, or they come with a finished module.
    TypeError
        If `spec`, or what it builds, is not a module.

    Examples
    --------
    >>> from uqformer.backbones import make_backbone
    >>> type(make_backbone("ft_transformer", 4, 1, {"d_token": 16})).__name__
    'FTTransformer'
    >>> make_backbone("patch", 3, 10, {"size": "base", "n_blocks": 2}).d_token
    128
    """
    if isinstance(spec, FrozenBackbone | nn.Module):
        if params:
            raise ValueError(
                "backbone_params shape a backbone that is built by name or by a "
                f"callable; got backbone_params={dict(params)} with the finished "
                f"module {spec!r:.60}. Leave them out."
            )
        return spec.module if isinstance(spec, FrozenBackbone) else deepcopy(spec)
    factory = _named(spec) if isinstance(spec, str) else spec
    if not callable(factory):
        raise TypeError(
            "backbone must be a name, a callable (n_features, n_outputs) -> module, a "
            f"torch.nn.Module or a FrozenBackbone; got {type(spec).__name__}."
        )
    module = factory(n_features, n_outputs, **_check_params(factory, params or {}))
    if not isinstance(module, nn.Module):
        raise TypeError(
            "A callable backbone must return a torch.nn.Module; "
            f"{getattr(factory, '__name__', factory)!r} returned "
            f"{type(module).__name__}."
        )
    return module


def _check_params(
    factory: Callable[..., nn.Module], params: Mapping[str, Any]
) -> dict[str, Any]:
    """Say which keyword a factory does not know, and put numbers for a size."""
    sizes = _sizes_of(factory)
    known = signature(factory).parameters.values()
    names = [parameter.name for parameter in known][2:] + ["size"] * bool(sizes)
    unknown = [name for name in params if name not in names]
    takes_any = any(parameter.kind is Parameter.VAR_KEYWORD for parameter in known)
    if unknown and not takes_any:
        raise ValueError(
            f"backbone_params must be among {names}; got {unknown[0]!r}."
            + _did_you_mean(unknown[0], names)
        )
    return _sized(sizes, params) if sizes else dict(params)


def _sizes_of(factory: Callable[..., nn.Module]) -> dict[str, dict[str, int]]:
    """Return the sizes of an own backbone; others have none."""
    names = [name for name, own in BACKBONES.items() if own is factory]
    return SIZES[names[0]] if names else {}


def _sized(
    sizes: dict[str, dict[str, int]], params: Mapping[str, Any]
) -> dict[str, Any]:
    explicit = dict(params)
    size = explicit.pop("size", "small")
    if size not in sizes:
        raise ValueError(f"size must be one of {sorted(sizes)}; got size={size!r}.")
    return sizes[size] | explicit


def _did_you_mean(name: str, known: Iterable[str]) -> str:
    close = get_close_matches(name, list(known), n=1, cutoff=0.4)
    return f" Did you mean {close[0]!r}?" if close else ""


def _named(name: str) -> Callable[..., nn.Module]:
    if name not in BACKBONES:
        raise ValueError(
            f"backbone must be one of {sorted(BACKBONES)}; got {name!r}."
            + _did_you_mean(name, BACKBONES)
        )
    return BACKBONES[name]
