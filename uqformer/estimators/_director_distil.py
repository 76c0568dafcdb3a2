"""From a trained backbone to a student: which variance, which size, which weight."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Literal, TypeAlias

from torch import Tensor, nn

from uqformer._random import derive_seed, seeded
from uqformer._training import Inputs
from uqformer.director import (
    DistillationRecipe,
    KernelEigenVariance,
    RedrawVariance,
    SparseGPVariance,
    Student,
    Task,
    Teacher,
    choose_n_draws,
    distil,
    fit_variance,
    transition_for,
)
from uqformer.director._student import take_rows

__all__ = ["Distillation", "Findings", "LossName", "PairOfRows", "VarianceName"]

VarianceName: TypeAlias = Literal["attention", "sgpa", "kep"]
LossName: TypeAlias = Literal["kl", "mse"]
PairOfRows: TypeAlias = tuple[Inputs, Tensor]
"""Inputs, and targets as a task takes them."""

CUT_ROWS = 4
"""Rows on which the backbone is cut into steps; their number changes nothing."""

CHOICE_ROWS = 512
"""Validation rows that choose the number of draws at most."""

CHOICE_CHAINS = 5
"""Chains of the teacher that are averaged for it; each asks every head by itself."""

INDUCING_ROWS = 256
"""Rows from whose queries the first inducing keys are taken."""

WEIGHTS: dict[LossName, tuple[float, ...]] = {
    "kl": (1.0, 10.0, 100.0),
    "mse": (0.1, 1.0, 10.0),
}
"""Weights of the prediction's loss that are tried, by what they stand against."""

SHORT_SHARE = 0.2
"""Share of the epochs after which a weight is judged."""


@dataclass(frozen=True, slots=True)
class Findings:
    """What a distillation found and did.

    Parameters
    ----------
    n_draws : int or None
        Draws behind the teacher's variance; None where there are none.
    performance_weight : float
        Weight of the prediction's loss.
    trials : dict of float to float
        Validation loss after a few epochs for each weight tried; empty for a given one.
    history : list of dict
        Losses by epoch.
    seconds : dict of str to float
        By stage.
    """

    n_draws: int | None
    performance_weight: float
    trials: dict[float, float]
    history: list[dict[str, float]]
    seconds: dict[str, float]


@dataclass(frozen=True, slots=True)
class Distillation:
    """How a backbone is distilled.

    Parameters
    ----------
    variance : {"attention", "sgpa", "kep"}
        Where the teacher's variance comes from.
    n_draws : int or "auto"
        Draws behind "attention".
    loss : {"kl", "mse"}
        What matching the teacher means.
    performance_weight : float or "auto"
        Weight of the prediction's loss.
    student_share : float
        Parameters of the transition as a share of those of the blocks it replaces.
    dropout : float
        Of the transition.
    is_frozen : bool
        Whether embedding and head stay the teacher's.
    recipe : DistillationRecipe
        Epochs and learning rate.
    seed : int
        Behind all chance.
    n_kept_blocks : int, default=0
        Blocks in front that stay as they are.
    verbose : int, default=0
        Above 0 a progress bar over epochs is shown.
    """

    variance: VarianceName
    n_draws: int | Literal["auto"]
    loss: LossName
    performance_weight: float | Literal["auto"]
    student_share: float
    dropout: float
    is_frozen: bool
    recipe: DistillationRecipe
    seed: int
    n_kept_blocks: int = 0
    verbose: int = 0

    def run(
        self,
        backbone: nn.Module,
        train: PairOfRows,
        valid: PairOfRows,
        task: Task,
        choice: Task,
    ) -> tuple[Student, Findings]:
        """Distil `backbone`, in eval mode; `choice` judges numbers of draws."""
        seconds: dict[str, float] = {}
        with _timed(seconds, "variance"):
            few = take_rows(train[0], slice(0, CUT_ROWS))
            teacher = Teacher(backbone, few, n_kept_blocks=self.n_kept_blocks)
            n_draws = self._give_variance(teacher, train, valid, task, choice)
        trials: dict[float, float] = {}
        if self.performance_weight == "auto":
            with _timed(seconds, "weight"):
                trials = self._try_weights(teacher, train, valid, task)
            weight = min(trials, key=lambda tried: trials[tried])
        else:
            weight = float(self.performance_weight)
        with _timed(seconds, "distillation"):
            student, history = self._distil(
                teacher, train, valid, task, weight, self.recipe
            )
        return student, Findings(n_draws, weight, trials, history, seconds)

    def _give_variance(
        self,
        teacher: Teacher,
        train: PairOfRows,
        valid: PairOfRows,
        task: Task,
        choice: Task,
    ) -> int | None:
        """Choose or fit the teacher's variance; return its number of draws."""
        seed = derive_seed(self.seed, "variance")
        if self.variance == "attention":
            n_draws = self.n_draws
            if n_draws == "auto":
                first = slice(0, CHOICE_ROWS)
                n_draws = choose_n_draws(
                    teacher,
                    take_rows(valid[0], first),
                    valid[1][first],
                    seed=seed,
                    task=choice,
                    n_chains=CHOICE_CHAINS,
                )
            teacher.variance = RedrawVariance(n_draws)
            return n_draws
        some = take_rows(train[0], slice(0, INDUCING_ROWS))
        fitted: SparseGPVariance | KernelEigenVariance
        if self.variance == "sgpa":
            fitted = SparseGPVariance(teacher, some)
        else:
            fitted = KernelEigenVariance(teacher, some, seed=seed)
        teacher.variance = fitted
        fit_variance(teacher, *train, seed=seed, task=task)
        return None

    def _try_weights(
        self, teacher: Teacher, train: PairOfRows, valid: PairOfRows, task: Task
    ) -> dict[float, float]:
        """Return the least validation loss of each weight after few epochs."""
        n_epochs = max(1, round(SHORT_SHARE * self.recipe.max_epochs))
        short = replace(self.recipe, max_epochs=n_epochs)
        losses = {}
        for weight in WEIGHTS[self.loss]:
            _, history = self._distil(teacher, train, valid, task, weight, short)
            losses[weight] = min(epoch["valid_loss"] for epoch in history)
        return losses

    def _distil(
        self,
        teacher: Teacher,
        train: PairOfRows,
        valid: PairOfRows,
        task: Task,
        performance_weight: float,
        recipe: DistillationRecipe,
    ) -> tuple[Student, list[dict[str, float]]]:
        student = self.untrained(teacher, train)
        history = distil(
            student,
            teacher,
            train,
            valid,
            replace(recipe, loss=self.loss, performance_weight=performance_weight),
            seed=derive_seed(self.seed, "distillation"),
            task=task,
            verbose=self.verbose,
        )
        return student, history

    def untrained(self, teacher: Teacher, train: PairOfRows) -> Student:
        """Build a student of the size asked for."""
        n_replaced = sum(
            parameter.numel()
            for block in teacher.blocks
            for parameter in block.parameters()
        )
        few = take_rows(train[0], slice(0, CUT_ROWS))
        width = teacher.record(few).states[0].shape[-1]
        n_params = round(self.student_share * n_replaced)
        try:
            with seeded(derive_seed(self.seed, "transition")):
                transition = transition_for(
                    width, teacher.n_steps, n_params=n_params, dropout=self.dropout
                )
        except ValueError as error:
            raise ValueError(
                f"student_share must leave a transition enough of the {n_replaced} "
                f"parameters of the blocks; got student_share={self.student_share}, "
                "which is too little for the smallest one. Raise it."
            ) from error
        return Student(teacher, transition.to(train[1].device), freeze=self.is_frozen)


@contextmanager
def _timed(seconds: dict[str, float], stage: str) -> Iterator[None]:
    start = perf_counter()
    yield
    seconds[stage] = perf_counter() - start
