"""Scores of predicted uncertainty: arrays in, numbers out, never torch."""

from uqformer.metrics._bootstrap import bootstrap_interval
from uqformer.metrics._calibration import pit_values, pit_wasserstein_error
from uqformer.metrics._calibration_bins import CalibrationBins, calibration_bins
from uqformer.metrics._calibration_error import (
    classwise_calibration_error,
    expected_calibration_error,
    maximum_calibration_error,
)
from uqformer.metrics._conditional import (
    CoverageTable,
    coverage_by_group,
    coverage_by_width,
)
from uqformer.metrics._ensemble import crps_loss, energy_loss
from uqformer.metrics._failure import (
    failure_aupr_score,
    failure_auroc_score,
    fpr_at_tpr_error,
)
from uqformer.metrics._intervals import (
    coverage_error,
    coverage_score,
    mean_interval_width,
    winkler_loss,
)
from uqformer.metrics._normal import crps_normal_loss, gaussian_nll_loss
from uqformer.metrics._ood import ood_aupr_score, ood_auroc_score, ood_fpr_at_tpr_error
from uqformer.metrics._probability import brier_decomposition, brier_loss
from uqformer.metrics._quantiles import (
    pinball_loss,
    quantile_calibration_error,
    weighted_interval_loss,
)
from uqformer.metrics._report import regression_report
from uqformer.metrics._selective import (
    area_under_risk_coverage_error,
    excess_area_under_risk_coverage_error,
    risk_coverage_curve,
)
from uqformer.metrics._slab import worst_slab_coverage_score
from uqformer.metrics._smooth import smooth_calibration_error
from uqformer.metrics._spread import (
    SpreadSkillBins,
    rank_histogram,
    spread_skill_bins,
    spread_skill_ratio,
)

__all__ = [
    "CalibrationBins",
    "CoverageTable",
    "SpreadSkillBins",
    "area_under_risk_coverage_error",
    "bootstrap_interval",
    "brier_decomposition",
    "brier_loss",
    "calibration_bins",
    "classwise_calibration_error",
    "coverage_by_group",
    "coverage_by_width",
    "coverage_error",
    "coverage_score",
    "crps_loss",
    "crps_normal_loss",
    "energy_loss",
    "excess_area_under_risk_coverage_error",
    "expected_calibration_error",
    "failure_aupr_score",
    "failure_auroc_score",
    "fpr_at_tpr_error",
    "gaussian_nll_loss",
    "maximum_calibration_error",
    "mean_interval_width",
    "ood_aupr_score",
    "ood_auroc_score",
    "ood_fpr_at_tpr_error",
    "pinball_loss",
    "pit_values",
    "pit_wasserstein_error",
    "quantile_calibration_error",
    "rank_histogram",
    "regression_report",
    "risk_coverage_curve",
    "smooth_calibration_error",
    "spread_skill_bins",
    "spread_skill_ratio",
    "weighted_interval_loss",
    "winkler_loss",
    "worst_slab_coverage_score",
]
