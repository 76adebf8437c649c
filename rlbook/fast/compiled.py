"""One function, two speeds: plain Python, or machine code where numba is installed
(`pip install rlbook[fast]`).

The functions that make up a tabular algorithm use numbers, indexing and `math` alone, so the same
source runs on nested lists in Python and on arrays when compiled, and gives the same numbers.
`link_globals` puts an algorithm's own functions into a loop that is written once; compiled loops are kept
on disk, in a folder named after a digest of this package's code and of its versions.
"""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import sys
import textwrap
import threading
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeGuard

from rlbook.algorithms.tabular.exploration import softmax, upper_confidence
from rlbook.errors import message_stream
from rlbook.fast.tabular.list_forms import LIST_FORMS
from rlbook.fast_forms import PLAIN, is_plain_only
from rlbook.functional.schedules import scheduled_value

PATIENCE = 1.0
"""Seconds of compiling that need no note; loading previously compiled code takes less."""

COPIED_BY_LLVM = frozenset({scheduled_value, softmax, upper_confidence})
"""Functions that a loop calls at many places but a step at few of them. numba would copy their code
into the loop at every call, which makes compiling up to twice as long; LLVM inlines them, too, and
a step takes no longer."""


def available() -> bool:
    """Whether functions can be compiled here."""
    return not is_plain_only() and not os.environ.get(PLAIN) and _has_numba()


@contextmanager
def announce_compilation(what: str) -> Iterator[None]:
    """Around the first call of a compiled loop: prints a note if compiling takes long."""
    often = (
        "once; the next run starts at once"
        if can_cache()
        else "in each run, because there is no cache folder that can be written"
    )
    message = f"note: compiling {what} {often}"
    if sys.stderr.isatty():
        message = textwrap.fill(
            message, max(40, shutil.get_terminal_size().columns - 1), subsequent_indent="  "
        )
    timer = threading.Timer(PATIENCE, print, [message], {"file": message_stream(), "flush": True})
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


@functools.cache
def _has_numba() -> bool:
    return find_spec("numba") is not None


@functools.cache
def link_globals(template: Callable[..., object], how: str, **bound: Callable[..., object]) -> Any:
    """A copy of `template` with the names in `bound`, which it reads as globals, standing for other
    functions.

    Args:
        how: "arrays": as they are. "lists": with every function that has a form for lists in that
            form. "compiled": with every rlbook function that it calls, as machine code for arrays.
            A function that calls itself is not supported.
    """
    name = "_".join(
        [
            template.__name__,
            *(f"{item.__module__.split('.')[-1]}_{item.__name__}" for item in bound.values()),
        ]
    )
    return _link(template, bound, name, {}, how, outermost=True)


def _link(
    function: types.FunctionType,
    bound: dict[str, Callable[..., object]],
    name: str,
    done: dict[types.FunctionType, Any],
    how: str,
    *,
    outermost: bool = False,
) -> Any:
    if how == "lists" and function in LIST_FORMS:
        return LIST_FORMS[function]
    if function not in done:
        inner = {
            key: value
            for key, value in (function.__globals__ | bound).items()
            if key in function.__code__.co_names
        }
        inner |= {
            key: _link(value, {}, value.__name__, done, how)
            for key, value in inner.items()
            if _ours(value)
        }
        copy = types.FunctionType(
            function.__code__, function.__globals__ | bound | inner, name, function.__defaults__
        )
        copy.__qualname__, copy.__module__ = name, function.__module__
        if how == "compiled":
            inlined = {"forceinline": True} if function in COPIED_BY_LLVM else {"inline": "always"}
            copy = _compile(copy, {"cache": can_cache()} if outermost else inlined)
        done[function] = copy
    return done[function]


def _compile(function: types.FunctionType, options: dict[str, Any]) -> Any:
    """Compiles a function. Nothing in these functions allocates, so reference counting, which would
    take most of the time, is off."""
    return numba_module().njit(error_model="numpy", _nrt=False, **options)(function)


def _ours(value: object) -> TypeGuard[types.FunctionType]:
    return isinstance(value, types.FunctionType) and value.__module__.split(".")[0] == "rlbook"


@functools.cache
def numba_module() -> Any:
    """numba, configured with its cache folder."""
    import numba
    from numba.core import config

    if can_cache():
        setattr(config, "CACHE_DIR", str(_cache_folder()))  # noqa: B010 - numba makes its settings at run time
    return numba


@functools.cache
def can_cache() -> bool:
    """Whether machine code can be kept for the next process: not where the home folder is missing
    or cannot be written."""
    try:
        folder = _cache_folder()
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):  # RuntimeError: no home
        return False
    return os.access(folder, os.W_OK)


def _cache_folder() -> Path:
    """The cache folder. A function is compiled together with those it calls, also from other files,
    so the folder's name depends on all of them."""
    if "NUMBA_CACHE_DIR" in os.environ:
        return Path(os.environ["NUMBA_CACHE_DIR"])
    package = Path(__file__).parents[1]
    digest = hashlib.sha256(" ".join(version(name) for name in ("numba", "numpy")).encode())
    for file in sorted(
        path
        for room in ("algorithms", "envs", "fast", "functional")
        for path in package.glob(f"{room}/**/*.py")
    ):
        digest.update(file.read_bytes())
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "rlbook" / "compiled" / digest.hexdigest()[:16]
