"""Which form of a function runs: the plain one that the book shows, or a fast one that a test holds equal to it.

    @has_fast_form("rlbook.fast.networks:forward")
    def forward(x, weights): ...

The fast form has the same signature. It is loaded at the first call, never where RLBOOK_PLAIN is set, and calls `forward.plain` wherever it
cannot vouch for the same result: hooks, adapters, another dtype or device.
"""

from __future__ import annotations

import functools
import importlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

PLAIN = "RLBOOK_PLAIN"
"""Environment variable: anything but empty leaves every fast form alone."""

P = ParamSpec("P")
T = TypeVar("T")

_plain_only = bool(os.environ.get(PLAIN))
_running: set[str] = set()


def has_fast_form(where: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Decorates a plain function; `where` is its fast form as "module:function"."""

    def decorate(plain: Callable[P, T]) -> Callable[P, T]:
        fast: Callable[P, T] | None = None

        @functools.wraps(plain)
        def either(*args: P.args, **kwargs: P.kwargs) -> T:
            nonlocal fast
            if _plain_only:
                return plain(*args, **kwargs)
            if fast is None:
                module, name = where.split(":")
                found: Callable[P, T] = getattr(importlib.import_module(module), name)
                fast = found
                _running.add(where)
            return fast(*args, **kwargs)

        either.plain = plain  # type: ignore[attr-defined]
        return either

    return decorate


def plain_only() -> bool:
    """Whether every fast form is to be left alone."""
    return _plain_only


@contextmanager
def plain_forms(plain: bool = True) -> Iterator[None]:
    """Inside, the plain forms run (or, with False, the fast ones), whatever the environment variable says."""
    global _plain_only
    before, _plain_only = _plain_only, plain
    try:
        yield
    finally:
        _plain_only = before


def running() -> tuple[str, ...]:
    """The fast forms that were called so far, as "module:function"."""
    return tuple(sorted(_running))
