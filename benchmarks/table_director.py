"""Print the results of bench_director.py as tables.

Usage: python benchmarks/table_director.py > benchmarks/results/director.md

Means over seeds, with the standard error of the mean behind them where there are
several. "at its temperature" is the same method after temperature scaling on the
validation rows.
"""

import json
from collections import defaultdict
from typing import Any

import numpy as np
from _common import RESULTS

OURS = "DIRECTOR"
PERCENT = ("accuracy", "ece", "brier", "failure_auroc", "fpr95")
COLUMNS = {
    "accuracy": "accuracy %",
    "ece": "ECE %",
    "nll": "NLL",
    "brier": "Brier %",
    "aurc": "AURC x 1000",
    "failure_auroc": "failure AUROC %",
    "fpr95": "FPR95 %",
}
SCALED = {"ece": "ECE % at its temperature", "nll": "NLL at its temperature"}


def shown(values: list[float], name: str) -> str:
    factor = 100 if name in PERCENT else 1000 if name == "aurc" else 1
    digits = 3 if name == "nll" else 1
    array = factor * np.asarray(values)
    text = f"{array.mean():.{digits}f}"
    if len(array) > 1:
        error = array.std(ddof=1) / np.sqrt(len(array))
        text += f" ± {error:.{digits}f}"
    return text


def line(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def table(runs: list[dict[str, Any]]) -> list[str]:
    heads = ["method", *COLUMNS.values(), *SCALED.values(), "parameters", "s / 1000"]
    lines = [line(heads), line(["---"] * len(heads))]
    for title in runs[0]["methods"]:
        got = [run["methods"][title] for run in runs]
        cells = [title, *columns(got)]
        cells.append(f"{got[0]['n_params']:,}")
        cells.append(f"{np.median([one['seconds_per_1000'] for one in got]):.2f}")
        lines.append(line(cells))
    return lines


def columns(got: list[dict[str, Any]]) -> list[str]:
    cells = [shown([one["raw"][name] for one in got], name) for name in COLUMNS]
    cells += [shown([one["scaled"][name] for one in got], name) for name in SCALED]
    return cells


def shifted(runs: list[dict[str, Any]]) -> list[str]:
    lines = []
    for name in runs[0]["methods"][OURS]["shifts"]:
        heads = ["method", *COLUMNS.values(), *SCALED.values()]
        lines += ["", f"On {name}:", "", line(heads), line(["---"] * len(heads))]
        for title in runs[0]["methods"]:
            got = [run["methods"][title]["shifts"][name] for run in runs]
            lines.append(line([title, *columns(got)]))
    return lines


def outsiders(runs: list[dict[str, Any]]) -> list[str]:
    lines = []
    for group, ours in runs[0]["methods"][OURS]["outsiders"].items():
        lines += ["", f"Telling outsiders, {group}, AUROC %:", ""]
        lines += [line(["method", *ours]), line(["---"] * (1 + len(ours)))]
        for title in runs[0]["methods"]:
            cells = [title]
            for word in ours:
                values = [
                    run["methods"][title]["outsiders"][group].get(word) for run in runs
                ]
                cells.append("" if None in values else shown(values, "ece"))
            lines.append(line(cells))
    return lines


def differences(runs: list[dict[str, Any]]) -> list[str]:
    """DIRECTOR less others, seed by seed: negative is better, but for accuracy."""
    lines = ["", "DIRECTOR less another method, on the same seed:", ""]
    names = ("accuracy", "ece", "nll")
    lines += [line(["less", *names, "ECE, both scaled", "NLL, both scaled"])]
    lines += [line(["---"] * 6)]
    for title in runs[0]["methods"]:
        if title == OURS:
            continue
        cells = [title]
        for kind, wanted in (("raw", names), ("scaled", names[1:])):
            for name in wanted:
                gaps = [
                    run["methods"][OURS][kind][name] - run["methods"][title][kind][name]
                    for run in runs
                ]
                cells.append(shown(gaps, name))
        lines.append(line(cells))
    return lines


def main() -> None:
    by_set: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for path in sorted((RESULTS / "director").glob("*.json")):
        run = json.loads(path.read_text())
        by_set[run["set"]].append(run)
    for name, runs in by_set.items():
        seeds = [run["seed"] for run in runs]
        print(f"### {name} (seeds {seeds})\n")
        parts = table(runs), differences(runs), shifted(runs), outsiders(runs)
        print("\n".join(text for part in parts for text in part))
        for run in runs:
            found = run["director"]
            print(
                f"\nSeed {run['seed']}: best epoch {run['best_epoch']}, n_draws "
                f"{found['n_draws']}, performance_weight {found['performance_weight']}."
            )
        print()


if __name__ == "__main__":
    main()
