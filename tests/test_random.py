"""One integer in, independent streams out, and the global state left alone."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy.stats import kstest

from uqformer._random import derive_seed, member_seeds, seeded, torch_generator

WORDS = [(0,), (1,), (1, 0), (1, 0, 0), (0, 1), (2**32,), (2**32 + 1,), (1, 1), (1, 2)]


def _draw(*words: int, size: int = 4) -> list[float]:
    return torch.rand(size, generator=torch_generator(*words)).tolist()


def test_more_members_keep_the_first_ones() -> None:
    assert member_seeds(7, 50)[:10] == member_seeds(7, 10)


def test_member_seeds_are_distinct_64_bit_integers() -> None:
    seeds = member_seeds(0, 1000) + member_seeds(1, 1000)
    assert len(set(seeds)) == 2000
    assert all(type(seed) is int and 0 <= seed < 2**64 for seed in seeds)
    assert max(seeds) > 2**63


def test_same_words_give_the_same_stream() -> None:
    assert _draw(3, 1, 4) == _draw(3, 1, 4)


@pytest.mark.parametrize("words", WORDS, ids=str)
def test_other_words_give_another_stream(words: tuple[int, ...]) -> None:
    others = [other for other in WORDS if other != words]
    assert _draw(*words) not in [_draw(*other) for other in others]


def test_word_order_matters() -> None:
    assert _draw(1, 2, 3) != _draw(3, 2, 1)


def test_a_member_seed_is_a_word() -> None:
    streams = [_draw(seed, 0) for seed in member_seeds(0, 20)]
    assert all(first != second for first, second in pairwise(streams))


def test_first_numbers_of_neighbouring_streams_are_uniform() -> None:
    first = np.array([_draw(0, call, size=1)[0] for call in range(2000)])
    assert kstest(first, "uniform").pvalue > 1e-3
    assert abs(np.corrcoef(first[:-1], first[1:])[0, 1]) < 4 / np.sqrt(len(first))


def test_generator_leaves_the_global_one_alone() -> None:
    before = torch.get_rng_state()
    _draw(1, 2)
    assert torch.equal(torch.get_rng_state(), before)


def test_seeded_repeats_and_gives_the_state_back() -> None:
    before = torch.get_rng_state()
    with seeded(3):
        first = torch.rand(4)
    assert torch.equal(torch.get_rng_state(), before)
    with seeded(3):
        second = torch.rand(4)
    with seeded(4):
        third = torch.rand(4)
    assert torch.equal(first, second)
    assert not torch.equal(first, third)


def test_seeded_gives_the_state_back_after_an_error() -> None:
    before = torch.get_rng_state()
    with pytest.raises(RuntimeError, match="size"), seeded(3):
        torch.rand(4) + torch.rand(3)
    assert torch.equal(torch.get_rng_state(), before)


def test_seeded_blocks_nest() -> None:
    with seeded(1):
        torch.rand(1)
        with seeded(2):
            torch.rand(5)
        nested = torch.rand(1)
    with seeded(1):
        torch.rand(1)
        assert torch.equal(torch.rand(1), nested)


def test_each_purpose_has_a_seed_of_its_own() -> None:
    purposes = ["parts", "train", "trap", "a", "aa", "b"]
    seeds = [derive_seed(seed, purpose) for seed in range(50) for purpose in purposes]
    assert len(set(seeds)) == len(seeds)
    assert all(type(seed) is int and 0 <= seed < 2**32 for seed in seeds)
    assert derive_seed(3, "parts") == derive_seed(3, "parts")
