"""Small colour images: CIFAR-10 with its corruptions, CIFAR-100 and SVHN."""

import io
import os
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.utils import Bunch

from uqformer.datasets._corruptions import check_corruption, corrupt_images
from uqformer.datasets._hub import HubImages, Images, load_hub_images
from uqformer.datasets._pack import check_choice, describe, pack
from uqformer.datasets._source import import_extra, open_source

__all__ = ["fetch_cifar10", "fetch_cifar10c", "fetch_cifar100", "fetch_svhn"]

CIFAR10 = HubImages("cifar10", "uoft-cs/cifar10", image="img")
CIFAR10_FILES = {
    "train": "cifar10/cifar10_train20k.npz",
    "test": "cifar10/cifar10_test10k.npz",
}
CIFAR100 = HubImages("cifar100", "uoft-cs/cifar100", image="img", label="fine_label")
SVHN = HubImages("svhn", "ufldl-stanford/svhn", "cropped_digits")
CIFAR_HOME = "https://www.cs.toronto.edu/~kriz/cifar.html"
SVHN_HOME = "http://ufldl.stanford.edu/housenumbers"
CIFAR_LICENCE = "not stated by its author; in common use for research"


def fetch_cifar10(
    subset: str = "train",
    *,
    data_home: str | os.PathLike[str] | None = None,
    download_if_missing: bool = True,
    return_X_y: bool = False,
) -> Bunch | tuple[Any, Any]:
    """Load CIFAR-10, small photographs of ten kinds of things (classification).

    Parameters
    ----------
    subset : {"train", "test"}, default="train"
        Which part. Both keep all ten classes in equal shares.
    data_home : str or path-like, default=None
        Folder that holds ``cifar10/cifar10_train20k.npz`` and
        ``cifar10/cifar10_test10k.npz``, and that downloads go to. None takes the
        environment variable ``UQFORMER_DATA``, or scikit-learn's data folder.
    download_if_missing : bool, default=True
        Whether to download what the folder lacks, with Hugging Face's `datasets`;
        otherwise that raises.
    return_X_y : bool, default=False
        Whether to return ``(data, target)`` instead of a bunch.

    Returns
    -------
    data : Bunch
        With `data` (uint8, (n_samples, 32, 32, 3)), `target` (n_samples,), the
        `target_names` of the ten classes and `DESCR`. The folder's files hold 20,000
        training images and all 10,000 test images in their original order, coded as
        JPEG, so that pixels differ slightly from the original; from the hub come all
        50,000 and 10,000. With `return_X_y`, the tuple ``(data, target)``.

    Raises
    ------
    ValueError
        If there is no such subset.
    OSError
        If the data are neither in the folder nor to be had, or are damaged.

    See Also
    --------
    fetch_cifar10c : The test images, corrupted.

    References
    ----------
    .. [1] A. Krizhevsky (2009), "Learning Multiple Layers of Features from Tiny
       Images", University of Toronto.

    Examples
    --------
    >>> from uqformer.datasets import fetch_cifar10
    >>> X, y = fetch_cifar10("test", return_X_y=True)  # doctest: +SKIP
    >>> X.shape  # doctest: +SKIP
    (10000, 32, 32, 3)
    """
    check_choice("subset", subset, ("train", "test"))
    X, y, classes = _cifar10(subset, data_home, download_if_missing)
    return _pack_images(
        return_X_y, X, y, classes, "CIFAR-10", subset, CIFAR_HOME, CIFAR_LICENCE
    )


def fetch_cifar10c(
    kind: str,
    severity: int,
    *,
    random_state: int | np.random.RandomState | None = 0,
    data_home: str | os.PathLike[str] | None = None,
    download_if_missing: bool = True,
    return_X_y: bool = False,
) -> Bunch | tuple[Any, Any]:
    """Load the test images of CIFAR-10, corrupted (classification).

    They are made here by `corrupt_images`, in the manner of CIFAR-10-C [1]_; scores on
    them are not to be set beside scores on the published files.

    Parameters
    ----------
    kind : str
        One of `CORRUPTIONS`.
    severity : int
        From 1, mild, to 5, severe.
    random_state : int, RandomState instance or None, default=0
        Where the noise comes from; the same images by default in every call.
    data_home : str or path-like, default=None
        Folder that holds ``cifar10/cifar10_test10k.npz``, and that downloads go to.
        None takes the environment variable ``UQFORMER_DATA``, or scikit-learn's data
        folder.
    download_if_missing : bool, default=True
        Whether to download what the folder lacks, with Hugging Face's `datasets`;
        otherwise that raises.
    return_X_y : bool, default=False
        Whether to return ``(data, target)`` instead of a bunch.

    Returns
    -------
    data : Bunch
        As of ``fetch_cifar10("test")``, row for row, its `data` corrupted. With
        `return_X_y`, the tuple ``(data, target)``.

    Raises
    ------
    ValueError
        If there is no such corruption or severity.
    OSError
        If the data are neither in the folder nor to be had, or are damaged.

    See Also
    --------
    corrupt_images : Corrupt any images.

    References
    ----------
    .. [1] D. Hendrycks, T. Dietterich (2019), "Benchmarking Neural Network Robustness
       to Common Corruptions and Perturbations", ICLR.

    Examples
    --------
    >>> from uqformer.datasets import fetch_cifar10c
    >>> blurred = fetch_cifar10c("defocus_blur", 5)  # doctest: +SKIP
    """
    check_corruption(kind, severity)
    X, y, classes = _cifar10("test", data_home, download_if_missing)
    X = corrupt_images(X, kind, severity, random_state=random_state)
    title = f"CIFAR-10 under {kind} of severity {severity}"
    return _pack_images(
        return_X_y, X, y, classes, title, "test", CIFAR_HOME, CIFAR_LICENCE
    )


def fetch_cifar100(
    subset: str = "train",
    *,
    data_home: str | os.PathLike[str] | None = None,
    download_if_missing: bool = True,
    return_X_y: bool = False,
) -> Bunch | tuple[Any, Any]:
    """Load CIFAR-100, small photographs of a hundred kinds of things (classification).

    None of its classes is one of CIFAR-10, which makes it a hard out-of-distribution
    set for models of CIFAR-10.

    Parameters
    ----------
    subset : {"train", "test"}, default="train"
        Which part: 50,000 or 10,000 images.
    data_home : str or path-like, default=None
        Folder that holds ``cifar100/cifar100_<subset>.npz``, where a download is kept.
        None takes the environment variable ``UQFORMER_DATA``, or scikit-learn's data
        folder.
    download_if_missing : bool, default=True
        Whether to download what the folder lacks, with Hugging Face's `datasets`;
        otherwise that raises.
    return_X_y : bool, default=False
        Whether to return ``(data, target)`` instead of a bunch.

    Returns
    -------
    data : Bunch
        With `data` (uint8, (n_samples, 32, 32, 3)), `target` (n_samples,), the
        `target_names` of the hundred classes and `DESCR`. With `return_X_y`, the tuple
        ``(data, target)``.

    Raises
    ------
    ValueError
        If there is no such subset.
    OSError
        If the data are neither in the folder nor to be had.

    References
    ----------
    .. [1] A. Krizhevsky (2009), "Learning Multiple Layers of Features from Tiny
       Images", University of Toronto.

    Examples
    --------
    >>> from uqformer.datasets import fetch_cifar100
    >>> X, y = fetch_cifar100("test", return_X_y=True)  # doctest: +SKIP
    """
    check_choice("subset", subset, ("train", "test"))
    source = open_source(data_home, download_if_missing)
    X, y, classes = load_hub_images(source, CIFAR100, subset)
    return _pack_images(
        return_X_y, X, y, classes, "CIFAR-100", subset, CIFAR_HOME, CIFAR_LICENCE
    )


def fetch_svhn(
    subset: str = "train",
    *,
    data_home: str | os.PathLike[str] | None = None,
    download_if_missing: bool = True,
    return_X_y: bool = False,
) -> Bunch | tuple[Any, Any]:
    """Load SVHN, house numbers cut to single digits (classification).

    A far out-of-distribution set for models of CIFAR-10.

    Parameters
    ----------
    subset : {"train", "test", "extra"}, default="train"
        Which part: 73,257, 26,032 or 531,131 images; the extra ones are easier.
    data_home : str or path-like, default=None
        Folder that holds ``svhn/svhn_<subset>.npz``, where a download is kept. None
        takes the environment variable ``UQFORMER_DATA``, or scikit-learn's data folder.
    download_if_missing : bool, default=True
        Whether to download what the folder lacks, with Hugging Face's `datasets`;
        otherwise that raises.
    return_X_y : bool, default=False
        Whether to return ``(data, target)`` instead of a bunch.

    Returns
    -------
    data : Bunch
        With `data` (uint8, (n_samples, 32, 32, 3)), `target` (n_samples,), the digits
        as `target_names` and `DESCR`. With `return_X_y`, the tuple ``(data, target)``.

    Raises
    ------
    ValueError
        If there is no such subset.
    OSError
        If the data are neither in the folder nor to be had.

    References
    ----------
    .. [1] Y. Netzer, T. Wang, A. Coates, A. Bissacco, B. Wu, A. Y. Ng (2011), "Reading
       Digits in Natural Images with Unsupervised Feature Learning", NIPS Workshop on
       Deep Learning and Unsupervised Feature Learning.

    Examples
    --------
    >>> from uqformer.datasets import fetch_svhn
    >>> X, y = fetch_svhn("test", return_X_y=True)  # doctest: +SKIP
    """
    check_choice("subset", subset, ("train", "test", "extra"))
    source = open_source(data_home, download_if_missing)
    X, y, classes = load_hub_images(source, SVHN, subset)
    licence = "for non-commercial use, as its authors state"
    return _pack_images(return_X_y, X, y, classes, "SVHN", subset, SVHN_HOME, licence)


def _cifar10(
    subset: str, data_home: str | os.PathLike[str] | None, download_if_missing: bool
) -> Images:
    source = open_source(data_home, download_if_missing)
    name = CIFAR10_FILES[subset]
    found = source.local(name)
    if found:
        return _decode(found[0])
    return load_hub_images(source, CIFAR10, subset, instead=name)


def _decode(path: Path) -> Images:
    """Decode a file in which all images are joined as JPEG."""
    image = import_extra("PIL.Image")
    with np.load(path, allow_pickle=False) as file:
        content, ends = file["jpeg"].tobytes(), file["offsets"].tolist()
        y, classes = file["y"].astype(np.int64), file["classes"].tolist()
    codes = [content[start:end] for start, end in pairwise(ends)]
    X = np.stack([np.asarray(image.open(io.BytesIO(code))) for code in codes])
    return X, y, classes


def _pack_images(
    return_X_y: bool,
    X: Any,
    y: Any,
    classes: list[str],
    title: str,
    subset: str,
    origin: str,
    licence: str,
) -> Bunch | tuple[Any, Any]:
    content = f"{len(X)} images of the {subset} part, 32 x 32 pixels in RGB."
    return pack(
        return_X_y,
        data=X,
        target=y,
        target_names=classes,
        DESCR=describe(title, content, origin, licence),
    )
