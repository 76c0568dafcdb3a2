"""Print the committed results of bench_uci.py as the table of the README.

Usage: python benchmarks/table_uci.py [--full | --point]

With --full every number of every method is printed, with --point the point errors of
the network beside those of boosted trees; results/uci.md holds both tables.
"""

import argparse
import json
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"


def load(kind: str) -> list[dict[str, Any]]:
    results: list[dict[str, Any]] = json.loads((RESULTS / f"{kind}.json").read_text())[
        "results"
    ]
    return results


def table(results: list[dict[str, Any]]) -> str:
    """One line a set: interval scores relative to split conformal, less is better."""
    lines = [
        "| set | `n_draws` | coverage: bare | conformal | interval score: bare "
        "| normal | conformal | W1: bare | conformal | search / training |",
        "|---" * 10 + "|",
    ]
    for result in results:
        reports, seconds = result["reports"], result["seconds"]
        bare, conformal = reports["stochastic attention"], reports["+ conformal"]
        plain = reports["split conformal"]["winkler"]
        cells = [
            result["set"],
            str(result["n_draws"]),
            f"{bare['coverage']:.2f}",
            f"{conformal['coverage']:.2f}",
            f"{bare['winkler'] / plain:.2f}",
            f"{reports['normal']['winkler'] / plain:.2f}",
            f"{conformal['winkler'] / plain:.2f}",
            f"{bare['pit_w1']:.3f}",
            f"{conformal['pit_w1']:.3f}",
            f"{seconds['search'] / seconds['training']:.1%}",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def full_table(results: list[dict[str, Any]]) -> str:
    """One line a method; scores in the units of each target, times in seconds."""
    columns = ["rmse", "crps", "coverage", "width", "winkler", "pit_w1"]
    lines = [
        "| set | method | " + " | ".join(columns) + " | n_draws | training | search |",
        "|---" * (len(columns) + 5) + "|",
    ]
    for result in results:
        seconds = result["seconds"]
        for name, report in result["reports"].items():
            cells = [result["set"], name, *(f"{report[key]:.4g}" for key in columns)]
            drawn = name in ("stochastic attention", "+ conformal")
            times = [f"{seconds[key]:.3g}" for key in ("training", "search")]
            cells += [str(result["n_draws"]) if drawn else "", *times]
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def point_table(results: list[dict[str, Any]]) -> str:
    """One line a set: mean error of the network's exact pass and of boosted trees."""
    lines = [
        "| set | splits | RMSE of boosted trees | RMSE of the network | ratio |",
        "|---" * 5 + "|",
    ]
    for name in dict.fromkeys(result["set"] for result in results):
        runs = [result for result in results if result["set"] == name]
        trees, network = (
            sum(run[key] for run in runs) / len(runs)
            for key in ("rmse_trees", "rmse_network")
        )
        cells = [name, str(len(runs)), f"{trees:.4g}", f"{network:.4g}"]
        lines.append("| " + " | ".join([*cells, f"{network / trees:.2f}"]) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--point", action="store_true")
    options = parser.parse_args()
    if options.point:
        print(point_table(load("uci_point")))
    else:
        print((full_table if options.full else table)(load("uci")))


if __name__ == "__main__":
    main()
