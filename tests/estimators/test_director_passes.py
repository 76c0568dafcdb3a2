"""Passes of a student against the student itself."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import softmax

from tests.estimators.conftest import Guest, Reader, texts
from uqformer._random import seeded
from uqformer.director import Student, Teacher, TransitionDiT
from uqformer.estimators._director_passes import ChainPasses
from uqformer.predictive import ClassificationEnsemble

SEEDS = [3, 4, 5, 6]


def passes_of(module: torch.nn.Module, x: Any, **options: Any) -> ChainPasses:
    with seeded(0):
        transition = TransitionDiT(8, 2, n_heads=2)
        for parameter in transition.parameters():
            torch.nn.init.normal_(parameter, std=0.2)
    student = Student(Teacher(module.eval(), x), transition).eval()
    return ChainPasses(
        student, 3, "all", torch.device("cpu"), **({"batch_size": 64} | options)
    )


@pytest.fixture
def x() -> np.ndarray:
    return np.random.default_rng(0).standard_normal((20, 3)).astype(np.float32)


@pytest.fixture
def passes(x: np.ndarray) -> ChainPasses:
    with seeded(1):
        guest = Guest(n_outputs=3)
    return passes_of(guest, torch.from_numpy(x[:4]))


def test_passes_are_those_of_the_student(passes: ChainPasses, x: np.ndarray) -> None:
    student, rows = passes.student, torch.from_numpy(x)
    with torch.no_grad():
        exact, members = student(rows), student.members(rows, SEEDS)
        spread = student.traced(rows, SEEDS)[1]
    np.testing.assert_allclose(passes.exact(x), exact, atol=1e-5)
    np.testing.assert_allclose(passes.members(x, None, SEEDS), members, atol=1e-5)
    traced = passes.traced(x, SEEDS)
    np.testing.assert_allclose(traced[0], members, atol=1e-5)
    np.testing.assert_allclose(traced[1], spread, rtol=1e-4)
    assert passes.exact(x).dtype == traced[1].dtype == np.float64


def test_sums_over_chains_need_no_draws(passes: ChainPasses, x: np.ndarray) -> None:
    members, exact = passes.members(x, None, SEEDS), passes.exact(x)
    ensemble = ClassificationEnsemble(softmax(members, axis=2))
    for n_draws in (None, 7):
        mixture = passes.mixture(x, n_draws, SEEDS)
        np.testing.assert_allclose(mixture.proba, ensemble.mean_proba(), atol=1e-12)
        np.testing.assert_allclose(mixture.entropy, ensemble.expected_entropy())
        moments = passes.deviations(x, exact, n_draws, SEEDS)
        np.testing.assert_allclose(moments.mean, members.mean(axis=0) - exact)
        np.testing.assert_allclose(moments.std(), members.std(axis=0), atol=1e-7)
    assert members.std(axis=0).min() > 1e-3


@pytest.mark.parametrize("batch_size", [1, 7, 1000])
def test_batches_change_nothing_and_bound_the_rows(
    passes: ChainPasses, x: np.ndarray, batch_size: int
) -> None:
    sizes: list[int] = []
    passes.module.transition.register_forward_pre_hook(
        lambda module, args: sizes.append(len(args[0]))
    )
    small = replace(passes, batch_size=batch_size)
    got = small.members(x, None, SEEDS), *small.traced(x, SEEDS)
    most = max(sizes)
    whole = passes.members(x, None, SEEDS), *passes.traced(x, SEEDS)
    for part, expected in zip(got, whole, strict=True):
        np.testing.assert_allclose(part, expected, atol=1e-5)
    # all chains of one row are the least that can be walked
    assert most <= max(batch_size, len(SEEDS))


def test_padding_that_no_row_needs_is_cut() -> None:
    with seeded(1):
        reader = Reader()
    arrays, _ = texts(12)
    tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
    passes = passes_of(reader, tensors)
    short = np.flatnonzero(arrays["attention_mask"].sum(axis=1) < 5)
    some: Mapping[str, np.ndarray] = {name: a[short] for name, a in arrays.items()}
    whole, part = passes.members(arrays, None, SEEDS), passes.members(some, None, SEEDS)
    np.testing.assert_allclose(part, whole[:, short], atol=1e-5)
    spread = passes.traced(arrays, SEEDS)[1]
    np.testing.assert_allclose(passes.traced(some, SEEDS)[1], spread[short], rtol=1e-4)


def test_columns_and_steps(passes: ChainPasses, x: np.ndarray) -> None:
    turned = replace(passes, columns=np.array([2, 0, 1]))
    members = passes.members(x, None, SEEDS)
    np.testing.assert_array_equal(
        turned.members(x, None, SEEDS), members[..., [2, 0, 1]]
    )
    one = replace(passes, n_steps=1)
    assert one.traced(x, SEEDS)[1].shape == (20, 1)
    assert not np.allclose(one.exact(x), passes.exact(x))


def test_modes_of_submodules_stay(passes: ChainPasses, x: np.ndarray) -> None:
    passes.module.train()
    passes.members(x, None, SEEDS)
    passes.exact(x)
    passes.traced(x, SEEDS)
    assert passes.module.training
