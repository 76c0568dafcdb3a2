"""FTTransformer: the usual attention, over tokens that are those of its columns."""

import pickle
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from uqformer._random import seeded
from uqformer._seam import handled_by
from uqformer.attention import stochastic_attention
from uqformer.backbones import FTTransformer

EMBEDDINGS = ["piecewise_linear", "periodic", "linear"]
ROWS = torch.randn(40, 4, generator=torch.Generator().manual_seed(0))


def _model(x: Tensor = ROWS, n_outputs: int = 1, **params: Any) -> FTTransformer:
    with seeded(0):
        small: dict[str, Any] = {"d_token": 16, "n_heads": 2, "n_blocks": 2}
        model = FTTransformer(x.shape[1], n_outputs, **(small | params))
        return model.adapt(x).eval()


def _probs_of(call: Callable[[], Any]) -> list[Tensor]:
    """Attention probabilities that a pass asks the seam for, in order."""
    seen: list[Tensor] = []

    def handler(probs: Tensor, module: nn.Module) -> Tensor:
        seen.append(probs)
        return probs

    with handled_by(handler):
        call()
    return seen


def _unchanged(call: Callable[[], Tensor]) -> Tensor:
    """Run a call on the path that redraws, with the probabilities left as they are."""
    with handled_by(lambda probs, module: probs):
        return call()


# -- Tokens of columns --------------------------------------------------------------


@pytest.mark.parametrize("embedding", EMBEDDINGS)
def test_every_embedding_tells_columns_and_values_apart(embedding: Any) -> None:
    model = _model(n_outputs=3, embedding=embedding)
    output = model(ROWS)
    assert output.shape == (40, 3)
    assert torch.isfinite(output).all()
    output.sum().backward()
    assert all(p.grad is not None for p in model.tokens.parameters())
    for column in range(4):
        moved = ROWS.clone()
        moved[:, column] += 0.5
        assert (model(moved) - output).abs().max() > 1e-3
    swapped = ROWS[:, [1, 0, 2, 3]]
    assert (model(swapped) - output).abs().max() > 1e-3


@pytest.mark.parametrize("embedding", EMBEDDINGS)
def test_a_constant_column_gets_no_token(embedding: Any) -> None:
    x = ROWS.clone()
    x[:, 1] = 3.0
    model = _model(x, embedding=embedding)
    assert model.columns.tolist() == [0, 2, 3]
    assert [probs.shape[-1] for probs in _probs_of(lambda: model(x))] == [4, 4]
    changed = x.clone()
    changed[:, 1] = -7.0
    assert torch.equal(model(changed), model(x))


@pytest.mark.parametrize("embedding", EMBEDDINGS)
def test_only_constant_columns_are_an_error(embedding: Any) -> None:
    with pytest.raises(ValueError, match="all 2 are constant over 5 rows"):
        _model(torch.ones(5, 2), embedding=embedding)


@pytest.mark.parametrize("embedding", EMBEDDINGS)
def test_a_column_of_two_values_is_welcome(embedding: Any) -> None:
    x = ROWS.clone()
    x[:, 0] = (x[:, 0] > 0).float()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        output = _model(x, embedding=embedding)(x)
    assert torch.isfinite(output).all()


def test_few_rows_have_few_bins() -> None:
    assert torch.isfinite(_model(ROWS[:3])(ROWS)).all()
    with pytest.raises(ValueError, match=r"at least 3 training rows.*got 2"):
        _model(ROWS[:2])
    assert torch.isfinite(_model(ROWS[:2], embedding="linear")(ROWS)).all()


@pytest.mark.parametrize("n_bins", [4, 16])
def test_a_token_bends_at_the_inner_edges_of_its_bins(n_bins: int) -> None:
    x = torch.linspace(-1, 1, 201)[:, None]
    tokens = _model(x, n_bins=n_bins).tokens.double()
    with seeded(0), torch.no_grad():
        for parameter in tokens.parameters():  # fresh ones are straight lines
            parameter.normal_()
        grid = torch.linspace(-0.999, 0.999, 2001, dtype=torch.float64)[:, None]
        bends = tokens(grid)[:, 0].diff(n=2, dim=0).abs().amax(dim=1) > 1e-6
    # the two steps beside an edge may both see it, and count once
    starts = bends & ~torch.cat([torch.tensor([False]), bends[:-1]])
    assert int(starts.sum()) == n_bins - 1


def test_it_must_adapt_before_its_first_pass() -> None:
    with pytest.raises(RuntimeError, match=r"call adapt\(x\)"):
        FTTransformer(4, 1)(ROWS)


# -- Attention ----------------------------------------------------------------------


def test_both_paths_of_the_model_agree() -> None:
    model = _model()
    torch.testing.assert_close(
        _unchanged(lambda: model(ROWS)), model(ROWS), rtol=1e-5, atol=1e-6
    )


def test_many_draws_come_near_the_plain_pass() -> None:
    model = _model()
    plain = model(ROWS).detach()
    errors = []
    for n_draws in (10, 100_000):
        with stochastic_attention(model, n_draws=n_draws, seed=0):
            errors.append(float((model(ROWS) - plain).square().mean().sqrt()))
    assert 0 < errors[1] < 0.05 * errors[0]  # theory: a hundredth
    assert errors[1] < 2e-3


def test_only_cls_asks_in_the_last_block() -> None:
    model = _model(n_blocks=3)
    shapes = [tuple(probs.shape) for probs in _probs_of(lambda: model(ROWS))]
    assert shapes == [(40, 2, 5, 5), (40, 2, 5, 5), (40, 2, 1, 5)]


def test_rows_do_not_look_at_each_other() -> None:
    model = _model()
    torch.testing.assert_close(model(ROWS)[5:9], model(ROWS[5:9]), rtol=1e-5, atol=1e-6)


# -- Dropout, size, copies ----------------------------------------------------------


def test_dropout_only_in_training() -> None:
    model = _model(dropout=0.5)
    assert torch.equal(model(ROWS), model(ROWS))
    model.train()
    with seeded(0):
        assert not torch.equal(model(ROWS), model(ROWS))
    still = _model(dropout=0.0)
    assert torch.equal(still(ROWS), still.train()(ROWS))


def test_n_params_is_the_sum_of_its_parts() -> None:
    model = FTTransformer(4, 3, d_token=16, n_heads=2, n_blocks=2, d_feedforward=10)
    d, h = 16, 10
    attention = (d + 1) * d + (d + 1) * 2 * d + (d + 1) * d
    feedforward = (d + 1) * 2 * h + (h + 1) * d
    block = attention + feedforward + 2 * 2 * d
    assert model.n_params == d + 2 * block + 2 * d + (d + 1) * 3
    model.head.requires_grad_(False)
    assert model.n_params == d + 2 * block + 2 * d


def test_tokens_count_once_they_are_there() -> None:
    model = FTTransformer(4, 1, d_token=16, n_heads=2, embedding="linear")
    before = model.n_params
    assert model.adapt(ROWS).n_params == before + 2 * 4 * 16


@pytest.mark.parametrize(("asked", "hidden"), [(None, 21), (7, 7)])
def test_width_of_the_feedforward_layer(asked: int | None, hidden: int) -> None:
    block = FTTransformer(4, 1, d_token=16, n_heads=2, d_feedforward=asked).blocks[0]
    assert block.contract.in_features == hidden
    assert block.expand.out_features == 2 * hidden


@pytest.mark.parametrize("embedding", EMBEDDINGS)
def test_state_dict_goes_there_and_back(embedding: Any) -> None:
    model = _model(embedding=embedding)
    with seeded(1):
        other = FTTransformer(
            4, 1, d_token=16, n_heads=2, n_blocks=2, embedding=embedding
        )
        other.adapt(ROWS.flip(1)).eval()  # other bins, of the same number
    assert not torch.equal(other(ROWS), model(ROWS))
    other.load_state_dict(model.state_dict())
    assert torch.equal(other(ROWS), model(ROWS))


@pytest.mark.parametrize("embedding", EMBEDDINGS)
def test_a_pickled_model_predicts_the_same(embedding: Any) -> None:
    model = _model(embedding=embedding)
    copy = pickle.loads(pickle.dumps(model))
    assert torch.equal(copy(ROWS), model(ROWS))


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"d_token": 10, "n_heads": 4}, "multiple of n_heads; got d_token=10, n_heads"),
        ({"n_heads": 0}, "at least 1; got n_heads=0"),
        ({"n_blocks": 0}, "at least 1; got .*n_blocks=0"),
        ({"embedding": "sines"}, "got embedding='sines'"),
    ],
)
def test_what_cannot_be_built_is_said(params: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        FTTransformer(4, 1, **params)
