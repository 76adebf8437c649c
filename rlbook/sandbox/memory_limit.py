"""A memory limit for untrusted Python code, such as a model's chat template: a single call into C
can allocate any amount."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_ONE_AT_A_TIME = threading.Lock()  # the limit is the whole process's


@contextmanager
def memory_limit(more: int) -> Iterator[None]:
    """Within the context, an allocation that would grow the process by more than `more` bytes of
    address space raises MemoryError.

    All threads are limited meanwhile. Without effect where the system is not Linux.
    """
    if sys.platform != "linux":
        yield
        return
    import resource

    with _ONE_AT_A_TIME:
        soft, hard = resource.getrlimit(resource.RLIMIT_AS)
        most = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize() + more
        if soft == resource.RLIM_INFINITY or most < soft:
            resource.setrlimit(resource.RLIMIT_AS, (most, hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
