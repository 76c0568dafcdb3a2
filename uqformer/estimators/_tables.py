"""From a table as it is to the numbers and codes that a backbone takes."""

import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.preprocessing import StandardScaler

from uqformer._typing import AnyArray, Float64Array
from uqformer._validation import check_is_fitted, check_row_weights
from uqformer.estimators._cells import Column, Table, read_table
from uqformer.exceptions import UQFormerWarning

__all__ = ["CategoricalFeatures", "TableEncoder"]

CategoricalFeatures: TypeAlias = (
    Literal["auto"] | Sequence[str] | Sequence[int] | Sequence[bool] | AnyArray | None
)

FEW_CATEGORIES = 20
"""Up to so many categories none is ever grouped, however rare."""

CYCLES = {"day": 86400.0, "week": 604800.0, "year": 365.2425 * 86400}
"""Seconds of the cycles that a time may follow."""

LEAST_SWING = 0.1
"""A cycle is dropped if training rows move less than this along its sine and cosine."""


class TableEncoder(BaseEstimator):
    """Turn the columns of a table into standardised numbers and codes of categories.

    Numbers, booleans (0 and 1) and durations (seconds) are standardised over the rows
    of `fit`; where one is missing it is NaN. A time becomes seconds, standardised, with
    a sine and a cosine for every cycle (day, week, year in UTC) that the rows of `fit`
    went through at least twice. A category becomes its code: 0 to k - 1 in the order of
    the text, k for an unknown one, k + 1 for a missing one.

    Parameters
    ----------
    categorical_features : "auto", array-like or None, default="auto"
        Columns that hold categories: by name, by position or as a boolean mask. "auto"
        takes columns of text and of a categorical type; None takes no column.

    max_categories : int, default=255
        Largest number of categories of a column; rarer ones are read as unknown. In a
        column that has a category for more than half of its rows, those that stand in
        a single row are too.

    Attributes
    ----------
    n_categories_ : list of int or None
        For each output column the number k of known categories, None for numbers.

    Notes
    -----
    1, 1.0, True and "1" are one category. A column that is missing in all rows of
    `fit` is dropped, with a warning.
    """

    def __init__(
        self,
        categorical_features: CategoricalFeatures = "auto",
        max_categories: int = 255,
    ) -> None:
        self.categorical_features = categorical_features
        self.max_categories = max_categories

    def fit(
        self,
        X: Any,
        y: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Learn scales and categories.

        Parameters
        ----------
        X : data frame, array-like or Table of shape (n_samples, n_features)
            The table.
        y : ignored
            Here by convention.
        sample_weight : array-like of shape (n_samples,), default=None
            How much each row counts in the scales; rows of weight 0 are left out, so
            that a weight can pick the training rows.

        Returns
        -------
        self : object
            The fitted encoder.
        """
        table = read_table(X)
        weight = check_row_weights(sample_weight, np.empty(len(table)))
        table, weight = table[weight > 0], weight[weight > 0]
        chosen = _choose(self.categorical_features, table)
        self.names_ = [column.name for column in table.columns]
        self.has_names_ = table.has_names
        self.codecs_ = [
            self._make_codec(column, categorical)
            for column, categorical in zip(table.columns, chosen, strict=True)
        ]
        self.outputs_ = [
            output for codec in self.codecs_ if codec for output in codec.outputs
        ]
        if not self.outputs_:
            raise ValueError(
                "X must hold a value in at least one column; all cells of its "
                f"{len(table)} training rows are missing."
            )
        self.n_categories_ = [output.n_categories for output in self.outputs_]
        scaled = self._scaled(self._encode(table))
        self.scaler_ = None
        if scaled.shape[1]:
            self.scaler_ = StandardScaler().fit(scaled, sample_weight=weight)
        return self

    def transform(self, X: Any) -> Float64Array:
        """Encode rows as `fit` learned to.

        Parameters
        ----------
        X : data frame, array-like or Table of shape (n_samples, n_features)
            Rows with the columns of `fit`; columns with names may stand in any order.

        Returns
        -------
        encoded : ndarray of shape (n_samples, n_outputs)
            Standardised numbers, NaN where missing, and codes of categories.
        """
        check_is_fitted(self)
        encoded = self._encode(read_table(X).like(self.names_, self.has_names_))
        if self.scaler_ is not None:
            scaled = self.scaler_.transform(self._scaled(encoded))
            encoded[:, [output.is_scaled for output in self.outputs_]] = scaled
        return encoded

    def get_feature_names_out(
        self, input_features: ArrayLike | None = None
    ) -> AnyArray:
        """Name the outputs: a column's own name, and its cycles for a time."""
        check_is_fitted(self)
        return np.array([output.name for output in self.outputs_], dtype=object)

    def _make_codec(self, column: Column, categorical: bool) -> "Codec | None":
        """Choose how to encode a column from its training rows; None drops it."""
        if not column.present().any():
            warnings.warn(
                f"X holds no value in {column} in any of {len(column)} training rows; "
                "the column is ignored. Drop it to silence this.",
                UQFormerWarning,
                stacklevel=4,
            )
            return None
        name = str(column.name)
        if categorical:
            return CategoryCodec(name, self._known(column))
        if column.kind == "time":
            return TimeCodec.fit(name, column.floats("time"))
        return NumberCodec(name)

    def _known(self, column: Column) -> list[str]:
        """Return the categories that are worth a code of their own."""
        counts = Counter(text for text in column.texts() if text is not None)
        most = sorted(counts, key=lambda text: (-counts[text], text))
        kept = most
        if len(most) > max(FEW_CATEGORIES, counts.total() / 2):
            kept = [text for text in most if counts[text] > 1]
        kept = kept[: self.max_categories]
        if len(kept) < len(most):
            warnings.warn(
                f"X has {len(most)} categories in {column}, too many for "
                f"{counts.total()} rows or for max_categories={self.max_categories}; "
                f"{len(most) - len(kept)} rare ones are read as one. Drop the column "
                "if it only names the rows, or convert it if it holds numbers.",
                UQFormerWarning,
                stacklevel=5,
            )
        return sorted(kept)

    def _encode(self, table: Table) -> Float64Array:
        """Encode all columns, before scaling."""
        parts = [
            codec.encode(column)
            for codec, column in zip(self.codecs_, table.columns, strict=True)
            if codec is not None
        ]
        return np.column_stack(parts)

    def _scaled(self, encoded: Float64Array) -> Float64Array:
        """Pick the outputs that are standardised."""
        picked = encoded[:, [output.is_scaled for output in self.outputs_]]
        return np.ascontiguousarray(picked)


@dataclass(frozen=True, slots=True)
class Output:
    """One output column: its name, its known categories, whether it is standardised."""

    name: str
    n_categories: int | None
    is_scaled: bool


class Codec(Protocol):
    """How one column becomes some output columns."""

    @property
    def outputs(self) -> list[Output]: ...

    def encode(self, column: Column) -> Float64Array: ...


@dataclass(frozen=True, slots=True)
class NumberCodec:
    """A number stays what it is."""

    name: str

    @property
    def outputs(self) -> list[Output]:
        """One number."""
        return [Output(self.name, None, True)]

    def encode(self, column: Column) -> Float64Array:
        """Return the numbers (n, 1) after checking that none is infinite."""
        values = column.floats("number")
        infinite = np.flatnonzero(np.isinf(values))
        if len(infinite):
            raise ValueError(
                f"X must hold finite numbers or missing ones; got {values[infinite[0]]}"
                f" (infinity) in {column}, row {infinite[0]}. Replace or clip it."
            )
        return values[:, None]


@dataclass(frozen=True, slots=True)
class CategoryCodec:
    """A category becomes its place among the known ones."""

    name: str
    known: list[str]

    @property
    def outputs(self) -> list[Output]:
        """One code."""
        return [Output(self.name, len(self.known), False)]

    def encode(self, column: Column) -> Float64Array:
        """Return codes (n, 1)."""
        unknown = len(self.known)
        codes: dict[str | None, int] = {text: i for i, text in enumerate(self.known)}
        codes[None] = unknown + 1
        found = [codes.get(text, unknown) for text in column.texts()]
        return np.array(found, dtype=np.float64)[:, None]


@dataclass(frozen=True, slots=True)
class TimeCodec:
    """A time becomes seconds, and its place in some cycles."""

    name: str
    cycles: list[str]

    @classmethod
    def fit(cls, name: str, seconds: Float64Array) -> Self:
        """Keep the cycles that the training rows went through twice, and move along."""
        seconds = seconds[~np.isnan(seconds)]
        cycles = [
            cycle
            for cycle, period in CYCLES.items()
            if np.ptp(seconds) >= 2 * period
            and np.ptp(_on_circle(seconds, cycle), axis=0).max() > LEAST_SWING
        ]
        return cls(name, cycles)

    @property
    def outputs(self) -> list[Output]:
        """The time itself, then sine and cosine of each cycle."""
        turns = [
            Output(f"{self.name} {turn} of {cycle}", None, False)
            for cycle in self.cycles
            for turn in ("sine", "cosine")
        ]
        return [Output(self.name, None, True), *turns]

    def encode(self, column: Column) -> Float64Array:
        """Return (n, 1 + 2 * n_cycles) numbers."""
        seconds = column.floats("time")
        turns = [_on_circle(seconds, cycle) for cycle in self.cycles]
        return np.column_stack([seconds, *turns])


def _on_circle(seconds: Float64Array, cycle: str) -> Float64Array:
    """Sine and cosine (n, 2) of the place in a cycle."""
    angle = 2 * np.pi * seconds / CYCLES[cycle]
    return np.column_stack([np.sin(angle), np.cos(angle)])


def _choose(wanted: CategoricalFeatures, table: Table) -> list[bool]:
    """Tell for each column whether it holds categories."""
    n_columns = len(table.columns)
    if wanted is None:
        return [False] * n_columns
    if isinstance(wanted, str):
        if wanted != "auto":
            raise ValueError(
                "categorical_features must be 'auto', None, or a list of names or "
                f"positions; got categorical_features={wanted!r}. Put a single name "
                "into a list."
            )
        return [_is_text(column) for column in table.columns]
    items = list(wanted)
    if items and all(isinstance(item, bool | np.bool_) for item in items):
        if len(items) != n_columns:
            raise ValueError(
                f"A boolean categorical_features must have one entry for each of the "
                f"{n_columns} columns of X; got {len(items)}."
            )
        return [bool(item) for item in items]
    places = {_place(item, table) for item in items}
    return [place in places for place in range(n_columns)]


def _is_text(column: Column) -> bool:
    if column.kind == "mixed":
        raise ValueError(
            f"X must hold either numbers or text in {column}; got both, "
            f"{column.sample()} among them. Clean the column, or name it in "
            "categorical_features to take every value as a category."
        )
    return column.kind == "text"


def _place(item: Any, table: Table) -> int:
    """Find the column that an entry of `categorical_features` names."""
    names = [column.name for column in table.columns] if table.has_names else []
    if item in names:
        return names.index(item)
    if isinstance(item, int | np.integer) and 0 <= item < len(table.columns):
        return int(item)
    shown = item.item() if isinstance(item, np.generic) else item
    raise ValueError(
        "categorical_features must hold names of columns of X or positions from 0 to "
        f"{len(table.columns) - 1}; got {shown!r}"
        + (f", and the names are {names}." if names else ".")
    )
