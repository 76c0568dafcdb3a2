"""Moments of the redraw from one exact pass: the delta method, row by row of attention.

No operator is watched here. Autograd keeps the result of every softmax for its own
backward pass, so the weights are found in the graph, and the gradient of an output with
respect to them says how far each draw moves it.
"""

import math
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from numbers import Real
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor, nn
from torch.autograd.graph import Node

from uqformer._typing import LayerSelection
from uqformer.attention._context import check_call
from uqformer.attention._locate import find_attention_modules, head_count
from uqformer.attention._switches import explicit_kernels, one_at_a_time
from uqformer.exceptions import AttentionNotRedrawnError

__all__ = ["RedrawMoments", "head_variances", "redraw_moments"]

Batch: TypeAlias = Tensor | Mapping[str, Tensor]
Forward: TypeAlias = Callable[[nn.Module, Any], Tensor]

_SOFTMAX = {"SoftmaxBackward0", "SafeSoftmaxBackward0"}


class RedrawMoments(NamedTuple):
    """Mean and variance of a redrawn output, to first order.

    Parameters
    ----------
    mean : Tensor of shape (N, ...)
        The exact pass.
    variance : Tensor of shape (N, ...)
        Variance over members.

    Examples
    --------
    >>> import torch
    >>> from uqformer.attention import RedrawMoments
    >>> RedrawMoments(torch.zeros(2, 1), torch.ones(2, 1)).variance.sqrt().sum()
    tensor(2.)
    """

    mean: Tensor
    variance: Tensor


def redraw_moments(
    model: nn.Module,
    batch: Batch,
    *,
    n_draws: float | None,
    layers: LayerSelection = "all",
    forward: Forward | None = None,
) -> RedrawMoments:
    r"""Compute mean and variance of the redraw from one pass, without any member.

    One exact pass forward and one backward for each output replace the ensemble. The
    result has no Monte Carlo noise, and is right to first order in ``1 / n_draws``.

    Parameters
    ----------
    model : nn.Module
        Any transformer, in evaluation mode, whose attention computes a softmax that
        autograd knows. Its parameters need no gradient, and get none.

    batch : Tensor or dict of str to Tensor
        Rows to predict. A dict is handed over as keyword arguments.

    n_draws : int, float or None
        Draws per attention row, above 0. All samplers of `stochastic_attention` have
        the same moments. None is the exact softmax, whose variance is 0.

    layers : "all" or list of int and str, default="all"
        Which modules are redrawn; see `find_attention_modules`.

    forward : callable, default=None
        ``forward(model, batch)`` returns the output Tensor, whose first axis counts the
        rows. None calls ``model(batch)``, or ``model(**batch)`` for a dict.

    Returns
    -------
    moments : RedrawMoments
        ``mean`` and ``variance``, each of the shape of the output.

    Raises
    ------
    AttentionNotRedrawnError
        If the softmax of a chosen module that ran is not found in the graph, or none
        ran.
    ValueError
        If `stochastic_attention` would refuse the arguments, or the first axis of the
        output cannot be that of the rows.
    TypeError
        If an argument is of the wrong type, or the output is not a Tensor.

    See Also
    --------
    attention_variance : The same variance, parted by layers and heads.
    forward_members : Members themselves, right to any order.

    Notes
    -----
    Weights drawn with :math:`\nu` draws from a row of attention :math:`p` have
    covariance :math:`(diag(p) - p p^T) / \nu` [1]_, independent over rows, heads and
    layers. With :math:`g` the gradient of an output with respect to that row on the
    exact pass, the delta method [2]_ gives

    .. math::

       Var[f] \approx \frac{1}{\nu} \sum_{rows} \Big( \sum_s p_s g_s^2
       - \big(\sum_s p_s g_s\big)^2 \Big).

    Nothing is taken to be diagonal or normal, only linear: what a redrawn layer does to
    the attention of a later one counts through the gradient. The mean is the exact
    pass, which the mean of the members nears as ``1 / n_draws``. Few draws from flat
    attention are far from linear, and there members should be asked.

    Rows of a batch must not look at each other. A row of attention that is masked as a
    whole by finite scores counts like any other, where a redraw leaves it alone: do not
    ask for the variance of outputs that belong to padding.

    References
    ----------
    .. [1] A. Yadav, T. A. Adebiyi and R. Zhang (2026), "Calibrating Scientific
       Foundation Models with Inference-Time Stochastic Attention", arXiv 2604.19530.
    .. [2] G. W. Oehlert (1992), "A Note on the Delta Method", The American
       Statistician 46.

    Examples
    --------
    >>> import torch
    >>> from uqformer.attention import redraw_moments
    >>> from uqformer.backbones import FTTransformer
    >>> x = torch.linspace(-1, 1, 20).reshape(10, 2)
    >>> model = FTTransformer(2, 1, d_token=8, n_heads=2).adapt(x).eval()
    >>> few, many = (redraw_moments(model, x, n_draws=n) for n in (4, 16))
    >>> bool(torch.allclose(few.variance, 4 * many.variance))
    True
    """
    check_call(model, [])
    divisor = math.inf if n_draws is None else _check_positive(n_draws)
    selected = find_attention_modules(model, layers)
    output, variances = head_variances(model, selected, batch, forward)
    total = torch.stack([part.sum(dim=0) for part in variances.values()]).sum(dim=0)
    return RedrawMoments(output, total / divisor)


def _check_positive(n_draws: float) -> float:
    if isinstance(n_draws, bool) or not isinstance(n_draws, Real):
        raise TypeError(f"n_draws must be a number; got n_draws={n_draws!r}.")
    if not 0 < n_draws < math.inf:
        raise ValueError(
            f"n_draws must be finite and above 0; got n_draws={n_draws}. Pass None for "
            "the exact softmax."
        )
    return float(n_draws)


def head_variances(
    model: nn.Module,
    selected: dict[str, nn.Module],
    batch: Batch,
    forward: Forward | None = None,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the exact output (N, ...) and, by module, variances (H, N, ...).

    They are those of a single draw; more draws divide them.
    """
    graph = _AttentionGraph(model, selected)
    with ExitStack() as stack:
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        stack.enter_context(one_at_a_time())
        stack.enter_context(explicit_kernels())
        with graph.listening():
            output = (forward or _call)(model, batch)
        if not isinstance(output, Tensor):
            raise TypeError(
                f"The model must return a Tensor; got {type(output).__name__}. Pass "
                "forward=... to pick the tensor from it."
            )
        graph.check_found(output)
        return output.detach(), _differentiate(model, output, graph.found)


class _AttentionGraph:
    """Finds the softmax of the selected modules in the graph of one forward pass."""

    def __init__(self, model: nn.Module, selected: dict[str, nn.Module]) -> None:
        self.found: list[tuple[str, Tensor]] = []  # names, and weights in the graph
        self._model = model
        self._selected = selected
        self._seen: set[Node] = set()
        self._missed: set[str] = set()
        self._thread = threading.get_ident()

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Keep hooks on the modules, to look at the graph that each one adds."""
        handles = []
        try:
            for name, module in self._selected.items():
                handles += [
                    module.register_forward_pre_hook(self._enter, with_kwargs=True),
                    module.register_forward_hook(
                        partial(self._leave, name), prepend=True, with_kwargs=True
                    ),
                ]
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _on_own_thread(self) -> bool:
        return threading.get_ident() == self._thread

    def _enter(self, module: nn.Module, args: Any, kwargs: Any) -> Any:
        """Let the graph begin here at the latest: frozen weights begin none."""
        begun = any(tensor.requires_grad for tensor in _tensors((args, kwargs)))
        if begun or not self._on_own_thread():
            return None
        return _with_gradient((args, kwargs), {})

    def _leave(
        self, name: str, module: nn.Module, args: Any, kwargs: Any, output: Any
    ) -> None:
        if not self._on_own_thread():
            return
        boundary = {tensor.grad_fn for tensor in _tensors((args, kwargs))}
        n_before = len(self.found)
        waiting = [tensor.grad_fn for tensor in _tensors(output)]
        while waiting:
            node = waiting.pop()
            if node is None or node in self._seen or node in boundary:
                continue
            self._seen.add(node)
            if node.name() in _SOFTMAX and _is_over_keys(node):
                self.found.append((name, _saved(node, "result")))
            waiting += [following for following, _ in node.next_functions]
        if len(self.found) == n_before:
            self._missed.add(name)

    def check_found(self, output: Tensor) -> None:
        """Raise unless the weights of every module that ran were found, and one ran."""
        model = type(self._model).__name__
        if self._missed:
            missed = ", ".join(sorted(self._missed))
            raise AttentionNotRedrawnError(
                f"Some modules of {model} ran without a softmax that autograd knows: "
                f"{missed}. Name the modules with layers=[...], or use members, which "
                "need no gradient."
            )
        if not self.found or output.grad_fn is None:
            raise AttentionNotRedrawnError(
                f"No attention softmax leads to the output of {model}; its variance "
                "would be 0. Let the output depend on the model's attention, and leave "
                "torch.no_grad() and detach() out of the pass."
            )


def _differentiate(
    model: nn.Module, output: Tensor, found: list[tuple[str, Tensor]]
) -> dict[str, Tensor]:
    """Return, by module, the variance (H, N, ...) that one draw gives each output."""
    columns = output.flatten(1) if output.ndim > 1 else output[:, None]  # (N, C)
    by_output: list[dict[str, Tensor]] = []
    for column in columns.unbind(dim=1):
        gradients = torch.autograd.grad(
            column.sum(),
            [probs for _, probs in found],
            retain_graph=True,
            allow_unused=True,
        )
        parts: dict[str, Tensor] = {}
        for (name, probs), gradient in zip(found, gradients, strict=True):
            part = _row_variance(probs.detach(), gradient)  # (..., T)
            by_head = _by_head(part, len(columns), head_count(model, name))  # (H, N)
            parts[name] = parts[name] + by_head if name in parts else by_head
        by_output.append(parts)
    return {
        name: torch.stack([parts[name] for parts in by_output], dim=-1)  # (H, N, C)
        .unflatten(-1, output.shape[1:] or (1,))
        .reshape(-1, *output.shape)  # (H, N, ...)
        for name in by_output[0]
    }


def _row_variance(probs: Tensor, gradient: Tensor | None) -> Tensor:
    """Variance (..., T) of one draw from `probs` (..., T, S), through `gradient`."""
    if gradient is None:
        return torch.zeros_like(probs[..., 0])  # (..., T)
    # half precision has too few digits for a difference of squares
    wide = torch.promote_types(probs.dtype, torch.float32)
    p, g = probs.to(wide), gradient.to(wide)
    centred = g - (p * g).sum(dim=-1, keepdim=True)  # (..., T, S)
    return (p * centred.square()).sum(dim=-1)  # (..., T)


def _by_head(part: Tensor, n_rows: int, n_heads: int) -> Tensor:
    """Add up (..., T) over all but rows and heads; returns (H, N)."""
    *lead, _ = part.shape
    if len(lead) > 1:
        n_heads = lead[-1]
    n_parts = part[..., 0].numel()
    if n_parts % n_heads:
        n_heads = 1
    if n_parts % (n_rows * n_heads):
        raise ValueError(
            "The first axis of the output must count the rows; got an output of "
            f"{n_rows} rows from attention over {n_parts} parts of {n_heads} heads "
            "each. Pass forward=... to bring the rows to the front."
        )
    split = part.reshape(n_rows, -1, n_heads, part.shape[-1])  # (N, P, H, T)
    return split.sum(dim=(1, 3)).T  # (H, N)


def _is_over_keys(node: Node) -> bool:
    probs = _saved(node, "result")
    # autograd keeps the axis as an unsigned number of 64 bits
    dim = _saved(node, "dim")
    dim = dim - 2**64 if dim >= 2**63 else dim
    return probs.ndim > 1 and bool(dim % probs.ndim == probs.ndim - 1)


def _saved(node: Node, name: str) -> Any:
    """Return what autograd keeps for the backward pass of a node."""
    return getattr(node, f"_saved_{name}")


def _call(model: nn.Module, batch: Batch) -> Tensor:
    output: Tensor = model(**batch) if isinstance(batch, Mapping) else model(batch)
    return output


def _with_gradient(nested: Any, copies: dict[int, Tensor]) -> Any:
    """Replace the floating tensors among arguments by copies that ask for a gradient.

    They are no leaves, which a module could not change in place, and one tensor that
    comes twice has one copy, for modules that ask whether two arguments are the same.
    """
    if isinstance(nested, Tensor) and nested.is_floating_point():
        if id(nested) not in copies:
            copies[id(nested)] = nested.detach().requires_grad_().clone()
        return copies[id(nested)]
    if type(nested) is dict:
        return {key: _with_gradient(value, copies) for key, value in nested.items()}
    if type(nested) in (tuple, list):
        return type(nested)(_with_gradient(value, copies) for value in nested)
    return nested


def _tensors(nested: Any) -> Iterator[Tensor]:
    """Yield the tensors of nested outputs or arguments."""
    if isinstance(nested, Tensor):
        yield nested
    elif isinstance(nested, Mapping):
        for value in nested.values():
            yield from _tensors(value)
    elif isinstance(nested, tuple | list):
        for value in nested:
            yield from _tensors(value)
