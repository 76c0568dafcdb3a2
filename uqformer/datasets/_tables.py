"""Four classification tables with categories and missing values, as data frames."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import fetch_covtype, fetch_openml
from sklearn.model_selection import train_test_split
from sklearn.utils import Bunch

from uqformer.datasets._pack import describe, pack
from uqformer.datasets._source import Source, import_extra, open_source

__all__ = ["fetch_adult", "fetch_bank", "fetch_covtype15k", "fetch_titanic"]

UCI_LICENCE = "CC BY 4.0 (UCI machine learning repository)"
ADULT_TEST_ROWS = 16281
BANK_COLUMNS = (
    "age job marital education default balance housing loan contact day month duration "
    "campaign pdays previous poutcome deposit"
)
COVTYPE_ROWS = 15120
COVTYPE_NUMBERS = (
    "elevation aspect slope h_dist_hydrology v_dist_hydrology h_dist_roadways "
    "hillshade_9am hillshade_noon hillshade_3pm h_dist_fire"
)
TITANIC_COLUMNS = "survived pclass sex age sibsp parch fare cabin embarked"


def fetch_adult(
    *,
    data_home: str | os.PathLike[str] | None = None,
    download_if_missing: bool = True,
    return_X_y: bool = False,
) -> Bunch | tuple[Any, Any]:
    """Load the census income table (classification).

    Does a person earn more than 50,000 dollars a year? Eight of the fourteen columns
    are categories, three of them with missing cells.

    Parameters
    ----------
    data_home : str or path-like, default=None
        Folder that holds ``tabular/adult_train.csv.gz`` and
        ``tabular/adult_test.csv.gz``, and that downloads go to. None takes the
        environment variable ``UQFORMER_DATA``, or scikit-learn's data folder.
    download_if_missing : bool, default=True
        Whether to download what the folder lacks; otherwise that raises.
    return_X_y : bool, default=False
        Whether to return ``(data, target)`` instead of a bunch.

    Returns
    -------
    data : Bunch
        With `data` (DataFrame of 48842 rows), `target` (Series of "<=50K" and
        ">50K"), `frame`, `feature_names`, `target_names`, `train_indices`,
        `test_indices` and `DESCR`. The split is the original one when the rows come
        from the folder. OpenML does not keep it; then 16281 test rows are drawn with
        seed 0, and `DESCR` says so. With `return_X_y`, the tuple ``(data, target)``.

    Raises
    ------
    OSError
        If the data are neither in the folder nor to be had, or are damaged.

    References
    ----------
    .. [1] B. Becker, R. Kohavi (1996), "Adult", UCI machine learning repository.

    Examples
    --------
    >>> from uqformer.datasets import fetch_adult
    >>> adult = fetch_adult()  # doctest: +SKIP
    >>> X_train = adult.data.iloc[adult.train_indices]  # doctest: +SKIP
    """
    names = ("tabular/adult_train.csv.gz", "tabular/adult_test.csv.gz")
    source = open_source(data_home, download_if_missing)
    found = source.local(*names)
    if found:
        parts = [_read(path) for path in found]
        frame = import_extra("pandas").concat(parts, ignore_index=True)
        rows = np.arange(len(frame))
        train, test = np.split(rows, [len(parts[0])])
        split = "the original one"
    else:
        frame = _from_openml(source, 1590, *names)
        frame.columns = [column.replace("-", "_") for column in frame.columns]
        frame = frame.rename(columns={"class": "income"})
        train, test = train_test_split(
            np.arange(len(frame)), test_size=ADULT_TEST_ROWS, random_state=0
        )
        split = "drawn at random with seed 0, as OpenML does not keep the original one"
    return _pack_frame(
        return_X_y,
        frame,
        "income",
        DESCR=describe(
            "Adult: income above 50,000 dollars, census of 1994",
            f"{len(frame)} rows, 14 features. The split is {split}.",
            "UCI machine learning repository (OpenML 1590)",
            UCI_LICENCE,
        ),
        train_indices=train,
        test_indices=test,
    )


def fetch_bank(
    *,
    data_home: str | os.PathLike[str] | None = None,
    download_if_missing: bool = True,
    return_X_y: bool = False,
) -> Bunch | tuple[Any, Any]:
    """Load the bank marketing table (classification).

    Does a client take a deposit after a call? 11.7 % do. The column "duration" is the
    length of that very call: leave it out for a forecast.

    Parameters
    ----------
    data_home : str or path-like, default=None
        Folder that holds ``tabular/bank.csv.gz``, and that downloads go to. None takes
        the environment variable ``UQFORMER_DATA``, or scikit-learn's data folder.
    download_if_missing : bool, default=True
        Whether to download what the folder lacks; otherwise that raises.
    return_X_y : bool, default=False
        Whether to return ``(data, target)`` instead of a bunch.

    Returns
    -------
    data : Bunch
        With `data` (DataFrame of 45211 rows), `target` (Series of "no" and "yes"),
        `frame`, `feature_names`, `target_names` and `DESCR`. With `return_X_y`, the
        tuple ``(data, target)``.

    Raises
    ------
    OSError
        If the data are neither in the folder nor to be had, or are damaged.

    References
    ----------
    .. [1] S. Moro, P. Cortez, P. Rita (2014), "A Data-Driven Approach to Predict the
       Success of Bank Telemarketing", Decision Support Systems 62.

    Examples
    --------
    >>> from uqformer.datasets import fetch_bank
    >>> X, y = fetch_bank(return_X_y=True)  # doctest: +SKIP
    """

    def public(source: Source) -> Any:
        frame = _from_openml(source, 1461, "tabular/bank.csv.gz")
        frame.columns = BANK_COLUMNS.split()
        answer = {"1": "no", "2": "yes"}
        return frame.assign(deposit=frame["deposit"].astype(str).map(answer))

    frame = _one_file("tabular/bank.csv.gz", data_home, download_if_missing, public)
    return _pack_frame(
        return_X_y,
        frame,
        "deposit",
        DESCR=describe(
            "Bank marketing: does a client take a deposit",
            f"{len(frame)} rows, 16 features; 'unknown' is a category of its own.",
            "UCI machine learning repository (OpenML 1461)",
            UCI_LICENCE,
        ),
    )


def fetch_covtype15k(
    *,
    data_home: str | os.PathLike[str] | None = None,
    download_if_missing: bool = True,
    return_X_y: bool = False,
) -> Bunch | tuple[Any, Any]:
    """Load 15,120 balanced rows of the forest cover table (classification).

    They are the original training and validation rows, 2160 of each of seven kinds of
    forest. The indicators of wilderness area and soil type are one category each; a
    wilderness area kept out of training makes a shifted test set.

    Parameters
    ----------
    data_home : str or path-like, default=None
        Folder that holds ``tabular/covtype15k.csv.gz``, and that downloads go to. None
        takes the environment variable ``UQFORMER_DATA``, or scikit-learn's data folder.
    download_if_missing : bool, default=True
        Whether to download what the folder lacks; otherwise that raises.
    return_X_y : bool, default=False
        Whether to return ``(data, target)`` instead of a bunch.

    Returns
    -------
    data : Bunch
        With `data` (DataFrame of 12 columns), `target` (Series of 1 to 7), `frame`,
        `feature_names`, `target_names` and `DESCR`. With `return_X_y`, the tuple
        ``(data, target)``.

    Raises
    ------
    OSError
        If the data are neither in the folder nor to be had, or are damaged.

    See Also
    --------
    sklearn.datasets.fetch_covtype : All 581,012 rows.

    References
    ----------
    .. [1] J. A. Blackard, D. J. Dean (1999), "Comparative Accuracies of Artificial
       Neural Networks and Discriminant Analysis in Predicting Forest Cover Types from
       Cartographic Variables", Computers and Electronics in Agriculture 24.

    Examples
    --------
    >>> from uqformer.datasets import fetch_covtype15k
    >>> X, y = fetch_covtype15k(return_X_y=True)  # doctest: +SKIP
    """
    name = "tabular/covtype15k.csv.gz"

    def public(source: Source) -> Any:
        with source.public("the UCI repository through scikit-learn", name):
            X, y = fetch_covtype(data_home=source.folder, return_X_y=True)
        table = X[:COVTYPE_ROWS].astype(np.int64)
        columns = dict(zip(COVTYPE_NUMBERS.split(), table.T[:10], strict=True))
        columns["wilderness_area"] = table[:, 10:14].argmax(axis=1) + 1
        columns["soil_type"] = table[:, 14:].argmax(axis=1) + 1
        columns["cover_type"] = y[:COVTYPE_ROWS].astype(np.int64)
        return import_extra("pandas").DataFrame(columns)

    frame = _one_file(name, data_home, download_if_missing, public)
    codes = ["wilderness_area", "soil_type"]
    return _pack_frame(
        return_X_y,
        frame.astype(dict.fromkeys(codes, "category")),
        "cover_type",
        DESCR=describe(
            "Forest cover type, the balanced part",
            f"{len(frame)} rows, 12 features, 7 classes of 2160 rows.",
            "UCI machine learning repository",
            UCI_LICENCE,
        ),
    )


def fetch_titanic(
    *,
    data_home: str | os.PathLike[str] | None = None,
    download_if_missing: bool = True,
    return_X_y: bool = False,
) -> Bunch | tuple[Any, Any]:
    """Load the passengers of the Titanic (classification).

    A small table with missing ages and cabins.

    Parameters
    ----------
    data_home : str or path-like, default=None
        Folder that holds ``tabular/titanic.csv.gz``, and that downloads go to. None
        takes the environment variable ``UQFORMER_DATA``, or scikit-learn's data folder.
    download_if_missing : bool, default=True
        Whether to download what the folder lacks; otherwise that raises.
    return_X_y : bool, default=False
        Whether to return ``(data, target)`` instead of a bunch.

    Returns
    -------
    data : Bunch
        With `data` (DataFrame of 8 columns), `target` (Series of 0 and 1), `frame`,
        `feature_names`, `target_names` and `DESCR`. The folder's file has 891 rows,
        the table of OpenML 1309. With `return_X_y`, the tuple ``(data, target)``.

    Raises
    ------
    OSError
        If the data are neither in the folder nor to be had, or are damaged.

    Examples
    --------
    >>> from uqformer.datasets import fetch_titanic
    >>> X, y = fetch_titanic(return_X_y=True)  # doctest: +SKIP
    """

    def public(source: Source) -> Any:
        frame = _from_openml(source, 40945, "tabular/titanic.csv.gz")
        frame = frame[TITANIC_COLUMNS.split()]
        return frame.assign(survived=frame["survived"].astype(str).astype(np.int64))

    frame = _one_file("tabular/titanic.csv.gz", data_home, download_if_missing, public)
    return _pack_frame(
        return_X_y,
        frame,
        "survived",
        DESCR=describe(
            "Titanic: who survived",
            f"{len(frame)} rows, 8 features; names and tickets are left out.",
            "https://github.com/mwaskom/seaborn-data (OpenML 40945)",
            "not stated by the origin",
        ),
    )


def _one_file(
    name: str,
    data_home: str | os.PathLike[str] | None,
    download_if_missing: bool,
    public: Callable[[Source], Any],
) -> Any:
    """Read a table from its one file, or from where `public` has it."""
    source = open_source(data_home, download_if_missing)
    found = source.local(name)
    return _read(found[0]) if found else public(source)


def _read(path: Path) -> Any:
    """Read a CSV file."""
    return import_extra("pandas").read_csv(path)


def _with_categories(frame: Any) -> Any:
    """Make categories of all columns that hold no numbers."""
    text = frame.select_dtypes(exclude="number").columns
    return frame.astype(dict.fromkeys(text, "category"))


def _from_openml(source: Source, data_id: int, *names: str) -> Any:
    """Fetch a table whole, or say which files of the folder would do instead."""
    import_extra("pandas")
    with source.public(f"OpenML {data_id}", *names):
        bunch = fetch_openml(
            data_id=data_id, data_home=source.folder, as_frame=True, parser="auto"
        )
    return bunch.frame


def _pack_frame(
    return_X_y: bool, frame: Any, target: str, **fields: Any
) -> Bunch | tuple[Any, Any]:
    """Part a frame into features and target, text as categories."""
    frame = _with_categories(frame)
    data = frame.drop(columns=target)
    return pack(
        return_X_y,
        data=data,
        target=frame[target],
        frame=frame,
        feature_names=list(data.columns),
        target_names=[target],
        **fields,
    )
