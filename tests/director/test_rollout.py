"""Chains: every row its own exact distribution, whatever stands beside it."""

import pytest
import torch
from torch import Tensor, nn

from tests.director.test_dit import _trained_like
from uqformer.director import TransitionDiT, rollout
from uqformer.director._rollout import shared_noise

START = torch.randn(3, 5, 16, generator=torch.Generator().manual_seed(1))


class Drift(nn.Module):
    """Adds 1 a step, and varies by `variance`; notes the times it is asked for."""

    def __init__(self, n_steps: int, variance: float = 0.0) -> None:
        super().__init__()
        self.n_steps = n_steps
        self.log_variance = torch.tensor(variance).log()
        self.times: list[float] = []

    def forward(self, state: Tensor, time: Tensor, visible: Tensor | None):
        self.times.append(float(time))
        return state + 1, self.log_variance.expand_as(state)


def test_a_chain_without_variance_ends_where_the_means_lead() -> None:
    transition = Drift(4)
    for seeds in (None, [0, 1]):
        ends = rollout(transition, START, seeds=seeds)
        torch.testing.assert_close(ends, (START + 4).expand_as(ends))
    assert transition.times[:4] == [1.0, 0.75, 0.5, 0.25]


@pytest.mark.parametrize("n_steps", [1, 2, 4])
def test_fewer_steps_are_larger(n_steps: int) -> None:
    """The mean goes as far, and the variance is as large, in fewer steps."""
    transition = Drift(4, variance=0.25)
    start = torch.zeros(1, 40, 16)
    exact = rollout(transition, start, seeds=None, n_steps=n_steps)
    torch.testing.assert_close(exact[0], start + 4)
    ends = rollout(transition, start, seeds=range(30), n_steps=n_steps)
    n = ends.numel()
    assert abs(ends.mean() - 4) < 4 * n**-0.5
    assert abs(ends.var() - 4 * 0.25) < 4 * (2 / n) ** 0.5


def test_each_row_has_the_distribution_of_a_chain() -> None:
    """Noise is standard normal over seeds, and independent over steps and places."""
    like = torch.zeros(2000 * 2, 2, 3)
    noise = shared_noise(range(2000))
    first, second = noise(0, like), noise(1, like)
    assert torch.equal(first[0], first[1])  # the rows of one chain
    columns = torch.cat([part[::2].flatten(1) for part in (first, second)], dim=1)
    assert columns.mean(dim=0).abs().max() < 5 * 2000**-0.5
    covariance = columns.T.cov()
    assert (covariance - torch.eye(12)).abs().max() < 5 * (2 / 2000) ** 0.5
    kurtosis = (columns**4).mean()
    assert abs(kurtosis - 3) < 5 * (96 / columns.numel()) ** 0.5


def test_a_row_does_not_depend_on_its_neighbours_or_padding() -> None:
    transition = _trained_like()
    with torch.no_grad():
        whole = rollout(transition, START, seeds=[4, 5])
        alone = rollout(transition, START[1:2], seeds=[5])
        torch.testing.assert_close(whole[1, 1], alone[0, 0])
        padded = torch.cat([START, torch.full((3, 4, 16), 9.0)], dim=1)
        visible = (torch.arange(9) < 5).expand(3, 1, 1, 9)
        ends = rollout(transition, padded, seeds=[4, 5], visible=visible)
    torch.testing.assert_close(ends[:, :, :5], whole, atol=1e-5, rtol=1e-5)


def test_seeds_are_functions() -> None:
    transition = _trained_like()
    before = torch.random.get_rng_state()
    with torch.no_grad():
        first, again, other = (
            rollout(transition, START, seeds=[seed]) for seed in (7, 7, 8)
        )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_gradients_flow_through_every_step() -> None:
    transition = TransitionDiT(16, 3)
    start = START.clone().requires_grad_()
    rollout(transition, start, seeds=[0]).sum().backward()
    assert start.grad is not None
    assert transition.log_variance.bias.grad.abs().min() > 0


def test_wrong_seeds_and_steps_are_refused() -> None:
    with pytest.raises(ValueError, match="one seed for each chain"):
        rollout(Drift(4), START, seeds=[])
    for n_steps in (0, 5):
        with pytest.raises(ValueError, match="between 1 and 4"):
            rollout(Drift(4), START, seeds=[0], n_steps=n_steps)
