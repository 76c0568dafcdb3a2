"""The seam: plain softmax outside, the handler's answer inside, each thread its own."""

from threading import Barrier, Thread

import pytest
import torch
from torch import Tensor, nn

from uqformer._seam import attend, attention_weights, handled_by, is_redrawing

MODULE = nn.Identity()
SCORES = torch.randn(2, 3, 4, 5, generator=torch.Generator().manual_seed(0))


def _first_key(probs: Tensor, module: nn.Module) -> Tensor:
    weights = torch.zeros_like(probs)
    weights[..., 0] = 1
    return weights


def _last_key(probs: Tensor, module: nn.Module) -> Tensor:
    return _first_key(probs, module).flip(-1)


def _looks_at() -> str:
    weights = attention_weights(SCORES, MODULE)
    if torch.equal(weights, torch.softmax(SCORES, dim=-1)):
        return "softmax"
    return "first" if bool(weights[..., 0].all()) else "last"


def test_softmax_outside_a_redraw() -> None:
    assert not is_redrawing()
    assert _looks_at() == "softmax"


def test_handler_gets_probabilities_and_the_module() -> None:
    seen: list[tuple[Tensor, nn.Module]] = []

    def handler(probs: Tensor, module: nn.Module) -> Tensor:
        seen.append((probs, module))
        return probs

    with handled_by(handler):
        attention_weights(SCORES, MODULE)
    (probs, module) = seen[0]
    assert len(seen) == 1
    assert module is MODULE
    assert torch.equal(probs, torch.softmax(SCORES, dim=-1))


def test_handlers_nest_and_come_back() -> None:
    with handled_by(_first_key):
        assert is_redrawing()
        with handled_by(_last_key):
            assert _looks_at() == "last"
        assert _looks_at() == "first"
    assert _looks_at() == "softmax"


def test_handler_is_gone_after_an_error() -> None:
    with pytest.raises(KeyError), handled_by(_first_key):
        raise KeyError
    assert not is_redrawing()
    assert _looks_at() == "softmax"


def test_a_new_thread_is_not_redrawn() -> None:
    seen = []
    with handled_by(_first_key):
        thread = Thread(target=lambda: seen.append((is_redrawing(), _looks_at())))
        thread.start()
        thread.join()
        assert _looks_at() == "first"
    assert seen == [(False, "softmax")]


def test_two_threads_keep_their_own_handlers_at_the_same_time() -> None:
    both_inside = Barrier(2, timeout=10)
    seen = {}

    def run(name: str) -> None:
        with handled_by(_first_key if name == "first" else _last_key):
            both_inside.wait()
            inside = _looks_at()
            both_inside.wait()
        seen[name] = (inside, is_redrawing())

    threads = [Thread(target=run, args=(name,)) for name in ("first", "last")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == {"first": ("first", False), "last": ("last", False)}
    assert not is_redrawing()


def test_mask_is_the_same_with_and_without_a_handler() -> None:
    generator = torch.Generator().manual_seed(1)
    query, key, value = torch.randn(3, 2, 2, 4, 8, generator=generator).unbind()
    mask = torch.tensor([[True] * 4, [True, True, False, False]])[:, None, None]
    plain = attend(query, key, value, MODULE, mask=mask)
    with handled_by(lambda probs, module: probs):
        handled = attend(query, key, value, MODULE, mask=mask)
    torch.testing.assert_close(plain, handled)
    other = value.clone()
    other[1, :, 2:] = 99
    torch.testing.assert_close(attend(query, key, other, MODULE, mask=mask), plain)


def test_mask_follows_the_members() -> None:
    query = torch.zeros(2, 1, 1, 4)
    value = torch.eye(3)[None, None].repeat(2, 1, 1, 1)
    key = torch.zeros(4, 1, 3, 4)
    mask = torch.tensor([[True, False, False], [False, True, True]])[:, None, None]
    with handled_by(lambda probs, module: probs):
        members = attend(query.repeat(2, 1, 1, 1), key, value, MODULE, mask=mask)
    expected = torch.tensor([[1, 0, 0], [0, 0.5, 0.5]]).repeat(2, 1)
    torch.testing.assert_close(members[:, 0, 0], expected)
