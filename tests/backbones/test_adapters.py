"""FrozenBackbone: one guest, shared and never copied; arrays by name are read."""

import pickle
from collections import UserDict
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import clone
from torch import nn

from uqformer import StochasticAttentionRegressor
from uqformer.backbones import FrozenBackbone
from uqformer.backbones._adapters import GuestProtocol, InUnits


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
    guest = FrozenBackbone(nn.Linear(3, 1), classes=["a", "b"])
    copy = pickle.loads(pickle.dumps(guest))
    x = torch.ones(2, 3)
    assert torch.equal(copy.module(x), guest.module(x))
    assert copy.classes == ["a", "b"]


def test_it_speaks_the_protocol_of_guests() -> None:
    guest = FrozenBackbone(nn.Linear(3, 1))
    assert isinstance(guest, GuestProtocol)
    assert guest.trains is False
    assert guest.build(1) is guest.module
    assert not isinstance(nn.Linear(3, 1), GuestProtocol)


def test_a_mapping_becomes_arrays_and_all_else_is_left_alone() -> None:
    guest = FrozenBackbone(nn.Linear(3, 1))
    table = np.ones((2, 3))
    assert guest.encode(table) is table
    ids = torch.tensor([[3, 4], [5, 0]])
    encoded = guest.encode(UserDict({"input_ids": ids, "values": [1.5, 2.5]}))
    assert type(encoded) is dict
    assert encoded["input_ids"].dtype == np.int64
    np.testing.assert_array_equal(encoded["input_ids"], ids.numpy())
    assert encoded["values"].dtype == np.float64


@pytest.mark.parametrize(
    ("X", "sentence"),
    [
        ({}, "at least one array; got an empty mapping"),
        ({"a": np.zeros(3), "b": np.zeros(2)}, r"got lengths {'a': 3, 'b': 2}\. Pass"),
        ({"a": [[1, 2], [3]]}, r"X\['a'\] .* rows are of unequal length\. Pad them"),
        ({"a": ["x", "y"]}, r"X\['a'\] must be an array of numbers .* of <U1\. Encode"),
        ({"a": 3}, r"got shape \(\) of int"),
    ],
)
def test_mappings_that_are_no_rows(X: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        FrozenBackbone(nn.Linear(3, 1)).encode(X)


def test_units_are_put_on_either_shape_of_outputs() -> None:
    flat = InUnits(nn.Flatten(0), [5.0], [2.0])
    column = InUnits(nn.Identity(), [5.0], [2.0])
    x = torch.tensor([[1.0], [3.0]])
    assert flat(x).tolist() == [7, 11]
    assert column(x=x).tolist() == [[7], [11]]
    named = InUnits(_Sum(), [0.0], [1.0])
    assert named(a=x, b=x).tolist() == [[2], [6]]
    assert named(x=x, b=x).tolist() == [[2], [6]]
    assert set(named.state_dict()) == {"center", "scale"}


class _Sum(nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a + b
