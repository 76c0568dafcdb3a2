"""Transformer for token ids: from a vocabulary to tokens to outputs."""

from typing import Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from uqformer.backbones._blocks import ClsTransformer, start_near_zero

__all__ = ["TokenTransformer"]


class TokenTransformer(ClsTransformer):
    """Transformer over token ids: sentences, events, sequences of symbols.

    Each id becomes a token through a learned embedding of what it is and of its place,
    pre-norm blocks let the tokens look at one another, and the CLS token's last state
    is mapped to the outputs.

    Parameters
    ----------
    n_features : int
        Longest row of ids.

    n_outputs : int
        Numbers to predict for each row.

    n_tokens : int, default=None
        Size of the vocabulary; ids are 0 to ``n_tokens - 1``. None takes the largest id
        of the training rows, and so refuses what they do not hold.

    pad_id : int, default=None
        The id that only fills rows up, on either side: it is never looked at. None:
        every id is a token.

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
        Trainable numbers; those of the vocabulary are known after `adapt`.

    Raises
    ------
    ValueError
        If a number is out of range or `d_token` is not a multiple of `n_heads`.

    See Also
    --------
    SequenceTransformer : The same for windows of a series of numbers.

    Notes
    -----
    Shapes: ``forward`` takes ``(n_samples, n_steps)`` whole numbers, with as many steps
    as the training rows that `adapt` has seen or fewer, and returns ``(n_samples,
    n_outputs)``. Places are counted over real tokens only, so rows padded on the left,
    on the right or not at all give the same. A row of nothing but padding is predicted
    by the CLS token alone.

    In the last block only the CLS token asks, since nothing else is read [1]_.

    References
    ----------
    .. [1] J. Devlin et al. (2019), "BERT: Pre-training of Deep Bidirectional
       Transformers for Language Understanding", arXiv 1810.04805.

    Examples
    --------
    >>> import torch
    >>> from uqformer.backbones import TokenTransformer
    >>> x = torch.tensor([[3, 1, 4, 0], [1, 5, 0, 0]])
    >>> model = TokenTransformer(4, 2, pad_id=0).adapt(x).eval()
    >>> torch.allclose(model(x)[1:], model(x[1:, :2]), atol=1e-5)
    True
    """

    takes_tokens = True
    """Inputs are ids, which estimators must not scale."""

    def __init__(
        self,
        n_features: int,
        n_outputs: int,
        *,
        n_tokens: int | None = None,
        pad_id: int | None = None,
        d_token: int = 64,
        n_blocks: int = 3,
        n_heads: int = 4,
        dropout: float = 0.1,
    ) -> None:
        super().__init__(n_outputs, d_token, n_blocks, n_heads, dropout)
        if n_tokens is not None and n_tokens < 1:
            raise ValueError(f"n_tokens must be at least 1; got n_tokens={n_tokens}.")
        self.n_features = n_features
        self.n_tokens = n_tokens
        self.pad_id = pad_id
        self.position = start_near_zero(n_features, d_token)

    def adapt(self, x: Tensor) -> Self:
        """Learn the size of the vocabulary, where it was not told.

        Parameters
        ----------
        x : Tensor of shape (n_samples, n_steps)
            Training rows of ids.

        Returns
        -------
        model : TokenTransformer
            This model.

        Raises
        ------
        ValueError
            If `x` does not hold ids of the vocabulary, or all its rows are equal.
        """
        if x.ndim != 2 or (x != x.round()).any():
            raise ValueError(
                "TokenTransformer takes whole token ids (n_samples, n_steps); got "
                f"shape {tuple(x.shape)}, {x.dtype}, largest value {x.max():.3g}. Hand "
                "ids over as they are, without scaling."
            )
        if (x == x[:1]).all():
            raise ValueError(
                f"Token ids must vary over the training rows; all {len(x)} rows are "
                "equal."
            )
        self._n_known = self.n_tokens or int(self._read(x)[0].max()) + 1
        self._check_ids(x)
        self.embed = nn.Embedding(self._n_known, self.d_token)
        nn.init.normal_(self.embed.weight, std=self.d_token**-0.5)
        return self

    def forward(self, x: Tensor) -> Tensor:
        """Predict from ids; see Notes of the class for shapes."""
        self._check_adapted()
        self._check_ids(x)
        ids, is_real = self._read(x)
        place = (is_real.cumsum(dim=1) - 1).clamp(min=0)  # (N, T - 1)
        tokens = self.embed(ids) + self.position[place]  # (N, T - 1, D)
        # CLS is always there to be looked at
        seen = F.pad(is_real, (1, 0), value=True)  # (N, T)
        return self._predict(
            tokens, None if self.pad_id is None else seen[:, None, None]
        )

    def _read(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return ids, 0 in place of padding, and which of them are real."""
        ids = x.long()  # (N, T - 1)
        is_real = torch.ones_like(ids, dtype=torch.bool)
        if self.pad_id is not None:
            is_real = ids != self.pad_id
        return ids.where(is_real, 0), is_real

    def _check_ids(self, x: Tensor) -> None:
        ids, _ = self._read(x)
        largest = self._n_known - 1
        if ids.shape[1] > self.n_features or ids.min() < 0 or ids.max() > largest:
            raise ValueError(
                f"Rows must hold at most {self.n_features} ids from 0 to {largest}; "
                f"got {ids.shape[1]} ids from {ids.min()} to {ids.max()}. Cut the "
                "rows, or set n_tokens to the size of the vocabulary."
            )
