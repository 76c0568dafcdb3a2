"""The one door: redraw chosen attention inside a `with` block, then leave no trace."""

import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from uqformer._random import torch_generator
from uqformer._seam import handled_by
from uqformer._typing import LayerSelection
from uqformer.attention._draws import (
    check_n_draws,
    check_seed,
    draw_weights,
    sorted_uniforms,
    split_heads,
)
from uqformer.attention._locate import find_attention_modules, head_count, uses_seam
from uqformer.attention._switches import explicit_kernels, one_at_a_time
from uqformer.exceptions import AttentionNotRedrawnError

__all__ = ["AttentionTap", "check_call", "redrawing", "stochastic_attention"]

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
def stochastic_attention(
    model: nn.Module,
    *,
    n_draws: int | None,
    seed: int,
    layers: LayerSelection = "all",
) -> Iterator[AttentionTap]:
    r"""Redraw the attention of a model while a `with` block lasts.

    Inside, every row of attention of the chosen modules is replaced by normalised
    multinomial counts of itself; the model's own weights are left alone. The model is
    then one function drawn at random: the same seed and row give the same output,
    whatever stands beside the row in its batch. Other seeds give other members.

    Parameters
    ----------
    model : nn.Module
        Any transformer, in evaluation mode. Call it, not its parts: each call of
        `model` itself starts the member anew.

    n_draws : int or None
        Multinomial trials per attention row, at least 1. Fewer trials spread the
        members further apart. None leaves the softmax as it is.

    seed : int
        Seed of the member, 0 or above.

    layers : "all" or list of int and str, default="all"
        Which modules to redraw; see `find_attention_modules`.

    Yields
    ------
    tap : AttentionTap
        Counts the attention calls that were redrawn.

    Raises
    ------
    AttentionNotRedrawnError
        On leaving the block, if a chosen module ran without being redrawn, or none ran.
    ValueError
        If the model is in training mode, if `layers` or a number is out of range, if
        this thread is inside such a block already, or if attention is asked for a
        gradient.
    TypeError
        If `n_draws`, `seed` or `layers` is of the wrong type.

    See Also
    --------
    forward_members : Run many members over many batches.
    find_attention_modules : List the modules that would be redrawn.

    Notes
    -----
    For a row of probabilities :math:`p` and values :math:`v_j` with :math:`o = \sum_j
    p_j v_j`, weights :math:`w` drawn with :math:`\nu` trials have :math:`E[w] = p`,
    :math:`Cov[w] = (diag(p) - p p^T) / \nu` and :math:`Cov[\sum_j w_j v_j] = \sum_j
    p_j (v_j - o)(v_j - o)^T / \nu` [1]_. Draws are independent over heads, queries and
    calls of attention; rows of a batch share the uniforms behind them, and another
    batch size changes a row's output by rounding only.

    Masked keys are never drawn, and rows masked as a whole keep what the model gives
    them. The first axis of what `model` is called with counts the rows of the batch,
    if its tensors agree on it. What a model folds into the batch beside them, such as
    heads, windows of an image or channels of a series, is drawn apart.

    No gradient is recorded. Fused attention kernels are off in the whole process, but
    only this thread is redrawn. Attention that computes no softmax in the open, such as
    external flash kernels, cannot be redrawn, and raises.

    References
    ----------
    .. [1] A. Yadav, T. A. Adebiyi and R. Zhang (2026), "Calibrating Scientific
       Foundation Models with Inference-Time Stochastic Attention", arXiv 2604.19530.

    Examples
    --------
    >>> import torch
    >>> from uqformer.attention import stochastic_attention
    >>> _ = torch.manual_seed(0)
    >>> model = torch.nn.TransformerEncoderLayer(8, 2, batch_first=True).eval()
    >>> x = torch.randn(4, 5, 8)
    >>> members = []
    >>> for seed in range(3):
    ...     with stochastic_attention(model, n_draws=8, seed=seed):
    ...         members.append(model(x))
    >>> torch.stack(members).std(dim=0).mean() > 0.01
    tensor(True)
    """
    selected = find_attention_modules(model, layers)
    check_call(model, n_draws, [seed])
    with redrawing(model, selected, n_draws, [seed]) as tap:
        yield tap


def check_call(model: nn.Module, n_draws: int | None, seeds: Sequence[int]) -> None:
    """Check what a redraw is asked for before anything runs."""
    if model.training:
        raise ValueError(
            f"The model must be in evaluation mode; got {type(model).__name__} with "
            "training=True, whose dropout would mix in. Call model.eval() first."
        )
    if n_draws is not None:
        check_n_draws(n_draws)
    for seed in seeds:
        check_seed(seed)


@contextmanager
def redrawing(
    model: nn.Module,
    selected: dict[str, nn.Module],
    n_draws: int | None,
    seeds: Sequence[int],
) -> Iterator[AttentionTap]:
    """Redraw modules already selected, for one member or several stacked in a batch."""
    with ExitStack() as stack:
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.no_grad())
        if n_draws is None:
            yield AttentionTap()
            return
        redraw = _Redraw(model, selected, n_draws, seeds)
        stack.enter_context(one_at_a_time())
        stack.enter_context(redraw.listening())
        if uses_seam(selected):
            stack.enter_context(handled_by(redraw.answer_seam))
        else:
            stack.enter_context(explicit_kernels())
            stack.enter_context(_SoftmaxWatch(redraw))
        yield redraw.tap
    # not reached if the block raised, so its error is the one to be seen
    redraw.check_redrawn()


class _Redraw:
    """What happens to the attention of the selected modules, on the thread it began."""

    def __init__(
        self,
        model: nn.Module,
        selected: dict[str, nn.Module],
        n_draws: int,
        seeds: Sequence[int],
    ) -> None:
        self.tap = AttentionTap()
        self._model = model
        self._selected = selected
        self._names = {module: name for name, module in selected.items()}
        self._n_draws = n_draws
        self._seeds = seeds
        self._thread = threading.get_ident()
        self._n_calls = 0
        self._n_rows: int | None = None
        self.inside: list[tuple[str, int]] = []  # names, and redraws when entered
        self._missed: set[str] = set()

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Keep hooks on the model, to know where in it the program is."""
        handles = []
        try:
            for name, module in self._selected.items():
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
            self._n_calls = 0
            self._n_rows = _count_rows([*args, *kwargs.values()])

    def _enter(self, name: str, module: nn.Module, args: Any) -> None:
        if self._on_own_thread():
            self.inside.append((name, self.tap.n_redraws))

    def _leave(self, name: str, module: nn.Module, args: Any, output: Any) -> None:
        if self._on_own_thread():
            _, n_before = self.inside.pop()
            # there is no output if forward raised, and nothing to complain about
            if output is not None and self.tap.n_redraws == n_before:
                self._missed.add(name)

    def answer_seam(self, probs: Tensor, module: nn.Module) -> Tensor:
        """Answer a backbone that asks for its weights (N, H, T, S)."""
        _refuse_gradient(probs)
        name = self._names.get(module)
        if name is None:
            return probs
        if self._n_calls == 0:
            # here the members part; later calls find them stacked already
            probs = probs.repeat(len(self._seeds), 1, 1, 1)  # (M * N, H, T, S)
        return self._draw(name, probs)

    def answer_softmax(self, scores: Tensor, probs: Tensor) -> Tensor:
        """Answer a softmax over the last axis of `scores`, which gave `probs`."""
        _refuse_gradient(scores)
        name, _ = self.inside[-1]
        n_heads = head_count(self._model, name) if probs.ndim == 3 else None
        # where time comes first, the first axis of the input does not count rows
        time_first = getattr(self._selected[name], "batch_first", True) is False
        n_rows = None if time_first else self._n_rows
        by_head = split_heads(probs, n_heads, n_rows)  # (N, H, T, S)
        weights = self._draw(name, by_head).reshape(probs.shape)
        is_masked = scores.amax(dim=-1, keepdim=True) <= _MASKED_LOGIT
        return torch.where(is_masked, probs, weights)

    def _draw(self, name: str, probs: Tensor) -> Tensor:
        size = (probs.shape[2], probs.shape[1], self._n_draws)
        generators = [torch_generator(seed, self._n_calls) for seed in self._seeds]
        uniforms = torch.stack(
            [sorted_uniforms(*size, generator) for generator in generators]
        )  # (M, T, H, nu)
        self._n_calls += 1
        self.tap.redraws[name] += 1
        return draw_weights(probs, uniforms)

    def check_redrawn(self) -> None:
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


class _SoftmaxWatch(TorchDispatchMode):
    """Sees every operator of this thread, and swaps the softmax inside attention."""

    # else torch itself would refuse them, and with them flex_attention
    supports_higher_order_operators = True

    def __init__(self, redraw: _Redraw) -> None:
        super().__init__()
        self._redraw = redraw

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        is_inside = bool(self._redraw.inside)
        if is_inside and func.__name__ == "flex_attention":
            raise AttentionNotRedrawnError(
                f"{self._redraw.inside[-1][0]!r} computes its softmax inside "
                "flex_attention, where it cannot be redrawn. Give the model another "
                "attention, such as attn_implementation='sdpa' of Hugging Face."
            )
        if is_inside and func in _HOLDS_SOFTMAX:
            with self:
                return func.decompose(*args, **kwargs)
        output = func(*args, **kwargs)
        if is_inside and func in _SOFTMAX and _is_over_keys(*args[:2]):
            return self._redraw.answer_softmax(args[0], output)
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
