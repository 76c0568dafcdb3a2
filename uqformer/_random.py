"""All chance comes through here: one integer in, independent streams out."""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

__all__ = ["derive_seed", "member_seeds", "seeded", "torch_generator"]


def member_seeds(seed: int, n_members: int) -> list[int]:
    """Seeds of an ensemble's members; more members never change the first ones."""
    words = np.random.SeedSequence(seed).generate_state(n_members, dtype=np.uint64)
    return [int(word) for word in words]


def torch_generator(*words: int) -> torch.Generator:
    """Build a CPU generator from any number of integers, mixed so that no two meet."""
    # SeedSequence pads with zeros and splits long words, so length and width are fixed
    halves = np.array([len(words), *words], dtype=np.uint64).view(np.uint32)
    state = np.random.SeedSequence(halves).generate_state(1, dtype=np.uint64)
    # manual_seed takes what fits a signed 64-bit integer
    return torch.Generator().manual_seed(int(state[0] >> np.uint64(1)))


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Run a block under a seeded global torch generator and give the old state back.

    Dropout and weight initialisation know no other generator than the global one.
    """
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        yield


def derive_seed(seed: int, purpose: str) -> int:
    """Derive the seed of one named purpose, unrelated to those of all others."""
    entropy = [seed, *purpose.encode()]
    return int(np.random.SeedSequence(entropy).generate_state(1)[0])
