"""Inputs inside the estimators: one array, or arrays of equal length under names."""

from collections.abc import Mapping
from typing import Any, TypeAlias, overload

import numpy as np
import torch
from numpy.typing import ArrayLike

from uqformer._training import Inputs, trim_padding
from uqformer._typing import AnyArray, IntArray
from uqformer.estimators._cells import Table

__all__ = [
    "ArrayInputs",
    "ReadInputs",
    "UserInputs",
    "as_batch",
    "as_network_numbers",
    "as_tensors",
    "check_same_form",
    "count_rows",
    "form_of",
    "take_rows",
]

ArrayInputs: TypeAlias = AnyArray | dict[str, AnyArray]
"""Inputs as a module takes them: int64 or float32, rows first."""

ReadInputs: TypeAlias = ArrayInputs | Table
"""Inputs that have been read and not yet brought to scale."""

UserInputs: TypeAlias = ArrayLike | Mapping[str, ArrayLike]
"""What users hand over; a guest may take more, such as a list of texts."""


def count_rows(inputs: ReadInputs) -> int:
    """Count the rows, which all arrays share."""
    return len(next(iter(inputs.values())) if isinstance(inputs, dict) else inputs)


@overload
def take_rows(inputs: ArrayInputs, rows: slice | AnyArray) -> ArrayInputs: ...


@overload
def take_rows(inputs: ReadInputs, rows: slice | AnyArray) -> ReadInputs: ...


def take_rows(inputs: ReadInputs, rows: slice | IntArray | AnyArray) -> ReadInputs:
    """Keep some rows of all arrays."""
    if isinstance(inputs, dict):
        return {name: array[rows] for name, array in inputs.items()}
    return inputs[rows]


def as_tensors(inputs: ArrayInputs) -> Inputs:
    """Turn arrays into tensors on the CPU."""
    if isinstance(inputs, dict):
        return {name: _as_tensor(array) for name, array in inputs.items()}
    return _as_tensor(inputs)


def as_batch(inputs: ArrayInputs, device: torch.device) -> Inputs:
    """Put rows on a device, without the padding that none of them needs."""
    batch = trim_padding(as_tensors(inputs))
    if isinstance(batch, dict):
        return {name: tensor.to(device) for name, tensor in batch.items()}
    return batch.to(device)


def _as_tensor(array: AnyArray) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(array))


def as_network_numbers(
    array: AnyArray, name: str = "X", *, allow_missing: bool = False
) -> AnyArray:
    """Return whole numbers as int64 and others as float32, which must hold them.

    NaN passes for a missing number only where a backbone knows what to do with it.
    """
    if array.dtype.kind == "b":
        return array
    if array.dtype.kind in "iu":
        return array.astype(np.int64, copy=False)
    with np.errstate(over="ignore"):
        narrow: AnyArray = np.asarray(array, dtype=np.float32)
    fits = np.isfinite(narrow) | (np.isnan(narrow) & allow_missing)
    if not fits.all():
        raise ValueError(
            f"{name} must be finite and fit the float32 range of the network; "
            f"{int((~fits).sum())} of its values do not, the largest is "
            f"{np.abs(array[~fits]).max():.3g}. Rescale or clip {name}."
        )
    return narrow


def form_of(inputs: Any) -> object:
    """Tell what rows look like: the names of arrays, or the shape of a row."""
    if isinstance(inputs, dict):
        return sorted(inputs)
    return np.shape(inputs)[1:]


def check_same_form(inputs: Any, expected: object) -> None:
    """Check that rows look as they did in fit."""
    got = form_of(inputs)
    if got != expected:
        kind = "arrays named" if isinstance(expected, list) else "rows of shape"
        raise ValueError(
            f"X must hold {kind} {expected} as in fit; got {got}. Fit again for "
            "other inputs."
        )
