"""make_backbone: every way to name a backbone, and what it says of wrong ones."""

from typing import Any

import pytest
import torch
from torch import nn

from uqformer.attention import find_attention_modules
from uqformer.backbones import (
    FrozenBackbone,
    FTTransformer,
    PatchTransformer,
    SequenceTransformer,
    TokenTransformer,
    make_backbone,
)
from uqformer.backbones._make import BACKBONES, SIZES


class _Linear(nn.Linear):
    """A class called with the numbers of features and outputs."""


def _two_layers(n_features: int, n_outputs: int, *, width: int = 2) -> nn.Module:
    return nn.Sequential(nn.Linear(n_features, width), nn.Linear(width, n_outputs))


def _lazy(n_features: int, n_outputs: int) -> str:
    return "not built"


INPUTS = {
    "ft_transformer": torch.linspace(-1, 1, 24).reshape(6, 4),
    "patch": torch.linspace(-1, 1, 6 * 4 * 5 * 5).reshape(6, 4, 5, 5),
    "sequence": torch.linspace(-1, 1, 6 * 4 * 2).reshape(6, 4, 2),
    "tokens": torch.arange(24).reshape(6, 4),
}


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("ft_transformer", FTTransformer),
        ("patch", PatchTransformer),
        ("sequence", SequenceTransformer),
        ("tokens", TokenTransformer),
    ],
)
def test_every_name_builds_a_backbone_that_learns_its_inputs(
    name: str, kind: type[nn.Module]
) -> None:
    module: Any = make_backbone(name, 4, 2)
    assert type(module) is kind
    assert module.adapt(INPUTS[name]).eval()(INPUTS[name]).shape == (6, 2)
    assert len(find_attention_modules(module)) == len(module.blocks) == 3
    assert module.n_params > 1000


def test_no_name_is_left_out() -> None:
    assert BACKBONES.keys() == SIZES.keys() == INPUTS.keys()


# -- Sizes --------------------------------------------------------------------------


@pytest.mark.parametrize("name", BACKBONES)
def test_small_is_the_default(name: str) -> None:
    plain: Any = BACKBONES[name](4, 2)
    small: Any = make_backbone(name, 4, 2, {"size": "small"})
    assert (small.d_token, len(small.blocks)) == (plain.d_token, len(plain.blocks))
    assert small.blocks[0].attention.n_heads == plain.blocks[0].attention.n_heads
    assert small.n_params == plain.n_params == make_backbone(name, 4, 2).n_params


@pytest.mark.parametrize("name", BACKBONES)
@pytest.mark.parametrize("by_class", [False, True])
def test_base_is_larger_and_numbers_come_first(name: str, by_class: bool) -> None:
    spec = BACKBONES[name] if by_class else name
    base: Any = make_backbone(spec, 4, 2, {"size": "base"})
    numbers = SIZES[name]["base"]
    assert base.d_token == numbers["d_token"]
    assert len(base.blocks) == numbers["n_blocks"]
    assert base.blocks[0].attention.n_heads == numbers["n_heads"]
    mixed: Any = make_backbone(spec, 4, 2, {"n_blocks": 1, "size": "base"})
    assert (mixed.d_token, len(mixed.blocks)) == (base.d_token, 1)


def test_an_unknown_size_is_an_error() -> None:
    expected = r"size must be one of \['base', 'small'\]; got size='huge'\."
    with pytest.raises(ValueError, match=expected):
        make_backbone("patch", 3, 1, {"size": "huge"})


def test_the_size_of_others_is_their_own() -> None:
    def grown(n_features: int, n_outputs: int, *, size: int) -> nn.Module:
        return nn.Sequential(nn.Linear(n_features, size), nn.Linear(size, n_outputs))

    assert make_backbone(grown, 2, 1, {"size": 7})[0].out_features == 7
    with pytest.raises(ValueError, match=r"among \['width'\]; got 'size'\.$"):
        make_backbone(_two_layers, 4, 2, {"size": "base"})
    with pytest.raises(
        ValueError, match=r"'dropout', 'size'\]; got 'sise'\. Did.*'size'"
    ):
        make_backbone("patch", 4, 2, {"sise": "base"})


# -- Every way to name a backbone ---------------------------------------------------


def test_a_name_takes_its_parameters() -> None:
    params = {"d_token": 16, "n_heads": 2, "n_blocks": 1}
    module = make_backbone("ft_transformer", 4, 2, params)
    assert isinstance(module, FTTransformer)
    assert (module.n_features, module.d_token, len(module.blocks)) == (4, 16, 1)
    assert module.head.out_features == 2


@pytest.mark.parametrize("params", [None, {}, {"bias": False}])
def test_a_class_is_called(params: dict[str, Any] | None) -> None:
    module = make_backbone(_Linear, 4, 2, params)
    assert isinstance(module, _Linear)
    assert module.weight.shape == (2, 4)
    assert (module.bias is None) == bool(params)


def test_a_function_is_called() -> None:
    module = make_backbone(_two_layers, 4, 3, {"width": 5})
    assert module(torch.ones(1, 4)).shape == (1, 3)
    assert len(module[0].bias) == 5


def test_a_bare_module_is_copied() -> None:
    mine = nn.Linear(4, 1)
    module = make_backbone(mine, 4, 1)
    assert module is not mine
    assert torch.equal(module.weight, mine.weight)
    with torch.no_grad():
        module.weight.zero_()
    assert mine.weight.abs().sum() > 0


def test_a_guest_is_itself() -> None:
    mine = nn.Linear(4, 1)
    assert make_backbone(FrozenBackbone(mine), 4, 1) is mine


@pytest.mark.parametrize("spec", [nn.Linear(4, 1), FrozenBackbone(nn.Linear(4, 1))])
def test_a_finished_module_takes_no_parameters(spec: Any) -> None:
    expected = r"got backbone_params=\{'width': 3\}.*Linear.*Leave them out"
    with pytest.raises(ValueError, match=expected):
        make_backbone(spec, 4, 1, {"width": 3})
    assert isinstance(make_backbone(spec, 4, 1, {}), nn.Linear)


@pytest.mark.parametrize("name", ["ft_tranformer", "FTTransformer", "fttransformer"])
def test_a_near_miss_is_guessed(name: str) -> None:
    expected = rf"got '{name}'\. Did you mean 'ft_transformer'\?"
    with pytest.raises(ValueError, match=expected):
        make_backbone(name, 4, 1)


def test_a_far_miss_is_not_guessed() -> None:
    known = r"\['ft_transformer', 'patch', 'sequence', 'tokens'\]"
    with pytest.raises(ValueError, match=rf"{known}; got 'xgb'\.$"):
        make_backbone("xgb", 4, 1)


@pytest.mark.parametrize("spec", [3, None, ["ft_transformer"]])
def test_other_things_are_no_backbones(spec: Any) -> None:
    kind = type(spec).__name__
    with pytest.raises(TypeError, match=rf"or a FrozenBackbone; got {kind}\.$"):
        make_backbone(spec, 4, 1)


def test_a_callable_must_return_a_module() -> None:
    with pytest.raises(TypeError, match="'_lazy' returned str"):
        make_backbone(_lazy, 4, 1)  # type: ignore[arg-type]


def test_unknown_params_are_named_and_guessed() -> None:
    with pytest.raises(ValueError, match=r"got 'd_tok'\. Did you mean 'd_token'"):
        make_backbone("ft_transformer", 2, 1, {"d_tok": 8})

    def anything(n_features: int, n_outputs: int, **options: int) -> nn.Module:
        return nn.Linear(n_features, n_outputs * options["times"])

    assert make_backbone(anything, 2, 1, {"times": 3})(torch.ones(1, 2)).shape == (1, 3)
