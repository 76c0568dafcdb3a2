"""Ask an estimator for its uncertainty through whatever is wrapped around it.

`Pipeline`, searches and `TransformedTargetRegressor` pass on only the verbs they know,
so `predict_interval` has to be carried to the innermost estimator by hand: rows are
transformed on the way in, answers are mapped back to units of `y` on the way out.
Probabilities they do pass on, but not always the classes that name the columns.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from inspect import signature
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.compose import TransformedTargetRegressor
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline

from uqformer._typing import AnyArray, Float64Array
from uqformer._validation import (
    check_confidence_level,
    check_is_fitted,
    check_probabilities,
)

__all__ = [
    "ensemble_response",
    "interval_response",
    "predict_interval",
    "proba_response",
    "quantile_response",
    "spread_response",
]

REGRESSOR_HINT = (
    "Try a regressor that knows its uncertainty, such as "
    "uqformer.StochasticAttentionRegressor."
)
CLASSIFIER_HINT = (
    "Try sklearn.calibration.CalibratedClassifierCV around it, which adds "
    "probabilities."
)


def predict_interval(
    estimator: Any, X: ArrayLike, confidence_level: ArrayLike = 0.9
) -> Float64Array:
    """Predict intervals with an estimator that others are wrapped around.

    A `Pipeline`, a search or a `TransformedTargetRegressor` has no `predict_interval`
    of its own. This function looks inside them, in any order and depth, and also
    inside `FrozenEstimator`.

    Parameters
    ----------
    estimator : estimator
        Fitted estimator that offers ``predict_interval(X, confidence_level=...)``,
        or a wrapper around one.
    X : array-like of shape (n_samples, n_features)
        Samples, as the outermost wrapper takes them.
    confidence_level : float or array-like of shape (n_levels,), default=0.9
        Wanted coverage, strictly between 0 and 1.

    Returns
    -------
    interval : ndarray of shape (n_samples, 2[, n_levels][, n_outputs])
        Lower end first, in units of the `y` the outermost wrapper was fitted on;
        without `n_levels` for a single number.

    Raises
    ------
    AttributeError
        If nothing inside `estimator` offers `predict_interval`.
    ValueError
        If `confidence_level` is outside (0, 1), or the answer is no interval.

    See Also
    --------
    uqformer.scorers.IntervalScorer : Score such intervals in a search.

    Notes
    -----
    The ends are mapped back through the transformer of a `TransformedTargetRegressor`
    and sorted, which is exact for maps that rise or fall throughout, one output at a
    time. A transformer that mixes outputs has no such map.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.base import BaseEstimator, RegressorMixin
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> from uqformer import predict_interval
    >>> class PlusMinusOne(RegressorMixin, BaseEstimator):
    ...     def fit(self, X, y):
    ...         self.is_fitted_ = True
    ...         return self
    ...     def predict_interval(self, X, confidence_level=0.9):
    ...         return X[:, :1] + np.array([-1.0, 1.0])
    >>> X, y = np.array([[1.0], [3.0]]), np.array([0.0, 1.0])
    >>> pipeline = make_pipeline(StandardScaler(), PlusMinusOne()).fit(X, y)
    >>> predict_interval(pipeline, X)
    array([[-2.,  0.],
           [ 0.,  2.]])
    """
    check_confidence_level(confidence_level)
    return interval_response(estimator, X, confidence_level)


def interval_response(
    estimator: Any, X: ArrayLike, confidence_level: ArrayLike
) -> Float64Array:
    """Intervals of the innermost estimator, in the outermost units of `y`."""
    inner = _unwrap(estimator, X, _offers("predict_interval"), "predict_interval")
    interval: Float64Array = np.asarray(
        inner.estimator.predict_interval(inner.X, confidence_level=confidence_level),
        dtype=np.float64,
    )
    n_axes = 2 + np.ndim(confidence_level)
    if interval.ndim < n_axes or interval.shape[1] != 2:
        raise ValueError(
            f"{_name(inner.estimator)}.predict_interval must return an array of shape "
            "(n_samples, 2[, n_levels][, n_outputs]); got shape "
            f"{interval.shape} for confidence_level={confidence_level!r}."
        )
    if not inner.target_transformers:
        return interval
    # a falling map turns the ends around
    return np.sort(_to_units_of_y(inner, interval, n_axes), axis=1)


def ensemble_response(estimator: Any, X: ArrayLike) -> Float64Array:
    """Members (n_members, n_samples[, n_outputs]) in the outermost units of `y`."""
    inner = _unwrap(estimator, X, _offers("predict_ensemble"), "predict_ensemble")
    ensemble = inner.estimator.predict_ensemble(inner.X)
    members: Float64Array = np.asarray(ensemble.members, dtype=np.float64)
    return _to_units_of_y(inner, members, n_axes=2)


def quantile_response(
    estimator: Any, X: ArrayLike, quantiles: ArrayLike
) -> Float64Array:
    """Quantiles (n_samples, n_quantiles[, n_outputs]) in the outermost units of `y`."""
    inner = _unwrap(estimator, X, _offers("predict_quantiles"), "predict_quantiles")
    levels = check_probabilities(quantiles, "quantiles")
    # a falling map of the target turns the quantile q into the quantile 1 - q
    asked = (
        np.concatenate([levels, 1 - levels]) if inner.target_transformers else levels
    )
    values: Float64Array = np.asarray(
        inner.estimator.predict_quantiles(inner.X, asked), dtype=np.float64
    )
    if values.ndim < 2 or values.shape[1] != len(asked):
        raise ValueError(
            f"{_name(inner.estimator)}.predict_quantiles must return an array of shape "
            f"(n_samples, n_quantiles[, n_outputs]); got shape {values.shape} for "
            f"{len(asked)} quantiles."
        )
    if not inner.target_transformers:
        return values
    rising, falling = np.split(_to_units_of_y(inner, values, n_axes=2), 2, axis=1)
    above_median = levels.reshape(-1, *[1] * (rising.ndim - 2)) > 0.5
    return np.where(
        above_median, np.maximum(rising, falling), np.minimum(rising, falling)
    )


def proba_response(estimator: Any, X: ArrayLike) -> tuple[Float64Array, AnyArray]:
    """Probabilities (n_samples, n_classes) and the class of each column."""
    inner = _unwrap(
        estimator, X, _offers("predict_proba"), "predict_proba", CLASSIFIER_HINT
    )
    answer = inner.estimator.predict_proba(inner.X)
    if not hasattr(inner.estimator, "classes_"):
        raise AttributeError(
            "A classifier must name the columns of predict_proba in classes_; got "
            f"{_name(inner.estimator)}, which does not."
        )
    if isinstance(answer, list):
        raise ValueError(
            f"{_name(inner.estimator)}.predict_proba must return one array; got a list "
            f"of {len(answer)}, one for each target. Fit one classifier per target."
        )
    proba: Float64Array = np.asarray(answer, dtype=np.float64)
    classes = np.asarray(inner.estimator.classes_)
    if proba.shape[1:] != classes.shape:
        raise ValueError(
            f"{_name(inner.estimator)}.predict_proba must return an array of shape "
            f"(n_samples, n_classes); got shape {proba.shape} for {len(classes)} "
            "classes_."
        )
    return proba, classes


def spread_response(estimator: Any, X: ArrayLike) -> tuple[Float64Array, Float64Array]:
    """Point and standard deviation from ``predict(X, return_std=True)``."""
    inner = _unwrap(estimator, X, _returns_std, "predict with return_std")
    if inner.target_transformers:
        raise TypeError(
            "A standard deviation cannot be mapped back to units of y through a "
            f"TransformedTargetRegressor; got {_name(estimator)} with one inside. "
            "Score members or intervals instead, which can."
        )
    mean, std = inner.estimator.predict(inner.X, return_std=True)
    return np.asarray(mean, dtype=np.float64), np.asarray(std, dtype=np.float64)


@dataclass(frozen=True, slots=True)
class _Inner:
    """The estimator that answers, its rows, and how its targets were transformed."""

    estimator: Any
    X: Any
    target_transformers: Sequence[Any]


def _unwrap(
    estimator: Any,
    X: Any,
    answers: Callable[[Any], bool],
    needed: str,
    hint: str = REGRESSOR_HINT,
) -> _Inner:
    """Walk inwards to the first estimator that answers, taking the rows along."""
    target_transformers: list[Any] = []
    while not answers(estimator):
        if isinstance(estimator, Pipeline):
            X = _transform_rows(estimator, X)
            estimator = estimator.steps[-1][1]
        elif isinstance(estimator, TransformedTargetRegressor):
            check_is_fitted(estimator)
            target_transformers.append(estimator.transformer_)
            estimator = estimator.regressor_
        elif isinstance(estimator, FrozenEstimator):
            estimator = estimator.estimator
        elif hasattr(estimator, "refit") and hasattr(estimator, "estimator"):
            estimator = _best_estimator(estimator)
        else:
            raise AttributeError(
                f"The innermost estimator must offer {needed}; got "
                f"{_name(estimator)}, which does not. {hint}"
            )
    return _Inner(estimator, X, target_transformers)


def _offers(method: str) -> Callable[[Any], bool]:
    """Ask whether an estimator has a method."""
    return lambda estimator: hasattr(estimator, method)


def _returns_std(estimator: Any) -> bool:
    """Ask whether `predict` itself names `return_std`; wrappers only pass it on."""
    predict = getattr(estimator, "predict", None)
    return predict is not None and "return_std" in signature(predict).parameters


def _transform_rows(pipeline: Pipeline, X: Any) -> Any:
    """Apply all steps but the last."""
    for _, step in pipeline.steps[:-1]:
        if step is not None and step != "passthrough":
            X = step.transform(X)
    return X


def _best_estimator(search: Any) -> Any:
    """Return what a fitted search found; duck-typed, so that any search will do."""
    check_is_fitted(search)
    if not hasattr(search, "best_estimator_"):
        raise AttributeError(
            f"{_name(search)} must be fitted with refit=True to predict; got "
            f"refit={search.refit!r}, which keeps no best_estimator_."
        )
    return search.best_estimator_


def _to_units_of_y(inner: _Inner, values: Float64Array, n_axes: int) -> Float64Array:
    """Undo the target transformers, innermost first.

    Transformers take columns of outputs, so the axes before the outputs, `n_axes` of
    them, are laid out as rows for the time being.
    """
    for transformer in reversed(inner.target_transformers):
        leading = values.shape[:n_axes]
        had_outputs = values.ndim > n_axes
        # a copy, since some transformers work in place on what they are given
        rows = values.reshape(int(np.prod(leading)), -1).copy()
        restored = np.asarray(transformer.inverse_transform(rows), dtype=np.float64)
        restored = restored.reshape(len(rows), -1)
        outputs = restored.shape[1:]
        keep_axis = had_outputs or outputs != (1,)
        values = restored.reshape(leading + outputs if keep_axis else leading)
    return values


def _name(estimator: Any) -> str:
    return type(estimator).__name__
