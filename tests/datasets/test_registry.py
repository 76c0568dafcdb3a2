"""The list of checksums: every file of the data folder is the one that is listed."""

import gzip
import re
from pathlib import Path

import numpy as np
import pytest

from uqformer.datasets._registry import FILES, TABLES
from uqformer.datasets._source import digest_of

ONLY_PUBLIC = {"ts/ETTh1.csv", "weather/era5-2mt-2019-03-uk.grib"}
IN_FOLDER = sorted(set(FILES) - ONLY_PUBLIC)


@pytest.mark.parametrize("name", sorted(FILES))
def test_a_checksum_is_a_sha256_or_an_md5(name: str) -> None:
    assert re.fullmatch("[0-9a-f]{64}|[0-9a-f]{32}", FILES[name])


@pytest.mark.parametrize("name", IN_FOLDER)
def test_the_folder_holds_what_is_listed(data_dir: Path, name: str) -> None:
    assert digest_of((data_dir / name).read_bytes()) == FILES[name]


@pytest.mark.parametrize("name", sorted(TABLES))
def test_a_table_is_known_by_its_numbers(data_dir: Path, name: str) -> None:
    with np.load(data_dir / "uci" / f"{name}.npz") as file:
        table = np.column_stack([file["X"], file["y"]])
    assert digest_of(table.astype("<f8").tobytes()) == TABLES[name]


def test_the_public_file_is_the_folders_unpacked(data_dir: Path) -> None:
    packed = (data_dir / "ts/ETTh1.csv.gz").read_bytes()
    assert digest_of(gzip.decompress(packed)) == FILES["ts/ETTh1.csv"]
