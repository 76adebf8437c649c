"""`rlbook.algorithms` is a package and `rlbook.environments` a module, and both can be called: each lists what it holds."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any


def make_callable(name: str, function: Callable[[], Any]) -> None:
    """Lets the module of that name be called. Importing a module sets it on its package, where it would hide a function of that name."""

    class CallableModule(ModuleType):
        def __call__(self) -> Any:
            return function()

    sys.modules[name].__class__ = CallableModule
