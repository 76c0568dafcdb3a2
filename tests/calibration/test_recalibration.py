"""Calibrators of quantiles and intervals: shares below, tails, crossing, coverage."""

from typing import Any

import numpy as np
import pytest
from scipy import stats
from sklearn.isotonic import IsotonicRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import parametrize_with_checks

from uqformer.calibration import ConformalCalibrator, QuantileCalibrator
from uqformer.calibration._recalibration import read_quantiles
from uqformer.exceptions import InsufficientCalibrationError
from uqformer.metrics import pinball_loss

LEVELS = np.array([0.05, 0.25, 0.5, 0.75, 0.95])


class FirstTwo:
    """Keeps two columns; named alike in every process, as a function is not."""

    def __call__(self, X: Any) -> Any:
        return X[:, :2]

    def __repr__(self) -> str:
        return "FirstTwo()"


EXCUSED = dict.fromkeys(
    ["check_dont_overwrite_parameters", "check_estimators_overwrite_params"],
    "a Pipeline replaces the steps it was given by fitted ones",
)


def _excused(estimator: Any) -> dict[str, str]:
    return EXCUSED if isinstance(estimator, Pipeline) else {}


@parametrize_with_checks(
    [
        QuantileCalibrator(),
        # intervals have two columns, and the checks hand in any number
        make_pipeline(
            FunctionTransformer(FirstTwo(), validate=True),
            ConformalCalibrator(confidence_level=0.4),
        ),
    ],
    expected_failed_checks=_excused,
)
def test_estimator_keeps_the_contract_of_sklearn(estimator: Any, check: Any) -> None:
    check(estimator)


def _normal_quantiles(n_rows: int, *, stretch: float, seed: int = 0) -> Any:
    """Predicted quantiles of N(mean, stretch²) beside targets of N(mean, 1)."""
    rng = np.random.default_rng(seed)
    mean = rng.normal(0, 3, n_rows)
    X = mean[:, None] + stretch * stats.norm.ppf(LEVELS)
    return X, mean + rng.standard_normal(n_rows), mean


# -- Quantiles ----------------------------------------------------------------------


@pytest.mark.parametrize("stretch", [0.3, 1.0, 3.0])
def test_each_quantile_gets_its_share_of_targets(stretch: float) -> None:
    X, y, _ = _normal_quantiles(20_000, stretch=stretch)
    calibrator = QuantileCalibrator(quantiles=LEVELS).fit(X[:10_000], y[:10_000])
    new = calibrator.transform(X[10_000:])
    below = np.mean(y[10_000:, None] <= new, axis=0)
    margin = 4 * np.sqrt(LEVELS * (1 - LEVELS) * 2 / 10_000)
    assert (np.abs(below - LEVELS) < margin).all()


def test_tails_reach_beyond_the_outermost_quantile() -> None:
    # a family that is normal is recalibrated exactly, tails included
    X, y, mean = _normal_quantiles(40_000, stretch=0.5)
    new = QuantileCalibrator(quantiles=LEVELS).fit(X, y).transform(X)
    expected = mean[:, None] + stats.norm.ppf(LEVELS)
    np.testing.assert_allclose(new, expected, atol=0.06)
    assert new[0, 0] < X[0, 0]


def test_skewed_errors_are_followed() -> None:
    rng = np.random.default_rng(0)
    mean = rng.normal(size=8000)
    X = mean[:, None] + stats.norm.ppf(LEVELS)
    y = mean + rng.exponential(size=8000)
    new = QuantileCalibrator(quantiles=LEVELS).fit(X, y).transform(X)
    np.testing.assert_allclose(new[0] - mean[0], stats.expon.ppf(LEVELS), atol=0.1)
    assert pinball_loss(y, new, quantiles=LEVELS) < 0.8 * pinball_loss(
        y, X, quantiles=LEVELS
    )


def test_the_map_is_the_isotonic_one_of_kuleshov() -> None:
    X, y, mean = _normal_quantiles(999, stretch=0.6)
    calibrator = QuantileCalibrator(quantiles=LEVELS).fit(X, y)
    predicted = stats.norm.cdf((y - mean) / 0.6)
    empirical = np.array([np.mean(predicted <= level) for level in predicted])
    recalibrate = IsotonicRegression().fit(predicted, empirical)
    # reading off at levels_ is right when the map takes them back to the levels
    np.testing.assert_allclose(
        recalibrate.predict(calibrator.levels_), LEVELS, atol=2e-3
    )


def test_shares_are_right_for_few_rows_too() -> None:
    below = np.zeros(5)
    for seed in range(600):
        X, y, _ = _normal_quantiles(60, stretch=0.5, seed=seed)
        new = QuantileCalibrator(quantiles=LEVELS).fit(X[:40], y[:40]).transform(X[40:])
        below += np.mean(y[40:, None] <= new, axis=0)
    below /= 600
    # given the rows, coverage is Beta distributed about k / (n + 1)
    spread = LEVELS * (1 - LEVELS) * (1 / 20 + 1 / 41)
    assert (np.abs(below - LEVELS) < 4 * np.sqrt(spread / 600) + 0.003).all()


def test_crossing_quantiles_are_put_in_order() -> None:
    X, y, _ = _normal_quantiles(200, stretch=1.0)
    turned = X[:, ::-1]
    calibrator = QuantileCalibrator(quantiles=LEVELS)
    straight = calibrator.fit(X, y).transform(X)
    np.testing.assert_array_equal(calibrator.fit(turned, y).transform(turned), straight)
    assert (np.diff(straight, axis=1) >= 0).all()


def test_members_are_quantiles_too() -> None:
    rng = np.random.default_rng(0)
    mean = rng.normal(size=4000)
    members = mean[:, None] + 0.3 * rng.standard_normal((4000, 40))
    y = mean + rng.standard_normal(4000)
    new = QuantileCalibrator().fit(members[:2000], y[:2000]).transform(members[2000:])
    inside = (new[:, 1] <= y[2000:]) & (y[2000:] <= new[:, -2])  # 3.75 % on either side
    assert inside.mean() == pytest.approx(0.925, abs=0.025)


def test_flat_pieces_and_hopeless_targets_stay_finite() -> None:
    X = np.tile([0.0, 1.0, 1.0, 2.0], (50, 1))
    X[:10] = 5.0
    y = np.concatenate([[4.0, 5.0, 6.0, 7.0, 5.0] * 2, np.linspace(-9, 9, 40)])
    calibrator = QuantileCalibrator(quantiles=[0.1, 0.4, 0.6, 0.9]).fit(X, y)
    new = calibrator.transform(X)
    assert np.isfinite(new).all()
    assert (np.diff(new, axis=1) >= 0).all()
    assert ((calibrator.levels_ >= 0) & (calibrator.levels_ <= 1)).all()


@pytest.mark.parametrize("quantiles", [[0.1, 0.9], [0.1, 0.9, 0.5], [0.1, 0.1, 0.9]])
def test_quantiles_belong_to_columns(quantiles: Any) -> None:
    with pytest.raises(ValueError, match="must rise and have one entry for each"):
        QuantileCalibrator(quantiles=quantiles).fit(np.zeros((5, 3)), np.zeros(5))


def test_read_quantiles_of_a_normal_distribution_are_exact() -> None:
    known, wanted = np.array([0.2, 0.5, 0.6]), np.array([0.01, 0.3, 0.55, 0.999])
    values = np.array([[1.0], [-2.0]]) + 3 * stats.norm.ppf(known)
    read = read_quantiles(values, known, wanted)
    np.testing.assert_allclose(read[0], 1 + 3 * stats.norm.ppf(wanted))
    np.testing.assert_allclose(read[1], -2 + 3 * stats.norm.ppf(wanted))


# -- Intervals ----------------------------------------------------------------------


@pytest.mark.parametrize("half", [0.1, 1.0, 5.0])
def test_too_narrow_and_too_wide_are_corrected(half: float) -> None:
    covered = np.zeros(300)
    for seed in range(300):
        rng = np.random.default_rng(seed)
        mean = rng.normal(size=119)
        y = mean + rng.standard_normal(119)
        X = np.column_stack([mean - half, mean + half])
        calibrator = ConformalCalibrator(confidence_level=0.8).fit(X[:19], y[:19])
        lower, upper = calibrator.transform(X[19:]).T
        covered[seed] = np.mean((lower <= y[19:]) & (y[19:] <= upper))
    variance = 0.8 * 0.2 * (1 / 21 + 1 / 100)
    assert covered.mean() == pytest.approx(16 / 20, abs=4 * np.sqrt(variance / 300))


def test_the_correction_is_the_conformal_quantile() -> None:
    X = np.zeros((9, 2))
    y = np.arange(1.0, 10.0)
    calibrator = ConformalCalibrator(confidence_level=0.7).fit(X, y)
    assert calibrator.correction_ == 7.0
    assert calibrator.transform(X[:1]).tolist() == [[-7.0, 7.0]]


def test_ends_keep_their_order() -> None:
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(5, 1, 50), rng.normal(-5, 1, 50)])  # turned around
    calibrator = ConformalCalibrator(confidence_level=0.5).fit(X, np.zeros(50))
    new = calibrator.transform(X)
    assert calibrator.correction_ < 0
    assert (new[:, 0] <= new[:, 1]).all()
    narrow = calibrator.transform([[0.0, 1.0]])
    assert narrow.tolist() == [[0.5, 0.5]]


def test_too_few_rows_and_other_shapes() -> None:
    with pytest.raises(InsufficientCalibrationError, match=r"at least 9 .* got 5"):
        ConformalCalibrator().fit(np.zeros((5, 2)), np.zeros(5))
    with pytest.raises(ValueError, match=r"\(n_samples, 2\), .* X.shape=\(5, 3\)"):
        ConformalCalibrator().fit(np.zeros((5, 3)), np.zeros(5))
