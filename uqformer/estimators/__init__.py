"""Estimators with scikit-learn's verbs, and a few more of their own."""

from uqformer.estimators._classifier import StochasticAttentionClassifier
from uqformer.estimators._director_classes import ChainUncertainty
from uqformer.estimators._director_classifier import DirectorClassifier
from uqformer.estimators._director_regressor import DirectorRegressor
from uqformer.estimators._regressor import StochasticAttentionRegressor

__all__ = [
    "ChainUncertainty",
    "DirectorClassifier",
    "DirectorRegressor",
    "StochasticAttentionClassifier",
    "StochasticAttentionRegressor",
]
