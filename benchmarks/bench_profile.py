"""Where the time of redrawn members goes, beside that of plain passes.

Usage: OMP_NUM_THREADS=1 python benchmarks/bench_profile.py

For each case of bench_members.py, seconds of 5 members: "uniforms" makes the noise,
"draw" counts, "operators" runs what a watched model does, "watch" is the watching of
these operators, and "members" all the rest, which for the backbones of uqformer is the
model itself. "plain" is as many plain passes, whose attention may use a fused kernel.
Kept in results/profile.json.
"""

import json
from collections import Counter
from collections.abc import Callable
from time import perf_counter
from typing import Any
from unittest.mock import patch

import torch
from _common import RESULTS, machine
from bench_members import CASES, Case

from uqformer.attention import _draws, _samplers, _watch, forward_members

N_MEMBERS, N_DRAWS, N_ROUNDS = 5, 16, 5


class Clock:
    """Seconds by name; what runs inside another is not counted twice."""

    def __init__(self) -> None:
        self.spent: Counter[str] = Counter()
        self._inner = [0.0]

    def timed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            self._inner.append(0.0)
            start = perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                whole = perf_counter() - start
                self.spent[name] += whole - self._inner.pop()
                self._inner[-1] += whole

        return wrapper


def profile(case: Case) -> dict[str, float]:
    """Return shares of the time of redrawn members, and the ratio to plain passes."""
    clock, forward = Clock(), case.forward or (lambda model, batch: model(batch))
    mode = _watch._SoftmaxMode
    seeds = list(range(N_MEMBERS))

    def members() -> None:
        for _ in forward_members(
            case.model, case.batches, n_draws=N_DRAWS, seeds=seeds, forward=case.forward
        ):
            pass

    def plain() -> None:
        with torch.no_grad():
            for _ in seeds:
                for batch in case.batches:
                    forward(case.model, batch)

    members()
    noise, draw = _samplers.sorted_uniforms, _draws.draw_compiled
    dispatch, run = mode.__torch_dispatch__, _watch._Watch.run
    for _ in range(N_ROUNDS):
        with (
            patch.object(_samplers, "sorted_uniforms", clock.timed("uniforms", noise)),
            patch.object(_draws, "draw_compiled", clock.timed("draw", draw)),
            patch.object(mode, "__torch_dispatch__", clock.timed("watch", dispatch)),
            patch.object(_watch._Watch, "run", clock.timed("operators", run)),
        ):
            clock.timed("members", members)()
        clock.timed("plain", plain)()
    spent = {name: seconds / N_ROUNDS for name, seconds in clock.spent.items()}
    return {name: round(seconds, 4) for name, seconds in spent.items()}


def main() -> None:
    results = []
    for name, make in CASES.items():
        torch.manual_seed(0)
        try:
            case = make()
        except ImportError as error:
            print(f"{name}: left out, {error}")
            continue
        results.append({"case": name, "seconds": profile(case)})
        print(results[-1], flush=True)
    summary = {"machine": machine(), "n_draws": N_DRAWS, "results": results}
    (RESULTS / "profile.json").write_text(json.dumps(summary, indent=1) + "\n")


if __name__ == "__main__":
    main()
