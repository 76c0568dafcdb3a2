"""Errors and warnings can be caught by their root and by what users expect."""

import warnings

import pytest

from uqformer import exceptions
from uqformer.exceptions import (
    AttentionNotRedrawnError,
    CalibrationWarning,
    InsufficientCalibrationError,
    UQFormerError,
    UQFormerWarning,
)


@pytest.mark.parametrize(
    ("error", "builtin"),
    [
        (AttentionNotRedrawnError, RuntimeError),
        (InsufficientCalibrationError, ValueError),
    ],
)
def test_errors_are_also_builtin_ones(
    error: type[Exception], builtin: type[Exception]
) -> None:
    with pytest.raises(builtin, match="why"):
        raise error("why")
    with pytest.raises(UQFormerError, match="why"):
        raise error("why")


def test_every_error_has_the_root() -> None:
    classes = [getattr(exceptions, name) for name in exceptions.__all__]
    for cls in classes:
        root = UQFormerWarning if issubclass(cls, Warning) else UQFormerError
        assert issubclass(cls, root)


def test_warnings_are_errors_in_these_tests() -> None:
    with pytest.raises(CalibrationWarning):
        warnings.warn("edge", CalibrationWarning, stacklevel=1)


def test_errors_are_no_warnings() -> None:
    assert not issubclass(UQFormerError, Warning)
    assert issubclass(UQFormerWarning, UserWarning)
