"""The draw itself: exact counts, the right moments, and nothing for masked keys."""

import itertools
import math

import numpy as np
import pytest
import torch
from scipy import stats

from uqformer.attention import _draws, multinomial_weights
from uqformer.attention._draws import (
    check_n_draws,
    check_seed,
    draw_weights,
    sorted_uniforms,
    split_heads,
    without_backsteps,
)


@pytest.fixture(autouse=True, params=["compiled", "bisection"])
def path(request, monkeypatch):
    """Both ways of finding the counts keep the same promises."""
    if request.param == "bisection":
        monkeypatch.setattr(_draws, "has_kernel", lambda: False)
    elif not _draws.has_kernel():
        pytest.skip("numba is not installed (uqformer[fast])")


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def some_probs(*shape, seed=0, dtype=torch.float32, scale=2.0):
    logits = torch.randn(*shape, generator=generator(seed), dtype=torch.float64)
    return torch.softmax(scale * logits, dim=-1).to(dtype)


def test_counts_equal_a_draw_by_hand():
    """Each uniform picks the key whose share of [0, 1) it falls in."""
    probs = some_probs(3, 2, 4, 6, dtype=torch.float64)
    uniforms = sorted_uniforms(4, 2, 9, generator())
    weights = draw_weights(probs, uniforms[None])
    for n, h, t in itertools.product(range(3), range(2), range(4)):
        cdf = np.cumsum(probs[n, h, t].numpy())
        picked = [int(np.sum(cdf <= u)) for u in uniforms[t, h].double().numpy()]
        expected = np.bincount(picked, minlength=6) / 9
        np.testing.assert_allclose(weights[n, h, t], expected, atol=1e-15)


def test_groups_are_drawn_from_their_own_uniforms():
    probs = some_probs(6, 2, 4, 5)
    uniforms = torch.stack([sorted_uniforms(4, 2, 7, generator(s)) for s in (1, 2)])
    together = draw_weights(probs, uniforms)
    for group, rows in enumerate((slice(0, 3), slice(3, 6))):
        alone = draw_weights(probs[rows], uniforms[group : group + 1])
        assert torch.equal(together[rows], alone)


def test_counts_follow_the_multinomial_law():
    """All 15 outcomes of four draws of three keys have their probabilities."""
    n_rows, n_draws, p = 20_000, 4, [0.5, 0.3, 0.2]
    probs = torch.tensor(p, dtype=torch.float64).expand(n_rows, 1, 1, 3)
    weights = multinomial_weights(probs, n_draws, generator(1), rows="independent")
    counts = (weights[:, 0, 0] * n_draws).round().int().tolist()
    outcomes = [c for c in itertools.product(range(5), repeat=3) if sum(c) == n_draws]
    observed = [counts.count(list(outcome)) for outcome in outcomes]
    expected = stats.multinomial(n_draws, p).pmf(outcomes) * n_rows
    assert sum(observed) == n_rows
    assert stats.chisquare(observed, expected).pvalue > 1e-3


@pytest.mark.parametrize("n_draws", [1, 5, 64])
def test_mean_and_covariance(n_draws):
    """E[w] = p and Cov[w] = (diag(p) - p p') / n_draws, over heads and queries."""
    n_rows = 20_000
    # no rare keys: the products of their weights are far from normal
    p = some_probs(1, 2, 2, 4, dtype=torch.float64, scale=0.5)
    weights = multinomial_weights(
        p.expand(n_rows, -1, -1, -1), n_draws, generator(2), rows="independent"
    ).flatten(1)  # (N, H * T * S)
    flat = p.flatten()
    blocks = [torch.diag(row) - torch.outer(row, row) for row in flat.split(4)]
    # zero outside the blocks: heads and queries are independent
    covariance = torch.block_diag(*blocks) / n_draws
    centred = weights - flat
    mean_z = centred.mean(0) / (covariance.diag() / n_rows).sqrt()
    products = centred[:, :, None] * centred[:, None, :]  # (N, HTS, HTS)
    cov_z = (products.mean(0) - covariance) / (products.std(0) / math.sqrt(n_rows))
    limit = stats.norm.isf(1e-3 / (flat.numel() + flat.numel() ** 2) / 2)
    assert mean_z.abs().max() < limit
    assert cov_z.abs().max() < limit


def test_shared_rows_have_the_same_law():
    """Rows that share uniforms are, over generators, as multinomial as any."""
    n_repeats, n_draws = 3_000, 3
    probs = some_probs(2, 1, 1, 4, dtype=torch.float64, scale=0.5)
    draws = [
        multinomial_weights(probs, n_draws, generator(s)) for s in range(n_repeats)
    ]
    weights = torch.stack(draws)[:, :, 0, 0]  # (repeats, N, S)
    p = probs[:, 0, 0]
    z = (weights.mean(0) - p) / (p * (1 - p) / n_draws / n_repeats).sqrt()
    assert z.abs().max() < stats.norm.isf(1e-3 / 8 / 2)
    squares = (weights - p) ** 2
    spread = squares.std(0) / math.sqrt(n_repeats)
    z = (squares.mean(0) - p * (1 - p) / n_draws) / spread
    assert z.abs().max() < stats.norm.isf(1e-3 / 8 / 2)


def test_shared_rows_do_not_depend_on_their_neighbours():
    probs = some_probs(5, 2, 3, 4)
    whole = multinomial_weights(probs, 6, generator())
    for rows in (slice(0, 1), slice(2, 5)):
        part = multinomial_weights(probs[rows], 6, generator())
        assert torch.equal(part, whole[rows])
    twins = multinomial_weights(probs[:1].expand(3, -1, -1, -1), 6, generator())
    assert torch.equal(twins[0], twins[2])


def test_independent_rows_differ():
    twins = some_probs(1, 2, 3, 6).expand(2, -1, -1, -1)
    weights = multinomial_weights(twins, 6, generator(), rows="independent")
    assert not torch.equal(weights[0], weights[1])


@pytest.mark.parametrize("n_queries", [1, 2, 5, 13])
def test_uniforms_of_the_first_queries_stay(n_queries):
    """A query has its own uniforms however many queries follow it."""
    many = sorted_uniforms(40, 3, 7, generator())
    few = sorted_uniforms(n_queries, 3, 7, generator())
    assert torch.equal(few, many[:n_queries])
    assert (few.diff(dim=-1) >= 0).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_masked_keys_never_win(dtype):
    probs = some_probs(50, 2, 3, 8, dtype=dtype)
    masked = torch.rand(probs.shape, generator=generator(4)) < 0.6
    masked[..., -1] = False
    probs = probs.masked_fill(masked, 0)  # rows no longer sum to one: no draw is lost
    weights = multinomial_weights(probs, 40, generator())
    assert weights.dtype == dtype
    assert (weights[masked] == 0).all()
    torch.testing.assert_close(
        weights.double().sum(-1), torch.ones(50, 2, 3).double(), atol=0.02, rtol=0
    )
    counts = (weights.double() * 40).round().sum(-1)
    assert (counts == 40).all()


def test_uniforms_on_the_edge_of_a_share():
    """Shares are closed below and open above, so a first masked key never wins."""
    probs = torch.tensor([0.0, 0.5, 0.0, 0.5, 0.0]).reshape(1, 1, 1, 5)
    uniforms = torch.tensor([0.0, 0.5, 0.5, 1 - 2**-24]).reshape(1, 1, 1, 4)
    weights = draw_weights(probs, uniforms).flatten().tolist()
    assert weights == [0.0, 0.25, 0.0, 0.75, 0.0]


def test_rounding_loses_no_draw():
    """Even thousands of small shares, whose float32 sum is not one, keep every draw."""
    probs = torch.full((1, 1, 1, 30_000), 1 / 30_011)
    uniforms = torch.tensor([1 - 2**-24] * 3).reshape(1, 1, 1, 3)
    assert draw_weights(probs, uniforms)[..., -1].item() == 1.0


def test_backsteps_are_removed():
    probs = torch.tensor([0.0, 0.3, 0.0, 0.0, 0.7, 0.0])
    wobbly = torch.tensor([1e-8, 0.3, 0.3 + 3e-8, 0.3 - 3e-8, 1.0, 1.0 + 1e-7])
    settled = without_backsteps(wobbly, probs)
    assert settled.tolist() == torch.tensor([0, 0.3, 0.3, 0.3, 1, 1]).tolist()


def test_rows_of_zeros_and_nan():
    probs = some_probs(1, 1, 3, 4).clone()
    expected = multinomial_weights(probs, 5, generator())[0, 0, 2]
    probs[0, 0, 0] = 0
    probs[0, 0, 1] = torch.nan
    weights = multinomial_weights(probs, 5, generator())[0, 0]
    assert (weights[0] == 0).all()
    assert weights[1].isnan().all()
    assert torch.equal(weights[2], expected)


def test_one_hot_rows_have_nothing_to_draw():
    probs = torch.eye(4).expand(2, 3, 4, 4)
    assert torch.equal(multinomial_weights(probs, 3, generator()), probs)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_drawn_in_single(dtype):
    probs = some_probs(3, 2, 4, 5, dtype=dtype)
    weights = multinomial_weights(probs, 16, generator())
    in_single = multinomial_weights(probs.float(), 16, generator())
    assert torch.equal(weights, in_single.to(dtype))


def test_many_draws_give_the_probabilities_back():
    probs = some_probs(2, 2, 3, 5)
    weights = multinomial_weights(probs, 200_000, generator())
    torch.testing.assert_close(weights, probs, atol=6 * 0.5 / 200_000**0.5, rtol=0)


def test_empty_batch():
    assert multinomial_weights(torch.ones(0, 2, 3, 4), 5, generator()).shape[0] == 0


def test_global_settings_neither_matter_nor_change():
    probs = some_probs(2, 2, 3, 4)
    before = torch.random.get_rng_state()
    expected = multinomial_weights(probs, 5, generator())
    torch.set_default_dtype(torch.float64)
    try:
        with torch.device("meta"):
            weights = multinomial_weights(probs, 5, generator())
    finally:
        torch.set_default_dtype(torch.float32)
    assert torch.equal(weights, expected)
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.parametrize(
    ("shape", "n_heads", "expected"),
    [
        ((3, 2, 4, 5), None, (3, 2, 4, 5)),
        ((7, 3, 2, 4, 5), 9, (21, 2, 4, 5)),
        ((6, 4, 5), 2, (3, 2, 4, 5)),
        ((5, 4, 5), 2, (5, 1, 4, 5)),
        ((6, 4, 5), None, (6, 1, 4, 5)),
        ((4, 5), 2, (1, 1, 4, 5)),
        ((0, 4, 5), 2, (0, 2, 4, 5)),
    ],
)
def test_split_heads(shape, n_heads, expected):
    assert split_heads(torch.zeros(shape), n_heads).shape == expected


@pytest.mark.parametrize(
    ("shape", "n_heads", "n_rows", "expected"),
    [
        ((6, 2, 4, 5), None, 3, (3, 4, 4, 5)),  # two windows
        ((6, 2, 4, 5), None, 6, (6, 2, 4, 5)),
        ((6, 2, 4, 5), None, 4, (6, 2, 4, 5)),  # not by samples at all
        ((2, 2, 4, 5), None, 4, (2, 2, 4, 5)),
        ((3, 2, 2, 4, 5), None, 3, (3, 4, 4, 5)),
        ((6, 4, 5), None, 3, (3, 2, 4, 5)),  # two heads that nobody spoke of
        ((12, 4, 5), 2, 3, (3, 4, 4, 5)),
        ((0, 2, 4, 5), None, 0, (0, 2, 4, 5)),
    ],
)
def test_what_is_folded_into_the_samples_counts_as_heads(
    shape, n_heads, n_rows, expected
):
    probs = torch.arange(math.prod(shape), dtype=torch.float32).view(shape)
    by_head = split_heads(probs, n_heads, n_rows)
    assert by_head.shape == expected
    # the order of memory stays, so that the samples are the outer ones
    assert torch.equal(by_head.flatten(), probs.flatten())


@pytest.mark.parametrize("n_draws", [True, 2.0, "4"])
def test_number_of_draws_is_whole(n_draws):
    with pytest.raises(TypeError, match="n_draws must be a whole number"):
        check_n_draws(n_draws)


def test_number_of_draws_is_positive():
    assert check_n_draws(np.int64(3)) == 3
    with pytest.raises(ValueError, match="at least 1; got n_draws=0"):
        multinomial_weights(some_probs(1, 1, 1, 2), 0, generator())


def test_seed_is_checked():
    check_seed(np.uint64(3))
    with pytest.raises(TypeError, match=r"got seed=0\.5"):
        check_seed(0.5)
    with pytest.raises(ValueError, match="got seed=-1"):
        check_seed(-1)


def test_wrong_arguments():
    with pytest.raises(ValueError, match=r"\(N, H, T, S\); got probs\.shape=\(2, 3\)"):
        multinomial_weights(some_probs(2, 3), 4, generator())
    with pytest.raises(ValueError, match=r"floating.*torch\.int64"):
        multinomial_weights(torch.ones(1, 1, 1, 2).long(), 4, generator())
    with pytest.raises(ValueError, match="got rows='paired'"):
        multinomial_weights(some_probs(1, 1, 1, 2), 4, generator(), rows="paired")
