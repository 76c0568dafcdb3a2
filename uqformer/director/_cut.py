"""Cut a block in two where its attention is added to the tokens.

The first half ends in attention: ``u = h + attention(h)``. The second half is the rest
of the block. No half is rebuilt: the first is the block itself, stopped when the
attention has spoken; the second is the block itself, called with ``u`` while its
attention stays silent, so that the residual adds nothing. This holds for blocks that
normalise before attention as for those that do so after it, and is proved for each
block on the tokens it is first seen with.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from uqformer.attention import find_attention_modules
from uqformer.director._blocks import Call, first_tensor, state_of, with_state

__all__ = [
    "BlockCut",
    "Output",
    "StandIn",
    "added_by",
    "cut_block",
    "hollow",
    "on_this_thread",
    "silenced",
]

# a cut adds nothing but zeros to what was computed before, so only rounding may differ
_ROUNDINGS = 64


@dataclass(frozen=True, slots=True)
class Output:
    """What a module gives: its width, and entries of its tuple (0 for a tensor)."""

    width: int
    n_returned: int

    def like(self, first: Tensor) -> Any:
        """Return `first` in the way that the module returned what it gave."""
        n_returned = self.n_returned
        return (first, *[None] * (n_returned - 1)) if n_returned else first


@dataclass(frozen=True, slots=True)
class BlockCut:
    """Where a block is cut, by names of modules in it.

    Parameters
    ----------
    attention : str
        The attention module, which turns softmax rows into mixed values.
    branch : str
        The module whose output is added to the tokens; the attention itself, or a
        projection or scale behind it.
    outputs : dict of str to Output
        What these two and the block itself (under the empty name) give.
    """

    attention: str
    branch: str
    outputs: dict[str, Output]


class _Stop(Exception):
    """Leaves a block once its attention has spoken."""


def cut_block(block: nn.Module, call: Call, name: str) -> BlockCut:
    """Find where `block` can be cut, and prove it on what it was called with."""
    attention = list(find_attention_modules(block))
    if len(attention) != 1:
        raise ValueError(
            f"Each block must have one attention module to be cut behind; {name} has "
            f"{', '.join(attention)}."
        )
    call = with_state(call, state_of(call), all_ask=True)
    finished = _outputs(block, call)
    expected = first_tensor(finished[""], name)
    if not expected.isfinite().all():
        raise ValueError(
            f"{name} gives values that are not finite for this batch, so it cannot be "
            "cut on it; check the inputs."
        )
    names = list(finished)
    for branch in names[names.index(attention[0]) : -1]:
        added = _first(finished[branch])
        if added is None or added.shape != expected.shape:
            continue
        if _is_cut(block, branch, call, added, expected):
            cuts = {attention[0], branch, ""}
            outputs = {cut: _describe(finished[cut]) for cut in cuts}
            return BlockCut(attention[0], branch, outputs)
    raise ValueError(
        f"{name}, a {type(block).__name__}, cannot be cut behind its attention: no "
        "module in it gives what is added to the tokens before the rest begins, as "
        "when attention and feed-forward run side by side."
    )


def _outputs(block: nn.Module, call: Call) -> dict[str, Any]:
    """Run a block and collect what its modules give, in the order they finish."""
    finished: dict[str, Any] = {}

    def note(name: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: Any, output: Any) -> None:
            finished[name] = output

        return hook

    with ExitStack() as stack:
        for name, module in block.named_modules():
            stack.enter_context(_hooked(module, note(name)))
        block(*call[0], **call[1])
    return finished


def _is_cut(
    block: nn.Module, branch: str, call: Call, added: Tensor, expected: Tensor
) -> bool:
    """Tell whether the block, silent at `branch`, finishes what `added` began."""
    args, kwargs = with_state(call, state_of(call) + added, all_ask=True)

    def silence(module: nn.Module, args: Any, output: Any) -> Any:
        zeros = torch.zeros_like(added)
        return (zeros, *output[1:]) if isinstance(output, tuple) else zeros

    with _hooked(block.get_submodule(branch), silence):
        got = first_tensor(block(*args, **kwargs), branch)
    rounding = expected.abs().max() * torch.finfo(expected.dtype).eps
    return bool((got - expected).abs().max() <= _ROUNDINGS * rounding)


def added_by(block: nn.Module, cut: BlockCut, state: Tensor, call: Call) -> Tensor:
    """Return what attention adds to `state` (N, T, D); `call` gives masks and more."""
    args, kwargs = with_state(call, state, all_ask=True)
    added: list[Tensor] = []

    def stop(module: nn.Module, args: Any, output: Any) -> None:
        added.append(first_tensor(output, cut.branch))
        raise _Stop

    with _hooked(block.get_submodule(cut.branch), stop), suppress(_Stop):
        block(*args, **kwargs)
    return added[0]  # (N, T, D)


@contextmanager
def _hooked(module: nn.Module, hook: Callable[..., Any]) -> Iterator[None]:
    handle = module.register_forward_hook(on_this_thread(hook))
    try:
        yield
    finally:
        handle.remove()


def on_this_thread(hook: Callable[..., Any]) -> Callable[..., Any]:
    """Let a hook act on the thread that makes it: others may run the same model."""
    own = threading.get_ident()

    def act(*args: Any) -> Any:
        return hook(*args) if threading.get_ident() == own else None

    return act


def _first(output: Any) -> Tensor | None:
    first = output[0] if isinstance(output, tuple) and output else output
    return first if isinstance(first, Tensor) else None


def _describe(output: Any) -> Output:
    n_returned = len(output) if isinstance(output, tuple) else 0
    return Output(first_tensor(output, "attention").shape[-1], n_returned)


class StandIn(nn.Module):
    """Stands for another module, whose attributes can still be read.

    Parameters
    ----------
    stands_for : nn.Module
        What attributes are read of; it is kept beside the modules, so that no weight of
        it is trained, moved or saved.
    """

    def __init__(self, stands_for: nn.Module) -> None:
        super().__init__()
        self.__dict__["_stands_for"] = stands_for

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if "_stands_for" not in self.__dict__:
                raise
            return getattr(self.__dict__["_stands_for"], name)


class Silent(StandIn):
    """Stands where attention stood, and adds nothing.

    Parameters
    ----------
    module : nn.Module
        What it stands for; its attributes can still be read, its weights are gone.
    output : Output
        What that gave.
    """

    def __init__(self, module: nn.Module, output: Output) -> None:
        super().__init__(hollow(module))
        self.output = output

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Give zeros (N, T, width) for queries (N, T, ...), which come first."""
        query = next(
            value for value in [*args, *kwargs.values()] if isinstance(value, Tensor)
        )
        zeros = query.new_zeros(*query.shape[:2], self.output.width)  # (N, T, width)
        return self.output.like(zeros)


def silenced(block: nn.Module, cut: BlockCut, *, share: bool) -> nn.Module:
    """Copy a block without its attention; with `share` its weights are not copied."""
    memo: dict[int, Any] = {}
    for name, output in cut.outputs.items():
        if name:
            module = block.get_submodule(name)
            memo[id(module)] = Silent(module, output)
    if share:
        memo |= {id(tensor): tensor for tensor in _tensors(block)}
    return deepcopy(block, memo)


def hollow(module: nn.Module) -> nn.Module:
    """Copy a module with all its attributes, and weights that hold no numbers."""
    memo: dict[int, Any] = {}
    for tensor in _tensors(module):
        empty = torch.empty_like(tensor, device="meta", requires_grad=False)
        is_weight = isinstance(tensor, nn.Parameter)
        memo[id(tensor)] = nn.Parameter(empty, False) if is_weight else empty
    return deepcopy(module, memo)


def _tensors(module: nn.Module) -> Iterator[Tensor]:
    yield from module.parameters()
    yield from module.buffers()
