"""Reading a table, whatever holds it: each column is numbers, text or times."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from numbers import Real
from typing import Any, Literal, Self, TypeAlias

import narwhals.stable.v2 as nw
import numpy as np

from uqformer._typing import AnyArray, Float64Array
from uqformer._validation import check_array

__all__ = ["Column", "Table", "read_table"]

Kind: TypeAlias = Literal["number", "text", "time", "mixed"]

MISSING_TYPES = {"NoneType", "NAType", "NaTType"}
"""Types of what stands for a missing cell; the last two are those of pandas."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column, all of one kind.

    Parameters
    ----------
    name : object
        Its name, or its position where it has none.
    kind : {"number", "text", "time", "mixed"}
        What the cells are; "mixed" where numbers stand beside text.
    values : ndarray of shape (n_samples,)
        Numbers, or seconds since 1970 in UTC, as float64 with NaN where missing; for
        text and mixed cells their text as objects, None where missing.
    odd : str, default=None
        A cell that makes the column mixed, for messages; kept whatever rows are picked.
    """

    name: object
    kind: Kind
    values: AnyArray
    odd: str | None = None

    def __str__(self) -> str:
        return f"column {self.name!r}"

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, rows: slice | AnyArray) -> Self:
        return type(self)(self.name, self.kind, self.values[rows], self.odd)

    def present(self) -> AnyArray:
        """Tell which cells are there."""
        if self.kind in ("number", "time"):
            return ~np.isnan(self.values)
        return np.array([text is not None for text in self.values], dtype=bool)

    def never_changes(self) -> bool:
        """Tell whether all cells are there and equal."""
        first = self.values[:1]
        return bool(self.present().all() and (self.values == first).all())

    def floats(self, kind: Kind) -> Float64Array:
        """Return numbers or seconds, after checking that the column holds them."""
        if self.kind == kind:
            return self.values
        present = self.present()
        if not present.any():
            return np.full(len(self), np.nan)
        words = {"number": "numbers", "time": "dates or times"}
        raise ValueError(
            f"X must hold {words[kind]} in {self}; got {self.sample()}. Clean the "
            "column, or name it in categorical_features if its values are categories."
        )

    def texts(self) -> AnyArray:
        """Return cells as text, None where missing: 1, 1.0 and True alike are "1"."""
        if self.kind in ("text", "mixed"):
            return self.values
        values, places = np.unique(self.values, return_inverse=True)
        return _objects([_text(value) for value in values.tolist()])[places]

    def sample(self) -> str:
        """Show one cell: the odd one, or else the first."""
        shown = self.odd or self.values[self.present()][0]
        return f"{shown!s:.40}" if self.kind == "number" else f"{shown!r:.40}"


@dataclass(frozen=True, slots=True)
class Table:
    """Columns of equal length, whose rows can be picked as those of an array.

    `has_names` tells names of columns from mere positions.
    """

    columns: list[Column]
    has_names: bool

    def __len__(self) -> int:
        return len(self.columns[0])

    def __getitem__(self, rows: slice | AnyArray) -> Self:
        return type(self)([column[rows] for column in self.columns], self.has_names)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return len(self), len(self.columns)

    def like(self, names: list[object], has_names: bool) -> Self:
        """Return the columns that an earlier table had, after checking they are here.

        Names find their columns in any order; without names only the number counts.
        """
        if not (self.has_names and has_names):
            if len(self.columns) != len(names):
                raise ValueError(
                    f"X must have the {len(names)} columns of fit; got "
                    f"{len(self.columns)} columns."
                )
            return self
        columns = {column.name: column for column in self.columns}
        missing = [name for name in names if name not in columns]
        if missing:
            raise ValueError(
                f"X must have every column of fit; {missing} are missing from "
                f"{list(columns)}. Add or rename them."
            )
        return type(self)([columns[name] for name in names], has_names)


def read_table(X: Any) -> Table:
    """Read a data frame, an array, or a list of rows.

    Parameters
    ----------
    X : data frame or array-like of shape (n_samples, n_features)
        Any frame that narwhals knows, such as those of pandas, polars and pyarrow. A
        table that was read before is given back.

    Returns
    -------
    table : Table
        The columns, each of one kind.

    Raises
    ------
    ValueError
        If there are no rows or no columns.
    TypeError
        If a cell is neither number, text nor time.
    """
    if isinstance(X, Table):
        return X
    if hasattr(X, "columns"):
        return _read_frame(X)
    array = check_array(_typed(X), dtype=None, ensure_all_finite=False)
    columns = [_read_array(name, array[:, name]) for name in range(array.shape[1])]
    return Table(columns, has_names=False)


def _typed(X: Any) -> Any:
    """Keep the numbers of a list of rows that also holds text."""
    if isinstance(X, list | tuple) and np.asarray(X).dtype.kind in "US":
        return np.asarray(X, dtype=object)
    return X


def _read_array(name: object, values: AnyArray) -> Column:
    """Read a column of an array of any type."""
    kind = values.dtype.kind
    if kind == "M":
        return Column(name, "time", _seconds(values))
    if kind == "m":
        values = np.where(np.isnat(values), np.nan, values / np.timedelta64(1, "s"))
    elif kind in "OUST":
        return _read_cells(name, values.astype(object))
    return Column(name, "number", values.astype(np.float64))


def _read_frame(X: Any) -> Table:
    """Read a data frame, through narwhals."""
    frame = nw.from_native(X, eager_only=True)
    n_rows, n_columns = frame.shape
    if n_rows < 1 or n_columns < 1:
        raise ValueError(
            "X must have at least 1 row and 1 column; got a data frame with "
            f"{n_rows} sample(s) and {n_columns} feature(s)."
        )
    series = zip(frame.columns, frame.iter_columns(), strict=True)
    return Table([_read_series(name, s) for name, s in series], has_names=True)


def _read_series(name: object, series: Any) -> Column:
    """Read a column of a data frame by its declared type."""
    dtype = series.dtype
    if dtype.is_numeric() or dtype == nw.Boolean:
        return Column(name, "number", _floats(series))
    if dtype in (nw.Datetime, nw.Date):
        return Column(name, "time", _floats(series.dt.timestamp("us")) / 1e6)
    if dtype == nw.Duration:
        micro = series.dt.total_microseconds()
        return Column(name, "number", _floats(micro) / 1e6)
    column = _read_cells(name, series.to_list())
    if dtype in (nw.Categorical, nw.Enum):
        return Column(name, "text", column.texts())
    return column


def _floats(series: Any) -> Float64Array:
    return np.asarray(series.cast(nw.Float64).to_numpy(), dtype=np.float64)


def _read_cells(name: object, cells: Iterable[Any]) -> Column:
    """Read a column of Python objects, whose kind only the cells can tell."""
    cells = [None if _is_missing(cell) else cell for cell in cells]
    kinds = {_kind(name, of) for of in set(map(type, cells)) - {type(None)}}
    if kinds <= {"number"}:
        numbers = [np.nan if cell is None else float(cell) for cell in cells]
        return Column(name, "number", np.array(numbers))
    if kinds == {"time"}:
        return Column(name, "time", _seconds(_times(cells)))
    texts = [None if cell is None else _text(cell) for cell in cells]
    if kinds == {"text"}:
        return Column(name, "text", _objects(texts))
    odd = next((text for text in texts if text and not _is_number(text)), None)
    return Column(name, "mixed", _objects(texts), odd)


def _is_missing(cell: Any) -> bool:
    kind = type(cell)
    if kind is str:
        return False
    nothing = kind.__name__ in MISSING_TYPES
    scalar = isinstance(cell, Real | Decimal | np.datetime64)
    return nothing or (scalar and bool(cell != cell))


def _kind(name: object, of: type) -> Kind:
    if issubclass(of, str):
        return "text"
    if issubclass(of, Real | Decimal | np.bool_):
        return "number"
    if issubclass(of, date | np.datetime64):
        return "time"
    raise TypeError(
        "Every cell of the X argument must be a string, a number, a date or missing; "
        f"got {of.__name__} in column {name!r}. Unpack it into columns first."
    )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _text(cell: Any) -> str | None:
    """Write a cell so that equal numbers have equal text."""
    if isinstance(cell, str):
        return str(cell)
    if isinstance(cell, Real | Decimal | np.bool_):
        number = float(cell)
        if np.isnan(number):
            return None
        return str(int(number)) if number.is_integer() else repr(number)
    return str(cell)


def _times(cells: list[Any]) -> AnyArray:
    """Bring dates and times to UTC; those without a zone are taken as they are."""
    naive = [
        cell.astimezone(UTC).replace(tzinfo=None)
        if isinstance(cell, datetime) and cell.tzinfo
        else cell
        for cell in cells
    ]
    return np.array(naive, dtype="datetime64[us]")


def _seconds(times: AnyArray) -> Float64Array:
    """Seconds since 1970, NaN where there is no time."""
    micro = times.astype("datetime64[us]").astype(np.int64)
    return np.where(np.isnat(times), np.nan, micro / 1e6)


def _objects(texts: list[str | None]) -> AnyArray:
    array = np.empty(len(texts), dtype=object)
    array[:] = texts
    return array
