"""The compiled kernel: exact counts, as by bisection, on one thread or more."""

import numpy as np
import pytest
import torch

from uqformer._random import torch_generator
from uqformer.attention import _draws, _kernel, multinomial_weights
from uqformer.attention._draws import draw_by_bisection, sorted_uniforms

pytest.importorskip("numba", reason="numba is an extra: uqformer[fast]")


def _probs(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    scores = 2 * torch.randn(*shape, generator=torch_generator(0)).to(dtype)
    scores[..., 1::4] = -torch.inf
    return torch.softmax(scores, dim=-1)


def _uniforms(n_groups: int, n_queries: int, n_heads: int, n_draws: int):
    many = sorted_uniforms(n_groups * n_queries, n_heads, n_draws, torch_generator(1))
    return many.unflatten(0, (n_groups, n_queries))


@pytest.mark.parametrize("n_draws", [1, 2, 7, 64, 1024])
@pytest.mark.parametrize(
    "shape", [(1, 5, 2, 3, 4), (3, 2, 1, 4, 40), (2, 9, 4, 1, 2), (2, 3, 2, 70, 130)]
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_counts_are_those_of_the_definition(shape, n_draws, dtype) -> None:
    probs, uniforms = (
        _probs(*shape, dtype=dtype),
        _uniforms(*np.array(shape)[[0, 3, 2]], n_draws),
    )
    weights = _kernel.draw_compiled(probs, uniforms)
    assert weights.dtype == dtype
    edges = probs.double().numpy().cumsum(axis=-1)
    edges /= edges[..., -1:]
    u = uniforms.double().numpy().transpose(0, 2, 1, 3)[:, None, :, :, None, :]
    below = (u < edges[..., None]).sum(axis=-1)
    counts = np.diff(below, axis=-1, prepend=0)
    np.testing.assert_allclose(weights.numpy(), counts / n_draws, rtol=1e-6)
    assert (weights[probs == 0] == 0).all()


def test_bisection_draws_the_same() -> None:
    probs, uniforms = _probs(2, 30, 3, 6, 9), _uniforms(2, 6, 3, 32)
    compiled = _kernel.draw_compiled(probs, uniforms)
    by_bisection = draw_by_bisection(probs, uniforms)
    # a draw within rounding of an edge may fall on either side: here none does
    torch.testing.assert_close(compiled, by_bisection, atol=1e-6, rtol=1e-6)


def test_rows_that_are_empty_or_not_numbers() -> None:
    probs = torch.stack([torch.zeros(4), torch.full((4,), torch.nan), torch.eye(4)[2]])
    weights = _kernel.draw_compiled(probs.reshape(1, 3, 1, 1, 4), _uniforms(1, 1, 1, 5))
    assert torch.equal(weights[0, 0], torch.zeros(1, 1, 4))
    assert weights[0, 1].isnan().all()
    assert torch.equal(weights[0, 2, 0, 0], torch.eye(4)[2])


def test_threads_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    probs, uniforms = _probs(2, 11, 2, 3, 5), _uniforms(2, 3, 2, 8)
    alone = _kernel.draw_compiled(probs, uniforms)
    monkeypatch.setattr(_kernel, "WEIGHTS_PER_THREAD", 100)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 4)
    assert torch.equal(_kernel.draw_compiled(probs, uniforms), alone)
    # more threads than samples
    monkeypatch.setattr(torch, "get_num_threads", lambda: 50)
    monkeypatch.setattr(_kernel, "WEIGHTS_PER_THREAD", 1)
    assert torch.equal(_kernel.draw_compiled(probs, uniforms), alone)


def test_mean_and_covariance() -> None:
    """One row, many independent draws of it: bounds of five standard errors."""
    n_repeats, n_draws = 20_000, 6
    p = torch.tensor([0.5, 0.3, 0.15, 0.05, 0.0], dtype=torch.float64)
    probs = p.expand(n_repeats, 1, 1, 1, 5).contiguous()
    uniforms = _uniforms(n_repeats, 1, 1, n_draws)
    w = _kernel.draw_compiled(probs, uniforms).reshape(n_repeats, 5).numpy()
    covariance = (np.diag(p) - np.outer(p, p)) / n_draws
    bound = 5 * np.sqrt(np.diag(covariance) / n_repeats)
    assert (np.abs(w.mean(axis=0) - p.numpy()) <= bound).all()
    spread = np.sqrt(np.outer(np.diag(covariance), np.diag(covariance)))
    error = np.abs(np.cov(w.T) - covariance)
    assert (error <= 5 * spread * np.sqrt(2 / n_repeats) + 1e-12).all()


def test_without_numba_bisection_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    probs = _probs(4, 2, 3, 6)
    fast = multinomial_weights(probs, 16, torch_generator(2))
    monkeypatch.setattr(_draws, "has_kernel", lambda: False)
    monkeypatch.setattr(_draws, "draw_compiled", None)
    slow = multinomial_weights(probs, 16, torch_generator(2))
    torch.testing.assert_close(fast, slow, atol=1e-6, rtol=1e-6)
