"""Checks and averages that all metrics share."""

from collections.abc import Iterator
from numbers import Integral
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import check_random_state

from uqformer._typing import Float64Array
from uqformer._validation import (
    check_array,
    check_confidence_level,
)

__all__ = [
    "Members",
    "MultiOutput",
    "average_outputs",
    "average_samples",
    "check_generator",
    "check_level",
    "check_like_targets",
    "check_members",
    "check_option",
    "check_positive_int",
    "check_targets",
    "row_chunks",
]

# float64 numbers that a temporary may hold: 2 MiB
_CELLS_PER_CHUNK = 2**18


class HasMembers(Protocol):
    """What hands over its members, such as a RegressionEnsemble."""

    @property
    def members(self) -> Float64Array: ...


Members: TypeAlias = ArrayLike | HasMembers
"""Members of an ensemble, bare or inside the object that keeps them."""

MultiOutput: TypeAlias = Literal["raw_values", "uniform_average"] | ArrayLike
"""How the outputs' numbers become one, in the words of scikit-learn."""


def check_targets(y_true: ArrayLike) -> Float64Array:
    """Return finite targets of shape (n_samples,) or (n_samples, n_outputs)."""
    targets: Float64Array = check_array(
        y_true, dtype=np.float64, ensure_2d=False, input_name="y_true"
    )
    return targets


def check_like_targets(
    values: ArrayLike, targets: Float64Array, name: str
) -> Float64Array:
    """Return `values` as finite float64 after checking the shape of the targets."""
    array = np.asarray(values, dtype=np.float64)
    if array.shape != targets.shape:
        raise ValueError(
            f"{name} must have the shape of y_true, {targets.shape}; got "
            f"{name}.shape={array.shape}."
        )
    _check_finite(array, name)
    return array


def check_members(members: Members, targets: Float64Array) -> Float64Array:
    """Return finite members of shape (n_members,) + targets.shape."""
    array = np.asarray(getattr(members, "members", members), dtype=np.float64)
    if array.shape[1:] != targets.shape or array.size == 0:
        raise ValueError(
            "members must have shape (n_members, n_samples) or (n_members, n_samples, "
            f"n_outputs) for y_true of shape {targets.shape}; got members.shape="
            f"{array.shape}. Members come first and need the outputs of y_true."
        )
    for member in array:
        _check_finite(member, "members")
    return array


def check_level(confidence_level: float) -> float:
    """Return one confidence level after checking 0 < level < 1."""
    levels = check_confidence_level(confidence_level)
    if np.ndim(confidence_level) != 0:
        raise ValueError(
            "confidence_level must be one number; got "
            f"confidence_level={confidence_level}. Call once for each level."
        )
    return float(levels[0])


def check_option(value: str, name: str, options: tuple[str, ...]) -> None:
    """Refuse a word that is none of the options."""
    if value not in options:
        raise ValueError(
            f"{name} must be one of {', '.join(map(repr, options))}; got "
            f"{name}={value!r}."
        )


def check_positive_int(value: int, name: str) -> None:
    """Refuse what does not count something."""
    if not isinstance(value, Integral) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{name} must be an int of at least 1; got {name}={value!r}.")


def check_generator(random_state: Any) -> np.random.RandomState:
    """Return a generator; None is a fresh one, since numpy's global one is not ours."""
    generator: np.random.RandomState = check_random_state(
        np.random.RandomState() if random_state is None else random_state
    )
    return generator


def average_samples(values: Float64Array, weights: Float64Array) -> Float64Array:
    """Average over samples (first axis); what is left is one number per column."""
    columns: Float64Array = np.average(
        values.reshape(len(values), -1), axis=0, weights=weights
    )
    return columns


def average_outputs(
    columns: Float64Array, multioutput: MultiOutput
) -> float | Float64Array:
    """Average numbers (n_outputs,) as `multioutput` says, or give them as they are."""
    if isinstance(multioutput, str):
        check_option(multioutput, "multioutput", ("raw_values", "uniform_average"))
        return columns if multioutput == "raw_values" else float(columns.mean())
    weights = np.asarray(multioutput, dtype=np.float64)
    if weights.shape != columns.shape or (weights < 0).any() or not weights.any():
        raise ValueError(
            f"multioutput must hold a weight for each of the {len(columns)} outputs, "
            f"none negative and not all 0; got multioutput={multioutput!r:.60}."
        )
    return float(np.average(columns, weights=weights))


def row_chunks(n_rows: int, cells_per_row: int) -> Iterator[slice]:
    """Cut rows so that a temporary of `cells_per_row` numbers each stays small."""
    step = max(1, _CELLS_PER_CHUNK // max(1, cells_per_row))
    for start in range(0, n_rows, step):
        yield slice(start, start + step)


def _check_finite(array: Float64Array, name: str) -> None:
    """Refuse NaN and infinity, which would spoil an average in silence."""
    if not np.isfinite(array).all():
        row = int(np.argwhere(~np.isfinite(array))[0, 0])
        raise ValueError(
            f"{name} must be finite; it holds NaN or infinity in row {row}."
        )
