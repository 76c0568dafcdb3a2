"""Images made worse in twelve ways and five strengths, after CIFAR-10-C."""

import io
from collections.abc import Callable
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import ndimage
from sklearn.utils import check_random_state

from uqformer._typing import AnyArray, Float64Array
from uqformer.datasets._pack import check_choice
from uqformer.datasets._source import import_extra

__all__ = ["CORRUPTIONS", "check_corruption", "corrupt_images"]

Corruption = Callable[[Float64Array, Any, np.random.Generator], Float64Array]
"""One image in [0, 1], (H, W, 3), and a severity's constant, to values of any size."""


def corrupt_images(
    X: ArrayLike,
    kind: str,
    severity: int,
    *,
    random_state: int | np.random.RandomState | None = None,
) -> AnyArray:
    r"""Corrupt images in the manner of CIFAR-10-C.

    The strengths are those that its authors use for images of 32 x 32 pixels; larger
    images suffer less from a blur of the same width.

    Parameters
    ----------
    X : array-like of uint8, of shape (n_samples, H, W, 3)
        Images in RGB, 0 to 255.
    kind : str
        One of `CORRUPTIONS`.
    severity : int
        From 1, mild, to 5, severe.
    random_state : int, RandomState instance or None, default=None
        Where noise and the direction of motion come from. Given an integer, each row
        is corrupted alike whatever the other rows are; its place in `X` counts.

    Returns
    -------
    X_corrupted : ndarray of uint8, of shape (n_samples, H, W, 3)
        The corrupted images, rounded to whole levels.

    Raises
    ------
    ValueError
        If there is no such kind or severity, or `X` holds no such images.

    See Also
    --------
    fetch_cifar10c : The test images of CIFAR-10, corrupted.

    Notes
    -----
    Values :math:`x` lie in [0, 1], and results are cut to it; :math:`c` depends on the
    severity.

    - "gaussian_noise": :math:`x + c\varepsilon`, normal :math:`\varepsilon`.
    - "shot_noise": :math:`k / c` with :math:`k` Poisson of mean :math:`c x`.
    - "impulse_noise": a share :math:`c` of all values becomes 0 or 1.
    - "speckle_noise": :math:`x + c x \varepsilon`.
    - "gaussian_blur": standard deviation :math:`c`, in pixels.
    - "defocus_blur": mean over a disk, its rim softened.
    - "motion_blur": half a normal curve along a random direction within 45 degrees of
      the horizontal. Severities 3 and 4 differ only in where it, long at 0, ends.
    - "contrast": :math:`m + c (x - m)`, :math:`m` the mean of the channel.
    - "brightness", "saturate": V, or S, of HSV is raised, or scaled and raised; a grey
      pixel counts as a red.
    - "jpeg_compression": the quality :math:`c` of JPEG, by Pillow.
    - "pixelate": means over boxes, on :math:`c` times as many pixels a side.

    References
    ----------
    .. [1] D. Hendrycks, T. Dietterich (2019), "Benchmarking Neural Network Robustness
       to Common Corruptions and Perturbations", ICLR.

    Examples
    --------
    >>> import numpy as np
    >>> from uqformer.datasets import corrupt_images
    >>> X = np.full((1, 32, 32, 3), 128, dtype=np.uint8)
    >>> X[:, :16] = 64
    >>> corrupt_images(X, "contrast", 1)[0, [0, -1], 0, 0]
    array([ 72, 120], dtype=uint8)
    """
    check_corruption(kind, severity)
    images = np.asarray(X)
    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[-1] != 3:
        raise ValueError(
            "X must hold uint8 images of shape (n_samples, H, W, 3); got dtype "
            f"{images.dtype} and shape {images.shape}."
        )
    corrupt, constants = _KINDS[kind]
    seed = check_random_state(random_state).randint(np.iinfo(np.int32).max)
    corrupted = np.empty_like(images)
    for row, image in enumerate(images):
        rng = np.random.default_rng([seed, row])
        worse = corrupt(image / 255, constants[severity - 1], rng)
        corrupted[row] = np.rint(np.clip(worse, 0, 1) * 255)
    return corrupted


def check_corruption(kind: str, severity: int) -> None:
    """Raise if there is no such corruption."""
    check_choice("kind", kind, CORRUPTIONS)
    if not isinstance(severity, Integral) or not 1 <= severity <= 5:
        raise ValueError(
            f"severity must be a whole number from 1 to 5; got severity={severity!r}."
        )


def _gaussian_noise(
    x: Float64Array, std: float, rng: np.random.Generator
) -> Float64Array:
    return x + std * rng.standard_normal(x.shape)


def _shot_noise(
    x: Float64Array, photons: float, rng: np.random.Generator
) -> Float64Array:
    return rng.poisson(x * photons) / photons


def _impulse_noise(
    x: Float64Array, share: float, rng: np.random.Generator
) -> Float64Array:
    hit = rng.uniform(size=x.shape) < share
    return np.where(hit, rng.integers(0, 2, size=x.shape), x)


def _speckle_noise(
    x: Float64Array, std: float, rng: np.random.Generator
) -> Float64Array:
    return x + std * x * rng.standard_normal(x.shape)


def _gaussian_blur(
    x: Float64Array, std: float, rng: np.random.Generator
) -> Float64Array:
    blurred: Float64Array = ndimage.gaussian_filter(x, (std, std, 0), mode="nearest")
    return blurred


def _defocus_blur(
    x: Float64Array, shape: tuple[float, float], rng: np.random.Generator
) -> Float64Array:
    radius, softness = shape
    # room for the disk of the largest radius and the rim about it
    offsets = np.arange(-3, 4)
    disk = (offsets[:, None] ** 2 + offsets**2 <= radius**2).astype(np.float64)
    rim = np.exp(-0.5 * (np.array([-1, 0, 1]) / softness) ** 2)
    kernel = ndimage.convolve(disk, np.outer(rim, rim), mode="constant")
    weights = kernel[:, :, None] / kernel.sum()
    blurred: Float64Array = ndimage.correlate(x, weights, mode="mirror")
    return blurred


def _motion_blur(
    x: Float64Array, shape: tuple[int, float], rng: np.random.Generator
) -> Float64Array:
    radius, std = shape
    angle = np.deg2rad(rng.uniform(-45, 45))
    steps = np.arange(2 * radius + 1)
    weights = np.exp(-0.5 * (steps / std) ** 2)
    weights /= weights.sum()
    rows = np.rint(steps * np.sin(angle)).astype(np.intp) + 2 * radius
    columns = np.rint(steps * np.cos(angle)).astype(np.intp) + 2 * radius
    wide = np.pad(x, [(2 * radius, 2 * radius)] * 2 + [(0, 0)], mode="edge")
    height, width = x.shape[:2]
    blurred = np.zeros_like(x)
    for row, column, weight in zip(rows, columns, weights, strict=True):
        blurred += weight * wide[row : row + height, column : column + width]
    return blurred


def _contrast(x: Float64Array, factor: float, rng: np.random.Generator) -> Float64Array:
    mean: Float64Array = x.mean(axis=(0, 1))
    return mean + factor * (x - mean)


def _brightness(
    x: Float64Array, raised: float, rng: np.random.Generator
) -> Float64Array:
    value: Float64Array = x.max(axis=-1, keepdims=True)
    brighter = np.minimum(value + raised, 1)
    # hue and saturation stay if all channels grow alike; black has neither
    scale = np.divide(brighter, value, out=np.zeros_like(value), where=value > 0)
    return np.where(value > 0, x * scale, brighter)


def _saturate(
    x: Float64Array, change: tuple[float, float], rng: np.random.Generator
) -> Float64Array:
    factor, raised = change
    value: Float64Array = x.max(axis=-1, keepdims=True)
    depth = value - x.min(axis=-1, keepdims=True)
    saturation = np.divide(depth, value, out=np.zeros_like(value), where=value > 0)
    # how far each channel lies below the largest: what hue is; grey has that of red
    hue = np.broadcast_to([0.0, 1.0, 1.0], x.shape).copy()
    np.divide(value - x, depth, out=hue, where=depth > 0)
    wanted = np.clip(factor * saturation + raised, 0, 1)
    saturated: Float64Array = value * (1 - wanted * hue)
    return saturated


def _jpeg_compression(
    x: Float64Array, quality: int, rng: np.random.Generator
) -> Float64Array:
    pillow = import_extra("PIL.Image")
    file = io.BytesIO()
    levels = np.rint(x * 255).astype(np.uint8)
    pillow.fromarray(levels).save(file, format="JPEG", quality=quality)
    decoded: Float64Array = np.asarray(pillow.open(file)) / 255
    return decoded


def _pixelate(x: Float64Array, scale: float, rng: np.random.Generator) -> Float64Array:
    # few pixels, then the nearest of them for each of the many
    height, width = x.shape[:2]
    rows, columns = max(int(height * scale), 1), max(int(width * scale), 1)
    small: Float64Array = np.einsum(
        "ih,jw,hwc->ijc", _boxes(height, rows), _boxes(width, columns), x, optimize=True
    )
    nearest_row = (np.arange(height) + 0.5) * rows / height
    nearest_column = (np.arange(width) + 0.5) * columns / width
    large: Float64Array = small[nearest_row.astype(int)][:, nearest_column.astype(int)]
    return large


def _boxes(n_pixels: int, n_boxes: int) -> Float64Array:
    """Weights (n_boxes, n_pixels) of the pixels whose centres lie in each box."""
    centres = np.arange(n_pixels) + 0.5
    edges = np.arange(n_boxes + 1) * n_pixels / n_boxes
    inside = (edges[:-1, None] <= centres) & (centres < edges[1:, None])
    weights: Float64Array = inside / inside.sum(axis=1, keepdims=True)
    return weights


_KINDS: dict[str, tuple[Corruption, list[Any]]] = {
    "gaussian_noise": (_gaussian_noise, [0.04, 0.06, 0.08, 0.09, 0.10]),
    "shot_noise": (_shot_noise, [500, 250, 100, 75, 50]),
    "impulse_noise": (_impulse_noise, [0.01, 0.02, 0.03, 0.05, 0.07]),
    "speckle_noise": (_speckle_noise, [0.06, 0.1, 0.12, 0.16, 0.2]),
    "gaussian_blur": (_gaussian_blur, [0.4, 0.6, 0.7, 0.8, 1]),
    "defocus_blur": (
        _defocus_blur,
        [(0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1)],
    ),
    "motion_blur": (_motion_blur, [(6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5)]),
    "contrast": (_contrast, [0.75, 0.5, 0.4, 0.3, 0.15]),
    "brightness": (_brightness, [0.05, 0.1, 0.15, 0.2, 0.3]),
    "saturate": (_saturate, [(0.3, 0), (0.1, 0), (1.5, 0), (2, 0.1), (2.5, 0.2)]),
    "jpeg_compression": (_jpeg_compression, [80, 65, 58, 50, 40]),
    "pixelate": (_pixelate, [0.95, 0.9, 0.85, 0.75, 0.65]),
}

CORRUPTIONS = tuple(_KINDS)
"""Names of the corruptions, noise first."""
