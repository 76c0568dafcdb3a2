"""Where attention is computed: a watch that hands every softmax over to an answer."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from uqformer._seam import handled_by
from uqformer.attention._draws import split_heads
from uqformer.attention._locate import all_attention, head_count, uses_seam
from uqformer.attention._prefix import SharedPrefix
from uqformer.attention._switches import explicit_kernels, one_at_a_time
from uqformer.exceptions import AttentionNotRedrawnError

__all__ = ["Answer", "AttentionTap", "answering"]

Answer: TypeAlias = Callable[[str, int, Tensor], Tensor]
"""From a module's name, the number of attention calls before it in this pass, and
probabilities (N, H, T, S) to the weights that take their place."""

aten = torch.ops.aten
_SOFTMAX = {aten._softmax.default, aten._safe_softmax.default}
# in inference mode these reach the watch whole, with the softmax still inside
_HOLDS_SOFTMAX = {
    aten.softmax.int,
    aten.scaled_dot_product_attention.default,
    aten._scaled_dot_product_attention_math.default,
}
# a row with no larger logit is masked as a whole; of all the numbers in use for that,
# from -1e9 to the least number of a dtype, half of float16's least is nearest to zero
_MASKED_LOGIT = torch.finfo(torch.float16).min / 2


@dataclass
class AttentionTap:
    """Count of what `stochastic_attention` has redrawn so far.

    It may be read inside the block, and after it.

    Parameters
    ----------
    redraws : Counter of str
        Redrawn attention calls by the name of the module that made them.

    Examples
    --------
    >>> import torch
    >>> from uqformer.attention import stochastic_attention
    >>> layer = torch.nn.TransformerEncoderLayer(8, 2, batch_first=True)
    >>> model = torch.nn.TransformerEncoder(layer, num_layers=2).eval()
    >>> with stochastic_attention(model, n_draws=4, seed=0) as tap:
    ...     output = model(torch.zeros(1, 3, 8))
    >>> tap.n_redraws
    2
    >>> dict(tap.redraws)
    {'layers.0.self_attn': 1, 'layers.1.self_attn': 1}
    """

    redraws: Counter[str] = field(default_factory=Counter)

    @property
    def n_redraws(self) -> int:
        """Redrawn attention calls of all modules together."""
        return self.redraws.total()


@contextmanager
def answering(
    model: nn.Module,
    selected: dict[str, nn.Module],
    answer: Answer,
    *,
    n_members: int = 1,
    prefix: SharedPrefix | None = None,
) -> Iterator[AttentionTap]:
    """Let `answer` give the weights of the selected modules while a block lasts.

    With more than one member the probabilities of the first call are repeated member by
    member, and so are all that follow from its answer; the model must use the seam.
    """
    watch = _Watch(model, selected, answer, n_members, prefix)
    with ExitStack() as stack:
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.no_grad())
        stack.enter_context(one_at_a_time())
        stack.enter_context(watch.listening())
        if uses_seam(selected):
            stack.enter_context(handled_by(watch.answer_seam))
        else:
            stack.enter_context(explicit_kernels())
            stack.enter_context(_SoftmaxMode(watch))
        yield watch.tap
    # not reached if the block raised, so its error is the one to be seen
    watch.check_answered()


class _Watch:
    """What happens to the attention of the selected modules, on the thread it began."""

    def __init__(
        self,
        model: nn.Module,
        selected: dict[str, nn.Module],
        answer: Answer,
        n_members: int,
        prefix: SharedPrefix | None,
    ) -> None:
        self.tap = AttentionTap()
        self._model = model
        self._selected = selected
        # all are counted, so that a call is the same one whichever are selected
        self._counted = all_attention(model) | selected
        self._names = {module: name for name, module in selected.items()}
        self._answer = answer
        self._n_members = n_members
        self._prefix = prefix
        self._thread = threading.get_ident()
        self._n_calls = 0  # of attention in this pass
        self._have_parted = False  # whether an answer was given in this pass
        self._n_rows: int | None = None
        self.inside: list[tuple[str, int]] = []  # names, and redraws when entered
        self._missed: set[str] = set()

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Keep hooks on the model, to know where in it the program is."""
        handles = []
        try:
            for name, module in self._counted.items():
                enter, leave = partial(self._enter, name), partial(self._leave, name)
                # ours first, and ours also when forward raises: entries and exits pair
                handles += [
                    module.register_forward_pre_hook(enter, prepend=True),
                    module.register_forward_hook(leave, always_call=True),
                ]
            handles.append(
                self._model.register_forward_pre_hook(
                    self._restart, prepend=True, with_kwargs=True
                )
            )
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _on_own_thread(self) -> bool:
        return threading.get_ident() == self._thread

    def _restart(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        """Begin the member anew, so that it is one function of its input."""
        if self._on_own_thread():
            self._n_calls, self._have_parted = 0, False
            if self._prefix is not None:
                self._prefix.restart()
            self._n_rows = _count_rows([*args, *kwargs.values()])

    def _enter(self, name: str, module: nn.Module, args: Any) -> None:
        if self._on_own_thread():
            self.inside.append((name, self.tap.n_redraws))

    def _leave(self, name: str, module: nn.Module, args: Any, output: Any) -> None:
        if self._on_own_thread():
            _, n_before = self.inside.pop()
            # there is no output if forward raised, and nothing to complain about
            is_missed = name in self._selected and self.tap.n_redraws == n_before
            if output is not None and is_missed:
                self._missed.add(name)

    def innermost(self) -> str | None:
        """Name the innermost selected module that the program is in."""
        inside = (name for name, _ in reversed(self.inside))
        return next((name for name in inside if name in self._selected), None)

    def answer_seam(self, probs: Tensor, module: nn.Module) -> Tensor:
        """Answer a backbone that asks for its weights (N, H, T, S)."""
        _refuse_gradient(probs)
        name = self._names.get(module)
        if name is None:
            self._n_calls += 1
            return probs
        if not self._have_parted and self._n_members > 1:
            # here the members part; later calls find them stacked already
            probs = probs.repeat(self._n_members, 1, 1, 1)  # (M * N, H, T, S)
        return self._weights(name, probs)

    def answer_softmax(self, scores: Tensor, probs: Tensor) -> Tensor:
        """Answer a softmax over the last axis of `scores`, which gave `probs`."""
        name = self.innermost()
        if name is None:
            self._n_calls += 1
            return probs
        _refuse_gradient(scores)
        n_heads = head_count(self._model, name) if probs.ndim == 3 else None
        # where time comes first, the first axis of the input does not count rows
        time_first = getattr(self._selected[name], "batch_first", True) is False
        n_rows = None if time_first else self._n_rows
        by_head = split_heads(probs, n_heads, n_rows)  # (N, H, T, S)
        weights = self._weights(name, by_head).reshape(probs.shape)
        is_masked = scores.amax(dim=-1, keepdim=True) <= _MASKED_LOGIT
        # seldom any is, and looking costs less than writing all weights once more
        return torch.where(is_masked, probs, weights) if is_masked.any() else weights

    def _weights(self, name: str, probs: Tensor) -> Tensor:
        self._n_calls, self._have_parted = self._n_calls + 1, True
        self.tap.redraws[name] += 1
        return self._answer(name, self._n_calls - 1, probs)

    def run(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Run an operator, or take what it gave for another member."""
        if self._prefix is None or self._have_parted:
            return func(*args, **kwargs)
        return self._prefix.run(func, args, kwargs)

    def check_answered(self) -> None:
        """Raise unless every selected module that ran was redrawn, and one ran."""
        model = type(self._model).__name__
        if not self.tap.n_redraws:
            raise AttentionNotRedrawnError(
                f"No attention softmax was redrawn while running {model}; an ensemble "
                "of such passes would be equal members. Call the model itself inside "
                "the block, or name its attention modules with layers=[...]."
            )
        if self._missed:
            missed = ", ".join(sorted(self._missed))
            raise AttentionNotRedrawnError(
                f"Some modules of {model} ran without a softmax that could be redrawn: "
                f"{missed}. Name the modules to redraw with layers=[...], or give the "
                "model an attention that computes its softmax in the open."
            )


class _SoftmaxMode(TorchDispatchMode):
    """Sees every operator of this thread, and swaps the softmax inside attention."""

    # else torch itself would refuse them, and with them flex_attention
    supports_higher_order_operators = True

    def __init__(self, watch: _Watch) -> None:
        super().__init__()
        self._watch = watch

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        is_inside = bool(self._watch.inside)
        if is_inside and func.__name__ == "flex_attention" and self._watch.innermost():
            raise AttentionNotRedrawnError(
                f"{self._watch.innermost()!r} computes its softmax inside "
                "flex_attention, where it cannot be redrawn. Give the model another "
                "attention, such as attn_implementation='sdpa' of Hugging Face."
            )
        if is_inside and func in _HOLDS_SOFTMAX:
            with self:
                return func.decompose(*args, **kwargs)
        if is_inside and func in _SOFTMAX and _is_over_keys(*args[:2]):
            return self._watch.answer_softmax(
                args[0], self._softmax(func, args, kwargs)
            )
        return self._watch.run(func, args, kwargs)

    def _softmax(self, func: Any, args: Any, kwargs: Any) -> Tensor:
        if func is aten._safe_softmax.default and len(args) == 2 and not kwargs:
            # it differs in rows masked as a whole, and for those it reads all twice
            plain = aten._softmax.default
            probs: Tensor = self._watch.run(plain, (*args, False), {})
            if not probs[..., :1].isnan().any():
                return probs
        output: Tensor = self._watch.run(func, args, kwargs)
        return output


def _count_rows(inputs: list[Any]) -> int | None:
    """Count the rows of a batch, if its tensors agree on how many there are."""
    sizes = {len(x) for x in inputs if isinstance(x, Tensor) and x.ndim}
    return sizes.pop() if len(sizes) == 1 else None


def _is_over_keys(scores: Tensor, dim: int) -> bool:
    return scores.ndim > 1 and dim % scores.ndim == scores.ndim - 1


def _refuse_gradient(tensor: Tensor) -> None:
    if tensor.requires_grad:
        raise ValueError(
            "Redrawn attention passes no gradient; got scores with requires_grad=True. "
            "Leave torch.enable_grad() out of the block."
        )
