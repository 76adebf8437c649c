"""The memory that a piece of code takes, measured by the tensors that it makes."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Allocations(TorchDispatchMode):
    """Counts the bytes of all storages that torch's operations make while the mode is on.

    It sees shapes, so it measures on torch's device "meta" too, where nothing is stored; it does
    not see what a kernel takes for itself.

    Attributes:
        live: bytes that are in use now, of those made within.
        peak: the most that were.
        largest: shape of the largest tensor.
    """

    def __init__(self) -> None:
        super().__init__()
        self.live = self.peak = self._largest = 0
        self.largest: tuple[int, ...] = ()
        self._known: set[int] = set()

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        given = {
            leaf.untyped_storage()._cdata
            for leaf in tree_leaves((args, kwargs))
            if isinstance(leaf, torch.Tensor)
        }
        result = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, torch.Tensor):
                self._count(tensor, given)
        return result

    def _count(self, tensor: torch.Tensor, given: set[int]) -> None:
        storage = tensor.untyped_storage()
        key, size = storage._cdata, storage.nbytes()
        if key in given or key in self._known:  # a view, or changed in place
            return
        self._known.add(key)
        self.live += size
        self.peak = max(self.peak, self.live)
        if size > self._largest:
            self._largest, self.largest = size, tuple(tensor.shape)
        weakref.finalize(storage, self._free, key, size)

    def _free(self, key: int, size: int) -> None:
        self._known.discard(key)
        self.live -= size


def peak_bytes(run: Callable[[], object]) -> int:
    """The most bytes that tensors made by `run` take at once."""
    with Allocations() as counted:
        run()
    return counted.peak
