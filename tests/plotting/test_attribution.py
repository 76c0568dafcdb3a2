"""The attribution figure's numbers: a bar for each part, in the order given."""

from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from uqformer.plotting import AttentionVarianceDisplay

SHARES = {"blocks.0": 0.8, "blocks.1": 0.25, "interaction": -0.05}


def _legend(display: AttentionVarianceDisplay) -> list[str]:
    return [text.get_text() for text in display.ax_.get_legend().get_texts()]


def _bars(display: AttentionVarianceDisplay) -> dict[str, float]:
    display.figure_.canvas.draw()
    names = [text.get_text() for text in display.ax_.get_yticklabels()]
    middles = [bar.get_y() + bar.get_height() / 2 for bar in display.bars_]
    return {
        names[round(y)]: bar.get_width()
        for y, bar in zip(middles, display.bars_, strict=True)
    }


@pytest.mark.usefixtures("pyplot")
def test_each_part_has_its_bar() -> None:
    display = AttentionVarianceDisplay.from_shares(SHARES, name="mine")
    assert _bars(display) == SHARES
    assert _legend(display) == ["mine"]
    low, high = display.ax_.get_ylim()
    assert low > high  # the first layer stands on top
    assert display.ax_.get_xlim()[0] < -0.05


@pytest.mark.usefixtures("pyplot")
def test_bars_of_one_name_meet_whatever_the_order() -> None:
    first = AttentionVarianceDisplay.from_shares(SHARES, name="redraw")
    turned = {"blocks.1": 0.2, "blocks.0": 0.7, "blocks.9": 0.1}
    other = AttentionVarianceDisplay(turned, name="old").plot(
        first.ax_, name="gradient"
    )
    assert _bars(other) == turned
    assert _bars(first) == SHARES
    assert _legend(other) == ["redraw", "gradient"]
    assert other.bars_[0].get_facecolor()[3] == 0  # an outline hides no bar
    assert other.bars_[0].get_edgecolor() != first.bars_[0].get_edgecolor()
    assert sum(line.get_label() == "_zero" for line in other.ax_.lines) == 1
    low, high = other.ax_.get_ylim()
    assert low > high


@pytest.mark.usefixtures("pyplot")
def test_a_third_method_has_a_third_colour() -> None:
    ax, colors = None, set()
    for _ in range(3):
        display = AttentionVarianceDisplay.from_shares(SHARES, ax=ax)
        ax = display.ax_
        colors.add(display.bars_[0].get_edgecolor()[:3])
    assert len(colors) == 3


@pytest.mark.usefixtures("pyplot")
def test_an_estimator_is_asked_by_the_name_of_its_method() -> None:
    asked: list[Any] = []

    def attention_shares(X: Any, by: str) -> dict[str, float]:
        asked.append((X, by))
        return SHARES

    estimator, X = SimpleNamespace(attention_shares=attention_shares), np.zeros((2, 1))
    display = AttentionVarianceDisplay.from_estimator(
        estimator, X, by="head", color="black"
    )
    assert asked == [(X, "head")]
    assert _legend(display) == ["SimpleNamespace"]
    assert display.bars_[0].get_facecolor()[:3] == (0, 0, 0)
    with pytest.raises(AttributeError, match=r"attention_shares; got object, which"):
        AttentionVarianceDisplay.from_estimator(object(), X)


@pytest.mark.parametrize("shares", [{}, {"a": np.nan}, {"a": 0.5, "b": np.inf}])
def test_mistakes_are_named(pyplot: ModuleType, shares: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="finite share; got shares="):
        AttentionVarianceDisplay.from_shares(shares)
    assert pyplot.get_fignums() == []
