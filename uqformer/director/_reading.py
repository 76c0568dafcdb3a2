"""Ask the attention of a block questions, by answering for its softmax."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from uqformer.attention._watch import answering
from uqformer.director._blocks import Call
from uqformer.director._cut import BlockCut, added_by, on_this_thread

__all__ = ["AttentionHalf", "head_readings"]

Answer: TypeAlias = Callable[[Tensor], Tensor]


@dataclass(frozen=True, slots=True, eq=False)
class AttentionHalf:
    """The attention of one block, about to be asked about tokens.

    Parameters
    ----------
    block : nn.Module
        The block.
    cut : BlockCut
        Where its attention ends.
    state : Tensor of shape (N, T, D)
        Tokens that enter the block.
    call : (tuple, dict)
        What else the block is called with.
    """

    block: nn.Module
    cut: BlockCut
    state: Tensor
    call: Call

    def added(self) -> Tensor:
        """Return what the attention adds to the tokens (N, T, D)."""
        return added_by(self.block, self.cut, self.state, self.call)

    def answered(self, answer: Answer) -> Tensor:
        """Return what it adds if `answer` turns its probabilities into weights."""
        selected = {self.cut.attention: self.block.get_submodule(self.cut.attention)}

        def ask(name: str, n_before: int, probs: Tensor) -> Tensor:
            return answer(probs)

        with answering(self.block, selected, ask):
            added = self.added()
        return added

    def attention_input(self) -> Tensor:
        """Return the tokens (N, T, D) that the attention module itself is given."""
        seen: list[Tensor] = []

        def note(module: nn.Module, args: Any, kwargs: Any) -> None:
            values = [*args, *kwargs.values()]
            seen.append(next(v for v in values if isinstance(v, Tensor)))

        attention = self.block.get_submodule(self.cut.attention)
        handle = attention.register_forward_pre_hook(
            on_this_thread(note), with_kwargs=True
        )
        try:
            self.added()
        finally:
            handle.remove()
        return seen[0]


def head_readings(half: AttentionHalf) -> tuple[Tensor, list[Tensor]]:
    """Read the probabilities (N, H, T, S) and what each head's values add (N, S, D).

    A head that is answered with the identity, while the others are answered with zeros,
    lets each key's value through to the tokens: every projection and scale behind the
    attention is then applied by the model itself, and no family needs code of its own.
    """
    seen: list[Tensor] = []

    def note(probs: Tensor) -> Tensor:
        seen.append(probs)
        return probs

    half.answered(note)
    constant = half.answered(torch.zeros_like)  # (N, T, D)
    n_heads = seen[0].shape[1]
    values = [
        half.answered(partial(_identity, head)) - constant for head in range(n_heads)
    ]  # H times (N, S, D)
    return seen[0], values


def _identity(head: int, probs: Tensor) -> Tensor:
    answer = torch.zeros_like(probs)
    answer[:, head] = torch.eye(probs.shape[-1], dtype=probs.dtype, device=probs.device)
    return answer
