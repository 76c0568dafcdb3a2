"""Series in time: the transformers of ETT, and hourly weather of ERA5."""

import os
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.utils import Bunch

from uqformer.datasets._pack import check_choice, describe, pack
from uqformer.datasets._source import Source, import_extra, open_source

__all__ = ["fetch_era5_t2m", "fetch_ett"]

ETT_URL = "https://raw.githubusercontent.com/zhouhaoyi/ETDataset/main/ETT-small"
ETT_PER_HOUR = {"ETTh1": 1, "ETTh2": 1, "ETTm1": 4, "ETTm2": 4}
ETT_HOURS = 17420
MONTH = 30 * 24
ERA5_FILE = "weather/era5_t2m_uk_2019-03.npz"
ERA5_GRIB = "era5-2mt-2019-03-uk.grib"
ERA5_URL = f"https://raw.githubusercontent.com/pydata/xarray-data/master/{ERA5_GRIB}"


def fetch_ett(
    name: str = "ETTh1",
    *,
    data_home: str | os.PathLike[str] | None = None,
    download_if_missing: bool = True,
    return_X_y: bool = False,
) -> Bunch | tuple[Any, Any]:
    """Load loads and oil temperature of an electricity transformer (regression).

    Six loads and the oil temperature ("OT"), two years from July 2016. As a series,
    `frame` goes to :func:`~uqformer.series.make_windows`; the usual cut of the
    literature is in the bunch.

    Parameters
    ----------
    name : {"ETTh1", "ETTh2", "ETTm1", "ETTm2"}, default="ETTh1"
        Which station (1 or 2), and whether hourly ("h") or every 15 minutes ("m").
    data_home : str or path-like, default=None
        Folder that holds ``ts/<name>.csv.gz`` or ``ts/<name>.csv``, and that downloads
        go to. None takes the environment variable ``UQFORMER_DATA``, or scikit-learn's
        data folder.
    download_if_missing : bool, default=True
        Whether to download what the folder lacks; otherwise that raises.
    return_X_y : bool, default=False
        Whether to return ``(data, target)`` instead of a bunch.

    Returns
    -------
    data : Bunch
        With `data` (DataFrame of the six loads by time), `target` (Series of the oil
        temperature in degrees Celsius), `frame` (both), `feature_names`,
        `target_names`, `train_indices`, `validation_indices`, `test_indices` (12, 4
        and 4 months of 30 days; the last rows are in none) and `DESCR`. With
        `return_X_y`, the tuple ``(data, target)``.

    Raises
    ------
    ValueError
        If there is no such series.
    OSError
        If the data are neither in the folder nor to be had, or are damaged.

    References
    ----------
    .. [1] H. Zhou, S. Zhang, J. Peng, S. Zhang, J. Li, H. Xiong, W. Zhang (2021),
       "Informer: Beyond Efficient Transformer for Long Sequence Time-Series
       Forecasting", AAAI.

    Examples
    --------
    >>> from uqformer.datasets import fetch_ett
    >>> from uqformer.series import make_windows
    >>> ett = fetch_ett("ETTh1")  # doctest: +SKIP
    >>> X, y, first = make_windows(  # doctest: +SKIP
    ...     ett.frame, context_length=96, horizon=24, target="OT"
    ... )
    """
    check_choice("name", name, ETT_PER_HOUR)
    source = open_source(data_home, download_if_missing)
    found = source.local(f"ts/{name}.csv.gz")
    if not found:
        found = [source.download(f"{ETT_URL}/{name}.csv", f"ts/{name}.csv")]
    pandas = import_extra("pandas")
    frame = pandas.read_csv(found[0], index_col="date", parse_dates=True)
    per_hour = ETT_PER_HOUR[name]
    if len(frame) != ETT_HOURS * per_hour:
        raise OSError(
            f"{found[0]} must hold {ETT_HOURS * per_hour} rows; got {len(frame)}. "
            "Delete it to have it downloaded again."
        )
    ends = np.array([0, 12, 16, 20]) * MONTH * per_hour
    train, validation, test = (np.arange(start, end) for start, end in pairwise(ends))
    loads = frame.drop(columns="OT")
    return pack(
        return_X_y,
        data=loads,
        target=frame["OT"],
        frame=frame,
        feature_names=list(loads.columns),
        target_names=["OT"],
        train_indices=train,
        validation_indices=validation,
        test_indices=test,
        DESCR=describe(
            f"{name}: an electricity transformer's loads and oil temperature",
            f"{len(frame)} rows from {frame.index[0]} to {frame.index[-1]}.",
            "https://github.com/zhouhaoyi/ETDataset",
            "CC BY-ND 4.0: pass on unchanged",
        ),
    )


def fetch_era5_t2m(
    *,
    data_home: str | os.PathLike[str] | None = None,
    download_if_missing: bool = True,
) -> Bunch:
    """Load hourly maps of the temperature over Great Britain and Ireland.

    ERA5's temperature at 2 m of March 2019, 50 to 58 degrees north and 10 west to 2
    east, a quarter of a degree apart. There is no target: what is to be forecast from
    what is the user's choice.

    Parameters
    ----------
    data_home : str or path-like, default=None
        Folder that holds ``weather/era5_t2m_uk_2019-03.npz``, and that downloads go
        to. None takes the environment variable ``UQFORMER_DATA``, or scikit-learn's
        data folder.
    download_if_missing : bool, default=True
        Whether to download what the folder lacks, to be read by xarray and cfgrib;
        otherwise that raises.

    Returns
    -------
    data : Bunch
        With `data` (float32, (744, 33, 49), in kelvin), `times` (datetime64, UTC),
        `latitude` (33,) from north to south, `longitude` (49,) in degrees east, and
        `DESCR`.

    Raises
    ------
    OSError
        If the data are neither in the folder nor to be had, or are damaged.

    References
    ----------
    .. [1] H. Hersbach et al. (2020), "The ERA5 Global Reanalysis", Quarterly Journal
       of the Royal Meteorological Society 146.

    Examples
    --------
    >>> from uqformer.datasets import fetch_era5_t2m
    >>> from uqformer.series import make_windows
    >>> era5 = fetch_era5_t2m()  # doctest: +SKIP
    >>> maps = era5.data.reshape(len(era5.data), -1)  # doctest: +SKIP
    >>> X, y, first = make_windows(  # doctest: +SKIP
    ...     maps, context_length=24, horizon=6, times=era5.times
    ... )
    """
    source = open_source(data_home, download_if_missing)
    found = source.local(ERA5_FILE)
    fields = _read_weather(found[0]) if found else _read_grib(source)
    return Bunch(
        **fields,
        DESCR=describe(
            "ERA5: temperature at 2 m over Great Britain and Ireland, March 2019",
            "744 hours, 33 x 49 points, in kelvin.",
            "https://github.com/pydata/xarray-data",
            "Copernicus licence: free with credit. Contains modified Copernicus "
            "Climate Change Service information",
        ),
    )


def _read_weather(path: Path) -> dict[str, Any]:
    with np.load(path, allow_pickle=False) as file:
        return {
            "data": file["t2m"],
            "times": file["time"].astype("datetime64[s]"),
            "latitude": file["lat"],
            "longitude": file["lon"],
        }


def _read_grib(source: Source) -> dict[str, Any]:
    with source.public(ERA5_URL, ERA5_FILE):
        # before the download, which would be in vain without them
        xarray = import_extra("xarray", "xarray cfgrib")
        import_extra("cfgrib", "xarray cfgrib")
    path = source.download(ERA5_URL, f"weather/{ERA5_GRIB}", ERA5_FILE)
    # an empty indexpath keeps cfgrib from writing beside the data
    with xarray.open_dataset(
        path, engine="cfgrib", backend_kwargs={"indexpath": ""}
    ) as grib:
        return {
            "data": np.asarray(grib["t2m"], dtype=np.float32),
            "times": np.asarray(grib["time"]).astype("datetime64[s]"),
            "latitude": np.asarray(grib["latitude"], dtype=np.float32),
            "longitude": np.asarray(grib["longitude"], dtype=np.float32),
        }
