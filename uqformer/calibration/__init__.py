"""Make spreads match errors and intervals cover what they say."""

from uqformer.calibration._base import BaseCalibrator
from uqformer.calibration._binning import HistogramBinningCalibrator
from uqformer.calibration._calibrated_regressor import CalibratedRegressor
from uqformer.calibration._classifier import CalibratedClassifier
from uqformer.calibration._concentration import (
    ConcentrationResult,
    concentration_search,
    log_ratio_std_error,
)
from uqformer.calibration._conformal import AdaptiveConformal
from uqformer.calibration._isotonic import IsotonicCalibrator
from uqformer.calibration._online import AdaptiveOnlineConformal
from uqformer.calibration._quantile import conformal_quantile
from uqformer.calibration._recalibration import ConformalCalibrator, QuantileCalibrator
from uqformer.calibration._regression import LocationScaleCalibrator, SpreadCalibrator
from uqformer.calibration._regressor import ConformalRegressor
from uqformer.calibration._scaling import (
    DirichletCalibrator,
    MatrixScalingCalibrator,
    VectorScalingCalibrator,
)
from uqformer.calibration._sets import ConformalSets
from uqformer.calibration._sigmoid import BetaCalibrator, PlattCalibrator
from uqformer.calibration._temperature import TemperatureCalibrator

__all__ = [
    "AdaptiveConformal",
    "AdaptiveOnlineConformal",
    "BaseCalibrator",
    "BetaCalibrator",
    "CalibratedClassifier",
    "CalibratedRegressor",
    "ConcentrationResult",
    "ConformalCalibrator",
    "ConformalRegressor",
    "ConformalSets",
    "DirichletCalibrator",
    "HistogramBinningCalibrator",
    "IsotonicCalibrator",
    "LocationScaleCalibrator",
    "MatrixScalingCalibrator",
    "PlattCalibrator",
    "QuantileCalibrator",
    "SpreadCalibrator",
    "TemperatureCalibrator",
    "VectorScalingCalibrator",
    "concentration_search",
    "conformal_quantile",
    "log_ratio_std_error",
]
