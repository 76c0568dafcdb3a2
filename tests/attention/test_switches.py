"""Switches go back to where they were, whoever leaves last and however."""

from threading import Barrier, Thread

import pytest
import torch

from uqformer.attention._switches import explicit_kernels, one_at_a_time


def _state() -> tuple[bool, ...]:
    cuda = torch.backends.cuda
    return (
        torch.backends.mha.get_fastpath_enabled(),
        cuda.flash_sdp_enabled(),
        cuda.mem_efficient_sdp_enabled(),
        cuda.math_sdp_enabled(),
    )


def test_fused_kernels_are_off_inside_and_as_before_outside() -> None:
    before = _state()
    with explicit_kernels():
        assert _state() == (False, False, False, True)
        with explicit_kernels():
            assert _state() == (False, False, False, True)
        assert _state() == (False, False, False, True)
    assert _state() == before
    with pytest.raises(KeyError), explicit_kernels():
        raise KeyError
    assert _state() == before


def test_the_last_thread_out_restores() -> None:
    before, first_in, first_out = (
        _state(),
        Barrier(2, timeout=10),
        Barrier(2, timeout=10),
    )
    seen = []

    def other() -> None:
        with explicit_kernels():
            first_in.wait()
            first_out.wait()
            seen.append(_state())

    thread = Thread(target=other)
    with explicit_kernels():
        thread.start()
        first_in.wait()
    first_out.wait()
    thread.join()
    assert seen == [(False, False, False, True)]
    assert _state() == before


def test_one_redraw_a_thread() -> None:
    with one_at_a_time():
        with pytest.raises(ValueError, match="inside another one"), one_at_a_time():
            pass
        entered = []
        thread = Thread(target=lambda: entered.append(_enters()))
        thread.start()
        thread.join()
        assert entered == [True]
    assert _enters()


def _enters() -> bool:
    with one_at_a_time():
        return True
