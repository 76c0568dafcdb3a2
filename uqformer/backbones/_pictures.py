"""From pictures to pixel values: resize, crop and normalise as a model expects it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from uqformer._typing import AnyArray

__all__ = ["IMAGENET_MEAN", "IMAGENET_STD", "Recipe", "check_pixels", "read_pictures"]

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a model wants its pictures.

    Parameters
    ----------
    size : (int, int)
        Height and width in pixels that the model takes.
    mean, std : tuple of float
        Of each channel, of values in [0, 1].
    interpolation : {"bilinear", "bicubic"}, default="bilinear"
        How pictures of other sizes are resized; always antialiased.
    crop_share : float, default=None
        The shorter side becomes ``size / crop_share``, and the middle is cut out. None
        resizes both sides to `size`, whatever the picture's shape.
    """

    size: tuple[int, int]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    interpolation: str = "bilinear"
    crop_share: float | None = None

    def prepare(self, pictures: Sequence[AnyArray]) -> AnyArray:
        """Turn pictures (H, W, C) of uint8, of any size, into float32 (n, C, h, w)."""
        mean = np.asarray(self.mean, dtype=np.float32)[:, None, None]
        std = np.asarray(self.std, dtype=np.float32)[:, None, None]
        pixels = np.empty((len(pictures), len(self.mean), *self.size), np.float32)
        for i, picture in enumerate(pictures):
            if picture.shape[2] != len(self.mean):
                raise ValueError(
                    f"Pictures must have {len(self.mean)} channels; that of row {i} "
                    f"has {picture.shape[2]}. Repeat a grey channel with "
                    "np.repeat(X, 3, axis=-1), or drop what is too many."
                )
            # negative strides, of a flipped picture, are nothing for torch
            channels = np.ascontiguousarray(picture.transpose(2, 0, 1))
            pixels[i] = self._resize(torch.from_numpy(channels)[None])[0].numpy()
        return (pixels / np.float32(255) - mean) / std

    def _resize(self, picture: Tensor) -> Tensor:
        """Bring (1, C, H, W) of uint8 to `size`, (1, C, h, w)."""
        height, width = self.size
        if self.crop_share is not None:
            shorter = [int(side / self.crop_share) for side in self.size]
            scale = max(shorter[0] / picture.shape[2], shorter[1] / picture.shape[3])
            # a hair more, or 49.999 pixels would be 49
            height = max(height, int(picture.shape[2] * scale + 1e-6))
            width = max(width, int(picture.shape[3] * scale + 1e-6))
        if picture.shape[2:] != (height, width):
            picture = F.interpolate(
                picture, (height, width), mode=self.interpolation, antialias=True
            )  # (1, C, height, width)
        top = round((height - self.size[0]) / 2)
        left = round((width - self.size[1]) / 2)
        return picture[..., top : top + self.size[0], left : left + self.size[1]]


def read_pictures(X: Any) -> list[AnyArray] | None:
    """Return pictures as arrays (H, W, C) of uint8; None if `X` is of float numbers."""
    rows = X.to_numpy() if hasattr(X, "to_numpy") else X
    if isinstance(rows, str) or not hasattr(rows, "__len__") or len(rows) == 0:
        raise TypeError(
            "X must be an array of pictures or a list of them, at least one; got "
            f"{type(X).__name__}."
        )
    if getattr(getattr(rows, "dtype", None), "kind", "") == "f":
        return None
    return [_read_picture(row, i) for i, row in enumerate(rows)]


def _read_picture(row: Any, i: int) -> AnyArray:
    if hasattr(row, "convert"):  # of the library PIL, whatever its mode
        row = row.convert("RGB")
    picture = np.asarray(row)
    if picture.dtype != np.uint8 or picture.ndim != 3:
        raise TypeError(
            "Pictures must be PIL images, uint8 arrays (height, width, channels), or "
            "one float array (n_samples, channels, height, width) of pixel values that "
            f"are ready for the model; row {i} is {type(row).__name__} with dtype="
            f"{picture.dtype} and shape {picture.shape}."
        )
    if picture.shape[2] > 4 and picture.shape[0] <= 4:
        raise ValueError(
            "uint8 pictures must have their channels last; row "
            f"{i} has shape {picture.shape}. Move them with X.transpose(0, 2, 3, 1)."
        )
    return picture


def check_pixels(pixels: AnyArray, n_channels: int | None) -> AnyArray:
    """Return pixel values (n, C, H, W) as float32 after checking their layout."""
    if pixels.ndim != 4 or pixels.dtype.kind != "f":
        raise ValueError(
            "Pixel values must be float numbers of shape (n_samples, channels, height, "
            f"width); got dtype={pixels.dtype} and shape {pixels.shape}."
        )
    if n_channels is not None and pixels.shape[1] != n_channels:
        hint = (
            " Channels stand last here; move them with X.transpose(0, 3, 1, 2)."
            if pixels.shape[3] == n_channels
            else ""
        )
        raise ValueError(
            f"Pixel values must have {n_channels} channels at axis 1; got shape "
            f"{pixels.shape}." + hint
        )
    if not np.isfinite(pixels).all():
        raise ValueError("Pixel values must be finite; got NaN or infinity.")
    return pixels.astype(np.float32, copy=False)
