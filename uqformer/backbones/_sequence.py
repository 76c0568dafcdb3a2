"""Transformer for windows of a series: from steps to patches to outputs."""

import math
from collections.abc import Sequence
from typing import Literal, Self

import torch
from torch import Tensor, nn

from uqformer._seam import match_rows
from uqformer.backbones._blocks import ClsTransformer, channel_scales, start_near_zero

__all__ = ["SequenceTransformer"]

_MAX_PATCHES = 32
_LEAST_VARIANCE = 1e-5  # of a window, beside 1 for its channel: keeps flat ones finite


class SequenceTransformer(ClsTransformer):
    """Transformer over patches of time, for windows of one or several series.

    Steps next to one another make a patch, each patch of all channels becomes a token
    with a learned embedding of its place [1]_, pre-norm blocks let the tokens look at
    one another, and the CLS token's last state is mapped to the outputs.

    Parameters
    ----------
    n_features : int
        Steps of a window.

    n_outputs : int
        Numbers to predict for each row. For forecasts the steps ahead times the target
        channels, as in ``future.reshape(n_samples, -1)`` of a future
        ``(n_samples, n_steps, n_channels)``.

    patch_length : int or "auto", default="auto"
        Steps in a patch. "auto" takes the smallest power of two that makes at most 32
        patches: 1 for 24 steps, 4 for 96, 16 for 512.

    normalise : {"window"}, default=None
        "window" is for forecasts of series whose level wanders: each window is
        standardised by its own mean and standard deviation, and the outputs are given
        back in its units [2]_. None compares windows by their level too.

    target_channels : int or list of int, default=None
        The channels that the outputs continue, for ``normalise="window"``. May be left
        out where there is one channel only.

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
        If a number is out of range, `d_token` is not a multiple of `n_heads`,
        `normalise` is not a known name, or is None with `target_channels`.

    See Also
    --------
    TokenTransformer : The same for token ids.
    PatchTransformer : The same for images.

    Notes
    -----
    Shapes: ``forward`` takes ``(n_samples, n_steps)`` or ``(n_samples, n_steps,
    n_channels)``, latest step last, and returns ``(n_samples, n_outputs)``. `adapt`
    must have seen training rows first: each channel is standardised by their mean and
    standard deviation, in any unit. Windows that are no multiple of the patch are
    padded at their beginning with their first step.

    With ``normalise="window"`` the outputs are ``gain * (mean + std * f) + shift``,
    with mean and standard deviation of the window in the standardised units of its
    channel. A learned gain and shift for each output lead to the units of `y`; they
    start at 1 and 0, which is right for standardised `y` of the same series.

    References
    ----------
    .. [1] Y. Nie et al. (2023), "A Time Series is Worth 64 Words: Long-term
       Forecasting with Transformers", arXiv 2211.14730.
    .. [2] T. Kim et al. (2022), "Reversible Instance Normalization for Accurate
       Time-Series Forecasting against Distribution Shift", ICLR.

    Examples
    --------
    >>> import torch
    >>> from uqformer.backbones import SequenceTransformer
    >>> x = torch.arange(120).reshape(10, 12).sin()
    >>> model = SequenceTransformer(12, 3, normalise="window").adapt(x).eval()
    >>> model(x).shape
    torch.Size([10, 3])
    """

    # its channels have a scale each; a scale for each step would bend the windows
    scales_inputs = True

    def __init__(
        self,
        n_features: int,
        n_outputs: int,
        *,
        patch_length: int | Literal["auto"] = "auto",
        normalise: Literal["window"] | None = None,
        target_channels: int | Sequence[int] | None = None,
        d_token: int = 64,
        n_blocks: int = 3,
        n_heads: int = 4,
        dropout: float = 0.1,
    ) -> None:
        super().__init__(n_outputs, d_token, n_blocks, n_heads, dropout)
        if patch_length != "auto" and not (
            isinstance(patch_length, int) and patch_length > 0
        ):
            raise ValueError(
                "patch_length must be a whole number of steps or 'auto'; got "
                f"patch_length={patch_length!r}."
            )
        if normalise not in ("window", None):
            raise ValueError(
                f"normalise must be 'window' or None; got normalise={normalise!r}."
            )
        if target_channels is not None and normalise is None:
            raise ValueError(
                "target_channels says where normalise='window' takes its units from; "
                f"got target_channels={target_channels!r} with normalise=None. Set "
                "both or neither."
            )
        self.n_features = n_features
        self.patch_length = (
            _auto_length(n_features)
            if isinstance(patch_length, str)
            else min(patch_length, n_features)
        )
        self.target_channels = target_channels
        self.channel_mean: Tensor
        self.channel_scale: Tensor
        self.register_buffer("channel_mean", torch.zeros(1, 1))
        self.register_buffer("channel_scale", torch.ones(1, 1))
        self.units = WindowUnits(n_outputs) if normalise == "window" else None
        n_patches = -(-n_features // self.patch_length)
        self.position = start_near_zero(n_patches, d_token)

    def adapt(self, x: Tensor) -> Self:
        """Learn the number of the channels and their scale.

        Parameters
        ----------
        x : Tensor of shape (n_samples, n_steps) or (n_samples, n_steps, n_channels)
            Training rows, in the units of `forward`.

        Returns
        -------
        model : SequenceTransformer
            This model.

        Raises
        ------
        ValueError
            If `x` are not such windows, every channel is constant, or
            `target_channels` does not fit the channels or `n_outputs`.
        """
        if x.ndim not in (2, 3) or x.shape[1] != self.n_features:
            raise ValueError(
                f"SequenceTransformer takes windows (n_samples, {self.n_features}) or "
                f"(n_samples, {self.n_features}, n_channels); got shape "
                f"{tuple(x.shape)}."
            )
        windows = self._with_channels(x)  # (N, time, channels)
        self.channel_mean, self.channel_scale = channel_scales(windows, 2)
        self.row_shape = tuple(x.shape[1:])
        n_channels = windows.shape[2]
        if self.units is not None:
            targets = _find_targets(self.target_channels, n_channels, self.n_outputs)
            self.units.targets = torch.tensor(targets, device=x.device)
        self.embed = nn.Linear(self.patch_length * n_channels, self.d_token)
        return self

    def forward(self, x: Tensor) -> Tensor:
        """Predict from windows; see Notes of the class for shapes."""
        self._check_shape(x)
        windows = self._with_channels(x)  # (N, time, channels)
        windows = (windows - self.channel_mean) / self.channel_scale
        if self.units is None:
            return self._predict(self._tokens(windows))
        variance, mean = torch.var_mean(windows, dim=1, correction=0, keepdim=True)
        std = (variance + _LEAST_VARIANCE).sqrt()  # (N, 1, channels)
        tokens = self._tokens((windows - mean) / std)
        output: Tensor = self.units(self._predict(tokens), mean, std)  # (N, C)
        return output

    def _tokens(self, windows: Tensor) -> Tensor:
        missing = -windows.shape[1] % self.patch_length
        front = windows[:, :1].expand(-1, missing, -1)
        whole = torch.cat([front, windows], dim=1)
        patches = whole.unflatten(1, (-1, self.patch_length)).flatten(2)
        tokens: Tensor = self.embed(patches) + self.position  # (N, T - 1, D)
        return tokens

    def _with_channels(self, x: Tensor) -> Tensor:
        windows = x if x.ndim == 3 else x[..., None]
        return windows.to(self.channel_mean.dtype)  # (N, time, channels)


def _auto_length(n_steps: int) -> int:
    return 1 << max(0, math.ceil(math.log2(n_steps / _MAX_PATCHES)))


class WindowUnits(nn.Module):
    """From the units of each window to those of `y`."""

    def __init__(self, n_outputs: int) -> None:
        super().__init__()
        self.targets: Tensor
        self.register_buffer("targets", torch.zeros(1, dtype=torch.long))
        self.gain = nn.Parameter(torch.ones(n_outputs))
        self.shift = nn.Parameter(torch.zeros(n_outputs))

    def forward(self, output: Tensor, mean: Tensor, std: Tensor) -> Tensor:
        """Bring `output` (N, C) back; `mean` and `std` are (N, 1, channels)."""
        mean, std = (
            match_rows(x[..., self.targets], output) for x in (mean, std)
        )  # (N, 1, targets)
        steps = output.unflatten(1, (-1, len(self.targets)))  # (N, ahead, targets)
        level = (mean + std * steps).flatten(1)  # (N, C)
        restored: Tensor = self.gain * level + self.shift
        return restored


def _find_targets(
    chosen: int | Sequence[int] | None, n_channels: int, n_outputs: int
) -> list[int]:
    """Check which channels the outputs continue."""
    if chosen is None and n_channels > 1:
        raise ValueError(
            "normalise='window' must know which of the "
            f"{n_channels} channels the outputs continue; got target_channels=None. "
            "Pass a position or a list of them."
        )
    targets = [chosen or 0] if not isinstance(chosen, Sequence) else list(chosen)
    if not targets or not all(-n_channels <= t < n_channels for t in targets):
        raise ValueError(
            f"target_channels must be positions among {n_channels} channels; got "
            f"target_channels={chosen!r}."
        )
    if n_outputs % len(targets):
        raise ValueError(
            "n_outputs must be steps ahead times target channels; got "
            f"n_outputs={n_outputs} for {len(targets)} target_channels."
        )
    return targets
