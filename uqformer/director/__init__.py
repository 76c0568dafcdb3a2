"""Recompile a frozen transformer into one learned transition, redrawn as a chain."""

from uqformer.director._blocks import find_blocks
from uqformer.director._chain import FeatureChain, cut_model, record_chain
from uqformer.director._distill import DistillationRecipe, distil
from uqformer.director._dit import TransitionDiT, transition_for
from uqformer.director._fit_variance import choose_n_draws, fit_variance
from uqformer.director._gp import KernelEigenVariance, SparseGPVariance
from uqformer.director._losses import (
    CLASSIFICATION,
    REGRESSION,
    Task,
    distillation_loss,
    gaussian_kl,
)
from uqformer.director._rollout import rollout
from uqformer.director._student import Student
from uqformer.director._teacher import Teacher
from uqformer.director._variance import RedrawVariance

__all__ = [
    "CLASSIFICATION",
    "REGRESSION",
    "DistillationRecipe",
    "FeatureChain",
    "KernelEigenVariance",
    "RedrawVariance",
    "SparseGPVariance",
    "Student",
    "Task",
    "Teacher",
    "TransitionDiT",
    "choose_n_draws",
    "cut_model",
    "distil",
    "distillation_loss",
    "find_blocks",
    "fit_variance",
    "gaussian_kl",
    "record_chain",
    "rollout",
    "transition_for",
]
