"""Each check lets the right thing through and says of the wrong one what to do."""

import re
from typing import Any

import numpy as np
import pytest

from uqformer import _validation
from uqformer._validation import (
    check_confidence_level,
    check_interval,
    check_probabilities,
)

SHAPE = "y_interval must have shape (n_samples, 2) or (n_samples, 2, n_levels)"
RANGE = "confidence_level must lie strictly between 0 and 1"
NUMBERS = "confidence_level must be a number or a non-empty list of numbers"


def test_a_number_becomes_a_flat_float64_array() -> None:
    levels = check_confidence_level(np.float32(0.5))
    assert levels.dtype == np.float64
    np.testing.assert_array_equal(levels, [0.5])
    np.testing.assert_array_equal(check_confidence_level([0.9, 0.1]), [0.9, 0.1])


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        (95, f"{RANGE}; got confidence_level=95. For 95 % pass 0.95."),
        ([0.5, 99.5], f"{RANGE}; got confidence_level=99.5. For 99.5 % pass 0.995."),
        (0, f"{RANGE}; got confidence_level=0."),
        (1.0, f"{RANGE}; got confidence_level=1."),
        (-0.1, f"{RANGE}; got confidence_level=-0.1."),
        (float("nan"), f"{RANGE}; got confidence_level=nan."),
        ([], f"{NUMBERS}; got an array of shape (0,)."),
        ([[0.5]], f"{NUMBERS}; got an array of shape (1, 1)."),
    ],
)
def test_confidence_level_sentences(value: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        check_confidence_level(value)


def test_probabilities_are_called_by_the_callers_name() -> None:
    with pytest.raises(ValueError, match=r"^quantiles must lie .* got quantiles=2\."):
        check_probabilities([0.1, 2.0], "quantiles")


def test_intervals_of_one_and_several_levels_pass() -> None:
    one = check_interval([[0, 1], [2, 2]])
    assert one.dtype == np.float64
    np.testing.assert_array_equal(one, [[0.0, 1.0], [2.0, 2.0]])
    several = np.stack([one, one + np.array([-1, 1])], axis=2)
    np.testing.assert_array_equal(check_interval(several), several)
    assert np.isinf(check_interval([[-np.inf, np.inf]])).all()


@pytest.mark.parametrize(
    ("interval", "sentence"),
    [
        (np.zeros((2, 100)), f"{SHAPE}; got y_interval.shape=(2, 100). Transpose it?"),
        (np.zeros((5, 3)), f"{SHAPE}; got y_interval.shape=(5, 3)."),
        (np.zeros(4), f"{SHAPE}; got y_interval.shape=(4,)."),
        ([[0.0, 1.0], [np.nan, 1.0]], "y_interval must hold no NaN; got NaN in row 1."),
        (
            [[0.0, 1.0], [2.0, 1.0], [5.0, 1.0]],
            "The lower end of an interval must not lie above its upper end; it does in "
            "2 of 3 intervals, first in row 1. Lower ends come first in y_interval.",
        ),
    ],
)
def test_interval_sentences(interval: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        check_interval(interval)


def test_every_exported_name_exists() -> None:
    assert sorted(_validation.__all__) == _validation.__all__
    assert all(hasattr(_validation, name) for name in _validation.__all__)
