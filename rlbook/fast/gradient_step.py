"""A gradient step on a loss whose gradient is written out; the table `GRADIENTS` of `rlbook.fast`
has these losses."""

from __future__ import annotations

import functools
import pkgutil
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from rlbook.fast import GRADIENTS
from rlbook.fast_forms import name_of
from rlbook.interaction.process_group import ProcessGroup
from rlbook.networks import optimizer as plain
from rlbook.networks.optimizer import LossOutput, Optimizer, R, Split

_resolve = functools.cache(pkgutil.resolve_name)


def gradient_step(
    optimizer: Optimizer,
    loss: Callable[[R], LossOutput],
    batch: R,
    *,
    micro_batch_size: int | None = None,
    max_grad_norm: float | None = None,
    split: Split = "rows",
) -> dict[str, Tensor]:
    """The fast form of `rlbook.networks.optimizer.gradient_step`. Of several processes, each calls
    this once more with its own rows."""
    own = ProcessGroup.training is None or split == "nothing"
    whole = micro_batch_size is None and torch.is_grad_enabled()
    if own and whole and isinstance(loss, partial):
        written = written_gradient(loss.func)
        if written is not None:
            done = written(optimizer, batch, max_grad_norm, *loss.args, **loss.keywords)
            if done is not None:
                return done
    sizes: Any = {"micro_batch_size": micro_batch_size, "max_grad_norm": max_grad_norm}
    return plain.gradient_step.plain(optimizer, loss, batch, **sizes, split=split)  # type: ignore[attr-defined]


def written_gradient(loss: Callable[..., Any]) -> Callable[..., Any] | None:
    """The gradient step of a loss whose gradient is written out; None for any other loss."""
    name = name_of(loss)
    if name not in GRADIENTS or _resolve(name) is not loss:
        return None
    return _resolve(GRADIENTS[name])
