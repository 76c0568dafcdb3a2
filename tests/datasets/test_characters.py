"""MNIST and Omniglot: from a folder, and from their sources played by stand-ins."""

import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from uqformer.datasets import _characters, fetch_mnist, fetch_omniglot

pillow = pytest.importorskip("PIL.Image")


def test_mnist_is_the_test_set_in_its_order(data_dir: Path) -> None:
    mnist = fetch_mnist(data_home=data_dir, download_if_missing=False)
    assert mnist.data.shape == (10000, 28, 28)
    assert mnist.data.dtype == np.uint8
    assert mnist.target[:5].tolist() == [7, 2, 1, 0, 4]
    assert mnist.target_names == list("0123456789")
    X, y = fetch_mnist("test", data_home=data_dir, return_X_y=True)
    np.testing.assert_array_equal(X, mnist.data)
    np.testing.assert_array_equal(y, mnist.target)


@pytest.mark.parametrize("subset", ["test", "train"])
def test_mnist_from_the_hub(hub: Any, tmp_path: Path, subset: str) -> None:
    pixels = np.arange(2 * 28 * 28, dtype=np.uint16).reshape(2, 28, 28) % 256
    images = [pillow.fromarray(image.astype(np.uint8)) for image in pixels]
    digits = list("0123456789")
    hub.fill({"image": images, "label": [3, 9]}, label=digits)
    mnist = fetch_mnist(subset, data_home=tmp_path)
    assert hub.asked == [("ylecun/mnist", None, subset, tmp_path / "huggingface")]
    np.testing.assert_array_equal(mnist.data, pixels)
    assert mnist.target.tolist() == [3, 9]
    assert mnist.target_names == digits


def test_the_folder_has_no_training_digits(data_dir: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"holds mnist/mnist_train\.npz"):
        fetch_mnist("train", data_home=data_dir, download_if_missing=False)
    with pytest.raises(ValueError, match="subset must be one of"):
        fetch_mnist("validation")


def test_omniglot_has_136_characters_of_five_alphabets(data_dir: Path) -> None:
    omniglot = fetch_omniglot(data_home=data_dir, download_if_missing=False)
    assert omniglot.data.shape == (2720, 28, 28)
    assert np.bincount(omniglot.target).tolist() == [20] * 136
    alphabets = {name.split("/")[0] for name in omniglot.target_names}
    assert len(alphabets) == 5
    # white on black, as MNIST
    assert np.median(omniglot.data) == 0


def _png(grey: Any) -> bytes:
    file = io.BytesIO()
    pillow.fromarray(grey).convert("1").save(file, format="PNG")
    return file.getvalue()


def test_drawings_are_unpacked_in_white_on_black(web: Any, tmp_path: Path) -> None:
    paper = np.full((105, 105), 255, dtype=np.uint8)
    drawn = paper.copy()
    drawn[:, :45] = 0
    top = "images_background_small1"
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(f"{top}/Latin/character02/0002_01.png", _png(paper))
        archive.writestr(f"{top}/Greek/character01/0001_02.png", _png(drawn))
        archive.writestr(f"{top}/Greek/character01/0001_01.png", _png(paper))
        archive.writestr(f"__MACOSX/{top}/Greek/character01/._0001_01.png", b"?")
        archive.writestr(f"{top}/Latin/readme.txt", b"?")
    web[_characters.OMNIGLOT_URL] = file.getvalue()
    omniglot = fetch_omniglot(data_home=tmp_path)
    assert omniglot.target_names == ["Greek/character01", "Latin/character02"]
    assert omniglot.target.tolist() == [0, 0, 1]
    assert omniglot.data.shape == (3, 28, 28)
    assert omniglot.data.dtype == np.uint8
    assert omniglot.data[[0, 2]].max() == 0
    # 45 of 105 columns are ink: 12 of 28
    assert (omniglot.data[1] == np.repeat([255, 0], [12, 16])).all()
    fetch_omniglot(data_home=tmp_path, download_if_missing=False)
    assert web.asked == [_characters.OMNIGLOT_URL]


def test_an_error_names_the_folders_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"omniglot_small1_28x28\.npz"):
        fetch_omniglot(data_home=tmp_path, download_if_missing=False)
    with pytest.raises(FileNotFoundError, match=r"images/mnist_t10k\.npz"):
        fetch_mnist(data_home=tmp_path, download_if_missing=False)
