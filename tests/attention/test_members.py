"""The loop over members: every member over every batch, each as if it were alone."""

import pytest
import torch
from torch import nn

from uqformer import _seam
from uqformer.attention import _members, forward_members, stochastic_attention
from uqformer.exceptions import AttentionNotRedrawnError

SEEDS = [3, 1, 4, 1_000_000_007]


def alone(model, batch, seed, n_draws=4, **kwargs):
    with stochastic_attention(model, n_draws=n_draws, seed=seed, **kwargs):
        return model(batch)


@pytest.mark.parametrize("name", ["encoder-causal", "by-seam", "vit-sdpa"])
def test_members_are_those_of_single_blocks(make_family, name):
    """In the order of batches, then members, stacked in a pass or not."""
    family = make_family(name)
    (key, x), model = family.inputs.copy().popitem(), family.model

    def forward(model, batch):
        return family.call(model, {key: batch})

    seen = []
    for batch_index, member, output in forward_members(
        model, x.split(2), n_draws=4, seeds=SEEDS, forward=forward
    ):
        with stochastic_attention(model, n_draws=4, seed=SEEDS[member]):
            expected = forward(model, x.split(2)[batch_index])
        torch.testing.assert_close(output, expected, atol=1e-5, rtol=1e-5)
        seen.append((batch_index, member))
    assert seen == [(batch, member) for batch in range(2) for member in range(4)]


@pytest.mark.parametrize(
    ("inputs_per_pass", "expected_rows"),
    [(1, [3] * 4), (3 * 5 * 8 * 3, [9, 3]), (10**6, [12])],
)
def test_members_are_stacked_up_to_the_budget(
    make_family, monkeypatch, inputs_per_pass, expected_rows
):
    """Whatever the passes, the outputs are the same."""
    family = make_family("by-seam")
    x, rows = family.inputs["x"], []
    expected = [alone(family.model, x, seed) for seed in SEEDS]
    monkeypatch.setattr(_members, "_INPUTS_PER_PASS", inputs_per_pass)

    def forward(model, batch):
        output = model(batch)
        rows.append(len(output))
        return output

    outputs = forward_members(
        family.model, [x], n_draws=4, seeds=SEEDS, forward=forward
    )
    for (_, _, output), single in zip(outputs, expected, strict=True):
        torch.testing.assert_close(output, single, atol=1e-5, rtol=1e-5)
    assert rows == expected_rows


def test_models_without_the_seam_are_not_stacked(make_family):
    """The first axis of a guest's input need not be its rows."""
    family, rows = make_family("encoder-causal"), []

    def forward(model, batch):
        rows.append(len(batch))
        return family.call(model, {"x": batch})

    x = family.inputs["x"]
    list(forward_members(family.model, [x], n_draws=4, seeds=[0, 1], forward=forward))
    assert rows == [3, 3]


def test_a_member_does_not_depend_on_the_others(make_family):
    family = make_family("by-seam")
    x = family.inputs["x"]
    many = list(forward_members(family.model, [x], n_draws=4, seeds=SEEDS))
    few = list(forward_members(family.model, [x], n_draws=4, seeds=SEEDS[:2]))
    for (_, _, one), (_, _, same) in zip(few, many[:2], strict=True):
        torch.testing.assert_close(one, same, atol=1e-5, rtol=1e-5)
    assert not torch.allclose(many[0][2], many[1][2], atol=1e-3)


class FromDict(nn.Module):
    """Attention over rows given by name, through the seam."""

    class Attention(nn.Module):
        uses_attention_seam = True

        def forward(self, scores):
            return _seam.attention_weights(scores, self)

    def __init__(self):
        super().__init__()
        self.attention = self.Attention()

    def forward(self, scores, shift):
        return self.attention(scores + shift)


def test_batches_of_several_tensors():
    model = FromDict().eval()
    batch = {"scores": torch.randn(3, 2, 2, 4), "shift": torch.randn(3, 1, 1, 4)}
    outputs = list(forward_members(model, [batch], n_draws=5, seeds=SEEDS))
    for _, member, output in outputs:
        with stochastic_attention(model, n_draws=5, seed=SEEDS[member]):
            expected = model(**batch)
        torch.testing.assert_close(output, expected, atol=1e-6, rtol=1e-5)
    assert len(outputs) == 4


def test_the_caller_is_not_inside_the_block(make_family):
    """Between two outputs the program is as it was, also when the rest is not read."""
    model, x = make_family("encoder-causal").model, torch.randn(2, 5, 8)
    fastpath = torch.backends.mha.get_fastpath_enabled()
    with torch.no_grad():
        plain = model(x)
    for _, _, output in forward_members(model, [x], n_draws=1, seeds=[0, 1]):
        assert torch.is_grad_enabled()
        assert torch.backends.mha.get_fastpath_enabled() == fastpath
        assert not any(module._forward_hooks for module in model.modules())
        with torch.no_grad():
            assert torch.equal(model(x), plain)
        assert not torch.allclose(output, plain, atol=1e-3)
        break


def test_layers_are_passed_on(make_family):
    family = make_family("by-seam")
    x = family.inputs["x"]
    outputs = forward_members(family.model, [x], n_draws=2, seeds=[7], layers=[-1])
    expected = alone(family.model, x, 7, n_draws=2, layers=[-1])
    torch.testing.assert_close(next(outputs)[2], expected)
    assert not torch.allclose(alone(family.model, x, 7, n_draws=2), expected)


def test_no_draws_are_plain_passes(make_family):
    family = make_family("by-seam")
    plain = family.run()
    outputs = list(
        forward_members(family.model, [family.inputs["x"]], n_draws=None, seeds=[0, 1])
    )
    assert len(outputs) == 2
    assert all(torch.equal(output, plain) for _, _, output in outputs)


def test_batches_are_read_one_by_one(make_family):
    """A stream of batches is never held as a whole."""
    family, n_read = make_family("by-seam"), 0

    def stream():
        nonlocal n_read
        for _ in range(5):
            n_read += 1
            yield family.inputs["x"]

    outputs = forward_members(family.model, stream(), n_draws=2, seeds=[0, 1])
    assert n_read == 0
    for batch_index, _, _ in outputs:
        assert n_read == batch_index + 1
    assert n_read == 5


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"seeds": []}, ValueError, r"one seed for each member; got seeds=\[\]"),
        ({"seeds": [0, -1]}, ValueError, "got seed=-1"),
        ({"n_draws": 0}, ValueError, "got n_draws=0"),
        ({"layers": [9]}, ValueError, "position 9 of 2"),
    ],
)
def test_wrong_arguments_are_told_at_once(make_family, changes, error, message):
    family = make_family("by-seam")
    arguments = {"n_draws": 4, "seeds": [0]} | changes
    with pytest.raises(error, match=message):
        forward_members(family.model, [family.inputs["x"]], **arguments)


def test_training_mode_is_refused(make_family):
    family = make_family("by-seam")
    with pytest.raises(ValueError, match="training=True"):
        forward_members(
            family.model.train(), [family.inputs["x"]], n_draws=4, seeds=[0]
        )


def test_output_must_be_a_tensor_of_rows(make_family):
    family = make_family("by-seam")
    x = family.inputs["x"]

    def outputs(pick):
        def forward(model, batch):
            return pick(model(batch))

        return forward_members(
            family.model, [x], n_draws=4, seeds=[0, 1], forward=forward
        )

    with pytest.raises(TypeError, match=r"got tuple\. Pass forward="):
        next(outputs(lambda output: (output,)))
    with pytest.raises(ValueError, match=r"shape \(5, 8\) for 2 stacked members"):
        next(outputs(lambda output: output.mean(0)))


def test_a_model_that_is_not_redrawn_raises(make_family):
    family = make_family("by-seam")
    outputs = forward_members(
        family.model, [family.inputs["x"]], n_draws=4, seeds=[0], forward=lambda m, b: b
    )
    with pytest.raises(AttentionNotRedrawnError):
        next(outputs)
