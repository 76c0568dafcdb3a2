"""Choose the number of draws so that the members' spread matches the model's error."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from uqformer._typing import Float64Array
from uqformer._validation import (
    check_confidence_level,
    check_consistent_length,
    check_row_weights,
)

__all__ = ["ConcentrationResult", "concentration_search", "log_ratio_std_error"]

N_START = 6
"""Passes of the first round, evenly spaced in ln(n_draws)."""

N_NEXT = 3
"""Passes of each later round, where the posterior says the optimum may lie."""

N_POSTERIOR = 100
"""Thompson draws from the posterior of the power law."""

N_INTERVAL = 4000
"""Posterior draws behind the interval of the answer; more would not move its ends."""

TOLERANCE = 1.03
"""Stop when nearly every posterior optimum costs at most this much more than ours."""


@dataclass(frozen=True, slots=True)
class ConcentrationResult:
    """What a concentration search found.

    Parameters
    ----------
    n_draws : int
        Draws per attention row at which spread and error agree best.
    target : float
        The error to match: root mean square residual, in the unit of `distances`.
    tried : ndarray of shape (n_passes,)
        Numbers of draws tried, in order.
    distances : ndarray of shape (n_passes,)
        Root mean square distance from the exact pass that each one gave.
    slope : float
        Fitted exponent of the distance in `n_draws`; theory says -1/2 for many draws.
    reached : bool
        False if even the fewest draws allowed spread less than the error.
    scale : float
        Fitted median distance for one draw, same unit.
    interval : tuple of (float, float)
        Ends of a central credible interval of the best number of draws, cut off where
        the range ends.
    confidence_level : float
        Level of `interval`.

    See Also
    --------
    uqformer.plotting.ConcentrationDisplay : Draw it.

    Examples
    --------
    >>> from uqformer.calibration import concentration_search
    >>> result = concentration_search(lambda n, _: n**-0.5, target=0.25)
    >>> result.n_draws, round(result.slope, 3), result.reached
    (16, -0.5, True)
    >>> [round(end) for end in result.interval]  # nothing was left to chance
    [16, 16]
    """

    n_draws: int
    target: float
    tried: Float64Array
    distances: Float64Array
    slope: float
    reached: bool
    scale: float
    interval: tuple[float, float]
    confidence_level: float


@dataclass(frozen=True, slots=True)
class _PowerLaw:
    """Least-squares line of ln(distance) in ln(n_draws), and its posterior."""

    intercept: float
    slope: float
    variance: float
    covariance: Float64Array  # of (intercept, slope), for unit variance
    n_free: int

    def best(self, target: float) -> float:
        """Real-valued minimiser of the expected squared mismatch, in closed form."""
        return float(_optimum(self.intercept, self.slope, self.variance, target))

    def cost(self, n_draws: Float64Array, target: float) -> Float64Array:
        """Return the expected squared mismatch of a log-normal distance."""
        mean = self.intercept + self.slope * np.log(n_draws)
        v = self.variance
        noise = np.exp(2 * mean) * (np.exp(2 * v) - np.exp(v))
        bias = (np.exp(mean + v / 2) - target) ** 2
        cost: Float64Array = noise + bias
        return cost

    def posterior_best(
        self, target: ArrayLike, rng: np.random.Generator, size: int = N_POSTERIOR
    ) -> Float64Array:
        """Minimisers under posterior draws of intercept, slope and noise."""
        variance = self.variance * self.n_free / rng.chisquare(self.n_free, size)
        root = np.linalg.cholesky(self.covariance + 1e-12 * np.eye(2))
        noise = rng.standard_normal((size, 2)) @ root.T
        line = np.array([self.intercept, self.slope])
        line = line + np.sqrt(variance)[:, None] * noise
        # more draws never spread wider: a slope that says so is noise
        slope = np.minimum(line[:, 1], -0.05)
        return _optimum(line[:, 0], slope, variance, target)


def _optimum(
    intercept: ArrayLike, slope: ArrayLike, variance: ArrayLike, target: ArrayLike
) -> Float64Array:
    """Root of the derivative of `_PowerLaw.cost`; kept from overflowing."""
    excess = np.log(target) - np.asarray(intercept) - 1.5 * np.asarray(variance)
    optimum: Float64Array = np.exp(np.clip(excess / np.asarray(slope), -50, 50))
    return optimum


def concentration_search(
    measure: Callable[[int, int], float],
    target: float,
    *,
    n_draws_range: tuple[int, int] = (1, 1024),
    max_passes: int = 24,
    seed: int = 0,
    rows_std_error: float = 0.0,
    confidence_level: float = 0.9,
) -> ConcentrationResult:
    """Find the number of draws whose spread matches an error.

    A power law is fitted to the passes made so far, its best number of draws is known
    in closed form, and the next passes are made where the posterior of the law says the
    optimum may lie [2]_. The objective, the expected squared difference of two
    distances, is a reconstruction of the one of stochastic attention [1]_.

    Parameters
    ----------
    measure : callable (n_draws, pass_index) -> float
        Root mean square distance of one stochastic pass from the exact pass over
        held-out rows. `pass_index` counts up from 0, so that each pass can be seeded
        differently.
    target : float
        Root mean square error of the exact pass over the same rows, same unit.
    n_draws_range : tuple of (int, int), default=(1, 1024)
        Fewest and most draws allowed.
    max_passes : int, default=24
        Most passes to make, at least 6.
    seed : int, default=0
        Of the posterior draws.
    rows_std_error : float, default=0.0
        Standard error of ``ln(target / distance)`` that the choice of the held-out rows
        brings, not negative; `log_ratio_std_error` computes it. It widens the interval.
        By default the rows count as all there are.
    confidence_level : float, default=0.9
        Level of the interval around the answer, strictly between 0 and 1.

    Returns
    -------
    result : ConcentrationResult
        The number of draws, its interval, and the trace of the search.

    Raises
    ------
    ValueError
        If `target` is not a positive number, `n_draws_range` is not a range, there are
        fewer passes than a first round makes, a measured distance is not finite, or
        `rows_std_error` or `confidence_level` is out of range.

    See Also
    --------
    log_ratio_std_error : How well the held-out rows know the ratio of error to spread.

    Notes
    -----
    The interval holds the middle of the posterior of the optimum: under a flat prior
    the fitted line has a t distribution about the true one, and the noise of the rows
    comes on top of it as a normal error of ``ln(target)``. A slope near -1/2 doubles
    that error: ``n_draws`` goes with the square of the error to match.

    References
    ----------
    .. [1] A. Yadav, T. A. Adebiyi, R. Zhang (2026), "Calibrating Scientific Foundation
       Models with Inference-Time Stochastic Attention", arXiv 2604.19530.
    .. [2] "Bayesian optimisation under uncertainty" of the same group (2025),
       arXiv 2510.06439.

    Examples
    --------
    >>> from uqformer.calibration import concentration_search
    >>> concentration_search(lambda n, _: 2 * n**-0.5, target=0.5).n_draws
    16
    """
    _check_search(target, n_draws_range, max_passes)
    level = _check_interval(rows_std_error, confidence_level)
    low, high = n_draws_range
    rng = np.random.default_rng(seed)
    tried: list[int] = []
    distances: list[float] = []
    following = np.geomspace(low, high, N_START)
    while True:
        for n_draws in np.clip(np.rint(following), low, high).astype(int):
            distances.append(_measured(measure, int(n_draws), len(tried)))
            tried.append(int(n_draws))
        law = _fit(np.array(tried, dtype=float), np.array(distances))
        draws = np.clip(law.posterior_best(target, rng), low, high)
        best = np.clip(law.best(target), low, high)
        if len(tried) + N_NEXT > max_passes or _settled(law, best, draws, target):
            break
        following = draws[:N_NEXT]
    return ConcentrationResult(
        n_draws=int(np.rint(best)),
        target=float(target),
        tried=np.array(tried, dtype=float),
        distances=np.array(distances),
        slope=law.slope,
        reached=_reaches(law, low, target),
        scale=float(np.exp(law.intercept)),
        interval=_interval(law, target, rows_std_error, level, n_draws_range, seed),
        confidence_level=level,
    )


def log_ratio_std_error(
    squared_errors: ArrayLike,
    squared_distances: ArrayLike,
    sample_weight: ArrayLike | None = None,
) -> float:
    """Tell how well rows know the ratio of the model's error to the members' spread.

    Parameters
    ----------
    squared_errors : array-like of shape (n_samples,)
        Squared error of the exact pass in each row.
    squared_distances : array-like of shape (n_samples,)
        Mean squared distance of members from the exact pass in each row, for any number
        of draws: only its shape over the rows counts.
    sample_weight : array-like of shape (n_samples,), default=None
        Weights of the rows.

    Returns
    -------
    std_error : float
        Standard error of the logarithm of the ratio of root mean squares; 0.05 says
        that other rows would move the ratio by about 5 %, and the number of draws that
        matches them by about 10 %.

    Raises
    ------
    ValueError
        If lengths differ, a square is negative or not finite, or all of a kind are 0.

    See Also
    --------
    concentration_search : Use it for the interval around the number of draws.

    Notes
    -----
    By the delta method for a ratio of two means over the same rows [1]_: rows where
    both are large count once. Rows are taken to be independent.

    References
    ----------
    .. [1] W. G. Cochran (1977), "Sampling Techniques", 3rd edition, section 2.11.

    Examples
    --------
    >>> from uqformer.calibration import log_ratio_std_error
    >>> round(log_ratio_std_error([1.0, 4.0, 1.0, 4.0], [1.0, 1.0, 1.0, 1.0]), 3)
    0.173
    >>> log_ratio_std_error([1.0, 4.0], [0.1, 0.4])
    0.0
    """
    errors = _check_squares(squared_errors, "squared_errors")
    distances = _check_squares(squared_distances, "squared_distances")
    check_consistent_length(errors, distances)
    weights = check_row_weights(sample_weight, errors)
    weights = weights / weights.sum()
    influence = weights * (
        errors / np.average(errors, weights=weights)
        - distances / np.average(distances, weights=weights)
    )
    n_counted = int(np.count_nonzero(weights))
    correction = n_counted / max(1, n_counted - 1)
    return float(np.sqrt(correction * (influence**2).sum()) / 2)


def _check_squares(squares: ArrayLike, name: str) -> Float64Array:
    array = np.asarray(squares, dtype=np.float64)
    if array.ndim != 1 or not np.isfinite(array).all() or (array < 0).any():
        raise ValueError(
            f"{name} must hold one finite square per row, none negative; got an array "
            f"of shape {array.shape}."
        )
    if not array.any():
        raise ValueError(
            f"{name} must not be 0 in all of {len(array)} rows: there is no ratio then."
        )
    return array


def _check_interval(rows_std_error: float, confidence_level: float) -> float:
    if not (np.isfinite(rows_std_error) and rows_std_error >= 0):
        raise ValueError(
            "rows_std_error must be a finite standard error, 0 or above; got "
            f"rows_std_error={rows_std_error}."
        )
    return float(check_confidence_level(confidence_level)[0])


def _interval(
    law: _PowerLaw,
    target: float,
    rows_std_error: float,
    level: float,
    n_draws_range: tuple[int, int],
    seed: int,
) -> tuple[float, float]:
    """Middle of the posterior of the best number of draws."""
    # apart from the stream of the search, whose answer is not to depend on this
    rng = np.random.default_rng([seed, N_INTERVAL])
    targets = target * np.exp(rows_std_error * rng.standard_normal(N_INTERVAL))
    best = law.posterior_best(targets, rng, N_INTERVAL)
    ends = np.quantile(
        np.clip(best, *n_draws_range), [0.5 - level / 2, 0.5 + level / 2]
    )
    return float(ends[0]), float(ends[1])


def _check_search(
    target: float, n_draws_range: tuple[int, int], max_passes: int
) -> None:
    if not (np.isfinite(target) and target > 0):
        raise ValueError(
            f"target must be a positive, finite error to match; got target={target}."
        )
    if not 1 <= n_draws_range[0] < n_draws_range[1]:
        raise ValueError(
            "n_draws_range must hold two numbers with 1 <= fewest < most; got "
            f"n_draws_range={n_draws_range}."
        )
    if max_passes < N_START:
        raise ValueError(
            f"max_passes must be at least {N_START}, the passes of the first round; "
            f"got max_passes={max_passes}."
        )


def _measured(
    measure: Callable[[int, int], float], n_draws: int, pass_index: int
) -> float:
    distance = float(measure(n_draws, pass_index))
    if not np.isfinite(distance):
        raise ValueError(
            f"A stochastic pass with n_draws={n_draws} gave a distance of {distance} "
            "from the exact pass; the model's outputs must be finite."
        )
    # a logarithm follows: where nothing spreads at all, say "next to nothing"
    return max(distance, 1e-12)


def _fit(n_draws: Float64Array, distances: Float64Array) -> _PowerLaw:
    """Ordinary least squares in logarithms."""
    design = np.column_stack([np.ones_like(n_draws), np.log(n_draws)])
    covariance = np.linalg.inv(design.T @ design)
    line = covariance @ design.T @ np.log(distances)
    n_free = len(n_draws) - 2
    residual = np.log(distances) - design @ line
    variance = max(float(residual @ residual) / n_free, 1e-12)
    return _PowerLaw(
        float(line[0]), min(float(line[1]), -0.05), variance, covariance, n_free
    )


def _settled(law: _PowerLaw, best: float, draws: Float64Array, target: float) -> bool:
    """Tell whether the posterior's optima are all about as good as ours."""
    ratio = law.cost(draws, target) / law.cost(np.array([best]), target)
    narrow = np.std(np.log(draws)) < 0.05
    return bool(np.quantile(ratio, 0.98) < TOLERANCE or narrow)


def _reaches(law: _PowerLaw, low: int, target: float) -> bool:
    """Tell whether the fewest draws spread at least as wide as the error."""
    widest = law.intercept + law.slope * np.log(low) + law.variance / 2
    return bool(widest >= np.log(target))
