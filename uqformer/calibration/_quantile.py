"""Quantiles of conformity scores that are right for any number of rows."""

import numpy as np
from numpy.typing import ArrayLike

from uqformer._typing import Float64Array, IntArray
from uqformer._validation import check_confidence_level
from uqformer.exceptions import InsufficientCalibrationError

__all__ = ["conformal_quantile", "conformal_ranks", "require_rows"]

LENIENCE = 1e-10
"""Share of the weight by which a sum of weights may miss its mark by rounding."""


def conformal_quantile(
    scores: ArrayLike,
    confidence_level: ArrayLike = 0.9,
    *,
    sample_weight: ArrayLike | None = None,
    new_weight: ArrayLike = 1.0,
) -> Float64Array:
    """Smallest score that a new exchangeable one stays below with the wanted chance.

    It is the ``ceil((n + 1) * confidence_level)``-th smallest of n scores, so that the
    coverage holds for any n and any distribution [1]_. With weights, the scores and
    the new one count as much as they weigh: by likelihood ratios where the inputs have
    shifted [2]_, or less the older they are where things drift [3]_.

    Parameters
    ----------
    scores : array-like of shape (n_scores,)
        Conformity scores of calibration rows; larger is stranger. They may be
        infinite.
    confidence_level : float or array-like of shape (n_levels,), default=0.9
        Wanted coverage, strictly between 0 and 1.
    sample_weight : array-like of shape (n_scores,), default=None
        Weights of the calibration rows, not negative. None weighs all by 1.
    new_weight : float or array-like of shape (n_new,), default=1.0
        Weight of the new row, or of each of several, on the scale of `sample_weight`.

    Returns
    -------
    quantiles : ndarray of shape ([n_new, ]n_levels)
        One score a level; ``n_levels`` is 1 for a single number. With an array of new
        weights there is one row for each, infinite where the new row weighs so much
        that the scores cannot speak for it.

    Raises
    ------
    InsufficientCalibrationError
        If there are too few scores for a level, or they weigh too little beside a
        single `new_weight`.
    ValueError
        If a score or weight is NaN, or a weight is negative.

    See Also
    --------
    uqformer.calibration.ConformalRegressor : Intervals made with this quantile.

    References
    ----------
    .. [1] V. Vovk, A. Gammerman, G. Shafer (2005), "Algorithmic Learning in a Random
       World", Springer.
    .. [2] R. J. Tibshirani, R. Foygel Barber, E. Candes, A. Ramdas (2019), "Conformal
       Prediction Under Covariate Shift", NeurIPS 32, equation 6.
    .. [3] R. Foygel Barber, E. Candes, A. Ramdas, R. J. Tibshirani (2023), "Conformal
       prediction beyond exchangeability", Annals of Statistics 51, equation 10.

    Examples
    --------
    >>> from uqformer.calibration import conformal_quantile
    >>> conformal_quantile(range(1, 11), 0.9)
    array([10.])
    >>> recent_counts_more = [0.5, 0.5, 1.0, 1.0, 1.0]
    >>> conformal_quantile([9, 8, 1, 2, 3], 0.6, sample_weight=recent_counts_more)
    array([3.])
    """
    levels = check_confidence_level(confidence_level)
    values = _check_scores(scores)
    if sample_weight is None and np.ndim(new_weight) == 0 and new_weight == 1:
        require_rows(len(values), levels)
        ranks = conformal_ranks(len(values), levels)
        quantiles: Float64Array = np.sort(values)[np.maximum(ranks, 1) - 1]
        return quantiles
    weights = np.ones(len(values)) if sample_weight is None else sample_weight
    return _weighted_quantile(
        values,
        levels,
        _check_weights(weights, "sample_weight", values.shape),
        _check_weights(new_weight, "new_weight", None),
    )


def conformal_ranks(n_scores: int, levels: Float64Array) -> IntArray:
    """Which of the sorted scores each level takes, counted from 1."""
    # rounding guards 0.9 * 10 from becoming 9.000000000000002 and its ceiling 10
    ranks: IntArray = np.ceil(np.round((n_scores + 1) * levels, 9)).astype(np.intp)
    return ranks


def require_rows(n_scores: int, levels: Float64Array, rows: str = "rows") -> None:
    """Raise if a level asks for the score of a row that was never seen."""
    if (conformal_ranks(n_scores, levels) <= n_scores).all():
        return
    worst = float(levels.max())
    needed = int(np.ceil((worst - 1e-9) / (1 - worst)))  # as lenient as the ranks
    raise InsufficientCalibrationError(
        f"An interval with confidence_level={worst:g} needs at least {needed} "
        f"calibration {rows}; got {n_scores}. Hand in more rows, raise "
        "calibration_fraction, or ask for a lower level."
    )


def _weighted_quantile(
    scores: Float64Array,
    levels: Float64Array,
    weights: Float64Array,
    new_weights: Float64Array,
) -> Float64Array:
    """Quantile of the weighted scores and of one infinite score for the new row."""
    order = np.argsort(scores)
    reached = np.cumsum(weights[order])
    weight_of_scores = reached[-1] if len(reached) else 0.0
    total = weight_of_scores + new_weights  # () or (n_new,)
    wanted = (levels - LENIENCE) * np.expand_dims(total, -1)
    ordered = np.append(scores[order], np.inf)
    positions = np.searchsorted(reached, wanted)
    if np.ndim(new_weights) == 0 and (positions == len(scores)).any():
        share = float(weight_of_scores / total) if total > 0 else 0.0
        raise InsufficientCalibrationError(
            f"The calibration rows must carry at least the share {levels.max():g} of "
            f"all weight for confidence_level={levels.max():g}; they carry {share:.3g} "
            f"beside new_weight={float(new_weights):g}. Hand in more rows, or ask for "
            "a lower level."
        )
    quantiles: Float64Array = ordered[positions]
    return quantiles


def _check_scores(scores: ArrayLike) -> Float64Array:
    values = np.asarray(scores, dtype=np.float64)
    if values.ndim != 1:
        raise ValueError(
            "scores must have shape (n_scores,); got an array of shape "
            f"{values.shape}. Call once for each column."
        )
    if np.isnan(values).any():
        raise ValueError(
            "scores must hold no NaN; got NaN in row "
            f"{int(np.argmax(np.isnan(values)))}."
        )
    return values


def _check_weights(
    weights: ArrayLike, name: str, shape: tuple[int, ...] | None
) -> Float64Array:
    """Return weights as float64; without a given shape, one number or a flat array."""
    array = np.asarray(weights, dtype=np.float64)
    if array.shape != shape and (shape is not None or array.ndim > 1):
        wanted = "() or (n_new,)" if shape is None else str(shape)
        raise ValueError(
            f"{name} must have shape {wanted}; got {name}.shape={array.shape}."
        )
    if not (np.isfinite(array) & (array >= 0)).all():
        raise ValueError(
            f"{name} must hold finite weights of at least 0; got "
            f"{array[~(np.isfinite(array) & (array >= 0))].flat[0]:g}."
        )
    return array
