"""Calibrators of spreads: known factors found again, groups, members or moments."""

from typing import Any

import numpy as np
import pytest
from scipy.optimize import approx_fprime
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks

from uqformer.calibration import LocationScaleCalibrator, SpreadCalibrator
from uqformer.calibration._regression import _crps_and_gradient
from uqformer.metrics import crps_normal_loss, gaussian_nll_loss
from uqformer.predictive import RegressionEnsemble


def _predictions(n_rows: int, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    mean = rng.normal(3, 2, n_rows)
    std = rng.uniform(0.2, 2.0, n_rows)
    return rng, mean, std


@parametrize_with_checks([SpreadCalibrator(), LocationScaleCalibrator()])
def test_estimator_keeps_the_contract_of_sklearn(estimator: Any, check: Any) -> None:
    check(estimator)


# -- Spread -------------------------------------------------------------------------


def test_one_factor_matches_root_mean_squares() -> None:
    rng, mean, std = _predictions(300)
    y = mean + rng.standard_normal(300)
    X = np.column_stack([mean, std])
    calibrator = SpreadCalibrator(input="mean_std").fit(X, y)
    new = calibrator.transform(X)
    np.testing.assert_array_equal(new[:, 0], mean)
    np.testing.assert_allclose(new[:, 1], calibrator.scale_ * std)
    assert np.mean(new[:, 1] ** 2) == pytest.approx(np.mean((y - mean) ** 2))


def test_a_known_factor_is_found_again() -> None:
    # field note: the recalibrated spread could not be had back
    rng, mean, std = _predictions(20_000)
    y = mean + 2.5 * std * rng.standard_normal(20_000)
    X = np.column_stack([mean, std])
    calibrator = SpreadCalibrator(input="mean_std").fit(X, y)
    assert calibrator.scale_ == pytest.approx(2.5, rel=0.03)
    assert gaussian_nll_loss(y, *calibrator.transform(X).T) < gaussian_nll_loss(y, *X.T)


def test_members_are_stretched_about_their_mean() -> None:
    rng, mean, std = _predictions(400)
    members = mean[:, None] + std[:, None] * rng.standard_normal((400, 20))
    y = mean + 3 * std * rng.standard_normal(400)
    calibrator = SpreadCalibrator().fit(members, y)
    new = calibrator.transform(members)
    assert new.shape == members.shape
    np.testing.assert_allclose(new.mean(axis=1), members.mean(axis=1))
    np.testing.assert_allclose(new.std(axis=1), calibrator.scale_ * members.std(axis=1))
    assert RegressionEnsemble(new.T).std().shape == (400,)
    as_moments = np.column_stack([members.mean(axis=1), members.std(axis=1)])
    by_moments = SpreadCalibrator(input="mean_std").fit(as_moments, y)
    assert by_moments.scale_ == pytest.approx(calibrator.scale_)


def test_groups_are_scaled_apart() -> None:
    rng, mean, std = _predictions(4000)
    sites = np.where(np.arange(4000) % 4 == 0, "north", "south")
    factor = np.where(sites == "north", 4.0, 0.5)
    y = mean + factor * std * rng.standard_normal(4000)
    X = np.column_stack([mean, std])
    calibrator = SpreadCalibrator(input="mean_std").fit(X, y, groups=sites)
    assert calibrator.group_scales_ == {
        "north": pytest.approx(4.0, rel=0.1),
        "south": pytest.approx(0.5, rel=0.1),
    }
    new = calibrator.transform(X[:8], groups=sites[:8])
    expected = [calibrator.group_scales_[site] for site in sites[:8]]
    np.testing.assert_allclose(new[:, 1], std[:8] * expected)


def test_groups_go_to_both_or_neither() -> None:
    _, mean, std = _predictions(10)
    X, sites = np.column_stack([mean, std]), ["a"] * 5 + ["b"] * 5
    grouped = SpreadCalibrator(input="mean_std").fit(X, mean + 1, groups=sites)
    with pytest.raises(ValueError, match="in fit and not in transform"):
        grouped.transform(X)
    with pytest.raises(ValueError, match=r"'a', 'b'; got group 'c'"):
        grouped.transform(X, groups=["c"] * 10)
    alone = clone(grouped).fit(X, mean + 1)
    with pytest.raises(ValueError, match="in transform and not in fit"):
        alone.transform(X, groups=sites)


def test_no_spread_at_all_cannot_be_scaled() -> None:
    _, mean, std = _predictions(10)
    X = np.column_stack([mean, np.where(np.arange(10) < 5, 0, std)])
    assert SpreadCalibrator(input="mean_std").fit(X, mean + 1).scale_ > 0
    with pytest.raises(ValueError, match=r"got 10 rows without any spread"):
        SpreadCalibrator().fit(np.ones((10, 3)), mean)
    with pytest.raises(ValueError, match=r"got 5 rows of group 0 without any spread"):
        SpreadCalibrator(input="mean_std").fit(X, mean, groups=[0] * 5 + [1] * 5)


@pytest.mark.parametrize("calibrator", [SpreadCalibrator, LocationScaleCalibrator])
def test_a_negative_deviation_is_refused(calibrator: Any) -> None:
    X = np.array([[0.0, 1.0], [1.0, -0.5]])
    with pytest.raises(ValueError, match=r"X.shape=\(2, 2\) .* column of -0.5"):
        calibrator(input="mean_std").fit(X, [0.0, 1.0])
    with pytest.raises(ValueError, match=r"two columns, .* X.shape=\(2, 3\)"):
        calibrator(input="mean_std").fit(np.ones((2, 3)), [0.0, 1.0])


# -- Location and scale -------------------------------------------------------------


def test_four_known_numbers_are_found_again() -> None:
    rng, mean, std = _predictions(20_000)
    sigma = np.hypot(0.7, 1.8 * std)
    y = -4 + 1.5 * mean + sigma * rng.standard_normal(20_000)
    X = np.column_stack([mean, std])
    calibrator = LocationScaleCalibrator(input="mean_std").fit(X, y)
    assert calibrator.intercept_ == pytest.approx(-4, abs=0.15)
    assert calibrator.slope_ == pytest.approx(1.5, abs=0.04)
    assert calibrator.floor_ == pytest.approx(0.7, abs=0.15)
    assert calibrator.scale_ == pytest.approx(1.8, abs=0.1)
    new = calibrator.transform(X)
    np.testing.assert_allclose(new[:, 1], sigma, rtol=0.1)
    truth = crps_normal_loss(y, -4 + 1.5 * mean, sigma)
    assert crps_normal_loss(y, *new.T) == pytest.approx(truth, rel=0.002)


def test_the_loss_is_the_crps_and_its_gradient_is_right() -> None:
    rng, mean, std = _predictions(50)
    y = mean + rng.standard_normal(50)
    at = np.array([0.3, 0.9, 0.4, 1.2])
    loss, gradient = _crps_and_gradient(at, mean, std, y)
    sigma = np.hypot(0.4, 1.2 * std)
    assert loss == pytest.approx(crps_normal_loss(y, 0.3 + 0.9 * mean, sigma))
    numeric = approx_fprime(at, lambda x: _crps_and_gradient(x, mean, std, y)[0])
    np.testing.assert_allclose(gradient, numeric, atol=1e-5)


def test_units_of_y_do_not_matter() -> None:
    rng, mean, std = _predictions(300)
    y = 1 + 0.8 * mean + 2 * std * rng.standard_normal(300)
    X = np.column_stack([mean, std])
    new = LocationScaleCalibrator(input="mean_std").fit(X, y).transform(X)
    for unit, origin in [(1e-6, 0.0), (1e5, 0.0), (1.0, 1e4)]:
        moved = np.column_stack([origin + unit * mean, unit * std])
        other = LocationScaleCalibrator(input="mean_std").fit(moved, origin + unit * y)
        back = other.transform(moved)
        np.testing.assert_allclose((back[:, 0] - origin) / unit, new[:, 0], rtol=1e-2)
        np.testing.assert_allclose(back[:, 1] / unit, new[:, 1], rtol=1e-2)


def test_members_move_and_stretch_together() -> None:
    rng, mean, std = _predictions(500)
    members = mean[:, None] + std[:, None] * rng.standard_normal((500, 10))
    y = 2 + mean + 2 * std * rng.standard_normal(500)
    moments = np.column_stack([members.mean(axis=1), members.std(axis=1)])
    expected = LocationScaleCalibrator(input="mean_std").fit(moments, y)
    new = LocationScaleCalibrator().fit(members, y).transform(members)
    wanted = expected.transform(moments)
    np.testing.assert_allclose(new.mean(axis=1), wanted[:, 0])
    np.testing.assert_allclose(new.std(axis=1), wanted[:, 1])
    order = np.argsort(members, axis=1)
    np.testing.assert_array_equal(np.argsort(new, axis=1), order)


def test_a_spread_that_says_nothing_is_replaced_by_the_floor() -> None:
    rng, mean, std = _predictions(5000)
    y = mean + 1.3 * rng.standard_normal(5000)
    X = np.column_stack([mean, std])
    calibrator = LocationScaleCalibrator(input="mean_std").fit(X, y)
    assert calibrator.floor_ == pytest.approx(1.3, rel=0.1)
    assert calibrator.scale_ < 0.4


@pytest.mark.parametrize("y_of", [lambda m: m, lambda m: 0 * m, lambda m: m + 5])
def test_perfect_and_constant_targets_stay_finite(y_of: Any) -> None:
    _, mean, std = _predictions(30)
    X = np.column_stack([mean, std])
    calibrator = LocationScaleCalibrator(input="mean_std").fit(X, y_of(mean))
    new = calibrator.transform(X)
    assert np.isfinite(new).all()
    np.testing.assert_allclose(new[:, 0], y_of(mean), atol=1e-2)
