"""Estimators with scikit-learn's verbs, and a few more of their own."""

from uqformer.estimators._classifier import StochasticAttentionClassifier
from uqformer.estimators._regressor import StochasticAttentionRegressor

__all__ = ["StochasticAttentionClassifier", "StochasticAttentionRegressor"]
