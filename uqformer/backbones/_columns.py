"""Tokens of a table's columns: numbers, categories, and what is missing from them."""

import warnings
from collections.abc import Sequence
from typing import Literal, TypeAlias

import rtdl_num_embeddings
import torch
import torch.nn.functional as F
from torch import Tensor, nn

__all__ = ["ColumnTokens", "NumericalEmbedding"]

NumericalEmbedding: TypeAlias = Literal["piecewise_linear", "periodic", "linear"]

UNKNOWN_SHARE = 0.01
"""Least share of a category's training rows that are taken for an unknown one."""


class ColumnTokens(nn.Module):
    """From a row of numbers and codes to one token for each column that varies.

    Numerical columns come first, then those of which only some values are missing and
    the others all alike, then categories; `columns` has their positions in this order.

    Parameters
    ----------
    x : Tensor of shape (n_samples, n_features)
        Training rows, NaN where a number is missing.
    n_categories : sequence of int or None
        Known categories of each column, None for numbers.
    width : int
        Width of a token.
    embedding : {"piecewise_linear", "periodic", "linear"}
        How a number becomes a token.
    n_bins : int
        Largest number of bins a column.
    """

    numerical: Tensor
    marked: Tensor
    categorical: Tensor

    def __init__(
        self,
        x: Tensor,
        n_categories: Sequence[int | None],
        width: int,
        embedding: NumericalEmbedding,
        n_bins: int,
    ) -> None:
        super().__init__()
        coded = torch.tensor([k is not None for k in n_categories], device=x.device)
        absent = x.isnan()  # (N, F)
        differs = _differs(x)  # (F,)
        gaps = absent.any(dim=0)  # (F,)
        parts = {
            "numerical": ~coded & differs,
            "marked": ~coded & ~differs & gaps & ~absent.all(dim=0),
            "categorical": coded & _differs(x.nan_to_num(nan=-1.0)),
        }
        for name, chosen in parts.items():
            self.register_buffer(name, torch.nonzero(chosen)[:, 0])
        if not len(self.columns):
            raise ValueError(
                f"At least one column must vary over the training rows; all "
                f"{x.shape[1]} are constant over {x.shape[0]} rows."
            )
        self.numbers = (
            NumberTokens(x[:, self.numerical], width, embedding, n_bins)
            if len(self.numerical)
            else None
        )
        _check_codes(x[:, self.categorical], self.categorical, n_categories)
        sizes = [0] * len(self.marked)
        sizes += [n_categories[column] or 0 for column in self.categorical.tolist()]
        self.categories = (
            CategoryTokens(self._codes(x), sizes, width) if sizes else None
        )

    @property
    def columns(self) -> Tensor:
        """Positions of the columns that have a token, in the order of the tokens."""
        return torch.cat([self.numerical, self.marked, self.categorical])

    def forward(self, x: Tensor) -> Tensor:
        """Turn rows (N, F) into tokens (N, T, D)."""
        tokens = []
        if self.numbers is not None:
            tokens.append(self.numbers(x[:, self.numerical]))
        if self.categories is not None:
            tokens.append(self.categories(self._codes(x)))
        return torch.cat(tokens, dim=1)  # (N, T, D)

    def _codes(self, x: Tensor) -> Tensor:
        """Codes of all categories; a marked column is 0, or 1 where it is missing."""
        marks = x[:, self.marked].isnan().to(x.dtype)
        return torch.cat([marks, x[:, self.categorical]], dim=1)  # (N, K)


def _check_codes(
    codes: Tensor, columns: Tensor, n_categories: Sequence[int | None]
) -> None:
    """Check that columns of categories hold whole numbers: others are measurements."""
    fractional = (codes.isfinite() & (codes != codes.round())).any(dim=0)  # (K,)
    for column in columns[fractional].tolist():
        raise ValueError(
            "n_categories must be None for a column of numbers; got "
            f"{n_categories[column]} for column {column}, which holds fractions."
        )


class NumberTokens(nn.Module):
    """Tokens of numbers; a missing one has a token that is learned for its column.

    Where training rows had no gap there is nothing to learn from, and a number that is
    missing later is taken for 0, the mean of a standardised column.
    """

    gappy: Tensor

    def __init__(
        self, x: Tensor, width: int, embedding: NumericalEmbedding, n_bins: int
    ) -> None:
        super().__init__()
        self.embed = _make_embedding(x, width, embedding, n_bins)
        gaps = x.isnan().any(dim=0)
        self.register_buffer("gappy", torch.nonzero(gaps)[:, 0])
        n_gappy = len(self.gappy)
        self.missing = _uniform(n_gappy, width, x.device) if n_gappy else None

    def forward(self, x: Tensor) -> Tensor:
        """Turn numbers (N, K) into tokens (N, K, D)."""
        absent = x.isnan()  # (N, K)
        tokens: Tensor = self.embed(torch.where(absent, 0.0, x))  # (N, K, D)
        if self.missing is None:
            return tokens
        known = tokens[:, self.gappy]  # (N, G, D)
        whole = torch.where(absent[:, self.gappy, None], self.missing, known)
        return tokens.index_copy(1, self.gappy, whole)  # (N, K, D)


class CategoryTokens(nn.Module):
    """Tokens of categories: a row of one table each, and a bias for the column.

    Beside k known categories the code k is an unknown one, and k + 1 a missing one.
    Training learns the unknown token by hiding some categories behind it: any of them
    now and then, and rare ones often, since what is unknown is mostly rare. What no
    training row showed is unknown too, a missing value included.

    Parameters
    ----------
    codes : Tensor of shape (n_samples, n_columns)
        Codes of the training rows.
    sizes : sequence of int
        Known categories k of each column.
    width : int
        Width of a token.
    """

    n_known: Tensor
    first: Tensor
    seen_as: Tensor
    unknown_share: Tensor

    def __init__(self, codes: Tensor, sizes: Sequence[int], width: int) -> None:
        super().__init__()
        n_known = torch.tensor(sizes, device=codes.device)
        n_rows = n_known + 2
        first = n_rows.cumsum(0) - n_rows  # (K,)
        self.register_buffer("n_known", n_known)
        self.register_buffer("first", first)
        rows = self._rows(codes)  # (N, K)
        counts = torch.bincount(rows.flatten(), minlength=int(n_rows.sum()))
        itself = torch.arange(len(counts), device=codes.device)
        unknown = (first + n_known).repeat_interleave(n_rows)
        self.register_buffer("seen_as", torch.where(counts > 0, itself, unknown))
        share = (1 / (counts + 1)).clamp(min=UNKNOWN_SHARE)
        self.register_buffer("unknown_share", share * (itself < unknown))
        self.table = _uniform(len(counts), width, codes.device)
        self.bias = _uniform(len(sizes), width, codes.device)

    def forward(self, codes: Tensor) -> Tensor:
        """Turn codes (N, K) into tokens (N, K, D)."""
        rows = self.seen_as[self._rows(codes)]  # (N, K)
        if self.training:
            hidden = torch.rand_like(codes) < self.unknown_share[rows]
            rows = torch.where(hidden, self.first + self.n_known, rows)
        return F.embedding(rows, self.table) + self.bias  # (N, K, D)

    def _rows(self, codes: Tensor) -> Tensor:
        """Rows of the table; a code out of range is an unknown category."""
        missing = codes.isnan() | (codes == self.n_known + 1)
        known = (codes >= 0) & (codes < self.n_known)
        whole = torch.where(known, codes, self.n_known) + missing
        return whole.long() + self.first  # (N, K)


def _differs(x: Tensor) -> Tensor:
    """Tell for each column whether two of its present values differ."""
    absent = x.isnan()
    low = torch.where(absent, torch.inf, x).amin(dim=0)
    high = torch.where(absent, -torch.inf, x).amax(dim=0)
    return low < high  # (F,)


def _uniform(n_rows: int, width: int, device: torch.device) -> nn.Parameter:
    """Tokens to begin with, as large as those of numbers."""
    bound = width**-0.5
    return nn.Parameter(
        torch.empty(n_rows, width, device=device).uniform_(-bound, bound)
    )


def _make_embedding(
    x: Tensor, width: int, embedding: NumericalEmbedding, n_bins: int
) -> nn.Module:
    n_rows, n_columns = x.shape
    if embedding == "piecewise_linear":
        if n_rows < 3:
            raise ValueError(
                "embedding='piecewise_linear' needs at least 3 training rows to "
                f"place its bins; got {n_rows}. Try embedding='linear'."
            )
        with warnings.catch_warnings():
            # a column of two values has one bin, and that is as it should be
            warnings.filterwarnings("ignore", "The .* feature has just two bin")
            bins = [_place_bins(column, n_bins) for column in x.T]
            module: nn.Module = rtdl_num_embeddings.PiecewiseLinearEmbeddings(
                bins, width, activation=False, version="B"
            )
    elif embedding == "periodic":
        module = rtdl_num_embeddings.PeriodicEmbeddings(n_columns, width, lite=False)
    else:
        module = rtdl_num_embeddings.LinearEmbeddings(n_columns, width)
    return module


def _place_bins(column: Tensor, n_bins: int) -> Tensor:
    """Edges of bins between quantiles of the present values (n,), two of them or more.

    Missing values have no place among the quantiles.
    """
    present = column[~column.isnan()]
    if len(present) < 3:
        pair: Tensor = present.unique()
        return pair
    n_bins = max(2, min(n_bins, len(present) - 1))
    edges: list[Tensor] = rtdl_num_embeddings.compute_bins(
        present[:, None], n_bins=n_bins
    )
    return _refill(edges[0], present, n_bins + 1)


def _refill(edges: Tensor, present: Tensor, n_edges: int) -> Tensor:
    """Add the edges that were lost where several quantiles fell on one value.

    Each round gives them to quantiles of the rows whose value is no edge yet, until
    there are enough or every value is an edge. Without this a column that is mostly 0
    would have a bin or two for all the rest.
    """
    rest = present.sort().values
    while len(edges) < n_edges:
        rest = rest[~torch.isin(rest, edges)]
        if not len(rest):
            break
        n_lost = n_edges - len(edges)
        middles = 2 * torch.arange(n_lost, device=rest.device) + 1
        places = middles * len(rest) // (2 * n_lost)
        edges = torch.cat([edges, rest[places]]).unique()
    return edges
