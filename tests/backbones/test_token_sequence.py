"""TokenTransformer: ids and their places; padding is never looked at."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from uqformer._random import seeded
from uqformer._seam import handled_by
from uqformer.attention import stochastic_attention
from uqformer.backbones import TokenTransformer

IDS = torch.tensor(
    [
        [3, 1, 4, 1, 5],
        [2, 6, 5, 0, 0],
        [3, 0, 0, 0, 0],
        [0, 0, 0, 0, 0],
        [0, 0, 5, 8, 9],
        [7, 0, 0, 9, 0],
    ]
)


def _model(x: Tensor = IDS, n_outputs: int = 2, **params: Any) -> TokenTransformer:
    small: dict[str, Any] = {"d_token": 16, "n_heads": 2, "n_blocks": 2, "pad_id": 0}
    with seeded(0):
        model = TokenTransformer(x.shape[1], n_outputs, **(small | params))
        return model.adapt(x).eval()


def _redrawn(model: TokenTransformer, x: Tensor) -> Tensor:
    with stochastic_attention(model, n_draws=3, seed=0):
        return model(x)


# -- Padding ------------------------------------------------------------------------


def test_padding_is_never_looked_at() -> None:
    model = _model()
    seen: list[Tensor] = []
    with handled_by(lambda probs, module: seen.append(probs) or probs):
        model(IDS)
    padded = F.pad(IDS == 0, (1, 0))  # CLS stands in front
    for probs in seen:
        by_key = probs.movedim(3, 1)[padded]
        assert (by_key == 0).all()
        torch.testing.assert_close(probs.sum(-1), torch.ones(probs.shape[:3]))


@pytest.mark.parametrize("pad_id", [0, -100, 77])
@pytest.mark.parametrize("run", [lambda m, x: m(x), _redrawn], ids=["exact", "redrawn"])
def test_what_stands_in_padding_changes_nothing(pad_id: int, run: Any) -> None:
    x = IDS.where(IDS != 0, pad_id)
    model = _model(x, pad_id=pad_id)
    before = run(model, x)
    used = IDS[IDS != 0].unique()
    unused = torch.ones(model.embed.num_embeddings, dtype=torch.bool)
    unused[used] = False
    assert unused[0]
    with torch.no_grad():
        model.embed.weight[unused] = 1e3
    assert torch.equal(run(model, x), before)


def test_trimming_padding_on_the_right_changes_no_member() -> None:
    model = _model()
    rows, short = IDS[1:3], IDS[1:3, :3]
    torch.testing.assert_close(model(short), model(rows), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(
        _redrawn(model, short), _redrawn(model, rows), rtol=1e-5, atol=1e-5
    )


def test_padding_on_either_side_gives_the_same() -> None:
    model = _model()
    left = torch.stack([row.roll(int((row == 0).sum())) for row in IDS[1:3]])
    assert left[0].tolist() == [0, 0, 2, 6, 5]
    torch.testing.assert_close(model(left), model(IDS[1:3]), rtol=1e-5, atol=1e-5)


def test_a_row_of_padding_is_read_from_cls_alone() -> None:
    model = _model()
    output = model(IDS)
    assert torch.isfinite(output).all()
    assert torch.isfinite(_redrawn(model, IDS)).all()
    torch.testing.assert_close(_redrawn(model, IDS)[3], output[3])
    torch.testing.assert_close(output[3:4], model(torch.zeros(1, 2)))


def test_without_a_pad_id_every_id_is_a_token() -> None:
    model = _model(pad_id=None)
    assert (model(IDS[2:3, :1]) - model(IDS[2:3])).abs().max() > 1e-3


# -- Ids and places -----------------------------------------------------------------


def test_ids_and_their_order_count() -> None:
    model = _model()
    plain = model(IDS[:1])
    for place in range(5):
        other = IDS[:1].clone()
        other[0, place] = 9
        assert (model(other) - plain).abs().max() > 1e-3
    assert (model(IDS[:1].flip(1)) - plain).abs().max() > 1e-3


@pytest.mark.parametrize("dtype", [torch.int32, torch.uint8, torch.float32])
def test_ids_of_any_dtype_are_taken(dtype: torch.dtype) -> None:
    model = _model(IDS.to(dtype))
    assert torch.equal(model(IDS.to(dtype)), model(IDS))


@pytest.mark.parametrize(("told", "n_tokens"), [(None, 10), (40, 40)])
def test_the_vocabulary_is_told_or_found(told: int | None, n_tokens: int) -> None:
    model = _model(n_tokens=told)
    assert model.embed.weight.shape == (n_tokens, 16)
    untrained = TokenTransformer(5, 2, d_token=16, n_heads=2, n_blocks=2)
    assert model.n_params == untrained.n_params + n_tokens * 16


def test_estimators_are_told_not_to_scale_ids() -> None:
    assert TokenTransformer.takes_tokens


# -- What is refused ----------------------------------------------------------------


@pytest.mark.parametrize("x", [IDS[..., None], IDS + 0.5, IDS[0]])
def test_what_is_no_table_of_ids_is_refused(x: Tensor) -> None:
    expected = r"takes whole token ids.*largest value 9?.*without scaling"
    with pytest.raises(ValueError, match=expected):
        TokenTransformer(5, 2).adapt(x)


def test_equal_rows_are_refused() -> None:
    with pytest.raises(ValueError, match="all 4 rows are equal"):
        _model(torch.ones(4, 5))


@pytest.mark.parametrize(
    ("x", "message"),
    [
        ([[1, 10]], "from 0 to 9; got 2 ids from 1 to 10"),
        ([[-1, 3]], "got 2 ids from -1 to 3"),
        ([[1] * 6], "at most 5 ids from 0 to 9; got 6 ids"),
    ],
)
def test_unknown_ids_and_long_rows_are_refused(x: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        _model()(torch.tensor(x))


def test_training_rows_must_fit_the_vocabulary() -> None:
    with pytest.raises(ValueError, match="from 0 to 4; got 5 ids from 0 to 9"):
        _model(n_tokens=5)
    with pytest.raises(ValueError, match="got n_tokens=0"):
        TokenTransformer(5, 2, n_tokens=0)


# -- Training -----------------------------------------------------------------------


def _marked(n_rows: int) -> tuple[Tensor, Tensor]:
    """Rows of noise that hold 1 and 2 once each; which of them comes first?"""
    is_real = torch.arange(12) < torch.randint(6, 13, (n_rows, 1))
    ids = torch.randint(3, 8, (n_rows, 12)).where(is_real, 0)
    places = torch.rand(n_rows, 12).where(is_real, 2.0).argsort(dim=1)[:, :2]
    ids.scatter_(1, places, torch.tensor([1, 2]).expand(n_rows, 2))
    return ids, (places[:, 0] < places[:, 1]).long()


def test_order_of_two_markers_is_learned_without_tuning() -> None:
    with seeded(0):
        (x, y), (x_new, y_new) = _marked(2000), _marked(1000)
        model = TokenTransformer(12, 2, pad_id=0, d_token=32, n_blocks=2).adapt(x)
        optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, fused=True)
        for step in range(300):
            optimizer.param_groups[0]["lr"] = 2e-3 * min(1, (step + 1) / 50)
            rows = torch.randint(len(x), (64,))
            optimizer.zero_grad()
            F.cross_entropy(model(x[rows]), y[rows]).backward()
            optimizer.step()
    model.eval()
    with torch.no_grad():
        accuracy = (model(x_new).argmax(dim=1) == y_new).double().mean()
    assert accuracy > 0.95
