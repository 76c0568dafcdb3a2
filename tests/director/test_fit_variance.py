"""Variances are fitted, and nothing else is."""

import pytest
import torch
import torch.nn.functional as F

from tests.director.conftest import Digits, digest
from uqformer.director import (
    KernelEigenVariance,
    RedrawVariance,
    SparseGPVariance,
    Task,
    Teacher,
    choose_n_draws,
    fit_variance,
)
from uqformer.director._shell import Shell


@pytest.mark.parametrize("kind", [SparseGPVariance, KernelEigenVariance])
def test_the_bound_improves_and_the_model_stays(digits: Digits, kind) -> None:
    x, y = digits.train[0][:100], digits.train[1][:100]
    before = digest(digits.model)
    teacher = Teacher(digits.model, x[:4])
    teacher.variance = kind(teacher, x[:20])
    state = torch.random.get_rng_state()
    losses = fit_variance(teacher, x, y, seed=0, max_epochs=6, learning_rate=0.03)
    assert losses[-1] < losses[0] - 0.1
    assert digest(digits.model) == before
    assert all(p.grad is None for p in digits.model.parameters())
    assert torch.equal(torch.random.get_rng_state(), state)


def test_a_fit_is_seeded(digits: Digits) -> None:
    x, y = digits.train[0][:40], digits.train[1][:40]
    losses = []
    for seed in (1, 1, 2):
        teacher = Teacher(digits.model, x[:4])
        teacher.variance = SparseGPVariance(teacher, x[:20], n_inducing=4)
        losses.append(fit_variance(teacher, x, y, seed=seed, max_epochs=2))
    assert losses[0] == losses[1]
    assert losses[0] != losses[2]


def test_there_must_be_something_to_fit(digits: Digits) -> None:
    x, y = digits.train
    with pytest.raises(TypeError, match="RedrawVariance"):
        fit_variance(Teacher(digits.model, x[:4]), x, y, seed=0)


def test_numbers_are_tried_until_two_in_a_row_do_worse(digits: Digits) -> None:
    x, y = digits.valid[0][:4], digits.valid[1][:4]
    losses = iter([5.0, 4.0, 4.5, 3.0, 3.5, 3.2])  # a seventh would be an error
    task = Task(lambda output, y: torch.tensor(next(losses)), lambda outputs: outputs)
    teacher = Teacher(digits.model, x)
    assert choose_n_draws(teacher, x, y, seed=0, task=task, n_chains=1) == 8
    assert list(losses) == []


def test_the_number_of_draws_that_loses_least_is_chosen(digits: Digits) -> None:
    """Against a loop of its own; a model that is too sure wants few draws."""
    x, y = digits.valid[0][:30], digits.valid[1][:30]
    teacher = Teacher(digits.model, x[:4])
    head, chain = Shell(digits.model, teacher.cuts), teacher.record(x)
    before = digest(digits.model)
    chosen = choose_n_draws(teacher, x, y, seed=0, n_chains=3)
    assert chosen < 256
    assert isinstance(teacher.variance, RedrawVariance)
    assert teacher.variance.n_draws == chosen
    losses = {}
    for n_draws in (1, chosen, 256):
        teacher.variance = RedrawVariance(n_draws)
        proba = torch.zeros(30, 10)
        for seed in range(12):
            generator = torch.Generator().manual_seed(seed)
            steps = teacher.sample(chain, generator)
            noise = torch.randn(steps.means[:, -1].shape, generator=generator)
            end = steps.means[:, -1] + steps.variances[:, -1].sqrt() * noise
            with torch.no_grad():
                proba += head(x, lambda start, visible, end=end: end).softmax(dim=-1)
        losses[n_draws] = F.nll_loss((proba / 12).log(), y).item()
    assert losses[chosen] < losses[256]
    assert losses[chosen] <= losses[1] + 0.1
    assert digest(digits.model) == before
