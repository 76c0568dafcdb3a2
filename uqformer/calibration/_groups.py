"""Groups of rows that are calibrated apart (Mondrian prediction)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from uqformer._typing import AnyArray, IntArray

__all__ = ["GroupBy", "Groups", "check_labels", "group_labels"]

GroupBy: TypeAlias = int | str | Callable[[Any], ArrayLike] | None
"""A column of X by position or name, or a function of X that names a group a row."""


@dataclass(frozen=True, slots=True, eq=False)
class Groups:
    """The groups of the calibration rows.

    Parameters
    ----------
    labels : ndarray of shape (n_calibration,)
        Group of each row.
    """

    labels: AnyArray

    @property
    def names(self) -> list[Any]:
        """Sorted names, as plain Python objects."""
        names: list[Any] = np.unique(self.labels).tolist()
        return names

    def pairs(self, labels: AnyArray) -> Iterator[tuple[Any, IntArray, IntArray]]:
        """Yield each group that new rows are in: name, its old rows, its new rows."""
        wanted: list[Any] = np.unique(labels).tolist()
        known = self.names
        strangers = [name for name in wanted if name not in known]
        if strangers:
            raise ValueError(
                f"Rows must be in one of the groups seen in fit, {_listed(known)}; got "
                f"group {strangers[0]!r}. Fit on rows of that group too."
            )
        for name in wanted:
            yield (
                name,
                np.flatnonzero(self.labels == name),
                np.flatnonzero(labels == name),
            )


def group_labels(X: Any, group_by: GroupBy, n_rows: int) -> AnyArray:
    """Return the group of each row of X, as `group_by` says."""
    labels = group_by(X) if callable(group_by) else _column(X, group_by)
    return check_labels(labels, n_rows)


def check_labels(groups: ArrayLike, n_rows: int) -> AnyArray:
    """Return group labels after checking their shape and that none is missing."""
    labels = np.asarray(groups)
    if labels.shape != (n_rows,):
        raise ValueError(
            f"There must be one group for each row, shape ({n_rows},); got groups of "
            f"shape {labels.shape}."
        )
    missing = np.array([label is None or label != label for label in labels.tolist()])
    if missing.any():
        raise ValueError(
            "Every row must have a group; it is missing in row "
            f"{int(np.argmax(missing))}. Give such rows a group of their own."
        )
    return labels


def _column(X: Any, column: int | str | None) -> AnyArray:
    """Pick one column of an array, a sparse matrix, a data frame or a mapping."""
    if isinstance(column, str):
        if not (hasattr(X, "columns") or isinstance(X, Mapping)):
            raise ValueError(
                "group_by must be a column's position or a callable where X is no "
                f"data frame; got group_by={column!r}. Pass the position instead."
            )
        return np.asarray(X[column])
    if hasattr(X, "iloc"):
        return np.asarray(X.iloc[:, column])
    if hasattr(X, "toarray"):
        return np.asarray(X[:, [column]].toarray()[:, 0])
    return np.asarray(np.asarray(X)[:, column])


def _listed(names: list[Any], most: int = 10) -> str:
    shown = ", ".join(repr(name) for name in names[:most])
    return shown if len(names) <= most else f"{shown}, ..."
