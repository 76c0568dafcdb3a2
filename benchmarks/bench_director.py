"""DIRECTOR beside its backbone, other ways to doubt it, and what it is made of.

Usage: UQFORMER_DATA=<folder> OMP_NUM_THREADS=1 python benchmarks/bench_director.py
       [--sets "digits, noise 0.5" ...] [--seeds 0 1 2]

A backbone is trained for each set and seed, and kept as it was at the epoch of least
validation loss and at the last. All else starts from the former: dropout and attention
redrawn at prediction, and students of one size, with the same epochs and start:
DIRECTOR with each variance of the teacher, what is left of it without soft labels or
without the matching of steps, the student on the task alone, and one that learns the
backbone's logits. Whatever a method chooses, a temperature among it, is chosen on the
validation rows; scores are those of the test rows. The recipe was chosen on digits
under other noise and on training photographs of CIFAR-10. Each run is kept as a file of
its own under results/director; table_director.py prints them.
"""

import argparse
import warnings
from collections.abc import Callable
from dataclasses import replace
from time import process_time
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from _common import RESULTS, cached, machine
from _director_sets import PROBLEMS, Problem, logits, train
from sklearn.metrics import matthews_corrcoef
from torch import Tensor, nn

from uqformer._random import derive_seed, member_seeds, seeded
from uqformer.attention import forward_members
from uqformer.calibration import TemperatureCalibrator
from uqformer.director import (
    CLASSIFICATION,
    DistillationRecipe,
    Student,
    Task,
    Teacher,
    distil,
)
from uqformer.director._tasks import WEIGHTED_CLASSIFICATION
from uqformer.estimators._director_distil import Distillation, PairOfRows
from uqformer.exceptions import UQFormerWarning
from uqformer.metrics import (
    area_under_risk_coverage_error,
    brier_loss,
    expected_calibration_error,
    failure_auroc_score,
    fpr_at_tpr_error,
    ood_auroc_score,
)
from uqformer.predictive import ClassificationEnsemble

N_CHAINS = 10
N_MEMBERS = 20
N_PASSES = 10
N_NETWORKS = 5
DRAWS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
OURS = "DIRECTOR"
WEIGHT = 10.0
SOFT_LABELS = 0.9
DROPOUT = 0.1
SOFTNESS = 3.0
"""Temperature of plain logit distillation, as in the paper's research code."""

Predict = Callable[[Tensor], np.ndarray]
"""From rows to probabilities of all members, (n_members, n_rows, n_classes)."""


def proba(members: Tensor) -> np.ndarray:
    return members.double().softmax(dim=-1).numpy()


def plain(module: nn.Module) -> Predict:
    return lambda x: proba(logits(module, x)[None])


def dropout(module: nn.Module, seed: int) -> Predict:
    """Passes in training mode; uqformer's own backbones have no batch statistics."""

    def predict(x: Tensor) -> np.ndarray:
        with seeded(seed), torch.no_grad():
            module.train()
            passes = [
                torch.cat([module(rows) for rows in x.split(256)])
                for _ in range(N_PASSES)
            ]
            module.eval()
        members = proba(torch.stack(passes))
        if not members.std(axis=0).max() > 0:
            raise SystemExit("Dropout did nothing: the passes are all equal.")
        return members

    return predict


def ensemble(networks: list[nn.Module]) -> Predict:
    return lambda x: proba(torch.stack([logits(network, x) for network in networks]))


def redrawn(module: nn.Module, n_draws: int, seed: int, n_members: int) -> Predict:
    def predict(x: Tensor) -> np.ndarray:
        seeds, batches = member_seeds(seed, n_members), x.split(256)
        parts: list[list[Tensor]] = [[] for _ in seeds]
        for _, member, output in forward_members(
            module, batches, n_draws=n_draws, seeds=seeds, layers="all"
        ):
            parts[member].append(output)
        return proba(torch.stack([torch.cat(part) for part in parts]))

    return predict


def chains(student: Student, seed: int, n_chains: int = N_CHAINS) -> Predict:
    def predict(x: Tensor) -> np.ndarray:
        seeds = member_seeds(seed, n_chains)
        with torch.no_grad():
            parts = [student.members(rows, seeds) for rows in x.split(100)]
        return proba(torch.cat(parts, dim=1))

    return predict


def best_draws(module: nn.Module, problem: Problem, seed: int) -> int:
    x, y = problem.valid
    losses = {}
    for n_draws in DRAWS:
        mean = redrawn(module, n_draws, seed, 8)(x).mean(axis=0)
        losses[n_draws] = float(-np.log(mean[np.arange(len(y)), y]).mean())
    return min(losses, key=lambda n_draws: losses[n_draws])


def scores(y_proba: np.ndarray, y: np.ndarray) -> dict[str, float]:
    of_truth = np.maximum(y_proba[np.arange(len(y)), y], 1e-12)
    labels = np.arange(y_proba.shape[1])
    first = y_proba.argmax(axis=1)
    return {
        "accuracy": float(np.mean(first == y)),
        "mcc": float(matthews_corrcoef(y, first)),
        "ece": expected_calibration_error(y, y_proba, n_bins=15, labels=labels),
        "nll": float(-np.log(of_truth).mean()),
        "brier": brier_loss(y, y_proba, labels=labels),
        "aurc": area_under_risk_coverage_error(y, y_proba, labels=labels),
        "failure_auroc": failure_auroc_score(y, y_proba, labels=labels),
        "fpr95": fpr_at_tpr_error(y, y_proba, labels=labels),
    }


def outsiders(members: np.ndarray, others: np.ndarray) -> dict[str, float]:
    """Area under the curve of telling outsiders, by each score of doubt."""
    pair = [ClassificationEnsemble(part) for part in (members, others)]
    doubts = {
        "most probable": [1 - part.mean_proba().max(axis=1) for part in pair],
        "entropy": [part.entropy() for part in pair],
        "expected entropy": [part.expected_entropy() for part in pair],
        "mutual information": [part.mutual_information() for part in pair],
    }
    return {name: ood_auroc_score(*doubt) for name, doubt in doubts.items()}


def strangeness(
    student: Student, teacher: Teacher, seed: int
) -> Callable[[Tensor], dict[str, np.ndarray]]:
    """How far chains part, and how badly the student foresees the teacher's steps."""
    n_steps = teacher.n_steps

    def measure(x: Tensor) -> dict[str, np.ndarray]:
        spreads, surprises = [], []
        for rows in x.split(100):
            with torch.no_grad():
                spreads.append(student.traced(rows, member_seeds(seed, N_CHAINS))[1])
                chain = teacher.record(rows)
                surprise = torch.zeros(len(rows))
                for step in range(n_steps):
                    time = torch.tensor(1 - step / n_steps)
                    mean, log_variance = student.transition(chain.states[step], time)
                    error = (chain.states[step + 1] - mean) ** 2
                    each = error * (-log_variance).exp() + log_variance
                    surprise += each.mean(dim=(1, 2))
                surprises.append(surprise)
        spread = torch.cat(spreads)
        return {
            "spread, last step": spread[:, -1].numpy(),
            "spread, all steps": spread.mean(dim=1).numpy(),
            "surprise": torch.cat(surprises).numpy(),
        }

    return measure


def judge(predict: Predict, problem: Problem, n_params: int) -> dict[str, Any]:
    (x_valid, y_valid), (x, y) = problem.valid, problem.test
    start = process_time()
    members = predict(x)
    seconds = process_time() - start
    temperature = TemperatureCalibrator(
        input="proba", classes=np.arange(members.shape[2])
    ).fit(predict(x_valid).mean(axis=0), y_valid.numpy())

    def both(members: np.ndarray, y: Tensor) -> dict[str, dict[str, float]]:
        mean = members.mean(axis=0)
        return {
            "raw": scores(mean, y.numpy()),
            "scaled": scores(temperature.transform(mean), y.numpy()),
        }

    return {
        **both(members, y),
        "temperature": temperature.temperature_,
        "n_params": n_params,
        "seconds_per_1000": 1000 * seconds / len(y),
        "shifts": {
            name: both(predict(x_shifted), y_shifted)
            for name, (x_shifted, y_shifted) in problem.shifts.items()
        },
        "outsiders": {
            name: outsiders(members, predict(others))
            for name, others in problem.outsiders.items()
        },
    }


def weighted(labels: Tensor) -> Tensor:
    return torch.cat([labels, torch.ones(len(labels), 1)], dim=1)


def pairs_of(
    module: nn.Module, problem: Problem, soft_labels: float
) -> tuple[PairOfRows, PairOfRows]:
    """Rows with their labels, partly the module's own, as DirectorClassifier does."""
    (x, y), (x_valid, y_valid) = problem.train, problem.valid
    n_classes = int(y.max()) + 1
    hot, hot_valid = F.one_hot(y, n_classes).float(), F.one_hot(y_valid, n_classes)
    temperature = TemperatureCalibrator(input="logits", classes=np.arange(n_classes))
    temperature.fit(logits(module, x_valid).double().numpy(), y_valid.numpy())
    own = temperature.transform(logits(module, x).double().numpy())
    mixed = torch.lerp(hot, torch.from_numpy(own).float(), soft_labels)
    return (x, weighted(mixed)), (x_valid, weighted(hot_valid.float()))


def taught_logits(module: nn.Module, pair: tuple[Tensor, Tensor]) -> PairOfRows:
    return pair[0], (logits(module, pair[0]) / SOFTNESS).log_softmax(dim=-1)


def _softened_divergence(output: Tensor, target: Tensor) -> Tensor:
    log_proba = (output / SOFTNESS).log_softmax(dim=-1)
    return SOFTNESS**2 * F.kl_div(
        log_proba, target, reduction="batchmean", log_target=True
    )


IMITATION = Task(_softened_divergence, CLASSIFICATION.average)


def plan_for(problem: Problem, seed: int) -> Distillation:
    """DIRECTOR as it is; everything else changes something of it."""
    recipe = DistillationRecipe(
        problem.distil_epochs,
        learning_rate=2e-3,
        batch_size=problem.batch_size,
        n_iter_no_change=20,
    )
    return Distillation(
        "attention", "auto", "kl", WEIGHT, 0.5, DROPOUT, False, recipe,
        derive_seed(seed, "plan"),
    )  # fmt: skip


def students(
    module: nn.Module, problem: Problem, seed: int
) -> tuple[dict[str, Student], dict[str, Any]]:
    """Teach all students; returns them, and what was found on the way."""
    hard, soft = (pairs_of(module, problem, share) for share in (0.0, SOFT_LABELS))
    plan = plan_for(problem, seed)
    task = WEIGHTED_CLASSIFICATION
    taught: dict[str, Student] = {}
    taught[OURS], found = plan.run(module, *soft, task, task)
    for name, changes, pairs in (
        ("DIRECTOR, sgpa", {"variance": "sgpa"}, soft),
        ("DIRECTOR, kep", {"variance": "kep"}, soft),
        ("DIRECTOR, squared error", {"loss": "mse", "performance_weight": 0.25}, soft),
        ("DIRECTOR, hard labels", {}, hard),
    ):
        changed = replace(plan, **({"n_draws": found.n_draws} | changes))
        taught[name], _ = changed.run(module, *pairs, task, task)
    teacher = Teacher(module, problem.train[0][:4])
    alone = replace(plan.recipe, matching_weight=0.0, performance_weight=1.0)
    imitated = [taught_logits(module, part) for part in (problem.train, problem.valid)]
    for name, own_task, own_pairs in (
        ("same student, soft labels alone", task, soft),
        ("same student, task alone", task, hard),
        ("same student, logits alone", IMITATION, imitated),
    ):
        taught[name] = plan.untrained(teacher, hard[0])
        distil(taught[name], teacher, *own_pairs, alone, seed=plan.seed, task=own_task)
    return taught, {
        "n_draws": found.n_draws,
        "performance_weight": WEIGHT,
        "seconds": found.seconds,
        "epochs": len(found.history),
    }


def run(name: str, seed: int) -> dict[str, Any]:
    """All methods on one set, from one seed."""
    problem = PROBLEMS[name](seed)
    best, last, best_epoch = train(problem, seed)
    n_params = sum(parameter.numel() for parameter in best.parameters())
    n_draws = best_draws(best, problem, seed)
    methods: dict[str, tuple[Predict, int]] = {
        "backbone": (plain(best), n_params),
        "backbone, last epoch": (plain(last), n_params),
        "dropout": (dropout(best, seed), n_params),
        "stochastic attention": (redrawn(best, n_draws, seed, N_MEMBERS), n_params),
    }
    if problem.has_ensemble:
        others = [train(problem, 1000 + seed * N_NETWORKS + k)[0] for k in range(4)]
        methods["deep ensemble"] = (ensemble([best, *others]), N_NETWORKS * n_params)
    taught, found = students(best, problem, seed)
    for title, student in taught.items():
        methods[title] = (chains(student, seed), student.n_params)
    methods["DIRECTOR, one chain"] = (
        chains(taught[OURS], seed, 1),
        taught[OURS].n_params,
    )
    judged = {
        title: judge(predict, problem, size)
        for title, (predict, size) in methods.items()
    }
    teacher = Teacher(best, problem.train[0][:4])
    for title, student in taught.items():
        measure = strangeness(student, teacher, seed)
        for group, others in problem.outsiders.items():
            inside, outside = measure(problem.test[0][: len(others)]), measure(others)
            judged[title]["outsiders"][group] |= {
                word: ood_auroc_score(inside[word], outside[word]) for word in inside
            }
    return {
        "set": name,
        "seed": seed,
        "machine": machine(),
        "best_epoch": best_epoch,
        "stochastic_attention_n_draws": n_draws,
        "director": found,
        "methods": judged,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", nargs="+", default=list(PROBLEMS), choices=PROBLEMS)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    options = parser.parse_args()
    warnings.simplefilter("ignore", UQFormerWarning)
    torch.set_num_threads(1)
    for name in options.sets:
        for seed in options.seeds:
            file = f"{name.replace(', ', '_').replace(' ', '')}_{seed}.json"
            path = RESULTS / "director" / file
            result = cached(path, lambda n=name, s=seed: run(n, s))
            for title, got in result["methods"].items():
                raw, scaled = got["raw"], got["scaled"]
                print(
                    f"{name:18s} {seed} {title:32s} acc {raw['accuracy']:.3f}  "
                    f"ece {raw['ece']:.3f} -> {scaled['ece']:.3f}  "
                    f"nll {raw['nll']:.3f} -> {scaled['nll']:.3f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
