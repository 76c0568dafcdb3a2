"""Embedding, walk and head as one model."""

import pickle

import pytest
import torch
from torch import nn

from tests.director.conftest import digest
from tests.director.families import FAMILIES, Guest, build
from uqformer._random import seeded
from uqformer.backbones import PatchTransformer
from uqformer.director import (
    Student,
    Teacher,
    TransitionDiT,
    record_chain,
    rollout,
    transition_for,
)
from uqformer.director._student import take_rows


def _student(guest: Guest, *, freeze: bool = False) -> Student:
    teacher = Teacher(guest.model, guest.x)
    with seeded(0):
        transition = TransitionDiT(8, teacher.n_steps, n_heads=2)
        for parameter in transition.parameters():
            nn.init.normal_(parameter, std=0.1)
    dtype = next(guest.model.parameters()).dtype
    return Student(teacher, transition.to(dtype), freeze=freeze).eval()


@pytest.mark.parametrize("name", [n for n in FAMILIES if n != "encoder-causal"])
def test_members_are_functions_of_rows(name: str) -> None:
    """Tiled chains give what each gives alone, and so do rows."""
    guest = build(name)
    student = _student(guest)
    with torch.no_grad():
        members = student.members(guest.x, seeds=[3, 4])
        again = student.members(guest.x, seeds=[4])
        row = student.members(take_rows(guest.x, slice(1, 2)), seeds=[3, 4])
    torch.testing.assert_close(members[1], again[0], atol=1e-5, rtol=1e-4)
    real = slice(None) if members.ndim == 3 or guest.real is None else guest.real[1]
    torch.testing.assert_close(
        members[:, 1][:, real], row[:, 0][:, real], atol=1e-5, rtol=1e-4
    )
    assert not torch.equal(members[0], members[1])


@pytest.mark.parametrize("freeze", [True, False])
def test_what_is_trained(freeze: bool) -> None:
    guest = build("patches")
    for parameter in guest.model.parameters():
        parameter.requires_grad_(False)  # as guests often come
    student = _student(guest, freeze=freeze)
    names = set(student.trained())
    own = {name for name in names if name.startswith("transition.")}
    assert len(own) == len(list(student.transition.parameters()))
    assert (names == own) == freeze
    assert student.n_params == sum(p.numel() for p in student.parameters())
    student.train()
    assert student.shell.training != freeze
    assert student.transition.training
    assert not any(p.requires_grad for p in guest.model.parameters())


def test_the_guest_is_not_touched() -> None:
    guest = build("patches")
    before = digest(guest.model)
    student = _student(guest).train()
    student.walked(guest.x, None).sum().backward()
    with torch.no_grad():
        for parameter in student.parameters():
            parameter += 1
    assert digest(guest.model) == before
    assert all(p.grad is None for p in guest.model.parameters())
    assert not guest.model.training


def test_a_pickled_student_predicts_the_same() -> None:
    guest = build("bert-sdpa")
    student = _student(guest)
    twin = pickle.loads(pickle.dumps(student))
    with torch.no_grad():
        assert torch.equal(
            twin.members(guest.x, [0, 1]), student.members(guest.x, [0, 1])
        )


@pytest.mark.parametrize("name", ["patches", "bert-sdpa"])
def test_a_trace_tells_how_far_chains_part(name: str) -> None:
    guest = build(name)
    student = _student(guest)
    seeds = [3, 4, 5]
    start = record_chain(guest.model, guest.x)
    with torch.no_grad():
        outputs, variances = student.traced(guest.x, seeds)
        assert torch.equal(outputs, student.members(guest.x, seeds))
        ends = rollout(
            student.transition, start.states[0], seeds=seeds, visible=start.visible
        )  # (M, N, T, D)
    assert variances.shape == (len(start.states[0]), 3)
    real = start.real.double()
    by_token = ends.double().var(dim=0, correction=0).mean(dim=-1)  # (N, T)
    expected = (by_token * real).sum(dim=1) / real.sum(dim=1)
    torch.testing.assert_close(variances[:, -1].double(), expected)
    assert (variances.diff(dim=1) > 0).all()  # a fresh network adds noise each time
    with torch.no_grad(), pytest.raises(ValueError, match="one seed"):
        student.traced(guest.x, [])


def test_the_forward_pass_has_no_noise() -> None:
    guest = build("patches")
    student = _student(guest)
    with torch.no_grad():
        assert torch.equal(student(guest.x), student.walked(guest.x, None))
        larger = student(guest.x, n_steps=1)
    assert not torch.equal(student(guest.x), larger)


def test_wrong_steps_and_seeds_are_refused() -> None:
    guest = build("patches")
    with pytest.raises(ValueError, match="teacher's 3 steps"):
        Student(Teacher(guest.model, guest.x), TransitionDiT(8, 4, n_heads=2))
    with pytest.raises(ValueError, match="one seed"):
        _student(guest).members(guest.x, [])


@pytest.mark.parametrize(("n_kept", "millions"), [(0, 2.74), (3, 6.28)])
def test_a_vision_transformer_for_small_photographs_shrinks(
    n_kept: int, millions: float
) -> None:
    x = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    shape = {"patch_size": 4, "d_token": 384, "n_blocks": 7}
    model = PatchTransformer(3, 10, **shape).adapt(x).eval()
    teacher = Teacher(model, x, n_kept_blocks=n_kept)
    n_replaced = sum(p.numel() for block in teacher.blocks for p in block.parameters())
    transition = transition_for(384, teacher.n_steps, n_params=n_replaced // 2)
    assert model.n_params == pytest.approx(8.34e6, rel=1e-3)
    student = Student(teacher, transition)
    assert student.n_params == pytest.approx(millions * 1e6, rel=2e-3)
