"""CoLA and IMDB: from a folder, and from their sources played by stand-ins."""

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from uqformer.datasets import _text, fetch_cola, fetch_imdb
from uqformer.datasets._registry import FILES
from uqformer.datasets._source import digest_of

SIZES = {"train": 8551, "in_domain_dev": 527, "out_of_domain_dev": 516}
SHARES = {"train": 0.704, "in_domain_dev": 0.693, "out_of_domain_dev": 0.686}


@pytest.mark.parametrize("subset", SIZES)
def test_cola_has_its_sentences(data_dir: Path, subset: str) -> None:
    cola = fetch_cola(subset, data_home=data_dir, download_if_missing=False)
    assert cola.data.shape == cola.target.shape == cola.sources.shape
    assert len(cola.data) == SIZES[subset]
    assert cola.target.mean() == pytest.approx(SHARES[subset], abs=5e-4)
    assert all(isinstance(sentence, str) and sentence for sentence in cola.data)
    X, y = fetch_cola(subset, data_home=data_dir, return_X_y=True)
    np.testing.assert_array_equal(X, cola.data)
    np.testing.assert_array_equal(y, cola.target)


def test_the_shifted_part_shares_no_source(data_dir: Path) -> None:
    parts = {subset: fetch_cola(subset, data_home=data_dir) for subset in SIZES}
    assert set(parts["in_domain_dev"].sources) <= set(parts["train"].sources)
    shifted = set(parts["out_of_domain_dev"].sources)
    assert shifted.isdisjoint(parts["train"].sources)


def test_cola_from_the_public_files(
    web: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = b'gj04\t1\t\tHe said "no\ncj99\t0\t*\tNA\n'
    url = f"{_text.COLA_URL}/in_domain_dev.tsv"
    web[url] = content
    monkeypatch.setitem(FILES, "cola/in_domain_dev.tsv", digest_of(content))
    cola = fetch_cola("in_domain_dev", data_home=tmp_path)
    # a quotation mark opens nothing, and NA is a word
    assert cola.data.tolist() == ['He said "no', "NA"]
    assert cola.target.tolist() == [1, 0]
    assert cola.sources.tolist() == ["gj04", "cj99"]
    assert web.asked == [url]
    assert (tmp_path / "cola/in_domain_dev.tsv").read_bytes() == content


@pytest.mark.parametrize("subset", ["train", "test"])
def test_imdb_is_half_positive(data_dir: Path, subset: str) -> None:
    imdb = fetch_imdb(subset, data_home=data_dir, download_if_missing=False)
    assert imdb.data.shape == (5000,)
    assert np.bincount(imdb.target).tolist() == [2500, 2500]
    X, y = fetch_imdb(subset, data_home=data_dir, return_X_y=True)
    np.testing.assert_array_equal(X, imdb.data)
    np.testing.assert_array_equal(y, imdb.target)


def test_imdb_from_the_hub_is_kept(hub: Any, tmp_path: Path) -> None:
    texts = ['said "no",\nand left', "good\r\n", "ähnlich"]
    hub.fill({"text": texts, "label": [0, 1, 1]})
    for _ in range(2):
        imdb = fetch_imdb("test", data_home=tmp_path)
        assert imdb.data.tolist() == texts
        assert imdb.target.tolist() == [0, 1, 1]
    assert hub.asked == [("stanfordnlp/imdb", None, "test", tmp_path / "huggingface")]
    assert [path.name for path in (tmp_path / "imdb").iterdir()] == ["test.csv.gz"]


def test_the_folders_reviews_go_first(hub: Any, tmp_path: Path, register: Any) -> None:
    content = b"id,rating,label,text\n7,9,1,fine\n"
    register("imdb/test5k.csv.gz", gzip.compress(content))
    imdb = fetch_imdb("test", data_home=tmp_path)
    assert (imdb.data.tolist(), imdb.target.tolist()) == (["fine"], [1])
    assert hub.asked == []


def test_errors_name_both_ways(hub: Any, web: Any, tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"Hugging Face .* holds imdb/train5k\.csv\.gz"):
        fetch_imdb(data_home=tmp_path)
    assert list((tmp_path).rglob("*.gz")) == []
    with pytest.raises(OSError, match=r"holds cola/in_domain_train\.tsv"):
        fetch_cola(data_home=tmp_path)
    with pytest.raises(ValueError, match="subset must be one of 'train', 'in_domain"):
        fetch_cola("dev")
    with pytest.raises(ValueError, match="subset must be one of 'train', 'test'"):
        fetch_imdb("unsupervised")
