"""Tasks that weigh rows: as often as a row were there, and without bias."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from uqformer.director._tasks import (
    WEIGHTED_CLASSIFICATION,
    spread_task,
    weighted_regression,
)


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("kind", ["classes", "numbers", "spread"])
def test_a_weight_is_how_often_a_row_is_there(kind: str) -> None:
    unit = torch.tensor([1.0, 2.0, 0.5])
    task = {
        "classes": WEIGHTED_CLASSIFICATION,
        "numbers": weighted_regression(unit),
        "spread": spread_task(unit),
    }[kind]
    outputs = normal(4, 3, 3) if kind == "spread" else normal(3, 3)
    wanted = normal(3, 3, seed=1)
    if kind == "classes":
        wanted = wanted.softmax(dim=1)
    times = torch.tensor([1, 3, 2])
    weighted = torch.cat([wanted, times[:, None] / 2.0], dim=1)  # of mean 1
    repeated = torch.cat([wanted, torch.ones(3, 1)], dim=1).repeat_interleave(times, 0)
    rows = outputs.repeat_interleave(times, dim=-2)
    torch.testing.assert_close(task.loss(outputs, weighted), task.loss(rows, repeated))


def test_tasks_without_weights_are_the_plain_ones() -> None:
    outputs, codes = normal(5, 3), torch.tensor([0, 1, 2, 0, 1])
    ones, hot = torch.ones(5, 1), F.one_hot(codes, 3)
    torch.testing.assert_close(
        WEIGHTED_CLASSIFICATION.loss(outputs, torch.cat([hot, ones], 1)),
        F.cross_entropy(outputs, codes),
    )
    proba = normal(5, 3, seed=1).softmax(dim=1)
    torch.testing.assert_close(
        WEIGHTED_CLASSIFICATION.loss(outputs, torch.cat([proba, ones], 1)),
        -(proba * outputs.log_softmax(dim=1)).sum(dim=1).mean(),
    )
    y, unit = normal(5, 3, seed=1), torch.tensor([1.0, 2.0, 0.5])
    torch.testing.assert_close(
        weighted_regression(unit).loss(outputs, torch.cat([y, ones], 1)),
        F.mse_loss(outputs / unit, y / unit),
    )
    # one output may come without an axis for it
    torch.testing.assert_close(
        weighted_regression(unit[:1]).loss(
            outputs[:, 0], torch.cat([y[:, :1], ones], 1)
        ),
        F.mse_loss(outputs[:, 0], y[:, 0]),
    )


def test_chains_are_scored_by_their_ranks() -> None:
    """Against a loop over pairs, and least for chains that spread as the truth does."""
    chains, y = normal(5, 4, 2), normal(4, 2, seed=1)
    task = spread_task(torch.ones(2))
    assert torch.equal(task.average(chains), chains)
    got = task.loss(chains, torch.cat([y, torch.ones(4, 1)], dim=1))
    error = (chains - y).abs().mean()
    pairs = [
        (chains[i] - chains[j]).abs() for i in range(5) for j in range(5) if i != j
    ]
    torch.testing.assert_close(got, error - torch.stack(pairs).mean() / 2)

    truth = torch.cat([normal(20_000, 1, seed=2), torch.ones(20_000, 1)], dim=1)
    noise, task = normal(5, 20_000, 1, seed=3), spread_task(torch.ones(1))
    losses = {scale: float(task.loss(scale * noise, truth)) for scale in (0.0, 1, 3)}
    # 1 / sqrt(pi) is the score of a normal distribution that is right
    assert losses[1] == pytest.approx(math.pi**-0.5, abs=0.02)
    assert losses[1] < min(losses[0.0], losses[3]) - 0.05
