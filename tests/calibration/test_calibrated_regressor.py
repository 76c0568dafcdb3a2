"""CalibratedRegressor: one distribution behind every verb, and better than it came."""

import pickle
from typing import Any

import numpy as np
import pytest
from scipy import stats
from sklearn import config_context
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.frozen import FrozenEstimator
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import DotProduct
from sklearn.linear_model import BayesianRidge, Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from uqformer import predict_interval
from uqformer.calibration import CalibratedRegressor, SpreadCalibrator
from uqformer.metrics import crps_normal_loss, pinball_loss, winkler_loss
from uqformer.scorers import get_scorer

CALIBRATORS = ["location_scale", "spread", "quantile"]
LEVELS = np.arange(0.05, 1, 0.1)


class GaussianProcess(GaussianProcessRegressor):
    """scikit-learn's, with intervals for any level."""

    def predict_interval(self, X: Any, confidence_level: Any = 0.9) -> Any:
        mean, std = self.predict(X, return_std=True)
        levels = np.asarray(confidence_level, dtype=float)
        half = std.reshape(-1, *[1] * levels.ndim) * stats.norm.ppf((1 + levels) / 2)
        mean = mean.reshape(-1, *[1] * levels.ndim)
        return np.stack([mean - half, mean + half], axis=1)


class TooSure(RegressorMixin, BaseEstimator):
    """Knows how the errors of `_data` differ, and takes them for a quarter as large."""

    def __init__(self, bias: float = -1.0) -> None:
        self.bias = bias

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        self.seen_ = None if sample_weight is None else np.asarray(sample_weight)
        return self

    def predict(self, X: Any, return_std: bool = False) -> Any:
        X = np.asarray(X)
        mean, std = X[:, 0] + self.bias, 0.25 * (0.2 + np.abs(X[:, 0]))
        return (mean, std) if return_std else mean

    predict_interval = GaussianProcess.predict_interval


def _data(n_rows: int, *, skewed: bool = False, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, size=(n_rows, 1))
    noise = rng.exponential(size=n_rows) if skewed else rng.standard_normal(n_rows)
    return X, X[:, 0] + (0.2 + np.abs(X[:, 0])) * noise


@parametrize_with_checks(
    [
        CalibratedRegressor(
            GaussianProcess(DotProduct(), alpha=0.1, optimizer=None),
            calibrator=calibrator,
        )
        for calibrator in ("location_scale", "quantile")
    ]
)
def test_estimator_keeps_the_contract_of_sklearn(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.mark.parametrize("calibrator", CALIBRATORS)
def test_quantiles_have_their_share_below(calibrator: Any) -> None:
    X, y = _data(6000)
    model = CalibratedRegressor(FrozenEstimator(TooSure().fit(X, y)))
    model.set_params(calibrator=calibrator).fit(X[:3000], y[:3000])
    below = np.mean(y[3000:, None] <= model.predict_quantiles(X[3000:], LEVELS), axis=0)
    if calibrator == "spread":  # it leaves the mean one too low
        assert below[5] < 0.4
    else:
        np.testing.assert_allclose(below, LEVELS, atol=0.045)


def test_shape_is_for_the_quantile_calibrator() -> None:
    X, y = _data(8000, skewed=True)
    inner = FrozenEstimator(TooSure(bias=0.0).fit(X, y))
    losses = {}
    for calibrator in CALIBRATORS:
        model = CalibratedRegressor(inner, calibrator=calibrator)
        model.fit(X[:4000], y[:4000])
        read = model.predict_quantiles(X[4000:], LEVELS)
        losses[calibrator] = pinball_loss(y[4000:], read, quantiles=LEVELS)
    assert losses["quantile"] < 0.97 * losses["location_scale"]
    assert losses["location_scale"] < 0.9 * losses["spread"]
    truth = X[4000:] + (0.2 + np.abs(X[4000:])) * stats.expon.ppf(LEVELS)
    ideal = pinball_loss(y[4000:], truth, quantiles=LEVELS)
    assert losses["quantile"] == pytest.approx(ideal, rel=0.02)


@pytest.mark.parametrize("calibrator", CALIBRATORS)
def test_every_verb_tells_of_one_distribution(calibrator: Any) -> None:
    X, y = _data(400)
    model = CalibratedRegressor(TooSure(), calibrator=calibrator, random_state=0)
    model.fit(X, y)
    ends = model.predict_interval(X[:9], [0.5, 0.9])
    assert ends.shape == (9, 2, 2)
    quantiles = model.predict_quantiles(X[:9], [0.25, 0.05, 0.75, 0.95])
    np.testing.assert_allclose(ends[:, 0], quantiles[:, :2])
    np.testing.assert_allclose(ends[:, 1], quantiles[:, 2:])
    mean, std = model.predict(X[:9], return_std=True)
    np.testing.assert_allclose(mean, model.predict(X[:9]))
    np.testing.assert_allclose(mean, model.predict_quantiles(X[:9], 0.5))
    one_sigma = model.predict_interval(X[:9], stats.norm.cdf(1) - stats.norm.cdf(-1))
    np.testing.assert_allclose(std, np.diff(one_sigma, axis=1)[:, 0] / 2)
    assert model.predict_interval(X[:1]).shape == (1, 2)
    assert model.predict_quantiles(X[:1], 0.1).shape == (1,)


def test_a_normal_distribution_is_that_of_its_calibrator() -> None:
    X, y = _data(300)
    inner = TooSure().fit(X, y)
    model = CalibratedRegressor(FrozenEstimator(inner), calibrator="spread").fit(X, y)
    columns = np.column_stack(inner.predict(X, return_std=True))
    expected = SpreadCalibrator(input="mean_std").fit(columns, y).transform(columns)
    mean, std = model.predict(X, return_std=True)
    np.testing.assert_allclose(np.column_stack([mean, std]), expected)
    np.testing.assert_allclose(
        model.predict_quantiles(X, LEVELS),
        stats.norm.ppf(LEVELS, mean[:, None], std[:, None]),
    )
    assert crps_normal_loss(y, mean, std) < crps_normal_loss(y, *columns.T)


def test_only_kept_rows_calibrate() -> None:
    X, y = _data(200)
    weight = np.arange(200.0)
    model = CalibratedRegressor(TooSure(), calibration_fraction=0.3, random_state=0)
    model.fit(X, y, sample_weight=weight)
    trained = model.estimator_.seen_.astype(int)
    assert len(trained) == 140
    kept = np.setdiff1d(np.arange(200), trained)
    alone = CalibratedRegressor(FrozenEstimator(TooSure().fit(X, y)))
    alone.fit(X[kept], y[kept])
    np.testing.assert_allclose(alone.predict(X), model.predict(X), rtol=1e-4)


def test_metadata_is_routed() -> None:
    X, y = _data(50)
    with config_context(enable_metadata_routing=True):
        inner = TooSure().set_fit_request(sample_weight=True)
        model = CalibratedRegressor(inner, random_state=0)
        model.fit(X, y, sample_weight=np.ones(50))
        assert model.estimator_.seen_.tolist() == [1.0] * 40


def test_pipelines_searches_and_transformed_targets() -> None:
    X, y = _data(300)
    model = CalibratedRegressor(
        make_pipeline(StandardScaler(), BayesianRidge()), random_state=0
    )
    search = GridSearchCV(
        model,
        {"calibrator": ["spread", "location_scale"]},
        scoring=get_scorer("neg_gaussian_nll_loss"),
    ).fit(X, y)
    assert predict_interval(search, X, 0.8).shape == (300, 2)
    positive = np.exp(y)
    log = {"func": np.log, "inverse_func": np.exp}
    outside = TransformedTargetRegressor(CalibratedRegressor(TooSure()), **log)
    inside = CalibratedRegressor(
        TransformedTargetRegressor(TooSure(), **log), calibrator="quantile"
    )
    for model in (outside, inside):
        ends = predict_interval(model.fit(X, positive), X)
        assert winkler_loss(positive, ends) < np.inf
        assert np.mean((ends[:, 0] <= positive) & (positive <= ends[:, 1])) > 0.8
    piped = make_pipeline(StandardScaler(), CalibratedRegressor(BayesianRidge()))
    mean, std = piped.fit(X, y).predict(X, return_std=True)
    assert mean.shape == std.shape == (300,)


def test_it_clones_and_pickles() -> None:
    X, y = _data(200)
    model = clone(CalibratedRegressor(TooSure(), calibrator="quantile", random_state=0))
    model.fit(X, y)
    copy = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(copy.predict_interval(X), model.predict_interval(X))


def test_an_estimator_without_uncertainty_says_so() -> None:
    X, y = _data(50)
    with pytest.raises(AttributeError, match="must offer predict with return_std"):
        CalibratedRegressor(Ridge()).fit(X, y)
    with pytest.raises(AttributeError, match="must offer predict_interval"):
        CalibratedRegressor(Ridge(), calibrator="quantile").fit(X, y)
    with pytest.raises(ValueError, match="'calibrator' parameter"):
        CalibratedRegressor(Ridge(), calibrator="platt").fit(X, y)
