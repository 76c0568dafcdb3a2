"""DIRECTOR on models that others have trained: the last blocks become one step.

Usage: UQFORMER_DATA=<folder> OMP_NUM_THREADS=1
       python benchmarks/bench_director_guests.py [--models minilm vit] [--seeds 0]

all-MiniLM-L6-v2 reads the last 25 words of film reviews, its first three blocks are
kept and the other three replaced; a ViT-S/14 in DINOv2's form sees photographs of
CIFAR-10 at 70 x 70 pixels, eight of its twelve blocks are kept. A new head is trained
on each, and the whole is distilled by `DirectorClassifier`. Temperatures are found on
rows of their own; the test rows judge and never choose. The models come inside
packages, see _pretrained.py. Each run is kept as a file of its own under
results/director_guests.
"""

import argparse
import warnings
from typing import Any

import numpy as np
import torch
from _common import RESULTS, cached, machine
from _pretrained import dinov2_small, minilm, minilm_folder
from bench_director import scores
from transformers import AutoTokenizer

from uqformer import DirectorClassifier
from uqformer.backbones import HFBackbone
from uqformer.calibration import TemperatureCalibrator
from uqformer.datasets import fetch_cifar10, fetch_imdb
from uqformer.exceptions import UQFormerWarning

N_TRAIN, N_TEMPERATURE, N_TEST = 1600, 400, 1500
N_WORDS, N_PIXELS = 25, 70
N_KEPT = {"minilm": 3, "vit": 8}

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


def reviews(seed: int) -> tuple[Any, np.ndarray, HFBackbone]:
    texts, y = fetch_imdb(return_X_y=True)
    rows = np.random.default_rng(seed).permutation(len(y))
    rows = rows[: N_TRAIN + N_TEMPERATURE + N_TEST]
    ends = [" ".join(texts[i].replace("<br />", " ").split()[-N_WORDS:]) for i in rows]
    tokenizer = AutoTokenizer.from_pretrained(minilm_folder())
    return ends, y[rows], HFBackbone(minilm(), tokenizer=tokenizer, train="head")


def photographs(seed: int) -> tuple[Any, np.ndarray, HFBackbone]:
    x, y = fetch_cifar10(subset="train", return_X_y=True)
    rows = np.random.default_rng(seed).permutation(len(y))[: N_TRAIN + N_TEMPERATURE]
    x_test, y_test = fetch_cifar10(subset="test", return_X_y=True)
    x = np.concatenate([x[rows], x_test[:N_TEST]]).transpose(0, 3, 1, 2)
    pixels = torch.from_numpy(x).float() / 255
    pixels = torch.nn.functional.interpolate(
        pixels, size=(N_PIXELS, N_PIXELS), mode="bicubic", antialias=True
    )
    mean, std = (torch.tensor(v)[:, None, None] for v in (IMAGENET_MEAN, IMAGENET_STD))
    arrays = {"pixel_values": ((pixels - mean) / std).numpy()}
    y = np.concatenate([y[rows], y_test[:N_TEST]])
    return arrays, y, HFBackbone(dinov2_small(), train="head")


def taken(X: Any, rows: slice) -> Any:
    if isinstance(X, dict):
        return {name: array[rows] for name, array in X.items()}
    return X[rows]


def run(name: str, seed: int) -> dict[str, Any]:
    X, y, guest = {"minilm": reviews, "vit": photographs}[name](seed)
    train = slice(0, N_TRAIN)
    held = slice(N_TRAIN, N_TRAIN + N_TEMPERATURE)
    test = slice(N_TRAIN + N_TEMPERATURE, None)
    model = DirectorClassifier(
        guest,
        max_epochs=8,
        learning_rate=0.01,
        batch_size=32,
        n_kept_blocks=N_KEPT[name],
        n_draws=16,
        performance_weight=10.0,
        distil_epochs=12,
        distil_learning_rate=1e-3,
        calibration=None,
        conformal=None,
        random_state=seed,
    ).fit(taken(X, train), y[train])
    judged = {}
    for title, predict in (
        ("backbone", model.backbone_proba),
        ("DIRECTOR", model.predict_proba),
    ):
        temperature = TemperatureCalibrator(input="proba", classes=model.classes_)
        temperature.fit(predict(taken(X, held)), y[held])
        y_proba = predict(taken(X, test))
        codes = np.searchsorted(model.classes_, y[test])
        judged[title] = {
            "raw": scores(y_proba, codes),
            "scaled": scores(temperature.transform(y_proba), codes),
            "temperature": temperature.temperature_,
        }
    return {
        "model": name,
        "seed": seed,
        "machine": machine(),
        "n_parameters": model.n_parameters_,
        "n_kept_blocks": N_KEPT[name],
        "n_draws": model.n_draws_,
        "epochs": len(model.history_),
        "seconds": model.fit_times_,
        "methods": judged,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", default=list(N_KEPT), choices=N_KEPT)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    options = parser.parse_args()
    warnings.simplefilter("ignore", UQFormerWarning)
    torch.set_num_threads(1)
    for name in options.models:
        for seed in options.seeds:
            path = RESULTS / "director_guests" / f"{name}_{seed}.json"
            got = cached(path, lambda n=name, s=seed: run(n, s))
            print(name, seed, got["n_parameters"], got["seconds"])
            for title, one in got["methods"].items():
                raw, scaled = one["raw"], one["scaled"]
                print(
                    f"    {title:10s} acc {raw['accuracy']:.3f}  "
                    f"ece {raw['ece']:.3f} -> {scaled['ece']:.3f}  "
                    f"nll {raw['nll']:.3f} -> {scaled['nll']:.3f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
