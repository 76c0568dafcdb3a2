"""Where data come from: a folder first, the public source where that is allowed."""

import hashlib
import os
import shutil
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any
from uuid import uuid4

from sklearn.datasets import get_data_home

from uqformer.datasets._registry import FILES

__all__ = ["Source", "digest_of", "import_extra", "open_source", "written_whole"]

TIMEOUT = 60.0
"""Seconds without an answer after which a download is given up."""


@dataclass(frozen=True)
class Source:
    """A folder of data files, and whether what it lacks may be downloaded into it."""

    folder: Path
    download_if_missing: bool

    def local(self, *names: str) -> list[Path]:
        """Return the verified files, or none if one of them is not in the folder."""
        paths = [self.folder / name for name in names]
        if not all(path.is_file() for path in paths):
            return []
        for name, path in zip(names, paths, strict=True):
            _verify(path, name)
        return paths

    @contextmanager
    def public(self, origin: str, *names: str) -> Iterator[None]:
        """Guard a block that goes to `origin` for want of `names`."""
        remedy = (
            "set data_home or the environment variable UQFORMER_DATA to a folder that "
            f"holds {' and '.join(names)}"
        )
        if not self.download_if_missing:
            raise FileNotFoundError(
                f"Not all of the data are in {self.folder}; {remedy}, or pass "
                f"download_if_missing=True to have them from {origin}."
            )
        try:
            yield
        except ImportError as error:
            raise ImportError(f"{error} Or {remedy}.") from error
        except OSError as error:
            raise OSError(
                f"The data could not be had from {origin} ({error}); try again with a "
                f"network, or {remedy}."
            ) from error

    def download(self, url: str, name: str, instead: str | None = None) -> Path:
        """Return the file `name` of the folder, from `url` if it is not there.

        An error names the file that would do `instead`, where that is another one.
        """
        found = self.local(name)
        if found:
            return found[0]
        path = self.folder / name
        with self.public(url, instead or name), written_whole(path) as unfinished:
            with (
                urllib.request.urlopen(url, timeout=TIMEOUT) as answer,
                unfinished.open("wb") as file,
            ):
                shutil.copyfileobj(answer, file)
                length = answer.headers.get("Content-Length", file.tell())
            # a connection that breaks looks like the end of the file
            if unfinished.stat().st_size != int(length):
                raise OSError(f"it ended before all {length} bytes had come")
            _verify(unfinished, name)
        return path


def open_source(
    data_home: str | os.PathLike[str] | None, download_if_missing: bool
) -> Source:
    """Choose the folder: `data_home`, else UQFORMER_DATA, else scikit-learn's own."""
    chosen = data_home or os.environ.get("UQFORMER_DATA")
    # get_data_home makes its folder, so it is asked only when nothing else was chosen
    folder = Path(chosen).expanduser() if chosen else Path(get_data_home(), "uqformer")
    return Source(folder, download_if_missing)


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """Hand out a path to write to, which becomes `path` only if the block succeeds."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # a name of its own, so that two processes may write at once
    unfinished = path.with_name(f".{path.name}.{uuid4().hex}.partial")
    try:
        yield unfinished
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def import_extra(module: str, install: str = '"uqformer[data]"') -> Any:
    """Import an optional module, or say how to get it."""
    try:
        return import_module(module)
    except ImportError as error:
        raise ImportError(
            f"These data need the package {module.partition('.')[0]!r}, which is not "
            f"installed. Try pip install {install}."
        ) from error


def digest_of(data: bytes, algorithm: str = "sha256") -> str:
    """Return the hexadecimal digest of some bytes."""
    return hashlib.new(algorithm, data, usedforsecurity=False).hexdigest()


def _verify(path: Path, name: str) -> None:
    """Raise if the file is listed under `name` and is not what is listed."""
    expected = FILES.get(name)
    if expected is None:
        return
    algorithm = "md5" if len(expected) == 32 else "sha256"
    state = path.stat()
    got = _file_digest(str(path), state.st_size, state.st_mtime_ns, algorithm)
    if got != expected:
        raise OSError(
            f"{path} must have the {algorithm} {expected}; got {got}. It is damaged or "
            "another version: replace it, or delete it to have it downloaded."
        )


@cache
def _file_digest(path: str, size: int, mtime_ns: int, algorithm: str) -> str:
    """Digest of a file; size and time of change are there to be part of the key."""
    return digest_of(Path(path).read_bytes(), algorithm)
