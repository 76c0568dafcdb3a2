"""Teach a student: the loop over epochs, cached teacher steps, early stopping."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from tqdm.auto import tqdm

from uqformer._random import derive_seed, member_seeds, seeded, torch_generator
from uqformer.director._blocks import Inputs
from uqformer.director._losses import CLASSIFICATION, Loss, Task, distillation_loss
from uqformer.director._progress import Progress
from uqformer.director._student import Student, take_rows
from uqformer.director._teacher import Teacher, TeacherSteps

__all__ = ["DistillationRecipe", "distil"]

WARMUP_SHARE = 0.1
"""Share of all steps over which the learning rate rises to its full value."""

GRADIENT_NORM = 1.0
"""Gradients longer than this are shortened to it."""

VALIDATION_CHAINS = 4
"""Chains that are averaged when the student is judged."""


@dataclass(frozen=True, slots=True)
class DistillationRecipe:
    """The numbers of a distillation, named as in the estimators.

    Parameters
    ----------
    max_epochs : int, default=25
        Passes over the training rows; of all numbers here this one and
        `performance_weight` matter most.

    learning_rate : float, default=1e-3
        Of AdamW, after a warm-up over the first tenth of all steps.

    weight_decay : float, default=1e-5
        Of AdamW.

    batch_size : int, default=64
        Rows in a step.

    n_iter_no_change : int, default=10
        Epochs without a better validation loss before training stops.

    loss : {"kl", "mse"}, default="kl"
        See `distillation_loss`.

    matching_weight : float, default=1.0
        See `distillation_loss`.

    performance_weight : float, default=10.0
        See `distillation_loss`.

    spread_weight : float, default=0.0
        See `distillation_loss`.

    max_cache_bytes : int, default=2**30
        Teacher steps are computed once if they fit into so much memory; else for every
        batch anew, which also renews their noise.

    mixed_precision : bool, default=False
        Whether the student's large products are taken in bfloat16 while it is trained.
        Losses, weights and validation stay as they are. On a CPU that knows the type
        it is faster for wide tokens (384: two thirds of the time) and slower for
        narrow ones (64: more than twice the time).

    See Also
    --------
    distil : Follows it.

    Examples
    --------
    >>> from uqformer.director import DistillationRecipe
    >>> DistillationRecipe(max_epochs=5).max_epochs
    5
    """

    max_epochs: int = 25
    learning_rate: float = 1e-3
    weight_decay: float = 1e-5
    batch_size: int = 64
    n_iter_no_change: int = 10
    loss: Loss = "kl"
    matching_weight: float = 1.0
    performance_weight: float = 10.0
    spread_weight: float = 0.0
    max_cache_bytes: int = 2**30
    mixed_precision: bool = False


def distil(
    student: Student,
    teacher: Teacher,
    train: tuple[Inputs, Tensor],
    valid: tuple[Inputs, Tensor],
    recipe: DistillationRecipe | None = None,
    *,
    seed: int,
    task: Task = CLASSIFICATION,
    resume: dict[str, Any] | None = None,
    on_epoch_end: Callable[[dict[str, Any]], None] | None = None,
    verbose: int = 0,
) -> list[dict[str, float]]:
    """Train a student in place, and leave its best averaged weights in it.

    Parameters
    ----------
    student : Student
        What is trained; left in evaluation mode.

    teacher : Teacher
        The frozen model; it is not changed.

    train, valid : (x, y)
        Rows to learn from, and rows that say when to stop. `x` is a Tensor or a dict of
        Tensors with one entry a row, `y` as `task` takes it.

    recipe : DistillationRecipe, default=None
        The numbers; None takes the defaults.

    seed : int
        Of noise, dropout and the order of rows. Global generators are given back.

    task : Task, default=CLASSIFICATION
        How predictions are judged.

    resume : dict, default=None
        What `on_epoch_end` was given at the end of some epoch, to go on from there.

    on_epoch_end : callable, default=None
        Called with a plain dict of tensors and numbers that `resume` takes; save it to
        be able to go on later.

    verbose : int, default=0
        Above 0 a progress bar over epochs is shown.

    Returns
    -------
    history : list of dict
        ``epoch``, ``matching_loss``, ``prediction_loss`` and ``valid_loss``, one entry
        an epoch. The last is the loss of four averaged chains.

    Raises
    ------
    FloatingPointError
        If a loss stops being finite.
    ValueError
        If `distillation_loss` would refuse the recipe.

    See Also
    --------
    distillation_loss : What is minimised.

    Notes
    -----
    AdamW with a linear warm-up, clipped gradients, an exponential average of the
    weights, and early stopping on the validation loss of that average. The loop is its
    own and not skorch's, because one step needs the teacher's steps, the student's
    transition and the student as a whole, where skorch knows a module and a target.

    On Ctrl-C the student is left with its best weights so far, and the interruption is
    passed on.

    Examples
    --------
    >>> import torch
    >>> from uqformer.director import (
    ...     REGRESSION, DistillationRecipe, Student, Teacher, TransitionDiT, distil
    ... )
    >>> layer = torch.nn.TransformerEncoderLayer(8, 2, batch_first=True)
    >>> model = torch.nn.TransformerEncoder(layer, num_layers=2).eval()
    >>> x = torch.linspace(-1, 1, 240).reshape(6, 5, 8)
    >>> teacher = Teacher(model, x)
    >>> student = Student(teacher, TransitionDiT(8, n_steps=2, n_heads=2))
    >>> recipe = DistillationRecipe(max_epochs=2)
    >>> history = distil(
    ...     student, teacher, (x, x), (x, x), recipe, seed=0, task=REGRESSION
    ... )
    >>> [entry["epoch"] for entry in history]
    [1, 2]
    """
    run = _Distillation(
        student, teacher, train, recipe or DistillationRecipe(), seed, task
    )
    if resume is not None:
        run.progress.load_state_dict(resume)
    bar = tqdm(
        total=run.recipe.max_epochs,
        initial=len(run.progress.history),
        desc="distil",
        unit="epoch",
        disable=verbose == 0,
    )
    try:
        while not run.is_done():
            run.epoch(valid)
            bar.update()
            if on_epoch_end is not None:
                on_epoch_end(run.progress.state_dict())
    finally:
        bar.close()
        run.progress.leave_best()
        student.eval()
    return run.progress.history


class _Distillation:
    """One distillation: the student, its optimiser, and the teacher's steps."""

    def __init__(
        self,
        student: Student,
        teacher: Teacher,
        train: tuple[Inputs, Tensor],
        recipe: DistillationRecipe,
        seed: int,
        task: Task,
    ) -> None:
        self.student = student
        self.teacher = teacher
        self.recipe = recipe
        self.task = task
        self.seed = seed
        self.x, self.y = train
        self.trained = student.trained()
        self.optimizer = torch.optim.AdamW(
            self.trained.values(),
            lr=recipe.learning_rate,
            weight_decay=recipe.weight_decay,
            fused=self.y.device.type in ("cpu", "cuda"),
        )
        self.progress = Progress(self.trained, self.optimizer)
        self.cache = self._cache()

    def is_done(self) -> bool:
        """Tell whether epochs or patience have run out."""
        return (
            len(self.progress.history) >= self.recipe.max_epochs
            or self.progress.misses >= self.recipe.n_iter_no_change
        )

    def epoch(self, valid: tuple[Inputs, Tensor]) -> None:
        """Train for one epoch and judge the average."""
        number = len(self.progress.history) + 1
        # all chance of an epoch hangs on its number, so that a resumed run is the same
        generator = torch_generator(self.seed, number)
        order = torch.randperm(len(self.y), generator=generator)
        batches = order.tensor_split(self._n_batches())
        total = torch.zeros(2)
        self.student.train()
        with seeded(derive_seed(self.seed, f"dropout {number}")):
            for rows in batches:
                total += self._step(rows, generator).cpu() * len(rows)
        self.student.eval()
        with self.progress.averaged():
            valid_loss = self._judge(*valid)
        matching, prediction = (total / len(order)).tolist()
        if not math.isfinite(matching + prediction + valid_loss):
            raise FloatingPointError(
                f"Distillation diverged in epoch {number}: matching_loss={matching}, "
                f"prediction_loss={prediction}, valid_loss={valid_loss} with "
                f"learning_rate={self.recipe.learning_rate}. Try a smaller one."
            )
        self.progress.remember(
            {
                "epoch": number,
                "matching_loss": matching,
                "prediction_loss": prediction,
                "valid_loss": valid_loss,
            }
        )

    def _n_batches(self) -> int:
        return -(-len(self.y) // self.recipe.batch_size)

    def _step(self, rows: Tensor, generator: torch.Generator) -> Tensor:
        recipe = self.recipe
        steps = self._teacher_steps(rows, generator)
        with self._precision():
            total, parts = distillation_loss(
                self.student,
                steps,
                take_rows(self.x, rows),
                self.y[rows],
                generator=generator,
                task=self.task,
                loss=recipe.loss,
                matching_weight=recipe.matching_weight,
                performance_weight=recipe.performance_weight,
                spread_weight=recipe.spread_weight,
            )
        self.optimizer.zero_grad()
        parameters = list(self.trained.values())
        # a frozen head is the guest's own, and must not gather gradients
        total.backward(inputs=parameters)
        nn.utils.clip_grad_norm_(parameters, GRADIENT_NORM)
        n_warmup = WARMUP_SHARE * recipe.max_epochs * self._n_batches()
        share = min(1.0, (self.progress.n_updates + 1) / max(1.0, n_warmup))
        for group in self.optimizer.param_groups:
            group["lr"] = share * recipe.learning_rate
        self.optimizer.step()
        self.progress.update()
        return parts

    def _precision(self) -> torch.autocast:
        return torch.autocast(
            self.y.device.type,
            dtype=torch.bfloat16,
            enabled=self.recipe.mixed_precision,
        )

    def _teacher_steps(self, rows: Tensor, generator: torch.Generator) -> TeacherSteps:
        if self.cache is not None:
            return self.cache[rows]
        return self._sample(rows, generator)

    def _sample(self, rows: Tensor, generator: torch.Generator) -> TeacherSteps:
        chain = self.teacher.record(take_rows(self.x, rows))
        return self.teacher.sample(chain, generator)

    def _cache(self) -> TeacherSteps | None:
        """Compute all teacher steps, if they fit into the memory allowed."""
        generator = torch_generator(derive_seed(self.seed, "teacher"))
        batches = torch.arange(len(self.y)).split(self.recipe.batch_size)
        first = self._sample(batches[0], generator)
        one_row = 3 * first.states[0].numel() * first.states.element_size()
        if one_row * len(self.y) > self.recipe.max_cache_bytes:
            return None
        rest = [self._sample(rows, generator) for rows in batches[1:]]
        return TeacherSteps.joined([first, *rest])

    def _judge(self, x: Inputs, y: Tensor) -> float:
        seeds = member_seeds(derive_seed(self.seed, "validation"), VALIDATION_CHAINS)
        total = 0.0
        with torch.no_grad():
            for rows in torch.arange(len(y)).split(self.recipe.batch_size):
                outputs = self.student.members(take_rows(x, rows), seeds)
                loss = self.task.loss(self.task.average(outputs), y[rows])
                total += len(rows) * float(loss)
        return total / len(y)
