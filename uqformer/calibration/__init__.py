"""Make spreads match errors and intervals cover what they say."""

from uqformer.calibration._concentration import (
    ConcentrationResult,
    concentration_search,
)
from uqformer.calibration._conformal import AdaptiveConformal, conformal_quantile

__all__ = [
    "AdaptiveConformal",
    "ConcentrationResult",
    "concentration_search",
    "conformal_quantile",
]
