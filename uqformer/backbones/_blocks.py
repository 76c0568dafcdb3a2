"""What backbones share once they have tokens: a CLS token, pre-norm blocks, a head."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from uqformer._seam import attend, match_rows

__all__ = ["Attention", "Block", "ClsTransformer", "channel_scales", "start_near_zero"]


class ClsTransformer(nn.Module):
    """Blocks over tokens that a subclass makes; a CLS token reads them for the head.

    A subclass sets `embed`, and `row_shape` where rows have one shape only, in its
    method ``adapt``.

    Parameters
    ----------
    n_outputs : int
        C, the numbers to predict for each row.
    d_token : int
        Width D of a token; a multiple of `n_heads`.
    n_blocks : int
        Blocks of attention and feed-forward.
    n_heads : int
        Attention heads in each block.
    dropout : float
        Share of attention weights and of hidden units that training drops.
    """

    def __init__(
        self, n_outputs: int, d_token: int, n_blocks: int, n_heads: int, dropout: float
    ) -> None:
        super().__init__()
        if n_heads < 1 or n_blocks < 1:
            raise ValueError(
                f"n_heads and n_blocks must be at least 1; got n_heads={n_heads}, "
                f"n_blocks={n_blocks}."
            )
        if d_token < 1 or d_token % n_heads:
            raise ValueError(
                "d_token must be a positive multiple of n_heads; got "
                f"d_token={d_token}, n_heads={n_heads}."
            )
        self.n_outputs = n_outputs
        self.d_token = d_token
        self.embed: nn.Module
        self.row_shape: tuple[int, ...] | None = None
        self.cls = start_near_zero(d_token)
        # a gated layer of this width has the parameters of a plain one of 2 * d_token
        hidden = max(1, (d_token * 4) // 3)
        self.blocks = nn.ModuleList(
            Block(d_token, n_heads, hidden, dropout) for _ in range(n_blocks)
        )
        self.norm = nn.LayerNorm(d_token)
        self.head = nn.Linear(d_token, n_outputs)

    @property
    def n_params(self) -> int:
        """Trainable numbers; those of the tokens are known after `adapt`."""
        return sum(p.numel() for p in self.parameters() if p.requires_grad)

    def _check_adapted(self) -> None:
        if not hasattr(self, "embed"):
            raise RuntimeError(
                f"{type(self).__name__} has not seen its inputs yet; call adapt(x) "
                "with the training rows before the first forward pass."
            )

    def _check_shape(self, x: Tensor) -> None:
        self._check_adapted()
        if tuple(x.shape[1:]) != self.row_shape:
            raise ValueError(
                f"Each row must have the shape of the training rows, {self.row_shape}; "
                f"got {tuple(x.shape[1:])}. Cut or resize the rows to it."
            )

    def _with_cls(self, tokens: Tensor) -> Tensor:
        cls = self.cls.expand(len(tokens), 1, -1)  # (N, 1, D)
        return torch.cat([cls, tokens], dim=1)  # (N, T, D)

    def _predict(self, tokens: Tensor, mask: Tensor | None = None) -> Tensor:
        """Predict from `tokens` (N, T - 1, D); only CLS asks in the last block."""
        state = self._with_cls(tokens)  # (N, T, D)
        for block in self.blocks[:-1]:
            state = block(state, state, mask)
        state = self.blocks[-1](state[:, :1], state, mask)  # (N, 1, D)
        output: Tensor = self.head(self.norm(state[:, 0]))  # (N, C)
        return output


class Block(nn.Module):
    """Pre-norm attention, then a pre-norm gated feed-forward layer."""

    def __init__(self, width: int, n_heads: int, hidden: int, dropout: float) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(width)
        self.attention = Attention(width, n_heads, dropout)
        self.feedforward_norm = nn.LayerNorm(width)
        self.expand = nn.Linear(width, 2 * hidden)
        self.dropout = nn.Dropout(dropout)
        self.contract = nn.Linear(hidden, width)

    def forward(
        self, query: Tensor, state: Tensor, mask: Tensor | None = None
    ) -> Tensor:
        """Let `query` (N, Q, D), the first tokens of `state` (N, T, D), look at it."""
        normed = self.attention_norm(state)  # (N, T, D)
        mixed = self.attention(normed[:, : query.shape[1]], normed, mask)
        query = match_rows(query, mixed) + mixed  # (N, Q, D)
        gate, value = self.expand(self.feedforward_norm(query)).chunk(2, dim=-1)
        output: Tensor = query + self.contract(self.dropout(F.relu(gate) * value))
        return output


class Attention(nn.Module):
    """Multi-head attention whose weights can be redrawn through the seam."""

    uses_attention_seam = True

    def __init__(self, width: int, n_heads: int, dropout: float) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.dropout = dropout
        self.query = nn.Linear(width, width)
        self.key_value = nn.Linear(width, 2 * width)
        self.out = nn.Linear(width, width)

    def forward(
        self, query: Tensor, state: Tensor, mask: Tensor | None = None
    ) -> Tensor:
        """Mix `state` (N, T, D) for every `query` (N, Q, D); see `attend` for masks."""
        q = self._split(self.query(query))  # (N, H, Q, D/H)
        k, v = map(
            self._split, self.key_value(state).chunk(2, dim=-1)
        )  # (N, H, T, D/H)
        dropout = self.dropout if self.training else 0.0
        mixed = attend(q, k, v, self, mask=mask, dropout=dropout)  # (N, H, Q, D/H)
        output: Tensor = self.out(mixed.transpose(1, 2).flatten(2))  # (N, Q, D)
        return output

    def _split(self, x: Tensor) -> Tensor:
        heads: Tensor = x.unflatten(-1, (self.n_heads, -1)).transpose(1, 2)
        return heads  # (N, H, T, D/H)


def start_near_zero(*shape: int) -> nn.Parameter:
    """Embeddings for a fresh model: small, so that the blocks soon outweigh them."""
    return nn.Parameter(torch.randn(shape) * shape[-1] ** -0.5)


def channel_scales(x: Tensor, channel_dim: int) -> tuple[Tensor, Tensor]:
    """Return mean and standard deviation of each channel, 1 where it never changes."""
    dims = [dim for dim in range(x.ndim) if dim != channel_dim % x.ndim]
    variance, mean = torch.var_mean(x, dim=dims, correction=0, keepdim=True)
    if not variance.any():
        raise ValueError(
            "At least one channel must vary over the training rows; all "
            f"{mean.numel()} are constant over {len(x)} rows."
        )
    scale = torch.where(variance > 0, variance.sqrt(), torch.ones_like(variance))
    return mean[0], scale[0]
