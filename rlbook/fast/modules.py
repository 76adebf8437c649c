"""Whether calling a torch module does what its class says, and nothing else: no hook, no replaced
method, no autocast.

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
"""The hooks that torch calls for every module there is; empty dicts where nobody has set any."""


def is_unmodified(module: nn.Module) -> bool:
    """No hook on this module, and no `forward` put in place of its class's."""
    inside = module.__dict__
    return not (
        inside["_forward_hooks"]
        or inside["_forward_pre_hooks"]
        or inside["_backward_hooks"]
        or inside["_backward_pre_hooks"]
        or "forward" in inside
    )


def ordinary() -> bool:
    """Neither autocast nor a hook on all modules is at work."""
    return not torch.is_autocast_enabled("cpu") and not hooks_everywhere()


def hooks_everywhere() -> bool:
    """Whether there is a hook on all modules."""
    return any(_EVERYWHERE)


def trains_plainly(weights: Sequence[Tensor], trained: Sequence[Tensor]) -> bool:
    """Whether these weights are all that is trained, in this order, and nobody watches their
    gradients."""
    if list(map(id, weights)) != list(map(id, trained)):
        return False
    return not any(
        weight._backward_hooks or weight._post_accumulate_grad_hooks for weight in weights
    )  # type: ignore[attr-defined]


def inside(root: nn.Module) -> Iterator[nn.Module]:
    """The module and all below it, like `root.modules()`, in less time; a shared one comes
    twice."""
    waiting = [root]
    while waiting:
        module = waiting.pop()
        yield module
        waiting += [child for child in module._modules.values() if child is not None]
