"""Where the spread comes from: the share of each attention layer, or of each head."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from uqformer._random import member_seeds
from uqformer._typing import LayerSelection
from uqformer.attention._context import check_call
from uqformer.attention._draws import check_n_draws
from uqformer.attention._locate import find_attention_modules
from uqformer.attention._members import forward_members
from uqformer.attention._moments import Batch, Forward, head_variances

__all__ = ["AttentionVariance", "attention_variance"]


@dataclass(frozen=True, slots=True, eq=False)
class AttentionVariance:
    """Variance of a redrawn output, parted by where it was drawn.

    Parameters
    ----------
    names : tuple of str
        Layers by their names in the model, or heads as "layer, head number".
    variance : Tensor of shape (n_parts, N, ...)
        Variance of each output when that part alone is redrawn, in float64.
    total : Tensor of shape (N, ...)
        Variance when all parts are redrawn together.

    See Also
    --------
    attention_variance : Compute it.

    Examples
    --------
    >>> import torch
    >>> from uqformer.attention import AttentionVariance
    >>> variance = torch.tensor([[[1.0], [3.0]], [[2.0], [2.0]]])
    >>> result = AttentionVariance(("a", "b"), variance, torch.tensor([[4.0], [4.0]]))
    >>> result.shares
    {'a': 0.5, 'b': 0.5}
    >>> result.interaction
    tensor([[ 1.],
            [-1.]])
    >>> result.interaction_share
    0.0
    """

    names: tuple[str, ...]
    variance: Tensor
    total: Tensor

    @property
    def interaction(self) -> Tensor:
        """What the parts do only together (N, ...): the total less their sum."""
        return self.total - self.variance.sum(dim=0)

    @property
    def shares(self) -> dict[str, float]:
        """Share of each part in the variance of all rows, outputs on a par."""
        return dict(zip(self.names, self._shares(self.variance), strict=True))

    @property
    def interaction_share(self) -> float:
        """What the shares lack to 1; below 0 where parts work against each other."""
        return self._shares(self.interaction[None])[0]

    def _shares(self, parts: Tensor) -> list[float]:
        total = self.total.reshape(len(self.total), -1).mean(dim=0)  # (C,)
        varies = total > 0  # an output that never moves has no shares
        if not varies.any():
            return [0.0] * len(parts)
        by_output = parts.reshape(*parts.shape[:2], -1).mean(dim=1)  # (n_parts, C)
        shares: list[float] = (by_output / total)[:, varies].mean(dim=1).tolist()
        return shares


def attention_variance(
    model: nn.Module,
    batches: Batch | Iterable[Batch],
    *,
    n_draws: int,
    method: Literal["redraw", "gradient"] = "redraw",
    by: Literal["layer", "head"] = "layer",
    n_members: int = 32,
    seed: int = 0,
    layers: LayerSelection = "all",
    forward: Forward | None = None,
) -> AttentionVariance:
    """Part the variance of a redrawn output by the attention it comes from.

    Parameters
    ----------
    model : nn.Module
        Any transformer, in evaluation mode.

    batches : Tensor, dict of str to Tensor, or iterable of these
        Rows, in one batch or several. A dict is handed over as keyword arguments.

    n_draws : int
        Multinomial trials per attention row.

    method : {"redraw", "gradient"}, default="redraw"
        Redraw one layer at a time, with the same seeds as all together; or take the
        derivative of the exact pass, as `redraw_moments` does. The former is right for
        any number of draws and shows what layers do only together, up to chance. The
        latter is free of chance, tells heads apart and takes one pass, but is right
        only for many draws, where nothing interacts.

    by : {"layer", "head"}, default="layer"
        What to tell apart; heads only with ``method="gradient"``.

    n_members : int, default=32
        Members of each ensemble, at least 2; only for ``method="redraw"``.

    seed : int, default=0
        Seed of the ensembles; only for ``method="redraw"``.

    layers : "all" or list of int and str, default="all"
        Layers to compare, and to redraw together for the total; the others stay exact.

    forward : callable, default=None
        ``forward(model, batch)`` returns the output Tensor, whose first axis counts the
        rows. None calls ``model(batch)``, or ``model(**batch)`` for a dict.

    Returns
    -------
    result : AttentionVariance
        Variances of each part and of all together, on the CPU.

    Raises
    ------
    AttentionNotRedrawnError
        If a chosen layer cannot be redrawn, or its softmax cannot be found.
    ValueError
        If a word or a number is out of range, heads are asked of redraws, or there is
        no batch.
    TypeError
        If an argument is of the wrong type, or the output is not a Tensor.

    See Also
    --------
    redraw_moments : Only the total, and for one batch.
    find_attention_modules : List the layers.

    Notes
    -----
    The variance of one layer redrawn while the others are exact is its first-order part
    in an analysis of variance [1]_, up to the shift that redraws elsewhere would bring.
    Variances divide by ``n_members - 1``, so that parts and total can be compared. With
    M members a part is known to about ``sqrt(2 / (M - 1))`` of itself at worst, and the
    interaction, a difference of such parts, less well. Rows share their draws, so more
    rows do not lower this.

    References
    ----------
    .. [1] I. M. Sobol' (2001), "Global sensitivity indices for nonlinear mathematical
       models and their Monte Carlo estimates", Mathematics and Computers in
       Simulation 55.

    Examples
    --------
    >>> import torch
    >>> from uqformer.attention import attention_variance
    >>> from uqformer.backbones import FTTransformer
    >>> x = torch.linspace(-1, 1, 20).reshape(10, 2)
    >>> model = FTTransformer(2, 1, d_token=8, n_heads=2).adapt(x).eval()
    >>> heads = attention_variance(model, x, n_draws=8, method="gradient", by="head")
    >>> heads.names[-1], heads.variance.shape
    ('blocks.2.attention, head 1', torch.Size([6, 10, 1]))
    """
    check_n_draws(n_draws)
    check_call(model, [seed])
    _check_words(method, by, n_members)
    selected = find_attention_modules(model, layers)
    held = [batches] if isinstance(batches, Tensor | Mapping) else list(batches)
    if not held:
        raise ValueError("batches must hold one batch at least; got none.")
    if method == "gradient":
        return _by_gradient(model, selected, held, n_draws, by, forward)
    seeds = member_seeds(seed, n_members)

    def spread(names: Sequence[str]) -> Tensor:
        return _member_variance(model, held, n_draws, seeds, names, forward)

    parts = torch.stack([spread([name]) for name in selected])  # (n_parts, N, ...)
    return AttentionVariance(tuple(selected), parts, spread(list(selected)))


def _check_words(method: str, by: str, n_members: int) -> None:
    if method not in ("redraw", "gradient"):
        raise ValueError(
            f"method must be 'redraw' or 'gradient'; got method={method!r}."
        )
    if by not in ("layer", "head"):
        raise ValueError(f"by must be 'layer' or 'head'; got by={by!r}.")
    if by == "head" and method == "redraw":
        raise ValueError(
            "by='head' needs method='gradient', which tells heads apart; got "
            "method='redraw', which draws the heads of a layer together."
        )
    if n_members < 2:
        raise ValueError(
            f"n_members must be at least 2 to have a variance; got "
            f"n_members={n_members}."
        )


def _member_variance(
    model: nn.Module,
    batches: list[Any],
    n_draws: int,
    seeds: Sequence[int],
    names: Sequence[str],
    forward: Callable[[nn.Module, Any], Tensor] | None,
) -> Tensor:
    """Variance (N, ...) over members when the modules `names` are redrawn."""
    outputs = forward_members(
        model, batches, n_draws=n_draws, seeds=seeds, layers=names, forward=forward
    )
    variances = []
    first = total = total_square = torch.empty(0)
    for _, member, output in outputs:
        wide = output.double().cpu()
        if member == 0:
            # moments about a member, for the output itself may be large beside them
            first, total, total_square = wide, wide * 0, wide * 0
        total = total + (wide - first)
        total_square = total_square + (wide - first).square()
        if member == len(seeds) - 1:
            excess = total_square - total.square() / len(seeds)
            variances.append(excess.clamp_min(0) / (len(seeds) - 1))
    return torch.cat(variances)  # (N, ...)


def _by_gradient(
    model: nn.Module,
    selected: dict[str, nn.Module],
    batches: list[Any],
    n_draws: int,
    by: str,
    forward: Callable[[nn.Module, Any], Tensor] | None,
) -> AttentionVariance:
    """Part the variance of the delta method."""
    by_batch = []
    names: list[str] = []
    for batch in batches:
        _, variances = head_variances(model, selected, batch, forward)
        if by == "layer":
            variances = {
                name: heads.sum(dim=0, keepdim=True)
                for name, heads in variances.items()
            }
        names = [
            name if by == "layer" else f"{name}, head {head}"
            for name, heads in variances.items()
            for head in range(len(heads))
        ]
        by_batch.append(torch.cat(list(variances.values())).double().cpu() / n_draws)
    parts = torch.cat(by_batch, dim=1)  # (n_parts, N, ...)
    return AttentionVariance(tuple(names), parts, parts.sum(dim=0))
