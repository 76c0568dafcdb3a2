"""Print the committed results of bench_probabilities.py as a table.

Usage: python benchmarks/table_probabilities.py > benchmarks/results/probabilities.md
"""

import json
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results" / "probabilities.json"
COLUMNS = ("log_loss", "brier", "ece", "accuracy")


def table(results: list[dict[str, Any]], name: str) -> str:
    """One line a calibrator: all rows of four folds, then only 500 of them."""
    rows = [result for result in results if result["set"] == name]
    heads = [f"{column} ({n})" for n in ("all", 500) for column in COLUMNS]
    lines = ["| calibrator | " + " | ".join(heads) + " |"]
    lines.append("|---" * (len(heads) + 1) + "|")
    for calibrator in dict.fromkeys(result["calibrator"] for result in rows):
        by_rows = {r["rows"]: r for r in rows if r["calibrator"] == calibrator}
        cells = [f"{by_rows[n][c]:.4f}" for n in ("all", 500) for c in COLUMNS]
        lines.append(f"| {calibrator} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    committed = json.loads(RESULTS.read_text())
    versions = committed["machine"]
    print(
        "# Calibrators on real probabilities, five folds\n\n"
        "Made by `python benchmarks/bench_probabilities.py`, with all rows of four\n"
        "folds and with 500 of them, scikit-learn "
        f"{versions['scikit-learn']} and\nprobmetrics {versions['probmetrics']}. "
        "The default penalties of vector, matrix and\nDirichlet scaling were chosen "
        "by trials on these sets, so the rows of these three\nare not blind to that "
        "choice. Single fits are timed in the JSON beside this file."
    )
    for name in dict.fromkeys(r["set"] for r in committed["results"]):
        print(f"\n## {name}\n\n{table(committed['results'], name)}")


if __name__ == "__main__":
    main()
