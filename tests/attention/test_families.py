"""The contract of the redraw, line by line, for every family of models."""

import pytest
import torch

from uqformer import _seam
from uqformer.attention import find_attention_modules, stochastic_attention

DTYPES = [torch.float32, torch.bfloat16, torch.float16]


@pytest.mark.parametrize("dtype", DTYPES)
def test_each_attention_layer_is_redrawn_once(make_family, family_name, dtype):
    family = make_family(family_name, dtype)
    with stochastic_attention(family.model, n_draws=4, seed=0) as tap:
        output = family.run()
    assert tap.redraws == dict.fromkeys(find_attention_modules(family.model), 1)
    assert tap.n_redraws == family.n_attention
    assert output.dtype == dtype
    assert not output.requires_grad
    assert not output.is_inference()


@pytest.mark.parametrize("dtype", DTYPES)
def test_many_draws_give_the_model_back(make_family, family_name, dtype):
    """The noise falls as one over the root of the draws: masks and scales are right."""
    family = make_family(family_name, dtype)
    plain = family.run()
    single = (family.redraw(n_draws=1) - plain).abs().max()
    many = (family.redraw(n_draws=20_000) - plain).abs().max()
    assert many < 0.1 * single


@pytest.mark.parametrize("dtype", DTYPES)
def test_same_seed_same_member(make_family, family_name, dtype):
    family = make_family(family_name, dtype)
    first, again, other = (family.redraw(seed=seed) for seed in (5, 5, 6))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_a_member_is_one_function(make_family, family_name):
    """Within one block the same rows give the same output, whatever stands beside."""
    family = make_family(family_name)
    with stochastic_attention(family.model, n_draws=4, seed=0):
        whole, again = family.run(), family.run()
        parts = [family.run(family.rows(rows)) for rows in (slice(1), slice(1, None))]
    assert torch.equal(whole, again)
    torch.testing.assert_close(torch.cat(parts), whole, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("dtype", DTYPES)
def test_masked_keys_are_never_drawn(make_family, padded_name, dtype):
    """What stands in the padding does not matter, unless the mask is taken away."""
    family = make_family(padded_name, dtype)
    tokens, real = family.inputs[family.tokens], family.inputs[family.real].bool()
    other = tokens.clone()
    other[~real] = tokens.flip(0)[~real] + 1 if tokens.is_floating_point() else 7
    changed = family.inputs | {family.tokens: other}
    for n_draws in (1, 50):
        expected = family.redraw(n_draws=n_draws)
        assert torch.equal(family.redraw(n_draws=n_draws, inputs=changed), expected)
    open_mask = {family.real: torch.ones_like(family.inputs[family.real])}
    seen, changed_seen = (
        family.redraw(n_draws=50, inputs=inputs | open_mask)
        for inputs in (family.inputs, changed)
    )
    # the first token of each row on the left, the last on the right: one of them real
    assert (seen - changed_seen)[:, [0, -1]].abs().amax(dim=(1, 2)).max() > 1e-2


def test_the_model_leaves_as_it_came(make_family, family_name, switches):
    family = make_family(family_name)
    state = {name: value.clone() for name, value in family.model.state_dict().items()}
    plain, before, hooks = family.run(), switches(), family.n_hooks()
    rng = torch.random.get_rng_state()
    family.redraw()
    assert torch.equal(family.run(), plain)
    assert all(torch.equal(state[k], v) for k, v in family.model.state_dict().items())
    assert switches() == before
    assert family.n_hooks() == hooks
    assert not _seam.is_redrawing()
    assert torch.equal(torch.random.get_rng_state(), rng)


def test_no_draws_is_the_plain_pass(make_family, family_name):
    family = make_family(family_name)
    plain = family.run()
    with stochastic_attention(family.model, n_draws=None, seed=0) as tap:
        assert torch.equal(family.run(), plain)
    assert tap.n_redraws == 0


def test_inference_mode_outside_and_inside(make_family, family_name):
    family = make_family(family_name)
    expected = family.redraw()
    with torch.inference_mode():
        inputs = {name: value.clone() for name, value in family.inputs.items()}
        outside = family.redraw(inputs=inputs)
    assert torch.equal(outside, expected)
    with (
        stochastic_attention(family.model, n_draws=4, seed=0) as tap,
        torch.inference_mode(),
    ):
        inside = family.run(inputs)
    assert tap.n_redraws == family.n_attention
    torch.testing.assert_close(inside, expected, atol=1e-5, rtol=1e-5)


def test_weights_asked_for_or_not(make_family):
    """need_weights takes another way through torch, and means the same draw."""
    asked, unasked = make_family("mha-weights"), make_family("mha")
    expected = unasked.redraw(seed=3)
    torch.testing.assert_close(asked.redraw(seed=3), expected, atol=1e-6, rtol=1e-5)


def test_the_ways_in_mean_the_same_draw(make_family):
    """By hand, by SDPA and by the seam: one attention, one draw."""
    by_hand, by_sdpa, by_seam = (
        make_family(name) for name in ("by-hand", "by-sdpa", "by-seam")
    )
    expected = by_hand.redraw()
    torch.testing.assert_close(by_sdpa.redraw(), expected, atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(by_seam.redraw(), expected, atol=1e-6, rtol=1e-5)
    # the watch also sees a model that could use the seam
    mixed = by_seam.redraw(layers=["blocks.0", "blocks.1.attn"])
    torch.testing.assert_close(mixed, expected, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("name", ["encoder", "by-seam"])
def test_only_chosen_layers_are_redrawn(make_family, name):
    family = make_family(name)
    names = list(find_attention_modules(family.model))
    with stochastic_attention(family.model, n_draws=2, seed=0, layers=[-1]) as tap:
        family.run()
    assert tap.redraws == {names[1]: 1}
    first, last, both = (family.redraw(layers=layers) for layers in ([0], [1], "all"))
    assert not torch.equal(first, last)
    assert not torch.equal(first, both)
    assert not torch.equal(last, both)
