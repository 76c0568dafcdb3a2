"""TableEncoder: numbers standardised, categories coded, times unrolled."""

import pickle
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.preprocessing import StandardScaler

from uqformer.estimators._tables import CYCLES, TableEncoder
from uqformer.exceptions import UQFormerWarning

NAN = float("nan")
DAY = np.timedelta64(1, "D")


def _objects(*columns: Any) -> np.ndarray:
    """Stack columns of different kinds into one array."""
    array = np.empty((len(columns[0]), len(columns)), dtype=object)
    for place, column in enumerate(columns):
        array[:, place] = column
    return array


def _codes(fit: list[Any], new: list[Any], **params: Any) -> list[float]:
    """Codes of new cells of one column."""
    encoder = TableEncoder(**params).fit(_objects(fit))
    return encoder.transform(_objects(new))[:, 0].tolist()


# -- Numbers ------------------------------------------------------------------------


def test_a_table_of_numbers_is_scaled_as_by_standard_scaler() -> None:
    rng = np.random.default_rng(0)
    X = rng.lognormal(size=(200, 6))
    weight = rng.integers(0, 4, 200) * 0.7
    rows = weight > 0
    scaler = StandardScaler().fit(X[rows], sample_weight=weight[rows])
    encoder = TableEncoder().fit(X, sample_weight=weight)
    np.testing.assert_array_equal(encoder.transform(X), scaler.transform(X))
    assert encoder.n_categories_ == [None] * 6


def test_scales_are_those_of_what_is_there() -> None:
    x = np.array([1.0, NAN, 3.0, 8.0, NAN])
    weight = np.array([1.0, 5.0, 2.0, 1.0, 0.0])
    encoded = TableEncoder().fit(x[:, None], sample_weight=weight).transform(x[:, None])
    there = ~np.isnan(x)
    mean = np.average(x[there], weights=weight[there])
    std = np.sqrt(np.average((x[there] - mean) ** 2, weights=weight[there]))
    np.testing.assert_allclose(encoded[there, 0], (x[there] - mean) / std)
    assert np.isnan(encoded[~there]).all()


def test_objects_that_are_numbers_are_numbers() -> None:
    X = np.arange(12.0).reshape(6, 2)
    encoded = TableEncoder().fit(X.astype(object)).transform(X.astype(object))
    np.testing.assert_array_equal(encoded, TableEncoder().fit(X).transform(X))


@pytest.mark.parametrize("value", [np.inf, -np.inf])
def test_infinity_is_refused_in_fit_and_later(value: float) -> None:
    X = np.arange(6.0).reshape(3, 2)
    broken = X.copy()
    broken[2, 1] = value
    message = r"finite numbers or missing ones; got -?inf .* column 1, row 2"
    with pytest.raises(ValueError, match=message):
        TableEncoder().fit(broken)
    with pytest.raises(ValueError, match=message):
        TableEncoder().fit(X).transform(broken)


# -- Categories ---------------------------------------------------------------------


def test_codes_are_known_then_unknown_then_missing() -> None:
    encoder = TableEncoder().fit(_objects(["b", "a", None, "c"], [1, 2, 3, 4]))
    assert encoder.n_categories_ == [3, None]
    new = _objects(["a", "b", "c", "d", None, NAN], [0] * 6)
    assert encoder.transform(new)[:, 0].tolist() == [0, 1, 2, 3, 4, 4]
    assert encoder.get_feature_names_out().tolist() == ["0", "1"]


def test_codes_do_not_depend_on_the_order_of_rows() -> None:
    assert _codes(["b", "a", "c"], ["a", "c"]) == _codes(["c", "b", "a"], ["a", "c"])


def test_rows_of_weight_0_teach_no_category() -> None:
    X = _objects(["a", "b", "c"])
    encoder = TableEncoder().fit(X, sample_weight=[1, 0, 1])
    assert encoder.n_categories_ == [2]
    assert encoder.transform(X)[:, 0].tolist() == [0, 2, 1]


def test_numbers_may_be_categories() -> None:
    chosen = {"categorical_features": [0]}
    assert _codes([3, 1, 2], [1.0, 2, 3, 7, NAN, "2"], **chosen) == [0, 1, 2, 3, 4, 1]
    assert _codes([3, "x"], ["x", 3, None], **chosen) == [1, 0, 3]


def test_many_categories_are_cut_to_the_most_frequent() -> None:
    cells = np.repeat([f"c{i:02d}" for i in range(40)], np.arange(1, 41)).tolist()
    with pytest.warns(
        UQFormerWarning, match=r"40 categories in column 0.*30 rare ones"
    ):
        encoder = TableEncoder(max_categories=10).fit(_objects(cells))
    assert encoder.n_categories_ == [10]
    codes = encoder.transform(_objects(["c39", "c30", "c29", "new"]))[:, 0]
    assert codes.tolist() == [9, 0, 10, 10]


def test_categories_that_only_name_the_rows_are_grouped() -> None:
    cells = [f"row {i}" for i in range(30)] + ["a", "a"]
    with pytest.warns(
        UQFormerWarning, match="32 rows .*; 30 rare ones are read as one"
    ):
        encoder = TableEncoder().fit(_objects(cells))
    assert encoder.n_categories_ == [1]


@pytest.mark.parametrize("repeats", [1, 2])
def test_few_or_repeated_categories_stay(repeats: int) -> None:
    cells = [f"c{i}" for i in range(20 * repeats)] * repeats
    assert TableEncoder().fit(_objects(cells)).n_categories_ == [20 * repeats]


# -- Which columns are categories ---------------------------------------------------


@pytest.mark.parametrize(
    ("chosen", "sizes"),
    [
        ("auto", [3, None, 2]),
        (["a", "b", "c"], [3, 3, 2]),
        ([0, 1, 2], [3, 3, 2]),
        ([True, True, True], [3, 3, 2]),
        (np.array(["c", "a"]), [3, None, 2]),
        (np.array([True, False, True]), [3, None, 2]),
    ],
    ids=["auto", "names", "positions", "mask", "array", "mask array"],
)
def test_columns_are_chosen_in_many_ways(chosen: Any, sizes: Any) -> None:
    pd = pytest.importorskip("pandas")
    kind = pd.Categorical([7, 7, 9])
    frame = pd.DataFrame({"a": list("xyz"), "b": [1, 2, 3], "c": kind})
    assert TableEncoder(chosen).fit(frame).n_categories_ == sizes


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ("b", r"'auto', None, or a list .*got categorical_features='b'"),
        (["d"], r"positions from 0 to 1; got 'd', and the names are \['a', 'b'\]"),
        (np.array(["d"]), "positions from 0 to 1; got 'd', and"),
        ([2], "positions from 0 to 1; got 2"),
        (np.array([2]), "positions from 0 to 1; got 2, and"),
        ([-1], "positions from 0 to 1; got -1"),
        ([True], "one entry for each of the 2 columns of X; got 1"),
        (
            None,
            "must hold numbers in column 'a'; got 'x'.* name it in categorical_feat",
        ),
        (
            ["b"],
            "must hold numbers in column 'a'; got 'x'.* name it in categorical_feat",
        ),
    ],
    ids=[
        "word",
        "name",
        "name in an array",
        "position",
        "position in an array",
        "negative",
        "mask",
        "none",
        "unnamed text",
    ],
)
def test_a_wrong_choice_is_said(chosen: Any, message: str) -> None:
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"a": ["x", "y"], "b": [1, 2]})
    with pytest.raises(ValueError, match=message):
        TableEncoder(chosen).fit(frame)


def test_a_column_that_mixes_numbers_and_text_is_an_error() -> None:
    message = "either numbers or text in column 1; got both, 'n/a' among them"
    with pytest.raises(ValueError, match=message):
        TableEncoder().fit(_objects([1, 2, 3], [1, "n/a", 3]))


# -- Times --------------------------------------------------------------------------


def test_a_time_is_seconds_and_the_cycles_it_went_through() -> None:
    hours = np.datetime64("2024-03-01T00", "h") + np.arange(0, 24 * 20, 5)
    encoder = TableEncoder().fit(hours[:, None])
    names = ["0", "0 sine of day", "0 cosine of day", "0 sine of week"]
    assert encoder.get_feature_names_out().tolist() == [*names, "0 cosine of week"]
    encoded = encoder.transform(hours[:, None])
    seconds = (hours - hours[0]) / np.timedelta64(1, "s")
    expected = StandardScaler().fit_transform(seconds[:, None])
    np.testing.assert_allclose(encoded[:, :1], expected, atol=1e-12)
    hour = (hours - hours.astype("datetime64[D]")) / np.timedelta64(1, "h")
    angle = 2 * np.pi * hour / 24
    np.testing.assert_allclose(encoded[:, 1], np.sin(angle), atol=1e-9)
    np.testing.assert_allclose(encoded[:, 2], np.cos(angle), atol=1e-9)
    later = encoder.transform(hours[:, None] + 7 * DAY)
    np.testing.assert_allclose(later[:, 1:], encoded[:, 1:], atol=1e-9)


@pytest.mark.parametrize(
    ("step", "n_rows", "cycles"),
    [
        (DAY, 10, []),
        (DAY, 20, ["week"]),
        (DAY, 800, ["week", "year"]),
        (7 * DAY, 120, ["year"]),
        (np.timedelta64(1, "h"), 60, ["day"]),
    ],
    ids=["ten days", "days", "years", "weeks", "hours"],
)
def test_only_cycles_that_were_seen_twice_are_kept(
    step: Any, n_rows: int, cycles: list[str]
) -> None:
    times = np.datetime64("2021-06-01T00:00:00") + np.arange(n_rows) * step
    (codec,) = TableEncoder().fit(times[:, None]).codecs_
    assert codec.cycles == cycles
    assert set(cycles) <= set(CYCLES)


def test_a_missing_time_is_missing_in_all_its_parts() -> None:
    times = np.datetime64("2021-01-01T00") + np.arange(100) * np.timedelta64(1, "h")
    encoder = TableEncoder().fit(times[:, None])
    assert np.isnan(encoder.transform(np.array([["NaT"]], dtype="datetime64[h]"))).all()
    assert np.isnan(encoder.transform(_objects([None]))).all()
    with pytest.raises(ValueError, match=r"dates or times in column 0; got 3\.0"):
        encoder.transform([[3.0]])


# -- Tables -------------------------------------------------------------------------


def test_pandas_polars_and_arrow_give_the_same_numbers() -> None:
    pd = pytest.importorskip("pandas")
    pl = pytest.importorskip("polars")
    pa = pytest.importorskip("pyarrow")
    columns = {
        "a": [1.0, None, 3.0, 4.0],
        "b": ["x", "y", None, "x"],
        "c": [True, False, None, True],
        "d": np.datetime64("2024-01-01") + np.arange(4) * 9 * DAY,
    }
    frames = [pd.DataFrame(columns), pl.DataFrame(columns), pa.table(columns)]
    encoder = TableEncoder().fit(frames[0])
    assert encoder.n_categories_[:3] == [None, 2, None]
    for frame in frames:
        own = TableEncoder().fit(frame)
        np.testing.assert_array_equal(own.transform(frames[0]), own.transform(frame))
        np.testing.assert_array_equal(encoder.transform(frame), own.transform(frame))


def test_names_find_their_columns_and_a_missing_one_is_named() -> None:
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"a": [1.0, 2.0], "b": ["x", "y"]})
    encoder = TableEncoder().fit(frame)
    np.testing.assert_array_equal(
        encoder.transform(frame[["b", "a"]]), encoder.transform(frame)
    )
    with pytest.raises(ValueError, match=r"every column of fit; \['b'\] are missing"):
        encoder.transform(frame[["a"]])
    with pytest.raises(ValueError, match=r"must hold numbers in column 'a'; got 'x'"):
        encoder.transform(frame.assign(a=["x", "1"]))


@pytest.mark.parametrize("cells", [[None, NAN, None], [NAN, NAN, "late"]])
def test_a_column_without_values_is_dropped_with_a_warning(cells: list[Any]) -> None:
    X = _objects([1, 2, 3], cells)
    with pytest.warns(UQFormerWarning, match="no value in column 1 in any of 2 train"):
        encoder = TableEncoder().fit(X, sample_weight=[1, 1, 0])
    assert encoder.transform(X).shape == (3, 1)
    with (
        pytest.raises(ValueError, match="a value in at least one column"),
        pytest.warns(UQFormerWarning),
    ):
        TableEncoder().fit(X[:, 1:], sample_weight=[1, 1, 0])


def test_it_is_an_encoder_like_any_other() -> None:
    X = _objects(["a", "b", "a"], [1.0, NAN, 3.0])
    encoder = TableEncoder([0], max_categories=7)
    assert clone(encoder).get_params() == encoder.get_params()
    with pytest.raises(NotFittedError):
        encoder.transform(X)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        encoder.fit(X)
    copy = pickle.loads(pickle.dumps(encoder))
    np.testing.assert_array_equal(copy.transform(X), encoder.transform(X))
    assert encoder.transform(X[:1]).shape == (1, 2)
    assert encoder.transform(X).dtype == np.float64
    refitted = encoder.fit(X[:, 1:].astype(float).repeat(2, axis=1))
    assert refitted.n_categories_ == [3 - 1, None]  # a category and a number


@pytest.mark.parametrize(
    ("name", "sizes", "n_missing"),
    [
        ("adult_test", {"workclass": 8, "occupation": 14, "income": 2}, 2203),
        ("titanic", {"sex": 2, "embarked": 3}, 866),
        ("bank", {"job": 12, "month": 12, "deposit": 2}, 0),
    ],
)
def test_real_tables_are_read_as_they_are(
    uci_dir: Path, name: str, sizes: dict[str, int], n_missing: int
) -> None:
    pd = pytest.importorskip("pandas")
    frame = pd.read_csv(uci_dir.parent / "tabular" / f"{name}.csv.gz")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UQFormerWarning)  # of cabins
        encoder = TableEncoder().fit(frame)
    counts = dict(
        zip(encoder.get_feature_names_out(), encoder.n_categories_, strict=True)
    )
    assert {key: counts[key] for key in sizes} == sizes
    text = frame.select_dtypes(exclude="number").columns
    assert [key for key, k in counts.items() if k is not None] == list(text)
    encoded = encoder.transform(frame)
    last = np.array([np.inf if k is None else k + 1 for k in counts.values()])
    assert (np.isnan(encoded) | (encoded == last)).sum() == n_missing
    numbers = encoded[:, [k is None for k in counts.values()]]
    np.testing.assert_allclose(np.nanmean(numbers, axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(np.nanstd(numbers, axis=0), 1)


def test_a_large_table_is_encoded_in_time() -> None:
    """Hundred thousand rows; a slip to cell-wise work on numbers would show."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100_000, 8))
    encoded = TableEncoder().fit(X).transform(X)
    np.testing.assert_allclose(encoded.std(axis=0), 1)
