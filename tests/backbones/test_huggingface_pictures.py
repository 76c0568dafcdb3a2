"""HFBackbone on pictures: processors, ImageNet's constants, pixel values, new heads."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.backbones.guests import make, pictures, run, untouched
from uqformer.attention import stochastic_attention
from uqformer.backbones import HFBackbone
from uqformer.backbones._pictures import IMAGENET_MEAN, IMAGENET_STD

KINDS = ["ViT", "Dinov2", "ConvNext"]


def classifier(kind: str = "ViT") -> Any:
    return make(kind, "ForImageClassification", num_labels=3)


def ready(X: Any) -> Any:
    """Normalise pictures by ImageNet's constants, (n, 3, H, W)."""
    return ((X / 255 - IMAGENET_MEAN) / IMAGENET_STD).transpose(0, 3, 1, 2)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Save a classifier with an image processor of its own."""
    classifier().save_pretrained(tmp_path)
    options = {
        "image_processor_type": "ViTImageProcessor",
        "do_resize": True,
        "size": {"height": 8, "width": 8},
        "do_normalize": True,
        "image_mean": [0.5, 0.4, 0.3],
        "image_std": [0.2, 0.3, 0.4],
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "resample": 2,
    }
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(options))
    return tmp_path


@pytest.mark.parametrize("size", [8, 20])
def test_the_processor_beside_a_model_prepares_its_pictures(
    folder: Path, size: int
) -> None:
    guest = HFBackbone(folder)
    X = pictures(height=size, width=size)
    pixels = guest.encode(X)["pixel_values"]
    assert pixels.shape == (3, 3, 8, 8)
    assert pixels.dtype == np.float32
    if size == 8:
        expected = (X / 255 - [0.5, 0.4, 0.3]) / [0.2, 0.3, 0.4]
        np.testing.assert_allclose(pixels, expected.transpose(0, 3, 1, 2), atol=1e-5)
    same = HFBackbone(classifier(), processor=guest._load_processor())
    np.testing.assert_array_equal(same.encode(X)["pixel_values"], pixels)
    by_name = HFBackbone(classifier(), processor=str(folder))
    np.testing.assert_array_equal(by_name.encode(X)["pixel_values"], pixels)


@pytest.mark.parametrize("processor", ["imagenet", None])
def test_a_picture_is_prepared_alike_in_any_company(
    folder: Path, processor: str | None
) -> None:
    Image = pytest.importorskip("PIL.Image")
    guest = HFBackbone(folder, processor=processor)
    X = [*pictures(2, 9, 12), Image.fromarray(pictures(1, 30, 8)[0])]
    whole = guest.encode(X)["pixel_values"]
    for i, picture in enumerate(X):
        alone = guest.encode([picture])["pixel_values"]
        np.testing.assert_array_equal(alone[0], whole[i])


def test_imagenet_normalises_where_it_is_asked_for() -> None:
    X = pictures()
    pixels = HFBackbone(classifier(), processor="imagenet").encode(X)["pixel_values"]
    np.testing.assert_allclose(pixels, ready(X), atol=1e-5)


def test_pictures_need_a_processor() -> None:
    with pytest.raises(ValueError, match=r"processor='imagenet', or X as float pixel"):
        HFBackbone(classifier()).encode(pictures())


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_float_arrays_are_ready_for_the_model(dtype: Any) -> None:
    pixels = ready(pictures()).astype(dtype)
    guest = HFBackbone(classifier())
    for X in (pixels, {"pixel_values": pixels}, {"pixel_values": torch.tensor(pixels)}):
        encoded = guest.encode(X)["pixel_values"]
        np.testing.assert_array_equal(encoded, pixels.astype(np.float32))


@pytest.mark.parametrize(
    ("X", "error", "message"),
    [
        (np.ones((2, 8, 8, 3)), ValueError, r"X.transpose\(0, 3, 1, 2\)"),
        (np.ones((2, 3, 8, 8), np.uint8), ValueError, r"X.transpose\(0, 2, 3, 1\)"),
        (np.ones((2, 64)), ValueError, r"got dtype=float64 and shape \(2, 64\)"),
        (["cat.png"], TypeError, "row 0 is str"),
        ({"pixels": np.ones((2, 3, 8, 8))}, ValueError, "must have 'pixel_values'"),
    ],
)
def test_bad_pictures_are_named(X: Any, error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        HFBackbone(classifier(), processor="imagenet").encode(X)


@pytest.mark.parametrize("kind", KINDS)
def test_a_classifier_is_run_as_it_is(kind: str) -> None:
    size = 32 if kind == "ConvNext" else 8
    guest = HFBackbone(classifier(kind), processor="imagenet")
    arrays = guest.encode(pictures(height=size, width=size))
    with untouched(guest.model):
        logits = run(guest.build(3), arrays)
    with torch.no_grad():
        pixels = torch.from_numpy(arrays["pixel_values"])
        assert torch.equal(logits, guest.model.eval()(pixels).logits)


@pytest.mark.parametrize("pooling", ["auto", "cls"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_head_is_trained_on_the_states(kind: str, pooling: Any) -> None:
    size = 32 if kind == "ConvNext" else 8
    guest = HFBackbone(make(kind), processor="imagenet", train="head", pooling=pooling)
    arrays = guest.encode(pictures(height=size, width=size))
    with untouched(guest.model):
        module = guest.build(2)
        run(module, arrays).sum().backward()
        states = guest.model(torch.from_numpy(arrays["pixel_values"]))
    assert module.head.weight.grad.abs().sum() > 0
    states = states.last_hidden_state
    states = states.flatten(2).transpose(1, 2) if states.ndim == 4 else states
    pooled = states[:, 0] if pooling == "cls" else states.mean(dim=1)
    torch.testing.assert_close(
        run(module, arrays), module.head(pooled), atol=1e-5, rtol=1e-4
    )


def test_its_attention_is_redrawn() -> None:
    guest = HFBackbone(classifier(), processor="imagenet")
    module, arrays = guest.build(3).eval(), guest.encode(pictures())
    exact = run(module, arrays)
    with untouched(guest.model), stochastic_attention(module, n_draws=2, seed=0) as tap:
        redrawn = run(module, arrays)
    assert tap.n_redraws == 2
    assert not torch.allclose(redrawn, exact, atol=1e-3)
