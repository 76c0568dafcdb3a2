"""The loop over members: which passes to make, and in what order."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from torch import Tensor, nn

from uqformer._typing import LayerSelection
from uqformer.attention._context import Draws, check_call, redrawing, select
from uqformer.attention._locate import uses_seam
from uqformer.attention._prefix import SharedPrefix
from uqformer.attention._samplers import MemberDraws, SamplerName

__all__ = ["forward_members"]

Batch: TypeAlias = Tensor | Mapping[str, Tensor]

# numbers of input in one pass: enough to drown what each call costs, few enough to
# keep the activations in the cache
_INPUTS_PER_PASS = 2**14


def forward_members(
    model: nn.Module,
    batches: Iterable[Batch],
    *,
    n_draws: Draws,
    seeds: Sequence[int],
    layers: LayerSelection = "all",
    sampler: SamplerName = "multinomial",
    forward: Callable[[nn.Module, Any], Tensor] | None = None,
) -> Iterator[tuple[int, int, Tensor]]:
    """Run every member of an ensemble over every batch, one output at a time.

    Nothing is kept, so a caller may hold all members or add up their moments.

    Parameters
    ----------
    model : nn.Module
        Any transformer, in evaluation mode.

    batches : iterable of Tensor or of dict of str to Tensor
        Batches of rows. A dict is handed over as keyword arguments.

    n_draws : int, float, mapping of str to them, or None
        Multinomial trials per attention row, or the concentration of another sampler,
        for all modules or for each by name. None leaves the softmax as it is, and makes
        all members equal.

    seeds : sequence of int
        One seed for each member.

    layers : "all" or list of int and str, default="all"
        Which modules to redraw; see `find_attention_modules`.

    sampler : {"multinomial", "dirichlet", "gaussian"}, default="multinomial"
        Distribution of the redrawn weights; see `stochastic_attention`.

    forward : callable, default=None
        ``forward(model, batch)`` returns the output Tensor, and must call `model`
        once. None calls ``model(batch)``, or ``model(**batch)`` for a dict.

    Returns
    -------
    outputs : iterator of (int, int, Tensor)
        Position of the batch, position of the seed, and what that member gives for that
        batch. Batches are the outer loop, members the inner one.

    Raises
    ------
    AttentionNotRedrawnError
        If a chosen module ran without being redrawn.
    ValueError
        If there is no seed, or `stochastic_attention` would refuse its arguments.
    TypeError
        If an argument is of the wrong type, or the output is not a Tensor.

    See Also
    --------
    stochastic_attention : One member, with all that is promised of it.

    Notes
    -----
    A member's output does not depend on the others. What comes before the first redraw
    is the same for all members and is computed once for each batch. Backbones of
    uqformer run several members in one pass when batches are small, stacked from there
    on; this changes an output by rounding only.

    Examples
    --------
    >>> import torch
    >>> from uqformer.attention import forward_members
    >>> _ = torch.manual_seed(0)
    >>> model = torch.nn.TransformerEncoderLayer(8, 2, batch_first=True).eval()
    >>> x = torch.randn(5, 3, 8)
    >>> outputs = forward_members(model, x.split(4), n_draws=8, seeds=[10, 11])
    >>> [(batch, member, len(output)) for batch, member, output in outputs]
    [(0, 0, 4), (0, 1, 4), (1, 0, 1), (1, 1, 1)]
    """
    if len(seeds) == 0:
        raise ValueError("seeds must hold one seed for each member; got seeds=[].")
    check_call(model, seeds)
    selected, draws = select(model, layers, sampler, n_draws)
    # a generator would check nothing before its first value is asked for
    return _run(model, selected, batches, draws, seeds, forward or _call)


def _run(
    model: nn.Module,
    selected: dict[str, nn.Module],
    batches: Iterable[Batch],
    draws: MemberDraws | None,
    seeds: Sequence[int],
    forward: Callable[[nn.Module, Any], Tensor],
) -> Iterator[tuple[int, int, Tensor]]:
    can_stack = draws is not None and uses_seam(selected)
    for batch_index, batch in enumerate(batches):
        n_stacked = _members_per_pass(batch) if can_stack else 1
        prefix = SharedPrefix()
        for start in range(0, len(seeds), n_stacked):
            group = seeds[start : start + n_stacked]
            # left again before the output is handed out: the caller is not redrawn
            with redrawing(model, selected, draws, group, prefix):
                output = forward(model, batch)
            for offset, member in enumerate(_split(output, len(group))):
                yield batch_index, start + offset, member


def _call(model: nn.Module, batch: Batch) -> Tensor:
    output: Tensor = model(**batch) if isinstance(batch, Mapping) else model(batch)
    return output


def _members_per_pass(batch: Batch) -> int:
    tensors = batch.values() if isinstance(batch, Mapping) else [batch]
    n_inputs = max(tensor.numel() for tensor in tensors)
    return max(1, _INPUTS_PER_PASS // max(1, n_inputs))


def _split(output: Tensor, n_members: int) -> Sequence[Tensor]:
    """Give each member its rows of the output (M * N, ...)."""
    if not isinstance(output, Tensor):
        raise TypeError(
            f"The model must return a Tensor; got {type(output).__name__}. Pass "
            "forward=... to pick the tensor from it."
        )
    if len(output) % n_members:
        raise ValueError(
            "The model must return one row for each row it is given; got an output of "
            f"shape {tuple(output.shape)} for {n_members} stacked members."
        )
    return output.chunk(n_members)
