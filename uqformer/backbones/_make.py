"""From what a user calls a backbone to a module ready for training."""

from collections.abc import Callable, Mapping
from copy import deepcopy
from difflib import get_close_matches
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
        If `spec` is an unknown name, or `params` come with a finished module.
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
    module = factory(n_features, n_outputs, **(params or {}))
    if not isinstance(module, nn.Module):
        raise TypeError(
            "A callable backbone must return a torch.nn.Module; "
            f"{getattr(factory, '__name__', factory)!r} returned "
            f"{type(module).__name__}."
        )
    return module


def _named(name: str) -> Callable[..., nn.Module]:
    if name not in BACKBONES:
        close = get_close_matches(name, BACKBONES, n=1, cutoff=0.4)
        guess = f" Did you mean {close[0]!r}?" if close else ""
        raise ValueError(
            f"backbone must be one of {sorted(BACKBONES)}; got {name!r}.{guess}"
        )
    return BACKBONES[name]
