"""Many models: the papers' definitions written out, memory, groups."""

import math
import tracemalloc
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import BayesianRidge, LinearRegression, QuantileRegressor
from sklearn.model_selection import KFold, LeaveOneOut

from uqformer.calibration import ConformalRegressor
from uqformer.calibration import _cross as cross
from uqformer.exceptions import InsufficientCalibrationError

LEVELS = [0.5, 0.8, 0.9]


@pytest.fixture(scope="module")
def line() -> Any:
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(59, 2))
    y = X @ [1.0, 2.0] + (0.3 + np.abs(X[:, 0])) * rng.standard_normal(59)
    return X[:40], y[:40], X[40:]


def _plus(lower: Any, upper: Any, level: float) -> Any:
    """Quantiles of Barber et al. 2021, equation 6, for alpha = 1 - level."""
    n = len(lower)
    k = math.ceil(round((n + 1) * level, 9))
    j = math.floor(round((n + 1) * (1 - level), 9))
    low = np.sort(lower, axis=0)[j - 1]
    high = np.sort(upper, axis=0)[k - 1]
    return np.stack([low, high], axis=1)


def test_cv_plus_is_its_definition(line: Any) -> None:
    X, y, X_new = line
    folds = KFold(4, shuffle=True, random_state=1)
    model = ConformalRegressor(LinearRegression(), method="cv+", cv=folds).fit(X, y)
    lower, upper = np.empty((2, len(X), len(X_new)))
    for train, test in folds.split(X):
        fold = LinearRegression().fit(X[train], y[train])
        residuals = np.abs(y[test] - fold.predict(X[test]))
        lower[test] = fold.predict(X_new) - residuals[:, None]
        upper[test] = fold.predict(X_new) + residuals[:, None]
    ends = model.predict_interval(X_new, LEVELS)
    for k, level in enumerate(LEVELS):
        np.testing.assert_allclose(ends[:, :, k], _plus(lower, upper, level))


def test_leave_one_out_is_the_jackknife_plus(line: Any) -> None:
    X, y, X_new = line
    model = ConformalRegressor(LinearRegression(), method="cv+", cv=LeaveOneOut())
    ends = model.fit(X, y).predict_interval(X_new, LEVELS)
    lower, upper = np.empty((2, len(X), len(X_new)))
    for i in range(len(X)):
        rest = np.arange(len(X)) != i
        without = LinearRegression().fit(X[rest], y[rest])
        residual = abs(y[i] - without.predict(X[i : i + 1])[0])
        lower[i] = without.predict(X_new) - residual
        upper[i] = without.predict(X_new) + residual
    for k, level in enumerate(LEVELS):
        np.testing.assert_allclose(ends[:, :, k], _plus(lower, upper, level))


def test_jackknife_plus_after_bootstrap_is_its_definition(line: Any) -> None:
    X, y, X_new = line
    model = ConformalRegressor(
        LinearRegression(), method="jackknife+ab", n_resamplings=12, random_state=3
    ).fit(X, y)
    splits = cross.bootstrap_splits(len(X), 12, np.random.RandomState(3))
    fitted = [LinearRegression().fit(X[drawn], y[drawn]) for drawn, _ in splits]
    lower, upper = [], []
    for i in range(len(X)):
        without = [m for m, (drawn, _) in zip(fitted, splits, strict=True)
                   if i not in drawn]  # fmt: skip
        if not without:
            continue
        residual = abs(y[i] - np.mean([m.predict(X[i : i + 1]) for m in without]))
        point = np.mean([m.predict(X_new) for m in without], axis=0)
        lower.append(point - residual)
        upper.append(point + residual)
    ends = model.predict_interval(X_new, LEVELS)
    for k, level in enumerate(LEVELS):
        expected = _plus(np.array(lower), np.array(upper), level)
        np.testing.assert_allclose(ends[:, :, k], expected)
    np.testing.assert_allclose(
        model.predict(X_new), np.mean([m.predict(X_new) for m in fitted], axis=0)
    )


def test_a_row_that_every_bootstrap_drew_does_not_calibrate(line: Any) -> None:
    X, y, _ = line
    model = ConformalRegressor(
        LinearRegression(), method="jackknife+ab", n_resamplings=2, random_state=0
    ).fit(X, y)
    splits = cross.bootstrap_splits(len(X), 2, np.random.RandomState(0))
    left_out = set(splits[0][1]) | set(splits[1][1])
    assert model.n_calibration_ == len(left_out) < len(X)


def test_a_bootstrap_draws_as_many_rows_as_there_are() -> None:
    splits = cross.bootstrap_splits(500, 40, np.random.RandomState(0))
    assert all(len(drawn) == 500 for drawn, _ in splits)
    assert all(not set(drawn) & set(out) for drawn, out in splits)
    share = np.mean([len(out) / 500 for _, out in splits])
    assert share == pytest.approx(math.exp(-1), abs=0.01)


def test_spreads_go_through_the_folds(line: Any) -> None:
    X, y, X_new = line
    folds = KFold(4)
    model = ConformalRegressor(
        BayesianRidge(), conformity_score="spread", method="cv+", cv=folds
    ).fit(X, y)
    lower, upper = np.empty((2, len(X), len(X_new)))
    for train, test in folds.split(X):
        fold = BayesianRidge().fit(X[train], y[train])
        mean, std = fold.predict(X[test], return_std=True)
        scores = np.abs(y[test] - mean) / std
        mean, std = fold.predict(X_new, return_std=True)
        lower[test] = mean - scores[:, None] * std
        upper[test] = mean + scores[:, None] * std
    ends = model.predict_interval(X_new, 0.8)
    np.testing.assert_allclose(ends, _plus(lower, upper, 0.8))


def test_conformalised_quantiles_go_through_the_folds(line: Any) -> None:
    X, y, X_new = line
    folds = KFold(4)
    pair = [QuantileRegressor(quantile=q, alpha=0) for q in (0.2, 0.8)]
    model = ConformalRegressor(
        LinearRegression(),
        conformity_score="quantile",
        quantile_estimators=pair,
        method="cv+",
        cv=folds,
    ).fit(X, y)
    lower, upper = np.empty((2, len(X), len(X_new)))
    for train, test in folds.split(X):
        low, high = (clone(part).fit(X[train], y[train]) for part in pair)
        scores = np.maximum(
            low.predict(X[test]) - y[test], y[test] - high.predict(X[test])
        )
        lower[test] = low.predict(X_new) - scores[:, None]
        upper[test] = high.predict(X_new) + scores[:, None]
    ends = model.predict_interval(X_new, 0.7)
    np.testing.assert_allclose(ends, _plus(lower, upper, 0.7))


def test_with_one_model_the_plus_quantiles_are_those_of_split(line: Any) -> None:
    X, y, X_new = line
    model = ConformalRegressor(LinearRegression(), random_state=0).fit(X, y)
    (point,) = [e.predict(X_new) for e in model.estimators_]
    scores = model.conformal_.scores(0.8)
    expected = _plus(point - scores, point + scores, 0.8)
    np.testing.assert_allclose(model.predict_interval(X_new, 0.8), expected)


def test_too_high_a_level_is_refused_for_many_models_too(line: Any) -> None:
    X, y, X_new = line
    model = ConformalRegressor(LinearRegression(), method="cv+").fit(X, y)
    expected = r"confidence_level=0.99 needs at least 99 calibration rows; got 40"
    with pytest.raises(InsufficientCalibrationError, match=expected):
        model.predict_interval(X_new, [0.5, 0.99])


def test_batches_change_nothing(line: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    X, y, X_new = line
    options = {"group_by": lambda X: X[:, 0] > 0, "method": "cv+", "random_state": 0}
    model = ConformalRegressor(LinearRegression(), **options).fit(X, y)
    whole = model.predict_interval(X_new, LEVELS)
    monkeypatch.setattr(cross, "CELLS", 3 * len(X))
    np.testing.assert_allclose(model.predict_interval(X_new, LEVELS), whole, rtol=1e-12)


def test_memory_does_not_grow_with_calibration_times_new_rows() -> None:
    # field note: arrays of n_train x n_test numbers ended processes without a word
    rng = np.random.default_rng(0)
    X, X_new = rng.uniform(size=(3000, 1)), rng.uniform(size=(5000, 1))
    model = ConformalRegressor(LinearRegression(), method="cv+", random_state=0)
    model.fit(X, X[:, 0] + rng.standard_normal(3000))
    tracemalloc.start()
    model.predict_interval(X_new)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 10 * cross.CELLS * 8 < 3000 * 5000 * 8
