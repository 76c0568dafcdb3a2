"""ETT and ERA5: from a folder, and from their sources played by stand-ins."""

import gzip
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import pytest

from uqformer.datasets import _time_series, fetch_era5_t2m, fetch_ett
from uqformer.datasets._registry import FILES
from uqformer.datasets._source import digest_of

CHANNELS = ["HUFL", "HULL", "MUFL", "MULL", "LUFL", "LULL", "OT"]


@pytest.mark.parametrize(("name", "per_hour"), [("ETTh1", 1), ("ETTm1", 4)])
def test_ett_has_the_usual_cut(data_dir: Path, name: str, per_hour: int) -> None:
    ett = fetch_ett(name, data_home=data_dir, download_if_missing=False)
    assert list(ett.frame.columns) == CHANNELS
    assert ett.feature_names == CHANNELS[:-1]
    assert ett.target.name == "OT"
    assert ett.frame.shape == (17420 * per_hour, 7)
    assert str(ett.frame.index[0]) == "2016-07-01 00:00:00"
    parts = (ett.train_indices, ett.validation_indices, ett.test_indices)
    ends = [(int(part[0]), int(part[-1])) for part in parts]
    hours = [(0, 8640), (8640, 11520), (11520, 14400)]
    assert ends == [(a * per_hour, b * per_hour - 1) for a, b in hours]
    X, y = fetch_ett(name, data_home=data_dir, return_X_y=True)
    pd.testing.assert_frame_equal(X, ett.data)
    pd.testing.assert_series_equal(y, ett.target)


def test_the_public_file_is_read_as_the_folders(
    data_dir: Path, web: Any, tmp_path: Path
) -> None:
    url = f"{_time_series.ETT_URL}/ETTh1.csv"
    web[url] = gzip.decompress((data_dir / "ts/ETTh1.csv.gz").read_bytes())
    public = fetch_ett(data_home=tmp_path)
    pd.testing.assert_frame_equal(public.frame, fetch_ett(data_home=data_dir).frame)
    fetch_ett(data_home=tmp_path, download_if_missing=False)
    assert web.asked == [url]


def test_a_series_that_was_cut_raises(web: Any, tmp_path: Path) -> None:
    url = f"{_time_series.ETT_URL}/ETTm2.csv"
    web[url] = b"date,OT\n2016-07-01 00:00:00,1\n"
    with pytest.raises(OSError, match="must hold 69680 rows; got 1"):
        fetch_ett("ETTm2", data_home=tmp_path)


def test_errors_name_both_ways(web: Any, tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"holds ts/ETTh2\.csv"):
        fetch_ett("ETTh2", data_home=tmp_path)
    with pytest.raises(ValueError, match="name must be one of 'ETTh1', 'ETTh2'"):
        fetch_ett("etth1")
    with pytest.raises(FileNotFoundError, match=r"era5_t2m_uk_2019-03\.npz"):
        fetch_era5_t2m(data_home=tmp_path, download_if_missing=False)


def test_era5_is_a_month_of_maps(data_dir: Path) -> None:
    era5 = fetch_era5_t2m(data_home=data_dir, download_if_missing=False)
    assert era5.data.shape == (744, 33, 49)
    assert era5.data.dtype == np.float32
    assert era5.times[0] == np.datetime64("2019-03-01T00")
    assert set(np.diff(era5.times)) == {np.timedelta64(3600, "s")}
    assert (era5.latitude[0], era5.latitude[-1]) == (58, 50)
    assert (era5.longitude[0], era5.longitude[-1]) == (-10, 2)
    assert 260 < era5.data.min() < era5.data.max() < 300
    assert "Copernicus" in era5.DESCR


class Grib(dict[str, Any]):
    """What xarray hands over for a GRIB file."""

    def __enter__(self) -> "Grib":
        return self

    def __exit__(self, *error: object) -> None:
        pass


def test_era5_from_the_public_file(
    web: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = []

    def open_dataset(path: Path, **options: Any) -> Grib:
        opened.append((path.read_bytes(), options))
        return Grib(
            t2m=np.ones((2, 3, 4)),
            time=np.array(["2019-03-01T00", "2019-03-01T01"], dtype="datetime64[ns]"),
            latitude=np.array([58.0, 54.0, 50.0]),
            longitude=np.array([-10.0, -6.0, -2.0, 2.0]),
        )

    xarray = ModuleType("xarray")
    xarray.open_dataset = open_dataset  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "xarray", xarray)
    monkeypatch.setitem(sys.modules, "cfgrib", ModuleType("cfgrib"))
    monkeypatch.setitem(
        FILES, "weather/era5-2mt-2019-03-uk.grib", digest_of(b"GRIB", "md5")
    )
    web[_time_series.ERA5_URL] = b"GRIB"
    era5 = fetch_era5_t2m(data_home=tmp_path)
    options = {"engine": "cfgrib", "backend_kwargs": {"indexpath": ""}}
    assert opened == [(b"GRIB", options)]
    assert era5.data.shape == (2, 3, 4)
    assert era5.data.dtype == np.float32
    assert era5.times.dtype == "datetime64[s]"
    assert era5.latitude.tolist() == [58, 54, 50]


def test_era5_asks_for_its_reader_before_the_download(
    web: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cfgrib", None)
    monkeypatch.setitem(sys.modules, "xarray", ModuleType("xarray"))
    with pytest.raises(ImportError, match=r"pip install xarray cfgrib.* Or set data_h"):
        fetch_era5_t2m(data_home=tmp_path)
    assert web.asked == []
