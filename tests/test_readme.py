"""The README's python blocks run as printed: first jobs alone, the rest in order."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

README = Path(__file__).resolve().parents[1] / "README.md"
TEXT = README.read_text()
FIRST_JOBS = re.search(r"^## Five first jobs$.*?^## ", TEXT, re.S | re.M)
BLOCKS = list(re.finditer(r"^```python\n(.*?)^```$", TEXT, re.S | re.M))
assert FIRST_JOBS is not None
JOBS = [b for b in BLOCKS if FIRST_JOBS.start() < b.start() < FIRST_JOBS.end()]


def _run(block: re.Match[str], namespace: dict[str, Any]) -> None:
    # leading newlines let a traceback name the README's own line
    before = "\n" * TEXT.count("\n", 0, block.start(1))
    exec(compile(before + block[1], str(README), "exec"), namespace)


@pytest.fixture
def offline_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put tiny models where names of the hub are looked for first: the local folder.

    So the blocks need no network, and run exactly as they are printed.
    """
    pytest.importorskip("transformers")
    from tests.backbones.guests import classifier, make, tokenizer

    for name, model in {
        "sentence-transformers/all-MiniLM-L6-v2": make("Bert"),
        "distilbert/distilbert-base-uncased-finetuned-sst-2-english": classifier(
            "Bert", n_labels=2
        ),
    }.items():
        model.save_pretrained(tmp_path / name)
        tokenizer().save_pretrained(tmp_path / name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


# models with random weights, asked about twenty texts, have nothing to calibrate by
@pytest.mark.filterwarnings("ignore::uqformer.exceptions.CalibrationWarning")
@pytest.mark.parametrize("block", JOBS, ids=range(1, len(JOBS) + 1))
@pytest.mark.usefixtures("offline_hub")
def test_a_first_job_is_short_and_stands_alone(block: re.Match[str]) -> None:
    if "import pandas" in block[1]:
        pytest.importorskip("pandas")
    assert len([line for line in block[1].splitlines() if line]) <= 12
    _run(block, {"__name__": "readme"})


def test_there_are_five_first_jobs() -> None:
    assert len(JOBS) == 5


def test_the_other_blocks_run_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {"__name__": "readme"}
    for block in BLOCKS:
        if block not in JOBS:
            _run(block, namespace)
    assert "trees" in namespace  # the last block was reached


def test_the_table_is_that_of_the_committed_results() -> None:
    script = README.parent / "benchmarks" / "table_uci.py"
    printed = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, check=True
    )
    assert printed.stdout.strip() in TEXT
