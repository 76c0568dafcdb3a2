"""The frozen model as Gaussian steps: without noise it is the model itself."""

import pytest
import torch

from tests.director.conftest import digest
from tests.director.families import FAMILIES, build
from uqformer.director import Teacher
from uqformer.director._teacher import TeacherSteps


@pytest.mark.parametrize("name", FAMILIES)
def test_the_means_are_the_models_own_chain(name: str) -> None:
    guest = build(name)
    before = digest(guest.model)
    teacher = Teacher(guest.model, guest.x)
    chain = teacher.record(guest.x)
    state = chain.states[0]
    with torch.no_grad():
        for step in range(1, teacher.n_steps + 1):
            state, variance = teacher.transition(chain, state, step)
            assert variance.min() >= 1e-4
    torch.testing.assert_close(
        state[chain.real], chain.states[-1][chain.real], atol=10 * guest.atol, rtol=1e-4
    )
    assert digest(guest.model) == before


def test_the_noise_has_the_variance_of_the_step() -> None:
    guest = build("patches")
    teacher = Teacher(guest.model, guest.x, lambda half, step: 0.25 * half.state**2)
    many = guest.x[:1].repeat(4000, 1, 1, 1)
    chain = teacher.record(many)
    steps = teacher.sample(chain, torch.Generator().manual_seed(0))
    drawn = steps.states[:, 1]  # where the second step begins
    expected = (0.25 * chain.states[0][0] ** 2).clamp_min(1e-4)
    ratio = (drawn - steps.means[:, 0]).square().mean(dim=0) / expected
    # chi-square with 4000 degrees of freedom: sd 0.022
    assert (ratio - 1).abs().max() < 0.12
    mean = (drawn - steps.means[:, 0]).mean(dim=0) / expected.sqrt()
    assert mean.abs().max() < 5 / 4000**0.5
    # rows are noised apart, and later steps begin where noise has led
    assert not torch.equal(drawn[0], drawn[1])
    assert not torch.equal(steps.means[0, 1], steps.means[1, 1])
    assert torch.equal(steps.means[0, 0], steps.means[1, 0])


def test_the_same_generator_gives_the_same_steps() -> None:
    guest = build("bert-sdpa")
    teacher = Teacher(guest.model, guest.x)
    chain = teacher.record(guest.x)
    first, again = (
        teacher.sample(chain, torch.Generator().manual_seed(3)) for _ in range(2)
    )
    assert torch.equal(first.states, again.states)
    assert first.states.shape == first.means.shape == first.variances.shape
    assert first.states.shape == (3, 3, 5, 8)
    assert torch.equal(first.real, guest.real)


def _steps(n_rows: int, visible: torch.Tensor | None) -> TeacherSteps:
    tensors = [torch.full((n_rows, 2, 3, 4), float(i)) for i in range(3)]
    return TeacherSteps(*tensors, torch.ones(n_rows, 3).bool(), visible)


def test_batches_are_joined_with_and_without_masks() -> None:
    """A batch without padding comes without a mask from some models."""
    by_key = torch.zeros(2, 1, 1, 3, dtype=torch.bool)
    by_query = torch.ones(1, 1, 3, 3, dtype=torch.bool).tril()
    joined = TeacherSteps.joined([_steps(1, None), _steps(2, by_key)])
    assert joined.visible is not None
    assert joined.visible.shape == (3, 1, 1, 3)
    assert joined.visible[0].all()
    assert not joined.visible[1:].any()
    joined = TeacherSteps.joined([_steps(2, by_key), _steps(1, by_query)])
    assert joined.visible is not None
    assert joined.visible.shape == (3, 1, 3, 3)
    assert TeacherSteps.joined([_steps(1, None), _steps(2, None)]).visible is None
    rows = joined[torch.tensor([2])]
    assert len(rows) == 1
    assert rows.visible is not None
    assert torch.equal(rows.visible, by_query)


def test_there_are_as_many_steps_as_blocks() -> None:
    guest = build("timm")
    teacher = Teacher(guest.model, guest.x)
    chain = teacher.record(guest.x)
    for step in (0, 4):
        with pytest.raises(ValueError, match="between 1 and 3"):
            teacher.transition(chain, chain.states[0], step)
