"""The PIT figure's numbers: counts, the flat level, and the band of chance."""

from types import ModuleType
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.compose import TransformedTargetRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from uqformer.metrics import pit_values, pit_wasserstein_error, rank_histogram
from uqformer.plotting import PITHistogramDisplay
from uqformer.plotting._base import binomial_range
from uqformer.predictive import RegressionEnsemble

Y_TRUE = np.array([-2.0, 0.5, 0.6, 3.0])
MEMBERS = np.array([[-1.0] * 4, [0.0] * 4, [1.0] * 4])  # (3, 4)


class NormalMembers(RegressorMixin, BaseEstimator):
    """Nine standard normal members about the first column."""

    def fit(self, X: Any, y: Any) -> "NormalMembers":
        self.n_features_in_ = np.asarray(X).shape[1]
        return self

    def predict(self, X: Any) -> Any:
        return np.asarray(X)[:, 0]

    def predict_ensemble(self, X: Any) -> RegressionEnsemble:
        noise = np.random.default_rng(0).normal(size=(9, len(X)))
        return RegressionEnsemble(self.predict(X) + noise)


@pytest.fixture
def display(pyplot: ModuleType) -> PITHistogramDisplay:
    return PITHistogramDisplay.from_predictions(
        Y_TRUE, MEMBERS, n_bins=4, random_state=0, name="mine"
    )


def _legend(display: PITHistogramDisplay) -> list[str]:
    return [text.get_text() for text in display.ax_.get_legend().get_texts()]


def test_steps_are_shares_of_the_targets(display: PITHistogramDisplay) -> None:
    np.testing.assert_array_equal(display.counts, [1, 0, 2, 1])
    steps = display.steps_.get_data()
    np.testing.assert_array_equal(steps.values, [0.25, 0, 0.5, 0.25])
    np.testing.assert_array_equal(steps.edges, [0, 0.25, 0.5, 0.75, 1])


def test_one_bin_a_rank_is_the_rank_histogram(display: PITHistogramDisplay) -> None:
    ranks = rank_histogram(Y_TRUE, MEMBERS, random_state=0)
    np.testing.assert_array_equal(display.counts, ranks)


def test_level_and_band_are_those_of_a_uniform(display: PITHistogramDisplay) -> None:
    np.testing.assert_array_equal(display.level_.get_ydata(), [0.25, 0.25])
    low, high = binomial_range(0.25, 4)
    assert display.band_.get_y() == low
    assert display.band_.get_y() + display.band_.get_height() == high


def test_legend_tells_the_distance_of_the_very_values_drawn(
    display: PITHistogramDisplay,
) -> None:
    np.testing.assert_array_equal(
        display.pit, pit_values(Y_TRUE, MEMBERS, random_state=0)
    )
    error = pit_wasserstein_error(Y_TRUE, MEMBERS, random_state=0)
    assert display.wasserstein_error == error
    assert _legend(display) == [
        "95 % of calibrated results, 4 rows in 4 bins",
        "calibrated: 25 % in each bin",
        f"mine (W1 {error:.3f})",
    ]


@pytest.mark.usefixtures("pyplot")
@pytest.mark.parametrize("given", [None, "state"])
def test_any_source_of_chance_draws_values_and_distance_alike(given: Any) -> None:
    state = np.random.get_state()[1].copy()  # noqa: NPY002
    source = np.random.RandomState(3) if given else None
    rng = np.random.default_rng(0)
    drawn = PITHistogramDisplay.from_predictions(
        rng.normal(size=50), rng.normal(size=(2, 50)), random_state=source
    )
    # area between the empirical distribution of the values and the diagonal
    grid = (np.arange(200_000) + 0.5) / 200_000
    heights = np.searchsorted(np.sort(drawn.pit), grid, side="right") / 50
    area = np.abs(heights - grid).mean()
    assert drawn.wasserstein_error == pytest.approx(area, abs=1e-5)
    np.testing.assert_array_equal(np.random.get_state()[1], state)  # noqa: NPY002


def test_axes_start_at_zero_and_hold_all_methods(display: PITHistogramDisplay) -> None:
    peaked = PITHistogramDisplay(np.full(4, 0.5), n_bins=4, name="peaked")
    assert peaked.plot(display.ax_, color="black") is peaked
    assert (peaked.band_, peaked.level_) == (display.band_, display.level_)
    assert peaked.steps_.get_linestyle() != display.steps_.get_linestyle()
    assert _legend(peaked)[-1] == "peaked"
    assert peaked.ax_.get_xlim() == (0, 1)
    low, high = peaked.ax_.get_ylim()
    assert low == 0
    assert high > 1


def test_other_bins_get_their_own_level(display: PITHistogramDisplay) -> None:
    other = PITHistogramDisplay(np.array([0.1, 0.9]), n_bins=2).plot(display.ax_)
    assert other.band_ is not display.band_
    np.testing.assert_array_equal(other.level_.get_ydata(), [0.5, 0.5])
    assert _legend(other)[-1] == "observed"


@pytest.mark.parametrize("n_members", [1, 7])
def test_a_calibrated_ensemble_stays_in_the_band(
    pyplot: ModuleType, n_members: int
) -> None:
    rng, ax = np.random.default_rng(0), pyplot.gca()
    n_repeats, n_rows, n_bins = 40, 300, 10
    low, high = binomial_range(1 / n_bins, n_rows)
    outside = np.zeros(n_bins)
    for seed in range(n_repeats):
        drawn = PITHistogramDisplay.from_predictions(
            rng.normal(size=n_rows),
            rng.normal(size=(n_members, n_rows)),
            random_state=seed,
            ax=ax,
        )
        shares = drawn.counts / n_rows
        outside += (shares < low) | (shares > high)
    assert (outside <= binom.ppf(1 - 1e-4, n_repeats, 0.05)).all()


@pytest.mark.usefixtures("pyplot")
@pytest.mark.parametrize(("scale", "ends"), [(0.5, "high"), (2.0, "low")])
def test_a_wrong_width_leaves_the_band_at_the_ends(scale: float, ends: str) -> None:
    rng = np.random.default_rng(0)
    drawn = PITHistogramDisplay.from_predictions(
        rng.normal(size=500), scale * rng.normal(size=(20, 500)), random_state=0
    )
    low, high = binomial_range(0.1, 500)
    outer = drawn.counts[[0, -1]] / 500
    assert (outer > high).all() if ends == "high" else (outer < low).all()


@pytest.mark.usefixtures("pyplot")
def test_estimator_is_asked_through_its_wrappers() -> None:
    X = np.linspace(-1, 1, 50)[:, None]
    y = np.linspace(10, 20, 50)
    inner = make_pipeline(StandardScaler(), NormalMembers())
    wrapped = TransformedTargetRegressor(inner, transformer=StandardScaler()).fit(X, y)
    drawn = PITHistogramDisplay.from_estimator(wrapped, X, y, random_state=0)
    plain = (
        NormalMembers().fit(X, y).predict_ensemble(StandardScaler().fit_transform(X))
    )
    scaled = StandardScaler().fit_transform(y[:, None])[:, 0]
    np.testing.assert_allclose(drawn.pit, pit_values(scaled, plain, random_state=0))
    assert _legend(drawn)[-1].startswith("TransformedTargetRegressor (W1 ")


@pytest.mark.parametrize(
    ("y_true", "members", "words"),
    [
        ([0.0, np.nan], np.zeros((3, 2)), "NaN"),
        ([0.0, 1.0], np.zeros((2, 3)), "Members come first"),
        (np.zeros((2, 2)), np.zeros((3, 2, 2)), "1d array"),
    ],
)
def test_mistakes_are_named(y_true: Any, members: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        PITHistogramDisplay.from_predictions(y_true, members)
