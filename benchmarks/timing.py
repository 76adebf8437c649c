"""Two programs timed in turn, so that a slow minute of the machine slows both."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Comparison:
    """One line of the report. Rates are per second, higher is better; a ratio is ours over the
    peer's, round by round."""

    name: str
    unit: str
    ours: list[float]
    peer: list[float]
    goal: float
    note: str = ""

    @property
    def ratios(self) -> list[float]:
        return [ours / peer for ours, peer in zip(self.ours, self.peer, strict=True)]

    def __str__(self) -> str:
        ratio = statistics.median(self.ratios)
        line = (
            f"{self.name:44} {statistics.median(self.ours):12,.1f}"
            f" {statistics.median(self.peer):12,.1f} {self.unit:12}"
        )
        line += (
            f" {ratio:6.2f} ×  ({min(self.ratios):.2f} to {max(self.ratios):.2f}; goal"
            f" {self.goal:g})"
        )
        return (
            line
            + ("" if ratio >= self.goal else "  BELOW")
            + (f"\n    {self.note}" if self.note else "")
        )


def run_in_turn(
    runs: dict[str, Callable[[], float]], rounds: int, warm_up: int = 1
) -> dict[str, list[float]]:
    """What each run returns, `rounds` times, taken in turn after `warm_up` rounds that do not
    count."""
    results: dict[str, list[float]] = {name: [] for name in runs}
    for round_ in range(warm_up + rounds):
        for name, run in runs.items():
            result = run()
            if round_ >= warm_up:
                results[name].append(result)
    return results


def clock(device: str) -> Callable[[], float]:
    """What says the time in seconds: of the processor on a CPU, of the wall on a GPU, once that has
    finished what it was given."""
    if device == "cpu":
        return time.process_time

    def synchronized_time() -> float:
        import torch

        torch.cuda.synchronize(device)
        return time.perf_counter()

    return synchronized_time


def seconds(run: Callable[[], object]) -> float:
    """How long one call takes, with the garbage collector off, as timeit does."""
    gc.collect()
    gc.disable()
    try:
        start = time.perf_counter()
        run()
        return time.perf_counter() - start
    finally:
        gc.enable()
