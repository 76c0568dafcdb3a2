"""Noise that the tokens of a step share, beside what each has of its own."""

import torch
from torch import Tensor

__all__ = ["added_divergence", "shared_part"]


def shared_part(factors: Tensor, noise: Tensor) -> Tensor:
    """Return what noise (N, R, D) adds to tokens through factors (N, T, D, R)."""
    return torch.einsum("ntdr,nrd->ntd", factors, noise)


def added_divergence(
    variance: Tensor, error: Tensor, log_variance: Tensor, factors: Tensor
) -> Tensor:
    r"""Return what factors change in a Kullback-Leibler divergence: (N, D).

    Parameters
    ----------
    variance : Tensor of shape (N, T, D)
        Of the normal distribution that is to be matched; its tokens are independent.
    error : Tensor of shape (N, T, D)
        Its mean less the mean of the one that matches it.
    log_variance : Tensor of shape (N, T, D)
        Of the one that matches it, as far as tokens do not share it.
    factors : Tensor of shape (N, T, D, R)
        What they share: for each width a covariance :math:`F F^\top` over tokens.

    Returns
    -------
    added : Tensor of shape (N, D)
        In nats, to be added to the sum of `gaussian_kl` over tokens.

    Notes
    -----
    With :math:`S = \mathrm{diag}(\sigma^2)`, :math:`C = I + F^\top S^{-1} F`, the
    variance :math:`V` that is matched and the error :math:`\delta`, it is

    .. math:: \tfrac12 \left( \ln\det C - \mathrm{tr}(C^{-1} F^\top S^{-1} V S^{-1} F)
              - \delta^\top S^{-1} F C^{-1} F^\top S^{-1} \delta \right)

    by Woodbury's identity and the lemma of the determinant. It costs R by R matrices
    instead of T by T ones.
    """
    precision = (-log_variance).exp()[..., None]  # (N, T, D, 1)
    weighted = precision * factors  # (N, T, D, R)
    rank = factors.shape[-1]
    inner = torch.einsum("ntdr,ntds->ndrs", factors, weighted)
    inner = inner + torch.eye(rank).to(inner)  # C: (N, D, R, R)
    root = torch.linalg.cholesky(inner)
    log_det = 2 * root.diagonal(dim1=-2, dim2=-1).log().sum(dim=-1)  # (N, D)
    matched = torch.einsum("ntdr,ntd,ntds->ndrs", weighted, variance, weighted)
    seen = torch.einsum("ntdr,ntd->ndr", weighted, error)
    square = matched + seen[..., :, None] * seen[..., None, :]  # (N, D, R, R)
    explained = torch.cholesky_solve(square, root)
    added: Tensor = 0.5 * (log_det - explained.diagonal(dim1=-2, dim2=-1).sum(dim=-1))
    return added
