"""Calibration of an ensemble: where the targets fall among the members."""

import numpy as np
from numpy.typing import ArrayLike

from uqformer._typing import Float64Array
from uqformer._validation import check_row_weights
from uqformer.metrics._inputs import (
    Members,
    check_generator,
    check_members,
    check_targets,
)

__all__ = ["pit_values", "pit_wasserstein_error"]


def pit_values(
    y_true: ArrayLike,
    members: Members,
    *,
    random_state: int | np.random.RandomState | None = None,
) -> Float64Array:
    """Compute randomised probability integral transforms of the targets.

    If targets and members come from one distribution, these values are uniform on
    (0, 1), whatever the number of members and also when values tie. Heaped at both
    ends they tell of too narrow an ensemble, heaped in the middle of too wide a one.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,) or (n_samples, n_outputs)
        True targets.
    members : RegressionEnsemble or array-like of shape (n_members, n_samples) or \
            (n_members, n_samples, n_outputs)
        Predictions of the members, in units of `y_true`.
    random_state : int, RandomState instance or None, default=None
        Where the uniform jitter comes from. Pass an int to get the same values again.

    Returns
    -------
    pit : ndarray of the shape of `y_true`
        ``(rank + uniform) / (n_members + 1)``, in [0, 1], where the rank counts the
        members below the target and a random share of those equal to it.

    Raises
    ------
    ValueError
        If shapes do not fit, or NaN or infinity is found.

    See Also
    --------
    pit_wasserstein_error : Distance of these values from uniform, as one number.

    References
    ----------
    .. [1] T. M. Hamill (2001), "Interpretation of rank histograms for verifying
       ensemble forecasts", Monthly Weather Review 129.
    .. [2] C. Czado, T. Gneiting and L. Held (2009), "Predictive model assessment for
       count data", Biometrics 65.

    Examples
    --------
    >>> from uqformer.metrics import pit_values
    >>> members = [[-1.0, -1.0], [0.0, 0.0], [1.0, 1.0]]
    >>> pit = pit_values([-2.0, 0.5], members, random_state=0)
    >>> bool(0 < pit[0] < 0.25), bool(0.5 < pit[1] < 0.75)
    (True, True)
    """
    targets = check_targets(y_true)
    ensemble = check_members(members, targets)
    n_below = np.zeros(targets.shape, dtype=np.intp)
    n_equal = np.zeros(targets.shape, dtype=np.intp)
    for member in ensemble:
        n_below += member < targets
        n_equal += member == targets
    generator = check_generator(random_state)
    ranks = n_below + generator.randint(0, n_equal + 1)
    pit: Float64Array = (ranks + generator.uniform(size=targets.shape)) / (
        len(ensemble) + 1
    )
    return pit


def pit_wasserstein_error(
    y_true: ArrayLike,
    members: Members,
    *,
    sample_weight: ArrayLike | None = None,
    random_state: int | np.random.RandomState | None = None,
) -> float:
    """Compute the Wasserstein distance of the PIT values from the uniform distribution.

    One number for the calibration of a whole ensemble, at all levels at once: the
    area between the distribution function of the PIT values and the diagonal.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,) or (n_samples, n_outputs)
        True targets.
    members : RegressionEnsemble or array-like of shape (n_members, n_samples) or \
            (n_members, n_samples, n_outputs)
        Predictions of the members, in units of `y_true`.
    sample_weight : array-like of shape (n_samples,), default=None
        Weights of the samples. None weighs all alike.
    random_state : int, RandomState instance or None, default=None
        Where the uniform jitter comes from. Pass an int to get the same value again.

    Returns
    -------
    error : float
        Distance in [0, 0.5], averaged over outputs. Lower is better: 0.25 is a point
        forecast without bias, 0.5 a target always on one side of all members.

    Raises
    ------
    ValueError
        If shapes do not fit, or NaN or infinity is found.

    See Also
    --------
    pit_values : The values themselves, for a histogram.
    crps_loss : Proper score, by which to choose a model.

    Notes
    -----
    It is not a proper score: the climate of `y` is calibrated and useless. From
    `n_samples` calibrated targets about ``0.31 / sqrt(n_samples)`` is left by chance.

    References
    ----------
    .. [1] A. P. Dawid (1984), "Statistical theory: the prequential approach", Journal
       of the Royal Statistical Society A 147.
    .. [2] S. S. Vallender (1974), "Calculation of the Wasserstein distance between
       probability distributions on the line", Theory of Probability and Its
       Applications 18.

    Examples
    --------
    >>> import numpy as np
    >>> from uqformer.metrics import pit_wasserstein_error
    >>> rng = np.random.default_rng(0)
    >>> y = rng.normal(size=2000)
    >>> members = rng.normal(size=(50, 2000))
    >>> bool(pit_wasserstein_error(y, members, random_state=0) < 0.02)
    True
    >>> bool(pit_wasserstein_error(y, 0.5 * members, random_state=0) > 0.08)
    True
    """
    targets = check_targets(y_true)
    pit = pit_values(targets, members, random_state=random_state)
    weights = check_row_weights(sample_weight, targets)
    columns = pit.reshape(len(pit), -1).T
    return float(np.mean([_distance_to_uniform(c, weights) for c in columns]))


def _distance_to_uniform(pit: Float64Array, weights: Float64Array) -> float:
    """Integrate the gap of a weighted distribution function to the diagonal, exactly.

    Between two neighbouring values the function is a constant h, and
    ``(t - h) * abs(t - h) / 2`` is an antiderivative of ``abs(t - h)``.
    """
    order = np.argsort(pit)
    knots = np.concatenate(([0.0], pit[order], [1.0]))
    heights = np.concatenate(([0.0], np.cumsum(weights[order]) / weights.sum()))
    left, right = knots[:-1] - heights, knots[1:] - heights
    return float(np.sum(right * np.abs(right) - left * np.abs(left)) / 2)
