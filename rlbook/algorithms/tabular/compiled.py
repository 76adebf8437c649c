"""Compiling the arithmetic of tabular updates where numba is installed (`pip install rlbook[fast]`), and leaving it alone where not."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(function: Function) -> Function:
    """The same function, compiled by numba if that is installed. It may use numbers and numpy arrays only, and gives the same numbers."""
    if find_spec("numba") is None:
        return function
    from numba import njit  # type: ignore[import-not-found]

    return njit(cache=True)(function)
