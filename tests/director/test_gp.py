"""Gaussian process variances against dense algebra, draws, and torch's divergences."""

import pytest
import torch
from torch import Tensor, nn
from torch.distributions import MultivariateNormal, kl_divergence

from tests.director.families import FAMILIES, Guest, build
from uqformer.director import KernelEigenVariance, SparseGPVariance, Teacher
from uqformer.director._projections import queries_and_keys
from uqformer.director._reading import AttentionHalf


def _teacher(guest: Guest, kind: str) -> Teacher:
    teacher = Teacher(guest.model, guest.x)
    if kind == "sparse":
        teacher.variance = SparseGPVariance(teacher, guest.x, n_inducing=4)
    else:
        teacher.variance = KernelEigenVariance(teacher, guest.x, n_pairs=3)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in teacher.variance.parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            parameter += 0.3 * noise.to(parameter)
    return teacher


def _half(guest: Guest, teacher: Teacher) -> AttentionHalf:
    chain = teacher.record(guest.x)
    return teacher.half(chain, chain.states[0], step=1)


@pytest.mark.parametrize("kind", ["sparse", "pairs"])
@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_varies(name: str, kind: str) -> None:
    guest = build(name)
    teacher = _teacher(guest, kind)
    half = _half(guest, teacher)
    with torch.no_grad():
        variance = teacher.variance(half, 1)
    assert variance.shape == half.state.shape
    assert variance.dtype == half.state.dtype
    assert variance.min() >= 0
    assert variance.max() > 1e-3


def test_sparse_variance_is_that_of_the_dense_process() -> None:
    """Condition on inducing values u ~ N(0, C S S' C'), with plain inverses."""
    guest = build("patches")
    teacher = _teacher(guest, "sparse")
    (process, *_) = teacher.variance.steps
    query, _ = queries_and_keys(_half(guest, teacher))
    with torch.no_grad():
        got = process.head_variance(query)
        head, channel, row = 1, 2, 0
        x, keys = query[row, head], process.keys[head]
        length, scale = process.log_length[head].exp(), process.log_scale[head].exp()

        def kernel(a: Tensor, b: Tensor) -> Tensor:
            squared = (((a[:, None] - b[None]) / length) ** 2).sum(dim=-1)
            return scale * (-squared / 2).exp()

        prior = kernel(keys, keys) + 1e-4 * scale * torch.eye(4)
        root = torch.linalg.cholesky(prior)
        factor = process.factor()[head, channel]
        posterior = root @ factor @ factor.T @ root.T
        weights = kernel(x, keys) @ torch.linalg.inv(prior)  # (T, M)
        dense = kernel(x, x) + weights @ (posterior - prior) @ weights.T
    torch.testing.assert_close(got[row, head, :, channel], dense.diagonal())


def test_channels_are_carried_through_the_output_map() -> None:
    """Draw the channels and project them: the variance is the sum over channels."""
    guest = build("patches")
    teacher = _teacher(guest, "sparse")
    (process, *_) = teacher.variance.steps
    query, _ = queries_and_keys(_half(guest, teacher))
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        spread = process.head_variance(query)[:1].sqrt()  # (1, H, T, r)
        noise = torch.randn((4000, *spread.shape[1:]), generator=generator)
        drawn = torch.einsum("nhtc,hcd->ntd", spread * noise.to(spread), process.output)
        expected = process(query)[0]
    ratio = drawn.square().mean(dim=0) / expected
    assert (ratio - 1).abs().max() < 5 * (2 / 4000) ** 0.5


def test_pair_variance_is_that_of_its_draws() -> None:
    """f = v S eps, widened to channels and projected, with an eps for each output."""
    guest = build("patches")
    teacher = _teacher(guest, "pairs")
    (pairs, *_) = teacher.variance.steps
    query, key = queries_and_keys(_half(guest, teacher))
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        features = pairs.pairs(query, key)[0]  # (H, T, P)
        factor = pairs.factor()  # (H, C, P, P)
        noise = torch.randn((4000, 2, 3, 3), generator=generator).to(factor)
        drawn = torch.einsum("htp,hcpk,nhck->nhtc", features, factor, noise)
        added = drawn @ pairs.widen @ pairs.output  # (4000, H, T, D)
        expected = pairs(query, key)[0]
    ratio = added.sum(dim=1).square().mean(dim=0) / expected
    assert (ratio - 1).abs().max() < 5 * (2 / 4000) ** 0.5


def test_features_are_scaled_cosines() -> None:
    guest = build("patches")
    teacher = _teacher(guest, "pairs")
    (pairs, *_) = teacher.variance.steps
    query, key = queries_and_keys(_half(guest, teacher))
    with torch.no_grad():
        got = pairs.pairs(query, key)[0, 1, 2]
        unit_q, unit_k = (x[0, 1, 2] / x[0, 1, 2].norm() for x in (query, key))
        expected = unit_q @ pairs.left[1] + unit_k @ pairs.right[1]
        torch.testing.assert_close(got, expected / pairs.log_eigenvalue[1].exp())


@pytest.mark.parametrize("kind", ["sparse", "pairs"])
def test_divergences_are_those_of_torch(kind: str) -> None:
    guest = build("patches")
    teacher = _teacher(guest, kind)
    expected = torch.zeros(())
    for step in teacher.variance.steps:
        for head, factors in enumerate(step.factor()):
            size = factors.shape[-1]
            prior = torch.eye(size)
            if kind == "pairs":
                prior = torch.diag(step.log_eigenvalue[head].exp())
            for factor in factors:
                zero = torch.zeros(size, dtype=factor.dtype)
                expected = expected + kl_divergence(
                    MultivariateNormal(zero, scale_tril=factor),
                    MultivariateNormal(zero, scale_tril=prior.to(factor)),
                )
    torch.testing.assert_close(
        teacher.variance.divergence(), expected.to(torch.float64)
    )


@pytest.mark.parametrize("kind", ["sparse", "pairs"])
def test_gradients_reach_all_that_is_fitted(kind: str) -> None:
    guest = build("patches")
    teacher = _teacher(guest, kind)
    variance = teacher.variance(_half(guest, teacher), 1)
    (variance.sum() + teacher.variance.divergence()).backward()
    (step, *_) = teacher.variance.steps
    assert all(p.grad is not None and p.grad.any() for p in step.parameters())


def test_sizes_below_one_are_refused() -> None:
    guest = build("timm")
    teacher = Teacher(guest.model, guest.x)
    with pytest.raises(ValueError, match="n_inducing"):
        SparseGPVariance(teacher, guest.x, n_inducing=0)
    with pytest.raises(ValueError, match="n_pairs"):
        KernelEigenVariance(teacher, guest.x, n_pairs=0)
    assert isinstance(SparseGPVariance(teacher, guest.x), nn.Module)
