"""What the benchmarks share: where the data are, and results that survive a stop."""

import json
import os
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

RESULTS = Path(__file__).parent / "results"
UCI = ("concrete", "energy", "kin8nm", "naval", "power", "protein", "wine_red", "yacht")


def data_folder() -> Path:
    """Folder of the public data sets, from UQFORMER_DATA."""
    folder = os.environ.get("UQFORMER_DATA")
    if not folder or not Path(folder, "uci").is_dir():
        raise SystemExit(
            "Set UQFORMER_DATA to a folder that holds uci/<name>.npz with the arrays "
            f"X, y, train_idx and test_idx; got UQFORMER_DATA={folder!r}."
        )
    return Path(folder)


def load_uci(name: str, split: int) -> tuple[np.ndarray, ...]:
    """Return X_train, y_train, X_test, y_test of one of the standard splits."""
    with np.load(data_folder() / "uci" / f"{name}.npz", allow_pickle=False) as data:
        X, y = data["X"], data["y"]
        train, test = data["train_idx"][split], data["test_idx"][split]
    return X[train], y[train], X[test], y[test]


def cached(path: Path, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return the result kept at `path`, or make it and keep it whole or not at all."""
    if not path.exists():
        result = make()
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(".partial")
        unfinished.write_text(json.dumps(result, indent=1) + "\n")
        unfinished.replace(path)
    loaded: dict[str, Any] = json.loads(path.read_text())
    return loaded


def machine() -> dict[str, Any]:
    """Say what the numbers were made on."""
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "processor": platform.machine(),
    }
