"""Data that several metrics are tried on."""

import os
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def probs_dir():
    """Folder with real predicted probabilities; UQFORMER_DATA says where."""
    data = Path(os.environ.get("UQFORMER_DATA", ROOT.parent / "shared" / "data"))
    if not (data / "probs").is_dir():
        pytest.skip(f"no folder {data / 'probs'}; set UQFORMER_DATA to one that has it")
    return data / "probs"


@pytest.fixture(scope="session")
def classes():
    """Labels (300,) and probabilities (300, 4), too sure of themselves."""
    rng = np.random.default_rng(0)
    proba = rng.dirichlet([1.0, 1.0, 0.7, 0.5], size=300)
    y = (rng.uniform(size=(300, 1)) > proba.cumsum(axis=1)).sum(axis=1)
    sure = proba**2
    return y, sure / sure.sum(axis=1, keepdims=True)


@pytest.fixture(scope="session")
def two_classes(classes):
    """Labels (300,) and probabilities (300,) of the positive one of two classes."""
    y, proba = classes
    return (y == 0).astype(int), proba[:, 0]
