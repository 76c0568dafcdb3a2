"""Turn rows of attention probabilities into normalised multinomial counts."""

import math
from numbers import Integral
from typing import Literal

import torch
from torch import Tensor

from uqformer.attention._kernel import draw_compiled, has_kernel

__all__ = [
    "check_n_draws",
    "check_probs",
    "check_seed",
    "draw_by_bisection",
    "draw_weights",
    "multinomial_weights",
    "sorted_uniforms",
    "split_heads",
]


def multinomial_weights(
    probs: Tensor,
    n_draws: int,
    generator: torch.Generator,
    *,
    rows: Literal["shared", "independent"] = "shared",
) -> Tensor:
    """Redraw attention weights as multinomial counts of their own probabilities.

    Every row of probabilities over the keys is replaced by the shares that its keys
    win in `n_draws` trials. The weights average to the probabilities, a key that
    cannot be attended to never wins, and one-hot rows stay as they are.

    Parameters
    ----------
    probs : Tensor of shape (N, H, T, S)
        Probabilities of `S` keys for `T` queries, `H` heads and `N` samples, in
        [0, 1]. The draw is made in float32 at least, whatever the dtype.

    n_draws : int
        Trials per row, at least 1. The variance of a weight is ``p * (1 - p) /
        n_draws``.

    generator : torch.Generator
        A CPU generator; it is advanced. The draw is the same on every device.

    rows : {"shared", "independent"}, default="shared"
        Whether all samples are drawn with the same uniforms, so that a sample's weights
        do not depend on its neighbours, or each with its own. Heads and queries are
        independent in both cases.

    Returns
    -------
    weights : Tensor of shape (N, H, T, S)
        Counts divided by `n_draws`, in the dtype and on the device of `probs`. A row of
        zeros stays zero, and a row with NaN becomes NaN.

    Raises
    ------
    ValueError
        If `probs` is not a floating tensor with four dimensions, `n_draws` is below 1,
        or `rows` is unknown.
    TypeError
        If `n_draws` is not an integer.

    See Also
    --------
    stochastic_attention : Do this inside a whole model.

    Notes
    -----
    The uniforms of a row of draws are sorted once; the number of trials below each
    value of the cumulative probability is then found by bisection, and counts are
    their differences: ``S * log(n_draws)`` steps for a row of `S` keys. Where numba is
    installed (``uqformer[fast]``), a compiled kernel finds it on the CPU through a
    guide table, in about `S` steps. The two differ where a draw falls within rounding
    of an edge.

    References
    ----------
    .. [1] A. Yadav, T. A. Adebiyi and R. Zhang (2026), "Calibrating Scientific
       Foundation Models with Inference-Time Stochastic Attention", arXiv 2604.19530.

    Examples
    --------
    >>> import torch
    >>> from uqformer.attention import multinomial_weights
    >>> probs = torch.tensor([0.5, 0.3, 0.2, 0.0]).reshape(1, 1, 1, 4)
    >>> weights = multinomial_weights(probs, 10, torch.Generator().manual_seed(0))
    >>> weights.sum(), weights[..., 3]
    (tensor(1.), tensor([[[0.]]]))
    """
    check_probs(probs)
    if rows not in ("shared", "independent"):
        raise ValueError(f"rows must be 'shared' or 'independent'; got rows={rows!r}.")
    n_draws = check_n_draws(n_draws)
    n_rows, n_heads, n_queries, _ = probs.shape
    n_groups = n_rows if rows == "independent" else 1
    uniforms = sorted_uniforms(n_groups * n_queries, n_heads, n_draws, generator)
    # (G, T, H, nu)
    return draw_weights(probs, uniforms.unflatten(0, (n_groups, n_queries)))


def check_probs(probs: Tensor) -> None:
    """Raise unless `probs` has the axes (N, H, T, S)."""
    if probs.ndim != 4 or not probs.is_floating_point():
        raise ValueError(
            "probs must be a floating tensor of shape (N, H, T, S); got "
            f"probs.shape={tuple(probs.shape)} of {probs.dtype}. Unsqueeze what is "
            "missing."
        )


def check_n_draws(n_draws: int) -> int:
    """Return `n_draws` as an int after checking that it is a whole number above 0."""
    if isinstance(n_draws, bool) or not isinstance(n_draws, Integral):
        raise TypeError(
            "n_draws must be a whole number of draws per attention row; got "
            f"n_draws={n_draws!r}."
        )
    if n_draws < 1:
        raise ValueError(f"n_draws must be at least 1; got n_draws={n_draws}.")
    return int(n_draws)


def check_seed(seed: int) -> None:
    """Raise unless `seed` is a whole number that a generator can start from."""
    if isinstance(seed, bool) or not isinstance(seed, Integral):
        raise TypeError(f"seed must be an integer; got seed={seed!r}.")
    if seed < 0:
        raise ValueError(f"seed must be 0 or above; got seed={seed}.")


def split_heads(
    probs: Tensor, n_heads: int | None, n_rows: int | None = None
) -> Tensor:
    """Reshape attention of any layout (..., T, S) to (N, H, T, S).

    Three dimensions leave open whether the first holds heads: `n_heads` tells, unless
    it does not divide it. What else is folded into the samples, such as the windows of
    an image, counts as heads where `n_rows` tells how many samples there are: the
    parts of a sample are drawn apart.
    """
    *lead, n_queries, n_keys = probs.shape
    n_parts = math.prod(lead)
    if len(lead) > 1:
        n_heads = lead[-1]
    elif n_heads is None or n_parts % n_heads:
        n_heads = 1
    if n_rows and n_parts // n_heads % n_rows == 0:
        n_heads = n_parts // n_rows
    return probs.reshape(n_parts // n_heads, n_heads, n_queries, n_keys)  # (N, H, T, S)


def sorted_uniforms(
    n_queries: int, n_heads: int, n_draws: int, generator: torch.Generator
) -> Tensor:
    """Draw the uniforms (T, H, nu) behind one attention call, sorted for each head.

    Queries come first because `torch.rand` fills a CPU tensor in order: a query then
    has the same uniforms however many follow it.
    """
    shape = (n_queries, n_heads, n_draws)
    # spelled out, for a default device or dtype set by the user would change the draw
    uniforms = torch.rand(
        shape, generator=generator, dtype=torch.float32, device="cpu"
    )  # (T, H, nu)
    # in place, and some 20 times faster than torch.sort for a few hundred draws
    uniforms.numpy().sort(axis=-1)
    return uniforms


def draw_weights(probs: Tensor, uniforms: Tensor) -> Tensor:
    """Draw weights like `probs` (G * N, H, T, S) from `uniforms` (G, T, H, nu).

    The N samples of a group share its uniforms.
    """
    dtype = torch.promote_types(probs.dtype, torch.float32)
    n_groups = uniforms.shape[0]
    grouped = probs.unflatten(0, (n_groups, probs.shape[0] // n_groups)).to(dtype)
    compiled = probs.device.type == "cpu" and has_kernel()
    draw = draw_compiled if compiled else draw_by_bisection
    return draw(grouped, uniforms).flatten(0, 1).to(probs.dtype)  # (G * N, H, T, S)


def draw_by_bisection(probs: Tensor, uniforms: Tensor) -> Tensor:
    """Draw weights like `probs` (G, N, H, T, S) from `uniforms` (G, T, H, nu)."""
    n_draws = uniforms.shape[-1]
    by_query = probs.permute(0, 3, 2, 1, 4)  # (G, T, H, N, S)
    cdf, total = normalised_cdf(by_query)
    below = torch.searchsorted(
        uniforms.to(device=probs.device, dtype=probs.dtype),
        cdf.flatten(-2).contiguous(),  # (G, T, H, N * S)
        out_int32=True,
    ).view(cdf.shape)  # (G, T, H, N, S)
    counts = below.diff(dim=-1, prepend=torch.zeros_like(below[..., :1]))
    weights = (counts / n_draws).to(probs.dtype).masked_fill(total.isnan(), torch.nan)
    return weights.permute(0, 3, 2, 1, 4)  # (G, N, H, T, S)


def normalised_cdf(probs: Tensor) -> tuple[Tensor, Tensor]:
    """Return the cumulative shares along the last axis, ending in 1, and the totals."""
    cdf = probs.cumsum(dim=-1)
    if probs.device.type != "cpu":
        cdf = without_backsteps(cdf, probs)
    total = cdf[..., -1:]
    smallest = torch.finfo(cdf.dtype).tiny
    # dividing by the last value itself gives exactly 1, so rounding loses no draw
    return cdf / total.clamp_min(smallest), total


def without_backsteps(cdf: Tensor, probs: Tensor) -> Tensor:
    """Keep `cdf` flat where `probs` is zero, and rising elsewhere.

    A parallel scan adds in another order for each key, so that two neighbours may
    differ by rounding where nothing was added; a masked key could then be drawn.
    """
    return cdf.masked_fill(probs == 0, 0.0).cummax(dim=-1).values
