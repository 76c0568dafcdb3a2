"""Print what the engine costs, from the committed results; with --plot, draw it.

Usage: python benchmarks/table_engine.py [--plot]

Reads what bench_members.py, bench_profile.py, bench_draws.py, bench_memory.py,
bench_moments.py and bench_rivals.py wrote; results/engine.md holds the tables,
results/engine.png the plot.
"""

import argparse
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
GOALS = {"ft_transformer": 1.3, "minilm": 1.15, "vit": 1.15, "smollm2": 1.3}


def load(name: str) -> Any:
    return json.loads((RESULTS / name).read_text())


def table(header: Iterable[str], rows: Iterable[Iterable[Any]]) -> str:
    lines = [list(header), ["---"] * len(list(header)), *map(list, rows)]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def members() -> str:
    """Time of members over time of as many plain passes."""
    rows = []
    for path in sorted((RESULTS / "members").glob("*.json")):
        case = load(f"members/{path.name}")
        goal = next((v for k, v in GOALS.items() if path.stem.startswith(k)), "-")
        rows += [
            [
                path.stem,
                case["batch"],
                case["tokens"],
                case["members"],
                result["n_draws"],
                f"{result['ratio']:.2f}",
                f"{result['lowest']:.2f} to {result['highest']:.2f}",
                goal,
            ]
            for result in case["results"]
        ]
    header = ["case", "batch", "tokens", "members", "n_draws", "ratio", "range", "goal"]
    return table(header, rows)


def profile() -> str:
    """Seconds of 5 members by what they are spent on."""
    parts = ("uniforms", "draw", "operators", "watch", "members", "plain")
    rows = [
        [result["case"], *(f"{result['seconds'].get(part, 0):.3f}" for part in parts)]
        for result in load("profile.json")["results"]
    ]
    return table(["case", *parts[:-2], "the rest", "5 plain passes"], rows)


def draws() -> str:
    """Milliseconds of the draw."""
    results = load("draws.json")["results"]
    ways = ("softmax", "shared", "independent", "numpy", "torch")
    rows = [
        [
            r["n_keys"],
            r["n_draws"],
            *(f"{r[way]:.2f}" if way in r else "" for way in ways),
        ]
        for r in results
    ]
    return table(["keys", "n_draws", *ways], rows)


def memory() -> str:
    """MiB at the peak of a prediction."""
    rows = [
        [r["verb"], r["members"], r["rows"], r["mebibytes"]]
        for r in load("memory.json")["memory"]
    ]
    return table(["verb", "members", "rows", "MiB"], rows)


def growth() -> str:
    """Seconds as one thing grows."""
    rows = [
        [
            r["grows"],
            r[r["grows"]],
            r["redrawn"],
            r["plain"],
            f"{r['redrawn'] / r['plain']:.2f}",
        ]
        for r in load("memory.json")["growth"]
    ]
    return table(["what grows", "to", "redrawn, s", "plain, s", "ratio"], rows)


def moments() -> str:
    """One-pass moments against 1,000 members."""
    rows = [
        [
            result["set"],
            a["n_draws"],
            f"{a['pooled_ratio']:.2f}",
            f"{a['correlation']:.3f}",
            f"{a['correlation_of_500_members_with_500_others']:.3f}",
            f"{result['milliseconds']['members_per_moments']:.1f}",
        ]
        for result in load("moments.json")["results"]
        for a in result["agreement"]
    ]
    header = ["set", "n_draws", "std / members' std", "correlation over rows"]
    header += ["same of 500 with 500 members", "time of 50 members / moments"]
    return table(header, rows)


def rivals() -> str:
    """Other ways on the same network."""
    rows = [
        [
            name,
            way,
            f"{row['coverage_90']:.2f}",
            f"{row['crps']:.3f}",
            f"{row['spread_per_error']:.2f}",
            f"{row['seconds']:.3f}",
        ]
        for name, result in load("rivals.json")["sets"].items()
        for way, row in result["ways"].items()
    ]
    header = ["set", "way", "coverage of 90 %", "CRPS", "spread / error", "seconds"]
    return table(header, rows)


def plot() -> None:
    """Draw time against what grows, and memory against members."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    results = load("memory.json")["growth"]
    names = list(dict.fromkeys(result["grows"] for result in results))
    figure, axes = plt.subplots(1, len(names), figsize=(11, 2.8), layout="constrained")
    for ax, name in zip(axes, names, strict=True):
        chosen = [result for result in results if result["grows"] == name]
        x = [result[name] for result in chosen]
        ax.loglog(x, [r["redrawn"] for r in chosen], "o-", label="redrawn members")
        ax.loglog(x, [r["plain"] for r in chosen], "s--", label="plain passes")
        ax.set(xlabel=name, xticks=x, xticklabels=x)
        ax.minorticks_off()
    axes[0].set_ylabel("seconds")
    axes[0].legend(frameon=False)
    figure.savefig(RESULTS / "engine.png", dpi=120)


SECTIONS = {
    "Members over plain passes": members,
    "Where the time of 5 members goes, seconds": profile,
    "The draw alone, milliseconds": draws,
    "Peak memory of a prediction": memory,
    "Time as one thing doubles": growth,
    "One-pass moments": moments,
    "Other ways, same network, 50 passes each": rivals,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--plot", action="store_true")
    if parser.parse_args().plot:
        plot()
        return
    print("\n\n".join(f"## {title}\n\n{make()}" for title, make in SECTIONS.items()))


if __name__ == "__main__":
    main()
