"""Errors and warnings of uqformer, rooted so that one `except` catches them all."""

__all__ = [
    "AttentionNotRedrawnError",
    "CalibrationWarning",
    "InsufficientCalibrationError",
    "UQFormerError",
    "UQFormerWarning",
]


class UQFormerError(Exception):
    """Root of the errors that only uqformer raises.

    Examples
    --------
    >>> from uqformer.exceptions import AttentionNotRedrawnError, UQFormerError
    >>> issubclass(AttentionNotRedrawnError, UQFormerError)
    True
    """


class AttentionNotRedrawnError(UQFormerError, RuntimeError):
    """A model ran, yet none of its attention weights was redrawn.

    An ensemble of such passes would be many equal members that look like
    certainty, so this is an error and never a warning.

    Examples
    --------
    >>> import torch
    >>> from uqformer.attention import stochastic_attention
    >>> from uqformer.exceptions import AttentionNotRedrawnError
    >>> model = torch.nn.MultiheadAttention(4, 1).eval()
    >>> try:
    ...     with stochastic_attention(model, n_draws=4, seed=0):
    ...         pass
    ... except AttentionNotRedrawnError as error:
    ...     print(type(error).__name__)
    AttentionNotRedrawnError
    """


class InsufficientCalibrationError(UQFormerError, ValueError):
    """Too few calibration rows for the confidence level asked.

    Examples
    --------
    >>> from uqformer.exceptions import InsufficientCalibrationError
    >>> issubclass(InsufficientCalibrationError, ValueError)
    True
    """


class UQFormerWarning(UserWarning):
    """Root of the warnings of uqformer.

    Examples
    --------
    >>> from uqformer.exceptions import CalibrationWarning, UQFormerWarning
    >>> issubclass(CalibrationWarning, UQFormerWarning)
    True
    """


class CalibrationWarning(UQFormerWarning):
    """A calibration reached the edge of what it can do.

    Examples
    --------
    >>> import warnings
    >>> from uqformer.exceptions import CalibrationWarning
    >>> warnings.simplefilter("ignore", category=CalibrationWarning)
    """
