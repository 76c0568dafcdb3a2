"""Honest uncertainty for any transformer, the scikit-learn way."""

from importlib import import_module
from typing import Any

from uqformer._version import __version__

__all__ = [
    "DirectorClassifier",
    "DirectorRegressor",
    "StochasticAttentionClassifier",
    "StochasticAttentionRegressor",
    "__version__",
    "attention",
    "backbones",
    "calibration",
    "comparison",
    "datasets",
    "director",
    "estimators",
    "exceptions",
    "metrics",
    "plotting",
    "predict_interval",
    "predictive",
    "scorers",
    "series",
]

_HOMES = {
    "DirectorClassifier": "uqformer.estimators",
    "DirectorRegressor": "uqformer.estimators",
    "StochasticAttentionClassifier": "uqformer.estimators",
    "StochasticAttentionRegressor": "uqformer.estimators",
    "predict_interval": "uqformer._response",
}


def __getattr__(name: str) -> Any:
    """Load what is asked for on first use, so that metrics do not load torch."""
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    if name in __all__:
        return import_module(f"uqformer.{name}")
    raise AttributeError(f"module 'uqformer' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
