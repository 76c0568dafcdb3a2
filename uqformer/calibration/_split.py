"""What the wrappers share: parting rows, frozen parts, and metadata on its way in."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy.sparse import issparse
from sklearn import clone, get_config
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import train_test_split
from sklearn.utils import Tags, get_tags, indexable
from sklearn.utils.metadata_routing import (
    MetadataRouter,
    MethodMapping,
    process_routing,
)

from uqformer._typing import AnyArray, IntArray
from uqformer._validation import (
    check_array,
    check_consistent_length,
    check_is_fitted,
    validate_data,
)

__all__ = [
    "check_new_rows",
    "check_rows",
    "count_rows",
    "fit_clone",
    "inherit_tags",
    "is_frozen",
    "is_mapping",
    "part_calibration",
    "pass_on_to_fit",
    "route_fit",
    "take_params",
    "take_rows",
]


def check_rows(meta: Any, X: Any, y: Any) -> tuple[Any, AnyArray]:
    """Return X such that rows can be selected, its values unchecked, and targets."""
    # the estimator inside checks X itself: a pipeline may take text or missing values
    if not is_mapping(X):
        validate_data(meta, X, y, skip_check_array=True)
    rows = _indexable(X)
    targets: AnyArray = check_array(
        y, ensure_2d=False, dtype="numeric", input_name="y", estimator=meta
    )
    check_consistent_length(range(count_rows(rows)), targets)
    return rows, targets


def check_new_rows(meta: Any, X: Any) -> Any:
    """Return new rows for a fitted wrapper, after comparing their columns."""
    check_is_fitted(meta)
    rows = _indexable(X)
    if hasattr(meta, "n_features_in_") and len(getattr(rows, "shape", (0, 0))) == 1:
        raise ValueError(
            "X must have one row for each sample; got an array of shape "
            f"{rows.shape}. Reshape your data with X.reshape(1, -1) for one sample."
        )
    if not is_mapping(rows):
        validate_data(meta, rows, reset=False, skip_check_array=True)
    return rows


def count_rows(X: Any) -> int:
    """Count the rows of what `check_rows` or `check_new_rows` returned."""
    if is_mapping(X):
        return count_rows(next(iter(X.values())))
    return int(X.shape[0]) if hasattr(X, "shape") else len(X)


def is_frozen(estimator: Any) -> bool:
    """Tell whether an estimator came fitted; None has nothing to fit either."""
    return estimator is None or isinstance(estimator, FrozenEstimator)


def part_calibration(
    n_rows: int, calibration_fraction: float, random_state: Any
) -> tuple[IntArray, IntArray]:
    """Part row numbers at random into training and calibration rows."""
    train, calibration = train_test_split(
        np.arange(n_rows), test_size=calibration_fraction, random_state=random_state
    )
    return train, calibration


def take_rows(X: Any, rows: IntArray) -> Any:
    """Select rows of an array, sparse matrix, data frame, list, or mapping of such."""
    if is_mapping(X):
        return {name: take_rows(values, rows) for name, values in X.items()}
    if hasattr(X, "iloc"):
        return X.iloc[rows]
    if hasattr(X, "shape"):
        return X[rows]
    return [X[row] for row in rows]


def take_params(params: Mapping[str, Any], rows: IntArray, n_rows: int) -> dict:
    """Select rows of the metadata that has one entry a row; leave the rest alone."""
    return {
        name: take_rows(value, rows) if _is_by_row(value, n_rows) else value
        for name, value in params.items()
    }


def fit_clone(estimator: Any, X: Any, y: Any, params: Mapping[str, Any]) -> Any:
    """Fit a copy; a frozen estimator stays as it came."""
    return clone(estimator).fit(X, y, **params)


def route_fit(meta: Any, params: dict[str, Any]) -> dict[str, Any]:
    """Return the metadata of fit that is for the estimator inside."""
    if not get_config()["enable_metadata_routing"]:
        return params
    return dict(process_routing(meta, "fit", **params).estimator.fit)


def pass_on_to_fit(meta: Any) -> MetadataRouter:
    """Route the metadata of fit to the fit of the estimator inside."""
    return MetadataRouter(owner=meta).add(
        estimator=meta.estimator,
        method_mapping=MethodMapping().add(caller="fit", callee="fit"),
    )


def inherit_tags(tags: Tags, estimator: Any) -> Tags:
    """Take in what the estimator inside takes in."""
    inner = get_tags(estimator)
    tags.input_tags = inner.input_tags
    tags.target_tags.multi_output = inner.target_tags.multi_output
    if inner.regressor_tags is not None:
        tags.regressor_tags = inner.regressor_tags
    return tags


def is_mapping(X: Any) -> bool:
    """Tell mappings of arrays from the sparse matrices that are also dictionaries."""
    return isinstance(X, Mapping) and not issparse(X)


def _indexable(X: Any) -> Any:
    """Make rows selectable; a mapping, as Hugging Face models take, stays one."""
    return X if is_mapping(X) else indexable(X)[0]


def _is_by_row(value: Any, n_rows: int) -> bool:
    if isinstance(value, (list, tuple)):
        return len(value) == n_rows
    shape: tuple[int, ...] = getattr(value, "shape", ())
    return len(shape) > 0 and shape[0] == n_rows
