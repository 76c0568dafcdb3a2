"""From what a user calls a backbone to a module ready for training."""

from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from difflib import get_close_matches
from inspect import Parameter, signature
from typing import Any, TypeAlias

from torch import nn

from uqformer.backbones._adapters import FrozenBackbone
from uqformer.backbones._tabular import FTTransformer

__all__ = ["BACKBONES", "BackboneSpec", "make_backbone"]

BackboneSpec: TypeAlias = str | Callable[..., nn.Module] | nn.Module | FrozenBackbone

BACKBONES: dict[str, Callable[..., nn.Module]] = {"ft_transformer": FTTransformer}


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
        A name in ``BACKBONES``; a class or function called as
        ``spec(n_features, n_outputs, **params)``; a module, which is copied; or a
        frozen guest, whose module is returned itself.
    n_features : int
        Columns of the inputs.
    n_outputs : int
        Numbers to predict for each row.
    params : mapping, default=None
        Further keyword arguments for a name or a callable.

    Returns
    -------
    module : torch.nn.Module
        Ready to be trained, or the guest.

    Raises
    ------
    ValueError
        If `spec` is an unknown name, `params` holds a keyword it does not take, or
        they come with a finished module.
    TypeError
        If `spec`, or what it builds, is not a module.

    Examples
    --------
    >>> from uqformer.backbones import make_backbone
    >>> type(make_backbone("ft_transformer", 4, 1, {"d_token": 16})).__name__
    'FTTransformer'
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
    _check_params(factory, params or {})
    module = factory(n_features, n_outputs, **(params or {}))
    if not isinstance(module, nn.Module):
        raise TypeError(
            "A callable backbone must return a torch.nn.Module; "
            f"{getattr(factory, '__name__', factory)!r} returned "
            f"{type(module).__name__}."
        )
    return module


def _check_params(factory: Callable[..., nn.Module], params: Mapping[str, Any]) -> None:
    """Say which keyword a factory does not know, and which one may be meant."""
    known = signature(factory).parameters.values()
    if any(parameter.kind is Parameter.VAR_KEYWORD for parameter in known):
        return
    names = [parameter.name for parameter in known][2:]
    unknown = [name for name in params if name not in names]
    if unknown:
        raise ValueError(
            f"backbone_params must be among {names}; got {unknown[0]!r}."
            + _did_you_mean(unknown[0], names)
        )


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
