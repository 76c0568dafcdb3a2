"""The spread-skill figure's numbers: bins, diagonal, and the chi-squared band."""

from types import ModuleType
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom, chi2
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from uqformer.metrics import SpreadSkillBins, spread_skill_bins
from uqformer.plotting import SpreadSkillDisplay
from uqformer.plotting._spread_skill import calibrated_errors

Y_TRUE = np.array([1.0, -1.0, 2.0, -4.0])
Y_PRED = np.zeros(4)
Y_STD = np.array([1.0, 1.0, 3.0, 3.0])
ERRORS = [1.0, np.sqrt(10)]


class OnlyPoints(RegressorMixin, BaseEstimator):
    """A regressor without any spread."""

    def fit(self, X: Any, y: Any) -> "OnlyPoints":
        self.n_features_in_ = np.asarray(X).shape[1]
        return self

    def predict(self, X: Any) -> Any:
        return np.zeros(len(X))


@pytest.fixture
def display(pyplot: ModuleType) -> SpreadSkillDisplay:
    return SpreadSkillDisplay.from_predictions(
        Y_TRUE, Y_PRED, Y_STD, n_bins=2, name="mine"
    )


def _legend(display: SpreadSkillDisplay) -> list[str]:
    return [text.get_text() for text in display.ax_.get_legend().get_texts()]


def _band_at(display: SpreadSkillDisplay, spread: float) -> tuple[float, float]:
    outline = display.band_.get_paths()[0].vertices
    heights = outline[outline[:, 0] == spread, 1]
    return heights.min(), heights.max()


def test_points_are_errors_against_spreads(display: SpreadSkillDisplay) -> None:
    np.testing.assert_allclose(display.line_.get_xydata(), np.c_[[1.0, 3.0], ERRORS])
    assert _legend(display) == ["95 % of calibrated results", "calibrated", "mine"]


def test_band_is_chi_squared_and_opens_from_the_corner(
    display: SpreadSkillDisplay,
) -> None:
    assert _band_at(display, 0.0) == (0, 0)
    for spread in (1.0, 3.0):
        ends = spread * np.sqrt(chi2.ppf([0.025, 0.975], 2) / 2)
        np.testing.assert_allclose(_band_at(display, spread), ends)


def test_axes_have_one_scale_from_zero(display: SpreadSkillDisplay) -> None:
    ax = display.ax_
    assert ax.get_aspect() == 1
    assert ax.get_xlim() == ax.get_ylim()
    assert ax.get_xlim()[0] == 0
    assert ax.get_xlim()[1] > ERRORS[1]
    assert display.diagonal_.get_xy1() == (0, 0)
    assert display.diagonal_.get_slope() == 1


def test_methods_share_the_axes(display: SpreadSkillDisplay) -> None:
    other = SpreadSkillDisplay(
        SpreadSkillBins(np.array([9.0]), np.array([50.0]), np.array([4])), name="old"
    )
    assert other.plot(display.ax_, name="new", color="black") is other
    assert other.diagonal_ is display.diagonal_
    assert other.line_.get_marker() != display.line_.get_marker()
    assert _legend(other) == [*_legend(display)[:3], "new"]
    assert other.ax_.get_ylim()[1] > 50
    assert other.ax_.get_xlim() == other.ax_.get_ylim()


@pytest.mark.usefixtures("pyplot")
def test_a_constant_spread_is_one_point() -> None:
    drawn = SpreadSkillDisplay.from_predictions(Y_TRUE, Y_PRED, np.full(4, 2.0))
    np.testing.assert_allclose(drawn.line_.get_xydata(), [[2.0, np.sqrt(22 / 4)]])


@pytest.mark.usefixtures("pyplot")
def test_no_spread_and_no_error_can_be_drawn() -> None:
    drawn = SpreadSkillDisplay.from_predictions([1.0], [1.0], [0.0])
    np.testing.assert_array_equal(drawn.line_.get_xydata(), [[0, 0]])
    assert drawn.ax_.get_xlim() == (0, 1)


def test_a_calibrated_method_stays_in_the_band() -> None:
    rng, n_repeats = np.random.default_rng(0), 300
    outside = np.zeros(5)
    for _ in range(n_repeats):
        std = np.exp(rng.normal(size=200) / 2)
        bins = spread_skill_bins(std * rng.normal(size=200), 0 * std, std, n_bins=5)
        low, high = calibrated_errors(bins.spread, bins.count)
        outside += (bins.skill < low) | (bins.skill > high)
    middle = outside[1:4]  # the outer bins mix spreads of very different sizes
    assert (middle <= binom.ppf(1 - 1e-4, n_repeats, 0.05)).all()
    assert (middle >= binom.ppf(1e-4, n_repeats, 0.05)).all()


@pytest.mark.parametrize("n_members", [5, 20])
def test_small_perfect_ensembles_look_too_sure_by_the_factor_told(
    n_members: int,
) -> None:
    rng = np.random.default_rng(0)
    members, y_true = rng.normal(size=(n_members, 40_000)), rng.normal(size=40_000)
    bins = spread_skill_bins(
        y_true,
        members.mean(axis=0),
        np.full(40_000, np.sqrt(members.var(axis=0).mean())),
    )
    factor = np.sqrt((n_members + 1) / (n_members - 1))
    assert bins.skill[0] / bins.spread[0] == pytest.approx(factor, rel=0.02)


@pytest.mark.usefixtures("pyplot")
def test_estimator_is_asked_through_its_pipeline() -> None:
    X, y = np.linspace(-1, 1, 20)[:, None], np.linspace(-1, 1, 20) ** 2
    model = make_pipeline(StandardScaler(), GaussianProcessRegressor(alpha=0.1))
    drawn = SpreadSkillDisplay.from_estimator(model.fit(X, y), X, y, n_bins=3)
    expected = spread_skill_bins(y, *model.predict(X, return_std=True), n_bins=3)
    np.testing.assert_array_equal(drawn.bins.skill, expected.skill)
    assert _legend(drawn)[-1] == "Pipeline"


def test_a_model_without_spread_is_named() -> None:
    X = np.zeros((3, 1))
    with pytest.raises(AttributeError, match="must offer predict with return_std; got"):
        SpreadSkillDisplay.from_estimator(OnlyPoints().fit(X, X[:, 0]), X, X[:, 0])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"y_std": -Y_STD}, "y_std must not be negative"),
        ({"y_std": Y_STD[:2]}, "y_std"),
        ({"y_pred": [0.0, np.nan, 0.0, 0.0]}, "y_pred"),
        ({"n_bins": 0}, "n_bins"),
    ],
)
def test_mistakes_are_named(change: dict[str, Any], words: str) -> None:
    arguments = {"y_true": Y_TRUE, "y_pred": Y_PRED, "y_std": Y_STD} | change
    with pytest.raises(ValueError, match=words):
        SpreadSkillDisplay.from_predictions(**arguments)
