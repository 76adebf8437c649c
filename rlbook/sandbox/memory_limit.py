"""A limit on memory for Python code of strangers, such as a model's chat template: one call into C
can ask for any amount of it."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_ONE_AT_A_TIME = threading.Lock()  # the limit is the whole process's


@contextmanager
def memory_limit(more: int) -> Iterator[None]:
    """Inside, an allocation that would let the process grow by more than `more` bytes of address
    space raises MemoryError.

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
