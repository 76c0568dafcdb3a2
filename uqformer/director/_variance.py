"""How much one step of the teacher may vary: the redraw of its attention."""

from typing import Protocol

import torch
from torch import Tensor

from uqformer.attention._draws import check_n_draws
from uqformer.director._reading import AttentionHalf, head_readings

__all__ = ["RedrawVariance", "Variance"]


class Variance(Protocol):
    """What gives a step of the teacher its variance (N, T, D)."""

    def __call__(self, half: AttentionHalf, step: int) -> Tensor: ...


class RedrawVariance:
    r"""Variance of a step if its attention were redrawn, in closed form.

    Parameters
    ----------
    n_draws : int, default=4
        Multinomial trials per attention row, at least 1; the variance falls as one
        over it. It is the only number, and nothing is fitted.

    Raises
    ------
    ValueError
        If `n_draws` is below 1.
    TypeError
        If `n_draws` is not an integer.

    See Also
    --------
    SparseGPVariance : Variance of a Gaussian process over the attention's inputs.
    KernelEigenVariance : Variance from pairs of features of queries and keys.
    Teacher : Uses it.

    Notes
    -----
    With probabilities :math:`p_{hj}` of head h over keys j, and :math:`a_{hj}` what the
    value of key j adds to the tokens through the output projection, the redraw with
    :math:`\nu` draws gives the sum over heads a variance of

    .. math:: s^2 = \frac1\nu \sum_h \Big( \sum_j p_{hj} a_{hj}^2
                    - \big(\sum_j p_{hj} a_{hj}\big)^2 \Big)

    for each width. This is exact, since heads are drawn apart: correlations between the
    widths of one head are in it, because values are projected before they are squared
    [1]_. Correlations between widths of the sum are not: the steps are diagonal.

    That this is the variance of DIRECTOR's teacher is a reconstruction; the published
    summaries name Gaussian process attention.

    References
    ----------
    .. [1] A. Yadav, T. A. Adebiyi and R. Zhang (2026), "Calibrating Scientific
       Foundation Models with Inference-Time Stochastic Attention", arXiv 2604.19530.

    Examples
    --------
    >>> import torch
    >>> from uqformer.director import RedrawVariance, Teacher
    >>> layer = torch.nn.TransformerEncoderLayer(8, 2, batch_first=True)
    >>> model = torch.nn.TransformerEncoder(layer, num_layers=2).eval()
    >>> x = torch.linspace(-1, 1, 80).reshape(2, 5, 8)
    >>> teacher = Teacher(model, x, RedrawVariance(n_draws=8))
    >>> chain = teacher.record(x)
    >>> mean, variance = teacher.transition(chain, chain.states[0], step=1)
    >>> variance.shape, bool((variance > 0).all())
    (torch.Size([2, 5, 8]), True)
    """

    def __init__(self, n_draws: int = 4) -> None:
        self.n_draws = check_n_draws(n_draws)

    def __call__(self, half: AttentionHalf, step: int) -> Tensor:
        """Return the variance (N, T, D) of what the attention adds."""
        probs, values = head_readings(half)  # (N, H, T, S), H times (N, S, D)
        variance = torch.zeros_like(half.state)  # (N, T, D)
        for head, value in enumerate(values):
            weights = probs[:, head]  # (N, T, S)
            mean = weights @ value  # (N, T, D)
            # about a centre, since the difference of large squares would round badly
            centre = value.mean(dim=1, keepdim=True)  # (N, 1, D)
            second = weights @ (value - centre) ** 2  # (N, T, D)
            variance += second - (mean - centre) ** 2
        return variance.clamp_min(0) / self.n_draws
