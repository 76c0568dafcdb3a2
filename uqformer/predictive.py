"""The currency of the house: the members of a predictive ensemble, kept together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import entr

from uqformer._typing import Float64Array
from uqformer._validation import check_confidence_level, check_probabilities

__all__ = ["ClassificationEnsemble", "RegressionEnsemble", "UncertaintyParts"]

SUM_TOLERANCE = 1e-4
"""How far from 1 a row of float32 probabilities may sum, or a value lie below 0."""


class Ensemble:
    """What ensembles share: members come first, then rows."""

    __slots__ = ()

    members: Float64Array

    def __len__(self) -> int:
        return int(self.members.shape[1])

    def __getitem__(self, rows: Any) -> Self:
        """Keep the rows that `rows` selects; a single number keeps one row."""
        if isinstance(rows, (int, np.integer)):
            rows = [rows]
        return type(self)(self.members[:, rows])  # type: ignore[call-arg]

    @property
    def n_members(self) -> int:
        """Number of members."""
        return int(self.members.shape[0])


@dataclass(frozen=True, slots=True, eq=False)
class RegressionEnsemble(Ensemble):
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
        _check_finite(members)
        object.__setattr__(self, "members", members)

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


@dataclass(frozen=True, slots=True, eq=False)
class ClassificationEnsemble(Ensemble):
    """Members of a predictive ensemble for classification.

    How the members disagree tells two doubts apart: the classes may overlap, which each
    member says itself, or the model may not know, which shows in members that differ.

    Parameters
    ----------
    members : array-like of shape (n_members, n_samples, n_classes)
        Probabilities. Rows sum to 1 within the rounding of float32, and are brought to
        sum to 1 in float64.

    Attributes
    ----------
    members : ndarray of float64
        Probabilities, same shape.

    Raises
    ------
    ValueError
        If `members` has another number of dimensions, no member, fewer than two
        classes, NaN or infinity, or rows that are no probabilities.

    See Also
    --------
    RegressionEnsemble : The same for numbers.

    Notes
    -----
    Entropies are in nats: at most ``log(n_classes)``.

    References
    ----------
    .. [1] S. Depeweg, J. M. Hernández-Lobato, F. Doshi-Velez and S. Udluft (2018),
       "Decomposition of uncertainty in Bayesian deep learning for efficient and
       risk-sensitive learning", ICML: total, expected and mutual information.

    Examples
    --------
    >>> from uqformer.predictive import ClassificationEnsemble
    >>> agree, differ = [0.5, 0.5], [[1.0, 0.0], [0.0, 1.0]]
    >>> ensemble = ClassificationEnsemble([[agree, differ[0]], [agree, differ[1]]])
    >>> ensemble.mean_proba()
    array([[0.5, 0.5],
           [0.5, 0.5]])
    >>> ensemble.expected_entropy().round(3)
    array([0.693, 0.   ])
    >>> ensemble.mutual_information().round(3)
    array([0.   , 0.693])
    """

    members: Float64Array

    def __post_init__(self) -> None:
        members = np.asarray(self.members, dtype=np.float64)
        if members.ndim != 3 or members.shape[0] == 0 or members.shape[2] < 2:
            raise ValueError(
                "members must have shape (n_members, n_samples, n_classes) with "
                f"n_members >= 1 and n_classes >= 2; got {members.shape}."
            )
        _check_finite(members)
        sums = members.sum(axis=2, keepdims=True)
        is_wrong = (np.abs(sums - 1) > SUM_TOLERANCE) | (members < -SUM_TOLERANCE)
        if is_wrong.any():
            member, row, _ = np.argwhere(is_wrong)[0]
            raise ValueError(
                "members must hold probabilities, whose rows lie in [0, 1] and sum to "
                f"1; got {members[member, row].tolist()} in row {row} of member "
                f"{member}. Apply a softmax to logits."
            )
        members = np.maximum(members, 0)
        members /= members.sum(axis=2, keepdims=True)
        object.__setattr__(self, "members", members)

    def mean_proba(self) -> Float64Array:
        """Average the probabilities over members.

        Returns
        -------
        y_proba : ndarray of shape (n_samples, n_classes)
            Rows sum to 1.
        """
        mean: Float64Array = self.members.mean(axis=0)
        return mean

    def vote_proba(self) -> Float64Array:
        """Count which class each member puts first.

        Returns
        -------
        y_proba : ndarray of shape (n_samples, n_classes)
            Share of the members that vote for each class; the first of equal ones gets
            the vote. Rows sum to 1.
        """
        votes = self.members.argmax(axis=2)  # (n_members, n_samples)
        classes = np.arange(self.members.shape[2])
        shares: Float64Array = (votes[:, :, None] == classes).mean(axis=0)
        return shares

    def entropy(self) -> Float64Array:
        """Measure the total doubt: the entropy of the average.

        Returns
        -------
        entropy : ndarray of shape (n_samples,)
            In nats.
        """
        entropy: Float64Array = entr(self.mean_proba()).sum(axis=1)
        return entropy

    def expected_entropy(self) -> Float64Array:
        """Measure the doubt that the members share: the average of their entropies.

        Returns
        -------
        entropy : ndarray of shape (n_samples,)
            The aleatoric part of `entropy`, in nats.
        """
        entropy: Float64Array = entr(self.members).sum(axis=2).mean(axis=0)
        return entropy

    def mutual_information(self) -> Float64Array:
        """Measure how the members disagree: total less expected entropy.

        Returns
        -------
        information : ndarray of shape (n_samples,)
            Mutual information of class and member, the epistemic part of `entropy`, in
            nats; not negative.
        """
        return np.maximum(self.entropy() - self.expected_entropy(), 0)


@dataclass(frozen=True, slots=True, eq=False)
class UncertaintyParts:
    """Doubt of a classifier about each row, and where it comes from.

    Parameters
    ----------
    total : ndarray of shape (n_samples,)
        Entropy of the average probabilities, in nats.
    aleatoric : ndarray of shape (n_samples,)
        Average entropy of the members, in nats: classes that overlap.
    epistemic : ndarray of shape (n_samples,)
        Mutual information, total less aleatoric, in nats: members that disagree.

    See Also
    --------
    ClassificationEnsemble : The members behind it.

    Examples
    --------
    >>> import numpy as np
    >>> from uqformer.predictive import UncertaintyParts
    >>> parts = UncertaintyParts(np.array([0.7]), np.array([0.5]), np.array([0.2]))
    >>> parts.epistemic
    array([0.2])
    """

    total: Float64Array
    aleatoric: Float64Array
    epistemic: Float64Array


def _check_finite(members: Float64Array) -> None:
    if not np.isfinite(members).all():
        raise ValueError(
            "members must be finite; got NaN or infinity in member "
            f"{int(np.argwhere(~np.isfinite(members))[0, 0])}."
        )
