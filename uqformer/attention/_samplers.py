"""Three ways to redraw a row of probabilities, alike in mean and covariance."""

import math
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Literal, Protocol, TypeAlias, get_args

import torch
from torch import Tensor

from uqformer._random import torch_generator
from uqformer.attention._draws import (
    check_n_draws,
    check_probs,
    draw_weights,
    sorted_uniforms,
)

__all__ = [
    "MemberDraws",
    "Sampler",
    "SamplerName",
    "dirichlet_weights",
    "gaussian_weights",
    "make_sampler",
]

SamplerName: TypeAlias = Literal["multinomial", "dirichlet", "gaussian"]

N_PROPOSALS = 6
"""Proposals for a gamma variate. Each is refused in less than 1 of 20 cases, so that
the last stands in for a better one in less than 2 of 100 million."""

BYTES_KEPT = 2**26
"""Noise kept from one batch for the next ones."""


def dirichlet_weights(
    probs: Tensor, n_draws: float, generator: torch.Generator
) -> Tensor:
    r"""Redraw attention weights from a Dirichlet distribution about them.

    Its mean and covariance are those of `multinomial_weights`, but `n_draws` need not
    be whole and weights are not in steps of ``1 / n_draws``.

    Parameters
    ----------
    probs : Tensor of shape (N, H, T, S)
        Probabilities of `S` keys for `T` queries, `H` heads and `N` samples.

    n_draws : float
        Concentration, above 1. The variance of a weight is ``p * (1 - p) / n_draws``.

    generator : torch.Generator
        A CPU generator; it is advanced. Samples share its variates, heads and queries
        have their own.

    Returns
    -------
    weights : Tensor of shape (N, H, T, S)
        Positive where `probs` are, summing to 1. A row of zeros stays zero.

    Raises
    ------
    ValueError
        If `n_draws` is not above 1, or `probs` is not a floating tensor with four
        dimensions.
    TypeError
        If `n_draws` is not a number.

    See Also
    --------
    multinomial_weights : The draw of the method itself.
    gaussian_weights : One that is differentiable in `n_draws`.

    Notes
    -----
    With :math:`\alpha = (\nu - 1) p` the variances are :math:`p (1 - p) / (\alpha_0 +
    1) = p (1 - p) / \nu`. Gamma variates of small shape underflow, so they are made of
    shape :math:`\alpha + 1` by the method of [1]_ and brought down by :math:`U^{1 /
    \alpha}`, in logarithms throughout. A refused proposal gives way to the next of six.

    References
    ----------
    .. [1] G. Marsaglia and W. W. Tsang (2000), "A simple method for generating gamma
       variables", ACM Transactions on Mathematical Software 26(3), 363-372.

    Examples
    --------
    >>> import torch
    >>> from uqformer.attention import dirichlet_weights
    >>> probs = torch.tensor([0.5, 0.3, 0.2, 0.0]).reshape(1, 1, 1, 4)
    >>> weights = dirichlet_weights(probs, 7.5, torch.Generator().manual_seed(0))
    >>> round(float(weights.sum()), 5), float(weights[0, 0, 0, 3])
    (1.0, 0.0)
    """
    sampler = DirichletSampler(n_draws)
    return _draw_once(sampler, probs, generator)


def gaussian_weights(
    probs: Tensor, n_draws: float | Tensor, generator: torch.Generator
) -> Tensor:
    r"""Redraw attention weights with Gaussian noise of the multinomial's covariance.

    Weights sum to 1 but may be negative where `n_draws` is small. Gradients pass to
    `probs` and to `n_draws`, so the concentration can be learned.

    Parameters
    ----------
    probs : Tensor of shape (N, H, T, S)
        Probabilities of `S` keys for `T` queries, `H` heads and `N` samples.

    n_draws : float or Tensor of shape ()
        Concentration, above 0. The variance of a weight is ``p * (1 - p) / n_draws``.

    generator : torch.Generator
        A CPU generator; it is advanced. Samples share its variates, heads and queries
        have their own.

    Returns
    -------
    weights : Tensor of shape (N, H, T, S)
        Zero where `probs` are zero. A row of zeros stays zero.

    Raises
    ------
    ValueError
        If `n_draws` is not above 0, or `probs` is not a floating tensor with four
        dimensions.
    TypeError
        If `n_draws` is not a number.

    See Also
    --------
    multinomial_weights : The draw of the method itself.

    Notes
    -----
    For standard normal :math:`z` the weights are :math:`w = p + (\sqrt p \circ z - p\,
    (\sqrt p \cdot z)) / \sqrt\nu`, whose covariance is :math:`(diag(p) - p p^T) / \nu`
    and whose sum is :math:`\sum_j p_j`.

    Examples
    --------
    >>> import torch
    >>> from uqformer.attention import gaussian_weights
    >>> probs = torch.tensor([0.5, 0.3, 0.2, 0.0]).reshape(1, 1, 1, 4)
    >>> n_draws = torch.tensor(8.0, requires_grad=True)
    >>> weights = gaussian_weights(probs, n_draws, torch.Generator().manual_seed(0))
    >>> weights[..., 0].sum().backward()
    >>> n_draws.grad is not None
    True
    """
    sampler = GaussianSampler(n_draws)
    return _draw_once(sampler, probs, generator)


class Sampler(Protocol):
    """Makes noise that knows no probabilities, and weights of both.

    Noise starts with axes (T, H); the noise of a query and a key does not depend on how
    many follow them.
    """

    needs_keys: bool
    """Whether there is noise for each key, and not one set for all."""

    def noise(
        self, stream: Sequence[int], n_queries: int, n_heads: int, n_keys: int
    ) -> Tensor:
        """Make the noise of one call of attention of one member."""
        ...

    def weights(self, probs: Tensor, noise: Tensor) -> Tensor:
        """Redraw `probs` (M * N, H, T, S) with `noise` (M, T, H, ...)."""
        ...


class MultinomialSampler:
    """Counts of whole draws; the noise is sorted uniforms (T, H, nu)."""

    needs_keys = False

    def __init__(self, n_draws: int) -> None:
        self.n_draws = check_n_draws(n_draws)

    def noise(
        self, stream: Sequence[int], n_queries: int, n_heads: int, n_keys: int
    ) -> Tensor:
        """Draw and sort the uniforms; keys do not matter."""
        return sorted_uniforms(
            n_queries, n_heads, self.n_draws, torch_generator(*stream)
        )

    def weights(self, probs: Tensor, noise: Tensor) -> Tensor:
        """Count the draws of each key."""
        return draw_weights(probs, noise)


class GaussianSampler:
    """Normal noise with the multinomial's covariance."""

    needs_keys = True

    def __init__(self, n_draws: float | Tensor) -> None:
        self.n_draws = _check_concentration(n_draws, above=0)

    def noise(
        self, stream: Sequence[int], n_queries: int, n_heads: int, n_keys: int
    ) -> Tensor:
        """Draw normals (T, H, S, 1)."""
        return _normals(stream, n_queries, n_heads, n_keys)

    def weights(self, probs: Tensor, noise: Tensor) -> Tensor:
        """Add the noise, with what is common to a row taken out."""
        p = probs.to(torch.promote_types(probs.dtype, torch.float32))
        root = p.sqrt()
        moved = root * _like(noise[..., 0], p)  # (M * N, H, T, S)
        deviation = moved - p * moved.sum(dim=-1, keepdim=True)
        weights: Tensor = p + deviation / self.n_draws**0.5
        return weights.to(probs.dtype)


class DirichletSampler:
    """Shares of gamma variates."""

    needs_keys = True

    def __init__(self, n_draws: float) -> None:
        self.n_draws = float(_check_concentration(n_draws, above=1))

    def noise(
        self, stream: Sequence[int], n_queries: int, n_heads: int, n_keys: int
    ) -> Tensor:
        """Draw uniforms (T, H, S, 2 K + 1), enough for K proposals."""
        n_uniforms = 2 * N_PROPOSALS + 1
        return _uniforms(stream, n_queries, n_heads, n_keys, n_uniforms)

    def weights(self, probs: Tensor, noise: Tensor) -> Tensor:
        """Turn proposals into gamma variates and these into shares."""
        alpha = (self.n_draws - 1) * probs.double()  # (M * N, H, T, S)
        last = alpha.new_tensor(-math.inf)
        log_gamma = torch.where(alpha > 0, _log_gamma_variates(alpha, noise), last)
        weights = torch.softmax(log_gamma, dim=-1)
        # a row of zeros has nothing to share
        return torch.where(alpha.amax(-1, keepdim=True) > 0, weights, alpha).to(
            probs.dtype
        )


_SAMPLERS = {
    "multinomial": MultinomialSampler,
    "dirichlet": DirichletSampler,
    "gaussian": GaussianSampler,
}


def make_sampler(name: SamplerName, n_draws: float) -> Sampler:
    """Build a sampler by its name."""
    if name not in get_args(SamplerName):
        raise ValueError(
            f"sampler must be one of {list(get_args(SamplerName))}; got "
            f"sampler={name!r}."
        )
    sampler: Sampler = _SAMPLERS[name](n_draws)  # type: ignore[arg-type,assignment]
    return sampler


class MemberDraws:
    """Redraws the attention of members, and keeps their noise for the next batch.

    What is drawn depends on the member's seed and on how many attention calls came
    before, redrawn or not, so it is the same whichever other modules are redrawn.
    """

    def __init__(self, samplers: Mapping[str, Sampler]) -> None:
        self._samplers = samplers
        self._kept: dict[tuple[int | str, ...], Tensor] = {}
        self._n_bytes = 0

    def draw(
        self, seeds: Sequence[int], name: str, n_before: int, probs: Tensor
    ) -> Tensor:
        """Redraw `probs` (M * N, H, T, S) of a module, where each seed has N rows."""
        sampler, size = self._samplers[name], tuple(probs.shape[1:])
        noise = [self._noise(sampler, seed, name, n_before, size) for seed in seeds]
        stacked = noise[0][None] if len(noise) == 1 else torch.stack(noise)
        return sampler.weights(probs, stacked)  # (M * N, H, T, S)

    def _noise(
        self,
        sampler: Sampler,
        seed: int,
        name: str,
        n_before: int,
        size: tuple[int, ...],
    ) -> Tensor:
        n_heads, n_queries, n_keys = size
        key = (seed, name, n_before, n_heads, n_keys * sampler.needs_keys)
        noise = self._kept.get(key)
        if noise is None or len(noise) < n_queries:
            noise = sampler.noise((seed, n_before), n_queries, n_heads, n_keys)
            self._keep(key, noise)
        return noise[:n_queries]

    def _keep(self, key: tuple[int | str, ...], noise: Tensor) -> None:
        replaced = self._kept.get(key)
        n_bytes = noise.nbytes - (0 if replaced is None else replaced.nbytes)
        if self._n_bytes + n_bytes <= BYTES_KEPT:
            self._kept[key] = noise
            self._n_bytes += n_bytes


def _draw_once(sampler: Sampler, probs: Tensor, generator: torch.Generator) -> Tensor:
    check_probs(probs)
    # the noise has a generator for each query, all of them begun from this one
    seed = torch.randint(2**62, (), generator=generator, device="cpu")
    _, n_heads, n_queries, n_keys = probs.shape
    noise = sampler.noise([int(seed)], n_queries, n_heads, n_keys)
    return sampler.weights(probs, noise[None])


def _uniforms(
    stream: Sequence[int], n_queries: int, n_heads: int, n_keys: int, n_each: int
) -> Tensor:
    """Draw float64 uniforms (T, H, S, n_each) inside (0, 1).

    Each query has a generator of its own, filled key by key, so that neither more
    queries nor more keys change what is there.
    """
    shape = (n_keys, n_heads, n_each)
    drawn = [
        torch.rand(
            shape,
            generator=torch_generator(*stream, query),
            dtype=torch.float64,
            device="cpu",
        )
        for query in range(n_queries)
    ]
    uniforms = torch.stack(drawn).transpose(1, 2)  # (T, H, S, n_each)
    return uniforms.clamp_min(2.0**-54)


def _normals(
    stream: Sequence[int], n_queries: int, n_heads: int, n_keys: int
) -> Tensor:
    uniforms = _uniforms(stream, n_queries, n_heads, n_keys, 1)
    normals: Tensor = torch.special.ndtri(uniforms)
    return normals  # (T, H, S, 1)


def _log_gamma_variates(alpha: Tensor, noise: Tensor) -> Tensor:
    """Logarithms of gamma variates of shapes `alpha` (M * N, H, T, S), nan for 0."""
    at_least_third = alpha + (1 - 1 / 3)  # d of the shape alpha + 1
    scale = (9 * at_least_third) ** -0.5
    uniforms = _like(noise, alpha)  # (M * N, H, T, S, 2 K + 1)
    log_cube = torch.zeros_like(alpha)
    accepted = torch.zeros_like(alpha, dtype=torch.bool)
    for k in range(N_PROPOSALS):
        z = torch.special.ndtri(uniforms[..., 2 * k])
        root = 1 + scale * z
        log_new = 3 * root.clamp_min(torch.finfo(root.dtype).tiny).log()
        bound = 0.5 * z**2 + at_least_third * (1 - log_new.exp() + log_new)
        passes = (root > 0) & (uniforms[..., 2 * k + 1].log() < bound)
        log_cube = torch.where(accepted, log_cube, log_new)
        accepted = accepted | passes
    return at_least_third.log() + log_cube + uniforms[..., -1].log() / alpha


def _like(noise: Tensor, probs: Tensor) -> Tensor:
    """Lay out noise (M, T, H, ...) like probabilities (M * N, H, T, ...)."""
    n_members = len(noise)
    by_head = noise.to(probs.device, probs.dtype).transpose(1, 2)  # (M, H, T, ...)
    n_rows = len(probs) // n_members
    shape = (n_members, n_rows, *by_head.shape[1:])
    return by_head[:, None].expand(shape).flatten(0, 1)  # (M * N, H, T, ...)


def _check_concentration(value: float | Tensor, *, above: int) -> float | Tensor:
    if isinstance(value, bool) or not isinstance(value, Real | Tensor):
        raise TypeError(f"n_draws must be a number; got n_draws={value!r}.")
    number = value.item() if isinstance(value, Tensor) else float(value)
    if not above < number < math.inf:
        raise ValueError(
            f"n_draws must be finite and above {above} for this sampler; got "
            f"n_draws={number:g}."
        )
    return value if isinstance(value, Tensor) else float(value)
