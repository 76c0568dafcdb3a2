"""Redraw the attention of any transformer, for the time of a `with` block."""

from uqformer.attention._attribution import AttentionVariance, attention_variance
from uqformer.attention._context import stochastic_attention
from uqformer.attention._draws import multinomial_weights
from uqformer.attention._locate import find_attention_modules
from uqformer.attention._members import forward_members
from uqformer.attention._moments import RedrawMoments, redraw_moments
from uqformer.attention._samplers import dirichlet_weights, gaussian_weights
from uqformer.attention._watch import AttentionTap

__all__ = [
    "AttentionTap",
    "AttentionVariance",
    "RedrawMoments",
    "attention_variance",
    "dirichlet_weights",
    "find_attention_modules",
    "forward_members",
    "gaussian_weights",
    "multinomial_weights",
    "redraw_moments",
    "stochastic_attention",
]
