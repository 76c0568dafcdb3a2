"""What a redraw switches for its duration: fused kernels off, one redraw a thread."""

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

__all__ = ["explicit_kernels", "one_at_a_time"]


class _PerThread(threading.local):
    is_busy = False


_per_thread = _PerThread()


@contextmanager
def one_at_a_time() -> Iterator[None]:
    """Refuse a second redraw on this thread: it would redraw what is redrawn."""
    if _per_thread.is_busy:
        raise ValueError(
            "stochastic_attention must not be entered inside another one on the same "
            "thread; leave the outer block first."
        )
    _per_thread.is_busy = True
    try:
        yield
    finally:
        _per_thread.is_busy = False


class _ExplicitKernels:
    """Fused attention switched off process-wide, until the last thread has left."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._n_users = 0
        self._restore = ExitStack()

    @contextmanager
    def __call__(self) -> Iterator[None]:
        with self._lock:
            if self._n_users == 0:
                self._switch_off()
            self._n_users += 1
        try:
            yield
        finally:
            with self._lock:
                self._n_users -= 1
                if self._n_users == 0:
                    self._restore.close()

    def _switch_off(self) -> None:
        mha = torch.backends.mha
        self._restore.callback(mha.set_fastpath_enabled, mha.get_fastpath_enabled())
        mha.set_fastpath_enabled(False)
        self._restore.enter_context(sdpa_kernel(SDPBackend.MATH))


explicit_kernels = _ExplicitKernels()
