"""One small network for every step of the chain."""

import math

import torch
from torch import Tensor, nn

from uqformer._seam import attend, match_rows

__all__ = ["TransitionDiT", "transition_for"]

LOG_VARIANCE_RANGE = (-10.0, 2.0)
"""What a step may claim of itself, as the logarithm of its variance."""

FIRST_LOG_VARIANCE = -4.0
"""What a fresh network claims: little, but enough for gradients to see."""

FIRST_FACTOR = 0.1
"""Size of what a fresh network lets tokens share, in units of the states."""

TIME_WIDTHS = (4, 32)
"""Range of the width of a time's embedding, which is otherwise the number of steps."""

_MLP_RATIOS = (4.0, 2.0, 1.0, 0.5)


class TransitionDiT(nn.Module):
    r"""Gaussian transition shared by all steps: a diffusion transformer of one block.

    Parameters
    ----------
    width : int
        Width D of the tokens of the chain.

    n_steps : int
        Steps of the chain it is trained for.

    n_heads : int, default=4
        Attention heads.

    mlp_ratio : float, default=1.0
        Hidden width of the feed-forward layer, in units of the inner width.

    inner_width : int, default=None
        Width inside the block; a multiple of `n_heads`, and even. None takes `width`,
        and needs no projection into the block.

    dropout : float, default=0.0
        Share of numbers that are dropped from what attention and feed-forward layer
        add, in training.

    n_factors : int, default=0
        Normal numbers of a step, for each width, that all tokens share; 0 gives each
        token noise of its own alone.

    Attributes
    ----------
    n_params : int
        Trainable numbers.

    Raises
    ------
    ValueError
        If a number is below 1, `n_factors` below 0, `dropout` not in [0, 1), or the
        inner width odd or no multiple of `n_heads`.

    See Also
    --------
    transition_for : Choose the sizes for a number of parameters.
    rollout : Walk a chain with it.

    Notes
    -----
    Shapes: ``forward(state, time, visible=None)`` takes tokens ``(N, T, D)``, a time
    for each row ``(N,)`` or one for all, and keys that may be seen ``(N or 1, 1, T or
    1, T)``; it returns mean and log-variance, both ``(N, T, D)``, and with `n_factors`
    the factors :math:`F` ``(N, T, D, n_factors)``: for each width the tokens then have
    the covariance :math:`\mathrm{diag}(\sigma^2) + F F^\top`. Time runs backwards
    as in diffusion: step l of L begins at :math:`\tau = (L - l + 1) / L`.

    Time is embedded by sines and a two-layer network, and scales, shifts and gates the
    block (adaLN [1]_). The embedding is as wide as there are steps, from 4 to 32: as
    wide as the tokens it takes half of the block's parameters to tell a few times
    apart.

    The mean is what the block makes of the state, plus a head that starts at zero.
    Gates start at one and not, as in adaLN-Zero, at zero: nothing here is so deep that
    it has to start as the identity, and what starts there learned later and worse
    (4,000 photographs of CIFAR-10, task alone: log loss 1.61 against 1.59). The
    log-variance is held between -10 and 2.

    A block of this kind as the unified transition is what the method states [2]_; its
    sizes, the two heads and the time embedding are a reconstruction.

    References
    ----------
    .. [1] W. Peebles and S. Xie (2023), "Scalable Diffusion Models with Transformers",
       arXiv 2212.09748.
    .. [2] M. C. Dao et al. (2026), "Diffusion-Inspired Reconfiguration of Transformers
       for Uncertainty Calibration", arXiv 2602.08920.

    Examples
    --------
    >>> import torch
    >>> from uqformer.director import TransitionDiT
    >>> transition = TransitionDiT(width=16, n_steps=5)
    >>> state = torch.ones(2, 3, 16)
    >>> mean, log_variance = transition(state, torch.tensor(1.0))
    >>> mean.shape, log_variance.shape
    (torch.Size([2, 3, 16]), torch.Size([2, 3, 16]))
    """

    def __init__(
        self,
        width: int,
        n_steps: int,
        n_heads: int = 4,
        mlp_ratio: float = 1.0,
        inner_width: int | None = None,
        dropout: float = 0.0,
        n_factors: int = 0,
    ) -> None:
        super().__init__()
        inner = width if inner_width is None else inner_width
        if min(width, n_steps, n_heads, inner) < 1 or mlp_ratio <= 0:
            raise ValueError(
                "width, n_steps, n_heads and inner_width must be at least 1 and "
                f"mlp_ratio above 0; got width={width}, n_steps={n_steps}, "
                f"n_heads={n_heads}, inner_width={inner_width}, mlp_ratio={mlp_ratio}."
            )
        if n_factors < 0:
            raise ValueError(
                f"n_factors must be at least 0; got n_factors={n_factors}."
            )
        if not 0 <= dropout < 1:
            raise ValueError(
                f"dropout must be at least 0 and below 1; got dropout={dropout}."
            )
        if inner % n_heads or inner % 2:
            raise ValueError(
                "The inner width must be even and a multiple of n_heads; got "
                f"{inner} with n_heads={n_heads}. Set inner_width or n_heads."
            )
        self.width = width
        self.n_steps = n_steps
        self.inner_width = inner
        narrowed = inner_width is not None and inner != width
        self.enter: nn.Module = nn.Linear(width, inner) if narrowed else nn.Identity()
        self.leave: nn.Module = nn.Linear(inner, width) if narrowed else nn.Identity()
        # no more times are told apart than there are steps
        self.time_width = min(
            max(n_steps + n_steps % 2, TIME_WIDTHS[0]), TIME_WIDTHS[1]
        )
        self.time = nn.Sequential(
            nn.Linear(self.time_width, self.time_width), nn.SiLU(),
            nn.Linear(self.time_width, self.time_width), nn.SiLU(),
        )  # fmt: skip
        self.modulation = _zeros(nn.Linear(self.time_width, 6 * inner))
        self.norm = nn.LayerNorm(inner, elementwise_affine=False)
        self.attention = _Attention(inner, n_heads)
        hidden = max(1, round(mlp_ratio * inner))
        self.feedforward = nn.Sequential(
            nn.Linear(inner, hidden), nn.GELU(), nn.Linear(hidden, inner)
        )
        self.dropout = nn.Dropout(dropout)
        self.last_modulation = _zeros(nn.Linear(self.time_width, 2 * inner))
        self.mean = _zeros(nn.Linear(inner, width))
        self.log_variance = _zeros(nn.Linear(inner, width))
        nn.init.constant_(self.log_variance.bias, FIRST_LOG_VARIANCE)
        self.factors: nn.Module | None = None
        if n_factors:
            # at zero, where no gradient is, they would stay there
            self.factors = nn.Linear(inner, width * n_factors)
            nn.init.normal_(self.factors.weight, std=FIRST_FACTOR * inner**-0.5)
            nn.init.zeros_(self.factors.bias)

    @property
    def n_params(self) -> int:
        """Trainable numbers."""
        return sum(p.numel() for p in self.parameters() if p.requires_grad)

    def forward(
        self, state: Tensor, time: Tensor, visible: Tensor | None = None
    ) -> tuple[Tensor, ...]:
        """Return mean, log-variance and factors; see Notes of the class."""
        seen = self.time(self._waves(time.to(state)))  # (N or 1, W)
        shift, scale, gate, shift_2, scale_2, gate_2 = _parts(self.modulation(seen), 6)
        first = self.enter(state)  # (N, T, D)
        mixed = self.attention(_modulated(self.norm(first), shift, scale), visible)
        first = match_rows(first, mixed)
        tokens = first + _gated(self.dropout(mixed), gate)
        hidden = self.feedforward(_modulated(self.norm(tokens), shift_2, scale_2))
        tokens = tokens + _gated(self.dropout(hidden), gate_2)
        mean = match_rows(state, tokens) + self.leave(tokens - first)  # (N, T, D)
        tokens = _modulated(self.norm(tokens), *_parts(self.last_modulation(seen), 2))
        log_variance = self.log_variance(tokens).clamp(*LOG_VARIANCE_RANGE)
        # under mixed precision too, chains are walked in the precision they began with
        normal = mean + self.mean(tokens), log_variance.to(state)  # both (N, T, D)
        if self.factors is None:
            return normal
        factors = self.factors(tokens).to(state)
        return *normal, factors.unflatten(-1, (self.width, -1))  # (N, T, D, R)

    def _waves(self, time: Tensor) -> Tensor:
        """Embed times in [0, 1] by sines of many periods: (N, W), or (1, W) for one."""
        half = self.time_width // 2
        powers = torch.arange(half, device=time.device) / half
        frequencies = torch.exp(-math.log(10_000.0) * powers).to(time)
        angles = time.reshape(-1, 1) * self.n_steps * frequencies  # (N, W / 2)
        return torch.cat([angles.cos(), angles.sin()], dim=-1)  # (N, W)


class _Attention(nn.Module):
    """Multi-head self-attention through the seam."""

    uses_attention_seam = True

    def __init__(self, width: int, n_heads: int) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.query_key_value = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, tokens: Tensor, visible: Tensor | None) -> Tensor:
        """Mix tokens (N, T, D)."""
        q, k, v = (
            part.unflatten(-1, (self.n_heads, -1)).transpose(1, 2)
            for part in self.query_key_value(tokens).chunk(3, dim=-1)
        )  # (N, H, T, D / H)
        if visible is not None:
            # each query must be left with one key, so padding sees itself
            itself = torch.eye(tokens.shape[1], dtype=torch.bool, device=visible.device)
            visible = visible | itself  # (N or 1, 1, T, T)
        mixed = attend(q, k, v, self, mask=visible)  # (N, H, T, D / H)
        output: Tensor = self.out(mixed.transpose(1, 2).flatten(2))  # (N, T, D)
        return output


def _parts(modulation: Tensor, n_parts: int) -> list[Tensor]:
    parts = modulation[:, None].chunk(n_parts, dim=-1)
    return list(parts)  # each (N or 1, 1, D)


def _modulated(tokens: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
    return tokens * (1 + match_rows(scale, tokens)) + match_rows(shift, tokens)


def _gated(added: Tensor, gate: Tensor) -> Tensor:
    return added * (1 + match_rows(gate, added))


def _zeros(linear: nn.Linear) -> nn.Linear:
    nn.init.zeros_(linear.weight)
    nn.init.zeros_(linear.bias)
    return linear


def transition_for(
    width: int,
    n_steps: int,
    *,
    n_params: int,
    n_heads: int = 4,
    dropout: float = 0.0,
    n_factors: int = 0,
) -> TransitionDiT:
    """Build the largest transition that keeps to a number of parameters.

    Parameters
    ----------
    width : int
        Width of the tokens of the chain.

    n_steps : int
        Steps of the chain.

    n_params : int
        Parameters that it may have, such as half of those of the blocks it replaces.

    n_heads : int, default=4
        Attention heads.

    dropout : float, default=0.0
        See `TransitionDiT`.

    n_factors : int, default=0
        See `TransitionDiT`.

    Returns
    -------
    transition : TransitionDiT
        With the full width inside and the largest feed-forward layer that fits, of
        ratio 4, 2, 1 or 0.5; if none fits, with the largest narrower inside.

    Raises
    ------
    ValueError
        If not even the narrowest fits.

    See Also
    --------
    TransitionDiT : What is built.

    Examples
    --------
    >>> from uqformer.director import transition_for
    >>> transition = transition_for(64, 5, n_params=30_000)
    >>> transition.inner_width, transition.n_params
    (48, 29412)
    """
    unit = n_heads if n_heads % 2 == 0 else 2 * n_heads
    full = width if width % unit == 0 else None
    sizes: list[tuple[int | None, float]] = []
    if full is not None:
        sizes = [(None, ratio) for ratio in _MLP_RATIOS]
    sizes += [(inner, 1.0) for inner in range((width - 1) // unit * unit, 0, -unit)]
    for inner, ratio in sizes:
        shape = width, n_steps, n_heads, ratio, inner, dropout, n_factors
        # on the meta device it is counted without being built
        with torch.device("meta"):
            n_built = TransitionDiT(*shape).n_params
        if n_built <= n_params:
            return TransitionDiT(*shape)
    raise ValueError(
        f"A transition of width {width} with n_heads={n_heads} needs more parameters "
        f"than n_params={n_params}; ask for at least {n_built}."
    )
