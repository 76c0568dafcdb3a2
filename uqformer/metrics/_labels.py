"""True labels and class probabilities: checked, and matched column by column."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import assert_all_finite

from uqformer._typing import AnyArray, Float64Array, IntArray
from uqformer._validation import column_or_1d

__all__ = ["ClassPredictions", "Label", "check_classes"]

Label = Any
"""One class label: an int, a string, a bool; whatever `y_true` is made of."""

# rows of a softmax in half precision miss 1 by less
_SUM_TOLERANCE = 1e-2
_ROUNDING = 1e-6


@dataclass(frozen=True, slots=True)
class ClassPredictions:
    """Probabilities, one column a class, and the column of each true class."""

    codes: IntArray
    proba: Float64Array
    labels: list[Label]

    def confidence(self, pos_label: Label) -> tuple[Float64Array, Float64Array]:
        """Return a probability a row, and 1.0 where what it was said of is true.

        It is said of the class predicted if `pos_label` is None, else of that class.
        """
        if pos_label is None:
            predicted = self.proba.argmax(axis=1)
            return self.proba.max(axis=1), (predicted == self.codes).astype(np.float64)
        if pos_label not in self.labels:
            raise ValueError(
                f"pos_label must be one of the labels {_shorten(self.labels)}; got "
                f"pos_label={pos_label!r}."
            )
        column = self.labels.index(pos_label)
        return self.proba[:, column], (self.codes == column).astype(np.float64)

    def one_hot(self) -> Float64Array:
        """Return 1.0 in the column of each row's true class."""
        columns = np.arange(len(self.labels))
        matches: Float64Array = (self.codes[:, None] == columns).astype(np.float64)
        return matches


def check_classes(
    y_true: ArrayLike, y_proba: ArrayLike, labels: ArrayLike | None
) -> ClassPredictions:
    """Return matched labels and probabilities after checking both."""
    proba = _check_proba(y_proba)
    targets = column_or_1d(y_true)
    assert_all_finite(targets, input_name="y_true")
    if len(targets) != len(proba):
        raise ValueError(
            "y_true and y_proba must have the same rows; got "
            f"{len(targets)} labels and y_proba.shape={np.shape(y_proba)}."
        )
    names = _column_labels(targets, labels, proba.shape[1])
    column_of = {label: column for column, label in enumerate(names)}
    codes = np.array([column_of.get(label, -1) for label in targets.tolist()])
    if (codes < 0).any():
        raise ValueError(
            f"y_true must hold only the labels {_shorten(names)}; got "
            f"{targets[codes < 0].tolist()[0]!r} in {int((codes < 0).sum())} rows. "
            "Pass labels=estimator.classes_, and see that the model knows each class."
        )
    return ClassPredictions(codes, proba, names)


def _check_proba(y_proba: ArrayLike) -> Float64Array:
    """Return rows that sum to 1; a flat array is the second of two classes."""
    proba: Float64Array = np.asarray(y_proba, dtype=np.float64)
    if proba.ndim == 1:
        proba = np.stack([1 - proba, proba], axis=1)
    if proba.ndim != 2 or proba.size == 0:
        raise ValueError(
            "y_proba must have shape (n_samples, n_classes), or (n_samples,) for the "
            f"positive one of two classes; got y_proba.shape={np.shape(y_proba)}."
        )
    if not np.isfinite(proba).all():
        row = int(np.argwhere(~np.isfinite(proba))[0, 0])
        raise ValueError(
            f"y_proba must be finite; it holds NaN or infinity in row {row}."
        )
    if proba.min() < -_ROUNDING or proba.max() > 1 + _ROUNDING:
        raise ValueError(
            "y_proba must lie in [0, 1]; got values from "
            f"{proba.min():g} to {proba.max():g}. Apply a softmax to logits."
        )
    sums = proba.sum(axis=1)
    worst = int(np.abs(sums - 1).argmax())
    if abs(sums[worst] - 1) > _SUM_TOLERANCE:
        raise ValueError(
            f"Each row of y_proba must sum to 1; row {worst} sums to {sums[worst]:g}. "
            "Divide the rows by their sums if they are meant as probabilities."
        )
    return np.clip(proba, 0, 1)


def _column_labels(
    targets: AnyArray, labels: ArrayLike | None, n_classes: int
) -> list[Label]:
    """Return the label of each column."""
    if labels is None:
        return _guess_labels(targets, n_classes)
    names: list[Label] = np.asarray(labels).tolist()
    if len(names) != n_classes or len(set(names)) != n_classes:
        raise ValueError(
            f"labels must hold one label for each of the {n_classes} columns of "
            f"y_proba, none of them twice; got labels={_shorten(names)}."
        )
    return names


def _guess_labels(targets: AnyArray, n_classes: int) -> list[Label]:
    """Name the columns after the labels seen, if that is beyond doubt."""
    present = set(targets.tolist())
    conventions = [list(range(n_classes)), [-1, 1]]
    if len(present) == n_classes:
        return sorted(present)
    for names in conventions:
        if len(names) == n_classes and present <= set(names):
            return names
    raise ValueError(
        f"labels must be given unless y_true holds each of the {n_classes} classes or "
        f"counts them from 0; got y_true with {_shorten(sorted(present, key=str))}. "
        "Pass labels=estimator.classes_."
    )


def _shorten(names: list[Label]) -> str:
    """Write a list of labels that may be long."""
    text = ", ".join(repr(name) for name in names[:5])
    return f"[{text}, ... {len(names)} in all]" if len(names) > 5 else f"[{text}]"
