"""Which modules count as attention, and how the user overrules that."""

import numpy as np
import pytest
from torch import nn

from uqformer.attention import find_attention_modules
from uqformer.attention._locate import head_count, uses_seam


class Bag(nn.Module):
    """Holds the modules it is given under the names it is given."""

    def __init__(self, **modules):
        super().__init__()
        for name, module in modules.items():
            self.add_module(name, module)


def named(class_name, **modules):
    """An instance of a new class of that name."""
    return type(class_name, (Bag,), {})(**modules)


def encoder(n_layers=3):
    layer = nn.TransformerEncoderLayer(8, 2, batch_first=True)
    return nn.TransformerEncoder(layer, n_layers)


@pytest.mark.parametrize(
    ("make_model", "expected"),
    [
        (lambda: nn.MultiheadAttention(8, 2), [""]),
        (lambda: encoder(2), ["layers.0.self_attn", "layers.1.self_attn"]),
        (
            lambda: nn.TransformerDecoderLayer(8, 2),
            ["self_attn", "multihead_attn"],
        ),
    ],
)
def test_torch_layers(make_model, expected):
    assert list(find_attention_modules(make_model())) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("bert", ["encoder.layer.0.attention.self", "encoder.layer.1.attention.self"]),
        ("vit", ["layers.0.attention", "layers.1.attention"]),
        ("llama", ["layers.0.self_attn", "layers.1.self_attn"]),
        ("qwen2", ["layers.0.self_attn", "layers.1.self_attn"]),
        ("gpt2", ["h.0.attn", "h.1.attn"]),
    ],
)
def test_hugging_face_layers(make_hugging_face, name, expected):
    assert list(find_attention_modules(make_hugging_face(name))) == expected


def test_written_out_layers(make_family):
    model = make_family("by-hand").model
    assert list(find_attention_modules(model)) == ["blocks.0.attn", "blocks.1.attn"]


@pytest.mark.parametrize(
    "model",
    [
        named("Block", attn_drop=nn.Dropout(), self_attn_layer_norm=nn.LayerNorm(2)),
        named("Block", attention=nn.Linear(2, 2)),
        named("Block", attention_output=Bag(dense=nn.Linear(2, 2))),
        named("Block", attn=nn.Sequential(nn.Linear(2, 2))),
        named("Block", output=named("GraphAttentionOutput", dense=nn.Linear(2, 2))),
        named("Block", attn=Bag()),
        named("Block", norm_attn=Bag(norm=nn.BatchNorm1d(2))),
    ],
)
def test_helpers_are_no_attention(model):
    with pytest.raises(
        ValueError, match=r"No module of Block looks like attention.*la"
    ):
        find_attention_modules(model)


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        # by the name of the class, children or not
        (named("Block", mix=named("DotProductAttention")), ["mix"]),
        # by the name of the attribute
        (named("Block", attn=Bag(qkv=nn.Linear(2, 2))), ["attn"]),
        # the inner of two
        (
            named(
                "AttentionModel",
                attention=named(
                    "CrossAttention", inner=named("SelfAttention"), norm=Bag()
                ),
            ),
            ["attention.inner"],
        ),
        # a name that begins like another one does not lie in it
        (
            named(
                "Block",
                attn=Bag(qkv=nn.Linear(2, 2)),
                attn_x=Bag(inner=named("SelfAttention")),
            ),
            ["attn", "attn_x.inner"],
        ),
    ],
)
def test_rule(model, expected):
    assert list(find_attention_modules(model)) == expected


def test_seam_is_attention_whatever_its_name():
    mixer = type("Mixer", (nn.Module,), {"uses_attention_seam": True})
    model = named("Block", mixer=mixer())
    found = find_attention_modules(model)
    assert list(found) == ["mixer"]
    assert uses_seam(found)
    assert not uses_seam(found | {"x": nn.MultiheadAttention(2, 1)})


@pytest.mark.parametrize(
    ("layers", "expected"),
    [
        ([0, -1], [0, 2]),
        ([np.int64(1)], [1]),
        ([-1, 2, 0], [2, 0]),
        (["layers.1.self_attn", 1], [1]),
    ],
)
def test_positions_and_names(layers, expected):
    model = encoder(3)
    found = find_attention_modules(model, layers)
    assert list(found) == [f"layers.{i}.self_attn" for i in expected]
    assert all(model.get_submodule(name) is found[name] for name in found)


def test_names_may_be_of_any_module():
    model = named("Block", gate=nn.Sequential(nn.Linear(2, 2)))
    assert list(find_attention_modules(model, ["gate"])) == ["gate"]
    assert find_attention_modules(model, [""]) == {"": model}


@pytest.mark.parametrize(
    ("layers", "error", "message"),
    [
        (["layers.7"], ValueError, r"'layers\.7'.*are: layers\.0\.self_attn, lay"),
        ([3], ValueError, r"position 3 of 3 .*layers\.0\.self_attn"),
        ([-4], ValueError, "position -4 of 3"),
        ([], ValueError, "at least one module"),
        ("layers.0", TypeError, r"Try layers=\['layers\.0'\]"),
        ([1.0], TypeError, "1.0 of type float"),
        ([True], TypeError, "True of type bool"),
    ],
)
def test_wrong_layers(layers, error, message):
    with pytest.raises(error, match=message):
        find_attention_modules(encoder(3), layers)


def test_long_lists_are_cut_in_messages():
    with pytest.raises(ValueError, match=r"layers\.5\.self_attn, …, layers\.17\."):
        find_attention_modules(encoder(20), ["x"])


def test_position_in_a_model_without_attention():
    with pytest.raises(ValueError, match="No module of Linear looks like attention"):
        find_attention_modules(nn.Linear(2, 2), [0])


def test_head_count_is_asked_of_the_module_then_of_its_owners():
    inner = Bag(attn=Bag())
    model = Bag(block=inner)
    assert head_count(model, "block.attn") == 1
    model.n_heads = 8
    assert head_count(model, "block.attn") == 8
    inner.num_attention_heads = 4
    assert head_count(model, "block.attn") == 4
    inner.attn.num_heads = 0  # says nothing
    assert head_count(model, "block.attn") == 4
    inner.attn.num_heads = 2
    assert head_count(model, "block.attn") == 2
