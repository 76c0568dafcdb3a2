"""The reliability figure's numbers: points, bars, strip, whatever the classes."""

import re
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom, binomtest
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from uqformer.metrics import calibration_bins, expected_calibration_error
from uqformer.plotting import ReliabilityDisplay
from uqformer.plotting._reliability import share_interval

LABELS = ["cat", "cow", "dog"]
Y_TRUE = ["cat", "dog", "dog", "cow", "cow"]
Y_PROBA = np.array(
    [[0.9, 0.0, 0.1], [0.1, 0.0, 0.9], [0.6, 0.2, 0.2], [0.0, 0.6, 0.4], [1, 0, 0]]
)


@pytest.fixture
def display(pyplot: ModuleType) -> ReliabilityDisplay:
    return ReliabilityDisplay.from_predictions(Y_TRUE, Y_PROBA, n_bins=4, name="mine")


@pytest.fixture
def cifar10(uci_dir: Path) -> tuple[Any, Any]:
    """Labels and probabilities of a network on the CIFAR-10 test set."""
    file = uci_dir.parent / "probs" / "cifar10_test_probs.npz"
    if not file.is_file():
        pytest.skip(f"no file {file}")
    with np.load(file) as data:
        return data["labels"], data["probs"]


def _legend(display: ReliabilityDisplay) -> list[str]:
    return [text.get_text() for text in display.ax_.get_legend().get_texts()]


def _bars(display: ReliabilityDisplay) -> Any:
    """(x, lower, upper) of each vertical line."""
    return np.array([[s[0, 0], s[0, 1], s[1, 1]] for s in display.bars_.get_segments()])


def test_points_are_shares_against_mean_probabilities(
    display: ReliabilityDisplay,
) -> None:
    # 0.6 and 0.6 in [0.5, 0.75), one right; 0.9, 0.9 and 1 in [0.75, 1], two right
    points = [[0.6, 0.5], [2.8 / 3, 2 / 3]]
    np.testing.assert_allclose(display.line_.get_xydata(), points)
    np.testing.assert_array_equal(display.diagonal_.get_xydata(), [[0, 0], [1, 1]])


def test_confidence_of_exactly_one_lies_in_the_last_bin(
    display: ReliabilityDisplay,
) -> None:
    np.testing.assert_array_equal(display.counts_.get_data().values, [0, 0, 2, 3])
    edges = display.counts_.get_data().edges
    np.testing.assert_array_equal(edges, [0, 0.25, 0.5, 0.75, 1])


def test_bars_are_exact_binomial_intervals(display: ReliabilityDisplay) -> None:
    bars = [
        [x, *binomtest(k, n).proportion_ci(0.95)]
        for x, k, n in ((0.6, 1, 2), (2.8 / 3, 2, 3))
    ]
    np.testing.assert_allclose(_bars(display), bars)


@pytest.mark.parametrize("n_rows", [1, 4, 30])
def test_bars_hold_the_true_share_in_95_percent(n_rows: int) -> None:
    hits = np.arange(n_rows + 1)
    low, high = share_interval(hits / n_rows, np.full(n_rows + 1, float(n_rows)))
    assert (low[0], high[-1]) == (0, 1)
    assert ((low <= hits / n_rows) & (hits / n_rows <= high)).all()
    for share in np.linspace(0.01, 0.99, 50):
        inside = (low <= share) & (share <= high)
        assert binom.pmf(hits[inside], n_rows, share).sum() >= 0.95


def test_legend_tells_the_calibration_error(display: ReliabilityDisplay) -> None:
    by_hand = 2 / 5 * abs(0.6 - 0.5) + 3 / 5 * abs(2.8 / 3 - 2 / 3)
    assert display.calibration_error == pytest.approx(by_hand)
    assert _legend(display) == ["calibrated", f"mine (ECE {by_hand:.3f})"]


@pytest.mark.usefixtures("pyplot")
@pytest.mark.parametrize("strategy", ["uniform", "quantile"])
def test_calibration_error_is_the_one_of_the_metrics(strategy: Any) -> None:
    rng = np.random.default_rng(0)
    y_proba, y_true = rng.dirichlet(np.ones(4), size=300), rng.integers(4, size=300)
    drawn = ReliabilityDisplay.from_predictions(y_true, y_proba, strategy=strategy)
    error = expected_calibration_error(y_true, y_proba, strategy=strategy)
    assert drawn.calibration_error == pytest.approx(error)


def test_the_square_is_honest_and_stands_on_the_strip(
    display: ReliabilityDisplay,
) -> None:
    ax = display.ax_
    assert ax.get_xlim() == display.counts_ax_.get_xlim() == (0, 1)
    assert ax.get_ylim()[1] == 1
    assert ax.get_aspect() == 1
    np.testing.assert_allclose(ax.get_yticks(), np.linspace(0, 1, 6))
    display.figure_.draw_without_rendering()
    floor = ax.transData.transform((0, 0))[1]
    assert display.counts_ax_.get_window_extent().y1 < floor
    assert display.counts_ax_.get_ylim()[0] == 0


@pytest.mark.usefixtures("pyplot")
def test_the_legend_leaves_the_strip_alone() -> None:
    # nine in ten at any probability, so that the room for a legend is at the bottom
    y_true, scores = np.tile([1] * 9 + [0], 15), np.linspace(0.02, 0.98, 15).repeat(10)
    drawn = ReliabilityDisplay.from_predictions(y_true, scores, pos_label=1)
    drawn.figure_.draw_without_rendering()
    floor = drawn.ax_.transData.transform((0, 0))[1]
    assert drawn.ax_.get_legend().get_window_extent().y0 >= floor


def test_methods_share_diagonal_and_strip(display: ReliabilityDisplay) -> None:
    bins = calibration_bins(Y_TRUE, Y_PROBA[::-1], n_bins=3)
    other = ReliabilityDisplay(bins, name="old")
    assert other.plot(display.ax_, name="new", color="black") is other
    assert other.diagonal_ is display.diagonal_
    assert other.counts_ax_ is display.counts_ax_
    assert len(display.counts_ax_.patches) == 2
    assert other.counts_.get_edgecolor() == (0, 0, 0, 1)
    np.testing.assert_array_equal(other.bars_.get_color()[0][:3], [0, 0, 0])
    assert other.line_.get_marker() != display.line_.get_marker()
    assert [text.split(" (")[0] for text in _legend(other)[1:]] == ["mine", "new"]


@pytest.mark.usefixtures("pyplot")
def test_classwise_is_one_line_per_class_on_one_axes() -> None:
    ax = None
    for label in LABELS:
        drawn = ReliabilityDisplay.from_predictions(
            Y_TRUE, Y_PROBA, pos_label=label, n_bins=2, ax=ax
        )
        ax = drawn.ax_
    # dog: 0.1, 0.2, 0.4 and 0 below a half, where one of four is a dog; 0.9 above
    np.testing.assert_allclose(drawn.line_.get_xydata(), [[0.7 / 4, 1 / 4], [0.9, 1]])
    assert [text.split(" (")[0] for text in _legend(drawn)] == [
        "calibrated",
        *(f"class {label}" for label in LABELS),
    ]
    assert drawn.ax_.get_xlabel() == "mean probability of the class"


@pytest.mark.usefixtures("pyplot")
@pytest.mark.parametrize(
    ("y_true", "y_proba", "labels", "points"),
    [
        ([0, 1], [[1.0, 0.0], [0.0, 1.0]], None, [[1, 1]]),
        ([0, 1], [[0.0, 1.0], [1.0, 0.0]], None, [[1, 0]]),
        ([0], [[0.5, 0.5]], [0, 1], [[0.5, 1]]),
        ([1, 1], [[0.5, 0.5], [0.5, 0.5]], [0, 1], [[0.5, 0]]),
        ([True, False], [0.75, 0.75], None, [[0.75, 0.5]]),
    ],
    ids=["sure", "surely wrong", "one row", "constant scores", "flat probabilities"],
)
@pytest.mark.parametrize("strategy", ["uniform", "quantile"])
def test_edge_cases_draw_what_they_say(
    y_true: Any, y_proba: Any, labels: Any, points: Any, strategy: Any
) -> None:
    drawn = ReliabilityDisplay.from_predictions(
        y_true, y_proba, labels=labels, strategy=strategy
    )
    np.testing.assert_array_equal(drawn.line_.get_xydata(), points)
    assert drawn.bins.count.sum() == len(y_true)


@pytest.mark.usefixtures("pyplot")
def test_a_class_may_be_missing_from_the_test_rows() -> None:
    X = np.linspace(-1, 1, 60)[:, None]
    y = np.array(LABELS).repeat(20)
    classifier = LogisticRegression().fit(X, y)
    drawn = ReliabilityDisplay.from_estimator(classifier, X[20:], y[20:], n_bins=4)
    expected = calibration_bins(
        y[20:], classifier.predict_proba(X[20:]), labels=LABELS, n_bins=4
    )
    np.testing.assert_array_equal(drawn.bins.accuracy, expected.accuracy)


@pytest.mark.usefixtures("pyplot")
def test_a_search_over_a_pipeline_is_asked_for_its_classes() -> None:
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(90, 2)), columns=["a", "b"])
    y = np.where(X["a"] > 0, "yes", "no")
    pipeline = make_pipeline(StandardScaler(), LogisticRegression())
    search = GridSearchCV(pipeline, {"logisticregression__C": [0.1, 1.0]}, cv=2)
    drawn = ReliabilityDisplay.from_estimator(search.fit(X, y), X, y, pos_label="yes")
    expected = calibration_bins(y, search.predict_proba(X)[:, 1], pos_label="yes")
    np.testing.assert_array_equal(drawn.bins.accuracy, expected.accuracy)
    assert _legend(drawn)[-1].startswith("GridSearchCV, class yes (ECE ")


def test_bars_of_a_calibrated_classifier_reach_the_diagonal(
    pyplot: ModuleType,
) -> None:
    rng, ax = np.random.default_rng(0), pyplot.gca()
    n_bars = n_missed = 0
    for _ in range(40):
        y_proba = rng.dirichlet(np.ones(3), size=400)
        y_true = (rng.uniform(size=(400, 1)) > y_proba.cumsum(axis=1)).sum(axis=1)
        drawn = ReliabilityDisplay.from_predictions(y_true, y_proba, ax=ax)
        x, low, high = _bars(drawn).T
        n_bars += len(x)
        n_missed += ((x < low) | (high < x)).sum()
    assert n_bars > 300
    assert n_missed <= binom.ppf(1 - 1e-4, n_bars, 0.05)


@pytest.mark.usefixtures("pyplot")
def test_bars_of_an_overconfident_network_stay_below_the_diagonal(cifar10: Any) -> None:
    drawn = ReliabilityDisplay.from_predictions(*cifar10)
    assert drawn.bins.confidence.dtype == np.float64  # from float32
    assert round(drawn.calibration_error, 3) == 0.033
    x, _, high = _bars(drawn)[-6:].T
    assert (high < x).all()


@pytest.mark.usefixtures("pyplot")
@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"y_proba": np.where(Y_PROBA == 0.9, np.nan, Y_PROBA)}, "NaN"),
        ({"y_proba": 2 * Y_PROBA}, "[0, 1]"),
        ({"labels": ["cat", "cow"]}, "labels"),
        ({"labels": ["cat", "cow", "hen"]}, "'dog'"),
        ({"pos_label": "hen"}, "pos_label='hen'"),
        ({"n_bins": 0}, "n_bins"),
        ({"strategy": "even"}, "strategy"),
    ],
)
def test_mistakes_are_named(change: dict[str, Any], words: str) -> None:
    arguments = {"y_true": Y_TRUE, "y_proba": Y_PROBA} | change
    with pytest.raises(ValueError, match=re.escape(words)):
        ReliabilityDisplay.from_predictions(**arguments)
