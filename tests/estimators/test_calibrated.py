"""Calibration on held-out rows: found once a setting, found again when it changes."""

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import binom

from uqformer._random import member_seeds, seeded
from uqformer.backbones import FTTransformer
from uqformer.calibration import AdaptiveConformal, concentration_search
from uqformer.estimators import _calibrated
from uqformer.estimators._calibrated import HeldOutCalibration, point_and_spread
from uqformer.estimators._passes import Deviations, Passes
from uqformer.estimators._rows import HeldOut
from uqformer.exceptions import CalibrationWarning

X = np.random.default_rng(0).standard_normal((60, 4)).astype(np.float32)
N_DRAWS = 32


@pytest.fixture(scope="module")
def passes() -> Passes:
    with seeded(0):
        module = FTTransformer(4, 1, d_token=16, n_heads=2, n_blocks=2)
        module.adapt(torch.from_numpy(X))
    return Passes(module, 1, "all", torch.device("cpu"), 1024)


@pytest.fixture
def calibration(passes: Passes) -> HeldOutCalibration:
    """Targets that lie about the exact pass as far as members of 32 draws do."""
    exact = passes.exact(X)
    deviation = passes.members(X, N_DRAWS, member_seeds(123, 60)) - exact
    # a member of its own for each row, for one member strays from all rows alike
    y = exact + deviation[np.arange(60), np.arange(60)]
    rows = HeldOut(X, y, exact, np.ones(60))
    last = (array[40:] for array in (X, y, exact, np.ones(60)))
    return HeldOutCalibration(rows.first(40), HeldOut(*last), seed=0)


@pytest.fixture(autouse=True)
def _quick_search(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_calibrated, "SEARCH_PASSES", 9)


# -- Point and spread ---------------------------------------------------------------


def test_point_and_spread_about_either_point() -> None:
    rng = np.random.default_rng(0)
    members, exact = rng.standard_normal((7, 5, 2)), rng.standard_normal((5, 2))
    distance = members - exact
    moments = Deviations(distance.mean(axis=0), (distance**2).mean(axis=0))
    point, spread = point_and_spread(exact, moments, "exact")
    np.testing.assert_array_equal(point, exact)
    np.testing.assert_allclose(spread, np.sqrt(((members - exact) ** 2).mean(axis=0)))
    point, spread = point_and_spread(exact, moments, "mean")
    np.testing.assert_allclose(point, members.mean(axis=0))
    np.testing.assert_allclose(spread, members.std(axis=0))


# -- The search ---------------------------------------------------------------------


def test_the_search_finds_the_draws_behind_the_errors(
    calibration: HeldOutCalibration, passes: Passes
) -> None:
    result = calibration.search(passes)
    assert 1 / 3 < result.n_draws / N_DRAWS < 3
    assert result.reached
    rows = calibration.validation
    unit = rows.y.std()
    assert result.target == pytest.approx(
        np.sqrt((rows.residuals() ** 2).mean()) / unit
    )


def test_each_pass_has_seeds_of_its_own(
    calibration: HeldOutCalibration, passes: Passes, monkeypatch: pytest.MonkeyPatch
) -> None:
    measures: list[Any] = []

    def spy(measure: Any, target: float, **options: Any) -> Any:
        measures.append(measure)
        return concentration_search(measure, target, **options)

    monkeypatch.setattr(_calibrated, "concentration_search", spy)
    for seed in (0, 1):
        replace(calibration, searches={}, seed=seed).search(passes)
    distances = [measure(8, i) for measure in measures for i in range(3)]
    assert len(set(distances)) == 6
    assert distances[1] == measures[0](8, 1)


def test_a_search_is_made_once_for_each_choice_of_layers(
    calibration: HeldOutCalibration, passes: Passes
) -> None:
    first = calibration.search(passes)
    assert calibration.search(passes) is first
    assert calibration.search(replace(passes, batch_size=7)) is first
    one_layer = calibration.search(replace(passes, layers=[0]))
    assert one_layer is not first
    assert calibration.search(replace(passes, layers=(0,))) is one_layer
    assert set(calibration.searches) == {"all", (0,)}


def test_the_search_looks_at_the_first_validation_rows_only(
    calibration: HeldOutCalibration, passes: Passes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_calibrated, "SEARCH_ROWS", 15)
    rows = calibration.validation
    few = replace(calibration, validation=rows.first(15), searches={})
    assert calibration.search(passes).target == few.search(passes).target
    assert few.search(passes).target != rows.root_mean_square(rows.residuals() ** 2)


def test_an_error_out_of_reach_is_warned_of(
    calibration: HeldOutCalibration, passes: Passes
) -> None:
    far = replace(calibration.validation, y=1e3 * calibration.validation.y)
    stuck = replace(calibration, validation=far, searches={})
    with pytest.warns(CalibrationWarning, match=r"n_draws=1 spreads .*conformal"):
        result = stuck.search(passes)
    assert (result.n_draws, result.reached) == (1, False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert stuck.search(passes) is result  # warned of once is enough


def test_the_warning_asks_for_nothing_that_is_there_already(
    calibration: HeldOutCalibration, passes: Passes
) -> None:
    far = replace(calibration.validation, y=1e3 * calibration.validation.y)
    stuck = replace(calibration, validation=far, searches={})
    with pytest.warns(CalibrationWarning, match="too narrow: conformal intervals corr"):
        stuck.search(passes)
    bare = replace(stuck, calibration=far.first(0), searches={})
    with pytest.warns(CalibrationWarning, match="too narrow: use interval='conformal'"):
        bare.search(passes)


def test_a_perfect_fit_asks_for_the_most_draws(
    calibration: HeldOutCalibration, passes: Passes
) -> None:
    rows = calibration.validation
    perfect = replace(calibration, validation=replace(rows, y=rows.exact), searches={})
    result = perfect.search(passes)
    assert (result.n_draws, result.reached) == (1024, True)


@pytest.fixture
def _members_of_known_spread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let members stray as the last input says, over the root of the draws."""

    def deviations(
        _: Passes, x: Any, exact: Any, n_draws: int, seeds: list[int]
    ) -> Deviations:
        pull = [np.random.default_rng([seed, n_draws]).normal(1, 0.1) for seed in seeds]
        mean_square = x[:, -1:] ** 2 / n_draws * np.square(pull).mean()
        return Deviations(np.zeros_like(mean_square), mean_square)

    monkeypatch.setattr(Passes, "deviations", deviations)


@pytest.mark.usefixtures("_members_of_known_spread")
def test_the_interval_holds_the_number_that_endless_rows_would_choose(
    calibration: HeldOutCalibration, passes: Passes, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    n_searches = 150

    def n_held() -> int:
        held = 0
        for _ in range(n_searches):
            x = np.exp(0.5 * rng.standard_normal((60, 1)))  # of mean square exp(0.5)
            error = np.sqrt(np.exp(0.5) / N_DRAWS) * rng.standard_normal((60, 1))
            rows = HeldOut(x, error, np.zeros((60, 1)), np.ones(60))
            search = replace(calibration, validation=rows, searches={}).search
            low, high = search(passes).interval
            held += low <= N_DRAWS <= high
        return held

    lowest, highest = binom.ppf([1e-4, 1 - 1e-4], n_searches, 0.9)
    assert lowest <= n_held() <= highest
    # without the noise of the rows it is too sure of itself
    monkeypatch.setattr(_calibrated, "log_ratio_std_error", lambda *_: 0.0)
    assert n_held() < lowest


def test_weights_count_in_the_interval(
    calibration: HeldOutCalibration, passes: Passes
) -> None:
    rows = calibration.validation
    few = replace(rows, weight=np.where(np.arange(len(rows)) < 6, 1.0, 1e-6))
    ratios = []
    for held in (rows, few):
        search = replace(calibration, validation=held, searches={}).search
        low, high = search(passes).interval
        ratios.append(high / low)
    assert ratios[1] > 1.5 * ratios[0]


# -- The conformal layer ------------------------------------------------------------


@pytest.mark.parametrize("point", ["exact", "mean"])
def test_the_conformal_layer_is_that_of_the_held_out_rows(
    calibration: HeldOutCalibration, passes: Passes, point: Any
) -> None:
    conformal = calibration.conformal(passes, 16, 5, point)
    parts = []
    for rows in (calibration.validation, calibration.calibration):
        members = passes.members(rows.x, 16, member_seeds(0, 5))
        middle = rows.exact if point == "exact" else members.mean(axis=0)
        spread = np.sqrt(((members - middle) ** 2).mean(axis=0))
        parts += [rows.y - middle, spread]
    by_hand = AdaptiveConformal.fit(*parts)
    np.testing.assert_array_equal(conformal.floor, by_hand.floor)
    np.testing.assert_allclose(conformal.scores, by_hand.scores, rtol=1e-4)


def test_a_setting_that_changes_is_calibrated_anew(
    calibration: HeldOutCalibration, passes: Passes
) -> None:
    settings: list[tuple[Any, ...]] = [
        (passes, 4, 5, "exact"),
        (passes, 64, 5, "exact"),
        (passes, 4, 6, "exact"),
        (passes, 4, 5, "mean"),
        (replace(passes, layers=[1]), 4, 5, "exact"),
    ]
    found = [calibration.conformal(*setting) for setting in settings]
    assert len({id(conformal) for conformal in found}) == 5
    for conformal, setting in zip(found, settings, strict=True):
        assert calibration.conformal(*setting) is conformal
    half = [c.half_width(np.ones((1, 1)), 0.8).item() for c in found]
    # floors are infinite here or there, and then draws and members do not matter
    finite = [h for h, c in zip(half, found, strict=True) if np.isfinite(c.floor[0])]
    assert len(set(finite)) == len(finite) >= 1


def test_without_a_redraw_it_is_plain_split_conformal(
    calibration: HeldOutCalibration, passes: Passes
) -> None:
    conformal = calibration.conformal(passes, None, 5, "exact")
    assert conformal.floor.tolist() == [np.inf]
    residuals = calibration.calibration.residuals()
    np.testing.assert_array_equal(conformal.scores, np.abs(residuals))
