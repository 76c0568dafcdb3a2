"""A model without its blocks: its embedding before, its head after, a walk between."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from typing import Any, Self, TypeAlias

from torch import Tensor, nn

from uqformer.director._blocks import (
    Inputs,
    call_model,
    find_blocks,
    state_of,
    visible_keys,
    with_state,
)
from uqformer.director._cut import BlockCut, Output, StandIn, hollow, silenced

__all__ = ["Shell", "Walk"]

Walk: TypeAlias = Callable[[Tensor, Tensor | None], Tensor]
"""From the tokens (N, T, D) that enter the blocks, and the keys that may be seen, to
the tokens (N, T, D) that leave the last attention."""


class _ThreadState(threading.local):
    """The walk of this thread: another may run the same shell with its own."""

    walk: Walk | None = None
    skips: bool = False


_state = _ThreadState()


class Shell(nn.Module):
    """A copy of a model whose blocks are gone but for the rest of the last one.

    The model's own code still runs: it embeds its input, makes its masks, and reads its
    head. Where it calls its first block the walk is taken instead, and where it calls
    its last one, what follows that block's attention. Weights of the blocks between
    are not copied.

    Parameters
    ----------
    model : nn.Module
        The model; it is left as it is.

    cuts : tuple of BlockCut
        Where its last blocks are cut. Those in front of them stay, in evaluation mode
        and with the model's own numbers, and nothing before the walk learns.

    share : bool, default=False
        Whether the weights are those of `model` itself, for a head that is not trained,
        or copies of them.
    """

    def __init__(
        self, model: nn.Module, cuts: tuple[BlockCut, ...], *, share: bool = False
    ) -> None:
        super().__init__()
        blocks = list(find_blocks(model)[1])
        self.n_kept_blocks = len(blocks) - len(cuts)
        memo: dict[int, Any] = {
            id(block): _Kept(block, cuts[0].outputs[""])
            for block in blocks[: self.n_kept_blocks]
        }
        replaced = blocks[self.n_kept_blocks :]
        for index, (block, cut) in enumerate(zip(replaced, cuts, strict=True)):
            is_last = index == len(cuts) - 1
            rest = silenced(block, cut, share=share) if is_last else None
            is_causal = getattr(block.get_submodule(cut.attention), "is_causal", False)
            memo[id(block)] = _Replaced(
                block, rest, cut.outputs[""], index == 0, is_causal is True
            )
        if share:
            inside = {id(own) for block in blocks for own in block.parameters()}
            memo |= {
                id(tensor): tensor
                for tensor in [*model.parameters(), *model.buffers()]
                if id(tensor) not in inside
            }
        self.model = deepcopy(model, memo)
        for module in self.model.modules():
            if isinstance(module, nn.TransformerEncoder):
                # it would nest padded tokens, which no walk could follow
                module.use_nested_tensor = False
        self.eval()

    def own_parameters(self) -> Iterator[nn.Parameter]:
        """Return the parameters that are not those of kept blocks."""
        kept = [module for module in self.modules() if isinstance(module, _Kept)]
        held = {id(weight) for module in kept for weight in module.parameters()}
        return (weight for weight in self.parameters() if id(weight) not in held)

    def forward(self, x: Inputs, walk: Walk, start: Tensor | None = None) -> Tensor:
        """Predict from `x` with `walk` in place of the blocks.

        `start` (N, T, D) are the tokens that the walk begins with, where they are
        known; blocks that were kept are then left out.
        """

        def begun(state: Tensor, visible: Tensor | None) -> Tensor:
            state = state if start is None else start
            return walk(state.detach() if self.n_kept_blocks else state, visible)

        with _taking(begun, skips=start is not None):
            return call_model(self.model, x)


@contextmanager
def _taking(walk: Walk, *, skips: bool) -> Iterator[None]:
    outer = _state.walk, _state.skips
    _state.walk, _state.skips = walk, skips
    try:
        yield
    finally:
        _state.walk, _state.skips = outer


class _Kept(StandIn):
    """A block that stays: the same numbers, which are not trained.

    It stays in evaluation mode. Where the tokens behind it are known it is left out.
    """

    def __init__(self, block: nn.Module, output: Output) -> None:
        frozen: dict[int, Any] = {
            id(weight): nn.Parameter(weight.detach(), requires_grad=False)
            for weight in block.parameters()
        }
        frozen |= {id(buffer): buffer for buffer in block.buffers()}
        twin = deepcopy(block, frozen)
        super().__init__(twin)
        self.block = twin
        self.output = output

    def train(self, mode: bool = True) -> Self:
        """Stay in evaluation mode."""
        return super().train(False)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the block, or pass the tokens on as it would return them."""
        if not _state.skips:
            return self.block(*args, **kwargs)
        return self.output.like(state_of((args, kwargs)))


class _Replaced(StandIn):
    """Stands where a block stood: takes the walk if first, ends it if last."""

    def __init__(
        self,
        block: nn.Module,
        rest: nn.Module | None,
        output: Output,
        is_first: bool,
        is_causal: bool,
    ) -> None:
        # models read attributes of their blocks; they are kept, without the weights
        super().__init__(hollow(block))
        self.rest = rest
        self.output = output
        self.is_first = is_first
        self.is_causal = is_causal

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Pass the tokens (N, T, D) on, in the way that the block returned them."""
        call = args, kwargs
        state = state_of(call)
        if self.is_first:
            if _state.walk is None:
                raise RuntimeError("A shell needs a walk; call it as shell(x, walk).")
            visible = visible_keys(call, is_causal=self.is_causal)
            state = _state.walk(state, visible)
        if self.rest is not None:
            # queries that are the first tokens of the state stay the first tokens
            args, kwargs = with_state(call, state, all_ask=False)
            return self.rest(*args, **kwargs)
        return self.output.like(state)
