"""What a distillation chooses, and what it leaves alone."""

import hashlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.estimators.conftest import Guest
from uqformer._random import seeded
from uqformer.director import DistillationRecipe, RedrawVariance, Student, Teacher
from uqformer.director._tasks import WEIGHTED_CLASSIFICATION
from uqformer.estimators import _director_distil
from uqformer.estimators._director_distil import WEIGHTS, Distillation

PLAN = Distillation(
    variance="attention",
    n_draws=4,
    loss="kl",
    performance_weight=10.0,
    student_share=2.0,
    dropout=0.0,
    is_frozen=False,
    recipe=DistillationRecipe(max_epochs=2, batch_size=16),
    seed=0,
)


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.fixture(scope="module")
def guest() -> nn.Module:
    with seeded(0):
        return Guest(n_outputs=3).eval()


@pytest.fixture(scope="module")
def pair() -> tuple[Tensor, Tensor]:
    x = normal(40, 3)
    return x, torch.cat([F.one_hot(x.argmax(dim=1), 3), torch.ones(40, 1)], dim=1)


# -- The course of a distillation ---------------------------------------------------


def digest(module: nn.Module) -> str:
    total = hashlib.sha256()
    for name, value in module.state_dict().items():
        total.update(name.encode() + value.numpy().tobytes())
    return total.hexdigest()


def test_what_is_found(guest: nn.Module, pair: Any) -> None:
    before, state = digest(guest), torch.random.get_rng_state()
    tasks = [WEIGHTED_CLASSIFICATION] * 2
    student, found = PLAN.run(guest, pair, pair, *tasks)
    assert found.n_draws == 4
    assert found.performance_weight == 10.0
    assert found.trials == {}
    assert [entry["epoch"] for entry in found.history] == [1, 2]
    assert set(found.seconds) == {"variance", "distillation"}
    again, same = PLAN.run(guest, pair, pair, *tasks)
    assert same.history == found.history
    assert digest(again) == digest(student)
    other, _ = replace(PLAN, seed=1).run(guest, pair, pair, *tasks)
    assert digest(other) != digest(student)
    assert digest(guest) == before
    assert all(parameter.grad is None for parameter in guest.parameters())
    assert torch.equal(torch.random.get_rng_state(), state)


@pytest.mark.parametrize("loss", ["kl", "mse"])
def test_the_weight_of_least_loss_is_taken(
    guest: nn.Module, pair: Any, loss: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = replace(
        PLAN, loss=loss, performance_weight="auto",
        recipe=DistillationRecipe(max_epochs=5, batch_size=16),
    )  # fmt: skip
    seen: list[tuple[str, float, int]] = []
    real: Callable[..., Any] = _director_distil.distil

    def watched(student: Any, teacher: Any, *args: Any, **options: Any) -> Any:
        recipe = args[2]
        seen.append((recipe.loss, recipe.performance_weight, recipe.max_epochs))
        return real(student, teacher, *args, **options)

    monkeypatch.setattr(_director_distil, "distil", watched)
    _, found = plan.run(guest, pair, pair, *[WEIGHTED_CLASSIFICATION] * 2)
    best = min(found.trials, key=lambda weight: found.trials[weight])
    assert found.performance_weight == best
    short = [(loss, weight, 1) for weight in WEIGHTS[loss]]
    assert seen == [*short, (loss, best, 5)]


@pytest.mark.parametrize("variance", ["attention", "sgpa", "kep"])
def test_variances(
    guest: nn.Module, pair: Any, variance: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    teachers: list[Teacher] = []
    real = _director_distil.Teacher
    monkeypatch.setattr(
        _director_distil,
        "Teacher",
        lambda *args, **kwargs: teachers.append(real(*args, **kwargs)) or teachers[-1],
    )
    plan = replace(PLAN, variance=variance, n_draws="auto")
    _, found = plan.run(guest, pair, pair, *[WEIGHTED_CLASSIFICATION] * 2)
    used = teachers[0].variance
    if variance == "attention":
        assert isinstance(used, RedrawVariance)
        assert used.n_draws == found.n_draws
        assert found.n_draws in [2**power for power in range(9)]
    else:
        assert found.n_draws is None
        assert used.divergence().item() != 0
        names = {"sgpa": "SparseGPVariance", "kep": "KernelEigenVariance"}
        assert type(used).__name__ == names[variance]


def test_the_student_keeps_to_its_share(guest: nn.Module, pair: Any) -> None:
    teacher = Teacher(guest, pair[0][:4])
    n_blocks = sum(p.numel() for p in guest.encoder.parameters())
    sizes = []
    for share in (0.7, 2.0):
        student = replace(PLAN, student_share=share).untrained(teacher, pair)
        sizes.append(student.transition.n_params)
        assert sizes[-1] <= share * n_blocks
    assert sizes[0] < sizes[1]
    message = rf"of the {n_blocks} parameters .* student_share=0\.01, .* Raise it"
    with pytest.raises(ValueError, match=message):
        replace(PLAN, student_share=0.01).untrained(teacher, pair)


def test_a_frozen_head_is_the_guests(guest: nn.Module, pair: Any) -> None:
    own = {id(parameter) for parameter in guest.parameters()}
    tasks = [WEIGHTED_CLASSIFICATION] * 2

    def shared(student: Student) -> bool:
        return {id(p) for p in student.shell.parameters()} <= own

    assert shared(replace(PLAN, is_frozen=True).run(guest, pair, pair, *tasks)[0])
    assert not shared(PLAN.run(guest, pair, pair, *tasks)[0])


def test_blocks_that_stay_are_no_part_of_the_share(guest: nn.Module, pair: Any) -> None:
    before = digest(guest)
    plan = replace(PLAN, n_kept_blocks=1)
    student, _ = plan.run(guest, pair, pair, *[WEIGHTED_CLASSIFICATION] * 2)
    first, *others = guest.encoder.layers
    n_replaced = sum(p.numel() for block in others for p in block.parameters())
    assert student.transition.n_params <= PLAN.student_share * n_replaced
    assert student.transition.n_steps == len(others)
    kept = [name for name in student.state_dict() if ".0.block." in name]
    assert len(kept) == len(first.state_dict())
    for name in kept:
        own = first.state_dict()[name.split(".0.block.")[1]]
        assert torch.equal(student.state_dict()[name], own)
    assert digest(guest) == before
