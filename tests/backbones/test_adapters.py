"""FrozenBackbone: one guest, shared and never copied."""

import pickle

import pytest
import torch
from sklearn.base import clone
from torch import nn

from uqformer import StochasticAttentionRegressor
from uqformer.backbones import FrozenBackbone


def test_clone_shares_the_module() -> None:
    guest = FrozenBackbone(nn.Linear(3, 1))
    assert clone(guest).module is guest.module


def test_cloning_an_estimator_shares_the_module() -> None:
    guest = FrozenBackbone(nn.Linear(3, 1))
    copy = clone(StochasticAttentionRegressor(guest, n_members=3))
    assert copy.backbone.module is guest.module
    assert copy.n_members == 3


@pytest.mark.parametrize("built", [nn.Linear, "ft_transformer", None])
def test_only_a_finished_module_is_a_guest(built: object) -> None:
    kind = type(built).__name__
    expected = rf"takes a torch.nn.Module; got {kind}\. Pass the model itself"
    with pytest.raises(TypeError, match=expected):
        FrozenBackbone(built)  # type: ignore[arg-type]


def test_repr_names_the_kind_and_not_all_layers() -> None:
    assert repr(FrozenBackbone(nn.Sequential(nn.Linear(3, 1)))) == (
        "FrozenBackbone(Sequential)"
    )


def test_a_pickled_guest_keeps_its_weights() -> None:
    guest = FrozenBackbone(nn.Linear(3, 1))
    copy = pickle.loads(pickle.dumps(guest))
    x = torch.ones(2, 3)
    assert torch.equal(copy.module(x), guest.module(x))
