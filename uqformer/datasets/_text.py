"""Sentences and reviews: CoLA with its shifted part, and IMDB."""

import csv
import gzip
import os
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.utils import Bunch

from uqformer._typing import AnyArray
from uqformer.datasets._pack import check_choice, describe, pack
from uqformer.datasets._source import Source, import_extra, open_source, written_whole

__all__ = ["fetch_cola", "fetch_imdb"]

COLA_URL = (
    "https://raw.githubusercontent.com/nyu-mll/CoLA-baselines/master/"
    "acceptability_corpus/cola_public/raw"
)
COLA_FILES = {
    "train": "in_domain_train.tsv",
    "in_domain_dev": "in_domain_dev.tsv",
    "out_of_domain_dev": "out_of_domain_dev.tsv",
}
IMDB_PATH = "stanfordnlp/imdb"


def fetch_cola(
    subset: str = "train",
    *,
    data_home: str | os.PathLike[str] | None = None,
    download_if_missing: bool = True,
    return_X_y: bool = False,
) -> Bunch | tuple[Any, Any]:
    """Load CoLA: is an English sentence acceptable to linguists (classification).

    The out-of-domain part comes from other books than the rest: a natural shift.

    Parameters
    ----------
    subset : {"train", "in_domain_dev", "out_of_domain_dev"}, default="train"
        Which part: 8551, 527 or 516 sentences.
    data_home : str or path-like, default=None
        Folder that holds ``cola/in_domain_train.tsv`` and its like, and that downloads
        go to. None takes the environment variable ``UQFORMER_DATA``, or scikit-learn's
        data folder.
    download_if_missing : bool, default=True
        Whether to download what the folder lacks; otherwise that raises.
    return_X_y : bool, default=False
        Whether to return ``(data, target)`` instead of a bunch.

    Returns
    -------
    data : Bunch
        With `data` (array of str, (n_samples,)), `target` (1 is acceptable), `sources`
        (the book of each sentence), `target_names` and `DESCR`. With `return_X_y`, the
        tuple ``(data, target)``.

    Raises
    ------
    ValueError
        If there is no such subset.
    OSError
        If the data are neither in the folder nor to be had, or are damaged.

    References
    ----------
    .. [1] A. Warstadt, A. Singh, S. R. Bowman (2019), "Neural Network Acceptability
       Judgments", Transactions of the ACL 7.

    Examples
    --------
    >>> from uqformer.datasets import fetch_cola
    >>> X, y = fetch_cola("out_of_domain_dev", return_X_y=True)  # doctest: +SKIP
    """
    check_choice("subset", subset, COLA_FILES)
    file = COLA_FILES[subset]
    source = open_source(data_home, download_if_missing)
    path = source.download(f"{COLA_URL}/{file}", f"cola/{file}")
    # sentences hold quotation marks, so this is no CSV
    lines = path.read_text(encoding="utf-8").rstrip("\n").split("\n")
    columns = list(zip(*(line.split("\t") for line in lines), strict=True))
    return pack(
        return_X_y,
        data=_strings(columns[3]),
        target=np.array(columns[1], dtype=np.int64),
        sources=_strings(columns[0]),
        target_names=["unacceptable", "acceptable"],
        DESCR=describe(
            "CoLA: linguistic acceptability",
            f"{len(lines)} sentences of the part {subset}.",
            "https://nyu-mll.github.io/CoLA",
            "sentences from published works, for research",
        ),
    )


def fetch_imdb(
    subset: str = "train",
    *,
    data_home: str | os.PathLike[str] | None = None,
    download_if_missing: bool = True,
    return_X_y: bool = False,
) -> Bunch | tuple[Any, Any]:
    """Load film reviews of IMDB: is a review positive (classification).

    Parameters
    ----------
    subset : {"train", "test"}, default="train"
        Which part; half of each is positive.
    data_home : str or path-like, default=None
        Folder that holds ``imdb/train5k.csv.gz`` and ``imdb/test5k.csv.gz``, and that
        downloads go to. None takes the environment variable ``UQFORMER_DATA``, or
        scikit-learn's data folder.
    download_if_missing : bool, default=True
        Whether to download what the folder lacks, with Hugging Face's `datasets`;
        otherwise that raises.
    return_X_y : bool, default=False
        Whether to return ``(data, target)`` instead of a bunch.

    Returns
    -------
    data : Bunch
        With `data` (array of str, (n_samples,)), `target` (1 is positive),
        `target_names` and `DESCR`. The folder's files hold 5000 reviews each, the hub
        25,000. With `return_X_y`, the tuple ``(data, target)``.

    Raises
    ------
    ValueError
        If there is no such subset.
    OSError
        If the data are neither in the folder nor to be had, or are damaged.

    References
    ----------
    .. [1] A. L. Maas, R. E. Daly, P. T. Pham, D. Huang, A. Y. Ng, C. Potts (2011),
       "Learning Word Vectors for Sentiment Analysis", ACL.

    Examples
    --------
    >>> from uqformer.datasets import fetch_imdb
    >>> X, y = fetch_imdb("test", return_X_y=True)  # doctest: +SKIP
    """
    check_choice("subset", subset, ("train", "test"))
    source = open_source(data_home, download_if_missing)
    part, whole = f"imdb/{subset}5k.csv.gz", f"imdb/{subset}.csv.gz"
    found = source.local(part) or source.local(whole)
    if not found:
        with source.public(f"Hugging Face ({IMDB_PATH})", part):
            _keep_imdb(source, subset, whole)
        found = [source.folder / whole]
    texts, labels = _read_reviews(found[0])
    return pack(
        return_X_y,
        data=texts,
        target=labels,
        target_names=["negative", "positive"],
        DESCR=describe(
            "IMDB: film reviews",
            f"{len(texts)} reviews of the {subset} part.",
            "https://ai.stanford.edu/~amaas/data/sentiment",
            "not stated by its authors; in common use for research",
        ),
    )


def _keep_imdb(source: Source, subset: str, name: str) -> None:
    """Write the hub's reviews to a file of the folder."""
    rows = import_extra("datasets").load_dataset(
        IMDB_PATH, split=subset, cache_dir=str(source.folder / "huggingface")
    )
    with (
        written_whole(source.folder / name) as unfinished,
        gzip.open(unfinished, "wt", encoding="utf-8", newline="") as file,
    ):
        writer = csv.writer(file)
        writer.writerow(["label", "text"])
        writer.writerows(zip(rows["label"], rows["text"], strict=True))


def _read_reviews(path: Path) -> tuple[AnyArray, AnyArray]:
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        rows = [(row["text"], row["label"]) for row in csv.DictReader(file)]
    texts, labels = zip(*rows, strict=True)
    return _strings(texts), np.array(labels, dtype=np.int64)


def _strings(values: Any) -> AnyArray:
    """Return text as objects: padding all to the longest would waste memory."""
    return np.array(values, dtype=object)
