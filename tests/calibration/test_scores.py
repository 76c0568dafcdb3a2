"""Conformity scores: one shape for all, right where units vanish and ends cross."""

from typing import Any

import numpy as np
import pytest
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import (
    BayesianRidge,
    LinearRegression,
    QuantileRegressor,
    Ridge,
)
from sklearn.model_selection import cross_val_predict

from uqformer.calibration._scores import Band, ScoreModel, as_columns, uncross


def _column(*values: float) -> Any:
    return np.array(values)[:, None]


def _model(score: Any, estimator: Any, **options: Any) -> ScoreModel:
    settings = {
        "spread_estimator": None,
        "quantile_estimators": None,
        "spread_floor": 0.0,
        "n_outputs": 1,
    }
    return ScoreModel(score, estimator, **(settings | options))


@pytest.fixture(scope="module")
def line() -> Any:
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(60, 2))
    return X, X @ [1.0, 2.0] + (0.5 + X[:, 0] ** 2) * rng.standard_normal(60)


def test_the_score_is_the_radius_that_reaches_the_target() -> None:
    band = Band(_column(0, 0, 0, 5), _column(1, 1, 1, 5), _column(1, 2, 1, 2))
    scores = band.scores(_column(0.25, 4, -2, 5))
    assert scores[:, 0].tolist() == [-0.25, 1.5, 2, 0]
    for row, score in enumerate(scores[:, 0]):
        ends = band.widened(np.array([score]))[row, :, 0]
        target = [0.25, 4, -2, 5][row]
        assert target in ends.tolist()


def test_a_unit_of_zero_cannot_reach_anything() -> None:
    band = Band(_column(1, 1), _column(1, 1), _column(0, 0))
    assert band.scores(_column(1, 2))[:, 0].tolist() == [0, np.inf]
    assert band.widened(np.array([3.0]))[:, :, 0].tolist() == [[1, 1], [1, 1]]
    assert band.widened(np.array([np.inf]))[0, :, 0].tolist() == [-np.inf, np.inf]


def test_ends_that_cross_meet_in_the_middle() -> None:
    # field note: bounds came out in the wrong order after conformalised quantiles
    ends = uncross(_column(0, 3, -np.inf), _column(1, 1, np.inf))
    assert ends[:, :, 0].tolist() == [[0, 1], [2, 2], [-np.inf, np.inf]]
    narrowed = Band(_column(0), _column(4), _column(1)).widened(np.array([-3.0]))
    assert narrowed[0, :, 0].tolist() == [2, 2]


def test_a_point_band_is_the_point(line: Any) -> None:
    X, y = line
    model = _model("absolute", LinearRegression()).fit(X, y, {})
    band = model.band(X, 0.9)
    point = LinearRegression().fit(X, y).predict(X)
    np.testing.assert_allclose(band.lower[:, 0], point)
    np.testing.assert_array_equal(band.lower, band.upper)
    np.testing.assert_array_equal(band.unit, 1)
    assert not model.depends_on_level()


def test_the_unit_is_the_predicted_spread_with_its_floor(line: Any) -> None:
    X, y = line
    model = _model("spread", BayesianRidge(), spread_floor=0.3).fit(X, y, {})
    mean, std = BayesianRidge().fit(X, y).predict(X, return_std=True)
    band = model.band(X, 0.9)
    np.testing.assert_allclose(band.lower[:, 0], mean)
    np.testing.assert_allclose(band.unit[:, 0], np.hypot(std, 0.3))


def test_a_spread_estimator_learns_from_honest_errors(line: Any) -> None:
    X, y = line
    model = _model(
        "spread", LinearRegression(), spread_estimator=LinearRegression()
    ).fit(X, y, {})
    errors = np.abs(y - cross_val_predict(LinearRegression(), X, y))
    expected = LinearRegression().fit(X, errors).predict(X)
    np.testing.assert_allclose(
        model.band(X, 0.9).unit[:, 0], np.maximum(expected, 0), atol=1e-12
    )


def test_weights_reach_the_fits_behind_honest_errors(line: Any) -> None:
    X, y = line
    weight = np.where(y > 0, 1.0, 0.0)
    model = _model("spread", Ridge(), spread_estimator=LinearRegression())
    model.fit(X, y, {"sample_weight": weight})
    both = {"sample_weight": weight}
    errors = np.abs(y - cross_val_predict(Ridge(), X, y, params=both))
    expected = LinearRegression().fit(X, errors).predict(X)
    unit = model.band(X, 0.9).unit[:, 0]
    np.testing.assert_allclose(unit, np.maximum(expected, 0), atol=1e-12)


def test_a_frozen_spread_estimator_is_left_alone(line: Any) -> None:
    X, y = line
    spread = FrozenEstimator(LinearRegression().fit(X, np.ones(60)))
    model = _model("spread", FrozenEstimator(LinearRegression().fit(X, y)))
    model.spread_estimator = spread
    assert model.is_frozen()
    np.testing.assert_allclose(model.fit(X, y, {}).band(X, 0.5).unit, 1)


def test_quantile_estimators_may_cross(line: Any) -> None:
    X, y = line
    pair = [QuantileRegressor(quantile=q, alpha=0) for q in (0.9, 0.1)]  # turned around
    model = _model("quantile", LinearRegression(), quantile_estimators=pair)
    band = model.fit(X, y, {}).band(X, 0.9)
    assert (band.lower <= band.upper).all()
    assert np.mean(y[:, None] < band.lower) == pytest.approx(0.1, abs=0.05)
    assert not model.depends_on_level()


class _AnyLevel(RegressorMixin, BaseEstimator):
    def fit(self, X: Any, y: Any) -> Any:
        self.fitted_ = True
        return self

    def predict(self, X: Any) -> Any:
        return np.zeros(len(X))

    def predict_interval(self, X: Any, confidence_level: float = 0.9) -> Any:
        return np.tile([-confidence_level, confidence_level], (len(X), 1))


def test_an_estimator_with_intervals_gives_a_band_for_each_level(line: Any) -> None:
    X, y = line
    model = _model("quantile", _AnyLevel()).fit(X, y, {})
    assert model.depends_on_level()
    assert model.band(X[:1], 0.5).upper.tolist() == [[0.5]]
    assert model.band(X[:1], 0.8).lower.tolist() == [[-0.8]]


@pytest.mark.parametrize(
    ("predicted", "n_outputs", "complaint"),
    [
        (np.zeros((5, 2)), 1, r"shape \(5,\); got shape \(5, 2\). If it is a mean and"),
        (np.zeros(5), 2, r"shape \(5, 2\); got shape \(5,\)\.$"),
        (np.zeros((5, 3)), 1, r"shape \(5,\); got shape \(5, 3\)\.$"),
    ],
)
def test_predictions_of_another_shape_are_named(
    predicted: Any, n_outputs: int, complaint: str
) -> None:
    # field note: models that return a mean beside a variance broke without a word
    with pytest.raises(ValueError, match=f"Ridge.predict must .*{complaint}"):
        as_columns(predicted, n_outputs, "Ridge")


def test_float32_loses_nothing() -> None:
    # field note: float32 targets and predictions were refused as inconsistent
    point = np.float32([0.1, 1e6])
    columns = as_columns(point, 1, "Ridge")
    assert columns.dtype == np.float64
    band = Band(columns, columns, np.ones((2, 1)))
    y = np.float32([[0.3], [1e6 + 1]]).astype(np.float64)
    assert band.scores(y)[:, 0] == pytest.approx([0.2, 1], rel=1e-6)
