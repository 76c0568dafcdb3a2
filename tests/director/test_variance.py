"""The variance in closed form is that of the redraw itself."""

import pytest
import torch

from tests.director.families import FAMILIES, build
from uqformer.attention import multinomial_weights
from uqformer.director import RedrawVariance, Teacher
from uqformer.director._student import tile_rows

N_DRAWS, N_REDRAWS = 3, 1500


@pytest.mark.parametrize("name", FAMILIES)
def test_it_is_the_variance_of_the_redraw(name: str) -> None:
    """Against redraws of rows that are repeated and drawn independently."""
    guest = build(name)
    variance = RedrawVariance(N_DRAWS)
    teacher = Teacher(guest.model, guest.x, variance)
    chain = teacher.record(_tiled(guest.x))
    step = min(2, teacher.n_steps)
    half = teacher.half(chain, chain.states[step - 1], step)
    generator = torch.Generator().manual_seed(0)
    redrawn = half.answered(
        lambda probs: multinomial_weights(probs, N_DRAWS, generator, rows="independent")
    )
    few = teacher.record(guest.x)
    exact = variance(teacher.half(few, few.states[step - 1], step), step)
    real = few.real
    members = redrawn.unflatten(0, (N_REDRAWS, -1))[:, real]  # (M, real tokens, D)
    squared = (members - members.mean(dim=0)) ** 2
    error = squared.std(dim=0) / N_REDRAWS**0.5
    # keys that are drawn once in thousands of draws leave no error to see
    z = (squared.mean(dim=0) - exact[real]) / (error + 2e-3 * exact[real].max())
    # the largest of a few hundred normals stays below 5 but once in a thousand times
    assert z.abs().max() < 5.5
    assert z.mean().abs() < 0.5
    assert exact[real].max() > 1e-3


def test_it_falls_as_one_over_the_draws() -> None:
    guest = build("patches")
    teacher = Teacher(guest.model, guest.x)
    chain = teacher.record(guest.x)
    half = teacher.half(chain, chain.states[0], step=1)
    few, many = (RedrawVariance(n)(half, 1) for n in (2, 8))
    torch.testing.assert_close(few, 4 * many)


def test_a_key_alone_varies_by_nothing() -> None:
    """The first token of a causal model sees itself alone."""
    guest = build("encoder-causal")
    teacher = Teacher(guest.model, guest.x)
    chain = teacher.record(guest.x)
    variance = RedrawVariance(1)(teacher.half(chain, chain.states[0], step=1), 1)
    assert variance[:, 0].max() < 1e-12
    assert variance[:, 1:].min() > 1e-9


@pytest.mark.parametrize(("n_draws", "error"), [(0, ValueError), (1.5, TypeError)])
def test_wrong_numbers_of_draws_are_refused(n_draws, error) -> None:
    with pytest.raises(error, match="n_draws"):
        RedrawVariance(n_draws)


def _tiled(x):
    """Repeat the rows; a mask of queries and keys has none."""
    if not isinstance(x, dict):
        return tile_rows(x, N_REDRAWS)
    rows = {name: value for name, value in x.items() if name != "mask"}
    return x | tile_rows(rows, N_REDRAWS)
