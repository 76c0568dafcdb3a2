"""Every example in the user guide runs and prints what it says."""

import doctest
from pathlib import Path

import pytest

PAGES = sorted((Path(__file__).resolve().parents[1] / "docs/user_guide").glob("*.rst"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_examples_run(page: Path) -> None:
    flags = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    outcome = doctest.testfile(
        str(page), module_relative=False, optionflags=flags, verbose=False
    )
    assert outcome.attempted > 0
    assert outcome.failed == 0
