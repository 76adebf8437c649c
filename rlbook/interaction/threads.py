"""The number of cores, and torch settings that make results reproducible.

One thread for small networks: two make them two to three times slower, and sums may then round
differently from run to run.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager


def cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def use_one_thread() -> Iterator[None]:
    """Limits torch to one thread within the context and restores the old setting afterwards; does
    nothing if torch is not loaded."""
    torch = sys.modules.get("torch")
    if torch is None:
        yield
        return
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def deterministic_kernels(device: str) -> Iterator[None]:
    """Within the context, a GPU uses only deterministic kernels; does nothing for "cpu", where one
    thread is enough."""
    if device == "cpu":
        yield
        return
    import torch

    before, warned = (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
    )
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before, warn_only=warned)
