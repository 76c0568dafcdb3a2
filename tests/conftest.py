"""Fixtures that every room's tests may ask for; nothing here imports torch."""

import importlib
import os
import pkgutil
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from numpy.typing import NDArray

import uqformer

ROOT = Path(__file__).resolve().parents[1]

# figures are compared by their numbers, so no window is ever needed
os.environ.setdefault("MPLBACKEND", "Agg")


def _public_modules() -> list[str]:
    """List the package and its rooms; `cli` is a command, documented by its --help."""
    rooms = [module.name for module in pkgutil.iter_modules(uqformer.__path__)]
    public = [name for name in rooms if not name.startswith("_") and name != "cli"]
    return ["uqformer", *(f"uqformer.{name}" for name in public)]


def _public_names() -> dict[str, list[str]]:
    """Map each public module to what it exports, without modules and dunders."""
    names = {}
    for module_name in _public_modules():
        module = importlib.import_module(module_name)
        names[module_name] = [
            name
            for name in module.__all__
            if not name.startswith("__")
            and not isinstance(getattr(module, name), ModuleType)
        ]
    return names


@pytest.fixture(scope="session")
def public_names() -> dict[str, list[str]]:
    """Names that users may import, per public module."""
    return _public_names()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test that asks for `public_path` once per public name."""
    if "public_path" in metafunc.fixturenames:
        names = _public_names()
        paths = [f"{module}.{name}" for module in names for name in names[module]]
        metafunc.parametrize("public_path", paths)


@pytest.fixture(scope="session")
def heteroscedastic() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """80 rows of a line whose noise grows from left to right."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(80, 3))
    noise = 0.05 + 0.2 * (X[:, 0] + 1)
    return X, 2 * X[:, 0] - X[:, 1] + noise * rng.standard_normal(80)


@pytest.fixture(scope="session")
def uci_dir() -> Path:
    """Folder with the UCI regression sets as `.npz`; UQFORMER_DATA says where."""
    data = Path(os.environ.get("UQFORMER_DATA", ROOT.parent / "shared" / "data"))
    if not (data / "uci").is_dir():
        pytest.skip(f"no folder {data / 'uci'}; set UQFORMER_DATA to one that has it")
    return data / "uci"


@pytest.fixture
def pyplot() -> Iterator[ModuleType]:
    """`matplotlib.pyplot`, with all figures closed afterwards."""
    plt = pytest.importorskip("matplotlib.pyplot")
    yield plt
    plt.close("all")
