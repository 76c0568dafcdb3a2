"""Noise that tokens share, against torch's own distributions."""

import pytest
import torch
from torch import Tensor
from torch.distributions import (
    LowRankMultivariateNormal,
    MultivariateNormal,
    kl_divergence,
)

from uqformer._random import seeded
from uqformer.director import TransitionDiT, gaussian_kl, rollout
from uqformer.director._losses import matching_loss
from uqformer.director._shared import added_divergence, shared_part
from uqformer.director._teacher import TeacherSteps

N, T, D, R = 3, 5, 4, 2


def normal(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def test_the_divergence_is_that_of_torch() -> None:
    mean, other = normal(N, T, D), normal(N, T, D, seed=1)
    variance, log_variance = normal(N, T, D, seed=2).exp(), normal(N, T, D, seed=3)
    factors = normal(N, T, D, R, seed=4)
    each = gaussian_kl(mean, variance, other, log_variance).sum(dim=1)  # (N, D)
    got = each + added_divergence(variance, mean - other, log_variance, factors)
    by_width = [x.transpose(1, 2) for x in (mean, variance, other, log_variance.exp())]
    theirs = kl_divergence(
        MultivariateNormal(by_width[0], torch.diag_embed(by_width[1])),
        LowRankMultivariateNormal(by_width[2], factors.transpose(1, 2), by_width[3]),
    )
    torch.testing.assert_close(got, theirs)


def test_without_factors_nothing_is_added() -> None:
    factors = torch.zeros(N, T, D, R, dtype=torch.float64)
    added = added_divergence(normal(N, T, D).exp(), *[normal(N, T, D)] * 2, factors)
    assert torch.equal(added, torch.zeros(N, D, dtype=torch.float64))


def test_padding_is_nobodys_to_match() -> None:
    with seeded(0):
        transition = TransitionDiT(D, 2, n_heads=2, n_factors=R).double()
    real = torch.arange(T) < torch.tensor([[T], [3], [4]])
    states = normal(N, 2, T, D)
    visible = real[:, None, None]
    losses = []
    for filler in (0.0, 5.0):
        filled = torch.where(real[:, None, :, None], states, filler)
        steps = TeacherSteps(filled, filled + 1, filled.exp(), real, visible)
        losses.append(matching_loss(transition, steps, "kl"))
    torch.testing.assert_close(*losses)


def test_factors_can_be_taught_in_mixed_precision() -> None:
    with seeded(0):
        transition = TransitionDiT(D, 2, n_heads=2, n_factors=R)
    states = normal(N, 2, T, D).float()
    real = torch.ones(N, T, dtype=torch.bool)
    steps = TeacherSteps(states, states + 1, states.exp(), real)
    losses = []
    for mixed in (False, True):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=mixed):
            losses.append(matching_loss(transition, steps, "kl"))
    torch.testing.assert_close(losses[1], losses[0], rtol=0.02, atol=0.0)


def test_tokens_vary_together_as_the_factors_say() -> None:
    """Over many chains of one step, against the covariance in closed form."""
    with seeded(0):
        transition = TransitionDiT(D, 1, n_heads=2, n_factors=R).double()
        torch.nn.init.normal_(transition.factors.weight, std=1.0)
    start = normal(1, T, D)
    n_chains = 4000
    with torch.no_grad():
        mean, log_variance, factors = transition(start, torch.tensor(1.0))
        ends = rollout(transition, start, seeds=range(n_chains))[:, 0]  # (M, T, D)
    expected = torch.einsum("tdr,sdr->dts", factors[0], factors[0])
    expected = expected + torch.diag_embed(log_variance[0].exp().T)
    centred = ends - mean[0]
    got = torch.einsum("mtd,msd->dts", centred, centred) / n_chains
    size = expected.diagonal(dim1=1, dim2=2)  # (D, T)
    # a sample covariance errs by sqrt((v_t v_s + c^2) / n); 5 of them in 100 numbers
    product = size[:, :, None] * size[:, None]
    error = ((product + expected**2) / n_chains).sqrt()
    assert ((got - expected).abs() <= 5 * error).all()
    across = torch.einsum("mtd,mse->dtes", centred, centred) / n_chains
    width = torch.arange(D)
    across[width, :, width] = 0
    largest = (size.max() ** 2 / n_chains).sqrt()
    assert across.abs().max() <= 5 * largest


def test_rows_have_the_same_chain_in_any_company() -> None:
    with seeded(0):
        transition = TransitionDiT(D, 3, n_heads=2, n_factors=R).double()
    start = normal(N, T, D)
    with torch.no_grad():
        ends = rollout(transition, start, seeds=[0, 1])
        alone = rollout(transition, start[1:2], seeds=[0, 1])
        longer = torch.cat([start, 9 * normal(N, 2, D)], dim=1)
        real = (torch.arange(T + 2) < T).expand(N, 1, 1, -1)
        padded = rollout(transition, longer, seeds=[0, 1], visible=real)
    torch.testing.assert_close(alone[:, 0], ends[:, 1])
    torch.testing.assert_close(padded[:, :, :T], ends)


def test_factors_must_not_be_fewer_than_none() -> None:
    with pytest.raises(ValueError, match=r"n_factors must be at least 0; got .*-1"):
        TransitionDiT(D, 3, n_factors=-1)


def test_shared_part_is_a_product() -> None:
    factors, noise = normal(N, T, D, R), normal(N, R, D, seed=1)
    expected = sum(factors[..., r] * noise[:, None, r] for r in range(R))
    torch.testing.assert_close(shared_part(factors, noise), expected)
