"""Temperature maps six hours ahead: does the spread know where and when errors are?

Usage: UQFORMER_DATA=<folder> OMP_NUM_THREADS=1 python benchmarks/bench_weather.py
       [--seeds 0 1 2]

ERA5's temperature at 2 m over Great Britain and Ireland, March 2019, hourly. A small
`PatchTransformer` is given the maps of now and of 1, 3 and 6 hours ago and predicts the
change of the map; it is trained on the first 15 days, calibrated, and judged on the
last 8 days. It is calibrated twice: on random rows of the training days, as `fit` does
by itself, and on the week after them. Each seed is kept as a file of its own under
results/weather; results/weather.json has them all.
"""

import argparse
import json
import warnings
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np
from _common import RESULTS, cached, data_folder, machine
from _ordered import (
    as_interval,
    calibrate_later,
    hits,
    interval_members,
    normal_members,
    report,
)
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.frozen import FrozenEstimator

from uqformer import StochasticAttentionRegressor
from uqformer.calibration import AdaptiveOnlineConformal
from uqformer.datasets import fetch_era5_t2m
from uqformer.exceptions import UQFormerWarning

LAGS = (0, 1, 3, 6)
"""Hours before now whose maps are seen."""

AHEAD = 6
"""Hours from now to the target."""

EMBARGO = AHEAD + max(LAGS)
"""Hours between the targets of two parts, so that no map is in both."""

TRAIN_END, TEST_START = 15 * 24, 23 * 24
"""Hours of the month where parts end or begin, counted at their targets."""

DAYS_BEFORE = 22
"""Whole days before the embargo of the test days; they are the climate."""

THINNED = 4
"""Every how many points, each way, the online correction is run."""

ENDS = np.array([0.05, 0.95])
"""Quantiles at the ends of the intervals."""


@dataclass(frozen=True)
class Weather:
    """Rows in order of time; `rows` names the parts by row numbers."""

    X: np.ndarray
    y: np.ndarray
    now: np.ndarray
    hour: np.ndarray
    fields: np.ndarray
    rows: dict[str, np.ndarray]

    def part(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        return self.X[self.rows[name]], self.y[self.rows[name]]


def load() -> Weather:
    era5 = fetch_era5_t2m(data_home=data_folder(), download_if_missing=False)
    fields = era5.data
    now = np.arange(max(LAGS), len(fields) - AHEAD)
    ahead = now + AHEAD
    phase = 2 * np.pi * (ahead % 24) / 24
    flat = np.ones((1, *fields.shape[1:]), np.float32)
    maps = [fields[now - lag] for lag in LAGS]
    clock = [wave(phase)[:, None, None] * flat for wave in (np.sin, np.cos)]
    rows = {
        "train": ahead < TRAIN_END,
        "later": (ahead >= TRAIN_END + EMBARGO) & (ahead < TEST_START - EMBARGO),
        "test": ahead >= TEST_START,
    }
    return Weather(
        X=np.stack(maps + clock, axis=1).astype(np.float32),
        y=(fields[ahead] - fields[now]).reshape(len(now), -1).astype(np.float64),
        now=fields[now].reshape(len(now), -1),
        hour=ahead % 24,
        fields=fields.reshape(len(fields), -1),
        rows={name: np.flatnonzero(chosen) for name, chosen in rows.items()},
    )


def rmse(errors: np.ndarray) -> float:
    """Average over places, as in a report."""
    return float(np.sqrt(np.mean(errors**2, axis=0)).mean())


def judge_rivals(weather: Weather) -> dict[str, Any]:
    """Score what needs no training: the map of now, and the days so far."""
    test = weather.rows["test"]
    days = weather.fields[: DAYS_BEFORE * 24].reshape(DAYS_BEFORE, 24, -1)
    truth = weather.y[test] + weather.now[test]
    climate = days[:, weather.hour[test]]  # (days, n, pixels)
    mean = climate.mean(axis=0)
    departure = weather.now[test] - days.mean(axis=0)[(weather.hour[test] - AHEAD) % 24]
    interval = as_interval(np.quantile(climate, ENDS, axis=0))
    return {
        "persistence": {"rmse": rmse(truth - weather.now[test])},
        "climate and persisted departure": {"rmse": rmse(truth - mean - departure)},
        "climate": report(truth, mean, climate, interval),
    }


def correlation(a: np.ndarray, b: np.ndarray) -> float | None:
    """Pearson's, None where one of them is constant."""
    if np.ptp(a) == 0 or np.ptp(b) == 0:
        return None
    return float(np.corrcoef(a, b)[0, 1])


def follow(errors: np.ndarray, spread: np.ndarray) -> dict[str, float | None]:
    """How the spread goes with the size of the error, over places and over hours."""
    size = np.abs(errors)
    return {
        "correlation_of_maps": correlation(size.mean(axis=0), spread.mean(axis=0)),
        "correlation_over_time": correlation(size.mean(axis=1), spread.mean(axis=1)),
    }


class Given(RegressorMixin, BaseEstimator):
    """Forecasts made elsewhere: points and half widths, (n, 2, places)."""

    def fit(self, X: np.ndarray, y: np.ndarray) -> "Given":
        return self

    def predict(self, X: np.ndarray, return_std: bool = False) -> Any:
        return (X[:, 0], X[:, 1]) if return_std else X[:, 0]

    def __sklearn_is_fitted__(self) -> bool:
        return True


def correct_online(
    model: StochasticAttentionRegressor, weather: Weather
) -> dict[str, dict[str, float]]:
    """Score conformal intervals before and after the correction, on thinned places."""
    shape = weather.X.shape[2:]
    kept = np.arange(weather.y.shape[1]).reshape(shape)[::THINNED, ::THINNED].ravel()
    stated, y = {}, {}
    for part in ("later", "test"):
        X, targets = weather.part(part)
        stated[part] = model.predict_interval(X)[:, :, kept]
        y[part] = targets[:, kept]
    given = {
        part: np.stack([ends.mean(axis=1), np.ptp(ends, axis=1) / 2], axis=1)
        for part, ends in stated.items()
    }  # (n, 2, places)
    online = AdaptiveOnlineConformal(
        FrozenEstimator(Given()), conformity_score="spread", delay=AHEAD
    ).fit(given["later"], y["later"])
    corrected = online.predict_interval_online(given["test"], y["test"])
    return {
        "before": describe_intervals(y["test"], stated["test"]),
        "after": describe_intervals(y["test"], corrected),
    }


def describe_intervals(y: np.ndarray, y_interval: np.ndarray) -> dict[str, float]:
    covered = hits(y, y_interval)
    by_place = covered.mean(axis=0)
    by_day = covered.reshape(-1, 24, covered.shape[1]).mean(axis=(1, 2))
    width = y_interval[:, 1] - y_interval[:, 0]
    finite = np.isfinite(width)
    return {
        "coverage": float(covered.mean()),
        "coverage_worst_place": float(by_place.min()),
        "coverage_best_place": float(by_place.max()),
        "coverage_worst_day": float(by_day.min()),
        "coverage_best_day": float(by_day.max()),
        "width_where_finite": float(width[finite].mean()),
        "share_infinite": float(1 - finite.mean()),
    }


def judge(
    model: StochasticAttentionRegressor, weather: Weather
) -> dict[str, dict[str, Any]]:
    """Score the bare members, the conformal intervals and one normal a place."""
    X, y = weather.part("test")
    y_pred, spread = model.predict(X, return_std=True)
    errors = y - y_pred
    ensemble = model.predict_ensemble(X)
    interval = model.predict_interval(X)
    std = np.broadcast_to(model.residual_std_, y.shape)
    normal = normal_members(y_pred, std)
    normal_ends = as_interval(normal_members(y_pred, std, ENDS))
    return {
        "stochastic attention": report(
            y, y_pred, ensemble.members, ensemble.interval(0.9)
        )
        | follow(errors, spread),
        "+ conformal": report(y, y_pred, interval_members(model, X), interval)
        | follow(errors, np.ptp(interval, axis=1)),
        "normal": report(y, y_pred, normal, normal_ends) | follow(errors, std),
    }


def run(seed: int) -> dict[str, Any]:
    """Train once, calibrate twice, judge both."""
    weather = load()
    model = StochasticAttentionRegressor(
        "patch",
        backbone_params={
            "output": "field",
            "patch_size": (6, 7),
            "n_blocks": 2,
            "dropout": 0.3,
        },
        max_epochs=40,
        batch_size=32,
        random_state=seed,
    ).fit(*weather.part("train"))
    later = calibrate_later(model, *weather.part("later"))
    calibrations = {"random rows": model, "later week": later}
    results = {}
    for name, one in calibrations.items():
        start = perf_counter()
        reports = judge(one, weather)
        predicted = perf_counter()
        online = correct_online(one, weather)
        results[name] = {
            "n_draws": one.n_draws_,
            "error_reached": one.calibration_.searches["all"].reached,
            "n_calibration": len(one.calibration_.calibration),
            "rmse_on_calibration_rows": float(one.residual_std_.mean()),
            "seconds": one.fit_times_
            | {"reports": predicted - start, "online": perf_counter() - predicted},
            "reports": reports,
            "online": online,
        }
    return {
        "seed": seed,
        "n_rows": {name: len(rows) for name, rows in weather.rows.items()},
        "n_places": weather.y.shape[1],
        "rivals": judge_rivals(weather),
        "calibrations": results,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    seeds = parser.parse_args().seeds
    # errors that no number of draws can reach are recorded, not warned of
    warnings.simplefilter("ignore", UQFormerWarning)
    results = []
    for seed in seeds:
        path = RESULTS / "weather" / f"{seed}.json"
        results.append(cached(path, lambda s=seed: run(s)))
        print(json.dumps(results[-1]), flush=True)
    summary = {"machine": machine(), "results": results}
    (RESULTS / "weather.json").write_text(json.dumps(summary, indent=1) + "\n")


if __name__ == "__main__":
    main()
