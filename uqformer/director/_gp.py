"""Variances of Gaussian process attention, fitted around a frozen mean."""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from uqformer.director._blocks import Inputs
from uqformer.director._projections import output_map, queries_and_keys
from uqformer.director._reading import AttentionHalf
from uqformer.director._teacher import Teacher

__all__ = ["KernelEigenVariance", "SparseGPVariance"]

JITTER = 1e-4
"""Added to the diagonal of a kernel matrix, relative to its scale."""

FIRST_LOG_SCALE = -2.0
FIRST_LOG_FACTOR = -1.0


class SparseGPVariance(nn.Module):
    r"""Variance of sparse Gaussian process attention, around the frozen mean.

    Each head of each block has a Gaussian process over its queries, with inducing keys
    of its own. Only these, the kernel and the factors of the posterior are fitted.

    Parameters
    ----------
    teacher : Teacher
        The frozen model. Set ``teacher.variance`` to what is built here.

    x : Tensor or dict of str to Tensor
        A batch, to place the first inducing keys on queries that occur.

    n_inducing : int, default=16
        Inducing keys of a head.

    Raises
    ------
    ValueError
        If `n_inducing` is below 1, or the queries of a block are not known by name.

    See Also
    --------
    fit_variance : Fit it.
    RedrawVariance : Needs no fit.

    Notes
    -----
    For head h with queries q, inducing keys :math:`\beta` and an ARD kernel
    :math:`k(a, b) = s \exp(-\frac12 \sum_i (a_i - b_i)^2 / \ell_i^2)`, let :math:`C
    C^\top = K_{\beta\beta}` and :math:`u = C^{-1} k_{\beta q}`. Channel c varies by

    .. math:: k(q, q) - \|u\|^2 + \|S_c^\top u\|^2

    as in sparse Gaussian process attention [1]_, and the channels, which are
    independent, are carried through the output projection: the tokens vary by the sum
    over heads and channels of :math:`W_{hc}^2` times this.

    *A reconstruction.* In [1]_ queries and keys share one projection, the mean is the
    process's own, and everything is trained together. Here the mean stays that of the
    frozen softmax, the inputs are its queries (before any rotation by position), and
    tokens are independent given the input.

    References
    ----------
    .. [1] W. Chen and Y. Li (2023), "Calibrating Transformers via Sparse Gaussian
       Processes", arXiv 2303.02444.

    Examples
    --------
    >>> import torch
    >>> from uqformer.director import SparseGPVariance, Teacher
    >>> layer = torch.nn.TransformerEncoderLayer(8, 2, batch_first=True)
    >>> model = torch.nn.TransformerEncoder(layer, num_layers=2).eval()
    >>> x = torch.linspace(-1, 1, 80).reshape(2, 5, 8)
    >>> teacher = Teacher(model, x)
    >>> teacher.variance = SparseGPVariance(teacher, x, n_inducing=4)
    >>> chain = teacher.record(x)
    >>> _, variance = teacher.transition(chain, chain.states[0], step=1)
    >>> variance.shape
    torch.Size([2, 5, 8])
    """

    def __init__(self, teacher: Teacher, x: Inputs, n_inducing: int = 16) -> None:
        super().__init__()
        _check_positive("n_inducing", n_inducing)
        halves = _halves(teacher, x)
        self.steps = nn.ModuleList(
            _SparseGP(queries_and_keys(half)[0], output_map(half), n_inducing)
            for half in halves
        )

    def forward(self, half: AttentionHalf, step: int) -> Tensor:
        """Return the variance (N, T, D) of what the attention adds."""
        query, _ = queries_and_keys(half)
        variance: Tensor = self.steps[step - 1](query)
        return variance

    def divergence(self) -> Tensor:
        """Return the divergence of all posteriors from their priors, in nats.

        Returns
        -------
        divergence : Tensor of shape ()
            Sum over blocks, heads and channels.
        """
        return _total(self.steps)


class _SparseGP(nn.Module):
    """The process of one block."""

    def __init__(self, query: Tensor, output: Tensor, n_inducing: int) -> None:
        super().__init__()
        n_heads, width = query.shape[1], query.shape[3]
        pool = query.transpose(0, 1).flatten(1, 2)  # (H, N * T, r)
        picked = torch.linspace(0, pool.shape[1] - 1, n_inducing).long()
        # two keys in one place would make the kernel singular, so they are moved apart
        offsets = torch.linspace(-0.1, 0.1, n_inducing)[:, None].to(pool)
        spread = pool.std(dim=1, correction=0).clamp_min(1e-3)  # (H, r)
        keys = pool[:, picked] + offsets * spread[:, None]
        self.keys = nn.Parameter(keys.clone())  # (H, M, r)
        self.log_length = nn.Parameter((spread * math.sqrt(width)).log())  # (H, r)
        self.log_scale = nn.Parameter(spread.new_full((n_heads,), FIRST_LOG_SCALE))
        size = (n_heads, width, n_inducing, n_inducing)
        self.lower = nn.Parameter(spread.new_zeros(size))  # (H, r, M, M)
        diagonal = spread.new_full(size[:3], FIRST_LOG_FACTOR)
        self.log_diagonal = nn.Parameter(diagonal)  # (H, r, M)
        self.output: Tensor
        self.register_buffer("output", output.clone())  # (H, r, D)

    def factor(self) -> Tensor:
        """Return the lower triangular factors S (H, r, M, M)."""
        return _triangle(self.lower, self.log_diagonal)

    def kernel(self, a: Tensor, b: Tensor) -> Tensor:
        """Return the kernel (..., H, A, B) of `a` (..., H, A, r) and `b`."""
        length = self.log_length.exp()[:, None]  # (H, 1, r)
        squared = torch.cdist(a / length, b / length).square()
        return self.log_scale.exp()[:, None, None] * (-0.5 * squared).exp()

    def head_variance(self, query: Tensor) -> Tensor:
        """Return the variance of each channel (N, H, T, r)."""
        n_inducing = self.keys.shape[1]
        scale = self.log_scale.exp()[:, None, None]  # (H, 1, 1)
        eye = torch.eye(n_inducing).to(query)
        prior = self.kernel(self.keys, self.keys) + JITTER * scale * eye  # (H, M, M)
        root = torch.linalg.cholesky(prior)
        across = self.kernel(self.keys, query)  # (N, H, M, T)
        u = torch.linalg.solve_triangular(root, across, upper=False)
        explained = u.square().sum(dim=2)  # (N, H, T)
        posterior = torch.einsum("hcmk,nhmt->nhctk", self.factor(), u).square().sum(-1)
        rest = (scale[:, 0] - explained).clamp_min(0)  # (N, H, T)
        variance: Tensor = rest[..., None] + posterior.transpose(2, 3)
        return variance

    def forward(self, query: Tensor) -> Tensor:
        """Return the variance (N, T, D) for queries (N, H, T, r)."""
        variance = self.head_variance(query)
        tokens: Tensor = torch.einsum("nhtc,hcd->ntd", variance, self.output.square())
        return tokens

    def divergence(self) -> Tensor:
        """Return KL(N(0, S S') || N(0, I)), summed over heads and channels."""
        trace = self.factor().square().sum(dim=(-1, -2))  # (H, r)
        n_inducing = self.keys.shape[1]
        each = 0.5 * (trace - n_inducing) - self.log_diagonal.sum(dim=-1)
        return each.sum()


class KernelEigenVariance(nn.Module):
    r"""Variance of kernel-eigen pair attention, around the frozen mean.

    The attention kernel is not symmetric: its left and right eigenfunctions are
    features of the queries and of the keys. Each head gets a few pairs of them, a
    posterior over their weights, and a map to its channels; only these are fitted.

    Parameters
    ----------
    teacher : Teacher
        The frozen model. Set ``teacher.variance`` to what is built here.

    x : Tensor or dict of str to Tensor
        A batch, to read shapes from.

    n_pairs : int, default=8
        Pairs of eigenfunctions of a head.

    seed : int, default=0
        Of the first features.

    Raises
    ------
    ValueError
        If `n_pairs` is below 1, or the queries of a block are not known by name.

    See Also
    --------
    fit_variance : Fit it.
    RedrawVariance : Needs no fit.

    Notes
    -----
    With unit queries and keys, :math:`e = q W_e`, :math:`\rho = k W_r` and
    :math:`v = (e + \rho) \Lambda^{-1}`, output c of a head varies by
    :math:`\|S_c^\top v\|^2` [1]_. Outputs are independent, so the tokens vary by the
    sum over heads and outputs of their squared weights in the output projection times
    this. Tokens are taken as independent given the input; in theory they share noise.

    *A reconstruction.* In [1]_ these pairs give the mean too, the features are built
    from the input, and only the last block has them. The posterior's divergence from
    its prior :math:`N(0, \Lambda^2)` is computed here with the factors that are sampled
    from, which the published code does not do.

    References
    ----------
    .. [1] Y. Chen et al. (2024), "Self-Attention through Kernel-Eigen Pair Sparse
       Variational Gaussian Processes", arXiv 2402.01476.

    Examples
    --------
    >>> import torch
    >>> from uqformer.director import KernelEigenVariance, Teacher
    >>> layer = torch.nn.TransformerEncoderLayer(8, 2, batch_first=True)
    >>> model = torch.nn.TransformerEncoder(layer, num_layers=2).eval()
    >>> x = torch.linspace(-1, 1, 80).reshape(2, 5, 8)
    >>> teacher = Teacher(model, x)
    >>> teacher.variance = KernelEigenVariance(teacher, x, n_pairs=3)
    >>> chain = teacher.record(x)
    >>> _, variance = teacher.transition(chain, chain.states[0], step=1)
    >>> variance.shape
    torch.Size([2, 5, 8])
    """

    def __init__(
        self, teacher: Teacher, x: Inputs, n_pairs: int = 8, seed: int = 0
    ) -> None:
        super().__init__()
        _check_positive("n_pairs", n_pairs)
        generator = torch.Generator().manual_seed(seed)
        self.steps = nn.ModuleList(
            _EigenPairs(output_map(half), n_pairs, generator)
            for half in _halves(teacher, x)
        )

    def forward(self, half: AttentionHalf, step: int) -> Tensor:
        """Return the variance (N, T, D) of what the attention adds."""
        variance: Tensor = self.steps[step - 1](*queries_and_keys(half))
        return variance

    def divergence(self) -> Tensor:
        """Return the divergence of all posteriors from their priors, in nats.

        Returns
        -------
        divergence : Tensor of shape ()
            Sum over blocks, heads and outputs.
        """
        return _total(self.steps)


class _EigenPairs(nn.Module):
    """The pairs of one block."""

    def __init__(
        self, output: Tensor, n_pairs: int, generator: torch.Generator
    ) -> None:
        super().__init__()
        n_heads, width, _ = output.shape

        def start(*size: int) -> nn.Parameter:
            normal = torch.randn(size, generator=generator) * size[-2] ** -0.5
            return nn.Parameter(normal.to(output))

        self.left = start(n_heads, width, n_pairs)  # (H, r, P)
        self.right = start(n_heads, width, n_pairs)
        self.log_eigenvalue = nn.Parameter(output.new_zeros(n_heads, n_pairs))
        size = (n_heads, n_pairs, n_pairs, n_pairs)
        self.lower = nn.Parameter(output.new_zeros(size))  # (H, C, P, P)
        diagonal = output.new_full(size[:3], FIRST_LOG_FACTOR)
        self.log_diagonal = nn.Parameter(diagonal)  # (H, C, P)
        self.widen = start(n_heads, n_pairs, width)  # (H, C, r)
        self.output: Tensor
        self.register_buffer("output", output.clone())  # (H, r, D)

    def factor(self) -> Tensor:
        """Return the lower triangular factors S (H, C, P, P)."""
        return _triangle(self.lower, self.log_diagonal)

    def pairs(self, query: Tensor, key: Tensor) -> Tensor:
        """Return the scaled features v (N, H, T, P)."""
        left = F.normalize(query, dim=-1) @ self.left
        right = F.normalize(key, dim=-1) @ self.right
        return (left + right) * (-self.log_eigenvalue).exp()[:, None]

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        """Return the variance (N, T, D) for queries and keys (N, H, T, r)."""
        features = self.pairs(query, key)
        noisy = torch.einsum("nhtp,hcpk->nhtck", features, self.factor())
        variance = noisy.square().sum(dim=-1)  # (N, H, T, C)
        weights = (self.widen @ self.output).square()  # (H, C, D)
        tokens: Tensor = torch.einsum("nhtc,hcd->ntd", variance, weights)
        return tokens

    def divergence(self) -> Tensor:
        """Return KL(N(0, S S') || N(0, eigenvalues^2)) over heads and outputs."""
        scaled = self.factor() * (-self.log_eigenvalue).exp()[:, None, :, None]
        trace = scaled.square().sum(dim=(-1, -2))  # (H, C)
        n_pairs = self.log_eigenvalue.shape[1]
        log_ratio = self.log_eigenvalue.sum(dim=-1)[:, None] - self.log_diagonal.sum(-1)
        return (0.5 * (trace - n_pairs) + log_ratio).sum()


def _total(steps: nn.ModuleList) -> Tensor:
    divergences: list[Any] = [step.divergence for step in steps]
    return torch.stack([divergence() for divergence in divergences]).sum()


def _triangle(lower: Tensor, log_diagonal: Tensor) -> Tensor:
    return lower.tril(-1) + torch.diag_embed(log_diagonal.exp())


def _halves(teacher: Teacher, x: Inputs) -> list[AttentionHalf]:
    with torch.no_grad():
        chain = teacher.record(x)
        return [
            teacher.half(chain, chain.states[step - 1], step)
            for step in range(1, teacher.n_steps + 1)
        ]


def _check_positive(name: str, value: int) -> None:
    if value < 1:
        raise ValueError(f"{name} must be at least 1; got {name}={value}.")
