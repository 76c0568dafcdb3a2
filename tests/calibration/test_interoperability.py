"""Same calibration rows, same intervals as MAPIE and crepes; and they take ours."""

from typing import Any

import numpy as np
import pytest
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import BayesianRidge, LinearRegression, QuantileRegressor
from sklearn.model_selection import KFold

from uqformer.calibration import ConformalRegressor

LEVELS = [0.5, 0.9]
TRAIN, CALIBRATION, NEW = slice(0, 100), slice(100, 199), slice(199, 260)


@pytest.fixture(scope="module")
def line() -> Any:
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(260, 3))
    return X, X @ [1.0, 2.0, 3.0] + (0.2 + np.abs(X[:, 0])) * rng.standard_normal(260)


def _calm(X: Any) -> Any:
    return (np.abs(X[:, 0]) < 0.5).astype(int)


# -- MAPIE --------------------------------------------------------------------------


def test_split_intervals_are_those_of_mapie(line: Any) -> None:
    mapie = pytest.importorskip("mapie.regression")
    X, y = line
    trained = LinearRegression().fit(X[TRAIN], y[TRAIN])
    ours = ConformalRegressor(FrozenEstimator(trained))
    ours.fit(X[CALIBRATION], y[CALIBRATION])
    theirs = mapie.SplitConformalRegressor(trained, LEVELS, prefit=True)
    theirs.conformalize(X[CALIBRATION], y[CALIBRATION])
    point, ends = theirs.predict_interval(X[NEW])
    np.testing.assert_allclose(ours.predict(X[NEW]), point)
    np.testing.assert_allclose(ours.predict_interval(X[NEW], LEVELS), ends)


def test_cv_plus_intervals_are_those_of_mapie(line: Any) -> None:
    mapie = pytest.importorskip("mapie.regression")
    X, y = line
    folds = KFold(5, shuffle=True, random_state=1)
    ours = ConformalRegressor(LinearRegression(), method="cv+", cv=folds)
    theirs = mapie.CrossConformalRegressor(LinearRegression(), LEVELS, cv=folds)
    theirs.fit_conformalize(X[:199], y[:199])
    _, ends = theirs.predict_interval(X[NEW])
    np.testing.assert_allclose(
        ours.fit(X[:199], y[:199]).predict_interval(X[NEW], LEVELS), ends
    )


def test_bootstrap_intervals_are_those_of_mapie(line: Any) -> None:
    mapie = pytest.importorskip("mapie.regression")
    from mapie.subsample import Subsample

    X, y = line
    # a splitter makes ours take their bootstraps: rows held out by several models
    drawn = Subsample(n_resamplings=20, random_state=3)
    splits = list(drawn.split(X[:199]))
    ours = ConformalRegressor(LinearRegression(), method="cv+", cv=splits)
    theirs = mapie.JackknifeAfterBootstrapRegressor(
        LinearRegression(), LEVELS, resampling=drawn
    ).fit_conformalize(X[:199], y[:199])
    _, ends = theirs.predict_interval(X[NEW])
    np.testing.assert_allclose(
        ours.fit(X[:199], y[:199]).predict_interval(X[NEW], LEVELS), ends
    )


def test_conformalised_quantiles_are_those_of_mapie(line: Any) -> None:
    mapie = pytest.importorskip("mapie.regression")
    X, y = line
    lower, upper, median = (
        QuantileRegressor(quantile=q, alpha=0).fit(X[TRAIN], y[TRAIN])
        for q in (0.05, 0.95, 0.5)
    )
    ours = ConformalRegressor(
        FrozenEstimator(median),
        conformity_score="quantile",
        quantile_estimators=[FrozenEstimator(lower), FrozenEstimator(upper)],
    ).fit(X[CALIBRATION], y[CALIBRATION])
    theirs = mapie.ConformalizedQuantileRegressor(
        [lower, upper, median], 0.9, prefit=True
    ).conformalize(X[CALIBRATION], y[CALIBRATION])
    _, ends = theirs.predict_interval(X[NEW], symmetric_correction=True)
    np.testing.assert_allclose(ours.predict_interval(X[NEW], 0.9), ends[:, :, 0])


# -- crepes -------------------------------------------------------------------------

# at 0.75 the rank of crepes, a difference of floats, is not one too high
CREPES_LEVEL = 0.75


def test_split_intervals_are_those_of_crepes(line: Any) -> None:
    crepes = pytest.importorskip("crepes")
    X, y = line
    trained = LinearRegression().fit(X[TRAIN], y[TRAIN])
    ours = ConformalRegressor(FrozenEstimator(trained))
    ours.fit(X[CALIBRATION], y[CALIBRATION])
    theirs = crepes.WrapRegressor(trained)
    theirs.calibrate(X[CALIBRATION], y[CALIBRATION])
    np.testing.assert_allclose(
        ours.predict_interval(X[NEW], CREPES_LEVEL),
        theirs.predict_int(X[NEW], confidence=CREPES_LEVEL),
    )


def test_mondrian_normalised_intervals_are_those_of_crepes(line: Any) -> None:
    crepes = pytest.importorskip("crepes")
    X, y = line
    trained = BayesianRidge().fit(X[TRAIN], y[TRAIN])
    ours = ConformalRegressor(
        FrozenEstimator(trained), conformity_score="spread", group_by=_calm
    ).fit(X[CALIBRATION], y[CALIBRATION])
    mean, std = trained.predict(X, return_std=True)
    theirs = crepes.ConformalRegressor().fit(
        (y - mean)[CALIBRATION], sigmas=std[CALIBRATION], bins=_calm(X[CALIBRATION])
    )
    ends = theirs.predict_int(
        mean[NEW], sigmas=std[NEW], bins=_calm(X[NEW]), confidence=CREPES_LEVEL
    )
    np.testing.assert_allclose(ours.predict_interval(X[NEW], CREPES_LEVEL), ends)


# -- Our transformer inside theirs --------------------------------------------------


@pytest.fixture(scope="module")
def transformer(line: Any) -> Any:
    from uqformer import StochasticAttentionRegressor

    X, y = line
    model = StochasticAttentionRegressor(
        max_epochs=3, n_members=4, n_draws=8, interval="ensemble", random_state=0,
        backbone_params={"d_token": 16, "n_heads": 2, "n_blocks": 1},
    )  # fmt: skip
    return model.fit(X[TRAIN], y[TRAIN])


@pytest.mark.filterwarnings("ignore::uqformer.exceptions.UQFormerWarning")
def test_a_transformer_runs_inside_mapie(line: Any, transformer: Any) -> None:
    mapie = pytest.importorskip("mapie.regression")
    X, y = line
    theirs = mapie.SplitConformalRegressor(transformer, LEVELS, prefit=True)
    theirs.conformalize(X[CALIBRATION], y[CALIBRATION])
    point, ends = theirs.predict_interval(X[NEW])
    np.testing.assert_allclose(point, transformer.predict(X[NEW]))
    ours = ConformalRegressor(FrozenEstimator(transformer))
    ours.fit(X[CALIBRATION], y[CALIBRATION])
    np.testing.assert_allclose(ours.predict_interval(X[NEW], LEVELS), ends, rtol=1e-6)


@pytest.mark.filterwarnings("ignore::uqformer.exceptions.UQFormerWarning")
def test_a_transformer_runs_inside_crepes(line: Any, transformer: Any) -> None:
    crepes = pytest.importorskip("crepes")
    X, y = line
    theirs = crepes.WrapRegressor(transformer)
    theirs.calibrate(X[CALIBRATION], y[CALIBRATION])
    ends = theirs.predict_int(X[NEW], confidence=CREPES_LEVEL)
    ours = ConformalRegressor(FrozenEstimator(transformer))
    ours.fit(X[CALIBRATION], y[CALIBRATION])
    np.testing.assert_allclose(
        ours.predict_interval(X[NEW], CREPES_LEVEL), ends, rtol=1e-6
    )


@pytest.mark.filterwarnings("ignore::uqformer.exceptions.UQFormerWarning")
def test_a_transformer_runs_inside_our_wrappers(line: Any, transformer: Any) -> None:
    from uqformer.calibration import CalibratedRegressor

    X, y = line
    frozen = FrozenEstimator(transformer)
    for score in ("absolute", "spread", "quantile"):
        model = ConformalRegressor(frozen, conformity_score=score)
        ends = model.fit(X[CALIBRATION], y[CALIBRATION]).predict_interval(X[NEW])
        covered = (ends[:, 0] <= y[NEW]) & (y[NEW] <= ends[:, 1])
        assert covered.mean() > 0.75
    for calibrator in ("location_scale", "spread", "quantile"):
        model = CalibratedRegressor(frozen, calibrator=calibrator)
        model.fit(X[CALIBRATION], y[CALIBRATION])
        assert model.predict_quantiles(X[NEW], [0.1, 0.9]).shape == (61, 2)
