"""The protocols of a critic and of a Q-network."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from rlbook.agent import State
from rlbook.functional.action_masks import masked_argmax
from rlbook.networks.policy import as_array


def as_mask(action_mask: NDArray[np.bool_] | None, device: torch.device | str) -> Tensor | None:
    """A mask [N, A] as a tensor; None stays None."""
    return None if action_mask is None else torch.from_numpy(action_mask).to(device)


def greedy_actions(values: Tensor, action_mask: NDArray[np.bool_] | None) -> NDArray[np.int64]:
    """The greedy allowed action for each row of Q(s, ·) or of logits: [N, A] → [N]."""
    return as_array(masked_argmax(values, as_mask(action_mask, values.device)))


class Value(Protocol):
    """V(s), in reward units; the `value` method of a policy with a critic qualifies."""

    def __call__(self, observations: Tensor, /) -> Tensor:
        """[N, ...] → [N]."""
        ...


class ActionValue(Protocol):
    """Q(s, ·), in reward units: an MLP or a convolutional network with one output per action."""

    def __call__(self, observations: Tensor, /) -> Tensor:
        """[N, ...] → [N, A]."""
        ...

    def parameters(self) -> Iterator[nn.Parameter]:
        """The trainable parameters."""
        ...

    def state_dict(self) -> State:
        """The weights by name."""
        ...

    def load_state_dict(self, state: State, /) -> Any:
        """The inverse of `state_dict`."""
        ...
