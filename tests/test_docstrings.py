"""Every public name explains itself: numpydoc's rules, run over all of them."""

import importlib
import inspect
from collections.abc import Iterator
from typing import Any

import pytest

validate = pytest.importorskip("numpydoc.validate")

IGNORED = {
    "GL01": "the summary starts on the line of the opening quotes",
    "ES01": "a summary that says everything needs no second paragraph",
    "SA01": "See Also stands where there is something to see",
    "RT02": "returned values have names, as in scikit-learn",
}
IGNORED_IN_METHODS = IGNORED | {"EX01": "the class shows its methods at work"}


def _own_methods(obj: type) -> Iterator[str]:
    """Public methods and properties written here, not inherited from elsewhere."""
    for base in obj.__mro__:
        if not base.__module__.startswith("uqformer"):
            continue
        for name, member in vars(base).items():
            kinds = (property, classmethod, staticmethod)
            # forward is torch's word for calling the module, which its class explains
            if (
                not name.startswith("_")
                and name != "forward"
                and (inspect.isfunction(member) or isinstance(member, kinds))
            ):
                yield name


def _complaints(path: str, ignored: dict[str, str]) -> list[str]:
    report = validate.validate(path)
    # a function that hands a generator on says what it yields, not what it returns
    ignored = ignored | ({"RT01": ""} if "\nYields\n" in report["docstring"] else {})
    return [
        f"{path}: {code} {text}"
        for code, text in report["errors"]
        if code not in ignored
    ]


def test_docstring_follows_numpydoc(public_path: str) -> None:
    module, _, name = public_path.rpartition(".")
    obj: Any = getattr(importlib.import_module(module), name)
    if not callable(obj):
        pytest.skip(f"{public_path} is a constant, explained by its module")
    complaints = _complaints(public_path, IGNORED)
    if inspect.isclass(obj):
        for method in sorted(set(_own_methods(obj))):
            complaints += _complaints(f"{public_path}.{method}", IGNORED_IN_METHODS)
    assert complaints == []
