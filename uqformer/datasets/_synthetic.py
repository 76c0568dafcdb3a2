"""Data whose truth is known: noise that grows, a gap, and strangers."""

from typing import Any

import numpy as np
from sklearn.datasets import make_moons
from sklearn.utils import check_random_state

from uqformer._typing import Float64Array, IntArray

__all__ = ["make_gapped_sine", "make_heteroscedastic", "make_moons_with_ood"]


def make_heteroscedastic(
    n_samples: int = 200,
    *,
    n_features: int = 1,
    return_std: bool = False,
    random_state: int | np.random.RandomState | None = None,
) -> tuple[Float64Array, ...]:
    r"""Generate a sine whose noise grows from left to right (regression).

    .. math::

       y = \sin(2\pi x_1) + \sigma(x) \varepsilon, \qquad
       \sigma(x) = 0.1 + 0.4 x_1

    with :math:`x` uniform on the unit cube and standard normal :math:`\varepsilon`.
    Features after the first mean nothing.

    Parameters
    ----------
    n_samples : int, default=200
        Number of rows.
    n_features : int, default=1
        Number of columns.
    return_std : bool, default=False
        Whether to return the standard deviation of the noise too.
    random_state : int, RandomState instance or None, default=None
        Where rows and noise come from.

    Returns
    -------
    X : ndarray of shape (n_samples, n_features)
        Features, from 0 to 1.
    y : ndarray of shape (n_samples,)
        Targets.
    std : ndarray of shape (n_samples,)
        True standard deviation of the noise, with ``return_std=True``.

    Raises
    ------
    ValueError
        If there is not a row and a column.

    See Also
    --------
    make_gapped_sine : Rows are missing instead.

    Examples
    --------
    >>> from uqformer.datasets import make_heteroscedastic
    >>> X, y, std = make_heteroscedastic(50, return_std=True, random_state=0)
    >>> X.shape, y.shape, bool(std.min() >= 0.1)
    ((50, 1), (50,), True)
    """
    _check_count("n_samples", n_samples)
    _check_count("n_features", n_features)
    rng = check_random_state(random_state)
    X = rng.uniform(size=(n_samples, n_features))
    std = 0.1 + 0.4 * X[:, 0]
    y = np.sin(2 * np.pi * X[:, 0]) + std * rng.standard_normal(n_samples)
    return (X, y, std) if return_std else (X, y)


def make_gapped_sine(
    n_samples: int = 200,
    *,
    gap: tuple[float, float] = (-1.0, 1.0),
    noise: float = 0.1,
    return_std: bool = False,
    random_state: int | np.random.RandomState | None = None,
) -> tuple[Float64Array, ...]:
    r"""Generate a sine with no rows in its middle (regression).

    .. math::

       y = \sin(x) + \sigma \varepsilon

    with :math:`x` uniform on [-4, 4] outside the gap and standard normal
    :math:`\varepsilon`. The noise is the same everywhere, so doubt that is larger in
    the gap is doubt about the model.

    Parameters
    ----------
    n_samples : int, default=200
        Number of rows.
    gap : tuple of two floats, default=(-1.0, 1.0)
        Where no row lies; inside [-4, 4].
    noise : float, default=0.1
        Standard deviation of the noise.
    return_std : bool, default=False
        Whether to return the standard deviation of the noise too.
    random_state : int, RandomState instance or None, default=None
        Where rows and noise come from.

    Returns
    -------
    X : ndarray of shape (n_samples, 1)
        Features.
    y : ndarray of shape (n_samples,)
        Targets.
    std : ndarray of shape (n_samples,)
        True standard deviation of the noise, `noise` in every row, with
        ``return_std=True``.

    Raises
    ------
    ValueError
        If there is no row, the gap is none or all there is, or `noise` is negative.

    See Also
    --------
    make_heteroscedastic : The noise changes instead.

    Examples
    --------
    >>> import numpy as np
    >>> from uqformer.datasets import make_gapped_sine
    >>> X, y = make_gapped_sine(50, gap=(0, 2), random_state=0)
    >>> bool(np.any((X > 0) & (X < 2)))
    False
    """
    _check_count("n_samples", n_samples)
    start, end = gap
    if not -4 <= start < end <= 4 or end - start == 8:
        raise ValueError(
            "gap must be two ascending numbers from -4 to 4, and leave room for rows; "
            f"got gap={gap!r}."
        )
    _check_noise(noise)
    rng = check_random_state(random_state)
    x = rng.uniform(-4, 4 - (end - start), size=n_samples)
    x[x > start] += end - start
    y = np.sin(x) + noise * rng.standard_normal(n_samples)
    return (x[:, None], y, np.full(n_samples, noise)) if return_std else (x[:, None], y)


def make_moons_with_ood(
    n_samples: int = 200,
    *,
    n_ood: int = 200,
    noise: float = 0.1,
    random_state: int | np.random.RandomState | None = None,
) -> tuple[Float64Array, IntArray, Float64Array]:
    """Generate two moons, and strangers around them (classification).

    The strangers lie evenly on a ring about the middle of the moons, between the radii
    3 and 4, where no moon reaches.

    Parameters
    ----------
    n_samples : int, default=200
        Number of rows on the moons.
    n_ood : int, default=200
        Number of strangers.
    noise : float, default=0.1
        Standard deviation of the noise about the moons.
    random_state : int, RandomState instance or None, default=None
        Where rows and noise come from.

    Returns
    -------
    X : ndarray of shape (n_samples, 2)
        Points on the moons.
    y : ndarray of shape (n_samples,)
        Which moon, 0 or 1.
    X_ood : ndarray of shape (n_ood, 2)
        Points of no moon.

    Raises
    ------
    ValueError
        If there is no row or no stranger, or `noise` is negative.

    See Also
    --------
    sklearn.datasets.make_moons : The moons alone.

    Examples
    --------
    >>> from uqformer.datasets import make_moons_with_ood
    >>> X, y, X_ood = make_moons_with_ood(100, n_ood=20, random_state=0)
    >>> X.shape, X_ood.shape
    ((100, 2), (20, 2))
    """
    _check_count("n_samples", n_samples)
    _check_count("n_ood", n_ood)
    _check_noise(noise)
    rng = check_random_state(random_state)
    X, y = make_moons(n_samples, noise=noise, random_state=rng)
    angle = rng.uniform(0, 2 * np.pi, size=n_ood)
    # even in area: the square of the radius is uniform
    radius = np.sqrt(rng.uniform(9, 16, size=n_ood))
    ring = radius * np.stack([np.cos(angle), np.sin(angle)])
    return X, y, np.array([0.5, 0.25]) + ring.T


def _check_count(name: str, count: Any) -> None:
    if count < 1:
        raise ValueError(f"{name} must be at least 1; got {name}={count!r}.")


def _check_noise(noise: float) -> None:
    if not noise >= 0:
        raise ValueError(f"noise must not be negative; got noise={noise!r}.")
