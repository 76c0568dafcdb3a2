"""Fit the variance of a teacher, with everything else frozen."""

import torch
from torch import Tensor, nn

from uqformer._random import torch_generator
from uqformer.director._blocks import Inputs
from uqformer.director._gp import KernelEigenVariance, SparseGPVariance
from uqformer.director._losses import CLASSIFICATION, Task
from uqformer.director._shell import Shell
from uqformer.director._student import take_rows
from uqformer.director._teacher import Teacher
from uqformer.director._variance import RedrawVariance

__all__ = ["choose_n_draws", "fit_variance"]

CANDIDATES = tuple(2**power for power in range(9))
"""Numbers of draws that are tried, evenly spaced on a logarithmic scale."""

ROWS_PER_PASS = 256
"""Rows walked at once; bounds memory, changes nothing else."""


def choose_n_draws(
    teacher: Teacher,
    x: Inputs,
    y: Tensor,
    *,
    seed: int,
    task: Task = CLASSIFICATION,
    n_chains: int = 10,
) -> int:
    r"""Choose the one number of the redraw's variance on validation rows.

    The teacher's chain is walked with noise for each candidate, and the frozen head
    predicts from the ends. The number whose averaged predictions lose least is chosen.
    Numbers are tried upwards, until two in a row do worse than the best so far.

    Parameters
    ----------
    teacher : Teacher
        Its ``variance`` becomes a `RedrawVariance` with the number chosen.

    x : Tensor or dict of str to Tensor
        Validation rows.

    y : Tensor of shape (N, ...)
        Targets, as `task` takes them.

    seed : int
        Of the noise, which is the same for all candidates.

    task : Task, default=CLASSIFICATION
        How predictions are judged and averaged.

    n_chains : int, default=10
        Chains to average.

    Returns
    -------
    n_draws : int
        One of 1, 2, 4 ... 256.

    See Also
    --------
    RedrawVariance : Where the number goes.
    fit_variance : Fit variances that have more than one.

    Examples
    --------
    >>> import torch
    >>> from uqformer.director import REGRESSION, Teacher, choose_n_draws
    >>> _ = torch.manual_seed(0)
    >>> layer = torch.nn.TransformerEncoderLayer(8, 2, batch_first=True)
    >>> model = torch.nn.TransformerEncoder(layer, num_layers=2).eval()
    >>> x = torch.linspace(-1, 1, 240).reshape(6, 5, 8)
    >>> with torch.no_grad():
    ...     y = model(x)
    >>> choose_n_draws(Teacher(model, x), x, y, seed=0, task=REGRESSION)
    256
    """
    head = Shell(teacher.model, teacher.cuts, share=True)
    losses = {}
    for n_draws in CANDIDATES:
        teacher.variance = RedrawVariance(n_draws)
        total = 0.0
        for first in range(0, len(y), ROWS_PER_PASS):
            rows = slice(first, first + ROWS_PER_PASS)
            generators = [torch_generator(seed, m, first) for m in range(n_chains)]
            with torch.no_grad():
                outputs = torch.stack(
                    [_noised(teacher, head, take_rows(x, rows), g) for g in generators]
                )  # (M, N, ...)
                loss = task.loss(task.average(outputs), y[rows])
            total += len(y[rows]) * float(loss)
        losses[n_draws] = total
        best: int = min(losses, key=lambda tried: losses[tried])
        if n_draws > 2 * best:
            break
    teacher.variance = RedrawVariance(best)
    return best


def fit_variance(
    teacher: Teacher,
    x: Inputs,
    y: Tensor,
    *,
    seed: int,
    task: Task = CLASSIFICATION,
    max_epochs: int = 10,
    learning_rate: float = 1e-2,
    batch_size: int = 64,
) -> list[float]:
    r"""Fit the parameters of a teacher's variance by the evidence lower bound.

    The noised chain is walked once a row, and the frozen head predicts from its end.
    What is minimised is the loss of that prediction plus the divergence of the
    variance's posteriors from their priors, divided by the number of rows.

    Parameters
    ----------
    teacher : Teacher
        With a `SparseGPVariance` or `KernelEigenVariance` as its ``variance``, which is
        trained in place. The model is not changed.

    x : Tensor or dict of str to Tensor
        Training rows.

    y : Tensor of shape (N, ...)
        Targets, as `task` takes them.

    seed : int
        Of the noise and the order of rows.

    task : Task, default=CLASSIFICATION
        How predictions are judged.

    max_epochs : int, default=10
        Passes over the rows.

    learning_rate : float, default=1e-2
        Of Adam.

    batch_size : int, default=64
        Rows in a step.

    Returns
    -------
    losses : list of float
        Mean of what is minimised, one an epoch.

    Raises
    ------
    TypeError
        If the teacher's variance has nothing to fit.

    See Also
    --------
    SparseGPVariance : What is fitted.
    KernelEigenVariance : Or this.

    Examples
    --------
    >>> import torch
    >>> from uqformer.director import (
    ...     REGRESSION, SparseGPVariance, Teacher, fit_variance
    ... )
    >>> layer = torch.nn.TransformerEncoderLayer(8, 2, batch_first=True)
    >>> model = torch.nn.TransformerEncoder(layer, num_layers=2).eval()
    >>> x = torch.linspace(-1, 1, 240).reshape(6, 5, 8)
    >>> teacher = Teacher(model, x)
    >>> teacher.variance = SparseGPVariance(teacher, x, n_inducing=4)
    >>> losses = fit_variance(
    ...     teacher, x, torch.zeros(6, 5, 8), seed=0, task=REGRESSION, max_epochs=3
    ... )
    >>> len(losses)
    3
    """
    variance = teacher.variance
    if not isinstance(variance, (SparseGPVariance, KernelEigenVariance)):
        raise TypeError(
            "The teacher's variance must be a SparseGPVariance or KernelEigenVariance "
            f"to be fitted; got {type(variance).__name__}."
        )
    head = Shell(teacher.model, teacher.cuts, share=True)
    parameters = list(variance.parameters())
    optimizer = torch.optim.Adam(parameters, lr=learning_rate)
    losses = []
    for epoch in range(max_epochs):
        generator = torch_generator(seed, epoch)
        order = torch.randperm(len(y), generator=generator)
        total = 0.0
        for rows in order.split(batch_size):
            output = _noised(teacher, head, take_rows(x, rows), generator)
            loss = task.loss(output, y[rows]) + variance.divergence() / len(y)
            optimizer.zero_grad()
            # the model is a guest, and must not gather gradients
            loss.backward(inputs=parameters)
            nn.utils.clip_grad_norm_(parameters, 1.0)
            optimizer.step()
            total += len(rows) * float(loss.detach())
        losses.append(total / len(y))
    return losses


def _noised(
    teacher: Teacher, head: Shell, x: Inputs, generator: torch.Generator
) -> Tensor:
    """Predict from the end of one noised chain a row; gradients reach the variance."""
    chain = teacher.record(x)
    state = chain.states[0]
    for step in range(1, teacher.n_steps + 1):
        mean, variance = teacher.transition(chain, state, step)
        noise = torch.randn(mean.shape, generator=generator).to(mean)
        state = mean + variance.sqrt() * noise
    output: Tensor = head(x, lambda start, visible: state)
    return output
