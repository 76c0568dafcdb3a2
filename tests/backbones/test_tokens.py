"""From texts and tokens to arrays: every form users have, and what is wrong with it."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.backbones.guests import TEXTS, bare_tokenizer, tokenizer
from uqformer.backbones._tokens import (
    check_arrays,
    check_ids,
    fill_rows,
    pack_left,
    read_ids,
    read_texts,
    tokenize,
)

PAIRS = list(zip(TEXTS, reversed(TEXTS), strict=True))
NAMES = ("input_ids", "token_type_ids", "attention_mask")


def frame(columns: dict[str, Any], dtype: Any = None) -> Any:
    return pytest.importorskip("pandas").DataFrame(columns, dtype=dtype)


SINGLES: dict[str, Callable[[], Any]] = {
    "list": lambda: TEXTS,
    "tuple": lambda: tuple(TEXTS),
    "array": lambda: np.array(TEXTS),
    "object array": lambda: np.array(TEXTS, dtype=object),
    "column": lambda: np.array(TEXTS)[:, None],
    "list of lists": lambda: [[text] for text in TEXTS],
    "series": lambda: frame({"text": TEXTS})["text"],
    "series, index from 7": lambda: frame({"text": TEXTS}).set_index(np.arange(7, 11))[
        "text"
    ],
    "series of objects": lambda: frame({"text": TEXTS}, object)["text"],
    "frame": lambda: frame({"text": TEXTS}),
}
DOUBLES: dict[str, Callable[[], Any]] = {
    "tuples": lambda: PAIRS,
    "lists": lambda: [list(pair) for pair in PAIRS],
    "array": lambda: np.array(PAIRS),
    "frame": lambda: frame({"a": TEXTS, "b": TEXTS[::-1]}),
}


@pytest.mark.parametrize("form", SINGLES)
def test_every_form_of_texts_is_read(form: str) -> None:
    texts = read_texts(SINGLES[form]())
    assert texts == TEXTS
    assert {type(text) for text in texts} == {str}


@pytest.mark.parametrize("form", DOUBLES)
def test_every_form_of_pairs_is_read(form: str) -> None:
    assert read_texts(DOUBLES[form]()) == PAIRS


@pytest.mark.parametrize(
    ("X", "error", "message"),
    [
        ("one text", TypeError, r"got one str 'one text'\. Wrap it in a list"),
        ([], ValueError, "at least one row; got none"),
        (["a", ""], ValueError, r"no empty text; row 1 is ''"),
        (["a", " \n"], ValueError, "no empty text; row 1 is"),
        ([("a", "")], ValueError, r"no empty text; row 0 is \('a', ''\)"),
        (["a", None], TypeError, r"row 1 holds None of type NoneType\."),
        (["a", float("nan")], TypeError, "row 1 holds nan of type float"),
        (np.array([1.5, 2], dtype=object), TypeError, "row 0 holds 1.5 of type float"),
        (np.ones((2, 5)), TypeError, "row 0 holds array"),
        ([("a", 3)], TypeError, "row 0 holds 3 of type int"),
        ([["a", "b", "c"]], TypeError, r"row 0 holds \['a', 'b', 'c'\] of type list"),
    ],
)
def test_other_things_are_no_texts(X: Any, error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        read_texts(X)


def test_a_column_of_numbers_in_a_frame_is_no_text() -> None:
    with pytest.raises(
        TypeError, match=r"row 0 holds 1\b.* Select the column of texts"
    ):
        read_texts(frame({"text": TEXTS, "size": range(1, 5)}))


def test_singles_and_pairs_do_not_mix() -> None:
    with pytest.raises(ValueError, match="single texts or pairs of texts; got both"):
        tokenize(tokenizer(), read_texts(["a", ("a", "b")]), NAMES, None)


@pytest.mark.parametrize("X", [[[1, 2], [3, 4]], np.array([[1, 2], [3, 4]], np.int32)])
def test_tokens_are_read(X: Any) -> None:
    ids = read_ids(X)
    assert ids is not None
    np.testing.assert_array_equal(ids, [[1, 2], [3, 4]])


@pytest.mark.parametrize("X", [TEXTS, PAIRS, [], [[1, 2], [3]], [[1.0, 2.0]], [[]]])
def test_other_things_are_no_tokens(X: Any) -> None:
    assert read_ids(X) is None


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("texts", [TEXTS, PAIRS], ids=["singles", "pairs"])
def test_padding_is_that_of_the_tokenizer(texts: list[Any], side: str) -> None:
    """The same numbers as the tokenizer gives when it pads itself."""
    own = tokenizer(padding_side=side)
    rows, n_cut = tokenize(own, read_texts(texts), NAMES, None)
    arrays = fill_rows(rows, {}, side)
    columns = list(zip(*texts, strict=True)) if texts is PAIRS else [texts]
    expected = own(*map(list, columns), padding=True, return_tensors="np")
    assert n_cut == 0
    assert set(arrays) == set(expected)
    for name, array in arrays.items():
        np.testing.assert_array_equal(array, expected[name])
        assert array.dtype == np.int64


def test_only_texts_too_long_are_cut_and_counted() -> None:
    own = tokenizer()
    rows, n_cut = tokenize(own, read_texts(TEXTS), NAMES, 5)
    expected = own(TEXTS, truncation=True, max_length=5)
    assert n_cut == 2
    assert rows["input_ids"] == expected["input_ids"]
    assert [len(ids) for ids in rows["input_ids"]] == [5, 5, 5, 3]  # 9, 5, 8, 3


def test_only_names_that_the_model_takes_are_kept() -> None:
    rows, _ = tokenize(tokenizer(), read_texts(TEXTS), ["input_ids"], None)
    assert list(rows) == ["input_ids"]


def test_a_text_without_a_token_is_named() -> None:
    core = bare_tokenizer()
    core.backend_tokenizer.normalizer = pytest.importorskip(
        "tokenizers"
    ).normalizers.Replace("well", "")
    with pytest.raises(ValueError, match="at least one token; row 1 gives none"):
        tokenize(core, ["the cat", "well"], NAMES, None)


@pytest.mark.parametrize(
    ("X", "error", "message"),
    [
        ({"attention_mask": [[1]]}, ValueError, r"must have 'input_ids'.*\. Add what"),
        ({"input_ids": [[1]], "labels": [1]}, ValueError, r"Leave out \['labels'\]\."),
        (
            {"input_ids": [[1], [2]], "attention_mask": [[1]]},
            ValueError,
            r"same number of rows.*got \{'input_ids': 2, 'attention_mask': 1\}",
        ),
        ({"input_ids": [[1, 2], [3]]}, ValueError, "rows of different lengths. Pad"),
        ({"input_ids": np.ones((0, 3))}, ValueError, "at least one; got"),
        (
            {"input_ids": [["a"]]},
            TypeError,
            r"X\['input_ids'\] must be an array of num",
        ),
        ({"input_ids": 3}, TypeError, r"got dtype=int64 and shape \(\)"),
    ],
)
def test_a_mapping_is_checked(X: Any, error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        check_arrays(X, NAMES, "input_ids")


@pytest.mark.parametrize(
    ("ids", "mask", "error", "message"),
    [
        ([[1, 20]], [[1, 1]], ValueError, r"in \[0, 20\).*got 20 in row 0\. Was ano"),
        ([[1, 2], [-1, 0]], [[1, 1]] * 2, ValueError, "got -1 in row 1"),
        ([[1.0, 2.0]], [[1, 1]], TypeError, "whole numbers of shape"),
        ([1, 2], [1, 1], TypeError, r"got dtype=int64 and shape \(2,\)"),
        ([[1, 2]], [[1, 1, 1]], ValueError, r"attention_mask must have the shape of"),
        ([[1] * 9], [[1] * 9], ValueError, "no longer than the 8 tokens .*got 9"),
        ([[1, 2], [0, 0]], [[1, 1], [0, 0]], ValueError, "row 1 has none"),
    ],
)
def test_ids_are_checked(ids: Any, mask: Any, error: type, message: str) -> None:
    arrays = {"input_ids": np.array(ids), "attention_mask": np.array(mask)}
    with pytest.raises(error, match=message):
        check_ids(arrays, 20, 8)


def test_padding_moves_to_the_right_with_all_that_goes_by_tokens() -> None:
    mask = np.array([[0, 0, 1, 1], [1, 0, 1, 1], [0, 1, 1, 0]])
    ids = np.array([[0, 0, 5, 6], [7, 0, 8, 9], [0, 5, 6, 0]])
    arrays = {
        "input_ids": ids,
        "attention_mask": mask,
        "box": np.arange(9).reshape(3, 3),
    }
    packed = pack_left(arrays)
    np.testing.assert_array_equal(
        packed["input_ids"], [[5, 6, 0, 0], [7, 0, 8, 9], [5, 6, 0, 0]]
    )
    np.testing.assert_array_equal(
        packed["attention_mask"], [[1, 1, 0, 0], [1, 0, 1, 1], [1, 1, 0, 0]]
    )
    assert packed["box"] is arrays["box"]
    assert pack_left(packed) is packed
