"""Tiny models of every family whose attention must be redrawn, ready to be called."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from uqformer._seam import attention_weights, match_rows
from uqformer._typing import LayerSelection
from uqformer.attention import stochastic_attention

N, T, D, H = 3, 5, 8, 2  # samples, tokens, width, heads


@dataclass
class Family:
    """A model with inputs; `call` returns a Tensor (N, T, D) or less."""

    model: nn.Module
    inputs: dict[str, Tensor]
    call: Callable[[nn.Module, dict[str, Tensor]], Tensor]
    n_attention: int
    # names of the inputs that hold tokens and that say which of them are real
    tokens: str = "x"
    real: str | None = None

    def run(self, inputs: dict[str, Tensor] | None = None) -> Tensor:
        with torch.no_grad():
            return self.call(self.model, self.inputs if inputs is None else inputs)

    def redraw(
        self,
        seed: int = 0,
        n_draws: int = 4,
        inputs: dict[str, Tensor] | None = None,
        layers: LayerSelection = "all",
    ) -> Tensor:
        with stochastic_attention(
            self.model, n_draws=n_draws, seed=seed, layers=layers
        ):
            return self.run(inputs)

    def n_hooks(self) -> int:
        return sum(
            len(hooks)
            for module in self.model.modules()
            for hooks in (
                module._forward_hooks,
                module._forward_pre_hooks,
                module._forward_hooks_always_called,
            )
        )

    def rows(self, chosen: slice) -> dict[str, Tensor]:
        return {name: value[chosen] for name, value in self.inputs.items()}


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


class AttentionByHand(nn.Module):
    """Causal attention; subclasses mix the values by other means."""

    def __init__(self) -> None:
        super().__init__()
        self.c_attn = nn.Linear(D, 3 * D)
        self.attn_dropout = nn.Dropout(0.1)
        self.c_proj = nn.Linear(D, D)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (
            part.unflatten(-1, (H, -1)).transpose(1, 2)
            for part in self.c_attn(x).chunk(3, dim=-1)
        )  # (N, H, T, D / H)
        return self.c_proj(self.mix(q, k, v).transpose(1, 2).flatten(2))  # (N, T, D)

    def mix(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return self.attn_dropout(F.softmax(causal_scores(q, k), dim=-1)) @ v


class AttentionBySDPA(AttentionByHand):
    def mix(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)


class AttentionBySeam(AttentionByHand):
    uses_attention_seam = True

    def mix(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        weights = attention_weights(causal_scores(q, k), self)
        return weights @ match_rows(v, weights)


def causal_scores(q: Tensor, k: Tensor) -> Tensor:
    n_tokens = q.shape[-2]
    hidden = torch.ones(n_tokens, n_tokens, dtype=torch.bool).triu(1)
    scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
    return scores.masked_fill(hidden, -torch.inf)


class WrittenOut(nn.Module):
    """Two blocks of causal attention in the manner of teaching code."""

    class Block(nn.Module):
        def __init__(self, attn: nn.Module) -> None:
            super().__init__()
            self.norm = nn.LayerNorm(D)
            self.attn = attn

        def forward(self, x: Tensor) -> Tensor:
            mixed = self.attn(self.norm(x))
            return match_rows(x, mixed) + mixed

    def __init__(self, make_attention: Callable[[], nn.Module]) -> None:
        super().__init__()
        blocks = [self.Block(make_attention()) for _ in range(2)]
        self.blocks = nn.Sequential(*blocks)

    def forward(self, x: Tensor) -> Tensor:
        return self.blocks(x)


def _x(dtype: torch.dtype, n_tokens: int = T) -> Tensor:
    return torch.randn(N, n_tokens, D, dtype=dtype)


def _real() -> Tensor:
    real = torch.ones(N, T, dtype=torch.bool)
    real[1, 3:] = False
    real[2, 4:] = False
    return real


def _written_out(dtype: torch.dtype, attention: Callable[[], nn.Module]) -> Family:
    model = WrittenOut(attention)
    return Family(model, {"x": _x(dtype)}, lambda m, i: m(i["x"]), 2)


def _mha(dtype: torch.dtype, need_weights: bool) -> Family:
    def call(model: nn.Module, inputs: dict[str, Tensor]) -> Tensor:
        x, hidden = inputs["x"], ~inputs["real"]
        output = model(x, x, x, key_padding_mask=hidden, need_weights=need_weights)[0]
        return output * inputs["real"].unsqueeze(-1)  # padding is nobody's output

    model = nn.MultiheadAttention(D, H, batch_first=True)
    return Family(model, {"x": _x(dtype), "real": _real()}, call, 1, real="real")


def _mha_cross(dtype: torch.dtype) -> Family:
    def call(model: nn.Module, inputs: dict[str, Tensor]) -> Tensor:
        x, hidden = inputs["x"], ~inputs["real"]
        return model(inputs["query"], x, x, key_padding_mask=hidden)[0]

    model = nn.MultiheadAttention(D, H, batch_first=True)
    inputs = {"query": _x(dtype, 4), "x": _x(dtype), "real": _real()}
    return Family(model, inputs, call, 1, real="real")


def _encoder(dtype: torch.dtype) -> Family:
    def call(model: nn.Module, inputs: dict[str, Tensor]) -> Tensor:
        output = model(inputs["x"], src_key_padding_mask=~inputs["real"])
        return output * inputs["real"].unsqueeze(-1)  # padding is nobody's output

    layer = nn.TransformerEncoderLayer(D, H, 16, batch_first=True)
    model = nn.TransformerEncoder(layer, 2)
    return Family(model, {"x": _x(dtype), "real": _real()}, call, 2, real="real")


def _encoder_causal(dtype: torch.dtype) -> Family:
    mask = nn.Transformer.generate_square_subsequent_mask(T, dtype=dtype)
    layer = nn.TransformerEncoderLayer(D, H, 16, batch_first=True, norm_first=True)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    return Family(model, {"x": _x(dtype)}, lambda m, i: m(i["x"], mask), 2)


def _decoder(dtype: torch.dtype) -> Family:
    mask = nn.Transformer.generate_square_subsequent_mask(4, dtype=dtype)

    def call(model: nn.Module, inputs: dict[str, Tensor]) -> Tensor:
        hidden = ~inputs["real"]
        target, memory = inputs["target"], inputs["x"]
        return model(target, memory, mask, memory_key_padding_mask=hidden)

    layer = nn.TransformerDecoderLayer(D, H, 16, batch_first=True)
    inputs = {"target": _x(dtype, 4), "x": _x(dtype), "real": _real()}
    return Family(nn.TransformerDecoder(layer, 2), inputs, call, 4, real="real")


def hugging_face(name: str, attention: str = "eager") -> nn.Module:
    transformers = pytest.importorskip(
        "transformers", reason="Hugging Face models need transformers"
    )
    transformers.logging.set_verbosity_error()
    size = {
        "hidden_size": D,
        "num_hidden_layers": 2,
        "num_attention_heads": H,
        "intermediate_size": 16,
        # the usual 0.02 would leave attention flat and its values small
        "initializer_range": 0.5,
        "attn_implementation": attention,
    }
    text = size | {"vocab_size": 20, "max_position_embeddings": 16}
    grouped = text | {"num_key_value_heads": 1}
    if name == "bert":
        return transformers.BertModel(transformers.BertConfig(**text))
    if name == "vit":
        config = transformers.ViTConfig(**size, image_size=8, patch_size=4)
        return transformers.ViTModel(config)
    if name == "gpt2":
        config = transformers.GPT2Config(
            n_embd=D, n_layer=2, n_head=H, vocab_size=20, n_positions=16
        )
        return transformers.GPT2Model(config)
    if name == "llama":
        return transformers.LlamaModel(transformers.LlamaConfig(**grouped))
    return transformers.Qwen2Model(transformers.Qwen2Config(**grouped))


def _hf_text(dtype: torch.dtype, name: str, attention: str) -> Family:
    def call(model: nn.Module, inputs: dict[str, Tensor]) -> Tensor:
        real = inputs["attention_mask"]
        output = model(**inputs).last_hidden_state
        return output * real.unsqueeze(-1)  # padding is nobody's output

    real = _real().long()
    if name != "bert":  # generative models are padded on the left
        real = real.flip(1)
    inputs = {"input_ids": torch.randint(1, 20, (N, T)), "attention_mask": real}
    model = hugging_face(name, attention)
    return Family(model, inputs, call, 2, tokens="input_ids", real="attention_mask")


def _hf_vit(dtype: torch.dtype, attention: str) -> Family:
    inputs = {"pixel_values": torch.randn(N, 3, 8, 8, dtype=dtype)}
    return Family(
        hugging_face("vit", attention), inputs, lambda m, i: m(**i).last_hidden_state, 2
    )


FAMILIES: dict[str, Callable[[torch.dtype], Family]] = {
    "mha": lambda dtype: _mha(dtype, need_weights=False),
    "mha-weights": lambda dtype: _mha(dtype, need_weights=True),
    "mha-cross": _mha_cross,
    "encoder": _encoder,
    "encoder-causal": _encoder_causal,
    "decoder": _decoder,
    "by-hand": lambda dtype: _written_out(dtype, AttentionByHand),
    "by-sdpa": lambda dtype: _written_out(dtype, AttentionBySDPA),
    "by-seam": lambda dtype: _written_out(dtype, AttentionBySeam),
}
for _attention in ("eager", "sdpa"):
    FAMILIES[f"vit-{_attention}"] = lambda dtype, a=_attention: _hf_vit(dtype, a)
    for _name in ("bert", "llama", "qwen2"):
        FAMILIES[f"{_name}-{_attention}"] = lambda dtype, n=_name, a=_attention: (
            _hf_text(dtype, n, a)
        )
PADDED = [
    name for name in FAMILIES if name.split("-")[0] in ("mha", "bert", "llama", "qwen2")
] + ["encoder", "decoder"]


def build(make: Callable[[torch.dtype], Family], dtype: torch.dtype) -> Family:
    """Make a family with the same weights and inputs each time."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        family = make(dtype)
    family.model.to(dtype).eval()
    return family


@pytest.fixture
def make_family() -> Callable[..., Family]:
    """Build a family by name, with the same weights and inputs each time."""

    def make(name: str, dtype: torch.dtype = torch.float32) -> Family:
        return build(FAMILIES[name], dtype)

    return make


@pytest.fixture
def make_hugging_face() -> Callable[..., nn.Module]:
    """Build a tiny Hugging Face model by name."""
    return hugging_face


@pytest.fixture
def switches() -> Callable[[], tuple[bool, ...]]:
    """Read the process-wide settings that decide which kernel attends."""

    def read() -> tuple[bool, ...]:
        cuda = torch.backends.cuda
        return (
            torch.backends.mha.get_fastpath_enabled(),
            cuda.flash_sdp_enabled(),
            cuda.mem_efficient_sdp_enabled(),
            cuda.math_sdp_enabled(),
            cuda.cudnn_sdp_enabled(),
        )

    return read


@pytest.fixture(params=FAMILIES)
def family_name(request: pytest.FixtureRequest) -> str:
    """Run a test for every family."""
    return request.param


@pytest.fixture(params=PADDED)
def padded_name(request: pytest.FixtureRequest) -> str:
    """Run a test for the families with padding."""
    return request.param
