"""TimmBackbone: pictures as timm's own transforms prepare them, heads and redraws."""

import pickle
import sys
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import clone
from torch import Tensor, nn

from tests.backbones.guests import pictures, run, untouched
from uqformer.attention import forward_members
from uqformer.backbones import TimmBackbone
from uqformer.backbones._adapters import GuestProtocol

VIT = {"patch_size": 4, "embed_dim": 8, "depth": 2, "num_heads": 2, "img_size": 16}
REASON = "timm needs torchvision, which has no build beside the CPU build of torch"


class Plain(nn.Module):
    """Has of timm's interface what is asked for, and needs no timm."""

    head_hidden_size = 3
    pretrained_cfg = {
        "input_size": (3, 8, 8),
        "mean": (0.5, 0.4, 0.3),
        "std": (0.2, 0.3, 0.4),
        "interpolation": "bicubic",
        "crop_pct": 1.0,
    }

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 3)
        self.dropout = nn.Dropout(0.5)
        self.fc = nn.Linear(3, 2)

    def forward_features(self, x: Tensor) -> Tensor:
        return self.dropout(self.conv(x))  # (N, 3, 6, 6)

    def forward_head(self, x: Tensor, pre_logits: bool = False) -> Tensor:
        pooled = x.mean(dim=(2, 3))  # (N, 3)
        return pooled if pre_logits else self.fc(pooled)

    def forward(self, x: Tensor) -> Tensor:
        return self.forward_head(self.forward_features(x))


def create(name: str = "vit_tiny_patch16_224", **options: Any) -> Any:
    timm = pytest.importorskip("timm", reason=REASON)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = timm.create_model(name, num_classes=3, **options)
        for weight in model.parameters():  # at birth attention is flat
            weight.data.add_(0.3 * torch.randn_like(weight))
    return model.train()


@pytest.fixture
def model() -> Plain:
    torch.manual_seed(0)
    return Plain()


def test_pictures_are_prepared_as_the_config_says(model: Plain) -> None:
    X = pictures()
    pixels = TimmBackbone(model).encode(X)["x"]
    expected = (X / 255 - model.pretrained_cfg["mean"]) / model.pretrained_cfg["std"]
    np.testing.assert_allclose(pixels, expected.transpose(0, 3, 1, 2), atol=1e-5)


def test_float_arrays_are_ready(model: Plain) -> None:
    pixels = np.ones((2, 3, 8, 8))
    guest = TimmBackbone(model)
    for X in (pixels, {"x": pixels}):
        np.testing.assert_array_equal(guest.encode(X)["x"], pixels)
    with pytest.raises(ValueError, match=r"X.transpose\(0, 3, 1, 2\)"):
        guest.encode(np.ones((2, 8, 8, 3)))
    with pytest.raises(ValueError, match=r"must hold 'x' alone; got \['y'\]"):
        guest.encode({"y": pixels})


def test_a_model_is_run_as_it_is(model: Plain) -> None:
    guest = TimmBackbone(model)
    arrays = guest.encode(pictures())
    with untouched(model):
        output = run(guest.build(2), arrays)
    assert torch.equal(output, model.eval()(torch.from_numpy(arrays["x"])))


@pytest.mark.parametrize("train", ["head", "all"])
def test_training_leaves_the_model_alone(model: Plain, train: Any) -> None:
    guest = TimmBackbone(model, train=train)
    arrays = guest.encode(pictures())
    with untouched(model):
        module = guest.build(5).train()
        trained = [p for p in module.parameters() if p.requires_grad]
        run(module, arrays).square().sum().backward()
        torch.optim.SGD(trained, lr=0.1).step()
    assert len(trained) == (2 if train == "head" else len([*module.parameters()]))
    assert module.head.weight.shape == (5, 3)


def test_it_is_a_guest_that_is_shared_and_pickled(model: Plain) -> None:
    guest = TimmBackbone(model, train="head")
    assert isinstance(guest, GuestProtocol)
    assert guest.trains
    assert clone(guest) is guest
    assert repr(guest) == "TimmBackbone(Plain, train='head')"
    copy = pickle.loads(pickle.dumps(guest))
    assert torch.equal(copy.model.fc.weight, model.fc.weight)


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(TypeError, match="takes a model of timm or its name; got int"):
        TimmBackbone(3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="got train='heads'"):
        TimmBackbone("vit", train="heads")  # type: ignore[arg-type]


def test_without_timm_a_name_cannot_be_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(ImportError, match=r'pip install "uqformer\[timm\]", or hand'):
        TimmBackbone("vit_tiny_patch16_224").encode(pictures())


# ------------------------------------------------------------------ with timm itself


def test_an_unknown_name_is_said() -> None:
    pytest.importorskip("timm", reason=REASON)
    with pytest.raises(ValueError, match="'no_such_model' must name a pretrained"):
        TimmBackbone("no_such_model").encode(pictures())


@pytest.mark.parametrize("name", ["vit_tiny_patch16_224", "convnext_atto", "resnet10t"])
@pytest.mark.parametrize("size", [(300, 260), (90, 120)])
def test_preparation_is_that_of_timm(name: str, size: tuple[int, int]) -> None:
    """Within a level or two: timm resizes pictures of PIL, we arrays."""
    model = create(name)
    data = pytest.importorskip("timm.data", reason=REASON)
    Image = pytest.importorskip("PIL.Image")
    transform = data.create_transform(**data.resolve_model_data_config(model))
    y, x = np.mgrid[: size[0], : size[1]]
    waves = [np.sin(5 * x / size[1] + c) * np.cos(4 * y / size[0]) for c in range(3)]
    picture = (127.5 + 100 * np.stack(waves, axis=-1)).astype(np.uint8)
    expected = transform(Image.fromarray(picture)).numpy()
    pixels = TimmBackbone(model).encode([picture])["x"][0]
    assert pixels.shape == expected.shape
    std = np.array(model.pretrained_cfg["std"])[:, None, None]
    assert (np.abs(pixels - expected) * std * 255).max() < 2.01


@pytest.mark.parametrize("train", [None, "head", "all"])
@pytest.mark.parametrize(
    "name", ["vit_tiny_patch16_224", "swin_tiny_patch4_window7_224"]
)
def test_attention_is_redrawn_row_by_row(name: str, train: Any) -> None:
    options: dict[str, Any] = dict(VIT)
    if name.startswith("swin"):
        options = {"img_size": 16, "patch_size": 2, "window_size": 2, "embed_dim": 8}
        options |= {"depths": (2, 1), "num_heads": (2, 2)}
    guest = TimmBackbone(create(name, **options), train=train)
    arrays = guest.encode(pictures(height=16, width=16))
    module = guest.build(3).eval()
    batch = torch.from_numpy(arrays["x"])

    def members(rows: Tensor, n_draws: int | None) -> Tensor:
        passes = forward_members(module, [{"x": rows}], n_draws=n_draws, seeds=[0, 1])
        return torch.stack([output for _, _, output in passes])

    with untouched(guest.model):
        exact, redrawn = members(batch, None), members(batch, 4)
        torch.testing.assert_close(exact[0], run(module, arrays))
        alone = torch.cat([members(row[None], 4) for row in batch], dim=1)
    assert not torch.allclose(redrawn[0], redrawn[1], atol=1e-3)
    torch.testing.assert_close(alone, redrawn, atol=1e-4, rtol=1e-4)
