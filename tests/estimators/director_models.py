"""Small estimators that distil, and their data, for the tests of several files."""

import functools
from typing import Any

import numpy as np

from uqformer import DirectorClassifier, DirectorRegressor

Data = tuple[np.ndarray, np.ndarray]

TINY: dict[str, Any] = {
    "backbone_params": {"d_token": 16, "n_heads": 2, "n_blocks": 2},
    "max_epochs": 6,
    "distil_epochs": 4,
    "n_chains": 3,
    "n_draws": 8,
    "performance_weight": 10.0,
    "random_state": 0,
}


def tiny_classifier(**changes: Any) -> DirectorClassifier:
    """Make the classifier of most tests, with some parameters changed."""
    return DirectorClassifier(**(TINY | changes))


def tiny_regressor(**changes: Any) -> DirectorRegressor:
    """Make the regressor of most tests, with some parameters changed."""
    return DirectorRegressor(**(TINY | changes))


@functools.cache
def classes(n_rows: int = 90, seed: int = 0) -> Data:
    """Rows of three classes that overlap, under words for labels."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n_rows, 3))
    codes = (3 * X + rng.gumbel(size=X.shape)).argmax(axis=1)
    return X, np.array(["cat", "ant", "bee"])[codes]


@functools.cache
def numbers(n_rows: int = 90, seed: int = 0) -> Data:
    """Rows of a line whose noise grows from left to right."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(n_rows, 3))
    noise = 0.1 + 0.3 * (X[:, 0] + 1)
    return X, 2 * X[:, 0] - X[:, 1] + noise * rng.standard_normal(n_rows)


@functools.cache
def fitted_classifier() -> DirectorClassifier:
    """Fitted once; tests that change it copy it first."""
    return tiny_classifier().fit(*classes())


@functools.cache
def fitted_regressor() -> DirectorRegressor:
    """Fitted once; tests that change it copy it first."""
    return tiny_regressor().fit(*numbers())
