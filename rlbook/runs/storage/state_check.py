"""Compares a checkpoint with the run that will continue from it, before anything is used.

A file that came from elsewhere may say anything: text for a counter, a table with other rows, an
observation that does not exist. Compiled code trusts what it is handed, so it is handed nothing
that was not looked at here.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from gymnasium import Space, spaces

from rlbook.agent import FrozenPart
from rlbook.checks import is_count
from rlbook.runs.storage.state_encoding import StateError


def check_alike(saved: Any, fresh: Any, where: str) -> None:
    """Raises StateError unless a saved value has the same structure as that of a new run.

    The same names, types, dtypes and shapes. What is empty at first may have grown: an array along
    its first axis, a list, a dict; and where there was None there may be anything.
    """
    if fresh is None:
        return
    if (type(fresh) in (int, float) and isinstance(saved, np.number)) or (
        type(fresh) is float and type(saved) is int
    ):
        saved = saved.item() if isinstance(saved, np.number) else float(saved)
    # older checkpoints have plain dicts
    if type(saved) is not type(fresh) and {type(saved), type(fresh)} != {
        dict,
        FrozenPart,
    }:
        raise StateError(f"{where} is {_kind(saved)} where {_kind(fresh)} belongs")
    if isinstance(fresh, dict):
        _check_names(saved, fresh, where)
        for name in fresh:
            check_alike(saved[name], fresh[name], f"{where}/{name}")
    elif isinstance(fresh, list | tuple):
        if fresh and len(saved) != len(fresh):
            raise StateError(f"{where} has {len(saved)} items where {len(fresh)} belong")
        for index, (one, other) in enumerate(zip(saved, fresh, strict=False)):
            check_alike(one, other, f"{where}/{index}")
    elif hasattr(fresh, "dtype"):
        _check_array(saved, fresh, where)
    elif type(fresh) is float and math.isfinite(fresh) and not math.isfinite(saved):
        raise StateError(f"{where} is {saved}, which is not finite")
    elif type(fresh) is int and fresh >= 0 > saved:
        raise StateError(f"{where} is {saved}, which is below 0")


def _check_names(saved: dict[str, Any], fresh: dict[str, Any], where: str) -> None:
    if fresh and set(saved) != set(fresh):
        odd = min(set(saved) ^ set(fresh))
        raise StateError(f"{where} {'lacks' if odd in fresh else 'has an unknown'} {odd[:80]!r}")


def _check_array(saved: Any, fresh: Any, where: str) -> None:
    """Checks an array or a tensor; the first axis may differ where `fresh` is empty."""
    shape, expected = tuple(saved.shape), tuple(fresh.shape)
    if expected and expected[0] == 0 and len(shape) == len(expected):
        shape, expected = shape[1:], expected[1:]
    if saved.dtype != fresh.dtype or shape != expected:
        has, belongs = f"{saved.dtype} {list(saved.shape)}", f"{fresh.dtype} {list(fresh.shape)}"
        raise StateError(f"{where} is {has} where {belongs} belongs")


def check_shown(space: Space, shown: object, where: str) -> None:
    """Raises StateError unless a saved observation lies in the space."""
    if isinstance(space, spaces.Dict):
        if not isinstance(shown, dict) or set(shown) != set(space.spaces):
            raise StateError(f"{where} is not an observation of {str(space)[:80]}")
        for name, part in space.spaces.items():
            check_shown(part, shown[name], f"{where}/{name}")
        return
    if isinstance(space, spaces.Tuple):
        if not isinstance(shown, tuple) or len(shown) != len(space.spaces):
            raise StateError(f"{where} is not an observation of {str(space)[:80]}")
        for i, part in enumerate(space.spaces):
            check_shown(part, shown[i], f"{where}/{i}")
        return
    is_array = isinstance(shown, np.ndarray | np.generic)
    if isinstance(space, spaces.Box) and np.dtype(space.dtype).kind == "f":
        # a little outside its bounds does no harm
        fits = is_array and shown.shape == space.shape and shown.dtype.kind == "f"
    elif isinstance(space, spaces.Box | spaces.MultiDiscrete | spaces.MultiBinary):
        fits = is_array and bool(space.contains(shown))  # which takes lists, too
    else:
        fits = bool(space.contains(shown))
    if not fits:
        raise StateError(f"{where} is not an observation of {str(space)[:80]}")


def check_report(report: object, marks: int) -> None:
    """Raises StateError unless a saved log state consists of counts, sums and the best evaluation
    so far."""
    if not isinstance(report, dict):
        raise StateError(f"the report is {_kind(report)}")
    if not is_count(report.get("marks")) or report["marks"] > marks:
        raise StateError(
            f"report/marks must be an integer from 0 to {marks}, got"
            f" {str(report.get('marks'))[:40]!r}"
        )
    if not _is_number(report.get("progress")) or not 0 <= report["progress"] <= 1:
        raise StateError(
            f"report/progress must be a number in [0, 1], got {str(report.get('progress'))[:40]!r}"
        )
    best, sums, log = report.get("best"), report.get("sums"), report.get("log")
    if best is not None and not (
        isinstance(best, list) and len(best) == 2 and is_count(best[0]) and _is_number(best[1])
    ):
        raise StateError("report/best is not a step and a score")
    if not isinstance(log, dict) or not all(map(is_count, log.values())):
        raise StateError("report/log holds no lengths of files")
    digests = report.get("log_sha256", {})
    if not isinstance(digests, dict) or not all(isinstance(item, str) for item in digests.values()):
        raise StateError("report/log_sha256 holds no checksums of files")
    modified = report.get("modified", [])
    if not isinstance(modified, list) or not all(isinstance(item, str) for item in modified):
        raise StateError("report/modified holds no names of hooks")
    pairs = sums.values() if isinstance(sums, dict) else [None]
    if not all(
        isinstance(pair, list)
        and len(pair) == 2
        and _is_number(pair[0], finite=False)
        and is_count(pair[1])
        for pair in pairs
    ):
        raise StateError("report/sums holds no sums and counts")


def _is_number(value: object, *, finite: bool = True) -> bool:
    return (
        isinstance(value, int | float | np.number)
        and not isinstance(value, bool)
        and (not finite or math.isfinite(value))
    )


def _kind(value: object) -> str:
    return (
        f"{type(value).__name__} {value!r:.40}"
        if isinstance(value, int | float | str)
        else type(value).__name__
    )
