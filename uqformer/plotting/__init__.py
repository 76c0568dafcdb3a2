"""Figures of uncertainty: each display can be drawn from a model or from numbers."""

from uqformer.plotting._attribution import AttentionVarianceDisplay
from uqformer.plotting._concentration import ConcentrationDisplay
from uqformer.plotting._coverage import CoverageDisplay
from uqformer.plotting._drift import CalibrationDriftDisplay
from uqformer.plotting._intervals import IntervalDisplay
from uqformer.plotting._pit import PITHistogramDisplay
from uqformer.plotting._reliability import ReliabilityDisplay
from uqformer.plotting._selective import RiskCoverageDisplay
from uqformer.plotting._spread_skill import SpreadSkillDisplay

__all__ = [
    "AttentionVarianceDisplay",
    "CalibrationDriftDisplay",
    "ConcentrationDisplay",
    "CoverageDisplay",
    "IntervalDisplay",
    "PITHistogramDisplay",
    "ReliabilityDisplay",
    "RiskCoverageDisplay",
    "SpreadSkillDisplay",
]
