"""The imports of the book's notebooks in one module: numpy, pyplot, torch and the library by their
usual names, and a few functions.

from rlbook.book.course.notebook import check, lines, np, plt, rlbook

lines("algorithms.tabular.sarsa.sarsa_update")     shows a function of the library, without its docstring
difference(ladder.a2c, ladder.ppo)       what turns one function into another
check("exercise 1", answer, exact)       prints "exercise 1: right", "not right, off by ..." or "not yet"
"""

from __future__ import annotations

import ast
import difflib
import importlib
import inspect
import textwrap
from collections.abc import Callable
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import nn

import rlbook
from rlbook.book import figures
from rlbook.book.figures.axes import value_grid
from rlbook.envs import TabularMDP

__all__ = [
    "SourceCode",
    "TabularMDP",
    "check",
    "difference",
    "figures",
    "lines",
    "nn",
    "np",
    "plt",
    "rlbook",
    "torch",
    "value_grid",
    "verdict",
]


def check(
    name: str, answer: ArrayLike | None, exact: ArrayLike, *, tolerance: float = 1e-6
) -> None:
    """Prints whether an answer agrees with the exact one.

    Args:
        name: of the exercise.
        answer: a number, an array, or a list of them; None, or a list with a None in it, is no
            answer yet.
        exact: the same shape.
        tolerance: how far apart they may be in any entry.
    """
    print(f"{name}: {verdict(answer, exact, tolerance)}")


def verdict(answer: ArrayLike | None, exact: ArrayLike, tolerance: float) -> str:
    """The text that `check` prints after the name."""
    if answer is None or (
        isinstance(answer, list | tuple) and any(item is None for item in answer)
    ):
        return "not yet"
    found, right = np.asarray(answer, dtype=np.float64), np.asarray(exact, dtype=np.float64)
    if found.shape != right.shape:
        return f"not right, it has shape {list(found.shape)} and should have {list(right.shape)}"
    if not np.isfinite(found).all():
        return "not right, it contains a number that is not finite"
    distance = float(np.abs(found - right).max(initial=0.0))
    return "right" if distance <= tolerance else f"not right, off by {distance:.3g}"


class SourceCode:
    """Source code that a notebook displays as code."""

    def __init__(self, text: str, language: str = "python") -> None:
        self.text, self.language = text, language

    def __repr__(self) -> str:
        return self.text

    def _repr_markdown_(self) -> str:
        return f"```{self.language}\n{self.text}\n```"


def lines(function: Callable[..., Any] | str) -> SourceCode:
    """The source of a function without its docstring and decorators, below the name of its file.

    Args:
        function: itself, or where it stands in the library, such as
            "envs.tabular.mdp.TabularMDP.backup".
    """
    shown = inspect.unwrap(find_function(function) if isinstance(function, str) else function)
    source = textwrap.dedent(inspect.getsource(shown))
    definition: Any = ast.parse(source).body[0]
    kept, body = source.splitlines(), definition.body
    if ast.get_docstring(definition) is not None:
        kept[body[0].lineno - 1 : body[0].end_lineno] = []
    where = f"# {shown.__module__.replace('.', '/')}.py"
    return SourceCode("\n".join([where, *kept[definition.lineno - 1 :]]))


def find_function(place: str) -> Callable[..., Any]:
    """The function at a path of the library: module, class if there is one, name."""
    module, _, name = place.rpartition(".")
    try:
        return getattr(importlib.import_module(f"rlbook.{module}"), name)
    except ModuleNotFoundError:
        return getattr(find_function(module), name)


def difference(old: Callable[..., Any], new: Callable[..., Any]) -> SourceCode:
    """The lines of two functions as a diff: removed lines after "-", added ones after "+", common
    ones after " "."""
    before, after = (lines(function).text.splitlines() for function in (old, new))
    return SourceCode(
        "\n".join(list(difflib.unified_diff(before, after, n=len(before), lineterm=""))[3:]), "diff"
    )
