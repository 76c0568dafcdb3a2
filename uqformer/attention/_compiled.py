"""Code for numba to compile; only `_kernel` imports this, and only where numba is.

For sorted uniforms u and a cumulative probability c the count of the uniforms below c
is wanted. A guide table holds, for equal steps of c, the count at the start of the
step; from there only the uniforms inside the step are looked at, less than one on
average. A key costs the same for one draw as for a thousand. Where draws are few and
keys are many, each draw looks for its key by bisection instead.
"""

from collections.abc import Callable
from typing import Any, TypeAlias, cast

import numba
import numpy as np
from numpy.typing import NDArray

__all__ = ["draw"]

Array: TypeAlias = NDArray[Any]
Function: TypeAlias = Callable[..., Any]

uint = np.uint64
"""Kind of index: numba would look at every other kind for being negative."""

KEYS_PER_DRAW = 32
"""With more keys than this for each draw, a draw looks for its key."""


def compiled(function: Function) -> Function:
    """Compile without the interpreter's lock, and keep the result for next time."""
    try:
        kept = numba.njit(nogil=True, error_model="numpy", cache=True)(function)
    except RuntimeError:  # there is nowhere to write
        kept = numba.njit(nogil=True, error_model="numpy")(function)
    return cast(Function, kept)


def inlined(function: Function) -> Function:
    """Compile into the caller: a call would hand over many arrays for each row."""
    inline = numba.njit(nogil=True, error_model="numpy", inline="always")(function)
    return cast(Function, inline)


@inlined
def fill_guide(
    uniforms: Array, g: int, t: int, h: int, n_steps: int, scaled: Array, guide: Array
) -> None:
    """Bring uniforms to the unit of steps, and count those below each step's start."""
    count = uint(0)
    for i in range(uniforms.shape[-1]):
        scaled[i] = uniforms[g, t, h, i] * np.float64(n_steps)
    for step in range(n_steps + 1):
        while scaled[count] < step:
            count += uint(1)
        guide[step] = count


@inlined
def count_below(cdf: Array, scaled: Array, guide: Array, target: Array) -> None:
    """Fill one row of weights from the counts below each edge, through the guide."""
    n_draws, n_steps, n_keys = len(scaled) - 2, len(guide) - 1, len(cdf)
    to_steps, share = n_steps / cdf[n_keys - 1], 1.0 / n_draws
    before = uint(0)
    for s in range(n_keys - 1):
        edge = cdf[s] * to_steps
        count = uint(guide[uint(np.uint32(edge))])
        # no branch to guess for the first, and there is seldom a second
        count += uint(scaled[count] < edge)
        while scaled[count] < edge:
            count += uint(1)
        target[s] = np.int64(count - before) * share
        before = count
    # by what is left, so that no draw is lost to rounding
    target[n_keys - 1] = (n_draws - np.int64(before)) * share


@inlined
def find_keys(cdf: Array, scaled: Array, n_steps: int, target: Array) -> None:
    """Fill one row of weights by looking for the key of each draw."""
    n_draws, n_keys = len(scaled) - 2, len(cdf)
    share, from_steps = 1.0 / n_draws, cdf[n_keys - 1] / n_steps
    target[:] = 0
    count, before = 0, uint(n_keys)
    for i in range(n_draws):
        wanted = scaled[i] * from_steps
        key, n_left = uint(0), uint(n_keys)
        while n_left > 1:
            half = n_left >> uint(1)
            key += half * uint(cdf[key + half - uint(1)] <= wanted)
            n_left -= half
        # draws are sorted, so those of one key follow each other
        count = count + 1 if key == before else 1
        target[key] = count * share
        before = key


@inlined
def draw_row(
    probs: Array, cdf: Array, scaled: Array, guide: Array, target: Array
) -> None:
    """Redraw one row of attention."""
    n_keys, n_draws = len(cdf), len(scaled) - 2
    total = 0.0
    for s in range(n_keys):
        total += probs[s]
        cdf[s] = total
    if not total > 0:  # masked as a whole, or NaN
        target[:] = total
    elif n_draws * KEYS_PER_DRAW <= n_keys:
        find_keys(cdf, scaled, len(guide) - 1, target)
    else:
        count_below(cdf, scaled, guide, target)


@compiled
def draw(
    probs: Array,
    uniforms: Array,
    weights: Array,
    n_steps: int,
    n_tile: int,
    first: int,
    last: int,
) -> None:
    """Redraw samples `first` to `last` of probs (G, N, H, T, S) into weights."""
    n_groups, _, n_heads, n_queries, n_keys = probs.shape
    n_draws = uniforms.shape[-1]
    # two infinities stay behind the last uniform, where every count ends
    scaled = np.full((n_tile, n_draws + 2), np.inf)
    guide = np.empty((n_tile, n_steps + 1), np.uint32)
    cdf = np.empty(n_keys)
    for g in range(n_groups):
        for h in range(n_heads):
            for start in range(0, n_queries, n_tile):
                stop = min(start + n_tile, n_queries)
                for t in range(start, stop):
                    k = t - start
                    fill_guide(uniforms, g, t, h, n_steps, scaled[k], guide[k])
                for n in range(first, last):
                    for t in range(start, stop):
                        draw_row(
                            probs[g, n, h, t],
                            cdf,
                            scaled[t - start],
                            guide[t - start],
                            weights[g, n, h, t],
                        )
