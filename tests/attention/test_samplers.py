"""Samplers: one mean, one covariance, and noise that does not depend on company."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

from uqformer.attention import _samplers as samplers
from uqformer.attention import (
    dirichlet_weights,
    forward_members,
    gaussian_weights,
    stochastic_attention,
)
from uqformer.attention._samplers import MemberDraws, make_sampler

P = torch.tensor([0.55, 0.3, 0.1, 0.05, 0.0], dtype=torch.float64)
N_REPEATS = 20_000


def independent(name: str, n_draws: float, p: torch.Tensor = P) -> np.ndarray:
    """Draw one row many times over; each query has noise of its own."""
    probs = p.expand(1, 1, N_REPEATS, len(p))
    sampler = make_sampler(name, n_draws)
    noise = sampler.noise([7], N_REPEATS, 1, len(p))
    return sampler.weights(probs, noise[None])[0, 0].numpy()  # (repeats, S)


@pytest.mark.parametrize("n_draws", [2.5, 16.0])
@pytest.mark.parametrize("name", ["dirichlet", "gaussian"])
def test_mean_and_covariance_are_the_multinomials(name: str, n_draws: float) -> None:
    """Within five standard errors, the errors of variances taken from the sample."""
    w = independent(name, n_draws)
    np.testing.assert_allclose(w.sum(axis=1), 1, atol=1e-6)
    assert (w[:, 4] == 0).all()
    p = P.numpy()
    expected = (np.diag(p) - np.outer(p, p)) / n_draws
    error = w.mean(axis=0) - p
    bound = 5 * np.sqrt(np.diag(expected) / N_REPEATS)
    assert (np.abs(error) <= bound).all()
    products = (w - p)[:, :, None] * (w - p)[:, None, :]
    bounds = 5 * products.std(axis=0) / math.sqrt(N_REPEATS)
    assert (np.abs(products.mean(axis=0) - expected) <= bounds + 1e-12).all()


@pytest.mark.parametrize("n_draws", [1.5, 9.0])
def test_dirichlet_shares_are_beta_distributed(n_draws: float) -> None:
    w = independent("dirichlet", n_draws)
    for j in range(3):
        p = float(P[j])
        law = stats.beta((n_draws - 1) * p, (n_draws - 1) * (1 - p))
        assert stats.kstest(w[:, j].clip(1e-300, 1), law.cdf).pvalue > 1e-4


def test_a_nearly_impossible_key_neither_underflows_nor_wins() -> None:
    p = torch.tensor([1 - 1e-12, 1e-12], dtype=torch.float64)
    w = independent("dirichlet", 4.0, p)
    assert np.isfinite(w).all()
    assert w[:, 1].mean() < 1e-3


def test_gaussian_weights_are_differentiable_in_the_concentration() -> None:
    probs = P.expand(2, 3, 2, 5)

    def loss(n_draws: torch.Tensor) -> torch.Tensor:
        generator = torch.Generator().manual_seed(3)
        return gaussian_weights(probs, n_draws, generator).square().sum()

    n_draws = torch.tensor(6.0, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(loss, (n_draws,))


@pytest.mark.parametrize("weights", [dirichlet_weights, gaussian_weights])
def test_rows_share_the_noise_and_heads_do_not(weights) -> None:
    probs = P.expand(3, 2, 2, 5)
    drawn = weights(probs, 4.0, torch.Generator().manual_seed(0))
    assert drawn.dtype == probs.dtype
    assert torch.equal(drawn[0], drawn[2])
    assert not torch.allclose(drawn[0, 0], drawn[0, 1])
    assert not torch.allclose(drawn[0, 0, 0], drawn[0, 0, 1])
    narrow = weights(probs.bfloat16(), 4.0, torch.Generator().manual_seed(0))
    assert narrow.dtype == torch.bfloat16
    # a generator goes on
    generator = torch.Generator().manual_seed(0)
    first, second = (weights(probs, 4.0, generator) for _ in range(2))
    assert torch.equal(first, drawn)
    assert not torch.allclose(first, second)


@pytest.mark.parametrize("weights", [dirichlet_weights, gaussian_weights])
def test_rows_without_probability_stay_zero(weights) -> None:
    drawn = weights(torch.zeros(1, 1, 2, 3), 4.0, torch.Generator().manual_seed(0))
    assert torch.equal(drawn, torch.zeros(1, 1, 2, 3))


@pytest.mark.parametrize("name", ["multinomial", "dirichlet", "gaussian"])
def test_noise_does_not_depend_on_later_queries_and_keys(name: str) -> None:
    sampler = make_sampler(name, 4)
    short = sampler.noise([5, 6], 3, 2, 4)
    long = sampler.noise([5, 6], 7, 2, 9)
    if sampler.needs_keys:
        long = long[:, :, :4]
    assert torch.equal(short, long[:3])


@pytest.mark.parametrize("name", ["multinomial", "dirichlet", "gaussian"])
def test_kept_noise_changes_nothing(name: str, monkeypatch) -> None:
    """Neither when it is kept, nor cut, nor when there is no room."""
    calls = [(2, 3), (2, 5), (2, 3), (1, 5), (1, 3)]  # keys and queries change

    def weights(draws: MemberDraws) -> list[torch.Tensor]:
        generator = torch.Generator().manual_seed(0)
        drawn = []
        for n_queries, n_keys in calls:
            scores = torch.randn(4, 2, n_queries, n_keys, generator=generator)
            probs = torch.softmax(scores, dim=-1)
            drawn.append(draws.draw([8, 9], "a", 1, probs))
        return drawn

    kept = weights(MemberDraws({"a": make_sampler(name, 3)}))
    monkeypatch.setattr(samplers, "BYTES_KEPT", 0)
    anew = weights(MemberDraws({"a": make_sampler(name, 3)}))
    assert all(map(torch.equal, kept, anew))


def test_noise_is_made_once_for_all_batches(monkeypatch) -> None:
    sampler, made = make_sampler("multinomial", 3), []
    noise = sampler.noise
    monkeypatch.setattr(sampler, "noise", lambda *a: made.append(a) or noise(*a))
    draws, probs = MemberDraws({"a": sampler}), torch.full((2, 1, 2, 2), 0.5)
    for _ in range(5):
        draws.draw([1, 2], "a", 0, probs)
    assert len(made) == 2
    draws.draw([1, 2], "a", 1, probs)
    assert len(made) == 4


@pytest.mark.parametrize("name", ["dirichlet", "gaussian"])
def test_in_a_model(make_family, name: str) -> None:
    """Block and loop agree, and members spread as the multinomial's do."""
    family = make_family("by-seam")
    x, seeds = family.inputs["x"], list(range(400))

    def members(sampler: str) -> torch.Tensor:
        runs = forward_members(
            family.model, [x], n_draws=256, seeds=seeds, sampler=sampler
        )
        return torch.stack([output for _, _, output in runs])

    drawn = members(name)
    with stochastic_attention(family.model, n_draws=256, seed=3, sampler=name):
        torch.testing.assert_close(family.model(x), drawn[3], atol=1e-5, rtol=1e-4)
    # at so many draws the output is linear in the weights, whose covariance is one
    ratio = drawn.std(dim=0).norm() / members("multinomial").std(dim=0).norm()
    assert 0.9 < ratio < 1.1


@pytest.mark.parametrize(
    ("name", "n_draws", "error", "message"),
    [
        ("poisson", 4, ValueError, "sampler must be one of"),
        ("multinomial", 2.5, TypeError, "whole number"),
        ("dirichlet", 1, ValueError, "above 1"),
        ("gaussian", 0, ValueError, "above 0"),
        ("gaussian", math.inf, ValueError, "finite"),
        ("gaussian", "8", TypeError, "n_draws must be a number"),
        ("dirichlet", True, TypeError, "n_draws must be a number"),
    ],
)
def test_bad_arguments(make_family, name, n_draws, error, message) -> None:
    model = make_family("by-seam").model
    with (
        pytest.raises(error, match=message),
        stochastic_attention(model, n_draws=n_draws, seed=0, sampler=name),
    ):
        pass
    with pytest.raises(error, match=message):
        forward_members(model, [], n_draws=n_draws, seeds=[0], sampler=name)
