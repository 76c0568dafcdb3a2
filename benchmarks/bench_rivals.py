"""Stochastic attention beside MC dropout of TorchUncertainty and laplace-torch.

Usage: UQFORMER_DATA=folder OMP_NUM_THREADS=1 python benchmarks/bench_rivals.py

In an environment that also has ``torch-uncertainty`` and ``laplace-torch``. One
FT-Transformer a set, trained by `StochasticAttentionRegressor`, is handed to all: 50
redrawn passes, 50 passes with its own dropout on, and a Laplace approximation of its
last layer, prior and noise fitted by marginal likelihood on the training rows. No
interval is conformal here, so that the methods themselves show. results/rivals.json.
"""

import json
import warnings
from collections.abc import Callable
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
import torch
from _common import RESULTS, load_uci, machine
from laplace import Laplace
from torch.utils.data import DataLoader, TensorDataset
from torch_uncertainty.methods import mc_dropout

from uqformer import StochasticAttentionRegressor
from uqformer.metrics import coverage_score, crps_normal_loss

SETS, N_MEMBERS, N_ROUNDS, LEVEL = ("concrete", "yacht", "energy"), 50, 3, 0.9
Predictive = tuple[np.ndarray, np.ndarray]
"""Mean and standard deviation of each row, in units of y."""


def timed(predict: Callable[[], Predictive]) -> tuple[Predictive, float]:
    """Return the answer and the median seconds it took."""
    spent = []
    for _ in range(N_ROUNDS):
        start = perf_counter()
        answer = predict()
        spent.append(perf_counter() - start)
    return answer, median(spent)


def scores(y: np.ndarray, answer: Predictive) -> dict[str, float]:
    mean, std = answer
    half = 1.6449 * std
    interval = np.stack([mean - half, mean + half], axis=1)
    return {
        "rmse": float(np.sqrt(np.mean((y - mean) ** 2))),
        "coverage_90": float(coverage_score(y, interval)),
        "crps": float(crps_normal_loss(y, mean, std)),
        "spread_per_error": float(np.sqrt(np.mean(std**2) / np.mean((y - mean) ** 2))),
    }


def fit_prior_and_noise(laplace: Any) -> None:
    """Maximise the marginal likelihood, as the guide of laplace-torch does."""
    logs = [torch.zeros(1, requires_grad=True) for _ in range(2)]
    optimizer = torch.optim.Adam(logs, lr=0.1)
    for _ in range(200):
        optimizer.zero_grad()
        evidence = laplace.log_marginal_likelihood(*(log.exp() for log in logs))
        (-evidence).backward()
        optimizer.step()


def compare(name: str) -> dict[str, Any]:
    X, y, X_test, y_test = load_uci(name, 0)
    model = StochasticAttentionRegressor(n_members=N_MEMBERS, random_state=0)
    model.fit(X, y)
    center, scale = model.target_center_[0], model.target_scale_[0]
    inputs, test = (
        torch.from_numpy(model.feature_scaler_.transform(part).astype(np.float32))
        for part in (X, X_test)
    )
    targets = torch.from_numpy(((y - center) / scale).astype(np.float32))[:, None]

    def in_units(mean: torch.Tensor, std: torch.Tensor) -> Predictive:
        return center + scale * mean.numpy(), scale * std.numpy()

    def exact() -> Predictive:
        with torch.no_grad():
            for _ in range(N_MEMBERS):  # as often as the others, to compare times
                mean = model.module_(test)[:, 0]
        return in_units(mean, torch.full_like(mean, float(model.residual_std_ / scale)))

    def redrawn() -> Predictive:
        return model.predict(X_test), model.predict_std(X_test)

    dropped_out = mc_dropout(model.module_, num_estimators=N_MEMBERS, last_layer=False)

    def dropout() -> Predictive:
        dropped_out.eval()
        torch.manual_seed(0)
        with torch.no_grad():
            members = dropped_out(test).reshape(N_MEMBERS, -1)
        return in_units(members.mean(dim=0), members.std(dim=0))

    start = perf_counter()
    laplace = Laplace(
        model.module_,
        "regression",
        subset_of_weights="last_layer",
        hessian_structure="full",
    )
    laplace.fit(DataLoader(TensorDataset(inputs, targets), batch_size=256))
    fit_prior_and_noise(laplace)
    laplace_fit = perf_counter() - start

    def last_layer() -> Predictive:
        with torch.no_grad():
            mean, variance = laplace(test)
        noise = laplace.sigma_noise.item() ** 2
        total = (variance[:, 0, 0] + noise).sqrt()
        return in_units(mean[:, 0].detach(), total.detach())

    ways = {
        "exact pass, one spread for all": exact,
        "stochastic attention": redrawn,
        "MC dropout (torch-uncertainty)": dropout,
        "last-layer Laplace (laplace-torch)": last_layer,
    }
    rows = {}
    for way, predict in ways.items():
        answer, spent = timed(predict)
        rows[way] = scores(y_test, answer) | {"seconds": spent}
    return {"n_draws": model.n_draws_, "laplace_fit_seconds": laplace_fit, "ways": rows}


def main() -> None:
    warnings.simplefilter("ignore")
    results = {name: compare(name) for name in SETS}
    for name, result in results.items():
        for way, row in result["ways"].items():
            print(name, way, {key: round(value, 4) for key, value in row.items()})
    summary = {"machine": machine(), "members": N_MEMBERS, "sets": results}
    (RESULTS / "rivals.json").write_text(json.dumps(summary, indent=1) + "\n")


if __name__ == "__main__":
    main()
