"""The only file that imports scikit-learn's private validation, and our own checks."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import _fit_context
from sklearn.utils import check_array, check_consistent_length, column_or_1d
from sklearn.utils._param_validation import HasMethods, Interval, StrOptions
from sklearn.utils.validation import (
    _check_sample_weight,
    check_is_fitted,
    validate_data,
)

from uqformer._typing import Float64Array

__all__ = [
    "HasMethods",
    "Interval",
    "StrOptions",
    "check_array",
    "check_confidence_level",
    "check_consistent_length",
    "check_interval",
    "check_is_fitted",
    "check_probabilities",
    "check_row_weights",
    "check_sample_weight",
    "column_or_1d",
    "fit_context",
    "validate_data",
]

fit_context = _fit_context
check_sample_weight = _check_sample_weight


def check_probabilities(values: ArrayLike, name: str) -> Float64Array:
    """Return `values` as a flat float64 array after checking 0 < value < 1."""
    array = np.asarray(values, dtype=np.float64)
    if array.ndim > 1 or array.size == 0:
        raise ValueError(
            f"{name} must be a number or a non-empty list of numbers; got an array of "
            f"shape {array.shape}."
        )
    flat = np.atleast_1d(array)
    outside = flat[~((flat > 0) & (flat < 1))]
    if outside.size:
        raise ValueError(
            f"{name} must lie strictly between 0 and 1; got {name}={outside[0]:g}."
            + _guess_percent(outside[0])
        )
    return flat


def check_row_weights(sample_weight: ArrayLike | None, rows: Any) -> Float64Array:
    """Return one weight per row, none negative and not all 0; None weighs all alike."""
    weights: Float64Array = check_sample_weight(sample_weight, rows, dtype=np.float64)
    if (weights < 0).any() or weights.sum() == 0:
        raise ValueError(
            "sample_weight must hold no negative weight and at least one positive one; "
            f"got a smallest weight of {weights.min():g} and a sum of "
            f"{weights.sum():g}."
        )
    return weights


def check_confidence_level(confidence_level: ArrayLike) -> Float64Array:
    """Return the wanted coverages as a flat float64 array, each inside (0, 1)."""
    return check_probabilities(confidence_level, "confidence_level")


def _guess_percent(value: float) -> str:
    """Guess that 95 was meant as 95 %."""
    if 1 < value < 100:
        return f" For {value:g} % pass {value / 100:g}."
    return ""


def check_interval(y_interval: ArrayLike) -> Float64Array:
    """Return prediction intervals as float64 after checking shape, order and NaN."""
    array = np.asarray(y_interval, dtype=np.float64)
    if array.ndim not in (2, 3) or array.shape[1] != 2:
        raise ValueError(
            "y_interval must have shape (n_samples, 2) or (n_samples, 2, n_levels); "
            f"got y_interval.shape={array.shape}." + _guess_transposed(array)
        )
    if np.isnan(array).any():
        raise ValueError(
            "y_interval must hold no NaN; got NaN in row "
            f"{int(np.argwhere(np.isnan(array))[0, 0])}."
        )
    crossed = array[:, 0] > array[:, 1]
    if crossed.any():
        raise ValueError(
            "The lower end of an interval must not lie above its upper end; it does in "
            f"{int(crossed.sum())} of {crossed.size} intervals, first in row "
            f"{int(np.argwhere(crossed)[0, 0])}. Lower ends come first in y_interval."
        )
    return array


def _guess_transposed(array: np.ndarray[Any, Any]) -> str:
    """Guess that (2, n_samples) was handed over."""
    return " Transpose it?" if array.ndim == 2 and array.shape[0] == 2 else ""
