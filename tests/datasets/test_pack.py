"""What fetchers hand back, and the words that they take."""

from typing import Any

import pytest

from uqformer.datasets._pack import check_choice, describe, pack


def test_a_bunch_holds_all_fields() -> None:
    bunch = pack(False, data=[1], target=[2], DESCR="text")
    assert (bunch.data, bunch["target"], bunch.DESCR) == ([1], [2], "text")


def test_data_and_target_alone() -> None:
    assert pack(True, data=[1], target=[2], DESCR="text") == ([1], [2])


def test_a_description_names_origin_and_licence() -> None:
    text = describe("Title", "3 rows.", "https://example.org", "CC0")
    assert text.splitlines() == [
        "Title",
        "",
        "3 rows.",
        "",
        "Origin: https://example.org",
        "Licence: CC0",
    ]


@pytest.mark.parametrize("value", ["Train", "", None, 0, ["train"]])
def test_an_unknown_word_raises(value: Any) -> None:
    with pytest.raises(ValueError, match=r"subset must be one of 'train', 'test'; got"):
        check_choice("subset", value, ("train", "test"))


def test_a_known_word_passes() -> None:
    check_choice("subset", "test", ("train", "test"))
