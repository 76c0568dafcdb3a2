"""The command line: help, version, what it does not know, and the demonstration."""

import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import uqformer
from uqformer import _demo
from uqformer.cli import main

ROOT = Path(__file__).resolve().parents[1]


def _left_with(*words: str) -> int | str | None:
    with pytest.raises(SystemExit) as stop:
        main(words)
    return stop.value.code


def _in_a_process(*words: str) -> "subprocess.CompletedProcess[str]":
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, *words],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )


def test_help_names_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert _left_with("--help") == 0
    shown = capsys.readouterr().out
    assert shown.startswith("usage: uqformer")
    assert "demo" in shown


def test_help_of_the_demonstration(capsys: pytest.CaptureFixture[str]) -> None:
    assert _left_with("demo", "--help") == 0
    shown = capsys.readouterr().out
    assert "--output" in shown
    assert "--max-epochs" in shown


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert _left_with("--version") == 0
    assert capsys.readouterr().out == f"uqformer {uqformer.__version__}\n"


@pytest.mark.parametrize(
    "words", [("predict-the-weather",), (), ("demo", "--max-epochs", "many"), ("--no",)]
)
def test_unknown_words_leave_with_two(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert _left_with(*words) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "error: " in shown.err


def test_words_reach_the_demonstration(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Any, ...]] = []
    monkeypatch.setattr(_demo, "run_demo", lambda *given: asked.append(given))
    assert main(["demo"]) == 0
    assert main(["demo", "--output", "there", "--max-epochs", "7"]) == 0
    assert asked == [(Path("demo_output"), 300), (Path("there"), 7)]


@pytest.mark.filterwarnings("ignore::uqformer.exceptions.CalibrationWarning")
def test_the_demonstration_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    small = partial(
        uqformer.StochasticAttentionRegressor,
        n_members=4,
        n_draws=8,
        backbone_params={"d_token": 16, "n_heads": 2, "n_blocks": 2},
    )
    monkeypatch.setattr(_demo, "StochasticAttentionRegressor", small)
    output = tmp_path / "figures"
    assert main(["demo", "--output", str(output), "--max-epochs", "1"]) == 0
    assert len(list(output.glob("*.png"))) == len(list(output.iterdir())) == 4
    shown = capsys.readouterr()
    assert str(output) in shown.out
    assert "1/1" in shown.err  # the one epoch


def test_the_module_is_the_command() -> None:
    done = _in_a_process("-m", "uqformer", "--version")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"uqformer {uqformer.__version__}\n"
    assert _in_a_process("-m", "uqformer", "no-such-command").returncode == 2


def test_asking_for_help_does_not_wait_for_torch() -> None:
    code = """if True:
        import sys
        from uqformer.cli import main
        try:
            main(["--help"])
        except SystemExit:
            sys.exit("torch" in sys.modules)
    """
    assert _in_a_process("-c", code).returncode == 0
