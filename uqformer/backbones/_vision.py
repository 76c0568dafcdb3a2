"""Patch transformer for images and gridded fields: from pixels to tokens to outputs."""

import math
import warnings
from typing import Any, Literal, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from uqformer.backbones._blocks import ClsTransformer, channel_scales, start_near_zero
from uqformer.exceptions import UQFormerWarning

__all__ = ["PatchTransformer"]


class PatchTransformer(ClsTransformer):
    """Transformer over the patches of images or of fields on a grid.

    Each patch becomes a token with a learned embedding of its place [1]_, pre-norm
    blocks let the tokens look at one another, and either a CLS token's last state is
    mapped to the outputs, or every patch to its part of an output field.

    Parameters
    ----------
    n_features : int
        Channels; for images ``(n_samples, height, width)`` without an axis for them,
        the height.

    n_outputs : int
        Numbers to predict for each row. With ``output="field"`` a multiple of height
        times width: one or several whole fields, flattened.

    patch_size : int, (int, int) or "auto", default="auto"
        Height and width of a patch, in pixels. "auto" takes the power of two that
        makes about 8 by 8 patches: 2 for 8 pixels a side, 4 for 32, 32 for 224.

    output : {"vector", "field"}, default="vector"
        Whether outputs belong to the image, or to the pixels of its grid.

    d_token : int, default=64
        Width of a token; a multiple of `n_heads`.

    n_blocks : int, default=3
        Blocks of attention and feed-forward.

    n_heads : int, default=4
        Attention heads in each block.

    dropout : float, default=0.1
        Share of attention weights and of hidden feed-forward units that training
        drops; in [0, 1).

    Attributes
    ----------
    n_params : int
        Trainable numbers; those of the patches are known after `adapt`.

    Raises
    ------
    ValueError
        If a number is out of range, `d_token` is not a multiple of `n_heads`, or
        `output` is not a known name.

    See Also
    --------
    SequenceTransformer : The same for windows of a series.
    FTTransformer : The same for tables.

    Notes
    -----
    Shapes: ``forward`` takes ``(n_samples, channels, height, width)``, or
    ``(n_samples, height, width)`` for one channel, and returns ``(n_samples,
    n_outputs)``; fields are flattened as by ``field.reshape(n_samples, -1)``. Whole
    numbers, as in pixels from 0 to 255, are welcome. Height and width must be those of
    the training rows that `adapt` has seen, which also give each channel its mean and
    standard deviation, in any unit. Sizes that are no multiple of the patch are padded
    with that mean at the bottom and at the right.

    With ``output="vector"`` only the CLS token asks in the last block, since nothing
    else is read.

    References
    ----------
    .. [1] A. Dosovitskiy et al. (2021), "An Image is Worth 16x16 Words: Transformers
       for Image Recognition at Scale", arXiv 2010.11929.

    Examples
    --------
    >>> import torch
    >>> from uqformer.backbones import PatchTransformer
    >>> x = torch.linspace(-1, 1, 10 * 2 * 6 * 9).reshape(10, 2, 6, 9)
    >>> model = PatchTransformer(2, 3, d_token=8, n_heads=2).adapt(x).eval()
    >>> model(x).shape
    torch.Size([10, 3])
    >>> field = PatchTransformer(2, 6 * 9, output="field").adapt(x).eval()
    >>> field(x).reshape(10, 6, 9).shape
    torch.Size([10, 6, 9])
    """

    def __init__(
        self,
        n_features: int,
        n_outputs: int,
        *,
        patch_size: int | tuple[int, int] | Literal["auto"] = "auto",
        output: Literal["vector", "field"] = "vector",
        d_token: int = 64,
        n_blocks: int = 3,
        n_heads: int = 4,
        dropout: float = 0.1,
    ) -> None:
        super().__init__(n_outputs, d_token, n_blocks, n_heads, dropout)
        if output not in ("vector", "field"):
            raise ValueError(
                f"output must be 'vector' or 'field'; got output={output!r}."
            )
        self.n_features = n_features
        self.output = output
        self.patch_size = _checked_patch(patch_size)
        self.patch: tuple[int, int]
        self.grid: tuple[int, int]
        self.channel_mean: Tensor
        self.channel_scale: Tensor
        self.register_buffer("channel_mean", torch.zeros(n_features, 1, 1))
        self.register_buffer("channel_scale", torch.ones(n_features, 1, 1))

    def adapt(self, x: Tensor) -> Self:
        """Learn the size of the images and the scale of their channels.

        Parameters
        ----------
        x : Tensor of shape (n_samples, channels, height, width)
            Training rows, in the units of `forward`; without channels
            ``(n_samples, height, width)``.

        Returns
        -------
        model : PatchTransformer
            This model.

        Raises
        ------
        ValueError
            If `x` are not images, every channel is constant, or `n_outputs` is no
            multiple of height times width where a field is to be predicted.
        """
        if x.ndim not in (3, 4) or x.shape[1] != self.n_features:
            raise ValueError(
                f"PatchTransformer takes images (n_samples, {self.n_features}, height, "
                f"width) or (n_samples, {self.n_features}, width); got shape "
                f"{tuple(x.shape)}."
            )
        _warn_of_channels_last(x)
        images = self._with_channels(x)  # (N, channels, height, width)
        self.channel_mean, self.channel_scale = channel_scales(images, 1)
        self.row_shape = tuple(x.shape[1:])
        n_channels, *size = images.shape[1:]
        self.patch = _auto_patch(*size) if self.patch_size is None else self.patch_size
        self.grid = (-(-size[0] // self.patch[0]), -(-size[1] // self.patch[1]))
        n_pixels = math.prod(self.patch)
        self.embed = nn.Linear(n_channels * n_pixels, self.d_token)
        self.position = start_near_zero(math.prod(self.grid), self.d_token)
        if self.output == "field":
            n_fields = self._count_fields(*size)
            self.head = nn.Linear(self.d_token, n_fields * n_pixels)
        return self

    def _count_fields(self, height: int, width: int) -> int:
        n_fields, rest = divmod(self.n_outputs, height * width)
        if rest:
            raise ValueError(
                "output='field' needs n_outputs to be a multiple of the pixels of an "
                f"image, {height} x {width} = {height * width}; got "
                f"n_outputs={self.n_outputs}. Bring targets to the grid of the inputs, "
                "or use output='vector'."
            )
        return n_fields

    def forward(self, x: Tensor) -> Tensor:
        """Predict from images; see Notes of the class for shapes."""
        self._check_shape(x)
        images = self._with_channels(x)  # (N, channels, height, width)
        scaled = (images - self.channel_mean) / self.channel_scale
        tokens = self.embed(self._cut(scaled)) + self.position  # (N, T - 1, D)
        if self.output == "vector":
            return self._predict(tokens)
        state = self._with_cls(tokens)  # (N, T, D)
        for block in self.blocks:
            state = block(state, state)
        patches = self.head(self.norm(state[:, 1:]))  # (N, T - 1, C pixels)
        return self._join(patches, *scaled.shape[2:])

    def _with_channels(self, x: Tensor) -> Tensor:
        images = x if x.ndim == 4 else x[:, None]
        return images.to(self.channel_mean.dtype)  # (N, channels, height, width)

    def _cut(self, images: Tensor) -> Tensor:
        (rows, columns), (height, width) = self.grid, self.patch
        bottom = rows * height - images.shape[2]
        right = columns * width - images.shape[3]
        padded = F.pad(images, (0, right, 0, bottom))
        cut = padded.unflatten(3, (columns, width)).unflatten(2, (rows, height))
        # (N, channels, rows, height, columns, width)
        ordered = cut.permute(0, 2, 4, 1, 3, 5)
        patches: Tensor = ordered.flatten(3).flatten(1, 2)
        return patches  # (N, T - 1, channels pixels)

    def _join(self, patches: Tensor, height: int, width: int) -> Tensor:
        """Put patches back in their places, without what was padded."""
        cut = patches.unflatten(2, (-1, *self.patch)).unflatten(1, self.grid)
        ordered = cut.permute(0, 3, 1, 4, 2, 5)
        fields = ordered.flatten(4, 5).flatten(2, 3)  # (N, fields, height, width)
        output: Tensor = fields[..., :height, :width].flatten(1)  # (N, C)
        return output


def _checked_patch(size: Any) -> tuple[int, int] | None:
    """Turn every way to name a patch into height and width; None is "auto"."""
    if isinstance(size, str) and size == "auto":
        return None
    sides = (size, size) if isinstance(size, int) else size
    is_pair = isinstance(sides, tuple | list) and len(sides) == 2
    if not is_pair or not all(isinstance(n, int) and n > 0 for n in sides):
        raise ValueError(
            "patch_size must be a whole number of pixels, a pair of them or 'auto'; "
            f"got patch_size={size!r}."
        )
    return sides[0], sides[1]


def _auto_patch(height: int, width: int) -> tuple[int, int]:
    side = 2 ** max(1, round(math.log2(math.sqrt(height * width) / 8)))
    return min(side, height), min(side, width)


def _warn_of_channels_last(x: Tensor) -> None:
    if x.ndim == 4 and x.shape[-1] in (1, 3, 4) and x.shape[1] > 4:
        warnings.warn(
            f"Images of shape {tuple(x.shape[1:])} are read as {x.shape[1]} channels "
            f"of {x.shape[2]} x {x.shape[3]} pixels. If their channels come last, "
            "move them to the front with X.transpose(0, 3, 1, 2).",
            UQFormerWarning,
            stacklevel=3,
        )
