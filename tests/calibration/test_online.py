"""Adaptive conformal inference: the bound that holds for any series, loop and batch."""

import pickle
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import BayesianRidge, LinearRegression, Ridge
from sklearn.metrics import r2_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from uqformer import predict_interval
from uqformer.calibration import AdaptiveOnlineConformal, ConformalRegressor
from uqformer.metrics import coverage_score
from uqformer.scorers import get_scorer


@parametrize_with_checks([AdaptiveOnlineConformal(LinearRegression())])
def test_estimator_keeps_the_contract_of_sklearn(estimator: Any, check: Any) -> None:
    check(estimator)


def _drifting(n_rows: int, seed: int = 0) -> Any:
    """A line whose noise grows fourfold and whose level jumps halfway."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(n_rows, 1))
    time = np.arange(n_rows) / n_rows
    noise = (1 + 3 * time) * rng.standard_normal(n_rows)
    return X, X[:, 0] + noise + 4.0 * (time > 0.5)


def _started(X: Any, y: Any, **options: Any) -> AdaptiveOnlineConformal:
    return AdaptiveOnlineConformal(LinearRegression(), **options).fit(X, y)


def test_long_run_coverage_holds_under_drift() -> None:
    X, y = _drifting(6000)
    online = _started(X[:500], y[:500], step_size=0.02)
    ends = online.predict_interval_online(X[500:], y[500:])
    assert coverage_score(y[500:], ends) == pytest.approx(0.9, abs=0.01)
    fixed = ConformalRegressor(LinearRegression(), random_state=0).fit(X[:500], y[:500])
    assert coverage_score(y[500:], fixed.predict_interval(X[500:])) < 0.6
    # and in every stretch about as well, where the fixed one fails for good
    stretches = np.split((ends[:, 0] <= y[500:]) & (y[500:] <= ends[:, 1]), 11)
    assert min(stretch.mean() for stretch in stretches) > 0.85


@pytest.mark.parametrize("delay", [1, 7, 60])
@pytest.mark.parametrize("step_size", [0.005, 0.05, 0.5])
@pytest.mark.parametrize("series", ["drift", "constant", "explosion", "adversary"])
def test_the_bound_of_the_paper_holds_for_any_series(
    series: str, step_size: float, delay: int
) -> None:
    n_rows, level = 600, 0.8
    X, y = _drifting(n_rows)
    if series == "constant":
        y = np.full(n_rows, y.mean())
    if series == "explosion":
        y = y * np.exp(np.arange(n_rows) / 50)
    if series == "adversary":
        y = np.random.default_rng(1).permutation(y) + np.arange(n_rows) ** 2
    options = {"step_size": step_size, "confidence_level": level, "delay": delay}
    online = _started(X[:100], y[:100], **options)
    rates, misses = [online.miss_rate_], []
    for t in range(100, n_rows):
        # made `delay` rows before it is judged
        sure_miss = rates[-min(delay, len(rates))] >= 1  # the point alone
        ends = online.predict_interval_online(X[t : t + 1], y[t : t + 1])[0]
        rates.append(online.miss_rate_)
        misses.append(sure_miss or not ends[0] <= y[t] <= ends[1])
        bound = (0.8 + step_size * delay) / (step_size * len(misses))
        assert abs(np.mean(misses) - 0.2) <= bound + 1e-12


def test_the_loop_is_the_batch() -> None:
    X, y = _drifting(300)
    batch = _started(X[:100], y[:100])
    ends = batch.predict_interval_online(X[100:], y[100:])
    loop = _started(X[:100], y[:100])
    for t in range(100, 300):
        one = loop.predict_interval(X[t : t + 1])
        np.testing.assert_allclose(one[0], ends[t - 100])
        assert loop.update(X[t : t + 1], y[t : t + 1]) is loop
    assert loop.miss_rate_ == pytest.approx(batch.miss_rate_)
    np.testing.assert_allclose(loop.scores_, batch.scores_)


@pytest.mark.parametrize("delay", [1, 8])
def test_an_interval_knows_nothing_of_its_own_target(delay: int) -> None:
    X, y = _drifting(200)
    other = y.copy()
    other[150:] = 1e3
    ends, changed = (
        _started(X[:100], y[:100], delay=delay).predict_interval_online(
            X[100:], z[100:]
        )
        for z in (y, other)
    )
    np.testing.assert_array_equal(ends[: 50 + delay], changed[: 50 + delay])
    assert (ends[50 + delay] != changed[50 + delay]).all()


def test_late_targets_are_learnt_from_when_they_come() -> None:
    X, y = _drifting(300)
    online, late = (_started(X[:100], y[:100], delay=12) for _ in range(2))
    ends = online.predict_interval_online(X[100:], y[100:])
    for t in range(100, 300):
        if t - 12 >= 100:  # what a forecaster of twelve steps ahead has seen by now
            late.update(X[t - 12 : t - 11], y[t - 12 : t - 11])
        np.testing.assert_array_equal(
            late.predict_interval(X[t : t + 1])[0], ends[t - 100]
        )
    # the same in pieces
    pieces = _started(X[:100], y[:100], delay=12)
    parts = [pieces.predict_interval_online(X[a:b], y[a:b]) for a, b in PIECES]
    np.testing.assert_array_equal(np.concatenate(parts), ends)


PIECES = [(100, 105), (105, 140), (140, 300)]


def test_a_miss_is_one_of_the_interval_that_was_issued() -> None:
    X, y = _drifting(100)
    online = _started(X, y, delay=3, step_size=0.3, confidence_level=0.5)
    first = online.predict_interval(X[:1])[0]
    x = np.repeat(X[:1], 4, axis=0)
    online.update(x[:1], [first.mean() + 100])  # a miss widens what comes from now on
    wide = online.predict_interval(X[:1])[0]
    assert wide[1] > first[1]
    between = (first[1] + wide[1]) / 2
    online.update(x[:2], [between, between])  # both were issued when it was narrow
    assert online.miss_rate_ == pytest.approx(0.5 - 3 * 0.3 * 0.5)


def test_several_targets_are_followed_one_by_one() -> None:
    X, y = _drifting(300)
    Y = np.column_stack([y, -2 * y[::-1], np.sin(y)])
    options = {"delay": 4, "step_size": 0.1, "window": 90}
    online = _started(X[:100], Y[:100], **options)
    ends = online.predict_interval_online(X[100:], Y[100:])
    now = online.predict_interval(X[:5])
    assert ends.shape == (200, 2, 3)
    assert now.shape == (5, 2, 3)
    assert online.predict(X[:5]).shape == (5, 3)
    for k in range(3):
        alone = _started(X[:100], Y[:100, k], **options)
        np.testing.assert_allclose(
            ends[:, :, k], alone.predict_interval_online(X[100:], Y[100:, k])
        )
        np.testing.assert_allclose(now[:, :, k], alone.predict_interval(X[:5]))
        np.testing.assert_allclose(online.scores_[:, k], alone.scores_)
        assert online.miss_rate_[k] == alone.miss_rate_
    column = _started(X[:100], Y[:100, :1]).predict_interval(X[:5])
    assert column.shape == (5, 2, 1)


def test_the_level_moves_as_in_the_paper() -> None:
    X, y = _drifting(200)
    online = _started(X[:100], y[:100], step_size=0.1, confidence_level=0.8)
    first = online.predict_interval(X[100:101])
    frozen = FrozenEstimator(online.estimator_)
    plain = ConformalRegressor(frozen).fit(X[80:100], y[80:100])
    np.testing.assert_allclose(first, plain.predict_interval(X[100:101], 0.8))
    middle, outside = first.mean(), first[0, 1] + 1
    online.update(X[100:101], [middle])
    assert online.miss_rate_ == pytest.approx(0.2 + 0.1 * 0.2)
    online.update(X[100:101], [outside + 100])
    assert online.miss_rate_ == pytest.approx(0.22 + 0.1 * (0.2 - 1))


def test_too_many_misses_and_hits_reach_either_end() -> None:
    X, y = _drifting(100)
    online = _started(X, y, step_size=0.5, confidence_level=0.5)
    online.update(X[:2], [1e3, 1e6])
    assert online.miss_rate_ == 0
    assert online.predict_interval(X[:2]).tolist() == [[-np.inf, np.inf]] * 2
    online.update(X[:4], online.predict(X[:4]))
    assert online.miss_rate_ == 1
    ends = online.predict_interval(X[:2])
    np.testing.assert_array_equal(ends, online.predict(X[:2])[:, None] + [0, 0])
    # a point hit by chance counts as a miss, or the width would never come back
    assert online.update(X[:1], online.predict(X[:1])).miss_rate_ == 0.75


def test_a_window_forgets() -> None:
    X, y = _drifting(400)
    online = _started(X[:100], y[:100], window=30)
    assert len(online.scores_) == 20
    online.update(X[100:], y[100:])
    whole = _started(X[:100], y[:100]).update(X[100:], y[100:])
    assert len(whole.scores_) == 320
    np.testing.assert_array_equal(online.scores_, whole.scores_[-30:])


def test_widths_follow_a_spread() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 8))
    y = X[:, 0] + rng.standard_normal(200)
    online = AdaptiveOnlineConformal(BayesianRidge(), conformity_score="spread")
    ends = online.fit(X[:40], y[:40]).predict_interval(X[40:])
    _, std = online.estimator_.predict(X[40:], return_std=True)
    ratio = np.diff(ends, axis=1)[:, 0] / std
    np.testing.assert_allclose(ratio, ratio[0])


def test_the_last_rows_calibrate_and_frozen_ones_all() -> None:
    X, y = _drifting(100)
    online = _started(X, y, calibration_fraction=0.3)
    alone = LinearRegression().fit(X[:70], y[:70])
    np.testing.assert_allclose(online.estimator_.coef_, alone.coef_)
    np.testing.assert_allclose(online.scores_, np.abs(y[70:] - alone.predict(X[70:])))
    frozen = AdaptiveOnlineConformal(FrozenEstimator(alone)).fit(X, y)
    assert len(frozen.scores_) == 100
    weighted = AdaptiveOnlineConformal(Ridge())
    weighted.fit(X, y, sample_weight=(y > 0).astype(float))
    assert weighted.predict(X).mean() > online.predict(X).mean()


def test_scorers_and_pipelines_ask_it_too() -> None:
    X, y = _drifting(300)
    model = make_pipeline(StandardScaler(), AdaptiveOnlineConformal(Ridge()))
    model.fit(X[:200], y[:200])
    assert predict_interval(model, X, 0.9).shape == (300, 2)
    assert get_scorer("neg_winkler_loss")(model, X, y) < 0
    assert model.score(X, y) == pytest.approx(r2_score(y, model.predict(X)))
    with pytest.raises(ValueError, match=r"is followed, 0.9; got confidence_level=0.5"):
        predict_interval(model, X, 0.5)


def test_it_clones_and_pickles_amid_a_series() -> None:
    X, y = _drifting(300)
    online = clone(AdaptiveOnlineConformal(Ridge(), step_size=0.1)).fit(X[:99], y[:99])
    online.update(X[99:200], y[99:200])
    copy = pickle.loads(pickle.dumps(online))
    np.testing.assert_array_equal(
        copy.predict_interval_online(X[200:], y[200:]),
        online.predict_interval_online(X[200:], y[200:]),
    )


def test_mistakes_are_named() -> None:
    X, y = _drifting(50)
    with pytest.raises(ValueError, match="n_samples=1 with calibration_fraction"):
        _started(X[:1], y[:1])
    online = _started(X, y)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        online.update(X[:2], y[:3])
    with pytest.raises(ValueError, match="contains NaN"):
        online.update(X[:1], [np.nan])
    with pytest.raises(ValueError, match=r"2 targets a row as in fit; .*\(3, 3\)"):
        _started(X, np.stack([y, y], axis=1)).update(X[:3], np.zeros((3, 3)))
    with pytest.raises(ValueError, match="'delay' parameter"):
        _started(X, y, delay=0)
    with pytest.raises(ValueError, match="'step_size' parameter"):
        _started(X, y, step_size=0.0)
