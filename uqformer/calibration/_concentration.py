"""Choose the number of draws so that the members' spread matches the model's error."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from uqformer._typing import Float64Array

__all__ = ["ConcentrationResult", "concentration_search"]

N_START = 6
"""Passes of the first round, evenly spaced in ln(n_draws)."""

N_NEXT = 3
"""Passes of each later round, where the posterior says the optimum may lie."""

N_POSTERIOR = 100
"""Thompson draws from the posterior of the power law."""

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

    Examples
    --------
    >>> from uqformer.calibration import concentration_search
    >>> result = concentration_search(lambda n, _: n**-0.5, target=0.25)
    >>> result.n_draws, round(result.slope, 3), result.reached
    (16, -0.5, True)
    """

    n_draws: int
    target: float
    tried: Float64Array
    distances: Float64Array
    slope: float
    reached: bool


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

    def posterior_best(self, target: float, rng: np.random.Generator) -> Float64Array:
        """Minimisers under posterior draws of intercept, slope and noise."""
        variance = self.variance * self.n_free / rng.chisquare(self.n_free, N_POSTERIOR)
        root = np.linalg.cholesky(self.covariance + 1e-12 * np.eye(2))
        noise = rng.standard_normal((N_POSTERIOR, 2)) @ root.T
        line = np.array([self.intercept, self.slope])
        line = line + np.sqrt(variance)[:, None] * noise
        # more draws never spread wider: a slope that says so is noise
        slope = np.minimum(line[:, 1], -0.05)
        return _optimum(line[:, 0], slope, variance, target)


def _optimum(
    intercept: ArrayLike, slope: ArrayLike, variance: ArrayLike, target: float
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

    Returns
    -------
    result : ConcentrationResult
        The number of draws and the trace of the search.

    Raises
    ------
    ValueError
        If `target` is not a positive number, `n_draws_range` is not a range, there are
        fewer passes than a first round makes, or a measured distance is not finite.

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
    )


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
