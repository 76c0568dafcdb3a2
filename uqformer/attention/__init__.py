"""Redraw the attention of any transformer, for the time of a `with` block."""

from uqformer.attention._context import AttentionTap, stochastic_attention
from uqformer.attention._draws import multinomial_weights
from uqformer.attention._locate import find_attention_modules
from uqformer.attention._members import forward_members

__all__ = [
    "AttentionTap",
    "find_attention_modules",
    "forward_members",
    "multinomial_weights",
    "stochastic_attention",
]
