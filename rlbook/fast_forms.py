"""Which form of a function runs: the plain one that the book shows, or a fast one that a test holds
equal to it.

    @has_fast_form
    def forward(x, weights): ...

`rlbook.fast` has the table of fast forms. One has the signature of the plain form, is loaded at the
first call, never where RLBOOK_PLAIN is set, and calls `forward.plain` wherever it cannot vouch for
the same result: hooks, adapters, another dtype or device. Where RLBOOK_PLAIN is set from the start,
the decorated function is the plain one itself, so that nothing stands between it and its caller.
"""

from __future__ import annotations

import functools
import os
import pkgutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ParamSpec, TypeVar

PLAIN = "RLBOOK_PLAIN"
"""Environment variable: any value but the empty string disables all fast forms."""

P = ParamSpec("P")
T = TypeVar("T")

_plain_only = bool(os.environ.get(PLAIN))


def has_fast_form(plain: Callable[P, T]) -> Callable[P, T]:
    """Decorates a plain function that is in the table of `rlbook.fast`."""
    if _plain_only:
        plain.plain = plain  # type: ignore[attr-defined]
        return plain
    fast: Callable[P, T] | None = None

    @functools.wraps(plain)
    def run_form(*args: P.args, **kwargs: P.kwargs) -> T:
        nonlocal fast
        if _plain_only:
            return plain(*args, **kwargs)
        if fast is None:
            fast = pkgutil.resolve_name(pkgutil.resolve_name("rlbook.fast:FORMS")[name_of(plain)])
            assert fast is not None
        return fast(*args, **kwargs)

    run_form.plain = plain  # type: ignore[attr-defined]
    return run_form


def name_of(function: Callable[..., Any]) -> str:
    """The name of a function in the tables of `rlbook.fast`."""
    return f"{getattr(function, '__module__', '')}:{getattr(function, '__qualname__', '')}"


def is_plain_only() -> bool:
    """Whether no fast form is to be used."""
    return _plain_only


@contextmanager
def use_plain_forms(plain: bool = True) -> Iterator[None]:
    """Within the context, the plain forms run (or, with False, the fast ones), whatever the
    environment variable says."""
    global _plain_only
    before, _plain_only = _plain_only, plain
    try:
        yield
    finally:
        _plain_only = before
