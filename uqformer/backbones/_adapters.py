"""Guests: pretrained models that are used as they are and never trained."""

from collections.abc import Mapping
from typing import Any, Protocol, Self, runtime_checkable
from warnings import warn

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from uqformer._typing import AnyArray
from uqformer.exceptions import CalibrationWarning

__all__ = ["STANDARDISED", "FrozenBackbone", "GuestProtocol", "InUnits"]

STANDARDISED = "standardised"
"""Attribute by which a module says which of its sides, such as "targets", have been."""


@runtime_checkable
class GuestProtocol(Protocol):
    """What an estimator asks of a pretrained model, whoever wrapped it."""

    @property
    def trains(self) -> bool:
        """Whether ``fit`` trains what `build` returns, or only calibrates."""

    def encode(self, X: Any) -> Any:
        """Turn what users hand over into an array, or a dict of arrays, row by row."""

    def build(self, n_outputs: int) -> nn.Module:
        """Return the module to run, or to train where it requires a gradient."""


class FrozenBackbone:
    """A trained model, handed in to be used and not to be trained.

    ``fit`` then leaves the weights alone and only calibrates. `clone`, and so a grid
    search, shares the one model where a bare module would be copied for every
    candidate.

    Parameters
    ----------
    module : torch.nn.Module
        From inputs ``(n_samples, ...)`` to predictions ``(n_samples, n_outputs)``, or
        ``(n_samples,)`` for a single output, in the units of `y`; for a classifier to
        logits ``(n_samples, n_classes)``. It is run in eval mode; its mode, weights and
        buffers are given back as they came.
    classes : array-like of shape (n_classes,), default=None
        Labels of the columns of a classifier, in their order. None takes the labels
        found in ``fit``, sorted.

    Raises
    ------
    TypeError
        If `module` is not a ``torch.nn.Module``.

    Warns
    -----
    CalibrationWarning
        If an estimator has trained `module` and it knows standardised numbers alone:
        ``as_frozen()`` of that estimator translates.

    See Also
    --------
    FTTransformer : A backbone for tables, trained by ``fit``.

    Notes
    -----
    `X` may be an array, whose numbers reach the module as float32, or a mapping of
    equally long arrays, such as the output of a tokenizer, with which the module is
    called as keywords. In a mapping whole numbers stay whole, so token ids belong
    there. Where it holds an `attention_mask`, batches are cut to their longest row.

    Examples
    --------
    >>> import torch
    >>> from sklearn.base import clone
    >>> from uqformer.backbones import FrozenBackbone
    >>> guest = FrozenBackbone(torch.nn.Linear(3, 1))
    >>> clone(guest).module is guest.module
    True
    """

    trains = False

    def __init__(self, module: nn.Module, *, classes: ArrayLike | None = None) -> None:
        if not isinstance(module, nn.Module):
            raise TypeError(
                "FrozenBackbone takes a torch.nn.Module; got "
                f"{type(module).__name__}. Pass the model itself, already built."
            )
        standardised = getattr(module, STANDARDISED, ())
        if standardised:
            warn(
                f"{type(module).__name__} was trained by the fit of an estimator and "
                f"knows only standardised {' and '.join(standardised)}; take "
                "estimator.as_frozen() in place of FrozenBackbone(estimator.module_).",
                CalibrationWarning,
                stacklevel=2,
            )
        self.module = module
        self.classes = classes

    def encode(self, X: Any) -> Any:
        """Turn a mapping into a dict of equally long arrays; leave all else alone.

        Parameters
        ----------
        X : array-like of shape (n_samples, ...) or mapping of str to array-like
            Inputs of the module.

        Returns
        -------
        inputs : array-like or dict of str to ndarray
            Arrays that the module takes, row by row.

        Raises
        ------
        ValueError
            If the arrays of a mapping are not equally long arrays of numbers.
        """
        if not isinstance(X, Mapping):
            return X
        if not X:
            raise ValueError("X must hold at least one array; got an empty mapping.")
        arrays = {str(name): _as_numbers(name, value) for name, value in X.items()}
        lengths = {name: len(array) for name, array in arrays.items()}
        if len(set(lengths.values())) > 1:
            raise ValueError(
                "All arrays of X must have one row for each sample; got lengths "
                f"{lengths}. Pass arrays of equal length."
            )
        return arrays

    def build(self, n_outputs: int) -> nn.Module:
        """Return the module itself.

        Parameters
        ----------
        n_outputs : int
            Numbers to predict for each row, which the module has settled already.

        Returns
        -------
        module : torch.nn.Module
            The guest, never a copy.
        """
        return self.module

    def __sklearn_clone__(self) -> Self:
        return self

    def __repr__(self) -> str:
        return f"FrozenBackbone({type(self.module).__name__})"


class InUnits(nn.Module):
    """A module whose inputs come by name, and whose outputs have the units of `y`.

    Parameters
    ----------
    module : nn.Module
        The trained module.
    center, scale : array-like of shape (n_outputs,)
        By which its outputs are turned into the units of `y`.
    """

    center: Tensor
    scale: Tensor

    def __init__(self, module: nn.Module, center: ArrayLike, scale: ArrayLike) -> None:
        super().__init__()
        self.module = module
        for name, values in (("center", center), ("scale", scale)):
            self.register_buffer(name, torch.as_tensor(values, dtype=torch.float32))

    def forward(self, x: Tensor | None = None, **inputs: Tensor) -> Tensor:
        """Predict from an array (N, ...), or from arrays by name."""
        output = self.module(**inputs) if x is None else self.module(x, **inputs)
        units: Tensor = self.center + self.scale * output  # (N, C)
        return units


def _as_numbers(name: object, value: Any) -> AnyArray:
    """Return one array of a mapping, or say what is wrong with it."""
    try:
        array: AnyArray = np.asarray(value)
    except ValueError as error:  # rows of unequal length
        raise ValueError(
            f"X[{name!r}] must be an array; its rows are of unequal length. Pad them, "
            "for example with padding=True of a tokenizer."
        ) from error
    if array.ndim == 0 or array.dtype.kind not in "biuf":
        raise ValueError(
            f"X[{name!r}] must be an array of numbers with one row for each sample; "
            f"got shape {array.shape} of {array.dtype}. Encode it first."
        )
    return array
