"""Images of Hugging Face: fetched once, kept as one file, read without the hub."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from uqformer.datasets import _hub
from uqformer.datasets._hub import HubImages, load_hub_images
from uqformer.datasets._source import open_source

pytest.importorskip("PIL.Image")

IMAGES = HubImages("shapes", "someone/shapes", "small", image="img", label="kind")
PIXELS = np.arange(3 * 4 * 4 * 3, dtype=np.uint8).reshape(3, 4, 4, 3)


@pytest.fixture
def shapes(hub: Any) -> Any:
    hub.fill({"img": list(PIXELS), "kind": [1, 0, 1]}, kind=["square", "circle"])
    return hub


def test_a_subset_is_fetched_once_and_kept(shapes: Any, tmp_path: Path) -> None:
    source = open_source(tmp_path, True)
    for _ in range(2):
        X, y, classes = load_hub_images(source, IMAGES, "test")
        np.testing.assert_array_equal(X, PIXELS)
        assert X.dtype == np.uint8
        assert y.dtype == np.int64
        assert (y.tolist(), classes) == ([1, 0, 1], ["square", "circle"])
    cache = tmp_path / "huggingface"
    assert shapes.asked == [("someone/shapes", "small", "test", cache)]
    kept = [path.name for path in (tmp_path / "shapes").iterdir()]
    assert kept == ["shapes_test.npz"]


def test_what_is_kept_needs_neither_hub_nor_permission(
    shapes: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load_hub_images(open_source(tmp_path, True), IMAGES, "test")

    def refuse(module: str) -> None:
        raise AssertionError(module)

    monkeypatch.setattr(_hub, "import_extra", refuse)
    X, _, _ = load_hub_images(open_source(tmp_path, False), IMAGES, "test")
    np.testing.assert_array_equal(X, PIXELS)


def test_a_failed_write_leaves_nothing(
    shapes: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fill_the_disk(file: Any, **arrays: Any) -> None:
        file.write(b"half")
        raise OSError("No space left on device")

    monkeypatch.setattr(_hub.np, "savez", fill_the_disk)
    with pytest.raises(OSError, match="No space left"):
        load_hub_images(open_source(tmp_path, True), IMAGES, "test")
    assert list((tmp_path / "shapes").iterdir()) == []


def test_errors_name_both_ways(hub: Any, tmp_path: Path) -> None:
    expected = r"Hugging Face \(someone/shapes\).* holds shapes/shapes_test\.npz"
    with pytest.raises(OSError, match=expected):
        load_hub_images(open_source(tmp_path, True), IMAGES, "test")
    asked = len(hub.asked)
    with pytest.raises(FileNotFoundError, match=r"holds other\.npz.*Hugging Face"):
        load_hub_images(open_source(tmp_path, False), IMAGES, "test", "other.npz")
    assert len(hub.asked) == asked


def test_a_missing_library_names_both_ways(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # what Python holds for a module that cannot be imported
    monkeypatch.setitem(sys.modules, "datasets", None)
    expected = r"'datasets', .* pip install .* Or set data_home .*shapes_test\.npz"
    with pytest.raises(ImportError, match=expected):
        load_hub_images(open_source(tmp_path, True), IMAGES, "test")
