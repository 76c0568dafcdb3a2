"""The coverage figure's numbers, and the law behind its band."""

import re
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom, norm
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from uqformer.exceptions import InsufficientCalibrationError
from uqformer.plotting import CoverageDisplay
from uqformer.plotting._base import binomial_range

LEVELS = np.array([0.2, 0.5, 0.8])
HALF_WIDTHS = np.array([1.0, 2.0, 3.0])
Y_TRUE = np.array([0.5, -1.0, 2.5, 9.0])
Y_INTERVAL = np.stack([[-HALF_WIDTHS, HALF_WIDTHS]] * 4)  # (4, 2, 3)
COVERAGES = [0.5, 0.5, 0.75]  # -1 lies on an end of the first one


class StandardNormal(RegressorMixin, BaseEstimator):
    """The right intervals for standard normal targets, up to the level it can serve."""

    def fit(self, X: Any, y: Any) -> "StandardNormal":
        self.n_features_in_ = np.asarray(X).shape[1]
        return self

    def predict(self, X: Any) -> Any:
        return np.zeros(len(X))

    def predict_interval(self, X: Any, confidence_level: Any) -> Any:
        levels = np.asarray(confidence_level)
        if levels.max() > 0.95:
            raise InsufficientCalibrationError("needs 99 rows")
        half = norm.ppf((1 + levels) / 2)
        return np.stack([np.stack([-half, half])] * len(X))


@pytest.fixture
def display(pyplot: ModuleType) -> CoverageDisplay:
    return CoverageDisplay.from_predictions(
        Y_TRUE, Y_INTERVAL, confidence_levels=LEVELS, name="mine"
    )


def _legend(display: CoverageDisplay) -> list[str]:
    return [text.get_text() for text in display.ax_.get_legend().get_texts()]


def test_line_is_coverage_against_level(display: CoverageDisplay) -> None:
    line = np.column_stack([LEVELS, COVERAGES])
    np.testing.assert_array_equal(display.line_.get_xydata(), line)
    np.testing.assert_array_equal(display.diagonal_.get_xydata(), [[0, 0], [1, 1]])
    assert _legend(display) == [
        "95 % of calibrated results, 4 rows",
        "calibrated",
        "mine",
    ]


@pytest.mark.usefixtures("pyplot")
def test_levels_may_come_in_any_order() -> None:
    turned = CoverageDisplay.from_predictions(
        Y_TRUE, Y_INTERVAL[:, :, ::-1], confidence_levels=LEVELS[::-1]
    )
    np.testing.assert_array_equal(turned.confidence_levels, LEVELS)
    np.testing.assert_array_equal(turned.coverages, COVERAGES)
    assert _legend(turned)[-1] == "observed"


def test_axes_are_an_honest_square(display: CoverageDisplay) -> None:
    assert display.ax_.get_xlim() == (0, 1)
    assert display.ax_.get_ylim() == (0, 1)
    assert display.ax_.get_aspect() == 1


def test_methods_share_the_axes(display: CoverageDisplay) -> None:
    ax, band, diagonal = display.ax_, display.band_, display.diagonal_
    other = CoverageDisplay(LEVELS, LEVELS, n_rows=4, name="old")
    assert other.plot(ax, name="other", color="black") is other
    assert (other.ax_, other.band_, other.diagonal_) == (ax, band, diagonal)
    assert len(ax.lines) == 3
    assert len(ax.collections) == 1
    assert _legend(other)[-2:] == ["mine", "other"]
    assert other.line_.get_marker() != display.line_.get_marker()
    assert other.line_.get_color() == "black"


def test_another_number_of_rows_gets_its_own_band(display: CoverageDisplay) -> None:
    other = CoverageDisplay(LEVELS, LEVELS, n_rows=400).plot(display.ax_)
    assert other.band_ is not display.band_
    assert other.diagonal_ is display.diagonal_
    for band, n_rows in ((display.band_, 4), (other.band_, 400)):
        outline = band.get_paths()[0].vertices
        at_half = outline[outline[:, 0] == 0.5, 1]
        low, high = binomial_range(np.array([0.5]), n_rows)
        assert (at_half.min(), at_half.max()) == (low[0], high[0])


def test_a_calibrated_estimator_stays_in_the_band(pyplot: ModuleType) -> None:
    rng, ax = np.random.default_rng(0), pyplot.gca()
    n_repeats, n_rows, levels = 60, 200, [0.2, 0.5, 0.9]
    low, high = binomial_range(np.array(levels), n_rows)
    outside = np.zeros(3)
    for _ in range(n_repeats):
        y = rng.standard_normal(n_rows)
        intervals = StandardNormal().predict_interval(np.zeros((n_rows, 1)), levels)
        drawn = CoverageDisplay.from_predictions(
            y, intervals, confidence_levels=levels, ax=ax
        )
        outside += (drawn.coverages < low) | (drawn.coverages > high)
    # a calibrated method leaves the band in at most 5 % of the repeats
    assert (outside <= binom.ppf(1 - 1e-4, n_repeats, 0.05)).all()


@pytest.mark.usefixtures("pyplot")
def test_estimator_is_asked_at_all_levels_through_its_pipeline() -> None:
    X, y = np.zeros((4, 1)), norm.ppf([0.5, 0.61, 0.74, 0.99])
    estimator = make_pipeline(StandardScaler(), StandardNormal()).fit(X, y)
    display = CoverageDisplay.from_estimator(estimator, X, y)
    np.testing.assert_allclose(display.confidence_levels, np.arange(0.1, 0.95, 0.1))
    # row i is covered from the level 2 |Phi(y) - 1/2| on: 0, 0.22, 0.48 and 0.98
    expected = [0.25, 0.25, 0.5, 0.5, 0.75, 0.75, 0.75, 0.75, 0.75]
    np.testing.assert_array_equal(display.coverages, expected)
    assert _legend(display)[-1] == "Pipeline"
    assert display.n_rows == 4


def test_too_few_calibration_rows_are_the_estimators_word() -> None:
    X, y = np.zeros((4, 1)), np.zeros(4)
    with pytest.raises(InsufficientCalibrationError, match=r"^needs 99 rows$"):
        CoverageDisplay.from_estimator(
            StandardNormal().fit(X, y), X, y, confidence_levels=[0.5, 0.99]
        )


@pytest.mark.usefixtures("pyplot")
def test_infinite_intervals_cover() -> None:
    endless = np.stack([[[-np.inf], [np.inf]]] * 4)
    display = CoverageDisplay.from_predictions(
        Y_TRUE, endless, confidence_levels=[0.999]
    )
    np.testing.assert_array_equal(display.coverages, [1.0])


@pytest.mark.parametrize(
    ("y_interval", "shape"),
    [
        (Y_INTERVAL[:, :, :2], (4, 2, 2)),
        (Y_INTERVAL[:3], (3, 2, 3)),
        (Y_INTERVAL[:, :, 0], (4, 2)),
    ],
)
def test_shapes_must_agree(y_interval: Any, shape: tuple[int, ...]) -> None:
    sentence = (
        "y_interval must have shape (n_samples, 2, n_levels) = (4, 2, 3) to go with "
        f"y_true and confidence_levels; got y_interval.shape={shape}."
    )
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        CoverageDisplay.from_predictions(Y_TRUE, y_interval, confidence_levels=LEVELS)


def test_levels_are_checked() -> None:
    with pytest.raises(ValueError, match=r"For 80 % pass 0\.8\."):
        CoverageDisplay.from_predictions(
            Y_TRUE, Y_INTERVAL, confidence_levels=[20, 50, 80][::-1]
        )
