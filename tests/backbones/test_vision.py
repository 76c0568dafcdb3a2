"""PatchTransformer: patches in their places, fields given back pixel by pixel."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import Tensor

from uqformer._random import seeded
from uqformer.backbones import PatchTransformer
from uqformer.exceptions import UQFormerWarning


def _images(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


def _model(x: Tensor, n_outputs: int = 1, **params: Any) -> PatchTransformer:
    small: dict[str, Any] = {"d_token": 16, "n_heads": 2, "n_blocks": 2}
    with seeded(0):
        model = PatchTransformer(x.shape[1], n_outputs, **(small | params))
        return model.adapt(x).eval()


def _gradient(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    leaf = x.clone().requires_grad_()
    return torch.autograd.grad(function(leaf).sum(), leaf)[0]


# -- Patches ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "patch", "grid"),
    [
        ((8, 8), (2, 2), (4, 4)),
        ((28, 28), (4, 4), (7, 7)),
        ((32, 32), (4, 4), (8, 8)),
        ((33, 49), (4, 4), (9, 13)),
        ((224, 224), (32, 32), (7, 7)),
        ((1, 100), (1, 2), (1, 50)),
        ((1, 1), (1, 1), (1, 1)),
    ],
)
def test_auto_makes_about_eight_by_eight_patches(
    size: tuple[int, int], patch: tuple[int, int], grid: tuple[int, int]
) -> None:
    x = _images(3, 2, *size)
    model = _model(x)
    assert (model.patch, model.grid) == (patch, grid)
    assert model.position.shape == (grid[0] * grid[1], 16)
    assert model(x).shape == (3, 1)


@pytest.mark.parametrize(("asked", "patch"), [(3, (3, 3)), ((2, 5), (2, 5))])
def test_patches_are_cut_row_by_row_and_padded(asked: Any, patch: Any) -> None:
    x = _images(4, 2, 5, 7)
    model = _model(x, patch_size=asked)
    cut = model._cut(x)
    height, width = patch
    padded = F.pad(x, (0, -7 % width, 0, -5 % height))
    expected = [
        padded[:, :, top : top + height, left : left + width].flatten(1)
        for top in range(0, 5, height)
        for left in range(0, 7, width)
    ]
    assert torch.equal(cut, torch.stack(expected, dim=1))


@pytest.mark.parametrize("n_fields", [1, 3])
@pytest.mark.parametrize("patch_size", [2, 3, (4, 2), "auto"])
def test_joining_undoes_cutting(n_fields: int, patch_size: Any) -> None:
    x = _images(4, n_fields, 5, 7)
    model = _model(x, n_fields * 5 * 7, patch_size=patch_size, output="field")
    assert torch.equal(model._join(model._cut(x), 5, 7), x.flatten(1))


def test_every_pixel_and_its_place_count() -> None:
    x = _images(6, 2, 5, 7)
    model = _model(x, patch_size=3)
    assert (_gradient(model, x).abs() > 1e-7).all()
    swapped = torch.cat([x[..., 3:6], x[..., :3], x[..., 6:]], dim=3)
    assert (model(swapped) - model(x)).abs().max() > 1e-3


def test_a_field_looks_at_the_whole_image() -> None:
    x = _images(6, 2, 6, 6)
    model = _model(x, 36, patch_size=2, output="field")
    corner = _gradient(lambda images: model(images)[:, 0], x)
    assert (corner.abs() > 0).all()
    assert (_gradient(lambda images: model(images)[0], x)[1:] == 0).all()


def test_without_its_blocks_a_field_is_read_patch_by_patch() -> None:
    x = _images(6, 2, 6, 6)
    model = _model(x, 36, patch_size=2, output="field")
    for block in model.blocks:
        for layer in (block.attention.out, block.contract):
            torch.nn.init.zeros_(layer.weight)
    of_last = _gradient(lambda images: model(images)[:, -1], x)
    assert (of_last[..., 4:, 4:] != 0).all()
    assert of_last.count_nonzero() == 6 * 2 * 2 * 2


# -- Units and shapes ---------------------------------------------------------------


@pytest.mark.parametrize("output", ["vector", "field"])
def test_units_of_the_channels_do_not_matter(output: Any) -> None:
    x = _images(20, 2, 4, 4)
    kelvin = x * torch.tensor([12.0, 0.003])[:, None, None] + 281.0
    plain, shifted = (_model(v, 16, output=output)(v) for v in (x, kelvin))
    torch.testing.assert_close(plain, shifted, rtol=1e-2, atol=1e-2)


def test_whole_numbers_are_pixels_too() -> None:
    x = torch.randint(0, 256, (9, 3, 8, 8), generator=torch.Generator().manual_seed(0))
    assert torch.equal(_model(x)(x), _model(x.float())(x.float()))


def test_images_without_channels_have_one() -> None:
    x = _images(9, 8, 8)
    assert torch.equal(_model(x, 2)(x), _model(x[:, None], 2)(x[:, None]))


def test_a_constant_channel_changes_nothing() -> None:
    x = _images(9, 2, 4, 4)
    x[:, 1] = 5.0
    assert torch.isfinite(_model(x)(x)).all()


@pytest.mark.parametrize("shape", [(9, 4), (9, 3, 8, 8), (9, 2, 3, 4, 5)])
def test_what_is_no_image_is_refused(shape: tuple[int, ...]) -> None:
    model = PatchTransformer(2, 1)
    expected = r"takes images \(n_samples, 2, height, width\).*got shape \(9, "
    with pytest.raises(ValueError, match=expected):
        model.adapt(_images(*shape))


def test_another_size_is_refused_later() -> None:
    model = _model(_images(9, 2, 8, 8))
    with pytest.raises(ValueError, match=r"rows, \(2, 8, 8\); got \(2, 8, 9\)\. Cut"):
        model(_images(9, 2, 8, 9))


def test_channels_that_seem_to_come_last_are_told() -> None:
    x = _images(4, 32, 32, 3)
    with pytest.warns(UQFormerWarning, match=r"32 channels of 32 x 3 .*transpose"):
        _model(x)
    _model(_images(4, 3, 32, 3))  # narrow, but no doubt


def test_a_field_needs_the_grid_of_its_inputs() -> None:
    x = _images(9, 2, 5, 7)
    expected = r"pixels of an image, 5 x 7 = 35; got n_outputs=36\. Bring"
    with pytest.raises(ValueError, match=expected):
        _model(x, 36, output="field")
    assert _model(x, 70, output="field")(x).shape == (9, 70)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"patch_size": 0}, "got patch_size=0"),
        ({"patch_size": (2, 2, 2)}, r"got patch_size=\(2, 2, 2\)"),
        ({"patch_size": "small"}, "got patch_size='small'"),
        ({"output": "map"}, "'vector' or 'field'; got output='map'"),
    ],
)
def test_what_cannot_be_built_is_said(params: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PatchTransformer(2, 1, **params)


def test_n_params_count_the_patches_too() -> None:
    model = PatchTransformer(2, 1, d_token=16, n_heads=2, patch_size=2)
    before = model.n_params
    after = model.adapt(_images(9, 2, 4, 6)).n_params
    assert after == before + (2 * 4 + 1) * 16 + 6 * 16


# -- Training -----------------------------------------------------------------------


def _fit(
    model: PatchTransformer, x: Tensor, y: Tensor, loss: Any, n_steps: int
) -> None:
    """Train with warm-up and decay, and with nothing tuned."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, fused=True)
    model.train()
    with seeded(0):
        for step in range(n_steps):
            share = min((step + 1) / 50, 1 - step / n_steps)
            optimizer.param_groups[0]["lr"] = 2e-3 * share
            rows = torch.randint(len(x), (32,))
            optimizer.zero_grad()
            loss(model(x[rows]), y[rows]).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
    model.eval()


def test_digits_are_read_without_tuning() -> None:
    images, labels = load_digits(return_X_y=True)
    with seeded(0):
        order = torch.randperm(len(labels))
        x = torch.from_numpy(images).reshape(-1, 8, 8)[order]
        y = torch.from_numpy(labels)[order]
        model = PatchTransformer(8, 10, n_blocks=2).adapt(x[:1300])
    _fit(model, x[:1300], y[:1300], F.cross_entropy, n_steps=400)
    with torch.no_grad():
        accuracy = (model(x[1300:]).argmax(dim=1) == y[1300:]).double().mean()
    assert accuracy > 0.93  # more than 0.97 by default and in a minute


def test_a_field_that_moves_is_followed() -> None:
    """Each pixel of the target is the pixel two places to its left, in a ring."""
    x = _images(1500, 1, 4, 6)
    y = x[:, 0].roll(2, dims=2).flatten(1)
    with seeded(0):
        model = PatchTransformer(
            1, 24, output="field", patch_size=2, d_token=32, n_blocks=1, dropout=0.0
        ).adapt(x[:1300])
    _fit(model, x[:1300], y[:1300], F.mse_loss, n_steps=300)
    with torch.no_grad():
        error = F.mse_loss(model(x[1300:]), y[1300:]) / y.var()
    assert error < 0.3  # of a field that no pixel of its own patch tells about
