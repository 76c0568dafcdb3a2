"""CIFAR-10 from its folder and from the hub, its corruptions, CIFAR-100 and SVHN."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from uqformer.datasets import (
    corrupt_images,
    fetch_cifar10,
    fetch_cifar10c,
    fetch_cifar100,
    fetch_svhn,
)

pillow = pytest.importorskip("PIL.Image")

CLASSES = ["airplane", "automobile", "bird"]
PIXELS = np.random.default_rng(0).integers(0, 256, (4, 32, 32, 3)).astype(np.uint8)
LABELS = [2, 0, 1, 2]


def _jpeg(image: Any) -> bytes:
    file = io.BytesIO()
    pillow.fromarray(image).save(file, format="JPEG")
    return file.getvalue()


@pytest.fixture
def folder(tmp_path: Path, register: Any, npz: Any) -> Path:
    """A folder with a test set of four images."""
    codes = [_jpeg(image) for image in PIXELS]
    content = npz(
        jpeg=np.frombuffer(b"".join(codes), dtype=np.uint8),
        offsets=np.cumsum([0, *map(len, codes)]),
        y=np.array(LABELS, dtype=np.uint8),
        classes=CLASSES,
    )
    register("cifar10/cifar10_test10k.npz", content)
    return tmp_path


def test_joined_jpegs_are_parted_and_decoded(folder: Path) -> None:
    cifar = fetch_cifar10("test", data_home=folder, download_if_missing=False)
    assert cifar.data.shape == (4, 32, 32, 3)
    assert cifar.data.dtype == np.uint8
    assert (cifar.target.tolist(), cifar.target_names) == (LABELS, CLASSES)
    for image, original in zip(cifar.data, PIXELS, strict=True):
        expected = np.asarray(pillow.open(io.BytesIO(_jpeg(original))))
        np.testing.assert_array_equal(image, expected)
    assert "Krizhevsky" not in cifar.DESCR
    assert "cs.toronto.edu" in cifar.DESCR
    X, y = fetch_cifar10("test", data_home=folder, return_X_y=True)
    np.testing.assert_array_equal(X, cifar.data)
    np.testing.assert_array_equal(y, cifar.target)


def test_the_folders_images_are_the_test_set(data_dir: Path) -> None:
    cifar = fetch_cifar10("test", data_home=data_dir)
    assert cifar.data.shape == (10000, 32, 32, 3)
    assert np.bincount(cifar.target).tolist() == [1000] * 10
    assert cifar.target_names[cifar.target[0]] == "cat"
    # the same images, decoded when the folder was made
    with np.load(data_dir / "cifar10/cifar10_mini_raw.npz") as mini:
        np.testing.assert_array_equal(cifar.data[mini["test_index"]], mini["x_test"])
        np.testing.assert_array_equal(cifar.target[mini["test_index"]], mini["y_test"])


def test_corrupted_rows_are_those_of_the_test_set(folder: Path) -> None:
    clean = fetch_cifar10("test", data_home=folder)
    worse = fetch_cifar10c("gaussian_noise", 3, data_home=folder)
    np.testing.assert_array_equal(worse.target, clean.target)
    expected = corrupt_images(clean.data, "gaussian_noise", 3, random_state=0)
    np.testing.assert_array_equal(worse.data, expected)
    assert "gaussian_noise of severity 3" in worse.DESCR
    other = fetch_cifar10c("gaussian_noise", 3, random_state=1, data_home=folder)
    assert not np.array_equal(other.data, worse.data)
    X, y = fetch_cifar10c("gaussian_noise", 3, data_home=folder, return_X_y=True)
    np.testing.assert_array_equal(X, worse.data)
    np.testing.assert_array_equal(y, worse.target)


@pytest.mark.parametrize(
    ("kind", "severity", "message"),
    [("fog", 1, "kind must be one of"), ("contrast", 6, "severity must be a whole")],
)
def test_an_unknown_corruption_raises_before_a_download(
    kind: str, severity: int, message: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=message):
        fetch_cifar10c(kind, severity, data_home=tmp_path)


@pytest.mark.parametrize(
    ("fetch", "subset", "columns", "asked"),
    [
        (fetch_cifar10, "train", ("img", "label"), ("uoft-cs/cifar10", None)),
        (fetch_cifar100, "train", ("img", "fine_label"), ("uoft-cs/cifar100", None)),
        (
            fetch_svhn,
            "extra",
            ("image", "label"),
            ("ufldl-stanford/svhn", "cropped_digits"),
        ),
    ],
    ids=["cifar10", "cifar100", "svhn"],
)
def test_the_hub_is_asked_for_the_right_columns(
    hub: Any, tmp_path: Path, fetch: Any, subset: str, columns: Any, asked: Any
) -> None:
    image, label = columns
    images = [pillow.fromarray(pixels) for pixels in PIXELS]
    hub.fill({image: images, label: LABELS}, **{label: CLASSES})
    bunch = fetch(subset, data_home=tmp_path)
    assert hub.asked == [(*asked, subset, tmp_path / "huggingface")]
    np.testing.assert_array_equal(bunch.data, PIXELS)
    assert bunch.target.tolist() == LABELS
    assert bunch.target_names == CLASSES
    again = fetch(subset, data_home=tmp_path, download_if_missing=False)
    np.testing.assert_array_equal(again.data, PIXELS)
    assert len(hub.asked) == 1


def test_an_error_names_the_folders_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"cifar10/cifar10_train20k\.npz"):
        fetch_cifar10(data_home=tmp_path, download_if_missing=False)
    with pytest.raises(FileNotFoundError, match=r"cifar100/cifar100_test\.npz"):
        fetch_cifar100("test", data_home=tmp_path, download_if_missing=False)


@pytest.mark.parametrize("fetch", [fetch_cifar10, fetch_cifar100, fetch_svhn])
def test_unknown_subsets_raise(fetch: Any) -> None:
    with pytest.raises(ValueError, match="subset must be one of 'train', 'test'"):
        fetch("validation")
