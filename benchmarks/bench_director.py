"""DIRECTOR beside its backbone, other ways to doubt it, and what it is made of.

Usage: UQFORMER_DATA=<folder> OMP_NUM_THREADS=1 python benchmarks/bench_director.py
       [--sets "digits, noise 0.4" ...] [--seeds 0 1 2]

A backbone is trained for each set and seed, and kept as it was at the epoch of least
validation loss and at the last. All else starts from the former: dropout and attention
redrawn at prediction, a student that learns the backbone's logits, the same student on
the task alone, and DIRECTOR with each variance of the teacher. All students have the
same size, epochs and start. Whatever a method chooses, a temperature among it, is
chosen on the validation rows; scores are those of the test rows. Each run is kept as a
file of its own under results/director; table_director.py prints them.
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
    return {
        "accuracy": float(np.mean(y_proba.argmax(axis=1) == y)),
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
    mean = members.mean(axis=0)
    temperature = TemperatureCalibrator(
        input="proba", classes=np.arange(mean.shape[1])
    ).fit(predict(x_valid).mean(axis=0), y_valid.numpy())
    result = {
        "raw": scores(mean, y.numpy()),
        "scaled": scores(temperature.transform(mean), y.numpy()),
        "temperature": temperature.temperature_,
        "n_params": n_params,
        "seconds_per_1000": 1000 * seconds / len(y),
    }
    if problem.outsiders is not None:
        result["outsiders"] = outsiders(members, predict(problem.outsiders))
    return result


def weighted(pair: tuple[Tensor, Tensor]) -> PairOfRows:
    x, y = pair
    return x, torch.stack([y.float(), torch.ones(len(y))], dim=1)


def taught_logits(module: nn.Module, pair: tuple[Tensor, Tensor]) -> PairOfRows:
    return pair[0], (logits(module, pair[0]) / SOFTNESS).log_softmax(dim=-1)


def _softened_divergence(output: Tensor, target: Tensor) -> Tensor:
    log_proba = (output / SOFTNESS).log_softmax(dim=-1)
    return SOFTNESS**2 * F.kl_div(
        log_proba, target, reduction="batchmean", log_target=True
    )


IMITATION = Task(_softened_divergence, CLASSIFICATION.average)


def students(
    module: nn.Module, problem: Problem, seed: int
) -> tuple[dict[str, Student], dict[str, Any]]:
    """Teach all students; returns them, and what was found on the way."""
    pairs = weighted(problem.train), weighted(problem.valid)
    recipe = DistillationRecipe(
        problem.distil_epochs,
        learning_rate=2e-3,
        batch_size=problem.distil_batch_size,
        n_iter_no_change=20,
    )
    plan = Distillation(
        "attention", "auto", "kl", "auto", 0.5, False, recipe, derive_seed(seed, "plan")
    )
    task = WEIGHTED_CLASSIFICATION
    taught: dict[str, Student] = {}
    taught["DIRECTOR, attention"], found = plan.run(module, *pairs, task, task)
    weight = found.performance_weight
    for name, options in {
        "DIRECTOR, sgpa": {"variance": "sgpa"},
        "DIRECTOR, kep": {"variance": "kep"},
        "DIRECTOR, squared error": {"loss": "mse", "n_draws": found.n_draws},
    }.items():
        own = {"performance_weight": weight} if "variance" in options else {}
        changed = replace(plan, **(own | options))
        taught[name], _ = changed.run(module, *pairs, task, task)
    teacher = Teacher(module, problem.train[0][:4])
    alone = replace(recipe, matching_weight=0.0, performance_weight=1.0)
    for name, own_task, own_pairs in (
        ("same student, task alone", task, pairs),
        (
            "same student, logits alone",
            IMITATION,
            [taught_logits(module, part) for part in (problem.train, problem.valid)],
        ),
    ):
        taught[name] = plan.untrained(teacher, pairs[0])
        distil(taught[name], teacher, *own_pairs, alone, seed=plan.seed, task=own_task)
    return taught, {
        "n_draws": found.n_draws,
        "performance_weight": weight,
        "trials": {str(tried): loss for tried, loss in found.trials.items()},
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
    if problem.is_small:
        others = [train(problem, 1000 + seed * N_NETWORKS + k)[0] for k in range(4)]
        methods["deep ensemble"] = (ensemble([best, *others]), N_NETWORKS * n_params)
    taught, found = students(best, problem, seed)
    for title, student in taught.items():
        methods[title] = (chains(student, seed), student.n_params)
    methods["DIRECTOR, attention, one chain"] = (
        chains(taught["DIRECTOR, attention"], seed, 1),
        taught["DIRECTOR, attention"].n_params,
    )
    judged = {
        title: judge(predict, problem, size)
        for title, (predict, size) in methods.items()
    }
    if problem.outsiders is not None:
        teacher = Teacher(best, problem.train[0][:4])
        for title, student in taught.items():
            measure = strangeness(student, teacher, seed)
            inside, outside = measure(problem.test[0]), measure(problem.outsiders)
            judged[title]["outsiders"] |= {
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
