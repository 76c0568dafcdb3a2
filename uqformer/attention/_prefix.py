"""What comes before the first redraw, run for one member and given to the others."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

__all__ = ["SharedPrefix"]

BYTES_KEPT = 2**28
"""Results kept for the other members, at most; what comes later is run again."""


class SharedPrefix:
    """Operators of a pass and what they gave, up to where the members part.

    Until then all members do the same to the same tensors. That is not believed but
    seen: a result is given again only to the same operator with the same arguments,
    tensors lying in the same memory that nobody has written to since.
    """

    def __init__(self) -> None:
        self._steps: list[_Step] = []
        self._n_bytes = 0
        self._is_recording = True
        self.restart()

    def restart(self) -> None:
        """Begin the pass of another member."""
        self._position = 0
        self._agrees = True

    def run(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Give the result of an operator, known or new."""
        if self._agrees and self._position < len(self._steps):
            step = self._steps[self._position]
            if step.is_repeated(func, args, kwargs):
                self._position += 1
                return step.output_again(args, kwargs)
            # from here on this pass goes its own way, and so may those after it
            self._agrees = False
        output = func(*args, **kwargs)
        if self._agrees and self._is_recording:
            self._record(func, args, kwargs, output)
        return output

    def _record(self, func: Any, args: Any, kwargs: Any, output: Any) -> None:
        given, made = list(_tensors((args, kwargs))), list(_tensors(output))
        memory = {tensor.untyped_storage().data_ptr() for tensor in given}
        is_view = any(t.untyped_storage().data_ptr() in memory for t in made)
        self._n_bytes += 0 if is_view else sum(tensor.nbytes for tensor in made)
        self._is_recording = (
            not func._schema.is_mutable
            and torch.Tag.nondeterministic_seeded not in func.tags
            and not any(tensor.is_inference() for tensor in [*given, *made])
            and self._n_bytes <= BYTES_KEPT
        )
        if self._is_recording:
            # a view counts with its base, but only once it has left this place
            written = given if is_view else [*given, *made]
            versions = [(tensor, tensor._version) for tensor in written]
            self._steps.append(_Step(func, args, kwargs, output, is_view, versions))
            self._position += 1


class _Step(NamedTuple):
    """One operator, what it was given and gave, and how often that was written to."""

    func: Any
    args: Any
    kwargs: Any
    output: Any
    is_view: bool
    versions: list[tuple[Tensor, int]]

    def is_repeated(self, func: Any, args: Any, kwargs: Any) -> bool:
        return (
            func is self.func
            and _is_same(args, self.args)
            and _is_same(kwargs, self.kwargs)
            and all(tensor._version == version for tensor, version in self.versions)
        )

    def output_again(self, args: Any, kwargs: Any) -> Any:
        # autograd marks what an operator returns, and refuses to mark it twice
        if self.is_view:
            return self.func(*args, **kwargs)
        return _fresh(self.output)


def _fresh(output: Any) -> Any:
    if isinstance(output, Tensor):
        return output.detach()
    if isinstance(output, list | tuple):
        return type(output)(map(_fresh, output))
    return output


def _is_same(one: Any, other: Any) -> bool:
    """Tell whether arguments are equal, and their tensors lie in the same memory."""
    if type(one) is not type(other):
        return False
    if isinstance(one, Tensor):
        return one is other or _where(one) == _where(other)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(_is_same, one, other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(
            _is_same(value, other[key]) for key, value in one.items()
        )
    return bool(one == other)


def _where(tensor: Tensor) -> tuple[Any, ...]:
    return tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype


def _tensors(value: Any) -> Any:
    """Yield the tensors in nested tuples, lists and dicts."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict):
        for part in value.values():
            yield from _tensors(part)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _tensors(part)
