"""The concentration figure's numbers: passes, law, error, choice and interval."""

from types import SimpleNamespace

import numpy as np
import pytest

from uqformer.calibration import ConcentrationResult, concentration_search
from uqformer.plotting import ConcentrationDisplay


def _noisy(scale: float, seed: int) -> ConcentrationResult:
    rng = np.random.default_rng(seed)
    return concentration_search(
        lambda n, _: scale * n**-0.5 * np.exp(0.1 * rng.standard_normal()),
        target=0.2,
        confidence_level=0.8,
    )


@pytest.fixture
def result() -> ConcentrationResult:
    return _noisy(1.0, seed=0)


def _legend(display: ConcentrationDisplay) -> list[str]:
    return [text.get_text() for text in display.ax_.get_legend().get_texts()]


@pytest.mark.usefixtures("pyplot")
def test_what_is_drawn_is_what_was_found(result: ConcentrationResult) -> None:
    display = ConcentrationDisplay.from_result(result, name="mine")
    np.testing.assert_array_equal(
        display.line_.get_xydata(), np.c_[result.tried, result.distances]
    )
    assert display.line_.get_linestyle() == "None"
    np.testing.assert_array_equal(display.target_.get_ydata(), [0.2, 0.2])
    np.testing.assert_array_equal(display.chosen_.get_xdata(), [result.n_draws] * 2)
    assert (display.ax_.get_xscale(), display.ax_.get_yscale()) == ("log", "log")
    assert _legend(display) == [
        "error of the exact pass: 0.2",
        "80 % interval of the best number",
        f"chosen: {result.n_draws} draws",
        f"power law of slope {result.slope:.2f}",
        "mine",
    ]


@pytest.mark.usefixtures("pyplot")
def test_the_law_is_the_line_of_least_squares(result: ConcentrationResult) -> None:
    display = ConcentrationDisplay.from_result(result)
    slope, intercept = np.polyfit(np.log(result.tried), np.log(result.distances), 1)
    x, y = display.law_.get_data()
    assert (x[0], x[1]) == (1, 1024)
    np.testing.assert_allclose(y, np.exp(intercept + slope * np.log(x)))


@pytest.mark.usefixtures("pyplot")
def test_the_band_is_the_interval(result: ConcentrationResult) -> None:
    display = ConcentrationDisplay.from_result(result)
    box = display.band_.get_path().get_extents(display.band_.get_patch_transform())
    np.testing.assert_allclose((box.x0, box.x1), result.interval)
    assert box.x0 < result.n_draws < box.x1


@pytest.mark.usefixtures("pyplot")
def test_models_share_the_axes_and_the_error(result: ConcentrationResult) -> None:
    first = ConcentrationDisplay.from_result(result)
    other = ConcentrationDisplay(_noisy(3.0, seed=1), name="old").plot(
        first.ax_, name="new", markersize=9
    )
    assert other.target_ is first.target_
    assert other.line_.get_color() != first.line_.get_color()
    assert other.law_.get_color() == other.line_.get_color()
    assert other.line_.get_markersize() == 9
    assert _legend(other).count("error of the exact pass: 0.2") == 1
    assert _legend(other)[-1] == "new"


@pytest.mark.usefixtures("pyplot")
def test_an_estimator_shows_the_search_it_keeps(result: ConcentrationResult) -> None:
    estimator = SimpleNamespace(search_=result)
    display = ConcentrationDisplay.from_estimator(estimator)
    assert display.result is result
    assert _legend(display)[-1] == "SimpleNamespace"
    with pytest.raises(AttributeError, match=r"search_; got object, which does not"):
        ConcentrationDisplay.from_estimator(object())
