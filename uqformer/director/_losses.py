"""What a student is trained for: to match the teacher's steps, and to predict well."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from uqformer.director._blocks import Inputs
from uqformer.director._shared import added_divergence
from uqformer.director._student import Student
from uqformer.director._teacher import TeacherSteps

__all__ = [
    "CLASSIFICATION",
    "REGRESSION",
    "Loss",
    "Task",
    "distillation_loss",
    "gaussian_kl",
    "independent_noise",
    "matching_loss",
]

Loss = Literal["kl", "mse"]


def gaussian_kl(
    mean: Tensor, variance: Tensor, other_mean: Tensor, other_log_variance: Tensor
) -> Tensor:
    r"""Return the Kullback-Leibler divergence between normal distributions.

    Parameters
    ----------
    mean, variance : Tensor of shape (...)
        Of the distribution that is to be matched; variances above 0.

    other_mean, other_log_variance : Tensor of shape (...)
        Of the distribution that matches it, the variance as its logarithm.

    Returns
    -------
    divergence : Tensor of shape (...)
        Number by number, in nats; 0 where both are equal.

    See Also
    --------
    distillation_loss : Uses its mean.

    Notes
    -----
    .. math:: \tfrac12 \left( \ln\frac{\sigma^2}{s^2}
              + \frac{s^2 + (m - \mu)^2}{\sigma^2} - 1 \right)

    for :math:`N(m, s^2)` matched by :math:`N(\mu, \sigma^2)` [1]_. It is least
    where :math:`\sigma^2 = s^2 + E(m - \mu)^2`: what the student gets wrong widens it.

    References
    ----------
    .. [1] S. Kullback and R. A. Leibler (1951), "On Information and Sufficiency",
       Annals of Mathematical Statistics 22.

    Examples
    --------
    >>> import torch
    >>> from uqformer.director import gaussian_kl
    >>> zero, one = torch.tensor(0.0), torch.tensor(1.0)
    >>> gaussian_kl(zero, one, zero, zero), gaussian_kl(one, one, zero, zero)
    (tensor(0.), tensor(0.5000))
    """
    log_ratio = other_log_variance - variance.log()
    distance = variance + (mean - other_mean) ** 2
    return 0.5 * (log_ratio + distance * (-other_log_variance).exp() - 1)


@dataclass(frozen=True, slots=True)
class Task:
    """What predictions are for: how they are judged, and how chains are averaged.

    Parameters
    ----------
    loss : callable
        From outputs (N, ...) and targets (N, ...) to their mean loss.

    average : callable
        From the outputs of all chains (M, N, ...) to one output (N, ...).

    See Also
    --------
    distil : Takes one of them.

    Examples
    --------
    >>> import torch
    >>> from uqformer.director import CLASSIFICATION
    >>> logits = torch.tensor([[[0.0, 2.0]], [[0.0, -2.0]]])
    >>> CLASSIFICATION.average(logits).exp()
    tensor([[0.5000, 0.5000]])
    """

    loss: Callable[[Tensor, Tensor], Tensor]
    average: Callable[[Tensor], Tensor]


def _mean_log_proba(outputs: Tensor) -> Tensor:
    """Average the probabilities of chains (M, N, C), and return their logarithm."""
    log_proba = outputs.log_softmax(dim=-1)
    return log_proba.logsumexp(dim=0) - math.log(len(outputs))


def _mean_output(outputs: Tensor) -> Tensor:
    return outputs.mean(dim=0)


CLASSIFICATION = Task(F.cross_entropy, _mean_log_proba)
"""Cross-entropy of logits (N, C); chains average their probabilities."""

REGRESSION = Task(F.mse_loss, _mean_output)
"""Squared error of outputs (N, C); chains average their outputs."""


def matching_loss(
    transition: nn.Module,
    steps: TeacherSteps,
    loss: Loss,
    spread_weight: float = 0.0,
    picked: Tensor | None = None,
) -> Tensor:
    """Compare a transition with the teacher's steps, from where the teacher stood.

    `picked` (N, K) are the steps of each row that are compared, from 0; None is all.
    """
    n_rows, n_steps, n_tokens, _ = steps.states.shape
    device = steps.states.device
    if picked is None:
        picked = torch.arange(n_steps).expand(n_rows, n_steps)  # (N, K)
    picked = picked.to(device)
    n_picked = picked.shape[1]
    rows = torch.arange(n_rows, device=device)[:, None]

    def taken(each: Tensor) -> Tensor:
        chosen: Tensor = each[rows, picked].flatten(0, 1)  # (N * K, T, D)
        return chosen

    times = (n_steps - picked).flatten() / n_steps  # (N * K,)
    visible = steps.visible
    if visible is not None:
        visible = visible.repeat_interleave(n_picked, dim=0)  # (N * K, 1, T or 1, T)
    mean, log_variance, *factors = transition(taken(steps.states), times, visible)
    target, variance = taken(steps.means), taken(steps.variances)
    if loss == "kl":
        each = gaussian_kl(target, variance, mean, log_variance)
    else:
        spread = (0.5 * log_variance).exp()
        each = (mean - target) ** 2 + spread_weight * (spread - variance.sqrt()) ** 2
    # padding is nobody's to match
    by_token = each.mean(dim=-1).unflatten(0, (n_rows, n_picked))  # (N, K, T)
    real = steps.real[:, None].expand(n_rows, n_picked, n_tokens)
    loss_value: Tensor = by_token[real].mean()
    if loss == "kl" and factors:
        seen = real.flatten(0, 1)[..., None, None]  # (N * K, T, 1, 1)
        with torch.autocast(device.type, enabled=False):  # no roots of short numbers
            shared = added_divergence(
                variance, target - mean, log_variance, factors[0] * seen
            )
        loss_value = loss_value + shared.mean(dim=-1).sum() / real.sum()
    return loss_value


def distillation_loss(
    student: Student,
    steps: TeacherSteps,
    x: Inputs,
    y: Tensor,
    *,
    generator: torch.Generator,
    task: Task = CLASSIFICATION,
    loss: Loss = "kl",
    matching_weight: float = 1.0,
    performance_weight: float = 1.0,
    spread_weight: float = 0.0,
) -> tuple[Tensor, Tensor]:
    r"""Return the two losses of a distillation: to match the teacher, and to predict.

    Parameters
    ----------
    student : Student
        What is trained.

    steps : TeacherSteps
        What the teacher did with `x`.

    x : Tensor or dict of str to Tensor
        A batch of N rows.

    y : Tensor of shape (N, ...)
        Targets, as `task` takes them.

    generator : torch.Generator
        A CPU generator for the step of each row that is matched and the noise of the
        student's own chains; it is advanced.

    task : Task, default=CLASSIFICATION
        How predictions are judged.

    loss : {"kl", "mse"}, default="kl"
        What matching means: the divergence of Gaussians, as the method is derived; or
        squared errors, as its research code computes.

    matching_weight : float, default=1.0
        Weight of the matching loss, at least 0. With 0 the student learns the task
        alone, which shows what the teacher adds.

    performance_weight : float, default=1.0
        Weight of the prediction's loss, at least 0.

    spread_weight : float, default=0.0
        Weight of the squared error of standard deviations in ``loss="mse"``.

    Returns
    -------
    total : Tensor of shape ()
        Both losses, each times its weight.

    parts : Tensor of shape (2,)
        Both losses by themselves, without gradient; 0 for one of weight 0.

    Raises
    ------
    ValueError
        If `loss` is unknown or a weight is negative.

    See Also
    --------
    distil : Minimises this.

    Notes
    -----
    The matching loss is a mean over steps, real tokens and widths, of steps that begin
    where the teacher's noised chain stood. It is estimated without bias from one step
    of each row, drawn at random, as diffusion models are trained; on our sets that was
    as good as all steps, and a third faster. The prediction is that of one chain of the
    student's own a row, with noise of its own, reparameterised so that gradients pass
    through every step [1]_.

    The weights of the paper were not found; see the user guide for what its research
    code does.

    References
    ----------
    .. [1] M. C. Dao et al. (2026), "Diffusion-Inspired Reconfiguration of Transformers
       for Uncertainty Calibration", arXiv 2602.08920.

    Examples
    --------
    >>> import torch
    >>> from uqformer.director import (
    ...     REGRESSION, Student, Teacher, TransitionDiT, distillation_loss
    ... )
    >>> layer = torch.nn.TransformerEncoderLayer(8, 2, batch_first=True)
    >>> model = torch.nn.TransformerEncoder(layer, num_layers=3).eval()
    >>> x = torch.linspace(-1, 1, 80).reshape(2, 5, 8)
    >>> teacher, generator = Teacher(model, x), torch.Generator().manual_seed(0)
    >>> student = Student(teacher, TransitionDiT(8, n_steps=3, n_heads=2))
    >>> steps = teacher.sample(teacher.record(x), generator)
    >>> total, parts = distillation_loss(
    ...     student, steps, x, x, generator=generator, task=REGRESSION
    ... )
    >>> torch.allclose(total, parts.sum())
    True
    """
    if loss not in ("kl", "mse"):
        raise ValueError(f"loss must be 'kl' or 'mse'; got loss={loss!r}.")
    weights = matching_weight, performance_weight, spread_weight
    if min(weights) < 0 or max(weights[:2]) == 0:
        raise ValueError(
            "matching_weight, performance_weight and spread_weight must be at least 0, "
            f"and one of the first two above it; got {weights}."
        )
    matching = prediction = steps.states.new_zeros(())
    if performance_weight > 0:
        # behind kept blocks both chains begin alike, and need not be begun again
        start = steps.states[:, 0] if student.shell.n_kept_blocks else None
        outputs = student.walked(x, independent_noise(generator), start=start)
        # under mixed precision the head's may be shorter than the states
        prediction = task.loss(outputs.to(steps.states.dtype), y)
    if matching_weight > 0:
        n_rows, n_steps = steps.states.shape[:2]
        picked = torch.randint(n_steps, (n_rows, 1), generator=generator)
        matching = matching_loss(student.transition, steps, loss, spread_weight, picked)
    total = matching_weight * matching + performance_weight * prediction
    return total, torch.stack([matching, prediction]).detach()


def independent_noise(generator: torch.Generator) -> Callable[[int, Tensor], Tensor]:
    """Make noise that each row has for itself, as training wants it."""

    def noise(step: int, like: Tensor) -> Tensor:
        return torch.randn(like.shape, generator=generator).to(like)

    return noise
