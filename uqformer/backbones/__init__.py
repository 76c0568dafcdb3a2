"""Networks to train, and guests that must not be trained."""

from uqformer.backbones._adapters import FrozenBackbone
from uqformer.backbones._make import make_backbone
from uqformer.backbones._tabular import FTTransformer

__all__ = ["FTTransformer", "FrozenBackbone", "make_backbone"]
