"""FT-Transformer for tables, top to bottom: from columns to tokens to outputs."""

from collections.abc import Sequence
from typing import Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from uqformer.backbones._blocks import Block
from uqformer.backbones._columns import ColumnTokens, NumericalEmbedding

__all__ = ["FTTransformer"]


class FTTransformer(nn.Module):
    """Transformer over the columns of a table of numbers and categories.

    Every column becomes a token through an embedding of its own, a CLS token is put in
    front, pre-norm blocks let the tokens look at one another, and the CLS token's last
    state is mapped to the outputs.

    Parameters
    ----------
    n_features : int
        Columns of the table.

    n_outputs : int
        Numbers to predict for each row.

    n_categories : sequence of int or None, default=None
        For each column the number k of its known categories, or None where it holds
        numbers; None for a table of numbers alone. A category is given as its code:
        0 to k - 1, k for a category that is none of these, k + 1 for a missing one.

    d_token : int, default=32
        Width of a token; a multiple of `n_heads`.

    n_blocks : int, default=3
        Blocks of attention and feed-forward.

    n_heads : int, default=4
        Attention heads in each block.

    d_feedforward : int, default=None
        Hidden width of the gated feed-forward layer. None takes 4/3 of `d_token`,
        which gives it the parameters of a plain one of width `2 * d_token`.

    dropout : float, default=0.1
        Share of attention weights and of hidden feed-forward units that training
        drops; in [0, 1).

    embedding : {"piecewise_linear", "periodic", "linear"}, default="piecewise_linear"
        How a number becomes a token: by its place between quantiles of its column
        [2]_, by learned sines [2]_, or by a straight line [1]_.

    n_bins : int, default=48
        Largest number of bins a column for ``embedding="piecewise_linear"``.

    Attributes
    ----------
    columns : Tensor
        Positions of the columns that have a token, in the order of their tokens; known
        after `adapt`.

    n_params : int
        Trainable numbers; those of the embedding are known after `adapt`.

    Raises
    ------
    ValueError
        If there is no head or no block, `d_token` is not a multiple of `n_heads`,
        `embedding` is not a known name, or `n_categories` does not have one count for
        each column.

    See Also
    --------
    FrozenBackbone : A pretrained model that must not be trained.

    Notes
    -----
    Shapes: ``forward`` takes ``(n_samples, n_features)``, numbers best standardised,
    and returns ``(n_samples, n_outputs)``. `adapt` must have seen training rows first:
    it places the bins, and gives no token to a column that never changes.

    A missing number is NaN. A column that had gaps in training learns a token for them;
    in any other a gap is read as 0, the mean of a standardised column. An unknown
    category has a token too, learned from training rows whose category is hidden: one
    row in a hundred at least, more where the category is rare.

    In the last block only the CLS token asks, since nothing else is read.

    References
    ----------
    .. [1] Y. Gorishniy et al. (2021), "Revisiting Deep Learning Models for Tabular
       Data", arXiv 2106.11959.
    .. [2] Y. Gorishniy et al. (2022), "On Embeddings for Numerical Features in Tabular
       Deep Learning", arXiv 2203.05556.

    Examples
    --------
    >>> import torch
    >>> from uqformer.backbones import FTTransformer
    >>> x = torch.linspace(-1, 1, 20).reshape(10, 2)
    >>> model = FTTransformer(2, 1, d_token=8, n_heads=2).adapt(x).eval()
    >>> model(x).shape
    torch.Size([10, 1])
    """

    def __init__(
        self,
        n_features: int,
        n_outputs: int,
        *,
        n_categories: Sequence[int | None] | None = None,
        d_token: int = 32,
        n_blocks: int = 3,
        n_heads: int = 4,
        d_feedforward: int | None = None,
        dropout: float = 0.1,
        embedding: NumericalEmbedding = "piecewise_linear",
        n_bins: int = 48,
    ) -> None:
        super().__init__()
        if n_heads < 1 or n_blocks < 1:
            raise ValueError(
                f"n_heads and n_blocks must be at least 1; got n_heads={n_heads}, "
                f"n_blocks={n_blocks}."
            )
        if d_token % n_heads:
            raise ValueError(
                f"d_token must be a multiple of n_heads; got d_token={d_token}, "
                f"n_heads={n_heads}."
            )
        if embedding not in ("piecewise_linear", "periodic", "linear"):
            raise ValueError(
                "embedding must be 'piecewise_linear', 'periodic' or 'linear'; got "
                f"embedding={embedding!r}."
            )
        self.n_features = n_features
        self.n_categories = _check_categories(n_categories, n_features)
        self.d_token = d_token
        self.embedding = embedding
        self.n_bins = n_bins
        self.tokens: ColumnTokens | None = None
        self.cls = nn.Parameter(torch.empty(d_token).uniform_(-1, 1) * d_token**-0.5)
        hidden = d_feedforward or max(1, (d_token * 4) // 3)
        self.blocks = nn.ModuleList(
            Block(d_token, n_heads, hidden, dropout) for _ in range(n_blocks)
        )
        self.norm = nn.LayerNorm(d_token)
        self.head = nn.Linear(d_token, n_outputs)

    @property
    def columns(self) -> Tensor:
        """Positions of the columns that have a token."""
        return self._column_tokens().columns

    @property
    def n_params(self) -> int:
        """Trainable numbers."""
        return sum(p.numel() for p in self.parameters() if p.requires_grad)

    def adapt(self, x: Tensor) -> Self:
        """Build the column embeddings for the values seen in training.

        Parameters
        ----------
        x : Tensor of shape (n_samples, n_features)
            Training rows, scaled and coded as they will be in `forward`.

        Returns
        -------
        model : FTTransformer
            This model.

        Raises
        ------
        ValueError
            If every column is constant, so that no row can be told from another, or
            fewer than 3 rows are to place the bins of ``"piecewise_linear"``.
        """
        self.tokens = ColumnTokens(
            x, self.n_categories, self.d_token, self.embedding, self.n_bins
        )
        return self

    def forward(self, x: Tensor) -> Tensor:
        """Predict from rows of numbers and codes; see Notes of the class for shapes."""
        state = self._column_tokens()(x)  # (N, T - 1, D)
        cls = self.cls.expand(len(x), 1, -1)  # (N, 1, D)
        state = torch.cat([cls, state], dim=1)  # (N, T, D)
        for block in self.blocks[:-1]:
            state = block(state, state)
        state = self.blocks[-1](state[:, :1], state)  # (N, 1, D)
        output: Tensor = self.head(F.relu(self.norm(state[:, 0])))  # (N, C)
        return output

    def _column_tokens(self) -> ColumnTokens:
        if self.tokens is None:
            raise RuntimeError(
                "FTTransformer has no column embeddings yet; call adapt(x) with the "
                "training rows before the first forward pass."
            )
        return self.tokens


def _check_categories(
    n_categories: Sequence[int | None] | None, n_features: int
) -> list[int | None]:
    """Return one count for each column."""
    counts: list[int | None] = list(n_categories or [None] * n_features)
    if len(counts) != n_features or any(k is not None and k < 0 for k in counts):
        raise ValueError(
            f"n_categories must hold one count (0 or more) or None for each of the "
            f"n_features={n_features} columns; got n_categories={counts}."
        )
    return counts
