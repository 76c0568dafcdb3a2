"""The oil temperature of ETT, 96 and 192 steps: is every step covered?

Usage: UQFORMER_DATA=<folder> OMP_NUM_THREADS=1 python benchmarks/bench_series.py
       [--series ETTh1 ETTm1] [--horizons 96 192] [--seed 0]

The oil temperature is forecast from its own past in the usual cut: models are trained
on 12 months, calibrated on the next 4, and judged on the last 4, in windows that begin
13 hours after one another and so at all times of the day. What is forecast is the
change from the last value seen, which is 0 in every window. A
`SequenceTransformer` is trained by the regressor and is calibrated twice, on random
rows of the training months, as `fit` does by itself, and on the later months. A small
PatchTST is trained here, by the loss of transformers, and is calibrated on the later
months. Beside them stand the season that comes again, with conformal intervals, and
fracast, where it is installed, on the 48 steps and nine deciles that it gives
(pip install --no-deps fracast==0.1.0). Each run is kept as a file of its own under
results/series; results/series.json has them all.
"""

import argparse
import json
import warnings
from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import Any, TypeAlias

import numpy as np
import torch
from _common import RESULTS, cached, data_folder, machine
from _ordered import (
    QUANTILES,
    as_interval,
    calibrate_later,
    interval_members,
    normal_members,
    report,
)
from sklearn.frozen import FrozenEstimator
from transformers import PatchTSTConfig, PatchTSTForPrediction

from uqformer import StochasticAttentionRegressor
from uqformer.backbones import ForecastBackbone
from uqformer.calibration import ConformalRegressor
from uqformer.datasets import fetch_ett
from uqformer.exceptions import UQFormerWarning
from uqformer.series import SeasonalNaiveRegressor, make_windows

PER_HOUR = {"ETTh1": 1, "ETTm1": 4}
CONTEXT = 336
"""Steps that a window sees."""

TRAIN_STEP, JUDGED_STEP = 2, 13
"""Hours from one window to the next: to train on, and to calibrate or judge on."""

SEQUENCE_EPOCHS, PATCHTST_EPOCHS = 8, 3
"""More fit the training months better and the later four of ETTh1 worse."""

SHORT = 48
"""Steps that fracast forecasts."""

DECILES = np.arange(1, 10) / 10

Part: TypeAlias = tuple[np.ndarray, np.ndarray]
"""Windows (n_samples, CONTEXT) and what came next (n_samples, horizon)."""

Quantiles: TypeAlias = Callable[[np.ndarray], np.ndarray]
"""From quantiles to the forecasts of each, (n_quantiles, n_samples, horizon)."""


def load(name: str, horizon: int) -> dict[str, Part]:
    """Cut each part into windows; only their context may lie in the part before."""
    ett = fetch_ett(name, data_home=data_folder(), download_if_missing=False)
    cut = {
        "train": (ett.train_indices, TRAIN_STEP),
        "later": (ett.validation_indices, JUDGED_STEP),
        "test": (ett.test_indices, JUDGED_STEP),
    }
    parts = {}
    for part, (times, hours) in cut.items():
        start = max(0, times[0] - CONTEXT)
        X, y, _ = make_windows(
            ett.target.iloc[start : times[-1] + 1],
            context_length=CONTEXT,
            horizon=horizon,
            step=hours * PER_HOUR[name],
        )
        last = X[:, -1]  # (n_samples, 1)
        parts[part] = X[..., 0] - last, y - last
    return parts


def score(
    y: np.ndarray,
    y_pred: np.ndarray,
    quantiles: Quantiles,
    members: np.ndarray | None = None,
) -> dict[str, dict[str, float]]:
    """Score all steps, and the first ones as fracast can be scored."""
    if members is None:
        members = quantiles(QUANTILES)
    interval = as_interval(quantiles(np.array([0.05, 0.95])))
    short, deciles = (slice(None), slice(SHORT)), quantiles(DECILES)
    return {
        "all steps": report(y, y_pred, members, interval),
        "first 48": score_deciles(y[short], y_pred[short], deciles[..., :SHORT]),
    }


def score_deciles(
    y: np.ndarray, y_pred: np.ndarray, deciles: np.ndarray
) -> dict[str, float]:
    """Score nine deciles, and the 80 % interval between the outermost."""
    return report(y, y_pred, deciles, as_interval(deciles[[0, -1]]), level=0.8)


def judge(model: StochasticAttentionRegressor, test: Part) -> dict[str, Any]:
    """Score the bare members, the conformal intervals and one normal a step ahead."""
    X, y = test
    start = perf_counter()
    y_pred, ensemble = model.predict(X), model.predict_ensemble(X)
    seconds = perf_counter() - start
    std = np.broadcast_to(model.residual_std_, y.shape)
    reports = {
        "stochastic attention": score(
            y,
            y_pred,
            lambda q: np.moveaxis(ensemble.quantile(q), 1, 0),
            ensemble.members,
        ),
        "+ conformal": score(y, y_pred, partial(interval_members, model, X)),
        "normal": score(y, y_pred, partial(normal_members, y_pred, std)),
    }
    return {
        "n_draws": model.n_draws_,
        "error_reached": model.calibration_.searches["all"].reached,
        "n_calibration": len(model.calibration_.calibration),
        "rmse_on_calibration_rows": float(model.residual_std_.mean()),
        "seconds": model.fit_times_ | {"predict": seconds},
        "reports": reports,
    }


def judge_sequence(parts: dict[str, Part], seed: int) -> dict[str, Any]:
    """Our own backbone: trained once, calibrated on random and on later rows."""
    model = StochasticAttentionRegressor(
        "sequence",
        backbone_params={
            "normalise": "window",
            "d_token": 32,
            "n_blocks": 2,
            "dropout": 0.3,
        },
        max_epochs=SEQUENCE_EPOCHS,
        batch_size=64,
        weight_decay=0.01,
        random_state=seed,
    ).fit(*parts["train"])
    later = calibrate_later(model, *parts["later"])
    return {
        "sequence, random rows": judge(model, parts["test"]),
        "sequence, later months": judge(later, parts["test"]),
    }


def train_patchtst(part: Part, seed: int) -> PatchTSTForPrediction:
    torch.manual_seed(seed)
    X, y = (torch.tensor(a, dtype=torch.float32)[..., None] for a in part)
    model = PatchTSTForPrediction(
        PatchTSTConfig(
            num_input_channels=1,
            context_length=CONTEXT,
            prediction_length=y.shape[1],
            patch_length=16,
            patch_stride=16,
            d_model=32,
            num_hidden_layers=2,
            num_attention_heads=4,
            ffn_dim=64,
            attention_dropout=0.3,
            ff_dropout=0.3,
            head_dropout=0.3,
            pooling_type=None,
            loss="mse",
        )
    ).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01)
    for _ in range(PATCHTST_EPOCHS):
        for rows in torch.randperm(len(X)).split(64):
            loss = model(past_values=X[rows], future_values=y[rows]).loss
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return model.eval()


def judge_patchtst(parts: dict[str, Part], seed: int) -> dict[str, Any]:
    """A guest that others have trained, here on the same windows."""
    start = perf_counter()
    guest = ForecastBackbone(train_patchtst(parts["train"], seed))
    trained = perf_counter() - start
    model = StochasticAttentionRegressor(guest, random_state=seed)
    result = judge(model.fit(*parts["later"]), parts["test"])
    result["seconds"] |= {"training": trained}
    return {"PatchTST, later months": result}


def judge_naive(parts: dict[str, Part], period: int) -> dict[str, Any]:
    """Let the last season come again, with an interval for every step ahead."""
    (X, y), start = parts["test"], perf_counter()
    naive = SeasonalNaiveRegressor(period).fit(*parts["train"])
    model = ConformalRegressor(FrozenEstimator(naive)).fit(*parts["later"])
    scores = score(y, naive.predict(X), partial(interval_members, model, X))
    return {
        "seasonal naive": {
            "seconds": {"all": perf_counter() - start},
            "reports": {"+ conformal": scores},
        }
    }


def judge_fracast(parts: dict[str, Part]) -> dict[str, Any]:
    """Pretrained, seen none of this, not calibrated."""
    try:
        from fracast import FracastModel
    except ImportError as error:
        print(f"fracast: left out, {error}")
        return {}
    (X, y), start = parts["test"], perf_counter()
    forecasts = FracastModel.from_pretrained(weights="fp32").forecast_batch(X)
    deciles = np.moveaxis(forecasts[:, :SHORT], 2, 0).astype(np.float64)
    scores = score_deciles(y[:, :SHORT], deciles[4], deciles)
    return {
        "fracast": {
            "seconds": {"all": perf_counter() - start},
            "reports": {"its deciles": {"first 48": scores}},
        }
    }


def run(name: str, horizon: int, seed: int) -> dict[str, Any]:
    """All models on one series and horizon."""
    parts = load(name, horizon)
    return {
        "series": name,
        "horizon": horizon,
        "seed": seed,
        "n_windows": {part: len(y) for part, (_, y) in parts.items()},
        "models": judge_sequence(parts, seed)
        | judge_patchtst(parts, seed)
        | judge_naive(parts, 24 * PER_HOUR[name])
        | judge_fracast(parts),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--series", nargs="+", default=list(PER_HOUR), choices=PER_HOUR)
    parser.add_argument("--horizons", type=int, nargs="+", default=[96, 192])
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    # errors that no number of draws can reach are recorded, not warned of
    warnings.simplefilter("ignore", UQFormerWarning)
    results = []
    for name in options.series:
        for horizon in options.horizons:
            path = RESULTS / "series" / f"{name}_{horizon}_{options.seed}.json"
            result = cached(path, partial(run, name, horizon, options.seed))
            print(json.dumps(result), flush=True)
            results.append(result)
    summary = {"machine": machine(), "results": results}
    (RESULTS / "series.json").write_text(json.dumps(summary, indent=1) + "\n")


if __name__ == "__main__":
    main()
