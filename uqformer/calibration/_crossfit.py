"""Predictions on rows that the predicting model has not seen, for calibration."""

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.model_selection import check_cv

from uqformer._typing import AnyArray, Float64Array, IntArray
from uqformer.calibration._inputs import SMALLEST_PROBA, InputKind
from uqformer.calibration._split import is_frozen, is_mapping, take_params, take_rows
from uqformer.exceptions import CalibrationWarning

__all__ = ["HeldOutPredictions", "hold_out", "respond"]


@dataclass(frozen=True, slots=True)
class HeldOutPredictions:
    """The estimator to keep, and what its like predicted for rows it had not seen."""

    estimator: Any
    kind: InputKind
    predictions: Float64Array  # (n_held_out, n_classes)
    rows: IntArray  # (n_held_out,)


def hold_out(
    estimator: Any,
    X: Any,
    y: AnyArray,
    *,
    classes: AnyArray,
    cv: Any,
    fit_params: dict[str, Any],
    split_params: dict[str, Any],
) -> HeldOutPredictions:
    """Predict rows out of fold, and settle which fitted estimator is kept.

    A frozen estimator is kept as it is. After a single split the one fitted on its
    training rows is kept, so that the held-out rows are new to it. After several, each
    fold is predicted by a clone fitted on the others, and one fitted on all is kept.
    """
    everything = np.arange(len(y))
    if is_frozen(estimator):
        kind = _response_kind(estimator)
        predictions = respond(estimator, X, kind, classes)
        return HeldOutPredictions(estimator, kind, predictions, everything)

    def fit(train: IntArray) -> Any:
        params = take_params(fit_params, train, len(y))
        return clone(estimator).fit(take_rows(X, train), y[train], **params)

    # splitters count rows, which a mapping does not show
    counted = everything if is_mapping(X) else X
    splits = list(check_cv(cv, y, classifier=True).split(counted, y, **split_params))
    held_out = np.concatenate([test for _, test in splits])
    if len(np.unique(held_out)) < len(held_out):
        raise ValueError(
            "cv must hold out each row at most once; got one that holds "
            f"{len(held_out) - len(np.unique(held_out))} of {len(held_out)} out again. "
            "Use a KFold-like splitter, or a single split."
        )
    parts, known = [], []
    for train, test in splits:
        model = fit(train)
        kind = _response_kind(model)
        parts.append(respond(model, take_rows(X, test), kind, classes))
        known.append(np.isin(y[test], model.classes_))
    predictions = np.concatenate(parts)
    if len(splits) == 1:
        return HeldOutPredictions(model, kind, predictions, held_out)
    kept = _keep_known(np.concatenate(known))
    return HeldOutPredictions(fit(everything), kind, predictions[kept], held_out[kept])


def _keep_known(known: AnyArray) -> AnyArray:
    """Leave out rows whose class their fold's model had never met.

    The model fitted on all rows will know the class, so its predictions say nothing
    about that model.
    """
    n_unknown = int(np.sum(~known))
    if n_unknown:
        warnings.warn(
            f"{n_unknown} of {len(known)} rows are alone with their class when held "
            "out, and are left out of the calibration. Use fewer folds, or more rows "
            "of the rare classes.",
            CalibrationWarning,
            stacklevel=4,
        )
    return known


def _response_kind(estimator: Any) -> InputKind:
    """Say what is calibrated: logits where there are any, as scikit-learn does."""
    return "logits" if hasattr(estimator, "decision_function") else "proba"


def respond(estimator: Any, X: Any, kind: InputKind, classes: AnyArray) -> Float64Array:
    """Ask for predictions with one column for each of `classes`, known or not."""
    verb = "decision_function" if kind == "logits" else "predict_proba"
    answer = np.asarray(getattr(estimator, verb)(X), dtype=np.float64)
    if answer.ndim == 1:
        answer = np.column_stack([-answer / 2, answer / 2])
    own: AnyArray = np.asarray(estimator.classes_)
    if answer.shape[1:] != own.shape:
        raise ValueError(
            f"{type(estimator).__name__}.{verb} must return one column for each of its "
            f"{len(own)} classes; got shape {answer.shape}. Scores of pairs of classes "
            "cannot be calibrated: ask for one score a class."
        )
    if len(own) == len(classes):
        return answer
    places = np.searchsorted(classes, own)
    unseen = answer.min(axis=1, keepdims=True) + np.log(SMALLEST_PROBA)
    missing = 0.0 if kind == "proba" else unseen
    full = np.broadcast_to(missing, (len(answer), len(classes))).copy()
    full[:, places] = answer
    return full
