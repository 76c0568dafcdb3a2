"""Divergences against torch's own, and losses that count what they should."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributions import Normal, kl_divergence

from tests.director.families import build
from uqformer.director import (
    CLASSIFICATION,
    REGRESSION,
    Student,
    Teacher,
    TransitionDiT,
    distillation_loss,
    gaussian_kl,
)
from uqformer.director._losses import matching_loss
from uqformer.director._teacher import TeacherSteps


def _normal(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def test_the_divergence_is_that_of_torch() -> None:
    mean, other_mean, log_variance, other = _normal(4, 50)
    got = gaussian_kl(mean, log_variance.exp(), other_mean, other)
    expected = kl_divergence(
        Normal(mean, (log_variance / 2).exp()), Normal(other_mean, (other / 2).exp())
    )
    torch.testing.assert_close(got, expected)
    same = gaussian_kl(mean, log_variance.exp(), mean, log_variance)
    assert same.abs().max() < 1e-12


def test_what_the_student_gets_wrong_widens_it() -> None:
    """The best variance is the teacher's plus the squared error of the mean."""
    mean, variance = torch.tensor(0.3), torch.tensor(0.2)
    log_variances = torch.linspace(-3, 1, 4001)
    best = log_variances[
        gaussian_kl(mean, variance, mean + 0.5, log_variances).argmin()
    ]
    assert best.exp() == pytest.approx(0.2 + 0.5**2, rel=2e-3)


class Fixed(nn.Module):
    """Answers with the times it was asked for, and a constant log-variance."""

    n_steps = 2

    def forward(self, state: Tensor, time: Tensor, visible: Tensor | None):
        mean = state + time[:, None, None]
        return mean, torch.full_like(mean, -1.0)


@pytest.mark.parametrize("loss", ["kl", "mse"])
def test_matching_counts_steps_and_real_tokens(loss) -> None:
    states, means = _normal(3, 2, 4, 5), _normal(3, 2, 4, 5, seed=1)
    variances = _normal(3, 2, 4, 5, seed=2).exp()
    real = torch.arange(4) < torch.tensor([[4], [2], [3]])
    steps = TeacherSteps(states, means, variances, real)
    got = matching_loss(Fixed(), steps, loss, spread_weight=0.5)
    each = []
    for row in range(3):
        for step, time in enumerate((1.0, 0.5)):
            for token in range(4):
                if not real[row, token]:
                    continue
                at = row, step, token
                mean = states[at] + time
                if loss == "kl":
                    minus_one = torch.full_like(mean, -1.0)
                    part = gaussian_kl(means[at], variances[at], mean, minus_one)
                else:
                    spread = variances[at].sqrt() - torch.tensor(-0.5).exp()
                    part = (mean - means[at]) ** 2 + 0.5 * spread**2
                each.append(part.mean())
    torch.testing.assert_close(got, torch.stack(each).mean())


def test_steps_drawn_at_random_stand_for_all() -> None:
    """Each step of a row is as likely, so their mean is the mean over all."""
    states, means = _normal(2, 3, 4, 5), _normal(2, 3, 4, 5, seed=1)
    variances, real = _normal(2, 3, 4, 5, seed=2).exp(), torch.ones(2, 4).bool()
    steps = TeacherSteps(states, means, variances, real)
    picks = torch.cartesian_prod(torch.arange(3), torch.arange(3))[..., None]
    one = [matching_loss(Fixed(), steps, "kl", picked=picked) for picked in picks]
    torch.testing.assert_close(
        torch.stack(one).mean(), matching_loss(Fixed(), steps, "kl")
    )
    assert torch.stack(one).std() > 0.01


def test_the_step_that_is_matched_is_drawn_anew() -> None:
    guest = build("patches")
    teacher = Teacher(guest.model, guest.x)
    student = Student(teacher, TransitionDiT(8, 3, n_heads=2).double())
    generator = torch.Generator().manual_seed(0)
    steps = teacher.sample(teacher.record(guest.x), generator)
    y = torch.tensor([0, 1, 2])
    got = [
        distillation_loss(
            student, steps, guest.x, y, generator=generator, performance_weight=0.0
        )[0]
        for _ in range(600)
    ]
    wanted = matching_loss(student.transition, steps, "kl")
    error = torch.stack(got).std() / 600**0.5
    assert error > 0
    assert abs(torch.stack(got).mean() - wanted) < 4 * error


def test_chains_average_probabilities_or_outputs() -> None:
    outputs = _normal(4, 3, 5)
    mean = CLASSIFICATION.average(outputs)
    torch.testing.assert_close(mean.exp(), outputs.softmax(dim=-1).mean(dim=0))
    y = torch.tensor([0, 1, 4])
    torch.testing.assert_close(
        CLASSIFICATION.loss(mean, y), F.nll_loss(outputs.softmax(-1).mean(0).log(), y)
    )
    torch.testing.assert_close(REGRESSION.average(outputs), outputs.mean(dim=0))


def test_both_losses_are_weighed_and_seeded() -> None:
    guest = build("patches")
    teacher = Teacher(guest.model, guest.x)
    student = Student(teacher, TransitionDiT(8, 3, n_heads=2).double())
    steps = teacher.sample(teacher.record(guest.x), torch.Generator().manual_seed(0))
    y = torch.tensor([0, 1, 2])

    def losses(**weights: float) -> tuple[Tensor, Tensor]:
        generator = torch.Generator().manual_seed(1)
        return distillation_loss(
            student, steps, guest.x, y, generator=generator, **weights
        )

    total, parts = losses(performance_weight=3.0)
    torch.testing.assert_close(total, parts[0] + 3 * parts[1])
    assert torch.equal(losses(performance_weight=3.0)[0], total)
    alone, parts = losses(performance_weight=0.0)
    assert torch.equal(alone, parts[0])
    assert parts[1] == 0
    total, parts = losses(matching_weight=2.0)
    torch.testing.assert_close(total, 2 * parts[0] + parts[1])
    task, parts = losses(matching_weight=0.0)
    torch.testing.assert_close(task, losses(performance_weight=1.0)[1][1])
    assert parts[0] == 0
    for weights in (
        {"performance_weight": -1.0},
        {"spread_weight": -1.0},
        {"matching_weight": -1.0},
        {"matching_weight": 0.0, "performance_weight": 0.0},
    ):
        with pytest.raises(ValueError, match="at least 0"):
            losses(**weights)
    with pytest.raises(ValueError, match="'kl' or 'mse'"):
        losses(loss="l1")
