"""The features of a frozen model as a chain whose every step ends in attention."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from uqformer.attention._switches import explicit_kernels
from uqformer.director._blocks import (
    Call,
    Inputs,
    call_model,
    find_blocks,
    first_tensor,
    real_tokens,
    state_of,
    visible_keys,
    with_state,
)
from uqformer.director._cut import BlockCut, added_by, cut_block, on_this_thread

__all__ = ["FeatureChain", "cut_model", "record_chain"]


@dataclass(frozen=True, slots=True, eq=False)
class FeatureChain:
    """What a frozen model makes of its input, step by step.

    Parameters
    ----------
    states : tuple of Tensor of shape (N, T, D)
        The tokens that enter the first block of the chain, and the tokens after the
        attention of each of its blocks: L + 1 states for L blocks.

    output : Tensor
        What the model itself predicts.

    calls : tuple of (tuple, dict)
        Arguments of each block, masks and positions among them.

    visible : Tensor of shape (N or 1, 1, T or 1, T), default=None
        Boolean; True where a query may look at a key. None if it may look everywhere.

    See Also
    --------
    record_chain : Record the chain of a model.

    Examples
    --------
    >>> import torch
    >>> from uqformer.director import record_chain
    >>> layer = torch.nn.TransformerEncoderLayer(8, 2, batch_first=True)
    >>> model = torch.nn.TransformerEncoder(layer, num_layers=3).eval()
    >>> chain = record_chain(model, torch.zeros(2, 5, 8))
    >>> chain.n_steps, chain.states[-1].shape
    (3, torch.Size([2, 5, 8]))
    """

    states: tuple[Tensor, ...]
    output: Tensor
    calls: tuple[Call, ...]
    visible: Tensor | None = None

    @property
    def n_steps(self) -> int:
        """Steps of the chain, one for each block."""
        return len(self.states) - 1

    @property
    def real(self) -> Tensor:
        """Tokens that are not padding, boolean of shape (N, T)."""
        return real_tokens(self.visible, self.states[0])


def record_chain(
    model: nn.Module, x: Inputs, cuts: tuple[BlockCut, ...] | None = None
) -> FeatureChain:
    r"""Record the features of a frozen model, cut behind the attention of each block.

    The blocks are parted anew so that each step ends in attention: step 1 is the first
    block up to its attention, step l is the rest of block l - 1 and then the attention
    of block l, both with their residuals. The rest of the last block and all that
    follows it belong to the head.

    Parameters
    ----------
    model : nn.Module
        A transformer in evaluation mode. Its weights are not changed.

    x : Tensor or dict of str to Tensor
        A batch, of shape (N, ...); a dict is handed over as keyword arguments.

    cuts : tuple of BlockCut, default=None
        Where to cut, as found by an earlier call of `cut_model`. None finds out. If
        they are fewer than the blocks, the chain is that of the last blocks.

    Returns
    -------
    chain : FeatureChain
        States, and what the head needs besides.

    Raises
    ------
    ValueError
        If the model is in training mode, if its blocks do not follow one another, or
        if one of them cannot be cut behind its attention.

    See Also
    --------
    find_blocks : The blocks that are parted.
    Student : Runs a learned chain between the model's embedding and head.

    Notes
    -----
    With states :math:`z_0 = h_0` and :math:`z_l = h_{l-1} + MHSA_l(h_{l-1})`, where
    :math:`h_l` is the output of block l, the chain is exactly the frozen network
    [1]_. Where a block normalises behind its residual, as in BERT, the state is the
    sum before that norm: only then is attention, with what it adds to, the last thing
    that happens.

    Where only the first tokens of the last block ask, as in uqformer's own backbones,
    the chain lets all tokens ask; the head reads those that the model reads.

    References
    ----------
    .. [1] M. C. Dao et al. (2026), "Diffusion-Inspired Reconfiguration of Transformers
       for Uncertainty Calibration", arXiv 2602.08920.

    Examples
    --------
    >>> import torch
    >>> from uqformer.director import record_chain
    >>> layer = torch.nn.TransformerEncoderLayer(8, 2, batch_first=True)
    >>> model = torch.nn.TransformerEncoder(layer, num_layers=3).eval()
    >>> len(record_chain(model, torch.zeros(2, 5, 8)).states)
    4
    """
    _check_eval(model)
    blocks = list(find_blocks(model)[1])
    if cuts is not None:
        blocks = blocks[len(blocks) - len(cuts) :]
    with torch.no_grad():
        calls, outputs, output = _run(model, blocks, x)
        if cuts is None:
            cuts = _cut_all(blocks, calls)
        states = [state_of(calls[0])]
        tokens = states[0]
        for block, cut, call, following in zip(
            blocks, cuts, calls, outputs, strict=True
        ):
            states.append(tokens + added_by(block, cut, tokens, call))
            tokens = following
    is_causal = getattr(blocks[0].get_submodule(cuts[0].attention), "is_causal", False)
    visible = visible_keys(calls[0], is_causal=is_causal is True)
    return FeatureChain(tuple(states), output, tuple(calls), visible)


def cut_model(
    model: nn.Module, x: Inputs, *, n_kept_blocks: int = 0
) -> tuple[BlockCut, ...]:
    """Find where each block of a model is cut, on a batch that it can be called with.

    Parameters
    ----------
    model : nn.Module
        A transformer in evaluation mode.

    x : Tensor or dict of str to Tensor
        A batch; a few rows are enough.

    n_kept_blocks : int, default=0
        Blocks in front that are not cut.

    Returns
    -------
    cuts : tuple of BlockCut
        One for each block, but for those in front.

    Raises
    ------
    ValueError
        As `record_chain` does, or if no block is left to be cut.

    See Also
    --------
    record_chain : Takes the cuts.

    Examples
    --------
    >>> import torch
    >>> from uqformer.director import cut_model
    >>> layer = torch.nn.TransformerEncoderLayer(8, 2, batch_first=True)
    >>> model = torch.nn.TransformerEncoder(layer, num_layers=3).eval()
    >>> [cut.attention for cut in cut_model(model, torch.zeros(2, 5, 8))]
    ['self_attn', 'self_attn', 'self_attn']
    """
    _check_eval(model)
    blocks = list(find_blocks(model)[1])
    if not 0 <= n_kept_blocks < len(blocks):
        raise ValueError(
            f"n_kept_blocks must leave one of the {len(blocks)} blocks of "
            f"{type(model).__name__} to be replaced; got {n_kept_blocks}."
        )
    blocks = blocks[n_kept_blocks:]
    with torch.no_grad():
        calls, _, _ = _run(model, blocks, x)
        return _cut_all(blocks, calls)


def _cut_all(blocks: list[nn.Module], calls: list[Call]) -> tuple[BlockCut, ...]:
    return tuple(
        cut_block(block, call, f"block {index}")
        for index, (block, call) in enumerate(zip(blocks, calls, strict=True))
    )


def _check_eval(model: nn.Module) -> None:
    if model.training:
        raise ValueError(
            f"The model must be in evaluation mode; got {type(model).__name__} with "
            "training=True. Call model.eval() first."
        )
    for module in model.modules():
        if isinstance(module, nn.MultiheadAttention) and not module.batch_first:
            raise ValueError(
                "Tokens must have shape (n_samples, n_tokens, width); "
                f"{type(model).__name__} puts n_tokens first. Build it with "
                "batch_first=True."
            )


def _run(
    model: nn.Module, blocks: list[nn.Module], x: Inputs
) -> tuple[list[Call], list[Tensor], Tensor]:
    """Run the model; return each block's call and output, and the model's output."""
    calls: list[Call] = []
    outputs: list[Tensor] = []
    order: list[nn.Module] = []

    def before(module: nn.Module, args: Any, kwargs: Any) -> None:
        order.append(module)
        calls.append((args, kwargs))

    def after(module: nn.Module, args: Any, output: Any) -> None:
        outputs.append(first_tensor(output, type(module).__name__))

    with explicit_kernels(), _listening(blocks, before, after):
        output = call_model(model, x)
    if [id(module) for module in order] != [id(block) for block in blocks]:
        raise ValueError(
            f"The {len(blocks)} blocks of {type(model).__name__} must run once each, "
            f"in order; {len(order)} runs were seen."
        )
    _check_follow(calls, outputs, type(model).__name__)
    # what a block is given first may be a part of the state alone
    calls = [with_state(call, state_of(call), all_ask=True) for call in calls]
    return calls, outputs, output


@contextmanager
def _listening(
    blocks: list[nn.Module], before: Callable[..., None], after: Callable[..., None]
) -> Iterator[None]:
    with ExitStack() as stack:
        for block in blocks:
            enter, leave = on_this_thread(before), on_this_thread(after)
            hook = block.register_forward_pre_hook(enter, with_kwargs=True)
            stack.callback(hook.remove)
            stack.callback(block.register_forward_hook(leave).remove)
        yield


def _check_follow(calls: list[Call], outputs: list[Tensor], name: str) -> None:
    for index, (call, output) in enumerate(zip(calls[1:], outputs, strict=False)):
        state = state_of(call)
        same = state is output or torch.equal(state, output)
        if not same:
            raise ValueError(
                f"The blocks of {name} must follow one another; between blocks {index} "
                f"and {index + 1} the tokens are changed."
            )
