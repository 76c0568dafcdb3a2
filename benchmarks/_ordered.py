"""Forecasts calibrated on later rows than they were trained on, and their scores."""

from typing import Any

import numpy as np
from scipy.stats import norm
from sklearn.base import clone

from uqformer import StochasticAttentionRegressor
from uqformer.metrics import pit_wasserstein_error, regression_report

QUANTILES = (np.arange(50) + 0.5) / 50
"""Equally likely quantiles that stand for a distribution, as many as members."""


def calibrate_later(
    model: StochasticAttentionRegressor, X: np.ndarray, y: np.ndarray
) -> StochasticAttentionRegressor:
    """Calibrate a trained model anew, on rows that lie after those of its training."""
    params = {"backbone": model.as_frozen(), "backbone_params": None}
    return clone(model).set_params(**params).fit(X, y)


def interval_members(
    model: Any, X: np.ndarray, quantiles: np.ndarray = QUANTILES
) -> np.ndarray:
    """Quantiles of central intervals as members (n_quantiles, n_samples, n_outputs).

    `quantiles` must rise, and lie symmetrically about 0.5.
    """
    below = quantiles[quantiles < 0.5]
    ends = model.predict_interval(X, confidence_level=1 - 2 * below)
    lower, upper = ends[:, 0], ends[:, 1]  # (n_samples, n_levels, n_outputs)
    middle = model.predict(X)[:, None]
    parts = [lower, middle[:, : len(quantiles) % 2], upper[:, ::-1]]
    return np.moveaxis(np.concatenate(parts, axis=1), 1, 0)


def normal_members(
    y_pred: np.ndarray, y_std: np.ndarray, quantiles: np.ndarray = QUANTILES
) -> np.ndarray:
    """Quantiles of normal distributions as members (n_quantiles, n_samples, ...)."""
    return y_pred + y_std * norm.ppf(quantiles)[:, None, None]


def as_interval(pair: np.ndarray) -> np.ndarray:
    """Turn two quantiles (2, n_samples, n_outputs) into (n_samples, 2, n_outputs)."""
    return np.moveaxis(pair, 0, 1)


def hits(y_true: np.ndarray, y_interval: np.ndarray) -> np.ndarray:
    """Tell which targets (n_samples, n_outputs) lie in their interval."""
    return (y_interval[:, 0] <= y_true) & (y_true <= y_interval[:, 1])


def report(
    y_true: np.ndarray,
    y_pred: np.ndarray,
    members: np.ndarray,
    y_interval: np.ndarray,
    level: float = 0.9,
) -> dict[str, float]:
    """Scores as of `regression_report`, and what an average over outputs hides.

    `pit_w1` is the mean over outputs, each with its own few rows; `pit_w1_pooled`
    takes all targets for one sample.
    """
    scores = regression_report(
        y_true,
        members,
        y_pred=y_pred,
        y_interval=y_interval,
        confidence_level=level,
        random_state=0,
    )
    pooled = members.reshape(len(members), -1)
    by_output = hits(y_true, y_interval).mean(axis=0)
    return scores | {
        "pit_w1_pooled": pit_wasserstein_error(y_true.ravel(), pooled, random_state=0),
        "coverage_worst_output": float(by_output.min()),
        "coverage_best_output": float(by_output.max()),
    }
