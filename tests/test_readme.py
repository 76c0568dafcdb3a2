"""The README's python blocks run, in order, in one session."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

README = Path(__file__).resolve().parents[1] / "README.md"


def test_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = README.read_text()
    blocks = list(re.finditer(r"^```python\n(.*?)^```$", text, re.S | re.M))
    assert blocks
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {"__name__": "readme"}
    for block in blocks:
        # leading newlines let a traceback name the README's own line
        before = "\n" * text.count("\n", 0, block.start(1))
        exec(compile(before + block[1], str(README), "exec"), namespace)


def test_the_table_is_that_of_the_committed_results() -> None:
    script = README.parent / "benchmarks" / "table_uci.py"
    printed = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, check=True
    )
    assert printed.stdout.strip() in README.read_text()
