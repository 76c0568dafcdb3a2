"""Handwritten characters in grey: MNIST, and Omniglot as its stranger."""

import io
import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.utils import Bunch

from uqformer._typing import AnyArray
from uqformer.datasets._hub import HubImages, load_hub_images
from uqformer.datasets._pack import check_choice, describe, pack
from uqformer.datasets._source import import_extra, open_source

__all__ = ["fetch_mnist", "fetch_omniglot"]

MNIST = HubImages("mnist", "ylecun/mnist")
MNIST_FILE = "images/mnist_t10k.npz"
OMNIGLOT_FILE = "images/omniglot_small1_28x28.npz"
OMNIGLOT_URL = (
    "https://raw.githubusercontent.com/brendenlake/omniglot/master/python/"
    "images_background_small1.zip"
)


def fetch_mnist(
    subset: str = "test",
    *,
    data_home: str | os.PathLike[str] | None = None,
    download_if_missing: bool = True,
    return_X_y: bool = False,
) -> Bunch | tuple[Any, Any]:
    """Load MNIST, handwritten digits (classification).

    Parameters
    ----------
    subset : {"test", "train"}, default="test"
        Which part: 10,000 images, or 60,000 that only the hub has.
    data_home : str or path-like, default=None
        Folder that holds ``images/mnist_t10k.npz``, and that downloads go to. None
        takes the environment variable ``UQFORMER_DATA``, or scikit-learn's data folder.
    download_if_missing : bool, default=True
        Whether to download what the folder lacks, with Hugging Face's `datasets`;
        otherwise that raises.
    return_X_y : bool, default=False
        Whether to return ``(data, target)`` instead of a bunch.

    Returns
    -------
    data : Bunch
        With `data` (uint8, (n_samples, 28, 28)), `target` (n_samples,), the digits as
        `target_names` and `DESCR`; in the original order. With `return_X_y`, the tuple
        ``(data, target)``.

    Raises
    ------
    ValueError
        If there is no such subset.
    OSError
        If the data are neither in the folder nor to be had, or are damaged.

    See Also
    --------
    fetch_omniglot : Letters that no model of digits should be sure of.

    References
    ----------
    .. [1] Y. LeCun, L. Bottou, Y. Bengio, P. Haffner (1998), "Gradient-Based Learning
       Applied to Document Recognition", Proceedings of the IEEE 86.

    Examples
    --------
    >>> from uqformer.datasets import fetch_mnist
    >>> X, y = fetch_mnist("test", return_X_y=True)  # doctest: +SKIP
    """
    check_choice("subset", subset, ("test", "train"))
    source = open_source(data_home, download_if_missing)
    found = source.local(MNIST_FILE) if subset == "test" else []
    if found:
        with np.load(found[0], allow_pickle=False) as file:
            X, y = file["x"], file["y"].astype(np.int64)
        digits = [str(digit) for digit in range(10)]
    else:
        instead = MNIST_FILE if subset == "test" else None
        X, y, digits = load_hub_images(source, MNIST, subset, instead)
    return pack(
        return_X_y,
        data=X,
        target=y,
        target_names=digits,
        DESCR=describe(
            "MNIST: handwritten digits",
            f"{len(X)} images of the {subset} part, 28 x 28 pixels, white on black.",
            "http://yann.lecun.com/exdb/mnist",
            "MIT, as the hub states",
        ),
    )


def fetch_omniglot(
    *,
    data_home: str | os.PathLike[str] | None = None,
    download_if_missing: bool = True,
    return_X_y: bool = False,
) -> Bunch | tuple[Any, Any]:
    """Load Omniglot's characters of five alphabets (classification).

    Balinese, Early Aramaic, Greek, Korean and Latin, 20 drawings of each of 136
    characters, in the size and colours of MNIST: an out-of-distribution set for models
    of digits.

    Parameters
    ----------
    data_home : str or path-like, default=None
        Folder that holds ``images/omniglot_small1_28x28.npz``, and that downloads go
        to. None takes the environment variable ``UQFORMER_DATA``, or scikit-learn's
        data folder.
    download_if_missing : bool, default=True
        Whether to download what the folder lacks; otherwise that raises.
    return_X_y : bool, default=False
        Whether to return ``(data, target)`` instead of a bunch.

    Returns
    -------
    data : Bunch
        With `data` (uint8, (2720, 28, 28)), `target` (2720,), the `target_names` of
        the characters and `DESCR`. A download is scaled down from 105 x 105 pixels by
        means over areas; its greys may differ from those of the folder's file. With
        `return_X_y`, the tuple ``(data, target)``.

    Raises
    ------
    OSError
        If the data are neither in the folder nor to be had, or are damaged.

    See Also
    --------
    fetch_mnist : The digits.

    References
    ----------
    .. [1] B. M. Lake, R. Salakhutdinov, J. B. Tenenbaum (2015), "Human-Level Concept
       Learning through Probabilistic Program Induction", Science 350.

    Examples
    --------
    >>> from uqformer.datasets import fetch_omniglot
    >>> X, y = fetch_omniglot(return_X_y=True)  # doctest: +SKIP
    """
    source = open_source(data_home, download_if_missing)
    found = source.local(OMNIGLOT_FILE)
    if found:
        with np.load(found[0], allow_pickle=False) as file:
            X, y = file["x"], file["y"].astype(np.int64)
            names = file["char_names"].tolist()
    else:
        archive = "images/images_background_small1.zip"
        X, y, names = _unzip(source.download(OMNIGLOT_URL, archive, OMNIGLOT_FILE))
    return pack(
        return_X_y,
        data=X,
        target=y,
        target_names=names,
        DESCR=describe(
            "Omniglot: handwritten characters of five alphabets",
            f"{len(X)} images, 28 x 28 pixels, white on black; {len(names)} classes.",
            "https://github.com/brendenlake/omniglot",
            "MIT",
        ),
    )


def _unzip(path: Path) -> tuple[AnyArray, AnyArray, list[str]]:
    """Read drawings named <alphabet>/<character>/<drawing>.png, black on white."""
    pillow = import_extra("PIL.Image")
    with zipfile.ZipFile(path) as archive:
        drawings = sorted(
            name
            for name in archive.namelist()
            # archives packed on a Mac carry shadows of their files
            if name.endswith(".png") and not name.startswith("__MACOSX")
        )
        images = [
            pillow.open(io.BytesIO(archive.read(name)))
            .convert("L")
            .resize((28, 28), pillow.Resampling.BOX)
            for name in drawings
        ]
    characters = ["/".join(name.split("/")[-3:-1]) for name in drawings]
    names, y = np.unique(characters, return_inverse=True)
    return 255 - np.stack([np.asarray(image) for image in images]), y, names.tolist()
