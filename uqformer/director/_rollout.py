"""Walk the chain with a learned transition, as often as there are seeds."""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import torch
from torch import Tensor, nn

from uqformer._random import torch_generator
from uqformer.director._shared import shared_part

__all__ = ["Noise", "n_steps_or_own", "rollout", "shared_noise", "walk"]

Noise: TypeAlias = Callable[[int, Tensor], Tensor]
"""From the number of a step, and tokens, to standard normal numbers like them."""


def rollout(
    transition: nn.Module,
    start: Tensor,
    *,
    seeds: Sequence[int] | None,
    n_steps: int | None = None,
    visible: Tensor | None = None,
) -> Tensor:
    r"""Walk chains from the same start, all of them in one batch.

    Parameters
    ----------
    transition : nn.Module
        Such as `TransitionDiT`: from tokens, time and visible keys to mean and
        log-variance, and factors where tokens share noise; its `n_steps` is the number
        of steps it was trained for.

    start : Tensor of shape (N, T, D)
        Tokens that enter the first block.

    seeds : sequence of int or None
        One seed for each chain. None walks one chain without noise, by the means alone.

    n_steps : int, default=None
        Steps to walk; None takes those of the transition. Fewer are larger: a step's
        change of the mean and its variance both grow by the ratio.

    visible : Tensor of shape (N or 1, 1, T or 1, T), default=None
        Boolean; True where a query may look at a key. None for everywhere.

    Returns
    -------
    ends : Tensor of shape (M, N, T, D)
        Where each chain ends; `M` is 1 if `seeds` is None.

    Raises
    ------
    ValueError
        If there is no seed, or `n_steps` is below 1 or above that of the transition.

    See Also
    --------
    Student : Does this between the embedding and the head of a model.

    Notes
    -----
    Noise depends on (seed, step, token, width) and is shared by all rows. Each row's
    chain still has exactly its own distribution, and chains are independent; what is
    given up is independence between rows within one chain. What this buys is the rule
    of the house: a row's result does not depend on its neighbours, nor on how far they
    are padded, and one chain is one function of the input.

    With fewer steps the chain is read as the Euler-Maruyama scheme of a diffusion: a
    step r times as long moves the mean r times as far and has r times the variance. It
    is an approximation for a network that was trained at its own step.

    References
    ----------
    .. [1] M. C. Dao et al. (2026), "Diffusion-Inspired Reconfiguration of Transformers
       for Uncertainty Calibration", arXiv 2602.08920.

    Examples
    --------
    >>> import torch
    >>> from uqformer.director import TransitionDiT, rollout
    >>> transition = TransitionDiT(width=8, n_steps=3)
    >>> start = torch.zeros(2, 4, 8)
    >>> with torch.no_grad():
    ...     ends = rollout(transition, start, seeds=[0, 1])
    >>> ends.shape, torch.equal(ends[0, 0], ends[0, 1])
    (torch.Size([2, 2, 4, 8]), True)
    """
    n_steps = n_steps_or_own(transition, n_steps)
    if seeds is None:
        return walk(transition, start, None, n_steps, visible)[None]
    if len(seeds) == 0:
        raise ValueError("seeds must hold one seed for each chain; got seeds=[].")
    n_chains, n_rows = len(seeds), len(start)
    tiled = start.repeat(n_chains, 1, 1)  # (M * N, T, D)
    if visible is not None and len(visible) > 1:
        visible = visible.repeat(n_chains, 1, 1, 1)  # (M * N, 1, T or 1, T)
    ends = walk(transition, tiled, shared_noise(seeds), n_steps, visible)
    return ends.view(n_chains, n_rows, *ends.shape[1:])  # (M, N, T, D)


def n_steps_or_own(transition: nn.Module, n_steps: int | None) -> int:
    """Return the number of steps to walk, after checking it."""
    own = int(transition.n_steps)  # type: ignore[arg-type]
    if n_steps is None:
        return own
    if not 1 <= n_steps <= own:
        raise ValueError(
            f"n_steps must be between 1 and {own}, the steps that the transition was "
            f"trained for; got n_steps={n_steps}."
        )
    return n_steps


def walk(
    transition: nn.Module,
    state: Tensor,
    noise: Noise | None,
    n_steps: int,
    visible: Tensor | None,
    visit: Callable[[Tensor], None] | None = None,
) -> Tensor:
    """Walk from `state` (N, T, D) to the end; gradients flow through every step.

    `visit` is shown the state after each step.
    """
    ratio = int(transition.n_steps) / n_steps  # type: ignore[arg-type]
    for step in range(n_steps):
        time = state.new_tensor((n_steps - step) / n_steps)
        mean, log_variance, *factors = transition(state, time, visible)
        if ratio > 1:
            mean = state + ratio * (mean - state)
        state = mean
        if noise is not None:
            added = (0.5 * log_variance).exp() * noise(step, mean)
            for factor in factors:
                first = mean.new_empty(len(mean), factor.shape[-1], mean.shape[-1])
                added = added + shared_part(factor, noise(n_steps + step, first))
            state = mean + ratio**0.5 * added
        if visit is not None:
            visit(state)
    return state


def shared_noise(seeds: Sequence[int]) -> Noise:
    """Make noise for tiled chains (M * N, T, D): the same for all rows of a chain."""

    def noise(step: int, like: Tensor) -> Tensor:
        _, n_tokens, width = like.shape
        parts = [_normals(seed, step, n_tokens, width) for seed in seeds]
        stacked = torch.stack(parts).to(like)  # (M, T, D)
        return stacked.repeat_interleave(len(like) // len(seeds), dim=0)

    return noise


def _normals(seed: int, step: int, n_tokens: int, width: int) -> Tensor:
    """Draw normals (T, D) of which a token has the same however many follow it.

    `torch.randn` fills its last numbers in another way than those before; uniforms come
    in order.
    """
    uniforms = torch.rand(
        (n_tokens, width),
        generator=torch_generator(seed, step),
        dtype=torch.float64,
        device="cpu",
    )
    # 0 is drawn once in 2**53, and has no finite quantile
    normals: Tensor = torch.special.ndtri(uniforms.clamp_min(2.0**-54))
    return normals
