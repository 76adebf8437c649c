"""The experiments of the pages. In most modules `run()` makes the result, `measurements(result)` its
numbers, and `draw(result)` its picture. Those on language models have their own folder."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType


def find_experiment(name: str) -> ModuleType | None:
    """The module of an experiment, by its name without a folder; None if there is none."""
    here = Path(__file__).parent
    path = next((path for path in here.rglob("*.py") if path.stem == name), None)
    if path is None:
        return None
    return importlib.import_module(
        ".".join((__name__, *path.relative_to(here).with_suffix("").parts))
    )
