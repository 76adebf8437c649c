"""Whether calling a torch module does only what its class defines: no hook, no replaced method, no
autocast.

A fast form asks this at every call, because an adapter may be put into a network at any time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn
from torch.nn.modules import module as torch_module

_EVERYWHERE = [
    hooks
    for name in (
        "_global_forward_hooks",
        "_global_forward_pre_hooks",
        "_global_backward_hooks",
        "_global_backward_pre_hooks",
    )
    if (hooks := getattr(torch_module, name, None)) is not None
]
"""The hooks that torch calls for every module; empty dicts if there are none."""


def is_unmodified(module: nn.Module) -> bool:
    """Whether this module has no hook, and no `forward` that replaces its class's."""
    inside = module.__dict__
    return not (
        inside["_forward_hooks"]
        or inside["_forward_pre_hooks"]
        or inside["_backward_hooks"]
        or inside["_backward_pre_hooks"]
        or "forward" in inside
    )


def is_default_context() -> bool:
    """Whether neither autocast nor a hook on all modules is active."""
    return not torch.is_autocast_enabled("cpu") and not has_global_hooks()


def has_global_hooks() -> bool:
    """Whether there is a hook on all modules."""
    return any(_EVERYWHERE)


def trains_plainly(weights: Sequence[Tensor], trained: Sequence[Tensor]) -> bool:
    """Whether exactly these weights are trained, in this order, without hooks on their
    gradients."""
    if list(map(id, weights)) != list(map(id, trained)):
        return False
    return not any(
        weight._backward_hooks or weight._post_accumulate_grad_hooks for weight in weights
    )  # type: ignore[attr-defined]


def iterate_modules(root: nn.Module) -> Iterator[nn.Module]:
    """The module and all submodules, like `root.modules()` but faster; a shared one occurs
    twice."""
    waiting = [root]
    while waiting:
        module = waiting.pop()
        yield module
        waiting += [child for child in module._modules.values() if child is not None]
