"""Scores of predicted uncertainty, in numpy alone."""

from uqformer.metrics._calibration import pit_values, pit_wasserstein_error
from uqformer.metrics._ensemble import crps_loss, energy_loss
from uqformer.metrics._intervals import (
    coverage_error,
    coverage_score,
    mean_interval_width,
    pinball_loss,
    winkler_loss,
)
from uqformer.metrics._normal import crps_normal_loss, gaussian_nll_loss
from uqformer.metrics._report import regression_report

__all__ = [
    "coverage_error",
    "coverage_score",
    "crps_loss",
    "crps_normal_loss",
    "energy_loss",
    "gaussian_nll_loss",
    "mean_interval_width",
    "pinball_loss",
    "pit_values",
    "pit_wasserstein_error",
    "regression_report",
    "winkler_loss",
]
