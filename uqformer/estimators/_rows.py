"""Parting the rows of a fit, and the rows that are held out for calibration."""

from dataclasses import dataclass
from typing import Self

import numpy as np

from uqformer._random import derive_seed
from uqformer._typing import AnyArray, Float64Array, IntArray
from uqformer.estimators._inputs import ArrayInputs, take_rows
from uqformer.estimators._passes import Passes

__all__ = ["HeldOut", "Parts", "check_all_classes_train", "part_rows"]


MIN_TRAIN = 3
"""Fewer training rows have no quantiles to place bins between."""

MIN_PARTED = MIN_TRAIN + 2
"""Fewer rows than these cannot be parted into three."""


@dataclass(frozen=True, slots=True)
class Parts:
    """Row numbers of the three parts of a fit; a part that is not needed is empty."""

    train: IntArray
    validation: IntArray
    calibration: IntArray


def part_rows(
    n_samples: int,
    *,
    validation_fraction: float,
    calibration_fraction: float,
    trains: bool,
    seed: int,
    codes: IntArray | None = None,
    shuffle: bool = True,
    embargo: int = 0,
) -> Parts:
    """Part rows by fractions; a frozen backbone needs no training part.

    Without a training part, validation and calibration share all rows in the
    proportion of their fractions. Where `codes` tell classes, each class is spread
    over the parts as evenly as its rows allow. Without `shuffle` the first rows train
    and the last calibrate, with `embargo` rows left out at each border; only within
    the parts are they mixed, so that the first of a part stand for all of it.
    """
    conformal = calibration_fraction > 0
    borders = embargo * np.array([trains, conformal], dtype=int)
    _check_embargo(n_samples, embargo, int(borders.sum()), shuffle)
    n_rows = n_samples - int(borders.sum())
    total = 1.0 if trains else validation_fraction + calibration_fraction
    n_validation = max(1, round(n_rows * validation_fraction / total))
    n_calibration = round(n_rows * calibration_fraction / total)
    if conformal:
        n_calibration = min(max(1, n_calibration), n_rows - 1)
    if not trains:
        n_validation = n_rows - n_calibration
    n_train = n_rows - n_validation - n_calibration
    if trains and n_train < MIN_TRAIN:
        raise ValueError(
            f"validation_fraction and calibration_fraction must leave {MIN_TRAIN} rows "
            f"to train on; got {validation_fraction:g} and {calibration_fraction:g} of "
            f"{n_rows} rows, which leaves {n_train}. Lower them or add rows."
        )
    rng = np.random.default_rng(derive_seed(seed, "parts"))
    order: IntArray = rng.permutation(n_samples) if shuffle else np.arange(n_samples)
    if shuffle and codes is not None:
        order = _interleaved(order, codes)
    ends = np.cumsum([n_train, borders[0], n_validation, borders[1]])
    train, _, validation, _, calibration = np.split(order, ends)
    if not shuffle:
        train, validation, calibration = map(
            rng.permutation, (train, validation, calibration)
        )
    return Parts(train, validation, calibration)


def check_all_classes_train(parts: Parts, codes: IntArray, classes: AnyArray) -> None:
    """Check that a network is shown each class; only shuffled rows are sure to."""
    unseen = np.setdiff1d(codes, codes[parts.train])
    if len(parts.train) and len(unseen):
        raise ValueError(
            "With shuffle=False every class of y must be among the training rows, the "
            f"first {len(parts.train)}; got none of class "
            f"{classes[unseen].tolist()[0]!r} there. Add earlier rows, or pass "
            "shuffle=True if the order of the rows means nothing."
        )


def _check_embargo(
    n_samples: int, embargo: int, n_left_out: int, shuffle: bool
) -> None:
    if embargo and shuffle:
        raise ValueError(
            "embargo is for rows that keep their order; got "
            f"embargo={embargo} with shuffle=True. Pass shuffle=False too."
        )
    if embargo and n_samples - n_left_out < MIN_PARTED:
        raise ValueError(
            f"embargo must leave at least {MIN_PARTED} rows; got embargo={embargo}, "
            f"which leaves out {n_left_out} of {n_samples} rows. Lower it or add rows."
        )


def _interleaved(order: IntArray, codes: IntArray) -> IntArray:
    """Mix shuffled rows so that any stretch holds each class in its proportion.

    The only row of a class comes to the middle, and so to the training rows.
    """
    place = np.empty(len(order))
    for code in np.unique(codes):
        of_class = np.flatnonzero(codes[order] == code)
        place[of_class] = (np.arange(len(of_class)) + 0.5) / len(of_class)
    return order[np.argsort(place, kind="stable")]


@dataclass(frozen=True, slots=True)
class HeldOut:
    """Rows that calibrate, with what the exact pass says of them.

    Parameters
    ----------
    x : ndarray of shape (n, ...) or dict of such
        Inputs as the module takes them.
    y : ndarray of shape (n, C) or (n,)
        Targets in the unit of the module's outputs, or codes of classes.
    exact : ndarray of shape (n, C)
        Exact pass, same unit.
    weight : ndarray of shape (n,)
        Sample weights, not all zero.
    """

    x: ArrayInputs
    y: AnyArray
    exact: Float64Array
    weight: Float64Array

    @classmethod
    def run(
        cls, passes: Passes, x: ArrayInputs, y: AnyArray, weight: Float64Array
    ) -> Self:
        """Run the exact pass over the rows and keep all together."""
        exact = passes.exact(x) if len(y) else np.empty((0, passes.n_outputs))
        return cls(x, y, exact, weight)

    def __len__(self) -> int:
        return len(self.y)

    def first(self, n_rows: int) -> Self:
        """Keep the first rows; their part is shuffled, so these stand for all of it."""
        kept = slice(0, n_rows)
        x = take_rows(self.x, kept)
        return type(self)(x, self.y[kept], self.exact[kept], self.weight[kept])

    def residuals(self) -> Float64Array:
        """Errors of the exact pass, target minus prediction, (n, C)."""
        residuals: Float64Array = self.y - self.exact
        return residuals

    def per_row(self, squares: Float64Array) -> Float64Array:
        """Mean over outputs, which count alike, of squares (n, C); returns (n,)."""
        unit = np.var(self.y, axis=0)
        unit[unit == 0] = 1.0
        mean: Float64Array = (squares / unit).mean(axis=1)
        return mean

    def root_mean_square(self, squares: Float64Array) -> float:
        """Root of the weighted mean over rows of squares (n, C)."""
        return float(np.sqrt(np.average(self.per_row(squares), weights=self.weight)))
