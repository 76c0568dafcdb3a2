"""Guests: pretrained models that are used as they are and never trained."""

from typing import Self

from torch import nn

__all__ = ["FrozenBackbone"]


class FrozenBackbone:
    """A trained model, handed in to be used and not to be trained.

    ``fit`` then leaves the weights alone and only calibrates. `clone`, and so a grid
    search, shares the one model where a bare module would be copied for every
    candidate.

    Parameters
    ----------
    module : torch.nn.Module
        From inputs ``(n_samples, ...)`` to predictions ``(n_samples, n_outputs)``, or
        ``(n_samples,)`` for a single output, in the units of `y`. It is run in eval
        mode; its mode, weights and buffers are given back as they came.

    Raises
    ------
    TypeError
        If `module` is not a ``torch.nn.Module``.

    See Also
    --------
    FTTransformer : A backbone for tables, trained by ``fit``.

    Examples
    --------
    >>> import torch
    >>> from sklearn.base import clone
    >>> from uqformer.backbones import FrozenBackbone
    >>> guest = FrozenBackbone(torch.nn.Linear(3, 1))
    >>> clone(guest).module is guest.module
    True
    """

    def __init__(self, module: nn.Module) -> None:
        if not isinstance(module, nn.Module):
            raise TypeError(
                "FrozenBackbone takes a torch.nn.Module; got "
                f"{type(module).__name__}. Pass the model itself, already built."
            )
        self.module = module

    def __sklearn_clone__(self) -> Self:
        return self

    def __repr__(self) -> str:
        return f"FrozenBackbone({type(self.module).__name__})"
