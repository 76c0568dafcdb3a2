"""What numba compiles: kept where there is a place, and the same by both ways."""

import numpy as np
import pytest

numba = pytest.importorskip("numba", reason="numba is an extra: uqformer[fast]")

from uqformer.attention import _compiled  # noqa: E402


def test_compiles_where_nothing_can_be_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    njit, asked = numba.njit, []

    def without_a_place(*args, **kwargs):
        if "error_model" in kwargs:  # numba uses it for itself, too
            asked.append("cache" in kwargs)
        if kwargs.pop("cache", False):
            raise RuntimeError("cannot cache function: no locator available")
        return njit(*args, **kwargs)

    monkeypatch.setattr(numba, "njit", without_a_place)
    double = _compiled.compiled(lambda x: 2 * x)
    assert double(4) == 8
    assert asked == [True, False]


@pytest.mark.parametrize("n_draws", [1, 3, 8])
def test_few_draws_among_many_keys_are_those_of_the_guide(n_draws: int) -> None:
    """The draw looks for its key from 32 keys a draw on; counts do not change."""
    rng = np.random.default_rng(0)
    n_keys = _compiled.KEYS_PER_DRAW * n_draws
    few, many = n_keys - 1, n_keys  # keys on either side of the choice
    uniforms = np.sort(rng.random((1, 6, 2, n_draws), dtype=np.float32))
    for size in (few, many):
        probs = rng.dirichlet(np.full(size, 0.3), (1, 5, 2, 6)).astype(np.float32)
        weights = np.empty_like(probs)
        _compiled.draw(probs, uniforms, weights, 4 * n_draws, 4, 0, 5)
        edges = probs.astype(float).cumsum(axis=-1)
        u = uniforms.transpose(0, 2, 1, 3)[:, None, :, :, None] * edges[..., -1:, None]
        counts = np.diff((u < edges[..., None]).sum(axis=-1), axis=-1, prepend=0)
        np.testing.assert_allclose(weights, counts / n_draws, rtol=1e-6)


def test_only_the_samples_asked_for_are_drawn() -> None:
    probs = np.full((1, 4, 1, 1, 2), 0.5)
    uniforms = np.array([0.2, 0.4, 0.9], np.float32).reshape(1, 1, 1, 3)
    weights = np.full_like(probs, -1)
    _compiled.draw(probs, uniforms, weights, 12, 4, 1, 3)
    np.testing.assert_allclose(weights[0, 1:3, 0, 0], [[2 / 3, 1 / 3]] * 2)
    assert (weights[0, [0, 3]] == -1).all()
