"""Tokens of columns: numbers with gaps, categories, and what training never showed."""

import pickle
from typing import Any

import numpy as np
import pytest
import rtdl_num_embeddings
import torch
from scipy.stats import binom
from torch import Tensor

from uqformer._random import seeded
from uqformer.attention import forward_members, stochastic_attention
from uqformer.backbones import FTTransformer
from uqformer.backbones._columns import (
    UNKNOWN_SHARE,
    CategoryTokens,
    ColumnTokens,
    NumberTokens,
    _place_bins,
)

EMBEDDINGS = ["piecewise_linear", "periodic", "linear"]
NAN = float("nan")
SIZES = [None, 3, None]


def _table(n_rows: int = 60) -> Tensor:
    """Return numbers, codes of three categories, and numbers with gaps."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(n_rows, 3, generator=generator)
    x[:, 1] = torch.randint(0, 3, (n_rows,), generator=generator).float()
    x[::4, 2] = NAN
    return x


def _model(x: Tensor, sizes: Any = SIZES, **params: Any) -> FTTransformer:
    with seeded(0):
        small: dict[str, Any] = {"d_token": 16, "n_heads": 2, "n_blocks": 2}
        model = FTTransformer(x.shape[1], 1, n_categories=sizes, **(small | params))
        return model.adapt(x).eval()


def _changed(x: Tensor, column: int, value: float) -> Tensor:
    other = x.clone()
    other[:, column] = value
    return other


def _categories(counts: list[int], width: int = 4) -> CategoryTokens:
    """Make tokens of one column whose codes occur as often as `counts` says."""
    codes = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
    with seeded(0):
        return CategoryTokens(codes.float()[:, None], [len(counts)], width)


# -- Which columns have a token -----------------------------------------------------


@pytest.mark.parametrize("embedding", EMBEDDINGS)
def test_numbers_come_first_then_marks_then_categories(embedding: Any) -> None:
    x = torch.cat([_table(), _table()], dim=1)
    x[:, 0] = torch.where(x[:, 0] > 0, 2.0, NAN)  # varies by its gaps alone
    x[:, 3] = 5.0
    x[:, 5] = NAN
    model = _model(x, SIZES * 2, embedding=embedding)
    assert model.columns.tolist() == [2, 0, 1, 4]
    assert model(x).shape == (60, 1)
    assert torch.isfinite(model(x)).all()


def test_a_constant_category_gets_no_token() -> None:
    x = _changed(_table(), 1, 2.0)
    assert _model(x).columns.tolist() == [0, 2]
    assert _model(_changed(x, 1, NAN)).columns.tolist() == [0, 2]


def test_a_category_that_varies_by_its_gaps_has_a_token() -> None:
    x = _table()
    x[:, 1] = torch.where(x[:, 2].isnan(), NAN, 2.0)
    model = _model(x)
    assert model.columns.tolist() == [0, 2, 1]
    assert not torch.equal(model(_changed(x, 1, NAN)), model(_changed(x, 1, 2.0)))


def test_a_table_of_categories_alone() -> None:
    x = _table()[:, [1, 1]]
    model = _model(x, [3, 3])
    assert model.columns.tolist() == [0, 1]
    assert model(x).std() > 0.01


def test_a_table_where_nothing_varies_is_an_error() -> None:
    with pytest.raises(ValueError, match="all 2 are constant over 5 rows"):
        _model(torch.tensor([[1.0, NAN]]).repeat(5, 1), [2, None])


@pytest.mark.parametrize("sizes", [[None, 3], [3, None, -1], [None] * 4])
def test_each_column_needs_its_count(sizes: Any) -> None:
    with pytest.raises(ValueError, match=r"one count .* n_features=3 columns; got"):
        FTTransformer(3, 1, n_categories=sizes)


# -- Numbers and their gaps ---------------------------------------------------------


def test_numbers_are_no_codes() -> None:
    x = torch.tensor([[0.0, 0.5], [1.0, 1.0], [float("nan"), -2.25], [1.0, 3.0]])
    with pytest.raises(ValueError, match="got 0 for column 1, which holds fractions"):
        FTTransformer(2, 1, n_categories=[2, 0], d_token=8, n_heads=2).adapt(x)
    FTTransformer(2, 1, n_categories=[2, None], d_token=8, n_heads=2).adapt(x)


def test_bins_stand_between_quantiles_of_what_is_there() -> None:
    column = _table(400)[:, 2]
    present = column[~column.isnan()]
    edges = _place_bins(column, 8)
    quantiles = np.quantile(present.numpy(), np.linspace(0, 1, 9))
    np.testing.assert_allclose(edges.numpy(), quantiles, rtol=1e-5)


def test_without_gaps_the_bins_are_those_of_the_whole_table() -> None:
    x = torch.randn(200, 4, generator=torch.Generator().manual_seed(1))
    whole = rtdl_num_embeddings.compute_bins(x, n_bins=48)
    for column, edges in zip(x.T, whole, strict=True):
        assert torch.equal(_place_bins(column, 48), edges)


def _mostly_zero(n_rows: int = 4000, share: float = 0.1) -> Tensor:
    """Return a column of zeros, but for a share of rows that are all different."""
    generator = torch.Generator().manual_seed(2)
    values = torch.rand(n_rows, generator=generator) + 0.5
    return torch.where(torch.arange(n_rows) < n_rows * share, values, 0.0)


def test_a_column_of_many_ties_keeps_its_number_of_bins() -> None:
    column = _mostly_zero()
    plain = rtdl_num_embeddings.compute_bins(column[:, None], n_bins=48)[0]
    assert len(plain) < 8
    edges = _place_bins(column, 48)
    assert len(edges) == 49
    assert torch.isin(plain, edges).all()
    assert (edges.diff() > 0).all()
    assert edges[0] == 0
    assert edges[-1] == column.max()


def test_bins_share_the_rows_that_are_not_tied() -> None:
    column = _mostly_zero()
    edges = _place_bins(column, 48)
    counts = torch.histogram(column[column > 0], edges[edges > 0]).hist
    # four of them are quantiles of all rows, in whatever places the others left
    assert counts.max() <= 1.5 * (column > 0).sum() / 44


def test_bins_favour_neither_end() -> None:
    column = _mostly_zero()
    edges, mirrored = _place_bins(column, 48), -_place_bins(-column, 48).flip(0)
    present = column.sort().values
    places = [torch.searchsorted(present, some) for some in (edges, mirrored)]
    # half a bin holds four of the rows that are not tied
    assert (places[0] - places[1]).abs().max() <= 2


def test_frequent_values_get_edges_of_their_own() -> None:
    column = _mostly_zero()
    spikes = torch.tensor([0.6, 0.9, 1.3])
    column[:120] = spikes.repeat(40)
    assert torch.isin(spikes, _place_bins(column, 12)).all()


@pytest.mark.filterwarnings("ignore:The .* feature has just two bin edges")
def test_every_value_is_an_edge_where_there_are_few() -> None:
    values = torch.tensor([0.0, 1.0, 2.0, 5.0, 7.0])
    column = torch.repeat_interleave(values, torch.tensor([990, 4, 3, 2, 1]))
    assert torch.equal(_place_bins(column, 48), values)
    assert torch.equal(_place_bins(column, 4), values)


def test_neither_gaps_nor_the_order_of_rows_move_the_bins() -> None:
    column = _mostly_zero()
    edges = _place_bins(column, 48)
    gappy = torch.full((2 * len(column),), NAN)
    gappy[::2] = column.flip(0)
    assert torch.equal(_place_bins(gappy, 48), edges)


def test_ties_that_cost_no_quantile_change_no_bin() -> None:
    x = torch.randn(2000, 3, generator=torch.Generator().manual_seed(1))
    x = (x * 200).round() / 200
    assert all(len(column.unique()) < 1000 for column in x.T)
    whole = rtdl_num_embeddings.compute_bins(x, n_bins=48)
    for column, edges in zip(x.T, whole, strict=True):
        assert len(edges) == 49
        assert torch.equal(_place_bins(column, 48), edges)


@pytest.mark.parametrize("embedding", EMBEDDINGS)
def test_two_values_among_gaps_are_enough(embedding: Any) -> None:
    x = _table()
    x[2:, 2] = NAN
    x[:2, 2] = torch.tensor([1.0, 2.0])
    assert torch.isfinite(_model(x, embedding=embedding)(x)).all()


def test_a_gap_has_a_learned_token() -> None:
    x = _table()
    with seeded(0):
        tokens = NumberTokens(x[:, [0, 2]], 8, "linear", 48)
    output = tokens(x[:, [0, 2]])
    gaps = x[:, 2].isnan()
    assert torch.equal(output[gaps, 1], tokens.missing.expand(int(gaps.sum()), -1))
    plain = tokens.embed(x[:, [0, 2]].nan_to_num(9.0))
    assert torch.equal(output[~gaps], plain[~gaps])
    assert torch.equal(output[gaps, 0], plain[gaps, 0])
    output.sum().backward()
    assert torch.equal(tokens.missing.grad, torch.full((1, 8), float(gaps.sum())))
    assert all(p.grad.isfinite().all() for p in tokens.parameters())


def test_a_gap_that_training_never_showed_is_the_mean() -> None:
    x = _table()
    model = _model(x)
    assert torch.equal(model(_changed(x, 0, NAN)), model(_changed(x, 0, 0.0)))
    assert not torch.equal(model(_changed(x, 2, NAN)), model(_changed(x, 2, 0.0)))


def test_a_column_of_gaps_and_one_value_tells_them_apart() -> None:
    x = _table()[:, [0, 2]]
    x[:, 1] = torch.where(x[:, 1].isnan(), NAN, 1.0)
    model = _model(x, None)
    gap, one, other = (model(_changed(x, 1, value)) for value in (NAN, 1.0, -3.0))
    assert not torch.equal(gap, one)
    assert torch.equal(one, other)


# -- Categories ---------------------------------------------------------------------


def test_a_token_is_a_row_of_the_table_and_the_bias() -> None:
    codes = torch.tensor([[0, 1], [1, 0], [2, 3], [0, 0]]).float()  # 3: missing of 2
    with seeded(0):
        tokens = CategoryTokens(codes, [3, 2], 4).eval()
    output = tokens(codes)
    assert tokens.table.shape == (3 + 2 + 2 + 2, 4)
    for row, (first, second) in enumerate(codes.long().tolist()):
        expected = tokens.table[[first, 5 + second]] + tokens.bias
        assert torch.equal(output[row], expected)


@pytest.mark.parametrize("code", [-1.0, 3.0, 7.0, 1e9])
def test_a_code_out_of_range_is_unknown(code: float) -> None:
    codes = torch.tensor([[0.0, 2.0], [1.0, 1.0], [2.0, 0.0], [4.0, 4.0]])
    with seeded(0):
        tokens = CategoryTokens(codes, [3, 3], 4).eval()
    output = tokens(torch.tensor([[code, code]]))[0]
    assert torch.equal(output, tokens.table[[3, 8]] + tokens.bias)


def test_what_training_never_showed_is_unknown() -> None:
    tokens = _categories([5, 0, 5]).eval()
    unknown, never, missing, nan = (
        tokens(torch.tensor([[code]])) for code in (3.0, 1.0, 4.0, NAN)
    )
    assert torch.equal(never, unknown)
    assert torch.equal(missing, unknown)
    assert torch.equal(nan, unknown)


def test_a_missing_category_that_training_showed_has_its_own_token() -> None:
    codes = torch.tensor([[0.0], [1.0], [3.0]])
    with seeded(0):
        tokens = CategoryTokens(codes, [2], 4).eval()
    missing = tokens(torch.tensor([[3.0], [NAN]]))
    assert torch.equal(missing[0], missing[1])
    assert torch.equal(missing[0, 0], tokens.table[3] + tokens.bias[0])


def test_training_hides_rare_categories_more_often() -> None:
    tokens = _categories([1, 3, 9999])
    shares = tokens.unknown_share.tolist()
    np.testing.assert_allclose(shares, [0.5, 0.25, UNKNOWN_SHARE, 0, 0], rtol=1e-6)
    n_trials = 20_000
    with seeded(0):
        for code, share in enumerate(shares[:3]):
            output = tokens.train()(torch.full((n_trials, 1), float(code)))
            hidden = (output[:, 0] == tokens.table[3] + tokens.bias[0]).all(dim=1)
            low, high = binom.ppf([1e-4, 1 - 1e-4], n_trials, share)
            assert low <= int(hidden.sum()) <= high
    shown = tokens.eval()(torch.full((n_trials, 1), 0.0))
    assert torch.equal(shown, shown[:1].expand_as(shown))


def test_training_learns_what_unknown_means() -> None:
    """The unknown token ends where the loss is least over the hidden rows: the mean."""
    values = torch.tensor([0.0, 1.0, 5.0])
    codes = torch.arange(3).repeat(100)[:, None].float()
    with seeded(0):
        model = _model(codes, [3], d_token=8, n_blocks=1, dropout=0.0).train()
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        for _ in range(300):
            optimizer.zero_grad()
            error = model(codes)[:, 0] - values.repeat(100)
            error.square().mean().backward()
            optimizer.step()
    with torch.no_grad():
        known = model.eval()(torch.arange(3.0)[:, None])[:, 0]
        unknown = model(torch.tensor([[3.0]]))
    torch.testing.assert_close(known, values, atol=0.1, rtol=0)
    assert float(unknown) == pytest.approx(2.0, abs=0.5)


# -- As part of the model -----------------------------------------------------------


def test_the_global_generator_alone_decides_in_training() -> None:
    x = _table()
    model = _model(x, dropout=0.0).train()
    with seeded(3):
        first = model(x)
    with seeded(3):
        assert torch.equal(model(x), first)
    assert torch.equal(model.eval()(x), model(x))


def test_all_parts_count_among_the_parameters() -> None:
    x, d = _table(), 16
    bare = FTTransformer(3, 1, n_categories=SIZES, d_token=d, n_heads=2, n_blocks=2)
    tokens = _model(x, embedding="linear").n_params - bare.n_params
    linear, missing, table, bias = 2 * 2 * d, d, (3 + 2) * d, d
    assert tokens == linear + missing + table + bias


def test_state_dict_and_pickle_keep_all() -> None:
    x = _table()
    model, other = _model(x), _model(x.flip(0))
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.add_(0.1)
    assert not torch.equal(other(x), model(x))
    other.load_state_dict(model.state_dict())
    assert torch.equal(other(x), model(x))
    assert torch.equal(pickle.loads(pickle.dumps(model))(x), model(x))


def test_tokens_are_made_once_for_all_members() -> None:
    x = _table()
    model = _model(x)
    calls: list[int] = []
    hook = model.tokens.register_forward_hook(lambda *_: calls.append(1))
    members = [
        output for *_, output in forward_members(model, [x], n_draws=4, seeds=range(5))
    ]
    hook.remove()
    assert len(members) == 5
    assert len(calls) == 1


def test_many_draws_come_near_the_plain_pass() -> None:
    x = _table()
    model = _model(x)
    with stochastic_attention(model, n_draws=100_000, seed=0):
        redrawn = model(x)
    torch.testing.assert_close(redrawn, model(x), atol=0.01, rtol=0)


def test_codes_are_never_read_as_numbers() -> None:
    """Naming the categories anew changes nothing once the table is named along."""
    x = _table()
    with seeded(0):
        tokens = ColumnTokens(x, SIZES, 8, "piecewise_linear", 48).eval()
    swapped = x.clone()
    swapped[:, 1] = (x[:, 1] + 1) % 3
    before = tokens(x)
    with torch.no_grad():
        table = tokens.categories.table
        table[:3] = table[[2, 0, 1]]
    assert torch.equal(tokens(swapped), before)
