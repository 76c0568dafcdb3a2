"""Coverage as promised: every method on many resamples, by group, on real data."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression, QuantileRegressor

from uqformer.calibration import ConformalRegressor

N_RESAMPLES = 200
N_NEW = 100
LEVEL = 0.8


def _draw(rng: np.random.Generator, n_rows: int) -> Any:
    """Draw rows of a curve that no line fits, whose noise grows and is skewed."""
    X = rng.uniform(-1, 1, size=(n_rows, 2))
    noise = (0.2 + np.abs(X[:, 0])) * (rng.exponential(size=n_rows) - 1)
    return X, np.sin(3 * X[:, 0]) + X[:, 1] + noise


def _inside(ends: Any, y: Any) -> Any:
    return (ends[:, 0] <= y) & (y <= ends[:, 1])


def _pair() -> list[Any]:
    return [QuantileRegressor(quantile=q, alpha=0) for q in (0.2, 0.8)]


SPLIT = {
    "absolute": {},
    "spread": {
        "conformity_score": "spread",
        "spread_estimator": LinearRegression(),
        "spread_floor": 0.1,
    },
    "quantile": {"conformity_score": "quantile", "quantile_estimators": _pair()},
}


@pytest.mark.parametrize(
    "score",
    [
        "absolute",
        pytest.param("spread", marks=pytest.mark.slow),
        pytest.param("quantile", marks=pytest.mark.slow),
    ],
)
def test_split_coverage_has_the_distribution_it_must_have(score: str) -> None:
    n_rows, n_calibration = 95, 19  # 0.2 of the rows, so that 0.8 is a whole rank
    hits = np.empty(N_RESAMPLES, dtype=int)
    for seed in range(N_RESAMPLES):
        rng = np.random.default_rng(seed)
        X, y = _draw(rng, n_rows)
        model = ConformalRegressor(
            LinearRegression(), random_state=seed, **SPLIT[score]
        ).fit(X, y)
        assert model.n_calibration_ == n_calibration
        X_new, y_new = _draw(rng, N_NEW)
        hits[seed] = _inside(model.predict_interval(X_new, LEVEL), y_new).sum()
    # given the calibration rows, coverage is Beta(rank, n + 1 - rank)
    law = stats.betabinom(N_NEW, 16, 4)
    assert hits.mean() == pytest.approx(
        law.mean(), abs=4 * law.std() / np.sqrt(N_RESAMPLES)
    )
    assert hits.std() == pytest.approx(law.std(), rel=0.25)
    low, high = law.ppf([1e-5, 1 - 1e-5])
    assert ((low <= hits) & (hits <= high)).all()


@pytest.mark.parametrize(
    "options",
    [
        {"method": "cv+"},
        pytest.param(
            {"method": "cv+", "conformity_score": "spread",
             "spread_estimator": LinearRegression(), "spread_floor": 0.1},
            marks=pytest.mark.slow,
        ),
        pytest.param(
            {"method": "jackknife+ab", "n_resamplings": 30}, marks=pytest.mark.slow
        ),
        pytest.param(
            {"method": "cv+", "conformity_score": "quantile",
             "quantile_estimators": _pair()},
            marks=pytest.mark.slow,
        ),
    ],
    ids=["cv+", "cv+ spread", "jackknife+ab", "cv+ quantile"],
)  # fmt: skip
def test_every_row_may_train_and_calibrate(options: Any) -> None:
    # field note: the jackknife+-after-bootstrap covered too little elsewhere
    covered = np.empty(N_RESAMPLES)
    for seed in range(N_RESAMPLES):
        rng = np.random.default_rng(seed)
        X, y = _draw(rng, 60)
        model = ConformalRegressor(LinearRegression(), random_state=seed, **options)
        X_new, y_new = _draw(rng, N_NEW)
        ends = model.fit(X, y).predict_interval(X_new, LEVEL)
        covered[seed] = _inside(ends, y_new).mean()
    margin = 4 * covered.std() / np.sqrt(N_RESAMPLES)
    assert LEVEL - margin <= covered.mean() <= LEVEL + 0.04 + margin


def _side(X: Any) -> Any:
    return np.where(np.abs(X[:, 0]) < 0.6, "calm", "wild")


@pytest.mark.parametrize(
    "method", ["split", pytest.param("cv+", marks=pytest.mark.slow)]
)
def test_each_group_is_covered(method: Any) -> None:
    by_group = {"calm": [0, 0], "wild": [0, 0]}
    plain = {"calm": [0, 0], "wild": [0, 0]}
    for seed in range(N_RESAMPLES):
        rng = np.random.default_rng(seed)
        X, y = _draw(rng, 120)
        X_new, y_new = _draw(rng, N_NEW)
        for counts, group_by in ((by_group, _side), (plain, None)):
            model = ConformalRegressor(
                LinearRegression(), method=method, group_by=group_by,
                calibration_fraction=0.5, random_state=seed,
            ).fit(X, y)  # fmt: skip
            hit = _inside(model.predict_interval(X_new, LEVEL), y_new)
            for name, count in counts.items():
                rows = _side(X_new) == name
                count[0] += hit[rows].sum()
                count[1] += rows.sum()
    for hits, rows in by_group.values():
        # exact up to 1 / (n + 1), for about 24 rows of the smaller group
        assert LEVEL - 0.015 <= hits / rows <= LEVEL + 1 / 20 + 0.015
    assert plain["wild"][0] / plain["wild"][1] < LEVEL - 0.03


# -- Real data ----------------------------------------------------------------------


def _load(uci_dir: Path, name: str) -> Any:
    with np.load(uci_dir / f"{name}.npz", allow_pickle=False) as data:
        return data["X"], data["y"], data["train_idx"], data["test_idx"]


@pytest.mark.slow
@pytest.mark.parametrize("method", ["split", "cv+"])
@pytest.mark.parametrize("name", ["yacht", "energy", "concrete", "wine_red"])
def test_real_data_are_covered(uci_dir: Path, name: str, method: Any) -> None:
    X, y, train_rows, test_rows = _load(uci_dir, name)
    hits = rows = 0
    for seed, (train, test) in enumerate(zip(train_rows, test_rows, strict=True)):
        model = ConformalRegressor(
            HistGradientBoostingRegressor(max_iter=40, min_samples_leaf=5),
            method=method, random_state=seed,
        ).fit(X[train], y[train])  # fmt: skip
        hits += _inside(model.predict_interval(X[test], 0.9), y[test]).sum()
        rows += len(test)
    # the splits' test parts overlap: together they tell as much as the rows of the set
    margin = 4 * np.sqrt(0.9 * 0.1 * 2 / len(X))
    upper = 0.9 + margin + (0.02 if method == "cv+" else 0)
    assert 0.9 - margin <= hits / rows <= upper


@pytest.mark.slow
def test_groups_of_real_data_are_covered(uci_dir: Path) -> None:
    X, y, train_rows, test_rows = _load(uci_dir, "power")
    edges = np.quantile(X[:, 0], [1 / 3, 2 / 3])

    def temperature(X: Any) -> Any:
        return np.digitize(X[:, 0], edges)

    hits, rows = np.zeros(3), np.zeros(3)
    trained = LinearRegression().fit(X[train_rows[0]][:2000], y[train_rows[0]][:2000])
    for train, test in zip(train_rows, test_rows, strict=True):
        rest = np.setdiff1d(train, train_rows[0][:2000])
        test = np.setdiff1d(test, train_rows[0][:2000])
        model = ConformalRegressor(FrozenEstimator(trained), group_by=temperature)
        ends = model.fit(X[rest[:1500]], y[rest[:1500]]).predict_interval(X[test], 0.9)
        group = temperature(X[test])
        hits += np.bincount(group, _inside(ends, y[test]), 3)
        rows += np.bincount(group, minlength=3)
    margin = 4 * np.sqrt(0.9 * 0.1 * (1 / 500 + 1 / 2500))
    np.testing.assert_allclose(hits / rows, 0.9, atol=margin)
