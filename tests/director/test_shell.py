"""What is left of a model without its blocks."""

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from tests.director.families import FAMILIES, build
from uqformer.director import cut_model, record_chain
from uqformer.director._shell import Shell


@pytest.mark.parametrize("name", FAMILIES)
def test_the_walk_begins_where_the_blocks_begin(name: str) -> None:
    guest = build(name)
    cuts = cut_model(guest.model, guest.x)
    chain = record_chain(guest.model, guest.x, cuts)
    seen = {}

    def walk(start, visible):
        seen.update(start=start, visible=visible)
        return chain.states[-1]

    shell = Shell(guest.model, cuts, share=True)
    with torch.no_grad():
        shell(guest.x, walk)
    torch.testing.assert_close(seen["start"], chain.states[0], atol=1e-6, rtol=1e-6)
    if chain.visible is None:
        assert seen["visible"] is None
    else:
        assert torch.equal(seen["visible"], chain.visible)


@pytest.mark.parametrize("name", FAMILIES)
def test_no_weight_of_a_replaced_block_is_left(name: str) -> None:
    guest = build(name)
    shell = Shell(guest.model, cut_model(guest.model, guest.x))
    n_blocks = sum(p.numel() for b in guest.blocks()[:-1] for p in b.parameters())
    n_model = sum(p.numel() for p in guest.model.parameters())
    assert sum(p.numel() for p in shell.parameters()) < n_model - n_blocks
    assert {p.device.type for p in shell.parameters()} == {"cpu"}


def test_shared_weights_are_the_models_own() -> None:
    guest = build("patches")
    cuts = cut_model(guest.model, guest.x)
    own = {id(p) for p in guest.model.parameters()}
    shared, copied = (Shell(guest.model, cuts, share=share) for share in (True, False))
    assert {id(p) for p in shared.parameters()} <= own
    assert not {id(p) for p in copied.parameters()} & own


@pytest.mark.parametrize("name", ["encoder-post-norm-padded", "patches", "bert-sdpa"])
def test_a_shell_can_be_copied_and_pickled(name: str) -> None:
    guest = build(name)
    cuts = cut_model(guest.model, guest.x)
    state = record_chain(guest.model, guest.x, cuts).states[-1]
    shell = Shell(guest.model, cuts)
    with torch.no_grad():
        expected = shell(guest.x, lambda start, visible: state)
        for twin in (copy.deepcopy(shell), pickle.loads(pickle.dumps(shell))):
            assert torch.equal(twin(guest.x, lambda start, visible: state), expected)


def test_gradients_reach_embedding_walk_and_head() -> None:
    guest = build("patches")
    shell = Shell(guest.model, cut_model(guest.model, guest.x))
    scale = torch.ones((), dtype=torch.float64, requires_grad=True)
    shell(guest.x, lambda start, visible: scale * start).square().sum().backward()
    assert scale.grad is not None
    assert shell.model.embed.weight.grad is not None
    assert shell.model.head.weight.grad is not None
    assert all(p.grad is None for p in guest.model.parameters())


def test_threads_take_their_own_walks() -> None:
    guest = build("timm")
    shell = Shell(guest.model, cut_model(guest.model, guest.x))

    def run(shift: float) -> torch.Tensor:
        with torch.no_grad():
            return shell(guest.x, lambda start, visible: start + shift)

    expected = [run(float(shift)) for shift in range(8)]
    with ThreadPoolExecutor(4) as pool:
        got = list(pool.map(run, map(float, range(8))))
    assert all(map(torch.equal, got, expected))
    with pytest.raises(RuntimeError, match="needs a walk"):
        shell.model(guest.x)


@pytest.mark.parametrize("name", FAMILIES)
def test_blocks_in_front_are_kept(name: str) -> None:
    """The noiseless walk of the last block makes the model again."""
    guest = build(name)
    n_kept = len(guest.blocks()) - 1
    cuts = cut_model(guest.model, guest.x, n_kept_blocks=n_kept)
    chain = record_chain(guest.model, guest.x, cuts)
    assert (len(cuts), chain.n_steps) == (1, 1)
    whole = record_chain(guest.model, guest.x)
    torch.testing.assert_close(chain.states[-1], whole.states[-1])
    shell = Shell(guest.model, cuts)
    seen = []

    def walk(start, visible):
        seen.append(start)
        return chain.states[-1]

    with torch.no_grad():
        for start in (None, chain.states[0]):
            output = shell(guest.x, walk, start)
            torch.testing.assert_close(output, chain.output, atol=1e-6, rtol=1e-6)
            torch.testing.assert_close(seen[-1], chain.states[0])


def kept_block(shell: Shell) -> torch.nn.Module:
    return next(m for m in shell.modules() if type(m).__name__ == "_Kept")


def test_kept_blocks_have_the_models_numbers_and_do_not_learn() -> None:
    guest = build("patches")
    model = guest.model
    shell = Shell(model, cut_model(model, guest.x, n_kept_blocks=1)).train()
    kept = next(
        module for module in shell.modules() if type(module).__name__ == "_Kept"
    )
    assert not any(module.training for module in kept.modules())
    for ours, theirs in zip(
        kept.parameters(), guest.blocks()[0].parameters(), strict=True
    ):
        assert ours.data_ptr() == theirs.data_ptr()
        assert (ours.requires_grad, theirs.requires_grad) == (False, True)
    assert not {id(p) for p in shell.own_parameters()} & set(map(id, kept.parameters()))
    shell(guest.x, lambda start, visible: 2 * start).square().sum().backward()
    assert shell.model.embed.weight.grad is None
    assert shell.model.head.weight.grad is not None
    assert all(p.grad is None for p in model.parameters())


def test_kept_blocks_are_left_out_where_the_walk_is_given_its_start() -> None:
    guest = build("patches")
    shell = Shell(guest.model, cut_model(guest.model, guest.x, n_kept_blocks=1))
    kept = next(
        module for module in shell.modules() if type(module).__name__ == "_Kept"
    )
    runs: list[int] = []
    kept.block.register_forward_hook(lambda *_: runs.append(1))
    chain = record_chain(guest.model, guest.x)
    with torch.no_grad():
        shell(guest.x, lambda start, visible: start, chain.states[1])
        assert not runs
        shell(guest.x, lambda start, visible: start)
    assert runs == [1]


@pytest.mark.parametrize("n_kept", [-1, 3])
def test_one_block_must_be_left(n_kept: int) -> None:
    layer = torch.nn.TransformerEncoderLayer(8, 2, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, num_layers=3).eval()
    with pytest.raises(ValueError, match=rf"leave one of the 3 blocks .* got {n_kept}"):
        cut_model(model, torch.zeros(2, 5, 8), n_kept_blocks=n_kept)
