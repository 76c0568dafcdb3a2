"""Conformal intervals whose width follows a spread, where the spread is worth it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from uqformer._typing import Float64Array
from uqformer.calibration._quantile import conformal_quantile, conformal_ranks

__all__ = ["AdaptiveConformal"]

RELATIVE_FLOORS = (0.001, 0.1, 0.2, 0.5, 1.0, 2.0)
"""Floors tried, in units of the root mean square residual; infinity is tried too.

None is zero: a new row may come without any spread, and its width must be a number.
"""

MIN_SELECTION_ROWS = 10
"""Fewer rows would follow pure noise too often."""

SELECTION_LEVELS = np.array([0.5, 0.8, 0.9, 0.95])
"""Levels whose interval scores judge a floor together: one alone is too noisy."""


@dataclass(frozen=True, slots=True, eq=False)
class AdaptiveConformal:
    """Split conformal with the score ``|residual| / sqrt(spread² + floor²)``.

    With an infinite floor every row has the same width: that is plain split conformal.
    With a finite one the width follows the spread. Which of them is chosen on rows of
    their own, so that a spread that says nothing about the error does no harm.

    Parameters
    ----------
    scores : ndarray of shape (n_calibration, n_outputs)
        Conformity scores of the calibration rows.
    floor : ndarray of shape (n_outputs,)
        Floor under the spread, in units of `y`; infinite for plain split conformal.

    See Also
    --------
    conformal_quantile : The finite-sample quantile behind `radius`.

    References
    ----------
    .. [1] J. Lei et al. (2018), "Distribution-Free Predictive Inference for
       Regression", JASA 113: spread-normalised scores; the floor is ours.

    Examples
    --------
    >>> import numpy as np
    >>> from uqformer.calibration import AdaptiveConformal
    >>> rng = np.random.default_rng(0)
    >>> spread = rng.uniform(0.1, 2.0, size=(400, 1))
    >>> residual = spread * rng.standard_normal((400, 1))
    >>> conformal = AdaptiveConformal.fit(
    ...     residual[:200], spread[:200], residual[200:], spread[200:]
    ... )
    >>> bool(np.isfinite(conformal.floor[0]))
    True
    >>> conformal.half_width(np.array([[0.1], [2.0]]), 0.9).shape
    (2, 1, 1)
    """

    scores: Float64Array
    floor: Float64Array

    @classmethod
    def fit(
        cls,
        select_residuals: Float64Array,
        select_spread: Float64Array,
        residuals: Float64Array,
        spread: Float64Array,
    ) -> Self:
        """Choose the floor on one set of rows, then score another.

        Parameters
        ----------
        select_residuals, select_spread : ndarray of shape (n_select, n_outputs)
            Signed errors and spreads of the rows that choose the floor.
        residuals, spread : ndarray of shape (n_calibration, n_outputs)
            Those of the calibration rows, which must not have been used before.

        Returns
        -------
        conformal : AdaptiveConformal
            Ready to widen predictions.
        """
        floor = np.array(
            [
                choose_floor(r, s)
                for r, s in zip(select_residuals.T, select_spread.T, strict=True)
            ]
        )
        return cls(np.abs(residuals) / _scale(spread, floor), floor)

    def half_width(
        self, spread: Float64Array, confidence_level: ArrayLike = 0.9
    ) -> Float64Array:
        """Distance from a prediction to either end of its interval.

        Parameters
        ----------
        spread : ndarray of shape (n_samples, n_outputs)
            Spread of the members of each row, in units of `y`.
        confidence_level : float or array-like of shape (n_levels,), default=0.9
            Wanted coverage, strictly between 0 and 1.

        Returns
        -------
        half_width : ndarray of shape (n_samples, n_levels, n_outputs)
            In units of `y`.

        Raises
        ------
        InsufficientCalibrationError
            If there are too few calibration rows for a level.
        """
        radius = np.stack(
            [conformal_quantile(column, confidence_level) for column in self.scores.T],
            axis=-1,
        )  # (n_levels, n_outputs)
        width: Float64Array = _scale(spread, self.floor)[:, None] * radius
        return width


def choose_floor(residuals: Float64Array, spread: Float64Array) -> float:
    """Choose the floor with the least interval score, or infinity when in doubt.

    A finite floor has to beat plain split conformal by more than one standard error of
    the paired difference; with few rows a smaller lead is chance.
    """
    unit = float(np.sqrt(np.mean(residuals**2)))
    if unit == 0 or not (spread > 0).any() or len(spread) < MIN_SELECTION_ROWS:
        return np.inf
    plain = _interval_scores(residuals, spread, np.inf)
    candidates = [relative * unit for relative in RELATIVE_FLOORS]
    scores = [_interval_scores(residuals, spread, floor) for floor in candidates]
    best = int(np.argmin([score.mean() for score in scores]))
    lead = plain - scores[best]
    doubt = lead.std() / np.sqrt(len(lead))
    return float(candidates[best]) if lead.mean() > doubt else np.inf


def _interval_scores(
    residuals: Float64Array, spread: Float64Array, floor: float
) -> Float64Array:
    """Interval score of each row, weighted over levels as in the weighted score."""
    scale = _scale(spread[:, None], np.array([floor]))[:, 0]
    ratio = np.sort(np.abs(residuals) / scale)
    n_rows = len(ratio)
    ranks = np.minimum(conformal_ranks(n_rows, SELECTION_LEVELS), n_rows)
    radius = ratio[ranks - 1]  # (n_levels,)
    half = scale[:, None] * radius
    excess = np.maximum(np.abs(residuals)[:, None] - half, 0)
    alpha = 1 - SELECTION_LEVELS
    score: Float64Array = (alpha * half + excess).sum(axis=1)
    return score


def _scale(spread: Float64Array, floor: Float64Array) -> Float64Array:
    """Root of squared spread and floor; one for an infinite floor."""
    finite = np.isfinite(floor)
    root = np.sqrt(spread**2 + np.where(finite, floor, 0.0) ** 2)
    scale: Float64Array = np.where(finite, root, 1.0)
    return scale
