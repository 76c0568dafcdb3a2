"""What fit learns from held-out rows, worked out anew when a setting changes."""

import warnings
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

import numpy as np

from uqformer._random import derive_seed, member_seeds
from uqformer._typing import Float64Array, LayerSelection
from uqformer.calibration import (
    AdaptiveConformal,
    ConcentrationResult,
    concentration_search,
    log_ratio_std_error,
)
from uqformer.estimators._passes import Deviations, Passes
from uqformer.estimators._rows import HeldOut
from uqformer.exceptions import CalibrationWarning

__all__ = ["HeldOutCalibration", "Point", "layers_key", "point_and_spread"]

Point: TypeAlias = Literal["exact", "mean"]

SEARCH_ROWS = 2048
"""Validation rows the search uses at most; more would not move its answer."""

SEARCH_MEMBERS = 2
"""Members behind each distance; rows share uniforms, so one alone is noisy."""

SEARCH_PASSES = 15
"""Distances measured by a search at most."""

SHAPE_DRAWS = 16
"""Draws at which rows are compared; which ones stray hardly changes with the number."""

SHAPE_MEMBERS = 8
"""Members behind that comparison."""


def point_and_spread(
    exact: Float64Array, deviations: Deviations, point: Point
) -> tuple[Float64Array, Float64Array]:
    """Return the point and the members' root mean square distance from it."""
    if point == "mean":
        return exact + deviations.mean, deviations.std()
    return exact, np.sqrt(deviations.mean_square)


@dataclass(slots=True)
class HeldOutCalibration:
    """Calibration on held-out rows, kept for each setting that was asked for.

    Number of draws, members and layers act at prediction, so they may change after
    fit; what depends on them is then found again from the rows kept here.

    Parameters
    ----------
    validation : HeldOut
        Rows that stopped the training; they choose `n_draws` and the conformal floor.
    calibration : HeldOut
        Rows that nothing has seen; empty where no conformal interval is wanted.
    seed : int
        The estimator's one seed.
    """

    validation: HeldOut
    calibration: HeldOut
    seed: int
    searches: dict[object, ConcentrationResult] = field(default_factory=dict)
    conformals: dict[object, AdaptiveConformal] = field(default_factory=dict)

    def search(self, passes: Passes) -> ConcentrationResult:
        """Find the number of draws whose spread matches the validation error."""
        key = layers_key(passes.layers)
        if key not in self.searches:
            self.searches[key] = self._search(passes)
        return self.searches[key]

    def conformal(
        self, passes: Passes, n_draws: int | None, n_members: int, point: Point
    ) -> AdaptiveConformal:
        """Choose the floor on the validation rows and score the calibration rows."""
        key = (layers_key(passes.layers), n_draws, n_members, point)
        if key not in self.conformals:
            seeds = member_seeds(self.seed, n_members)
            parts: list[Float64Array] = []
            for rows in (self.validation, self.calibration):
                moments = passes.deviations(rows.x, rows.exact, n_draws, seeds)
                middle, spread = point_and_spread(rows.exact, moments, point)
                parts += [rows.y - middle, spread]
            self.conformals[key] = AdaptiveConformal.fit(*parts)
        return self.conformals[key]

    def _search(self, passes: Passes) -> ConcentrationResult:
        rows = self.validation.first(SEARCH_ROWS)
        quiet = replace(passes, verbose=0)
        target = rows.root_mean_square(rows.residuals() ** 2)

        def measure(n_draws: int, pass_index: int) -> float:
            seed = derive_seed(self.seed, f"search {pass_index}")
            seeds = member_seeds(seed, SEARCH_MEMBERS)
            moments = quiet.deviations(rows.x, rows.exact, n_draws, seeds)
            return rows.root_mean_square(moments.mean_square)

        # a perfect fit has no error to match; the smallest one asks for most draws
        smallest = float(np.finfo(np.float32).tiny)
        result = concentration_search(
            measure,
            max(target, smallest),
            max_passes=SEARCH_PASSES,
            seed=derive_seed(self.seed, "search"),
            rows_std_error=self._rows_std_error(quiet, rows),
        )
        if not result.reached:
            remedy = (
                "conformal intervals correct for it, predict_std does not."
                if len(self.calibration)
                else "use interval='conformal', which corrects for it."
            )
            warnings.warn(
                f"Even n_draws={result.n_draws} spreads the members less than the "
                f"model errs on the validation rows (root mean square error "
                f"{target:.3g} of the targets' standard deviation); the bare ensemble "
                f"is too narrow: {remedy}",
                CalibrationWarning,
                stacklevel=2,
            )
        return result

    def _rows_std_error(self, passes: Passes, rows: HeldOut) -> float:
        """Tell how far other rows would move the logarithm of error over spread."""
        seeds = member_seeds(derive_seed(self.seed, "rows"), SHAPE_MEMBERS)
        moments = passes.deviations(rows.x, rows.exact, SHAPE_DRAWS, seeds)
        errors = rows.per_row(rows.residuals() ** 2)
        distances = rows.per_row(moments.mean_square)
        if not (errors.any() and distances.any()):
            return 0.0  # there is no ratio, and the answer is an end of the range
        return log_ratio_std_error(errors, distances, rows.weight)


def layers_key(layers: LayerSelection) -> object:
    """Return something hashable that is equal for equal choices of layers."""
    return layers if isinstance(layers, str) else tuple(layers)
