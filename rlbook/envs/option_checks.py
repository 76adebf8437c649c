"""Checks of an environment's options: a ValueError of one sentence where a value is not allowed."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

MODES = ("ansi", "rgb_array", "human")
"""Render modes."""


def is_integer(value: object, least: int, most: float = math.inf) -> bool:
    """Whether the value is an integer from `least` to `most`; a bool is none."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        return False
    return least <= int(value) <= most


def is_number(value: object) -> bool:
    """Whether the value is a finite real number; a bool is none."""
    real = isinstance(value, int | float | np.integer | np.floating)
    return real and not isinstance(value, bool) and math.isfinite(value)


def check_integer(name: str, value: object, least: int = 1) -> None:
    """Raises ValueError unless the value is an integer of at least `least`."""
    if not is_integer(value, least):
        raise ValueError(f"{name} must be an integer of at least {least}, got {value!r}.")


def check_number(name: str, value: object) -> None:
    """Raises ValueError unless the value is a finite number."""
    if not is_number(value):
        raise ValueError(f"{name} must be a finite number, got {value!r}.")


def check_probability(name: str, value: float) -> None:
    """Raises ValueError unless the value is a number in [0, 1]."""
    if not (is_number(value) and 0 <= value <= 1):
        raise ValueError(f"{name} must be a probability in [0, 1], got {value!r}.")


def check_flag(name: str, value: object) -> None:
    """Raises ValueError unless the value is a bool."""
    if not isinstance(value, bool):
        raise ValueError(f"{name} must be true or false, got {value!r}.")


def check_choice(name: str, value: object, allowed: Iterable[str]) -> None:
    """Raises ValueError unless the value is one of these."""
    if value not in (choices := tuple(allowed)):
        raise ValueError(f"{name} must be one of {', '.join(choices)}, got {value!r}.")


def check_render_mode(render_mode: object) -> None:
    """Raises ValueError for an unknown render mode."""
    if render_mode not in (None, *MODES):
        raise ValueError(
            f"render_mode must be None or one of {', '.join(MODES)}, got {render_mode!r}."
        )
