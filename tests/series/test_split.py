"""Splits in time: no step of a test window is seen in training, as a search shows."""

from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV, TimeSeriesSplit, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from uqformer.series import EmbargoedTimeSeriesSplit, make_windows

CASES = [(1, 1, 1), (5, 3, 1), (5, 3, 2), (4, 4, 3), (2, 6, 8), (24, 12, 5)]


def _steps(first: Any, context_length: int, horizon: int) -> tuple[set[int], set[int]]:
    """Steps of the series in the contexts and in the targets of some windows."""
    seen = {step for f in first for step in range(f - context_length, f)}
    ahead = {step for f in first for step in range(f, f + horizon)}
    return seen, ahead


@pytest.mark.parametrize(("context_length", "horizon", "step"), CASES)
def test_no_step_is_shared(context_length: int, horizon: int, step: int) -> None:
    X, _, first = make_windows(
        np.arange(600), context_length=context_length, horizon=horizon, step=step
    )
    cv = EmbargoedTimeSeriesSplit(
        3, context_length=context_length, horizon=horizon, step=step
    )
    for train, test in cv.split(X):
        seen, ahead = _steps(first[train], context_length, horizon)
        test_seen, test_ahead = _steps(first[test], context_length, horizon)
        assert (seen | ahead).isdisjoint(test_seen | test_ahead)
        assert max(ahead) < min(test_seen)


@pytest.mark.parametrize(("context_length", "horizon", "step"), CASES)
def test_the_embargo_is_no_longer_than_it_must_be(
    context_length: int, horizon: int, step: int
) -> None:
    X, _, first = make_windows(
        np.arange(600), context_length=context_length, horizon=horizon, step=step
    )
    cv = EmbargoedTimeSeriesSplit(
        3, context_length=context_length, horizon=horizon, step=step
    )
    for train, test in cv.split(X):
        # one row more would share a step
        seen, ahead = _steps([first[train[-1] + 1]], context_length, horizon)
        test_seen, test_ahead = _steps(first[test], context_length, horizon)
        assert (seen | ahead) & (test_seen | test_ahead)


@pytest.mark.parametrize(("context_length", "horizon", "step"), CASES)
def test_targets_alone_may_be_kept_apart(
    context_length: int, horizon: int, step: int
) -> None:
    X, _, first = make_windows(
        np.arange(600), context_length=context_length, horizon=horizon, step=step
    )
    cv = EmbargoedTimeSeriesSplit(3, context_length=0, horizon=horizon, step=step)
    for train, test in cv.split(X):
        seen, ahead = _steps(first[train], context_length, horizon)
        _, test_ahead = _steps(first[test], context_length, horizon)
        assert (seen | ahead).isdisjoint(test_ahead)


def test_scikit_learns_own_split_does_share_steps() -> None:
    X, _, first = make_windows(np.arange(100), context_length=5, horizon=3)
    train, test = next(TimeSeriesSplit(3).split(X))
    _, ahead = _steps(first[train], 5, 3)
    _, test_ahead = _steps(first[test], 5, 3)
    assert ahead & test_ahead


def test_test_parts_follow_each_other_to_the_end() -> None:
    cv = EmbargoedTimeSeriesSplit(4, context_length=3, horizon=2, test_size=7)
    splits = list(cv.split(np.zeros((60, 3, 1))))
    np.testing.assert_array_equal(
        np.concatenate([test for _, test in splits]), np.arange(32, 60)
    )
    for train, test in splits:
        np.testing.assert_array_equal(train, np.arange(test[0] - 4))
    assert len(splits) == cv.get_n_splits() == 4


def test_training_parts_may_be_limited() -> None:
    cv = EmbargoedTimeSeriesSplit(
        3, context_length=3, horizon=2, test_size=5, max_train_size=10
    )
    for train, test in cv.split(np.zeros((60, 3, 1))):
        np.testing.assert_array_equal(train, np.arange(test[0] - 14, test[0] - 4))


def test_it_works_where_scikit_learn_takes_a_splitter() -> None:
    rng = np.random.default_rng(0)
    series = np.sin(np.arange(400) / 5) + 0.1 * rng.standard_normal(400)
    X, y, _ = make_windows(series, context_length=20, horizon=4)
    cv = EmbargoedTimeSeriesSplit(4, context_length=20, horizon=4)
    model = make_pipeline(FunctionTransformer(lambda X: X.reshape(len(X), -1)), Ridge())
    scores = cross_val_score(model, X, y, cv=cv)
    assert scores.shape == (4,)
    assert scores.min() > 0.9
    search = GridSearchCV(model, {"ridge__alpha": [0.1, 10]}, cv=cv).fit(X, y)
    assert search.n_splits_ == 4


def test_repr_names_what_was_set() -> None:
    cv = EmbargoedTimeSeriesSplit(3, context_length=5, horizon=2)
    assert repr(cv).startswith("EmbargoedTimeSeriesSplit(context_length=5, horizon=2")


def test_too_few_rows_raise() -> None:
    cv = EmbargoedTimeSeriesSplit(3, context_length=5, horizon=2, test_size=4)
    list(cv.split(np.zeros((19, 1))))
    message = (
        r"at least 19 rows for n_splits=3 test parts of 4 and an embargo of 6; got"
    )
    with pytest.raises(ValueError, match=message):
        list(cv.split(np.zeros((18, 1))))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n_splits", 1),
        ("context_length", -1),
        ("horizon", 0),
        ("step", 0),
        ("test_size", 0),
        ("max_train_size", 0),
    ],
)
def test_parameters_are_checked(name: str, value: Any) -> None:
    options = {"n_splits": 3, "context_length": 5, "horizon": 2} | {name: value}
    with pytest.raises(ValueError, match=f"{name} must be a whole number"):
        list(EmbargoedTimeSeriesSplit(**options).split(np.zeros((90, 1))))
