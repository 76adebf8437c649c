"""The algorithms, one file each. `rlbook.algorithms()` gives them by name."""

from __future__ import annotations

from typing import Any

from rlbook.callable_module import make_callable


def _by_name() -> dict[str, Any]:
    from rlbook.registry import algorithms

    return algorithms()


make_callable(__name__, _by_name)
