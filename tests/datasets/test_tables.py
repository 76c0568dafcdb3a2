"""Four tables with categories: from a folder, and from OpenML played by stand-ins."""

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.utils import Bunch

from uqformer.datasets import (
    _tables,
    fetch_adult,
    fetch_bank,
    fetch_covtype15k,
    fetch_titanic,
)

FETCHERS = {
    fetch_adult: ("tabular/adult_train.csv.gz", "income", 14),
    fetch_bank: ("tabular/bank.csv.gz", "deposit", 16),
    fetch_covtype15k: ("tabular/covtype15k.csv.gz", "cover_type", 12),
    fetch_titanic: ("tabular/titanic.csv.gz", "survived", 8),
}
EACH = pytest.mark.parametrize("fetch", FETCHERS, ids=lambda fetch: fetch.__name__)


@EACH
def test_a_bunch_of_frames(data_dir: Path, fetch: Any) -> None:
    _, target, n_features = FETCHERS[fetch]
    table = fetch(data_home=data_dir, download_if_missing=False)
    assert table.data.shape[1] == len(table.feature_names) == n_features
    assert table.target.name == table.target_names[0] == target
    assert list(table.frame.columns).count(target) == 1
    kinds = {str(kind) for kind in table.data.dtypes}
    assert kinds <= {"int64", "float64", "category"}
    assert "category" in kinds
    assert "Licence: " in table.DESCR
    X, y = fetch(data_home=data_dir, return_X_y=True)
    pd.testing.assert_frame_equal(X, table.data)
    pd.testing.assert_series_equal(y, table.target)


def test_adult_keeps_the_original_split(data_dir: Path) -> None:
    adult = fetch_adult(data_home=data_dir)
    assert (len(adult.train_indices), len(adult.test_indices)) == (32561, 16281)
    # the first rows of the two original files
    assert adult.data["age"].iloc[adult.train_indices[0]] == 39
    assert adult.data["fnlwgt"].iloc[adult.test_indices[0]] == 226802
    assert set(adult.target) == {"<=50K", ">50K"}
    assert adult.data.isna().to_numpy().sum() == 4262 + 2203
    assert "the original one" in adult.DESCR


def test_the_other_tables_are_as_described(data_dir: Path) -> None:
    bank = fetch_bank(data_home=data_dir)
    assert len(bank.data) == 45211
    assert np.mean(bank.target == "yes") == pytest.approx(0.117, abs=5e-4)
    cover = fetch_covtype15k(data_home=data_dir)
    assert cover.target.value_counts().to_dict() == dict.fromkeys(range(1, 8), 2160)
    assert cover.data["soil_type"].dtype == "category"
    titanic = fetch_titanic(data_home=data_dir)
    missing = titanic.data.isna().sum()
    assert missing[missing > 0].to_dict() == {"age": 177, "cabin": 687, "embarked": 2}


@EACH
def test_an_error_names_both_ways(fetch: Any, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=f"holds {FETCHERS[fetch][0]}"):
        fetch(data_home=tmp_path, download_if_missing=False)


def test_half_of_adult_is_not_enough(tmp_path: Path, register: Any) -> None:
    register("tabular/adult_train.csv.gz", gzip.compress(b"age,income\n1,<=50K\n"))
    with pytest.raises(FileNotFoundError, match=r"adult_test\.csv\.gz"):
        fetch_adult(data_home=tmp_path, download_if_missing=False)


# -- OpenML, played by a stand-in ---------------------------------------------------


class OpenML:
    """Holds one table and keeps what was asked for."""

    def __init__(self, frame: pd.DataFrame | OSError) -> None:
        self.frame = frame
        self.asked: list[dict[str, Any]] = []

    def __call__(self, **options: Any) -> Bunch:
        self.asked.append(options)
        if isinstance(self.frame, OSError):
            raise self.frame
        return Bunch(frame=self.frame.copy())


def _serve(monkeypatch: pytest.MonkeyPatch, frame: Any) -> OpenML:
    standin = OpenML(frame)
    monkeypatch.setattr(_tables, "fetch_openml", standin)
    return standin


def test_adult_from_openml_says_that_its_split_is_drawn(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    n_rows = 20000
    frame = pd.DataFrame(
        {
            "education-num": np.arange(n_rows),
            "sex": pd.Categorical(["Male", "Female"] * (n_rows // 2)),
            "class": pd.Categorical(["<=50K", ">50K"] * (n_rows // 2)),
        }
    )
    standin = _serve(monkeypatch, frame)
    adult = fetch_adult(data_home=tmp_path)
    assert standin.asked == [
        {"data_id": 1590, "data_home": tmp_path, "as_frame": True, "parser": "auto"}
    ]
    assert adult.feature_names == ["education_num", "sex"]
    assert len(adult.test_indices) == 16281
    rows = np.concatenate([adult.train_indices, adult.test_indices])
    np.testing.assert_array_equal(np.sort(rows), np.arange(n_rows))
    assert "drawn at random with seed 0" in adult.DESCR
    again = fetch_adult(data_home=tmp_path)
    np.testing.assert_array_equal(again.test_indices, adult.test_indices)


def test_bank_from_openml_gets_its_names_back(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, data_dir: Path
) -> None:
    frame = pd.DataFrame({f"V{k}": ["a", "b"] for k in range(1, 17)})
    standin = _serve(monkeypatch, frame.assign(Class=pd.Categorical(["1", "2"])))
    bank = fetch_bank(data_home=tmp_path)
    assert standin.asked[0]["data_id"] == 1461
    assert bank.feature_names == fetch_bank(data_home=data_dir).feature_names
    assert list(bank.target) == ["no", "yes"]
    assert {str(kind) for kind in bank.data.dtypes} == {"category"}


def test_titanic_from_openml_keeps_the_folders_columns(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, data_dir: Path
) -> None:
    folder = fetch_titanic(data_home=data_dir)
    frame = folder.frame.assign(name="N.N.", boat=None)
    frame["survived"] = frame["survived"].astype(str).astype("category")
    standin = _serve(monkeypatch, frame)
    titanic = fetch_titanic(data_home=tmp_path)
    assert standin.asked[0]["data_id"] == 40945
    pd.testing.assert_frame_equal(titanic.frame, folder.frame)


def test_covtype_from_the_repository_is_the_folders_table(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, data_dir: Path
) -> None:
    folder = fetch_covtype15k(data_home=data_dir)
    numbers = folder.data.iloc[:, :10].to_numpy(dtype=np.float64)
    areas = np.eye(4)[folder.data["wilderness_area"].to_numpy() - 1]
    soils = np.eye(40)[folder.data["soil_type"].to_numpy() - 1]
    table = np.hstack([numbers, areas, soils])
    asked = []

    def fetch_covtype(**options: Any) -> Any:
        asked.append(options)
        more = np.vstack([table, table[:5]])
        return more, np.append(folder.target.to_numpy(np.int32), np.ones(5, np.int32))

    monkeypatch.setattr(_tables, "fetch_covtype", fetch_covtype)
    public = fetch_covtype15k(data_home=tmp_path)
    assert asked == [{"data_home": tmp_path, "return_X_y": True}]
    pd.testing.assert_frame_equal(public.frame, folder.frame)


@pytest.mark.parametrize("fetch", [fetch_adult, fetch_bank, fetch_titanic])
def test_openml_out_of_reach(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, fetch: Any
) -> None:
    _serve(monkeypatch, OSError("Name or service not known"))
    with pytest.raises(OSError, match=r"OpenML .* not known.* UQFORMER_DATA to"):
        fetch(data_home=tmp_path)
