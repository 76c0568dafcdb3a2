"""Networks to train, and guests that must not be trained."""

from uqformer.backbones._adapters import FrozenBackbone
from uqformer.backbones._forecast import ForecastBackbone
from uqformer.backbones._huggingface import HFBackbone
from uqformer.backbones._make import make_backbone
from uqformer.backbones._sequence import SequenceTransformer
from uqformer.backbones._tabular import FTTransformer
from uqformer.backbones._timm import TimmBackbone
from uqformer.backbones._token_sequence import TokenTransformer
from uqformer.backbones._vision import PatchTransformer

__all__ = [
    "FTTransformer",
    "ForecastBackbone",
    "FrozenBackbone",
    "HFBackbone",
    "PatchTransformer",
    "SequenceTransformer",
    "TimmBackbone",
    "TokenTransformer",
    "make_backbone",
]
