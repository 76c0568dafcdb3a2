"""The demonstration: two tables in, four figures and two lists of numbers out."""

import contextlib
import io
import re
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from uqformer import StochasticAttentionRegressor, _demo

pyplot = pytest.importorskip("matplotlib.pyplot")

METHODS = ["stochastic attention", "+ conformal", "normal", "split conformal"]
COLUMNS = ["rmse", "crps", "coverage", "width", "winkler", "pit_w1"]

# two epochs teach little, and the house rightly says so
pytestmark = pytest.mark.filterwarnings(
    "ignore::uqformer.exceptions.CalibrationWarning"
)


class Run(NamedTuple):
    """One run: the folder, what was returned, and what was printed."""

    folder: Path
    figures: list[Path]
    text: str


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Run once for all tests here, with a smaller network than users see."""
    folder = tmp_path_factory.mktemp("demo") / "made" / "on the way"
    params = {"d_token": 16, "n_heads": 2, "n_blocks": 2}
    small = partial(StochasticAttentionRegressor, n_members=8, backbone_params=params)
    text = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(text):
        patch.setattr(_demo, "StochasticAttentionRegressor", small)
        figures = _demo.run_demo(folder, max_epochs=2)
    return Run(folder, figures, text.getvalue())


def test_four_figures_are_written(run: Run) -> None:
    assert [path.name for path in run.figures] == [
        "diabetes_intervals.png",
        "diabetes_quantiles.png",
        "tumours_intervals.png",
        "tumours_quantiles.png",
    ]
    assert sorted(run.folder.iterdir()) == sorted(run.figures)
    for path in run.figures:
        assert path.stat().st_size > 5000
        image = pyplot.imread(path)
        assert image.std() > 0.01  # something is drawn
    assert pyplot.get_fignums() == []


def test_two_tables_are_printed(run: Run) -> None:
    assert re.findall(r"(\d+) rows to fit, (\d+) to judge", run.text) == [
        ("331", "111"),
        ("426", "143"),
    ]
    heads = [line.split() for line in run.text.splitlines() if "rmse" in line]
    assert heads == [COLUMNS] * 2
    for method in METHODS:
        lines = [line for line in run.text.splitlines() if line.startswith(method)]
        values = [[float(cell) for cell in line[22:].split()] for line in lines]
        assert np.shape(values) == (2, len(COLUMNS))
        assert np.isfinite(values).all()


def test_all_methods_are_printed_with_one_rmse(run: Run) -> None:
    rows = [line for line in run.text.splitlines() if line.startswith(tuple(METHODS))]
    rmse = [line[22:].split()[0] for line in rows]
    assert len(rmse) == 8
    assert len(set(rmse[:4])) == len(set(rmse[4:])) == 1


def test_the_reader_is_told_what_chance_allows(run: Run) -> None:
    # 95 % of binomial(111, 0.9) and of binomial(143, 0.9)
    assert "With 111 rows a perfect 90% interval covers 0.84 to 0.95" in run.text
    assert "With 143 rows a perfect 90% interval covers 0.85 to 0.94" in run.text


def test_figures_are_listed_at_the_end(run: Run) -> None:
    end = run.text.splitlines()[-5:]
    assert end[0] == f"Figures in {run.folder}:"
    assert [line.strip() for line in end[1:]] == [path.name for path in run.figures]


def test_tables_are_numbers_without_the_answer_among_them() -> None:
    shapes = {}
    for name, (_, load) in _demo.TABLES.items():
        X, y = load()
        shapes[name] = X.shape
        assert np.isfinite(X).all()
        correlations = [abs(np.corrcoef(column, y)[0, 1]) for column in X.T]
        assert max(correlations) < 0.99
    assert shapes == {"diabetes": (442, 10), "tumours": (569, 10)}
