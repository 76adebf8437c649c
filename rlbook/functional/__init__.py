"""The book's equations, one pure function each.

None of them depends on an agent, on an environment or on random numbers.

`rlbook.functional.gae` is short for `rlbook.functional.advantages.gae`, and so for every other
name.
"""

from __future__ import annotations

import importlib
from typing import Any

_MODULES = (
    "action_masks",
    "advantages",
    "averages",
    "convolution",
    "divergences",
    "intervals",
    "linear_td",
    "maximum_entropy",
    "moments",
    "natural_gradient",
    "policy_gradients",
    "policy_losses",
    "post_training.kto_losses",
    "post_training.preference_losses",
    "post_training.process_rewards",
    "post_training.success_rates",
    "rainbow",
    "recurrent_cells",
    "returns",
    "schedules",
    "shaping",
    "value_losses",
)


def __getattr__(name: str) -> Any:
    """Imports submodules, and the names that they define, on first use, so that `import rlbook` is
    fast."""
    if name in (*_MODULES, "post_training"):
        return importlib.import_module(f"{__name__}.{name}")
    if not name.startswith("_"):
        for module in map(importlib.import_module, (f"{__name__}.{module}" for module in _MODULES)):
            if getattr(vars(module).get(name), "__module__", None) == module.__name__:
                return vars(module)[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
