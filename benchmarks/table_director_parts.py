"""Print the results of bench_director_parts.py as tables.

Usage: python benchmarks/table_director_parts.py > benchmarks/results/director_parts.md

Means over seeds; behind them the mean difference from DIRECTOR as it is on the same
seeds, with its standard error.
"""

import json
from collections import defaultdict
from typing import Any

import numpy as np
from _common import RESULTS
from table_director import OURS, line

COLUMNS = {"accuracy": ("accuracy %", 100, 1), "ece": ("ECE %", 100, 1)}
COLUMNS |= {"nll": ("NLL", 1, 3)}


def cell(runs: list[dict[str, Any]], title: str, name: str) -> str:
    _, factor, digits = COLUMNS[name]
    values, ours = (
        factor * np.array([run["students"][one][name] for run in runs])
        for one in (title, OURS)
    )
    text = f"{values.mean():.{digits}f}"
    if title == OURS:
        return text
    gap = values - ours
    text += f" ({gap.mean():+.{digits}f}"
    if len(gap) > 1:
        text += f" ± {gap.std(ddof=1) / np.sqrt(len(gap)):.{digits}f}"
    return text + ")"


def main() -> None:
    by_set: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for path in sorted((RESULTS / "director_parts").glob("*.json")):
        run = json.loads(path.read_text())
        by_set[run["set"]].append(run)
    for name, runs in by_set.items():
        print(f"### {name} (seeds {[run['seed'] for run in runs]})\n")
        heads = ["what differs", *(head for head, _, _ in COLUMNS.values())]
        print(line([*heads, "parameters"]))
        print(line(["---"] * (2 + len(COLUMNS))))
        for title, got in runs[0]["students"].items():
            cells = [cell(runs, title, column) for column in COLUMNS]
            print(line([title, *cells, f"{got['n_params']:,}"]))
        draws = ", ".join(str(run["n_draws"]) for run in runs)
        print(f"\nn_draws chosen: {draws}.\n")


if __name__ == "__main__":
    main()
