"""From what users call text, or already tokens, to equally long arrays of numbers."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from uqformer._typing import AnyArray

__all__ = [
    "check_arrays",
    "check_ids",
    "fill_rows",
    "pack_left",
    "read_ids",
    "read_texts",
    "tokenize",
]

Text: TypeAlias = str | tuple[str, str]


def read_ids(X: Any) -> AnyArray | None:
    """Return token ids (n, T) if `X` holds such, None if it holds something else."""
    if hasattr(X, "iloc") or not isinstance(X, Sequence | np.ndarray) or len(X) == 0:
        return None
    first = X[0]
    if isinstance(first, str) or not isinstance(first, Sequence | np.ndarray):
        return None
    if (
        len({len(row) for row in X}) != 1
        or len(first) == 0
        or isinstance(first[0], str)
    ):
        return None
    array = np.asarray(X)
    return array if array.dtype.kind in "iu" and array.ndim == 2 else None


def read_texts(X: Any) -> list[Text]:
    """Return texts, or pairs of texts, as a list of `str` or of tuples of two."""
    if isinstance(X, str):
        raise TypeError(
            f"X must be a list of texts; got one str {X!r:.40}. Wrap it in a list."
        )
    # frames and series of any library, and arrays, all give their rows so
    rows = X.to_numpy() if hasattr(X, "to_numpy") else X
    rows = list(rows)
    if not rows:
        raise ValueError("X must hold at least one row; got none.")
    return [_read_text(row, i) for i, row in enumerate(rows)]


def _read_text(row: Any, i: int) -> Text:
    parts = [row] if isinstance(row, str) else row
    if isinstance(parts, Sequence | np.ndarray) and len(parts) in (1, 2):
        parts = [_plain(part) for part in parts]
    else:
        parts = [row]
    wrong = [part for part in parts if not isinstance(part, str)]
    if wrong:
        raise TypeError(
            "X must hold texts, pairs of texts, or token ids of equal length; row "
            f"{i} holds {wrong[0]!r:.40} of type {type(wrong[0]).__name__}. Select the "
            "column of texts, or fill missing ones."
        )
    if any(not part.strip() for part in parts):
        raise ValueError(
            f"X must hold no empty text; row {i} is {row!r:.40}. Drop such rows or "
            "fill them with a word."
        )
    return parts[0] if len(parts) == 1 else (parts[0], parts[1])


def _plain(part: Any) -> Any:
    return str(part) if isinstance(part, np.str_) else part


def tokenize(
    tokenizer: Any, texts: list[Text], names: Collection[str], max_length: int | None
) -> tuple[dict[str, list[list[int]]], int]:
    """Turn texts into lists of numbers by name, and count those that were cut.

    Nothing is padded: a list is as long as its text.
    """
    columns = _columns(texts)
    rows = _call(tokenizer, columns, {})
    lengths = [len(ids) for ids in rows["input_ids"]]
    if min(lengths) == 0:
        raise ValueError(
            f"Each text must give at least one token; row {lengths.index(0)} gives "
            "none. Drop such rows."
        )
    cut = [i for i, n in enumerate(lengths) if max_length and n > max_length]
    if cut:
        some = [[column[i] for i in cut] for column in columns]
        shorter = _call(tokenizer, some, {"truncation": True, "max_length": max_length})
        for name, lists in rows.items():
            for i, numbers in zip(cut, shorter[name], strict=True):
                lists[i] = numbers
    kept = {name: lists for name, lists in rows.items() if name in names}
    return kept, len(cut)


def _columns(texts: list[Text]) -> list[list[str]]:
    """Part pairs into first and second texts; singles stay one column."""
    widths = {1 if isinstance(text, str) else 2 for text in texts}
    if len(widths) != 1:
        raise ValueError(
            "X must hold single texts or pairs of texts; got both. Part them."
        )
    if widths == {1}:
        return [[str(text) for text in texts]]
    return [[text[0] for text in texts], [text[1] for text in texts]]


def _call(
    tokenizer: Any, columns: list[list[str]], options: dict[str, Any]
) -> dict[str, list[list[int]]]:
    # not verbose: a text too long is cut in a second call, and told by us
    return dict(tokenizer(*columns, padding=False, verbose=False, **options))


def fill_rows(
    rows: Mapping[str, list[list[int]]], fill: Mapping[str, int], side: str
) -> dict[str, AnyArray]:
    """Fill lists on one side to the longest of them, (n, T) by name."""
    longest = max(len(ids) for ids in rows["input_ids"])
    arrays: dict[str, AnyArray] = {}
    for name, lists in rows.items():
        filled = np.full((len(lists), longest), fill.get(name, 0), dtype=np.int64)
        for row, numbers in zip(filled, lists, strict=True):
            if side == "right":
                row[: len(numbers)] = numbers
            else:
                row[longest - len(numbers) :] = numbers
        arrays[name] = filled
    return arrays


def check_arrays(
    X: Mapping[str, Any], known: Collection[str], needed: str
) -> dict[str, AnyArray]:
    """Return a mapping as arrays of equal length by name, after checking its names."""
    unknown = [name for name in X if name not in known]
    if needed not in X or unknown:
        raise ValueError(
            f"X as a mapping must have {needed!r} and may have others of "
            f"{sorted(known)}; got {list(X)}. "
            + (f"Leave out {unknown}." if unknown else "Add what is missing.")
        )
    arrays = {name: _array(name, value) for name, value in X.items()}
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) != 1 or lengths[needed] == 0:
        raise ValueError(
            "The arrays of X must all have the same number of rows, at least one; got "
            f"{lengths}."
        )
    return arrays


def _array(name: str, value: Any) -> AnyArray:
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise ValueError(
            f"X[{name!r}] must be an array, all of its rows equally long; got rows of "
            "different lengths. Pad them first."
        ) from error
    if array.dtype.kind not in "iufb" or array.ndim == 0:
        raise TypeError(
            f"X[{name!r}] must be an array of numbers; got dtype={array.dtype} and "
            f"shape {array.shape}."
        )
    return array


def check_ids(
    arrays: dict[str, AnyArray], n_vocabulary: int, max_length: int | None
) -> None:
    """Check token ids (n, T), and that what goes with them has their shape."""
    ids = arrays["input_ids"]
    if ids.ndim != 2 or ids.dtype.kind not in "iu":
        raise TypeError(
            "input_ids must be whole numbers of shape (n_samples, n_tokens); got dtype="
            f"{ids.dtype} and shape {ids.shape}."
        )
    for name, array in arrays.items():
        if array.ndim == 2 and array.shape != ids.shape:
            raise ValueError(
                f"{name} must have the shape of input_ids, {ids.shape}; got "
                f"{array.shape}."
            )
    outside = (ids < 0) | (ids >= n_vocabulary)
    if outside.any():
        raise ValueError(
            f"input_ids must lie in [0, {n_vocabulary}), the vocabulary of the model; "
            f"got {ids[outside][0]} in row {np.argwhere(outside)[0, 0]}. Was another "
            "tokenizer used?"
        )
    if max_length is not None and ids.shape[1] > max_length:
        raise ValueError(
            f"input_ids must be no longer than the {max_length} tokens that the model "
            f"takes; got {ids.shape[1]}. Truncate them."
        )
    empty = ~arrays["attention_mask"].astype(bool).any(axis=1)
    if empty.any():
        raise ValueError(
            "Each row must have at least one token that attention_mask lets through; "
            f"row {np.argmax(empty)} has none."
        )


def pack_left(arrays: dict[str, AnyArray]) -> dict[str, AnyArray]:
    """Move padding from the left of tokens (n, T) to their right.

    A row then has its tokens at the same places in any company.
    """
    mask = arrays["attention_mask"].astype(bool)
    shift = mask.argmax(axis=1)[:, None]
    if not shift.any():
        return arrays
    places = (np.arange(mask.shape[1]) + shift) % mask.shape[1]
    return {
        name: np.take_along_axis(array, places, axis=1)
        if array.shape == mask.shape
        else array
        for name, array in arrays.items()
    }
