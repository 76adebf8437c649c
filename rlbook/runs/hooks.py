"""Finds the user's modifications to an agent's networks: hooks, parametrisations, an overridden
`forward`.

They change what is computed, and no checkpoint keeps them; a run says so in its notes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, cast

import numpy as np

from rlbook.agent import Agent

if TYPE_CHECKING:
    from torch import nn

DEEP, MANY = 4, 100
"""The largest distance of a network from the agent, and the number of items of a list or dict that
are searched."""
LEAVES = frozenset(
    {bool, int, float, complex, str, bytes, type(None), np.ndarray, np.random.Generator}
)
"""Types that hold no network, as most attributes do."""
KINDS = {
    "_forward_hooks": "a forward hook",
    "_forward_pre_hooks": "a forward pre-hook",
    "_backward_hooks": "a backward hook",
    "_backward_pre_hooks": "a backward pre-hook",
    "forward": "a replaced forward",
}
"""Attributes of a module → the description of what it has if they are not empty."""


def modifications(agent: Agent) -> list[str]:
    """Descriptions such as "a forward hook on policy.actor.layers.0", in the order of the agent's
    attributes."""
    if "torch" not in sys.modules:  # tables do without
        return []
    from rlbook.fast.modules import has_global_hooks

    found = ["a hook on all modules"] if has_global_hooks() else []
    for path, module in _networks(agent, "", DEEP, set()):
        found += [f"{what} on {path}" for what in _module_changes(module)]
    return list(dict.fromkeys(found))


def join_descriptions(descriptions: list[str]) -> str:
    """The first three descriptions, and the number of the others."""
    more = f" and {len(descriptions) - 3} more" if len(descriptions) > 3 else ""
    return ", ".join(descriptions[:3]) + more


def _module_changes(module: nn.Module) -> Iterator[str]:
    content = vars(module)
    yield from (what for name, what in KINDS.items() if content.get(name))
    if "parametrizations" in module._modules:
        yield "a parametrization"
    for name, weight in module._parameters.items():
        hooks = ("_backward_hooks", "_post_accumulate_grad_hooks")
        if any(getattr(weight, hook, None) for hook in hooks):
            yield f"a gradient hook on {name}"


def _networks(
    item: object, path: str, deep: int, seen: set[int]
) -> Iterator[tuple[str, nn.Module]]:
    """The modules inside an object, each once, with their attribute paths."""
    if id(item) in seen:
        return
    seen.add(id(item))
    if isinstance(item, sys.modules["torch"].nn.Module):
        for name, module in cast("nn.Module", item).named_modules(prefix=path):
            if module is item or id(module) not in seen:
                seen.add(id(module))
                yield name, module
        return
    for name, part in _parts(item) if deep else ():
        if type(part) not in LEAVES:
            yield from _networks(part, f"{path}.{name}" if path else str(name), deep - 1, seen)


def _parts(item: object) -> Iterable[tuple[object, object]]:
    """The attributes of rlbook's objects and of agents, and the items of lists and dicts."""
    if isinstance(item, list | tuple):
        return enumerate(item[:MANY])
    if isinstance(item, dict):
        return list(islice(item.items(), MANY))
    ours = type(item).__module__.startswith("rlbook.") or isinstance(item, Agent)
    return list(getattr(item, "__dict__", {}).items()) if ours else ()
