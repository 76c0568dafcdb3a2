"""The currency of the house: the members of a predictive ensemble, kept together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from uqformer._typing import Float64Array
from uqformer._validation import check_confidence_level, check_probabilities

__all__ = ["RegressionEnsemble"]


@dataclass(frozen=True, slots=True, eq=False)
class RegressionEnsemble:
    """Members of a predictive ensemble for regression.

    Each member is one whole prediction of all rows, so a difference between two rows
    of one member means something. Everything else here is a pure function of them.

    Parameters
    ----------
    members : array-like of shape (n_members, n_samples) or \
            (n_members, n_samples, n_outputs)
        Predictions in units of `y`, finite.

    Attributes
    ----------
    members : ndarray of float64
        The members as given, same shape.

    Raises
    ------
    ValueError
        If `members` has another number of dimensions, no member, or NaN or infinity.

    Notes
    -----
    The variance divides by `n_members`: it is the variance of the mixture that the
    members form, not an estimate of some population's.

    Examples
    --------
    >>> from uqformer.predictive import RegressionEnsemble
    >>> ensemble = RegressionEnsemble([[0.0, 10.0], [2.0, 10.0]])
    >>> ensemble.mean()
    array([ 1., 10.])
    >>> ensemble.std()
    array([1., 0.])
    >>> ensemble.interval(0.5)
    array([[ 0.5,  1.5],
           [10. , 10. ]])
    """

    members: Float64Array

    def __post_init__(self) -> None:
        members = np.asarray(self.members, dtype=np.float64)
        if members.ndim not in (2, 3) or members.shape[0] == 0:
            raise ValueError(
                "members must have shape (n_members, n_samples) or (n_members, "
                f"n_samples, n_outputs) with n_members >= 1; got {members.shape}."
            )
        if not np.isfinite(members).all():
            raise ValueError(
                "members must be finite; got NaN or infinity in member "
                f"{int(np.argwhere(~np.isfinite(members))[0, 0])}."
            )
        object.__setattr__(self, "members", members)

    def __len__(self) -> int:
        return int(self.members.shape[1])

    def __getitem__(self, rows: Any) -> Self:
        """Keep the rows that `rows` selects; a single number keeps one row."""
        if isinstance(rows, (int, np.integer)):
            rows = [rows]
        return type(self)(self.members[:, rows])

    @property
    def n_members(self) -> int:
        """Number of members."""
        return int(self.members.shape[0])

    def mean(self) -> Float64Array:
        """Average over members.

        Returns
        -------
        mean : ndarray of shape (n_samples,) or (n_samples, n_outputs)
            In units of `y`.
        """
        mean: Float64Array = self.members.mean(axis=0)
        return mean

    def std(self) -> Float64Array:
        """Measure the spread of the members about their mean.

        Returns
        -------
        std : ndarray of shape (n_samples,) or (n_samples, n_outputs)
            Standard deviation with divisor `n_members`, in units of `y`.
        """
        std: Float64Array = self.members.std(axis=0)
        return std

    def quantile(self, quantiles: ArrayLike) -> Float64Array:
        """Interpolate quantiles linearly between the members.

        Parameters
        ----------
        quantiles : float or array-like of shape (n_quantiles,)
            Each strictly between 0 and 1.

        Returns
        -------
        values : ndarray of shape (n_samples, n_quantiles[, n_outputs])
            In units of `y`, without the axis `n_quantiles` for a single number.
        """
        levels = check_probabilities(quantiles, "quantiles")
        values = np.quantile(self.members, levels, axis=0)  # (q, n_samples, ...)
        moved: Float64Array = np.moveaxis(values, 0, 1)
        return moved[:, 0] if np.ndim(quantiles) == 0 else moved

    def interval(self, confidence_level: ArrayLike = 0.9) -> Float64Array:
        """Cut off equal tails of the members.

        It covers as often as the members are right; nothing is corrected.

        Parameters
        ----------
        confidence_level : float or array-like of shape (n_levels,), default=0.9
            Share of the members inside, strictly between 0 and 1.

        Returns
        -------
        interval : ndarray of shape (n_samples, 2[, n_levels][, n_outputs])
            Lower end first, in units of `y`; without `n_levels` for a single number.
        """
        levels = check_confidence_level(confidence_level)
        ends = [self.quantile((1 - levels) / 2), self.quantile((1 + levels) / 2)]
        interval = np.stack(ends, axis=1)  # (n_samples, 2, n_levels, ...)
        return interval[:, :, 0] if np.ndim(confidence_level) == 0 else interval
