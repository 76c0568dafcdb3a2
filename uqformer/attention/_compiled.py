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

KEYS_PER_DRAW = 8
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
    uniforms: Array, g: int, t: int, h: int, scaled: Array, guide: Array, k: int
) -> None:
    """Bring uniforms to the unit of steps, and count those below each step's start."""
    n_steps, count = guide.shape[1] - 1, 0
    for i in range(uniforms.shape[-1]):
        scaled[k, i] = uniforms[g, t, h, i] * np.float64(n_steps)
    for step in range(n_steps + 1):
        while scaled[k, count] < step:
            count += 1
        guide[k, step] = count


@inlined
def count_below(
    cdf: Array, scaled: Array, guide: Array, k: int, target: Array, at: int
) -> None:
    """Fill one row of weights from the counts below each edge, through the guide."""
    n_draws, n_keys = scaled.shape[1] - 2, len(cdf)
    to_steps, share = (guide.shape[1] - 1) / cdf[n_keys - 1], 1.0 / n_draws
    before = 0
    for s in range(n_keys - 1):
        edge = cdf[s] * to_steps
        count = guide[k, np.int32(edge)]
        # no branch to guess for the first, and there is seldom a second
        count += int(scaled[k, count] < edge)
        while scaled[k, count] < edge:
            count += 1
        target[at + s] = (count - before) * share
        before = count
    # by what is left, so that no draw is lost to rounding
    target[at + n_keys - 1] = (n_draws - before) * share


@inlined
def find_keys(
    cdf: Array, scaled: Array, k: int, n_steps: int, target: Array, at: int
) -> None:
    """Fill one row of weights by looking for the key of each draw."""
    n_draws, n_keys = scaled.shape[1] - 2, len(cdf)
    share, from_steps = 1.0 / n_draws, cdf[n_keys - 1] / n_steps
    for s in range(n_keys):
        target[at + s] = 0
    count, before = 0, -1
    for i in range(n_draws):
        wanted = scaled[k, i] * from_steps
        key, n_left = 0, n_keys
        while n_left > 1:
            half = n_left >> 1
            key += half * int(cdf[key + half - 1] <= wanted)
            n_left -= half
        # draws are sorted, so those of one key follow each other
        count = count + 1 if key == before else 1
        target[at + key] = count * share
        before = key


@inlined
def draw_row(
    source: Array,
    at: int,
    cdf: Array,
    scaled: Array,
    guide: Array,
    k: int,
    target: Array,
) -> None:
    """Redraw the probabilities that begin at `at` with the uniforms of tile row `k`."""
    n_keys, n_draws, n_steps = len(cdf), scaled.shape[1] - 2, guide.shape[1] - 1
    total = 0.0
    for s in range(n_keys):
        total += source[at + s]
        cdf[s] = total
    if not total > 0:  # masked as a whole, or NaN
        target[at : at + n_keys] = total
    elif n_draws * KEYS_PER_DRAW <= n_keys:
        find_keys(cdf, scaled, k, n_steps, target, at)
    else:
        count_below(cdf, scaled, guide, k, target, at)


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
    n_groups, n_rows, n_heads, n_queries, n_keys = probs.shape
    # flat, since a view of each row would be counted in and out
    source, target = probs.reshape(-1), weights.reshape(-1)
    # two infinities stay behind the last uniform, where every count ends
    scaled = np.full((n_tile, uniforms.shape[-1] + 2), np.inf)
    guide = np.empty((n_tile, n_steps + 1), np.int32)
    cdf = np.empty(n_keys)
    for g in range(n_groups):
        for h in range(n_heads):
            for start in range(0, n_queries, n_tile):
                stop = min(start + n_tile, n_queries)
                for t in range(start, stop):
                    fill_guide(uniforms, g, t, h, scaled, guide, t - start)
                for n in range(first, last):
                    for t in range(start, stop):
                        row = ((g * n_rows + n) * n_heads + h) * n_queries + t
                        at = row * n_keys
                        draw_row(source, at, cdf, scaled, guide, t - start, target)
