"""Figures of uncertainty: each display can be drawn from a model or from numbers."""

from uqformer.plotting._coverage import CoverageDisplay
from uqformer.plotting._intervals import IntervalDisplay

__all__ = ["CoverageDisplay", "IntervalDisplay"]
