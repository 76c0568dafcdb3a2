"""SequenceTransformer: patches of time, and forecasts in the units of their window."""

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from uqformer._random import seeded
from uqformer.attention import forward_members
from uqformer.backbones import SequenceTransformer


def _windows(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


def _model(x: Tensor, n_outputs: int = 1, **params: Any) -> SequenceTransformer:
    small: dict[str, Any] = {"d_token": 16, "n_heads": 2, "n_blocks": 2}
    with seeded(0):
        model = SequenceTransformer(x.shape[1], n_outputs, **(small | params))
        return model.adapt(x).eval()


# -- Patches of time ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("n_steps", "length"),
    [(1, 1), (24, 1), (32, 1), (33, 2), (96, 4), (336, 16), (512, 16), (513, 32)],
)
def test_auto_makes_at_most_32_patches(n_steps: int, length: int) -> None:
    model = _model(_windows(3, n_steps))
    assert model.patch_length == length
    assert model.position.shape == (-(-n_steps // length), 16)
    assert model(_windows(3, n_steps)).shape == (3, 1)


def test_a_short_window_is_one_patch() -> None:
    model = _model(_windows(3, 5), patch_length=8)
    assert model.patch_length == 5
    assert len(model.position) == 1


def test_windows_are_padded_at_their_beginning() -> None:
    x = _windows(6, 7, 2)
    model = _model(x, patch_length=3)
    longer = torch.cat([x[:, :1], x[:, :1], x], dim=1)
    patches = longer.unfold(1, 3, 3).transpose(2, 3).flatten(2)  # step by step
    expected = model.embed(patches) + model.position
    torch.testing.assert_close(model._tokens(x), expected)


def test_every_step_and_its_place_count() -> None:
    x = _windows(6, 9, 2)
    model = _model(x, patch_length=2)
    leaf = x.clone().requires_grad_()
    gradient = torch.autograd.grad(model(leaf)[0].sum(), leaf)[0]
    assert (gradient[0].abs() > 1e-7).all()
    assert (gradient[1:] == 0).all()
    assert (model(x.flip(1)) - model(x)).abs().max() > 1e-3


def test_one_series_needs_no_channels() -> None:
    x = _windows(9, 8)
    assert torch.equal(_model(x, 2)(x), _model(x[..., None], 2)(x[..., None]))


# -- Units --------------------------------------------------------------------------


@pytest.mark.parametrize("normalise", ["window", None])
def test_units_of_the_channels_do_not_matter(normalise: Any) -> None:
    x = _windows(20, 8, 2)
    kelvin = x * torch.tensor([12.0, 0.003]) + 281.0
    params = {"normalise": normalise, "target_channels": 0 if normalise else None}
    plain, shifted = (_model(v, 3, **params)(v) for v in (x, kelvin))
    torch.testing.assert_close(plain, shifted, rtol=1e-2, atol=2e-2)


def test_scales_are_those_of_channels_and_not_of_steps() -> None:
    x = _windows(20, 8) * torch.arange(1, 9)
    model = _model(x)
    assert SequenceTransformer.scales_inputs
    assert model.channel_scale.item() == pytest.approx(float(x.std(correction=0)))


def test_a_window_sets_the_units_of_its_forecast() -> None:
    """Moved and stretched windows have forecasts moved and stretched alike."""
    x = _windows(20, 8)
    model = _model(x, 3, normalise="window")
    unit = model.channel_scale
    moved = model(5 * x + 3 * unit)
    expected = 5 * model(x) + 3 + 4 * model.channel_mean / unit
    torch.testing.assert_close(moved, expected, rtol=1e-3, atol=1e-3)
    level = _model(x, 3)
    assert (level(5 * x + 3) - 5 * level(x) - 3).abs().max() > 1


@pytest.mark.parametrize("targets", [[1, -1], 2, [0, 1, 2]])
def test_outputs_are_steps_ahead_by_target_channels(targets: Any) -> None:
    """A head that says the same for all windows gives it in the units of each."""
    x = _windows(20, 8, 3) * 2 + torch.tensor([1.0, 2.0, 3.0])
    chosen = [targets] if isinstance(targets, int) else targets
    said = torch.arange(2.0 * len(chosen)).reshape(2, -1)  # (ahead, targets)
    params = {"normalise": "window", "target_channels": targets}
    model = _model(x, said.numel(), **params)
    torch.nn.init.zeros_(model.head.weight)
    with torch.no_grad():
        model.head.bias.copy_(said.flatten())
    scaled = (x - x.mean((0, 1))) / x.std((0, 1), correction=0)
    level, spread = scaled.mean(1)[:, None], scaled.std(1, correction=0)[:, None]
    expected = level[..., chosen] + spread[..., chosen] * said  # (N, ahead, targets)
    torch.testing.assert_close(model(x), expected.flatten(1), rtol=1e-3, atol=1e-3)


def test_gain_and_shift_lead_to_other_units() -> None:
    x = _windows(20, 8)
    model = _model(x, 2, normalise="window")
    before = model(x)
    with torch.no_grad():
        model.units.gain.copy_(torch.tensor([2.0, 3.0]))
        model.units.shift.copy_(torch.tensor([5.0, 7.0]))
    expected = before * torch.tensor([2.0, 3.0]) + torch.tensor([5.0, 7.0])
    torch.testing.assert_close(model(x), expected)


def test_a_flat_window_has_a_finite_forecast_near_its_level() -> None:
    x = _windows(20, 8)
    x[0] = 2.5
    model = _model(x, 3, normalise="window")
    level = (2.5 - model.channel_mean) / model.channel_scale
    assert (model(x)[0] - level).abs().max() < 0.02


# -- What is refused ----------------------------------------------------------------


@pytest.mark.parametrize("shape", [(9,), (9, 5), (9, 4, 2, 2)])
def test_what_is_no_window_is_refused(shape: tuple[int, ...]) -> None:
    model = SequenceTransformer(4, 1)
    expected = r"takes windows \(n_samples, 4\) or .*got shape \(9,"
    with pytest.raises(ValueError, match=expected):
        model.adapt(_windows(*shape))


def test_another_shape_is_refused_later() -> None:
    model = _model(_windows(9, 8, 2))
    with pytest.raises(ValueError, match=r"rows, \(8, 2\); got \(8, 3\)\. Cut"):
        model(_windows(9, 8, 3))


def test_constant_windows_are_refused() -> None:
    with pytest.raises(ValueError, match="all 2 are constant over 9 rows"):
        _model(torch.ones(9, 8, 2))


@pytest.mark.parametrize(
    ("targets", "n_outputs", "message"),
    [
        (
            None,
            2,
            "which of the 3 channels the outputs continue; got target_channels=No",
        ),
        (3, 2, "positions among 3 channels; got target_channels=3"),
        ([0, -4], 2, r"among 3 channels; got target_channels=\[0, -4\]"),
        ([], 2, r"got target_channels=\[\]"),
        ([0, 1], 3, "got n_outputs=3 for 2 target_channels"),
    ],
)
def test_targets_must_fit(targets: Any, n_outputs: int, message: str) -> None:
    params = {"normalise": "window", "target_channels": targets}
    with pytest.raises(ValueError, match=message):
        _model(_windows(9, 8, 3), n_outputs, **params)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"patch_length": 0}, "got patch_length=0"),
        ({"patch_length": "long"}, "got patch_length='long'"),
        ({"normalise": "instance"}, "'window' or None; got normalise='instance'"),
        ({"target_channels": 0}, "got target_channels=0 with normalise=None"),
    ],
)
def test_what_cannot_be_built_is_said(params: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SequenceTransformer(8, 1, **params)


def test_n_params_count_the_channels_too() -> None:
    model = SequenceTransformer(8, 1, d_token=16, n_heads=2, patch_length=4)
    before = model.n_params
    assert model.adapt(_windows(9, 8, 3)).n_params == before + (4 * 3 + 1) * 16


# -- Forecasts ----------------------------------------------------------------------


@pytest.mark.parametrize("normalise", ["window", None])
def test_a_sine_is_continued_without_tuning(normalise: Any) -> None:
    """Noise has a standard deviation of 0.1; persistence errs by more than 1."""
    rng = np.random.default_rng(0)
    time = np.arange(700)
    series = np.sin(time / 4) + 0.1 * rng.standard_normal(700)
    rows = np.lib.stride_tricks.sliding_window_view(series, 32)
    rows = torch.from_numpy(rows.astype(np.float32))
    x, y = rows[:, :24], rows[:, 24:]
    with seeded(0):
        model = SequenceTransformer(
            24, 8, normalise=normalise, patch_length=4, d_token=32, n_blocks=2
        ).adapt(x[:500])
        _fit(model, x[:500], y[:500])
    with torch.no_grad():
        error = F.mse_loss(model(x[540:]), y[540:]).sqrt()
    persistence = F.mse_loss(x[540:, -1:].expand(-1, 8), y[540:]).sqrt()
    assert persistence > 0.8
    assert error < 0.3 * persistence
    members = [
        m for *_, m in forward_members(model, [x[540:]], n_draws=4, seeds=[0, 1])
    ]
    assert (members[0] - members[1]).abs().mean() > 0.01


def _fit(model: SequenceTransformer, x: Tensor, y: Tensor) -> None:
    """Train with warm-up, and with nothing tuned."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, fused=True)
    model.train()
    for step in range(250):
        optimizer.param_groups[0]["lr"] = 2e-3 * min(1, (step + 1) / 50)
        rows = torch.randint(len(x), (32,))
        optimizer.zero_grad()
        F.mse_loss(model(x[rows]), y[rows]).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    model.eval()
