"""The algorithms, one file each. `rlbook.algorithms()` gives them by name.

Importing a module sets it on its package, where this one hides the function of the same name; so
the module itself can be called.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


class _CallableModule(ModuleType):
    def __call__(self) -> dict[str, Any]:
        from rlbook.registry import algorithms

        return algorithms()


sys.modules[__name__].__class__ = _CallableModule
