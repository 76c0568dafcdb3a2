"""The one door: redraw chosen attention inside a `with` block, then leave no trace."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeAlias

import torch
from torch import Tensor, nn

from uqformer._typing import LayerSelection
from uqformer.attention._draws import check_seed
from uqformer.attention._locate import find_attention_modules
from uqformer.attention._prefix import SharedPrefix
from uqformer.attention._samplers import MemberDraws, SamplerName, make_sampler
from uqformer.attention._watch import AttentionTap, answering

__all__ = ["Draws", "check_call", "redrawing", "select", "stochastic_attention"]

Draws: TypeAlias = float | Mapping[str, float] | None
"""Draws per attention row: one number for all modules, one for each, or none."""


@contextmanager
def stochastic_attention(
    model: nn.Module,
    *,
    n_draws: Draws,
    seed: int,
    layers: LayerSelection = "all",
    sampler: SamplerName = "multinomial",
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

    n_draws : int, float, mapping of str to them, or None
        Multinomial trials per attention row, a whole number of at least 1. Fewer trials
        spread the members further apart. None leaves the softmax as it is. A mapping
        gives modules, by name, numbers of their own, and redraws no others. Other
        samplers take any number in their range.

    seed : int
        Seed of the member, 0 or above.

    layers : "all" or list of int and str, default="all"
        Which modules to redraw; see `find_attention_modules`.

    sampler : {"multinomial", "dirichlet", "gaussian"}, default="multinomial"
        Distribution of the redrawn weights. The first is that of the method; the others
        have its mean and covariance, and see `dirichlet_weights`, `gaussian_weights`.

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
    check_call(model, [seed])
    selected, draws = select(model, layers, sampler, n_draws)
    with redrawing(model, selected, draws, [seed]) as tap:
        yield tap


def check_call(model: nn.Module, seeds: Sequence[int]) -> None:
    """Check what a redraw is asked for before anything runs."""
    if model.training:
        raise ValueError(
            f"The model must be in evaluation mode; got {type(model).__name__} with "
            "training=True, whose dropout would mix in. Call model.eval() first."
        )
    for seed in seeds:
        check_seed(seed)


def select(
    model: nn.Module, layers: LayerSelection, sampler: SamplerName, n_draws: Draws
) -> tuple[dict[str, nn.Module], MemberDraws | None]:
    """Find the modules to redraw, and how; no draws leave the softmax as it is."""
    if isinstance(n_draws, Mapping):
        if layers != "all":
            raise ValueError(
                "n_draws names the modules to redraw, so layers must be left at 'all'; "
                f"got layers={layers!r} and n_draws for {list(n_draws)}."
            )
        selected = find_attention_modules(model, list(n_draws))
        own = {name: make_sampler(sampler, number) for name, number in n_draws.items()}
        return selected, MemberDraws(own)
    selected = find_attention_modules(model, layers)
    if n_draws is None:
        return selected, None
    return selected, MemberDraws(
        dict.fromkeys(selected, make_sampler(sampler, n_draws))
    )


@contextmanager
def redrawing(
    model: nn.Module,
    selected: dict[str, nn.Module],
    draws: MemberDraws | None,
    seeds: Sequence[int],
    prefix: SharedPrefix | None = None,
) -> Iterator[AttentionTap]:
    """Redraw modules already selected, for one member or several stacked in a batch."""
    if draws is None:
        with torch.inference_mode(False), torch.no_grad():
            yield AttentionTap()
        return

    def answer(name: str, n_before: int, probs: Tensor) -> Tensor:
        return draws.draw(seeds, name, n_before, probs)

    with answering(model, selected, answer, n_members=len(seeds), prefix=prefix) as tap:
        yield tap
