"""The seasonal forecast against a loop, scikit-learn's contract, and a real series."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from uqformer.calibration import ConformalRegressor
from uqformer.datasets import fetch_ett
from uqformer.metrics import coverage_score
from uqformer.series import SeasonalNaiveRegressor, make_windows

SERIES = np.random.default_rng(0).standard_normal((40, 3))


@parametrize_with_checks([SeasonalNaiveRegressor()])
def test_estimator_keeps_the_contract_of_sklearn(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.mark.parametrize("period", [1, 3, 7])
@pytest.mark.parametrize("horizon", [1, 2, 9])
@pytest.mark.parametrize("target", [None, 1, [2, 0]])
def test_forecasts_are_those_of_a_loop(period: int, horizon: int, target: Any) -> None:
    X, y, first = make_windows(SERIES, context_length=8, horizon=horizon, target=target)
    naive = SeasonalNaiveRegressor(period, target=target).fit(X, y)
    y_pred = naive.predict(X)
    assert y_pred.shape == y.shape
    channels = {None: [0, 1, 2], 1: [1]}.get(target if target != [2, 0] else 2, [2, 0])
    for row, start in enumerate(first):
        expected = [
            SERIES[start - period + h % period, channel]
            for h in range(horizon)
            for channel in channels
        ]
        np.testing.assert_array_equal(y_pred[row], expected)


def test_flat_targets_give_flat_forecasts() -> None:
    X, y, _ = make_windows(SERIES[:, 0], context_length=8, horizon=1)
    flat = SeasonalNaiveRegressor(2).fit(X, y[:, 0]).predict(X)
    assert flat.shape == (len(X),)
    np.testing.assert_array_equal(flat, X[:, -2, 0])
    # a table is windows of one channel
    table = SeasonalNaiveRegressor(2).fit(X[..., 0], y).predict(X[..., 0])
    np.testing.assert_array_equal(table[:, 0], flat)


def test_a_window_must_hold_a_period() -> None:
    X, y, _ = make_windows(SERIES[:, 0], context_length=8, horizon=1)
    with pytest.raises(ValueError, match="at least period=9 steps a window; got 8"):
        SeasonalNaiveRegressor(9).fit(X, y)


def test_targets_must_fit_the_columns() -> None:
    X, y, _ = make_windows(SERIES, context_length=8, horizon=2, target=1)
    with pytest.raises(
        ValueError, match=r"for each of 3 targets; got 2. Name the chann"
    ):
        SeasonalNaiveRegressor().fit(X, y)
    with pytest.raises(ValueError, match="target must name channels"):
        SeasonalNaiveRegressor(target=3).fit(X, y)


def test_channels_must_be_those_of_fit() -> None:
    X, y, _ = make_windows(SERIES, context_length=8, horizon=2)
    naive = SeasonalNaiveRegressor().fit(X, y)
    with pytest.raises(ValueError, match="must have 3 channels as in fit; got 2"):
        naive.predict(X[..., :2])
    with pytest.raises(ValueError, match="must have shape"):
        naive.predict(X[..., None])


def test_it_beats_the_mean_on_a_real_series_and_can_be_calibrated(
    monkeypatch: pytest.MonkeyPatch, uci_dir: Path
) -> None:
    ett = fetch_ett(data_home=uci_dir.parent, download_if_missing=False)
    X, y, first = make_windows(ett.frame["OT"], context_length=48, horizon=24, step=24)
    train = first < ett.test_indices[0] - 24
    test = np.isin(first, ett.test_indices)
    naive = SeasonalNaiveRegressor(24).fit(X[train], y[train])
    error = np.abs(naive.predict(X[test]) - y[test]).mean()
    assert error < 0.5 * np.abs(y[train].mean() - y[test]).mean()
    conformal = ConformalRegressor(naive, random_state=0).fit(X[train], y[train, 0])
    covered = coverage_score(y[test, 0], conformal.predict_interval(X[test]))
    assert 0.8 < covered <= 1
