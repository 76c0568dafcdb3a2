"""What a classifier learns from held-out rows, anew when a setting changes."""

import warnings
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

import numpy as np

from uqformer._random import derive_seed, member_seeds
from uqformer._typing import Float64Array
from uqformer.calibration import ConformalSets, TemperatureCalibrator
from uqformer.calibration._inputs import full_logits
from uqformer.estimators._calibrated import SEARCH_ROWS, layers_key
from uqformer.estimators._passes import Passes
from uqformer.estimators._rows import HeldOut
from uqformer.exceptions import CalibrationWarning

__all__ = ["ClassSettings", "DrawsSearch", "HeldOutClassCalibration", "sharpened"]

Conformal: TypeAlias = Literal["lac", "aps", "raps"]

RowLosses: TypeAlias = dict[int | None, Float64Array]
"""Log loss of each row, (n,), by number of draws."""

SEARCH_MEMBERS = 8
"""Members behind each log loss: the first of those that will predict."""

COARSE_DRAWS = (1, 4, 16, 64, 256, 1024)
"""Numbers of draws tried first; then those half way to neighbours of the winners."""

SAME_LOSS = float(np.log(2))
"""Log loss of one row on the edge between two classes, in nats.

Where nearly all rows are right and sure, every redraw costs each of them next to
nothing in the same direction; what one undecided row would outweigh counts as equal.
"""


@dataclass(frozen=True, slots=True)
class DrawsSearch:
    """What a search for the number of draws found.

    Parameters
    ----------
    n_draws : int or None
        Fewest draws per attention row whose log loss is not measurably above the
        least; None is the exact softmax.
    losses : dict of int or None to float
        Validation log loss of each number of draws tried, in nats.
    """

    n_draws: int | None
    losses: dict[int | None, float]


@dataclass(frozen=True, slots=True)
class ClassSettings:
    """The settings of an ensemble that its calibration depends on."""

    n_draws: int | None
    n_members: int
    is_sharpened: bool


@dataclass(slots=True)
class HeldOutClassCalibration:
    """Calibration on held-out rows, kept for each setting that was asked for.

    Parameters
    ----------
    validation : HeldOut
        Rows that stopped the training; they choose `n_draws` and the temperature.
    calibration : HeldOut
        Rows that nothing has seen; empty where no sets are wanted.
    seed : int
        The estimator's one seed.
    """

    validation: HeldOut
    calibration: HeldOut
    seed: int
    searches: dict[object, DrawsSearch] = field(default_factory=dict)
    temperatures: dict[object, float] = field(default_factory=dict)
    sets: dict[object, ConformalSets] = field(default_factory=dict)

    def search(self, passes: Passes) -> DrawsSearch:
        """Find the fewest draws that cost no log loss on the validation rows."""
        key = layers_key(passes.layers)
        if key not in self.searches:
            self.searches[key] = self._search(passes)
        return self.searches[key]

    def temperature(self, passes: Passes, settings: ClassSettings) -> float:
        """Find what the logarithms of the mean probabilities are divided by."""
        if not settings.is_sharpened:
            return 1.0
        key = (layers_key(passes.layers), settings)
        if key not in self.temperatures:
            rows = self.validation
            proba = self._mean_proba(passes, rows, settings)
            calibrator = TemperatureCalibrator(
                input="proba", classes=np.arange(passes.n_outputs)
            ).fit(proba, rows.y, sample_weight=rows.weight)
            self.temperatures[key] = calibrator.temperature_
        return self.temperatures[key]

    def conformal(
        self, passes: Passes, settings: ClassSettings, method: Conformal
    ) -> ConformalSets:
        """Score the calibration rows."""
        key = (layers_key(passes.layers), settings, method)
        if key not in self.sets:
            rows = self.calibration
            proba = self._mean_proba(passes, rows, settings)
            log_proba = sharpened(proba, self.temperature(passes, settings))
            self.sets[key] = ConformalSets(
                method,
                input="proba",
                classes=np.arange(passes.n_outputs),
                random_state=derive_seed(self.seed, "sets"),
            ).fit(np.exp(log_proba), rows.y)
        return self.sets[key]

    def _mean_proba(
        self, passes: Passes, rows: HeldOut, settings: ClassSettings
    ) -> Float64Array:
        seeds = member_seeds(self.seed, settings.n_members)
        return passes.mixture(rows.x, settings.n_draws, seeds).proba

    def _search(self, passes: Passes) -> DrawsSearch:
        rows = self.validation.first(SEARCH_ROWS)
        quiet = replace(passes, verbose=0)
        seeds = member_seeds(self.seed, SEARCH_MEMBERS)

        def losses_of(n_draws: int | None) -> Float64Array:
            proba = quiet.mixture(rows.x, n_draws, seeds).proba
            logits: Float64Array = full_logits(proba, "proba")
            return -logits[np.arange(len(rows)), rows.y]

        losses = {n_draws: losses_of(n_draws) for n_draws in (*COARSE_DRAWS, None)}
        winners = _least(losses, rows.weight), _fewest(losses, rows.weight)
        between = {half for n in winners if n for half in (n // 2, n * 2)}
        for n_draws in sorted(between & set(range(1, COARSE_DRAWS[-1]))):
            losses[n_draws] = losses_of(n_draws)
        chosen = _fewest(losses, rows.weight)
        means = {n: float(np.average(losses[n], weights=rows.weight)) for n in losses}
        if chosen is None:
            warnings.warn(
                "Every number of draws raises the log loss of the validation rows, so "
                f"n_draws_=None leaves all members equal; got {means[None]:.4g} for "
                f"the exact softmax and {means[COARSE_DRAWS[-1]]:.4g} for "
                f"{COARSE_DRAWS[-1]} draws. Set n_draws to a number to have members "
                "that differ.",
                CalibrationWarning,
                stacklevel=2,
            )
        return DrawsSearch(chosen, means)


def sharpened(proba: Float64Array, temperature: float) -> Float64Array:
    """Return logarithms of probabilities (n, C) raised to 1 / temperature."""
    logits = full_logits(proba, "proba") / temperature
    log_proba: Float64Array = logits - np.logaddexp.reduce(logits, axis=1)[:, None]
    return log_proba


def _least(losses: RowLosses, weight: Float64Array) -> int | None:
    """Return the number of draws of least mean loss."""
    return min(losses, key=lambda n_draws: np.average(losses[n_draws], weights=weight))


def _fewest(losses: RowLosses, weight: Float64Array) -> int | None:
    """Return the fewest draws whose loss is within a standard error of the least.

    Losses of the same rows are compared row by row.
    """
    least = losses[_least(losses, weight)]
    fit = [n for n, loss in losses.items() if not _exceeds(loss, least, weight)]
    return min(fit, key=lambda n_draws: np.inf if n_draws is None else n_draws)


def _exceeds(loss: Float64Array, least: Float64Array, weight: Float64Array) -> bool:
    """Tell whether the mean difference of losses is more than its standard error."""
    share = weight / weight.sum()
    gap = loss - least
    mean = share @ gap
    correction = len(gap) / max(1, len(gap) - 1)
    variance = correction * (share**2 @ (gap - mean) ** 2)
    return bool(mean > max(np.sqrt(variance), SAME_LOSS * share.max()))
