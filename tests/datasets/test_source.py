"""Folder first, network where allowed, whole files or none, and errors that help."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from uqformer.datasets import _source
from uqformer.datasets._registry import FILES
from uqformer.datasets._source import (
    digest_of,
    import_extra,
    open_source,
    written_whole,
)

URL = "https://example.org/file.csv"
BOTH_WAYS = r"data_home or the environment variable UQFORMER_DATA .* holds a/file\.csv"


def _files(folder: Path) -> list[str]:
    return sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*.*"))


# -- the folder ---------------------------------------------------------------------


def test_the_argument_goes_before_the_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCIKIT_LEARN_DATA", str(tmp_path / "sklearn"))
    assert open_source(None, True).folder == tmp_path / "sklearn" / "uqformer"
    monkeypatch.setenv("UQFORMER_DATA", str(tmp_path / "variable"))
    assert open_source(None, True).folder == tmp_path / "variable"
    assert open_source(tmp_path / "argument", True).folder == tmp_path / "argument"
    assert open_source("~/data", True).folder == Path.home() / "data"


def test_scikit_learns_folder_is_not_made_for_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCIKIT_LEARN_DATA", str(tmp_path / "sklearn"))
    open_source(tmp_path, True)
    assert not (tmp_path / "sklearn").exists()


def test_all_files_or_none(tmp_path: Path, register: Any) -> None:
    first, second = register("a/one", b"1"), register("a/two", b"2")
    source = open_source(tmp_path, False)
    assert source.local("a/one", "a/two") == [first, second]
    second.unlink()
    assert source.local("a/one", "a/two") == []


def test_a_damaged_file_raises(tmp_path: Path, register: Any) -> None:
    path = register("a/file", b"right")
    path.write_bytes(b"wrong")
    expected = rf"must have the sha256 {digest_of(b'right')}; got {digest_of(b'wrong')}"
    with pytest.raises(OSError, match=expected):
        open_source(tmp_path, True).local("a/file")


def test_a_short_checksum_is_an_md5(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_bytes(b"right")
    monkeypatch.setitem(FILES, "file", digest_of(b"right", "md5"))
    assert open_source(tmp_path, True).local("file") == [tmp_path / "file"]
    monkeypatch.setitem(FILES, "file", digest_of(b"other", "md5"))
    with pytest.raises(OSError, match="must have the md5"):
        open_source(tmp_path, True).local("file")


def test_a_file_is_hashed_once_until_it_changes(
    tmp_path: Path, register: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    hashed = []
    honest = _source.digest_of

    def count(data: bytes, algorithm: str = "sha256") -> str:
        hashed.append(data)
        return honest(data, algorithm)

    path = register("a/file", b"right")
    monkeypatch.setattr(_source, "digest_of", count)
    for _ in range(3):
        open_source(tmp_path, True).local("a/file")
    assert hashed == [b"right"]
    path.write_bytes(b"changed")
    with pytest.raises(OSError, match="damaged"):
        open_source(tmp_path, True).local("a/file")
    assert hashed == [b"right", b"changed"]


# -- the network --------------------------------------------------------------------


def test_a_download_is_kept(tmp_path: Path, web: Any) -> None:
    web[URL] = b"content"
    source = open_source(tmp_path, True)
    for _ in range(2):
        path = source.download(URL, "a/file.csv")
        assert path == tmp_path / "a/file.csv"
        assert path.read_bytes() == b"content"
    assert web.asked == [URL]
    assert _files(tmp_path) == ["a/file.csv"]


def test_a_download_is_verified_before_it_has_its_name(
    tmp_path: Path, web: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    web[URL] = b"content"
    monkeypatch.setitem(FILES, "a/file.csv", digest_of(b"other"))
    with pytest.raises(OSError, match="must have the sha256"):
        open_source(tmp_path, True).download(URL, "a/file.csv")
    assert _files(tmp_path) == []


def test_a_broken_connection_leaves_nothing(tmp_path: Path, web: Any) -> None:
    web[URL] = b"content"
    web.length_told = 99
    with pytest.raises(OSError, match="ended before all 99 bytes"):
        open_source(tmp_path, True).download(URL, "a/file.csv")
    assert _files(tmp_path) == []


def test_without_permission_nothing_is_asked(tmp_path: Path, web: Any) -> None:
    with pytest.raises(FileNotFoundError, match=BOTH_WAYS) as caught:
        open_source(tmp_path, False).download(URL, "a/file.csv")
    assert "download_if_missing=True" in str(caught.value)
    assert web.asked == []


def test_an_error_names_both_ways(tmp_path: Path, web: Any) -> None:
    with pytest.raises(OSError, match=BOTH_WAYS) as caught:
        open_source(tmp_path, True).download(URL, "a/file.csv")
    assert "Name or service not known" in str(caught.value)
    assert "try again with a network" in str(caught.value)
    assert isinstance(caught.value.__cause__, OSError)


def test_an_error_names_the_file_that_would_do(tmp_path: Path, web: Any) -> None:
    with pytest.raises(OSError, match=r"a folder that holds b/whole\.npz"):
        open_source(tmp_path, True).download(URL, "a/file.csv", "b/whole.npz")


# -- whole or not at all ------------------------------------------------------------


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "a" / "file.csv"
    with written_whole(path) as unfinished:
        unfinished.write_text("old")

    def fail() -> None:
        with written_whole(path) as unfinished:
            unfinished.write_text("half of the n")
            assert path.read_text() == "old"
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert path.read_text() == "old"
    assert _files(tmp_path) == ["a/file.csv"]


def test_two_writers_do_not_meet(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with written_whole(path) as one, written_whole(path) as other:
        assert one != other
        one.write_text("one")
        other.write_text("other")
    assert path.read_text() == "one"


# -- optional packages --------------------------------------------------------------


def test_a_missing_package_says_how_to_get_it() -> None:
    expected = r"'no_such_package', .* pip install \"uqformer\[data\]\""
    with pytest.raises(ImportError, match=expected):
        import_extra("no_such_package.part")


def test_a_missing_package_may_be_done_without(tmp_path: Path) -> None:
    source = open_source(tmp_path, True)
    expected = r"pip install .* Or set data_home"
    with pytest.raises(ImportError, match=expected), source.public("hub", "a/file.csv"):
        import_extra("no_such_package")


def test_nothing_optional_is_loaded_on_import() -> None:
    code = """if True:
        import socket, sys
        def refuse(*arguments): sys.exit("import goes to the network")
        socket.socket.connect = refuse
        import uqformer.datasets
        optional = {"PIL", "datasets", "torch", "xarray"}
        sys.exit(", ".join(optional & set(sys.modules)) or 0)
    """
    root = str(Path(__file__).resolve().parents[2])
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=root, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
