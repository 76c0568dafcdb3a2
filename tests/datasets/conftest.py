"""Stand-ins for the network: no test of this folder ever reaches it."""

import io
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from uqformer.datasets import _source, _tables
from uqformer.datasets._registry import FILES

Register = Callable[[str, bytes], Path]


def _refuse(*arguments: Any, **options: Any) -> None:
    raise AssertionError(f"a test went to the network: {arguments} {options}")


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("UQFORMER_DATA", raising=False)
    monkeypatch.setattr(_source.urllib.request, "urlopen", _refuse)
    monkeypatch.setattr(_tables, "fetch_openml", _refuse)
    monkeypatch.setattr(_tables, "fetch_covtype", _refuse)
    refusing = SimpleNamespace(load_dataset=_refuse)
    monkeypatch.setitem(sys.modules, "datasets", refusing)


@pytest.fixture(scope="session")
def data_dir(uci_dir: Path) -> Path:
    """Folder of the public data, the UCI tables among them."""
    return uci_dir.parent


@pytest.fixture
def register(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Register:
    """Write a file to `tmp_path` and list it as the one that belongs there."""

    def write(name: str, content: bytes) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        monkeypatch.setitem(FILES, name, _source.digest_of(content))
        return path

    return write


@pytest.fixture
def npz() -> Callable[..., bytes]:
    """Turn arrays into the bytes of a file."""

    def pack(**arrays: Any) -> bytes:
        file = io.BytesIO()
        np.savez(file, **arrays)
        return file.getvalue()

    return pack


class Web(dict[str, bytes]):
    """Addresses and what lies there; keeps what was asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.length_told: int | None = None

    def urlopen(self, url: str, timeout: float) -> Any:
        assert timeout > 0
        self.asked.append(url)
        if url not in self:
            raise OSError("Name or service not known")
        answer = io.BytesIO(self[url])
        told = len(self[url]) if self.length_told is None else self.length_told
        answer.headers = {"Content-Length": str(told)}  # type: ignore[attr-defined]
        return answer


@pytest.fixture
def web(monkeypatch: pytest.MonkeyPatch) -> Web:
    standin = Web()
    monkeypatch.setattr(_source.urllib.request, "urlopen", standin.urlopen)
    return standin


class Rows(dict[str, list[Any]]):
    """Columns as Hugging Face hands them over."""

    def __init__(self, columns: dict[str, list[Any]], **names: list[str]) -> None:
        super().__init__(columns)
        self.features = {
            name: SimpleNamespace(names=classes) for name, classes in names.items()
        }


class Hub(ModuleType):
    """A `datasets` that holds one set and keeps what was asked for."""

    def __init__(self) -> None:
        super().__init__("datasets")
        self.rows: Any = ConnectionError("Couldn't reach the hub")
        self.asked: list[tuple[Any, ...]] = []

    def load_dataset(
        self, path: str, name: str | None = None, *, split: str, cache_dir: str
    ) -> Rows:
        self.asked.append((path, name, split, Path(cache_dir)))
        if isinstance(self.rows, Exception):
            raise self.rows
        rows: Rows = self.rows
        return rows

    def fill(self, columns: dict[str, list[Any]], **names: list[str]) -> None:
        self.rows = Rows(columns, **names)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Hub:
    standin = Hub()
    monkeypatch.setitem(sys.modules, "datasets", standin)
    return standin
