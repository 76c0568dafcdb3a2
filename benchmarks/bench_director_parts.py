"""What DIRECTOR's numbers do: one changed at a time, on the same backbone.

Usage: UQFORMER_DATA=<folder> OMP_NUM_THREADS=1
       python benchmarks/bench_director_parts.py [--sets ...] [--seeds 0 1 2]

The backbone and the student of bench_director.py, then students that differ from it in
one number of the training: the weight of the prediction's loss, the draws behind the
teacher's variance, the head, dropout, the share of soft labels, the size. (Other
sources of the variance, squared errors and hard labels are in bench_director.py.) And
the same student asked otherwise: by fewer or more chains, by the means alone, in fewer
and larger steps. Scores are those of the test rows; nothing is chosen by them. Each run
is kept as a file of its own under results/director_parts; table_director_parts.py
prints them.
"""

import argparse
import warnings
from dataclasses import replace
from typing import Any

import torch
from _common import RESULTS, cached, machine
from _director_sets import PROBLEMS, Problem, train
from bench_director import (
    N_CHAINS,
    OURS,
    SOFT_LABELS,
    pairs_of,
    plan_for,
    scores,
)
from torch import Tensor, nn

from uqformer._random import member_seeds
from uqformer.director import Student
from uqformer.director._tasks import WEIGHTED_CLASSIFICATION
from uqformer.exceptions import UQFormerWarning

CHANGES: dict[str, dict[str, Any]] = {
    **{f"weight {w:g}": {"performance_weight": w} for w in (0.1, 1.0, 100.0)},
    **{f"n_draws {n}": {"n_draws": n} for n in (1, 4, 16, 64, 256)},
    "embedding and head frozen": {"is_frozen": True},
    "no dropout": {"dropout": 0.0},
    "share 0.25": {"student_share": 0.25},
    "one block kept": {"n_kept_blocks": 1},
    "two blocks kept": {"n_kept_blocks": 2},
}
"""What is changed in training."""

SHARES = (0.5, 1.0)
"""Shares of soft labels, beside the one in use and none."""

CHAINS = (1, 2, 5, 20, 50)
"""Numbers of chains, beside the one in use."""


def judge(
    student: Student,
    problem: Problem,
    seed: int,
    n_chains: int = N_CHAINS,
    n_steps: int | None = None,
) -> dict[str, float]:
    """Score the mean probabilities of chains; 0 chains are the walk by the means."""
    x, y = problem.test

    def members(rows: Tensor) -> Tensor:
        if n_chains == 0:
            return student(rows, n_steps)[None]
        return student.members(rows, member_seeds(seed, n_chains), n_steps)

    with torch.no_grad():
        parts = [
            members(rows).double().softmax(dim=-1).mean(dim=0) for rows in x.split(100)
        ]
    return scores(torch.cat(parts).numpy(), y.numpy()) | {"n_params": student.n_params}


def asked_otherwise(
    student: Student, problem: Problem, seed: int
) -> dict[str, dict[str, float]]:
    judged = {
        OURS: judge(student, problem, seed),
        "means alone": judge(student, problem, seed, n_chains=0),
    }
    for n_chains in CHAINS:
        judged[f"n_chains {n_chains}"] = judge(student, problem, seed, n_chains)
    for n_steps in range(1, student.transition.n_steps):
        judged[f"n_steps {n_steps}"] = judge(student, problem, seed, n_steps=n_steps)
    return judged


def all_students(module: nn.Module, problem: Problem, seed: int) -> dict[str, Any]:
    """Students that differ in one number, and one of them asked in other ways."""
    plan = plan_for(problem, seed)
    task = WEIGHTED_CLASSIFICATION
    pairs = pairs_of(module, problem, SOFT_LABELS)
    ours, found = plan.run(module, *pairs, task, task)
    judged = asked_otherwise(ours, problem, seed)
    for name, changes in CHANGES.items():
        changed = replace(plan, **({"n_draws": found.n_draws} | changes))
        student, _ = changed.run(module, *pairs, task, task)
        judged[name] = judge(student, problem, seed)
    for share in SHARES:
        changed = replace(plan, n_draws=found.n_draws)
        others = pairs_of(module, problem, share)
        student, _ = changed.run(module, *others, task, task)
        judged[f"soft labels {share:g}"] = judge(student, problem, seed)
    return {"n_draws": found.n_draws, "students": judged}


def run(name: str, seed: int) -> dict[str, Any]:
    problem = PROBLEMS[name](seed)
    best, _, _ = train(problem, seed)
    return {
        "set": name,
        "seed": seed,
        "machine": machine(),
        "n_params_backbone": sum(p.numel() for p in best.parameters()),
        **all_students(best, problem, seed),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--sets", nargs="+", default=["digits, noise 0.5", "covtype"], choices=PROBLEMS
    )
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    options = parser.parse_args()
    warnings.simplefilter("ignore", UQFormerWarning)
    torch.set_num_threads(1)
    for name in options.sets:
        for seed in options.seeds:
            file = f"{name.replace(', ', '_').replace(' ', '')}_{seed}.json"
            path = RESULTS / "director_parts" / file
            result = cached(path, lambda n=name, s=seed: run(n, s))
            for title, got in result["students"].items():
                print(
                    f"{name:18s} {seed} {title:26s} acc {got['accuracy']:.3f}  "
                    f"ece {got['ece']:.3f}  nll {got['nll']:.3f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
