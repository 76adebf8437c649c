"""The algorithms, one file each: `rlbook.algorithms()` lists them by name, and their classes can be
imported from here, as in `from rlbook.algorithms import PPO`.

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

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        from rlbook.registry import agent_class, class_names

        if name not in (known := class_names()):
            from rlbook.checks import did_you_mean
            from rlbook.errors import missing_name

            raise missing_name(self.__name__, name, did_you_mean(name, known), sys._getframe(1))
        return agent_class(known[name])

    def __dir__(self) -> list[str]:
        from rlbook.registry import class_names

        return sorted({*super().__dir__(), *class_names()})


sys.modules[__name__].__class__ = _CallableModule
