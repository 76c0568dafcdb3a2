"""The command line: ``uqformer demo``."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from uqformer._version import __version__

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command.

    Parameters
    ----------
    arguments : sequence of str, default=None
        Words of the command line. None takes those of the process.

    Returns
    -------
    status : int
        0 for success; argparse itself leaves with 2 for words it does not know.

    Examples
    --------
    >>> from uqformer.cli import main
    >>> try:
    ...     main(["--version"])
    ... except SystemExit as stop:
    ...     print("left with", stop.code)
    uqformer 0...
    left with 0
    """
    parser = argparse.ArgumentParser(
        prog="uqformer", description="Honest uncertainty for any transformer."
    )
    parser.add_argument(
        "--version", action="version", version=f"uqformer {__version__}"
    )
    commands = parser.add_subparsers(dest="command", required=True)
    demo = commands.add_parser(
        "demo", help="fit, judge and draw on two tables that ship with scikit-learn"
    )
    demo.add_argument(
        "--output", type=Path, default=Path("demo_output"), help="folder for figures"
    )
    demo.add_argument(
        "--max-epochs", type=int, default=300, help="most epochs of training"
    )
    options = parser.parse_args(arguments)
    # only now: asking for help should not wait for torch
    from uqformer._demo import run_demo

    run_demo(options.output, options.max_epochs)
    return 0
