"""What an ensemble costs: time of M members over time of M plain passes.

Usage: OMP_NUM_THREADS=1 python benchmarks/bench_members.py [--only NAME ...]

Both run in one process, in turn, on the same batches; the median of several rounds is
kept in results/members/. Pretrained models that are not installed are left out, with a
word (see _pretrained.py). table_engine.py prints what is there.
"""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from statistics import median
from time import perf_counter
from typing import Any

import _pretrained
import torch
from _common import RESULTS, cached, machine
from torch import Tensor, nn

from uqformer.attention import forward_members
from uqformer.attention._kernel import has_kernel
from uqformer.backbones import FTTransformer

N_ROUNDS = 3


@dataclass
class Case:
    """A model, batches for it, and how many members are wanted."""

    model: nn.Module
    batches: Sequence[Any]
    n_members: int
    n_draws: tuple[int, ...]
    forward: Callable[[nn.Module, Any], Tensor] | None = None
    told: dict[str, Any] = field(default_factory=dict)


def tables(n_columns: int) -> Case:
    """FT-Transformer as the regressor runs it."""
    x = torch.randn(1024, n_columns)
    model = FTTransformer(n_columns, 1).adapt(x).eval()
    told = {"batch": 256, "tokens": n_columns + 1}
    return Case(model, x.split(256), 50, (1, 16, 256), told=told)


def encoder() -> Case:
    """A plain encoder, whose plain pass has torch's fused layer."""
    layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
    model = nn.TransformerEncoder(layer, 3).eval()
    told = {"batch": 64, "tokens": 32}
    return Case(model, [torch.randn(64, 32, 64)], 50, (1, 16, 256), told=told)


def ids(n_rows: int, n_tokens: int, n_words: int) -> dict[str, Tensor]:
    """Random tokens, none of them padding."""
    words = torch.randint(1000, n_words, (n_rows, n_tokens))
    return {"input_ids": words, "attention_mask": torch.ones_like(words)}


def text(n_rows: int, n_tokens: int) -> Case:
    """MiniLM."""
    told = {"batch": n_rows, "tokens": n_tokens}
    batch, draws = ids(n_rows, n_tokens, 30_000), (4, 16, 64)
    return Case(_pretrained.minilm(), [batch], 50, draws, last_state, told)


def image(side: int, n_rows: int) -> Case:
    """ViT-S/14."""
    told = {"batch": n_rows, "tokens": (side // 14) ** 2 + 1}
    x, draws = torch.randn(n_rows, 3, side, side), (4, 16, 64)
    return Case(_pretrained.dinov2_small(), [x], 10, draws, last_state, told)


def language() -> Case:
    """SmolLM2-135M."""
    told = {"batch": 2, "tokens": 64}
    batch, draws = ids(2, 64, 40_000), (4, 16, 64)
    return Case(_pretrained.smollm2(), [batch], 8, draws, logits, told)


def last_state(model: nn.Module, batch: Any) -> Tensor:
    output = model(**batch) if isinstance(batch, dict) else model(batch)
    state: Tensor = output.last_hidden_state
    return state


def logits(model: nn.Module, batch: Any) -> Tensor:
    output: Tensor = model(**batch).logits
    return output


CASES: dict[str, Callable[[], Case]] = {
    "ft_transformer_8": partial(tables, 8),
    "ft_transformer_20": partial(tables, 20),
    "torch_encoder": encoder,
    "minilm_32_tokens": partial(text, 16, 32),
    "minilm_128_tokens": partial(text, 8, 128),
    "vit_small_98": partial(image, 98, 16),
    "vit_small_224": partial(image, 224, 4),
    "smollm2": language,
}


def seconds(run: Callable[[], Any]) -> float:
    start = perf_counter()
    run()
    return perf_counter() - start


def measure(case: Case, n_draws: int) -> dict[str, Any]:
    """Members over plain passes; both made of the same batches of rows."""
    seeds = list(range(case.n_members))
    forward = case.forward or (lambda model, batch: model(batch))

    def plain() -> None:
        with torch.no_grad():
            for _ in seeds:
                for batch in case.batches:
                    forward(case.model, batch)

    def redrawn() -> None:
        for _ in forward_members(
            case.model, case.batches, n_draws=n_draws, seeds=seeds, forward=case.forward
        ):
            pass

    redrawn()  # compiles the kernel, warms the caches
    # in turn, so that what else the machine does falls on both
    pairs = [(seconds(redrawn), seconds(plain)) for _ in range(N_ROUNDS)]
    ratios = [members / passes for members, passes in pairs]
    per_pass = 1e3 * median(passes for _, passes in pairs) / case.n_members
    return {
        "n_draws": n_draws,
        "ratio": round(median(ratios), 3),
        "lowest": round(min(ratios), 3),
        "highest": round(max(ratios), 3),
        "milliseconds_per_plain_pass": round(per_pass, 2),
    }


def run(name: str) -> dict[str, Any]:
    """Measure one case."""
    torch.manual_seed(0)
    case = CASES[name]()
    told = case.told | {"members": case.n_members}
    results = [measure(case, n_draws) for n_draws in case.n_draws]
    draw = "numba" if has_kernel() else "bisection"
    return {"machine": machine() | {"draw": draw}, **told, "results": results}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=CASES, default=list(CASES))
    for name in parser.parse_args().only:
        path = RESULTS / "members" / f"{name}.json"
        try:
            result = cached(path, partial(run, name))
        except ImportError as error:
            print(f"{name}: left out, {error}")
            continue
        ratios = [(r["n_draws"], r["ratio"]) for r in result["results"]]
        print(name, ratios, flush=True)


if __name__ == "__main__":
    main()
