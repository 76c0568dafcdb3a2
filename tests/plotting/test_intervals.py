"""The interval figure's numbers: where rows stand, which are missed, what it says."""

import pickle
import re
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from uqformer.plotting import IntervalDisplay

Y_TRUE = np.array([0.0, 5.0, 2.0, -9.0])
Y_PRED = np.array([1.0, 3.0, 2.0, 0.0])
Y_INTERVAL = np.array([[0.0, 2.0], [2.0, 4.0], [-3.0, 7.0], [-2.0, 2.0]])
MISSED_ROWS = [1, 3]  # row 0 lies on its lower end, which counts as inside


class PlusMinus(RegressorMixin, BaseEstimator):
    """First column plus or minus ten times the level."""

    def fit(self, X: Any, y: Any) -> "PlusMinus":
        self.n_features_in_ = np.asarray(X).shape[1]
        return self

    def predict(self, X: Any) -> Any:
        return np.asarray(X)[:, 0]

    def predict_interval(self, X: Any, confidence_level: float) -> Any:
        return self.predict(X)[:, None] + 10 * confidence_level * np.array([-1, 1])


@pytest.fixture
def draw(pyplot: ModuleType) -> Any:
    def _draw(**kwargs: Any) -> IntervalDisplay:
        return IntervalDisplay.from_predictions(Y_TRUE, Y_PRED, Y_INTERVAL, **kwargs)

    return _draw


def _bars(display: IntervalDisplay) -> Any:
    """(x, lower, upper) of each vertical line."""
    return np.array(
        [[s[0, 0], s[0, 1], s[1, 1]] for s in display.intervals_.get_segments()]
    )


def _legend(display: IntervalDisplay) -> list[str]:
    return [text.get_text() for text in display.ax_.get_legend().get_texts()]


@pytest.mark.parametrize(
    ("order", "positions", "xlabel"),
    [
        ("prediction", [2, 4, 3, 1], "row, by prediction"),
        ("width", [1, 2, 4, 3], "row, by width"),
        ([0.3, -1.0, 2.5, 0.1], [0.3, -1.0, 2.5, 0.1], "value given for the row"),
    ],
)
def test_rows_stand_where_the_order_says(
    draw: Any, order: Any, positions: list[float], xlabel: str
) -> None:
    display = draw(order=order)
    bars = np.column_stack([positions, Y_INTERVAL])
    np.testing.assert_array_equal(_bars(display), bars)
    points = np.column_stack([positions, Y_PRED])
    np.testing.assert_array_equal(display.prediction_.get_xydata(), points)
    missed = np.column_stack([positions, Y_TRUE])[MISSED_ROWS]
    np.testing.assert_array_equal(display.missed_.get_xydata(), missed)
    assert display.ax_.get_xlabel() == xlabel


@pytest.mark.parametrize("order", ["width", [0.3, -1.0, 2.5, 0.1]])
def test_the_axis_can_be_named(draw: Any, order: Any) -> None:
    display = draw(order=order, xlabel="age of the patient in years")
    assert display.ax_.get_xlabel() == "age of the patient in years"
    assert display.plot().ax_.get_xlabel() == "age of the patient in years"


def test_a_column_of_a_frame_names_the_axis(draw: Any) -> None:
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"age": [0.3, -1.0, 2.5, 0.1], 7: 0.0})
    assert draw(order=frame["age"]).ax_.get_xlabel() == "age"
    assert draw(order=frame["age"], xlabel="years").ax_.get_xlabel() == "years"
    assert draw(order=frame[7]).ax_.get_xlabel() == "value given for the row"


def test_prediction_is_the_default_order(draw: Any) -> None:
    np.testing.assert_array_equal(_bars(draw()), _bars(draw(order="prediction")))


def test_every_target_is_drawn_once(draw: Any) -> None:
    display = draw()
    drawn = [*display.covered_.get_ydata(), *display.missed_.get_ydata()]
    assert sorted(drawn) == sorted(Y_TRUE)


def test_covered_and_missed_differ_in_grey(draw: Any) -> None:
    display = draw()
    assert display.covered_.get_marker() != display.missed_.get_marker()
    assert display.covered_.get_markerfacecolor() == "none"
    assert display.missed_.get_color() == "black"


def test_all_targets_fit_in_the_axes(draw: Any) -> None:
    low, high = draw().ax_.get_ylim()
    assert low < Y_TRUE.min()
    assert high > Y_INTERVAL.max()


def test_legend_sets_coverage_beside_the_level(draw: Any) -> None:
    assert _legend(draw(confidence_level=0.9, name="mine")) == [
        "mine: 90 % interval, covers 50 %",
        "prediction",
        "target inside (2)",
        "target outside (2)",
    ]
    assert _legend(draw())[0] == "interval, covers 50 %"


def test_plot_uses_the_axes_and_name_given(draw: Any, pyplot: ModuleType) -> None:
    display = draw(name="old")
    figure, ax = pyplot.subplots()
    assert display.plot(ax, name="new", color="red", linewidth=1) is display
    assert (display.figure_, display.ax_) == (figure, ax)
    assert _legend(display)[0].startswith("new: ")
    assert display.intervals_.get_linewidth() == [1]
    np.testing.assert_array_equal(display.intervals_.get_color()[0], [1, 0, 0, 1])
    assert display.name == "old"


def test_a_display_can_be_redrawn_from_its_numbers(draw: Any) -> None:
    display = draw(order=[0.3, -1.0, 2.5, 0.1], confidence_level=0.8)
    numbers = [display.y_true, display.y_pred, display.y_interval]
    copy = IntervalDisplay(
        *pickle.loads(pickle.dumps(numbers)), order=display.order, confidence_level=0.8
    )
    np.testing.assert_array_equal(_bars(copy.plot()), _bars(display))
    assert _legend(copy) == _legend(display)


@pytest.mark.usefixtures("pyplot")
def test_estimator_is_asked_through_its_pipeline() -> None:
    X = np.array([[0.0], [10.0], [20.0]])
    y = np.array([4.0, 10.0, 31.0])
    display = IntervalDisplay.from_estimator(
        PlusMinus().fit(X, y), X, y, confidence_level=0.5
    )
    np.testing.assert_array_equal(_bars(display), [[1, -5, 5], [2, 5, 15], [3, 15, 25]])
    np.testing.assert_array_equal(display.missed_.get_xydata(), [[3, 31]])
    assert _legend(display)[0] == "PlusMinus: 50 % interval, covers 66.67 %"

    pipeline = make_pipeline(StandardScaler(), PlusMinus()).fit(X, y)
    scaled = IntervalDisplay.from_estimator(pipeline, X, y, name="scaled")
    np.testing.assert_allclose(scaled.y_interval.mean(axis=1), scaled.y_pred)
    np.testing.assert_allclose(np.ptp(scaled.y_interval, axis=1), 18)
    assert _legend(scaled)[0].startswith("scaled: 90 % interval")

    along = IntervalDisplay.from_estimator(pipeline, X, y, order=X[:, 0], xlabel="mm")
    np.testing.assert_array_equal(_bars(along)[:, 0], X[:, 0])
    assert along.ax_.get_xlabel() == "mm"


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            {"order": "feature"},
            "order must be 'prediction', 'width' or one number per row; got "
            "order='feature'.",
        ),
        (
            {"order": [1.0, 2.0]},
            "order must hold one number per row; got 2 numbers for 4 rows.",
        ),
        (
            {"y_interval": np.stack([Y_INTERVAL] * 3, axis=2)},
            "y_interval must have shape (n_samples, 2), one level a figure; got "
            "y_interval.shape=(4, 2, 3). Pass y_interval[:, :, 0], or see "
            "CoverageDisplay for several levels.",
        ),
        (
            {"y_interval": np.where(Y_INTERVAL == 7.0, np.inf, Y_INTERVAL)},
            "y_interval must be finite to be drawn; got an infinite end in row 2. Try "
            "a lower confidence_level or more calibration rows.",
        ),
        (
            {"confidence_level": 90},
            "confidence_level must lie strictly between 0 and 1; got "
            "confidence_level=90. For 90 % pass 0.9.",
        ),
    ],
)
def test_sentences(change: dict[str, Any], sentence: str) -> None:
    arguments = {"y_true": Y_TRUE, "y_pred": Y_PRED, "y_interval": Y_INTERVAL}
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        IntervalDisplay.from_predictions(**arguments | change)


@pytest.mark.parametrize("short", ["y_true", "y_pred", "y_interval"])
def test_lengths_must_agree(short: str) -> None:
    arguments = {"y_true": Y_TRUE, "y_pred": Y_PRED, "y_interval": Y_INTERVAL}
    arguments[short] = arguments[short][:-1]
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        IntervalDisplay.from_predictions(**arguments)
