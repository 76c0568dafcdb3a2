"""The drift figure's numbers: moving windows, the promise, and the band of chance."""

import re
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom, norm
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from uqformer.plotting import CalibrationDriftDisplay
from uqformer.plotting._base import binomial_range

Y_TRUE = np.array([0.0, 1.0, 3.0, 0.5, -2.0])  # 1 lies on an end, which is inside
Y_INTERVAL = np.array([[-1.0, 1.0]] * 5)
HITS = [1, 1, 0, 1, 0]


class StandardNormal(RegressorMixin, BaseEstimator):
    """The right intervals for standard normal targets."""

    def fit(self, X: Any, y: Any) -> "StandardNormal":
        self.n_features_in_ = np.asarray(X).shape[1]
        return self

    def predict(self, X: Any) -> Any:
        return np.zeros(len(X))

    def predict_interval(self, X: Any, confidence_level: float) -> Any:
        half = norm.ppf((1 + confidence_level) / 2)
        return np.stack([[-half, half]] * len(X))


@pytest.fixture
def draw(pyplot: ModuleType) -> Any:
    def _draw(**kwargs: Any) -> CalibrationDriftDisplay:
        arguments: dict[str, Any] = {"confidence_level": 0.5, "window": 2}
        return CalibrationDriftDisplay.from_predictions(
            Y_TRUE, Y_INTERVAL, **arguments | kwargs
        )

    return _draw


def _legend(display: CalibrationDriftDisplay) -> list[str]:
    return [text.get_text() for text in display.ax_.get_legend().get_texts()]


def _band(display: CalibrationDriftDisplay) -> tuple[float, float]:
    heights = display.band_.get_paths()[0].vertices[:, 1]
    return heights.min(), heights.max()


@pytest.mark.parametrize("window", [1, 2, 5])
def test_line_is_the_share_of_hits_in_each_window(draw: Any, window: int) -> None:
    ends = np.arange(window, 6)
    shares = [np.mean(HITS[end - window : end]) for end in ends]
    display = draw(window=window)
    np.testing.assert_allclose(display.line_.get_xydata(), np.c_[ends, shares])
    expected = f"row, at the end of each window of {window} rows"
    assert display.ax_.get_xlabel() == expected


def test_level_and_band_are_those_of_the_window(draw: Any) -> None:
    display = draw(name="mine", confidence_level=0.7)
    np.testing.assert_array_equal(display.level_.get_ydata(), [0.7] * 4)
    low, high = binomial_range(0.7, 2)
    assert _band(display) == (low, high)
    assert _legend(display) == [
        "95 % of calibrated results at 70 %, 2 rows",
        "promised: 70 %",
        "mine",
    ]


@pytest.mark.parametrize(
    "time",
    [
        [30.0, 20.0, 50.0, 10.0, 40.0],
        np.array(["2026-03", "2026-02", "2026-05", "2026-01", "2026-04"], "M8[D]"),
    ],
    ids=["numbers", "dates"],
)
def test_rows_are_put_in_order_of_time(draw: Any, time: Any) -> None:
    display = draw(time=time)
    np.testing.assert_array_equal(display.hits, [1, 1, 1, 0, 0])
    np.testing.assert_array_equal(display.ends, np.sort(time)[1:])
    np.testing.assert_array_equal(display.line_.get_ydata(), [1, 1, 0.5, 0])
    assert display.ax_.get_xlabel() == "time, at the end of each window of 2 rows"


def test_dates_of_a_frame_will_do(draw: Any) -> None:
    pd = pytest.importorskip("pandas")
    dates = pd.date_range("2026-01-01", periods=5, freq="D")
    np.testing.assert_array_equal(draw(time=dates).ends, dates[1:].to_numpy())
    np.testing.assert_array_equal(draw(time=pd.Series(dates)).hits, HITS)


@pytest.mark.usefixtures("pyplot")
def test_probabilities_promise_their_mean() -> None:
    expected = np.array([0.9, 0.7, 0.5, 0.7, 0.8])
    display = CalibrationDriftDisplay(np.array(HITS), expected, window=2).plot()
    promised = [0.8, 0.6, 0.6, 0.75]
    np.testing.assert_allclose(display.level_.get_ydata(), promised)
    lows, highs = binomial_range(promised, 2)
    assert _band(display) == (lows.min(), highs.max())
    assert _legend(display)[1:] == ["promised: 68.75 % on average", "observed"]


def test_methods_share_the_axes_and_none_is_cut_off(draw: Any) -> None:
    first = draw(confidence_level=0.9)
    always = CalibrationDriftDisplay(np.ones(5), 0.9, window=2).plot(first.ax_)
    never = CalibrationDriftDisplay(np.zeros(5), 0.9, window=2, name="old")
    assert never.plot(first.ax_, name="never", color="black") is never
    assert (always.band_, always.level_) == (first.band_, first.level_)
    assert len(first.ax_.lines) == 4
    assert never.line_.get_linestyle() != first.line_.get_linestyle()
    assert _legend(never)[-1] == "never"
    low, high = first.ax_.get_ylim()
    assert low < 0
    assert high == 1


@pytest.mark.usefixtures("pyplot")
def test_a_calibrated_method_stays_in_the_band_and_a_drifting_one_does_not() -> None:
    rng = np.random.default_rng(0)
    n_windows, window = 400, 50
    y = rng.normal(size=n_windows * window)
    X = np.zeros((len(y), 1))
    model = make_pipeline(StandardScaler(), StandardNormal()).fit(X, y)
    display = CalibrationDriftDisplay.from_estimator(
        model, X, y, confidence_level=0.8, window=window
    )
    low, high = binomial_range(0.8, window)
    apart = display.observed[::window]  # windows that share no row
    assert len(apart) == n_windows
    n_outside = ((apart < low) | (apart > high)).sum()
    assert n_outside <= binom.ppf(1 - 1e-4, n_windows, 0.05)
    assert _legend(display)[-1] == "Pipeline"

    scale = np.where(np.arange(len(y)) < len(y) // 2, 1.0, 2.0)
    drifting = CalibrationDriftDisplay.from_estimator(
        model, X, scale * y, confidence_level=0.8, window=window
    )
    late = drifting.observed[len(y) // 2 :: window]
    assert (late < low).mean() > 0.9


def test_the_promise_of_one_level_is_exact_over_many_rows() -> None:
    display = CalibrationDriftDisplay(np.ones(20_000), 0.9, window=300)
    assert set(display.promised) == {0.9}


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            {"window": 6},
            "window must be a whole number from 1 to the number of rows, 5; got "
            "window=6.",
        ),
        (
            {"window": 2.5},
            "window must be a whole number from 1 to the number of rows, 5; got "
            "window=2.5.",
        ),
        (
            {"time": ["mon", "tue", "wed", "thu", "fri"]},
            "time must hold a number or a date for each of 5 rows; got 5 values of "
            "dtype <U3. Try pandas.to_datetime for dates in words.",
        ),
        (
            {"time": [1.0, 2.0, np.nan, 4.0, 5.0]},
            "time must hold no NaN or NaT; drop these rows first.",
        ),
        (
            {"y_interval": np.stack([Y_INTERVAL] * 3, axis=2)},
            "y_interval must have shape (n_samples, 2), one level a line; got "
            "y_interval.shape=(5, 2, 3). Call once for each level.",
        ),
    ],
)
def test_sentences(change: dict[str, Any], sentence: str) -> None:
    arguments: dict[str, Any] = {
        "y_true": Y_TRUE,
        "y_interval": Y_INTERVAL,
        "confidence_level": 0.9,
        "window": 2,
    }
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        CalibrationDriftDisplay.from_predictions(**arguments | change)


def test_lengths_must_agree() -> None:
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        CalibrationDriftDisplay.from_predictions(
            Y_TRUE[:4], Y_INTERVAL, confidence_level=0.9
        )
