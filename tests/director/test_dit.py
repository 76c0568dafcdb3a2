"""One block for every step."""

import itertools

import pytest
import torch
from torch import nn

from uqformer._random import seeded
from uqformer._seam import handled_by
from uqformer.attention import stochastic_attention
from uqformer.director import TransitionDiT, transition_for

STATE = torch.randn(3, 5, 16, generator=torch.Generator().manual_seed(0))
TIMES = torch.tensor([1.0, 0.5, 0.25])


def _trained_like(**sizes) -> TransitionDiT:
    """A transition whose gates and heads are no longer zero."""
    with seeded(0):
        transition = TransitionDiT(16, 4, **sizes)
        for parameter in transition.parameters():
            nn.init.normal_(parameter, std=0.2)
    return transition.eval()


def test_a_fresh_transition_is_a_plain_block() -> None:
    """The same at all times, and as sure of every number."""
    transition = TransitionDiT(16, 4)
    mean, log_variance = transition(STATE, TIMES)
    block = transition
    after = STATE + block.attention(block.norm(STATE), None)
    torch.testing.assert_close(mean, after + block.feedforward(block.norm(after)))
    assert torch.equal(log_variance, torch.full_like(STATE, -4.0))


def test_a_narrow_block_only_adds() -> None:
    """What it cannot hold stays in the state."""
    transition = TransitionDiT(16, 4, inner_width=8)
    nn.init.zeros_(transition.leave.weight)
    nn.init.zeros_(transition.leave.bias)
    mean, _ = transition(STATE, TIMES)
    assert torch.equal(mean, STATE)


def test_a_fresh_transition_can_learn() -> None:
    """Zero heads pass a gradient to themselves, and after one step to all else."""
    with seeded(0):
        transition = TransitionDiT(16, 4, n_heads=2)
    optimizer = torch.optim.SGD(transition.parameters(), lr=0.1)
    for _ in range(3):
        mean, log_variance = transition(STATE, TIMES)
        optimizer.zero_grad()
        ((mean - STATE.flip(0)) ** 2 + log_variance**2).mean().backward()
        optimizer.step()
    without = [
        name
        for name, p in transition.named_parameters()
        if p.grad is None or not p.grad.any()
    ]
    assert without == []


def test_time_tells_steps_apart() -> None:
    transition = _trained_like()
    steps = [transition(STATE, torch.tensor(step / 4))[0] for step in range(1, 5)]
    for first, second in itertools.pairwise(steps):
        assert (first - second).abs().max() > 1e-2


def test_a_time_for_each_row_is_a_time_for_all() -> None:
    transition = _trained_like()
    mean, log_variance = transition(STATE, TIMES)
    for row, time in enumerate(TIMES):
        alone = transition(STATE[row : row + 1], time)
        torch.testing.assert_close(mean[row], alone[0][0])
        torch.testing.assert_close(log_variance[row], alone[1][0])


def test_the_log_variance_keeps_to_its_range() -> None:
    transition = _trained_like()
    with torch.no_grad():
        transition.log_variance.weight *= 1000
    _, log_variance = transition(STATE, TIMES)
    assert (log_variance.min(), log_variance.max()) == (-10, 2)


def test_hidden_keys_are_not_seen_and_hidden_queries_see_themselves() -> None:
    transition = _trained_like()
    visible = torch.ones(3, 1, 1, 5, dtype=torch.bool)
    visible[..., 3:] = False
    mean, _ = transition(STATE, TIMES, visible)
    changed = STATE.clone()
    changed[:, 3:] = changed[:, 3:].flip(-1)
    other, _ = transition(changed, TIMES, visible)
    torch.testing.assert_close(other[:, :3], mean[:, :3])
    nobody = torch.zeros(1, 1, 5, 5, dtype=torch.bool)
    assert torch.isfinite(transition(STATE, TIMES, nobody)[0]).all()
    with handled_by(lambda probs, module: probs):
        assert torch.isfinite(transition(STATE, TIMES, nobody)[0]).all()
    seen, _ = transition(changed, TIMES)
    assert (seen[:, :3] - transition(STATE, TIMES)[0][:, :3]).abs().max() > 1e-2


def test_attention_goes_through_the_seam() -> None:
    transition = _trained_like()
    plain = transition(STATE, TIMES)
    with handled_by(lambda probs, module: probs):
        same = transition(STATE, TIMES)
    torch.testing.assert_close(same, plain)
    with handled_by(lambda probs, module: probs.repeat(2, 1, 1, 1)):
        mean, _ = transition(STATE, TIMES)
    torch.testing.assert_close(mean, plain[0].repeat(2, 1, 1))
    with stochastic_attention(transition, n_draws=2, seed=0) as tap:
        redrawn, _ = transition(STATE, TIMES)
    assert tap.n_redraws == 1
    assert not torch.equal(redrawn, plain[0])


def test_its_parameters_are_counted() -> None:
    width, hidden = 16, 32
    transition = TransitionDiT(width, 4, mlp_ratio=2.0)

    def linear(n_in: int, n_out: int) -> int:
        return n_in * n_out + n_out

    expected = (
        2 * linear(4, 4)  # time
        + linear(4, 6 * width)  # modulation
        + linear(width, 3 * width) + linear(width, width)  # attention
        + linear(width, hidden) + linear(hidden, width)  # feed-forward
        + linear(4, 2 * width)  # last modulation
        + 2 * linear(width, width)  # heads
    )  # fmt: skip
    assert transition.n_params == expected


@pytest.mark.parametrize("n_params", [4_000, 30_000, 100_000, 1_000_000])
def test_the_largest_that_fits_is_built(n_params: int) -> None:
    transition = transition_for(64, 5, n_params=n_params)
    assert transition.n_params <= n_params
    wider = {4_000: 12, 30_000: 52}.get(n_params)
    if wider is not None:
        assert TransitionDiT(64, 5, inner_width=wider).n_params > n_params
    mean, _ = transition(torch.zeros(1, 2, 64), torch.tensor(1.0))
    assert mean.shape == (1, 2, 64)


def test_sizes_that_cannot_be_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        TransitionDiT(16, 0)
    with pytest.raises(ValueError, match="multiple of n_heads"):
        TransitionDiT(18, 4)
    with pytest.raises(ValueError, match="even"):
        TransitionDiT(9, 4, n_heads=3)
    with pytest.raises(ValueError, match="ask for at least"):
        transition_for(64, 5, n_params=100)
    # a width that no head divides is narrowed inside
    assert transition_for(18, 5, n_params=100_000).inner_width == 16
