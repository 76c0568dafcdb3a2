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
    their own, so that a spread that says nothing about the error does no harm. Outputs
    that behave alike are judged together, and so by more than their own few rows.

    Parameters
    ----------
    scores : ndarray of shape (n_calibration, n_outputs)
        Conformity scores of the calibration rows.
    floor : ndarray of shape (n_outputs,)
        Floor under the spread, in units of `y`; infinite for plain split conformal.

    See Also
    --------
    conformal_quantile : The finite-sample quantile behind `radius`.

    Notes
    -----
    The lead of a floor over plain split conformal is shrunk towards its mean over the
    outputs, as far as outputs differ by no more than chance: an empirical Bayes
    estimate [2]_. In simulations with 24 outputs that were alike this was as good as
    one floor for all (with 20 rows, an interval score of 0.77 of the plain one, where
    each output for itself had 0.82), and where half of them were misled, as good as one
    for each (0.91, where one for all had 0.99).

    References
    ----------
    .. [1] J. Lei et al. (2018), "Distribution-Free Predictive Inference for
       Regression", JASA 113: spread-normalised scores; the floor is ours.
    .. [2] C. N. Morris (1983), "Parametric Empirical Bayes Inference: Theory and
       Applications", JASA 78.

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
        floor = choose_floors(select_residuals, select_spread)
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


def choose_floors(residuals: Float64Array, spread: Float64Array) -> Float64Array:
    """Choose the floors (C,) with the least interval score, infinity when in doubt.

    A finite floor has to beat plain split conformal by more than one standard error of
    the paired difference; with few rows a smaller lead is chance.
    """
    unit = np.sqrt(np.mean(residuals**2, axis=0))
    floors = np.full(len(unit), np.inf)
    tells = (unit > 0) & (spread > 0).any(axis=0)
    if not tells.any() or len(spread) < MIN_SELECTION_ROWS:
        return floors
    residuals, spread, unit = residuals[:, tells], spread[:, tells], unit[tells]
    candidates = np.multiply.outer(RELATIVE_FLOORS, unit)
    plain = _interval_scores(residuals, np.ones_like(spread))
    leads, doubts = np.empty((2, *candidates.shape))
    for i, floor in enumerate(candidates):
        scores = _interval_scores(residuals, _scale(spread, floor))
        lead = _shrunk((plain - scores) / unit)
        leads[i] = lead.mean(axis=0)
        doubts[i] = lead.std(axis=0) / np.sqrt(len(lead))
    best = leads.argmax(axis=0), np.arange(len(unit))
    floors[tells] = np.where(leads[best] > doubts[best], candidates[best], np.inf)
    return floors


def _shrunk(leads: Float64Array) -> Float64Array:
    """Move the leads (n, C) of each output towards those of all.

    All of the way where the outputs' means differ by no more than chance, and hardly
    where they differ by much more. Chance is what is left when rows that are hard for
    all outputs alike are taken out.
    """
    common = leads.mean(axis=1, keepdims=True)
    own = leads - common
    chance = own.var(axis=0) / len(own)
    real = max(float(own.mean(axis=0).var() - chance.mean()), 0.0)
    share = real / (real + chance + np.finfo(np.float64).tiny)
    shrunk: Float64Array = common + share * own
    return shrunk


def _interval_scores(residuals: Float64Array, scale: Float64Array) -> Float64Array:
    """Interval scores (n, C), weighted over levels as in the weighted score."""
    errors = np.abs(residuals)
    ratio = np.sort(errors / scale, axis=0)
    ranks = np.minimum(conformal_ranks(len(ratio), SELECTION_LEVELS), len(ratio))
    scores = np.zeros_like(errors)
    for level, radius in zip(SELECTION_LEVELS, ratio[ranks - 1], strict=True):
        half = scale * radius
        scores += (1 - level) * half + np.maximum(errors - half, 0)
    return scores


def _scale(spread: Float64Array, floor: Float64Array) -> Float64Array:
    """Root of squared spread and floor; one for an infinite floor."""
    finite = np.isfinite(floor)
    root = np.sqrt(spread**2 + np.where(finite, floor, 0.0) ** 2)
    scale: Float64Array = np.where(finite, root, 1.0)
    return scale
