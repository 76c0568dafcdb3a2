"""Does the attention's spread help? A fitted regressor next to plain rivals."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import norm
from sklearn.base import BaseEstimator

from uqformer._typing import Float64Array
from uqformer.metrics import regression_report

__all__ = ["compare_intervals"]

N_QUANTILES = 50
"""Most equally likely quantiles that stand for a distribution, as members would."""


def compare_intervals(
    model: BaseEstimator,
    X: ArrayLike,
    y: ArrayLike,
    *,
    confidence_level: float = 0.9,
    random_state: int | np.random.RandomState | None = None,
) -> dict[str, dict[str, float]]:
    """Judge a regressor's uncertainty beside plain rivals on the same network.

    All four rows share one trained network and one point prediction, so that any
    difference between them is the uncertainty's alone.

    Parameters
    ----------
    model : StochasticAttentionRegressor
        Fitted with ``interval="conformal"`` and ``point="exact"``, the defaults. Its
        parameters are given back unchanged.
    X : array-like of shape (n_samples, n_features)
        Rows that the model has not seen.
    y : array-like of shape (n_samples,) or (n_samples, n_outputs)
        Their targets.
    confidence_level : float, default=0.9
        Level of the intervals, strictly between 0 and 1.
    random_state : int, RandomState instance or None, default=None
        Where the jitter of the PIT values comes from.

    Returns
    -------
    reports : dict of str to dict of str to float
        A report as of `regression_report`, averaged over outputs, for each of
        ``"stochastic attention"``, the bare members; ``"+ conformal"``, the model's
        conformal intervals; ``"normal"``, one normal distribution about every point of
        an output, as wide as the error on calibration rows; and ``"split conformal"``,
        intervals of one width for each output.

    Raises
    ------
    ValueError
        If the model has another `interval` or `point`.

    See Also
    --------
    uqformer.metrics.regression_report : What is reported.

    Notes
    -----
    Distributions other than the members are given to the report as 50 equally likely
    quantiles, the number of members by default; as fewer, where there are not the 49
    calibration rows that the outermost two need.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from uqformer import StochasticAttentionRegressor
    >>> from uqformer.comparison import compare_intervals
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = StochasticAttentionRegressor(
    ...     max_epochs=2, n_members=4, n_draws=16, random_state=0
    ... ).fit(X[:350], y[:350])
    >>> reports = compare_intervals(model, X[350:], y[350:], random_state=0)
    >>> sorted(reports)
    ['+ conformal', 'normal', 'split conformal', 'stochastic attention']
    """
    if (model.interval, model.point) != ("conformal", "exact"):
        raise ValueError(
            "compare_intervals needs a model fitted with interval='conformal' and "
            f"point='exact'; got interval={model.interval!r}, point={model.point!r}."
        )
    y_pred = model.predict(X)
    n_quantiles = min(N_QUANTILES, len(model.calibration_.calibration) + 1)
    levels = (np.arange(n_quantiles) + 0.5) / n_quantiles

    def report(members: Float64Array, y_interval: Float64Array) -> dict[str, float]:
        return regression_report(
            y,
            members,
            y_pred=y_pred,
            y_interval=y_interval,
            confidence_level=confidence_level,
            random_state=random_state,
        )

    ensemble = model.predict_ensemble(X)
    tails = np.array([1 - confidence_level, 1 + confidence_level]) / 2
    reports = {
        "stochastic attention": report(
            ensemble.members, ensemble.interval(confidence_level)
        ),
        "+ conformal": report(*_conformal(model, X, levels, tails)),
        "normal": report(
            _members(_normal(y_pred, model.residual_std_, levels)),
            _normal(y_pred, model.residual_std_, tails),
        ),
    }
    n_draws = model.n_draws
    try:
        # without a redraw there is no spread to follow: plain split conformal
        model.set_params(n_draws=None)
        reports["split conformal"] = report(*_conformal(model, X, levels, tails))
    finally:
        model.set_params(n_draws=n_draws)
    return reports


def _conformal(
    model: Any, X: ArrayLike, levels: Float64Array, tails: Float64Array
) -> tuple[Float64Array, Float64Array]:
    """Return quantiles as members (n_quantiles, n_samples, ...), and the interval."""
    # the interval's ends are quantiles too, and one call runs the members once
    quantiles = model.predict_quantiles(X, np.concatenate([levels, tails]))
    return _members(quantiles[:, : len(levels)]), quantiles[:, len(levels) :]


def _normal(
    y_pred: Float64Array, std: float | Float64Array, quantiles: Float64Array
) -> Float64Array:
    """Quantiles of one normal about every point, (n_samples, n_quantiles, ...)."""
    spread = np.multiply.outer(norm.ppf(quantiles), std)
    values: Float64Array = y_pred[:, None] + spread
    return values


def _members(quantiles: Float64Array) -> Float64Array:
    """Bring quantiles (n_samples, n_quantiles, ...) to the front, as members are."""
    members: Float64Array = np.moveaxis(quantiles, 1, 0)
    return members
