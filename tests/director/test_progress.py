"""Averages, the best of them, and going on from a saved state."""

import io

import pytest
import torch
from torch import nn

from uqformer.director._progress import Progress


def _progress() -> tuple[nn.Linear, Progress]:
    linear = nn.Linear(1, 1)
    nn.init.zeros_(linear.weight)
    nn.init.zeros_(linear.bias)
    optimizer = torch.optim.AdamW(linear.parameters())
    return linear, Progress(dict(linear.named_parameters()), optimizer)


def _move(linear: nn.Linear, value: float, progress: Progress) -> None:
    nn.init.constant_(linear.weight, value)
    progress.update()


def test_the_average_remembers_more_as_it_goes() -> None:
    linear, progress = _progress()
    expected = 0.0
    for step in range(1, 1200):
        _move(linear, float(step), progress)
        decay = min(0.99, (1 + step) / (10 + step))
        expected = decay * expected + (1 - decay) * step
    with progress.averaged():
        assert linear.weight.item() == pytest.approx(expected, rel=1e-4)
    assert linear.weight.item() == 1199


def test_the_best_is_left_and_misses_are_counted() -> None:
    linear, progress = _progress()
    averages = []
    for value, loss in [(1.0, 0.5), (2.0, 0.3), (3.0, 0.4), (4.0, float("nan"))]:
        _move(linear, value, progress)
        with progress.averaged():
            averages.append(linear.weight.item())
        progress.remember({"valid_loss": loss})
    assert progress.misses == 2
    assert progress.best_loss == 0.3
    progress.leave_best()
    assert linear.weight.item() == averages[1]


def test_a_state_survives_a_file() -> None:
    """Nothing but tensors, numbers, lists and dicts: it loads without pickled code."""
    linear, progress = _progress()
    _move(linear, 1.0, progress)
    progress.remember({"valid_loss": 0.5})
    file = io.BytesIO()
    torch.save(progress.state_dict(), file)
    _move(linear, 7.0, progress)  # what is saved does not change any more
    file.seek(0)
    other_linear, other = _progress()
    other.load_state_dict(torch.load(file, weights_only=True))
    assert other_linear.weight.item() == 1.0
    assert other.history == [{"valid_loss": 0.5}]
    assert (other.best_loss, other.misses, other.n_updates) == (0.5, 0, 1)
