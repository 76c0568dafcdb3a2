"""What all fetchers hand back: one bunch that says where its data come from."""

from collections.abc import Collection
from typing import Any

from sklearn.utils import Bunch

__all__ = ["check_choice", "describe", "pack"]


def check_choice(name: str, value: Any, choices: Collection[str]) -> None:
    """Raise if a parameter is none of the words that it may be."""
    if not isinstance(value, str) or value not in choices:
        words = ", ".join(repr(choice) for choice in choices)
        raise ValueError(f"{name} must be one of {words}; got {name}={value!r}.")


def describe(title: str, content: str, origin: str, licence: str) -> str:
    """Write the text that stands as DESCR in a bunch."""
    return f"{title}\n\n{content}\n\nOrigin: {origin}\nLicence: {licence}\n"


def pack(return_X_y: bool, **fields: Any) -> Bunch | tuple[Any, Any]:
    """Return all fields as a bunch, or data and target alone."""
    return (fields["data"], fields["target"]) if return_X_y else Bunch(**fields)
