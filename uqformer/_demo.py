"""The main job on two tables that ship with scikit-learn: fit, judge, draw."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import binom
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.model_selection import train_test_split

from uqformer._typing import AnyArray
from uqformer.comparison import compare_intervals
from uqformer.estimators import StochasticAttentionRegressor
from uqformer.plotting import CoverageDisplay, IntervalDisplay
from uqformer.plotting._base import import_pyplot

__all__ = ["run_demo"]

QUANTILES = np.arange(0.05, 0.96, 0.05)
LEVEL = 0.9


def _diabetes() -> tuple[AnyArray, AnyArray]:
    X, y = load_diabetes(return_X_y=True)
    return X, y


def _tumours() -> tuple[AnyArray, AnyArray]:
    """Largest nuclear area of a tumour from the means of its other ten measurements."""
    data = load_breast_cancer()
    names = list(data.feature_names)
    means = [i for i, name in enumerate(names) if name.startswith("mean")]
    return data.data[:, means], data.data[:, names.index("worst area")]


TABLES: dict[str, tuple[str, Callable[[], tuple[AnyArray, AnyArray]]]] = {
    "diabetes": ("progression of diabetes after a year", _diabetes),
    "tumours": ("largest area of a tumour's nuclei", _tumours),
}


def run_demo(output: Path, max_epochs: int = 300) -> list[Path]:
    """Fit, judge and draw for each table; returns the figures written.

    Parameters
    ----------
    output : Path
        Folder for the figures, made if it is not there.
    max_epochs : int, default=300
        Most passes over the training rows.

    Returns
    -------
    figures : list of Path
        Two PNG files a table.
    """
    plt = import_pyplot()
    output.mkdir(parents=True, exist_ok=True)
    figures = []
    for name, (title, load) in TABLES.items():
        X, y = load()
        X_train, X_test, y_train, y_test = train_test_split(
            X, y, test_size=0.25, random_state=0
        )
        print(f"\n{title}: {len(X_train)} rows to fit, {len(X_test)} to judge")
        model = StochasticAttentionRegressor(
            max_epochs=max_epochs, random_state=0, verbose=1
        )
        model.fit(X_train, y_train)
        _print_reports(
            compare_intervals(
                model.set_params(verbose=0),
                X_test,
                y_test,
                confidence_level=LEVEL,
                random_state=0,
            ),
            len(y_test),
        )
        draw: dict[str, Callable[[Any, AnyArray, AnyArray], Any]] = {
            "intervals": _draw_intervals,
            "quantiles": _draw_quantiles,
        }
        for kind, function in draw.items():
            path = output / f"{name}_{kind}.png"
            display = function(model, X_test, y_test)
            display.ax_.set_title(title)
            display.figure_.savefig(path, dpi=120, bbox_inches="tight")
            plt.close(display.figure_)
            figures.append(path)
    print(f"\nFigures in {output.resolve()}:")
    for path in figures:
        print(f"  {path.name}")
    return figures


def _draw_intervals(model: Any, X: AnyArray, y: AnyArray) -> IntervalDisplay:
    return IntervalDisplay.from_estimator(
        model, X, y, confidence_level=LEVEL, name="conformal"
    )


def _draw_quantiles(model: Any, X: AnyArray, y: AnyArray) -> CoverageDisplay:
    """Draw the share of targets below each quantile: intervals open to the left."""
    families = {
        "conformal": model.predict_quantiles(X, QUANTILES),
        "bare members": model.predict_ensemble(X).quantile(QUANTILES),
    }
    axes = None
    for name, values in families.items():
        y_interval = np.stack([np.full_like(values, -np.inf), values], axis=1)
        display = CoverageDisplay.from_predictions(
            y, y_interval, confidence_levels=QUANTILES, name=name, ax=axes
        )
        axes = display.ax_
    display.ax_.set(xlabel="quantile asked", ylabel="share of targets below it")
    return display


def _print_reports(reports: dict[str, dict[str, float]], n_rows: int) -> None:
    """Print a table, one method a line."""
    columns = list(next(iter(reports.values())))
    print(f"{'':22}" + "".join(f"{column:>10}" for column in columns))
    for name, report in reports.items():
        cells = "".join(f"{report[column]:>10.4g}" for column in columns)
        print(f"{name:22}{cells}")
    low, high = binom.ppf([0.025, 0.975], n_rows, LEVEL) / n_rows
    print(
        f"With {n_rows} rows a perfect {LEVEL:.0%} interval covers {low:.2f} to "
        f"{high:.2f} in 95 % of cases. Of the other numbers less is better."
    )
