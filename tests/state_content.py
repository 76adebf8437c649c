"""What a state holds, as something that `==` compares."""

from __future__ import annotations

from typing import Any

import numpy as np


def content(state: Any) -> Any:
    """A state as something that can be compared."""
    if isinstance(state, dict):
        return {name: content(part) for name, part in state.items()}
    if isinstance(state, list | tuple):
        return [content(part) for part in state]
    return np.asarray(state).tobytes() if hasattr(state, "shape") else state
