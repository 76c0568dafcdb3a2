"""Rows: parts are disjoint and cover all, held-out rows know their errors."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from uqformer.estimators._passes import Passes
from uqformer.estimators._rows import (
    HeldOut,
    Parts,
    check_all_classes_train,
    part_rows,
)


def _part(n_samples: int, **changes: Any) -> Parts:
    settings: dict[str, Any] = {
        "validation_fraction": 0.1,
        "calibration_fraction": 0.2,
        "trains": True,
        "seed": 0,
    }
    return part_rows(n_samples, **(settings | changes))


def _sizes(parts: Parts) -> tuple[int, int, int]:
    return len(parts.train), len(parts.validation), len(parts.calibration)


# -- Parts --------------------------------------------------------------------------


@pytest.mark.parametrize("n_samples", [8, 17, 100, 1001])
@pytest.mark.parametrize("trains", [True, False])
@pytest.mark.parametrize("calibration_fraction", [0.0, 0.05, 0.4])
@pytest.mark.parametrize("validation_fraction", [0.05, 0.1, 0.25])
def test_parts_are_disjoint_and_cover_all_rows(
    n_samples: int,
    trains: bool,
    calibration_fraction: float,
    validation_fraction: float,
) -> None:
    for seed in range(5):
        parts = _part(
            n_samples,
            trains=trains,
            validation_fraction=validation_fraction,
            calibration_fraction=calibration_fraction,
            seed=seed,
        )
        together = np.concatenate([parts.train, parts.validation, parts.calibration])
        assert sorted(together) == list(range(n_samples))
        n_train, n_validation, n_calibration = _sizes(parts)
        assert n_validation >= 1
        assert (n_calibration == 0) == (calibration_fraction == 0)
        assert n_train >= 3 if trains else n_train == 0


def test_parts_have_the_sizes_asked_for() -> None:
    assert _sizes(_part(200)) == (140, 20, 40)
    assert _sizes(_part(200, calibration_fraction=0.0)) == (180, 20, 0)
    # the fewest rows an estimator takes
    assert _sizes(_part(5)) == (3, 1, 1)
    # a guest needs no training rows: the others share them, one to two
    assert _sizes(_part(300, trains=False)) == (0, 100, 200)
    assert _sizes(_part(300, trains=False, calibration_fraction=0.0)) == (0, 300, 0)
    # one row at least chooses, whatever the fractions
    extreme = _part(
        10, trains=False, validation_fraction=0.01, calibration_fraction=0.9
    )
    assert _sizes(extreme) == (0, 1, 9)


def test_parts_are_shuffled_by_the_seed_alone() -> None:
    first, again, other = _part(100), _part(100), _part(100, seed=1)
    assert first.train.tolist() == again.train.tolist()
    assert set(first.train) != set(other.train)
    assert first.train.tolist() != sorted(first.train)


def test_every_row_is_held_out_as_often_as_any_other() -> None:
    counts = np.zeros(50)
    for seed in range(400):
        counts[_part(50, seed=seed).calibration] += 1
    # binomial(400, 0.2) per row: four standard deviations either way
    assert abs(counts - 80).max() < 4 * np.sqrt(400 * 0.2 * 0.8)


@pytest.mark.parametrize(
    ("n_samples", "fractions", "left"),
    [
        (10, (0.5, 0.45), 1),
        (10, (0.5, 0.3), 2),
        (20, (0.6, 0.7), -6),
        (3, (0.1, 0.2), 1),
    ],
)
def test_fractions_must_leave_rows_to_train_on(
    n_samples: int, fractions: tuple[float, float], left: int
) -> None:
    validation, calibration = fractions
    expected = (
        rf"must leave 3 rows to train on; got {validation:g} and {calibration:g} of "
        rf"{n_samples} rows, which leaves {left}\."
    )
    with pytest.raises(ValueError, match=expected):
        _part(
            n_samples, validation_fraction=validation, calibration_fraction=calibration
        )


# -- In the order of time ------------------------------------------------------------


def _ordered(n_samples: int, **changes: Any) -> list[list[int]]:
    parts = _part(n_samples, shuffle=False, **changes)
    return [sorted(part) for part in (parts.train, parts.validation, parts.calibration)]


@pytest.mark.parametrize("embargo", [0, 1, 7])
def test_parts_of_a_series_follow_one_another(embargo: int) -> None:
    # 100 rows besides those left out, in parts of 70, 10 and 20
    train, validation, calibration = _ordered(100 + 2 * embargo, embargo=embargo)
    assert train == list(range(70))
    assert validation == list(range(70 + embargo, 80 + embargo))
    assert calibration == list(range(80 + 2 * embargo, 100 + 2 * embargo))


def test_an_embargo_stands_only_between_parts_that_there_are() -> None:
    train, validation, calibration = _ordered(103, embargo=3, calibration_fraction=0.0)
    assert (train, calibration) == (list(range(90)), [])
    assert validation == list(range(93, 103))
    train, validation, calibration = _ordered(303, embargo=3, trains=False)
    assert (train, validation) == ([], list(range(100)))
    assert calibration == list(range(103, 303))
    alone = _ordered(50, embargo=3, trains=False, calibration_fraction=0.0)
    assert alone == [[], list(range(50)), []]


@pytest.mark.parametrize(
    ("context", "horizon", "step"), [(5, 3, 1), (4, 4, 2), (3, 4, 3)]
)
def test_windows_share_no_step_across_an_embargo(
    context: int, horizon: int, step: int
) -> None:
    length = context + horizon
    embargo = -(-length // step) - 1
    steps = [set(range(row * step, row * step + length)) for row in range(60)]
    parts = _ordered(60, embargo=embargo)
    seen = [set().union(*(steps[row] for row in part)) for part in parts]
    assert not seen[0] & seen[1]
    assert not seen[1] & seen[2]
    one_less = _ordered(60, embargo=embargo - 1)
    assert steps[max(one_less[0])] & steps[min(one_less[1])]


def test_the_first_rows_of_an_ordered_part_stand_for_all_of_it() -> None:
    validation = _part(5000, shuffle=False, validation_fraction=0.4).validation
    assert validation.tolist() != sorted(validation)
    half = validation[:1000] - 2000
    # the mean of 1000 of 2000 numbers, drawn without replacement
    assert half.mean() == pytest.approx(999.5, abs=4 * 2000 / np.sqrt(12 * 1000 * 2))
    again = _part(5000, shuffle=False, validation_fraction=0.4).validation
    np.testing.assert_array_equal(validation, again)


def test_mistakes_with_an_embargo_are_named() -> None:
    with pytest.raises(ValueError, match="embargo=2 with shuffle=True"):
        _part(100, embargo=2)
    with pytest.raises(ValueError, match="embargo=23, which leaves out 46 of 50 rows"):
        _part(50, shuffle=False, embargo=23)
    with pytest.raises(ValueError, match="must leave 3 rows to train on"):
        _part(50, shuffle=False, validation_fraction=0.8)


def test_every_class_must_be_among_the_rows_that_train() -> None:
    codes = np.repeat([0, 1, 0, 2], [40, 35, 23, 2])
    parts, names = _part(100, shuffle=False, codes=codes), np.array(["a", "b", "c"])
    with pytest.raises(ValueError, match=r"the first 70; got none of class 'c' there"):
        check_all_classes_train(parts, codes, names)
    codes[[3, -1]] = codes[[-1, 3]]
    check_all_classes_train(parts, codes, names)
    nothing_trains = _part(100, shuffle=False, codes=codes, trains=False)
    check_all_classes_train(nothing_trains, codes, names)


# -- Held-out rows ------------------------------------------------------------------


def _held_out(n_rows: int = 12, n_outputs: int = 2) -> HeldOut:
    rng = np.random.default_rng(0)
    return HeldOut(
        rng.standard_normal((n_rows, 3)),
        rng.standard_normal((n_rows, n_outputs)),
        rng.standard_normal((n_rows, n_outputs)),
        rng.uniform(0.5, 1.5, n_rows),
    )


def test_run_keeps_what_the_exact_pass_says() -> None:
    module = nn.Linear(3, 2)
    passes = Passes(module, 2, "all", torch.device("cpu"), 5)
    rows = _held_out()
    x = rows.x.astype(np.float32)
    held = HeldOut.run(passes, x, rows.y, rows.weight)
    np.testing.assert_array_equal(held.exact, passes.exact(x))
    np.testing.assert_array_equal(held.residuals(), rows.y - passes.exact(x))
    assert len(held) == 12


def test_no_rows_are_held_without_a_pass() -> None:
    passes = Passes(nn.Linear(3, 2), 2, "all", torch.device("cpu"), 5)
    rows = _held_out()
    held = HeldOut.run(passes, rows.x[:0], rows.y[:0], rows.weight[:0])
    assert len(held) == 0
    assert held.exact.shape == (0, 2)


def test_first_keeps_rows_together() -> None:
    rows = _held_out()
    first = rows.first(5)
    for name in ("x", "y", "exact", "weight"):
        np.testing.assert_array_equal(getattr(first, name), getattr(rows, name)[:5])
    assert len(rows.first(1000)) == 12


def test_outputs_count_alike_whatever_their_units() -> None:
    rows = _held_out()
    units = np.array([1.0, 1000.0])
    scaled = HeldOut(rows.x, rows.y * units, rows.exact * units, rows.weight)
    before = rows.root_mean_square(rows.residuals() ** 2)
    after = scaled.root_mean_square(scaled.residuals() ** 2)
    assert after == pytest.approx(before)
    by_hand = [
        sum(
            rows.weight[i] * (rows.y[i, j] - rows.exact[i, j]) ** 2 / rows.y[:, j].var()
            for i in range(12)
        )
        for j in range(2)
    ]
    assert before == pytest.approx(np.sqrt(np.mean(by_hand) / rows.weight.sum()))


def test_squares_of_a_row_are_in_units_of_the_targets() -> None:
    rows = _held_out()
    squares = rows.residuals() ** 2
    by_hand = (squares / rows.y.var(axis=0)).mean(axis=1)
    np.testing.assert_allclose(rows.per_row(squares), by_hand)


def test_a_row_of_weight_two_counts_twice() -> None:
    rows = _held_out(4, 1)
    square = np.array([[1.0], [4.0], [9.0], [16.0]])
    weighted = HeldOut(rows.x, rows.y, rows.exact, np.array([2.0, 1.0, 1.0, 0.0]))
    mean = (2 * 1 + 4 + 9) / 4 / rows.y.var()
    assert weighted.root_mean_square(square) == pytest.approx(np.sqrt(mean))


def test_a_constant_output_has_a_size_all_the_same() -> None:
    rows = _held_out(4, 1)
    flat = HeldOut(rows.x, np.full((4, 1), 3.0), rows.exact, np.ones(4))
    assert flat.root_mean_square(np.full((4, 1), 0.25)) == pytest.approx(0.5)


# -- Classes ------------------------------------------------------------------------


@pytest.mark.parametrize("trains", [True, False])
def test_each_class_is_spread_over_the_parts(trains: bool) -> None:
    counts = np.array([150, 60, 25, 4])
    codes = np.random.default_rng(0).permutation(np.repeat(np.arange(4), counts))
    for seed in range(20):
        parts = _part(len(codes), codes=codes, seed=seed, trains=trains)
        assert _sizes(parts) == _sizes(_part(len(codes), trains=trains))
        together = np.concatenate([parts.train, parts.validation, parts.calibration])
        assert sorted(together) == list(range(len(codes)))
        for part in (parts.train, parts.validation, parts.calibration):
            found = np.bincount(codes[part], minlength=4)
            assert (abs(found - counts * len(part) / len(codes)) < 1.5).all()


def test_the_only_row_of_a_class_trains() -> None:
    codes = np.zeros(50, dtype=int)
    codes[17] = 1
    assert all(17 in _part(50, codes=codes, seed=seed).train for seed in range(20))


def test_within_a_class_every_row_is_held_out_as_often_as_any_other() -> None:
    codes = np.repeat([0, 1], [40, 10])
    counts = np.zeros(50)
    for seed in range(400):
        counts[_part(50, codes=codes, seed=seed).calibration] += 1
    # 10 of 50 calibrate: 8 of the first class and 2 of the second, in each split
    assert abs(counts - 80).max() < 4 * np.sqrt(400 * 0.2 * 0.8)


def test_arrays_by_name_are_held_together() -> None:
    x = {"a": np.arange(6), "b": np.arange(12).reshape(6, 2)}
    rows = HeldOut(x, np.arange(6) % 2, np.zeros((6, 2)), np.ones(6))
    first = rows.first(4)
    assert len(rows) == 6
    assert len(first) == len(first.x["a"]) == len(first.x["b"]) == 4
