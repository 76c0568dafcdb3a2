"""Calibration of a classifier on held-out rows, and anew when a setting changes."""

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import softmax

from uqformer._random import member_seeds, seeded
from uqformer.backbones import FTTransformer
from uqformer.calibration import ConformalSets, TemperatureCalibrator
from uqformer.estimators import _class_calibration
from uqformer.estimators._class_calibration import (
    ClassSettings,
    HeldOutClassCalibration,
    sharpened,
)
from uqformer.estimators._passes import Mixture, Passes
from uqformer.estimators._rows import HeldOut
from uqformer.exceptions import CalibrationWarning

X = np.random.default_rng(0).standard_normal((400, 4)).astype(np.float32)
SETTINGS = ClassSettings(8, 5, is_sharpened=True)


@pytest.fixture(scope="module")
def passes() -> Passes:
    with seeded(0):
        module = FTTransformer(4, 3, d_token=16, n_heads=2, n_blocks=2)
        module.adapt(torch.from_numpy(X))
    with torch.no_grad():
        module.head.weight *= 6  # far from uniform
    return Passes(module, 3, "all", torch.device("cpu"), 1024)


def _rows(passes: Passes, proba: np.ndarray, seed: int = 0) -> HeldOut:
    """Rows whose labels were drawn from given probabilities."""
    uniform = np.random.default_rng(seed).random((len(proba), 1))
    codes = (proba.cumsum(axis=1) < uniform).sum(axis=1)
    x = X[: len(proba)]
    return HeldOut(x, np.minimum(codes, 2), passes.exact(x), np.ones(len(proba)))


def _calibration(passes: Passes, proba: np.ndarray) -> HeldOutClassCalibration:
    rows = _rows(passes, proba)
    return HeldOutClassCalibration(rows.first(250), rows.first(120), seed=3)


@pytest.fixture
def calibration(passes: Passes) -> HeldOutClassCalibration:
    """The model is too sure: labels are drawn as its members of 16 draws say."""
    return _calibration(passes, passes.mixture(X, 16, member_seeds(9, 60)).proba)


# -- The search ---------------------------------------------------------------------


def _row_losses(
    calibration: HeldOutClassCalibration, passes: Passes, n_draws: int | None
) -> np.ndarray:
    rows = calibration.validation
    proba = passes.mixture(rows.x, n_draws, member_seeds(3, 8)).proba
    losses: np.ndarray = -np.log(proba[np.arange(len(rows)), rows.y])
    return losses


def _error_of_mean(values: np.ndarray) -> float:
    return float(values.std(ddof=1) / np.sqrt(len(values)))


def test_the_search_takes_the_fewest_draws_that_cost_nothing(
    calibration: HeldOutClassCalibration, passes: Passes
) -> None:
    result = calibration.search(passes)
    losses = {n: _row_losses(calibration, passes, n) for n in result.losses}
    for n_draws, loss in losses.items():
        assert result.losses[n_draws] == pytest.approx(loss.mean(), rel=1e-6)
    best = min(losses, key=lambda n: losses[n].mean())
    # such a model gains by being spread, and loses by being spread too far
    assert result.n_draws is not None
    assert best is not None
    assert result.n_draws < best < 128
    gaps = {n: losses[n] - losses[best] for n in losses}
    chosen = gaps[result.n_draws]
    assert 0 < chosen.mean() <= _error_of_mean(chosen)
    for n_draws, gap in gaps.items():
        if n_draws is not None and n_draws < result.n_draws:
            assert gap.mean() > _error_of_mean(gap)
    assert set(losses) >= {result.n_draws // 2, best // 2, best * 2}


def test_weights_count_in_the_search(
    calibration: HeldOutClassCalibration, passes: Passes
) -> None:
    rows = calibration.validation
    doubled = np.r_[np.arange(len(rows)), np.arange(20)]
    weight = np.ones(len(rows))
    weight[:20] = 2
    twice = HeldOut(
        rows.x[doubled], rows.y[doubled], rows.exact[doubled], np.ones(len(doubled))
    )
    losses = [
        replace(calibration, validation=held, searches={}).search(passes).losses[4]
        for held in (replace(rows, weight=weight), twice, rows)
    ]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    assert losses[0] != pytest.approx(losses[2], rel=1e-3)


def _gap(mean: float, error: float) -> np.ndarray:
    """Losses beside 0.3 whose differences have this mean and standard error."""
    noise = np.random.default_rng(0).standard_normal(50)
    noise = (noise - noise.mean()) / _error_of_mean(noise)
    return 0.3 + mean + error * noise


@pytest.mark.parametrize(
    ("losses", "chosen"),
    [
        ({1: _gap(0.5, 0.1), 4: _gap(0.01, 0.02), 16: _gap(0, 0), None: _gap(1, 0)}, 4),
        (
            {1: _gap(0.5, 0.1), 4: _gap(0.03, 0.02), 16: _gap(0, 0), None: _gap(1, 0)},
            16,
        ),
        ({1: _gap(0.2, 0.1), 4: _gap(1e-8, 0), 16: _gap(0, 0), None: _gap(0.0, 0)}, 4),
        ({1: _gap(0.2, 0.1), 4: _gap(0.3, 0.1), None: _gap(0, 0)}, None),
        ({1: _gap(0.2, 0.3), 4: _gap(0.3, 0.1), None: _gap(0, 0)}, 1),
        ({1: np.array([1.3]), None: np.array([0.3])}, None),
        ({1: np.array([0.9]), None: np.array([0.3])}, 1),
        ({1: _gap(0.012, 0), 4: _gap(0, 0), None: _gap(0, 0)}, 1),
        ({1: _gap(0.016, 0), 4: _gap(0, 0), None: _gap(0, 0)}, 4),
    ],
    ids=[
        "within",
        "beyond",
        "equal",
        "exact",
        "unsure",
        "one row",
        "one undecided row",
        "less than one undecided row",
        "more than one undecided row",
    ],
)
def test_a_gap_within_its_standard_error_is_none(
    losses: Any, chosen: int | None
) -> None:
    weight = np.ones(len(losses[1]))
    assert _class_calibration._fewest(losses, weight) == chosen


def test_weights_count_in_the_comparison() -> None:
    losses: Any = {
        4: np.r_[np.full(30, 0.3), np.linspace(1, 3, 20)],
        16: np.full(50, 1),
    }
    first, last = np.arange(50) < 30, np.arange(50) >= 30
    assert _class_calibration._fewest(losses, 1.0 + 99 * first) == 4
    assert _class_calibration._fewest(losses, 1.0 + 99 * last) == 16
    # a weight of zero is no row
    unseen = {n: np.r_[loss, 1e3 * n] for n, loss in losses.items()}
    weight = np.r_[1.0 + 99 * first, 0]
    assert _class_calibration._fewest(unseen, weight) == 4


def test_a_model_that_no_draws_improve_is_left_exact_and_told_of(
    passes: Passes, monkeypatch: pytest.MonkeyPatch
) -> None:
    timid = _calibration(passes, np.eye(3)[np.zeros(400, dtype=int)])

    def surer_with_draws(_: Passes, x: Any, n_draws: int | None, __: Any) -> Mixture:
        first = 0.9 if n_draws is None else 0.8 - 0.5 / n_draws
        rest = (1 - first) / 2
        proba = np.tile([first, rest, rest], (len(x), 1))
        return Mixture(proba, np.zeros(len(x)))

    monkeypatch.setattr(Passes, "mixture", surer_with_draws)
    with pytest.warns(CalibrationWarning, match=r"n_draws_=None .* Set n_draws to a"):
        result = timid.search(passes)
    assert result.n_draws is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert timid.search(passes) is result  # told of once is enough


def test_a_search_is_made_once_for_each_choice_of_layers(
    calibration: HeldOutClassCalibration, passes: Passes
) -> None:
    first = calibration.search(passes)
    assert calibration.search(replace(passes, batch_size=7)) is first
    one_layer = calibration.search(replace(passes, layers=[0]))
    assert one_layer is not first
    assert calibration.search(replace(passes, layers=(0,))) is one_layer


def test_the_search_looks_at_the_first_validation_rows_only(
    calibration: HeldOutClassCalibration,
    passes: Passes,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_class_calibration, "SEARCH_ROWS", 60)
    few = replace(calibration, validation=calibration.validation.first(60), searches={})
    assert calibration.search(passes).losses == few.search(passes).losses


# -- Temperature and sets -----------------------------------------------------------


def test_the_temperature_is_that_of_the_mean_probabilities(
    calibration: HeldOutClassCalibration, passes: Passes
) -> None:
    rows = calibration.validation
    proba = passes.mixture(rows.x, 8, member_seeds(3, 5)).proba
    calibrator = TemperatureCalibrator(input="proba", classes=[0, 1, 2])
    calibrator.fit(proba, rows.y)
    found = calibration.temperature(passes, SETTINGS)
    assert found == calibrator.temperature_ != 1
    np.testing.assert_allclose(
        np.exp(sharpened(proba, found)), calibrator.transform(proba), rtol=1e-10
    )
    bare = replace(SETTINGS, is_sharpened=False)
    assert calibration.temperature(passes, bare) == 1


def test_a_missing_class_leaves_a_temperature(passes: Passes) -> None:
    held = _calibration(passes, softmax(passes.exact(X), axis=1))
    rows = held.validation
    kept = np.flatnonzero(rows.y != 1)
    fewer = HeldOut(rows.x[kept], rows.y[kept], rows.exact[kept], rows.weight[kept])
    found = replace(held, validation=fewer).temperature(passes, SETTINGS)
    assert 0.05 < found < 20


@pytest.mark.parametrize("method", ["lac", "aps", "raps"])
def test_sets_are_made_of_the_calibrated_rows(
    calibration: HeldOutClassCalibration, passes: Passes, method: Any
) -> None:
    sets = calibration.conformal(passes, SETTINGS, method)
    rows = calibration.calibration
    proba = passes.mixture(rows.x, 8, member_seeds(3, 5)).proba
    log_proba = sharpened(proba, calibration.temperature(passes, SETTINGS))
    by_hand = ConformalSets(method, input="proba", random_state=sets.random_state)
    by_hand.fit(np.exp(log_proba), rows.y)
    np.testing.assert_allclose(sets.scores_, by_hand.scores_)
    if method == "lac":
        own = np.exp(log_proba)[np.arange(len(rows)), rows.y]
        np.testing.assert_allclose(sets.scores_, 1 - own)


def test_a_setting_that_changes_is_calibrated_anew(
    calibration: HeldOutClassCalibration, passes: Passes
) -> None:
    settings: list[tuple[Any, ...]] = [
        (passes, SETTINGS, "lac"),
        (passes, replace(SETTINGS, n_draws=64), "lac"),
        (passes, replace(SETTINGS, n_members=6), "lac"),
        (passes, replace(SETTINGS, is_sharpened=False), "lac"),
        (replace(passes, layers=[1]), SETTINGS, "lac"),
        (passes, SETTINGS, "aps"),
    ]
    found = [calibration.conformal(*setting) for setting in settings]
    assert len({id(sets) for sets in found}) == 6
    for sets, setting in zip(found, settings, strict=True):
        assert calibration.conformal(*setting) is sets
    assert len(calibration.temperatures) == 4


def test_sharpened_logarithms_are_of_probabilities() -> None:
    proba = np.array([[0.7, 0.3, 0.0], [0.2, 0.2, 0.6]])
    for temperature in (0.5, 1.0, 3.0):
        powers = np.maximum(proba, 1e-12) ** (1 / temperature)
        by_hand = powers / powers.sum(axis=1, keepdims=True)
        np.testing.assert_allclose(np.exp(sharpened(proba, temperature)), by_hand)
