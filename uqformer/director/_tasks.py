"""Tasks whose rows count by weights, which stand in the last column of the targets."""

from functools import partial

import torch.nn.functional as F
from torch import Tensor

from uqformer.director._losses import CLASSIFICATION, REGRESSION, Task

__all__ = ["WEIGHTED_CLASSIFICATION", "spread_task", "weighted_regression"]


def _weighted_cross_entropy(output: Tensor, target: Tensor) -> Tensor:
    proba, weight = target[:, :-1], target[:, -1]
    return (weight * F.cross_entropy(output, proba, reduction="none")).mean()


WEIGHTED_CLASSIFICATION = Task(_weighted_cross_entropy, CLASSIFICATION.average)
"""Targets hold probabilities of classes, such as 0 and 1, and weights, (N, C + 1)."""


def weighted_regression(unit: Tensor) -> Task:
    """Judge squared errors in units of `unit` (C,); targets end in weights, (N, C + 1).

    A guest predicts in units of `y`, against which the matching loss would be nothing.
    """
    return Task(partial(_weighted_squared_error, unit), REGRESSION.average)


def _weighted_squared_error(unit: Tensor, output: Tensor, target: Tensor) -> Tensor:
    y, weight = target[:, :-1], target[:, -1:]
    error = (output.reshape(y.shape) - y) / unit
    return (weight * error**2).mean()


def spread_task(unit: Tensor) -> Task:
    """Judge chains together, by the continuous ranked probability score.

    The squared error of their mean would always ask for the least spread.
    """
    return Task(partial(_ranked_score, unit), _all_chains)


def _all_chains(outputs: Tensor) -> Tensor:
    return outputs


def _ranked_score(unit: Tensor, outputs: Tensor, target: Tensor) -> Tensor:
    """Score chains (M, N, C) without the bias that few of them have."""
    y, weight = target[:, :-1], target[:, -1:]
    chains = (outputs.reshape(len(outputs), *y.shape) - y) / unit
    n_chains = len(chains)
    apart = (chains[:, None] - chains).abs().sum(dim=(0, 1))  # (N, C)
    apart = apart / (2 * n_chains * max(1, n_chains - 1))
    return (weight * (chains.abs().mean(dim=0) - apart)).mean()
