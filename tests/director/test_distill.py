"""Distillation end to end: what is learned, what is left alone, and how it resumes."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.director.conftest import Digits, TinyViT, digest, noisy_digits, trained_vit
from uqformer._random import member_seeds, seeded
from uqformer.director import (
    CLASSIFICATION,
    REGRESSION,
    DistillationRecipe,
    RedrawVariance,
    Student,
    Teacher,
    TransitionDiT,
    distil,
    transition_for,
)
from uqformer.metrics import expected_calibration_error


def _student(teacher: Teacher, *, freeze: bool = False, width: int = 16) -> Student:
    with seeded(1):
        return Student(teacher, TransitionDiT(width, teacher.n_steps), freeze=freeze)


@pytest.fixture(scope="module")
def few(digits: Digits) -> Digits:
    """Enough rows where it does not matter what is learned."""
    cut = [tuple(part[:64] for part in rows) for rows in (digits.train, digits.valid)]
    return Digits(digits.model, *cut, digits.test)


def _distilled(digits: Digits, *, freeze: bool = False, **options: Any):
    recipe = {"max_epochs": 3, "learning_rate": 2e-3} | options.pop("recipe", {})
    teacher = Teacher(digits.model, digits.train[0][:4])
    student = _student(teacher, freeze=freeze)
    history = distil(
        student,
        teacher,
        digits.train,
        digits.valid,
        DistillationRecipe(**recipe),
        seed=0,
        **options,
    )
    return student, history


def _weights(student: Student) -> Tensor:
    return torch.cat([p.detach().flatten() for p in student.trained().values()])


@pytest.mark.parametrize("freeze", [True, False])
def test_the_guest_and_global_generators_stay(few: Digits, freeze: bool) -> None:
    before, state = digest(few.model), torch.random.get_rng_state()
    own = {id(p) for p in few.model.parameters()}
    student, _ = _distilled(few, freeze=freeze, recipe={"max_epochs": 1})
    assert digest(few.model) == before
    assert all(p.grad is None for p in few.model.parameters())
    assert torch.equal(torch.random.get_rng_state(), state)
    assert not student.training
    shared = {id(p) for p in student.shell.parameters()} <= own
    assert shared == freeze


def test_losses_fall_and_are_seeded(few: Digits) -> None:
    first, history = _distilled(few)
    again, same = _distilled(few)
    assert [entry["epoch"] for entry in history] == [1, 2, 3]
    assert history == same
    assert torch.equal(_weights(first), _weights(again))
    for loss in ("matching_loss", "prediction_loss"):
        assert history[-1][loss] < history[0][loss]


def test_mixed_precision_learns_the_same(few: Digits) -> None:
    histories = [
        _distilled(few, recipe={"mixed_precision": mixed})[1] for mixed in (False, True)
    ]
    exact, mixed = ([entry["valid_loss"] for entry in each] for each in histories)
    assert mixed == pytest.approx(exact, rel=0.02)
    assert mixed != exact
    assert torch.get_autocast_dtype("cpu") == torch.bfloat16
    assert not torch.is_autocast_enabled("cpu")


def test_the_matched_variance_is_the_teachers(digits: Digits) -> None:
    """Without the prediction's loss the student learns where the teacher varies."""
    model, (x, _) = digits.model, digits.valid
    teacher = Teacher(model, x[:4], RedrawVariance(1))
    student = _student(teacher)
    train = digits.train[0][:150], digits.train[1][:150]
    valid = digits.valid[0][:20], digits.valid[1][:20]
    recipe = DistillationRecipe(
        max_epochs=40, learning_rate=1e-2, performance_weight=0.0, batch_size=32,
        n_iter_no_change=40,
    )  # fmt: skip
    states: list[dict[str, Any]] = []
    distil(student, teacher, train, valid, recipe, seed=0, on_epoch_end=states.append)
    # the last weights, for the best are chosen by a loss that was not trained for
    for name, parameter in student.trained().items():
        parameter.data.copy_(states[-1]["average"][name])
    steps = teacher.sample(teacher.record(x), torch.Generator().manual_seed(5))
    with torch.no_grad():
        spreads, errors = [], []
        for step in range(3):
            time = torch.tensor(1 - step / 3)
            mean, log_variance = student.transition(steps.states[:, step], time)
            pair = torch.stack([log_variance, steps.variances[:, step].log()])
            spreads.append(pair.flatten(1).corrcoef()[0, 1])
            change = steps.means[:, step] - steps.states[:, step]
            missed = (mean - steps.means[:, step]).square().sum()
            errors.append(missed / change.square().sum())
    assert min(spreads) > 0.3
    assert max(errors) < 0.7


def test_without_variance_the_walk_lands_on_the_chains_end() -> None:
    """A toy chain, by the means alone: one frozen model learned by heart."""
    with seeded(0):
        model = TinyViT(width=8, n_blocks=2).eval()
        x = torch.randn(8, 64)
    teacher = Teacher(model, x, lambda half, step: torch.zeros_like(half.state))
    with seeded(1):
        student = Student(teacher, TransitionDiT(8, 2, mlp_ratio=4.0), freeze=True)
    recipe = DistillationRecipe(
        max_epochs=400, learning_rate=1e-2, loss="mse", performance_weight=0.0,
        batch_size=8, n_iter_no_change=400,
    )  # fmt: skip
    y = model(x).detach()
    distil(student, teacher, (x, y), (x, y), recipe, seed=0, task=REGRESSION)
    chain = teacher.record(x)
    with torch.no_grad():
        got = student(x)
    start = student.shell.model.head(model.encoder.norm(chain.states[0]).mean(dim=1))
    missed = (got - y).square().mean()
    assert missed < 0.05 * (start - y).square().mean()


@pytest.mark.parametrize("max_cache_bytes", [0, 2**29])
def test_a_resumed_run_is_the_same(few: Digits, max_cache_bytes: int) -> None:
    recipe = {"max_epochs": 3, "max_cache_bytes": max_cache_bytes}
    states: list[dict[str, Any]] = []
    whole, history = _distilled(few, recipe=recipe, on_epoch_end=states.append)
    resumed, rest = _distilled(few, recipe=recipe, resume=states[0])
    assert rest == history
    assert torch.equal(_weights(resumed), _weights(whole))


def test_an_interruption_leaves_the_best_and_is_passed_on(few: Digits) -> None:
    teacher = Teacher(few.model, few.train[0][:4])
    student = _student(teacher)
    states: list[dict[str, Any]] = []

    def interrupt(state: dict[str, Any]) -> None:
        states.append(state)
        if len(states) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        distil(student, teacher, few.train, few.valid, seed=0, on_epoch_end=interrupt)
    best = torch.cat([value.flatten() for value in states[-1]["best"].values()])
    assert torch.equal(_weights(student), best)
    assert not student.training


def test_training_stops_when_nothing_gets_better(few: Digits) -> None:
    recipe = {"max_epochs": 20, "learning_rate": 0.0, "n_iter_no_change": 2}
    _, history = _distilled(few, recipe=recipe)
    assert len(history) == 3


def test_a_loss_that_is_not_finite_is_said(few: Digits) -> None:
    teacher = Teacher(few.model, few.train[0][:4])
    student = _student(teacher)
    torch.nn.init.constant_(student.transition.mean.bias, torch.nan)
    with pytest.raises(FloatingPointError, match="diverged in epoch 1"):
        distil(student, teacher, few.train, few.valid, seed=0)


def _scores(log_proba: Tensor, y: Tensor) -> tuple[float, float]:
    proba = log_proba.double().softmax(dim=-1).numpy()
    error = expected_calibration_error(y.numpy(), proba, labels=list(range(10)))
    return float(F.cross_entropy(log_proba, y)), float(error)


def test_calibration_improves_on_a_model_that_is_too_sure(digits: Digits) -> None:
    """The everyday run; digits under noise, learned by heart by a small model."""
    recipe = {"max_epochs": 10, "learning_rate": 5e-3, "batch_size": 16}
    student, _ = _distilled(digits, recipe=recipe)
    x, y = digits.test
    with torch.no_grad():
        members = student.members(x, member_seeds(0, 10))
        nll, error = _scores(CLASSIFICATION.average(members), y)
        own_nll, own_error = _scores(digits.model(x), y)
    assert nll < own_nll - 0.2
    assert error < 0.6 * own_error


@pytest.mark.slow
def test_calibration_improves_under_heavy_noise() -> None:
    """A smaller student: averaged chains beat one chain, and the model."""
    train, valid, (x, y) = noisy_digits(700, 300, noise=0.5)
    model = trained_vit(train, 20)
    teacher = Teacher(model, x[:4], RedrawVariance(32))
    n_blocks = sum(p.numel() for p in model.encoder.layers.parameters())
    with seeded(1):
        student = Student(teacher, transition_for(32, 4, n_params=n_blocks // 2))
    assert student.n_params < 0.7 * sum(p.numel() for p in model.parameters())
    recipe = DistillationRecipe(max_epochs=25, learning_rate=2e-3)
    distil(student, teacher, train, valid, recipe, seed=0)
    with torch.no_grad():
        members = student.members(x, member_seeds(0, 10))
        nll, error = _scores(CLASSIFICATION.average(members), y)
        one_nll, _ = _scores(members[0], y)
        own_nll, own_error = _scores(model(x), y)
        accuracy, own_accuracy = (
            float((outputs.argmax(dim=-1) == y).float().mean())
            for outputs in (CLASSIFICATION.average(members), model(x))
        )
    assert nll < own_nll - 0.05
    assert error < 0.6 * own_error
    assert nll < one_nll
    assert accuracy > own_accuracy - 0.04
