"""Read arrays of predictions: what kind they are, whose columns, on which scale."""

from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import logsumexp

from uqformer._typing import AnyArray, Float64Array, IntArray

__all__ = [
    "InputKind",
    "column_labels",
    "encode_labels",
    "full_logits",
    "infer_kind",
    "log_odds",
]

InputKind: TypeAlias = Literal["logits", "proba"]
"""What a column of predictions means."""

SMALLEST_PROBA = 1e-12
"""A probability of 0 has no logarithm; below this one it is read as this one."""

SUM_TOLERANCE = 1e-2
"""How far from 1 a row of probabilities may sum; half precision errs by less."""

EXACT_SUM = 1e-3
"""Rows that sum to 1 as well as this are probabilities, not logits by chance."""

SUSPICIOUS_SUM = 0.05
"""Numbers in [0, 1] whose rows sum this near to 1 may be rounded probabilities."""


def infer_kind(predictions: Float64Array) -> InputKind:
    """Tell probabilities from logits, or refuse where both are possible."""
    if predictions.min() < 0 or predictions.max() > 1:
        return "logits"
    if predictions.shape[1] == 1:
        raise ValueError(
            "input must be 'logits' or 'proba' for a single column whose values all "
            "lie in [0, 1], which may be either; got input='auto'. Say which it is."
        )
    distance = np.abs(predictions.sum(axis=1) - 1)
    if (distance <= EXACT_SUM).all():
        return "proba"
    near = float(np.mean(distance <= SUSPICIOUS_SUM))
    if near >= 0.5:
        raise ValueError(
            "input must be 'logits' or 'proba' where values lie in [0, 1] and only "
            f"nearly sum to 1; got input='auto' and {near:.0%} of the rows within "
            f"{SUSPICIOUS_SUM} of 1. Say which it is, or normalise the rows."
        )
    return "logits"


def full_logits(predictions: Float64Array, kind: InputKind) -> Float64Array:
    """Return logits with a column for every class, whatever came.

    A single column belongs to the positive class: its probability, or its log-odds.
    """
    if kind == "proba":
        proba = _full_proba(predictions)
        logits: Float64Array = np.log(np.maximum(proba, SMALLEST_PROBA))
        return logits
    if predictions.shape[1] > 1:
        return predictions
    return np.hstack([-predictions / 2, predictions / 2])


def _full_proba(predictions: Float64Array) -> Float64Array:
    """Return rows that sum to 1 after checking that they nearly did."""
    one_column = predictions.shape[1] == 1
    proba = np.hstack([1 - predictions, predictions]) if one_column else predictions
    sums = proba.sum(axis=1, keepdims=True)
    wrong = (proba < 0).any(axis=1) | (np.abs(sums[:, 0] - 1) > SUM_TOLERANCE)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise ValueError(
            "Rows of probabilities must lie in [0, 1] and sum to 1; got row "
            f"{row} with values from {predictions[row].min():g} to "
            f"{predictions[row].max():g} and sum {predictions[row].sum():g}. Pass "
            "input='logits' if they are logits."
        )
    normalised: Float64Array = proba / sums
    return normalised


def log_odds(logits: Float64Array) -> Float64Array:
    """Log of each class's probability over that of all others together.

    It stays exact where the probability itself would round to 1.
    """
    rows, top = np.arange(len(logits)), logits.argmax(axis=1)
    shifted = logits - logits[rows, top][:, None]
    shares = np.exp(shifted)
    # the difference cancels for the top class alone, which gets a sum of its own
    others = shares.sum(axis=1, keepdims=True) - shares
    others[rows, top] = 1.0
    log_others = np.log(others)
    without_top = shifted.copy()
    without_top[rows, top] = -np.inf
    log_others[rows, top] = logsumexp(without_top, axis=1)
    odds: Float64Array = shifted - log_others
    return odds


def column_labels(
    y: AnyArray, n_columns: int, classes: ArrayLike | None, n_features: int
) -> AnyArray:
    """Say which class each column belongs to."""
    if classes is not None:
        labels: AnyArray = np.asarray(classes)
        n_different = len(np.unique(labels))
        if labels.shape != (n_columns,) or n_different != n_columns:
            raise ValueError(
                f"classes must hold {n_columns} different labels, one for each column "
                f"of X (two for a single one); got shape {labels.shape} with "
                f"{n_different} different labels, n_features={n_features}."
            )
        return labels
    found: AnyArray = np.unique(y)
    if _are_column_numbers(found, n_columns):
        return np.arange(n_columns)
    if len(found) == n_columns:
        return found
    raise ValueError(
        "classes must be given when the labels of y are neither whole numbers from 0 "
        f"to {n_columns - 1} nor as many as the columns; got {len(found)} different "
        f"labels for n_features={n_features}. Pass classes, in the columns' order."
    )


def _are_column_numbers(labels: AnyArray, n_columns: int) -> bool:
    if labels.dtype.kind not in "iuf":
        return False
    whole = labels.dtype.kind != "f" or bool((labels == np.floor(labels)).all())
    return whole and labels.min() >= 0 and labels.max() < n_columns


def encode_labels(y: AnyArray, classes: AnyArray) -> IntArray:
    """Return the column number of each label; `classes` may be in any order."""
    order = np.argsort(classes)
    ordered = classes[order]
    places = np.minimum(np.searchsorted(ordered, y), len(classes) - 1)
    unknown = ordered[places] != y
    if unknown.any():
        label = y[unknown].tolist()[0]
        raise ValueError(
            f"y must hold only labels that X has a column for; got {label!r}, which is "
            f"not among classes={classes.tolist()}."
        )
    codes: IntArray = order[places]
    return codes
