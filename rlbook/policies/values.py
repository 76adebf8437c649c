"""What a critic and a Q-network are, whatever they are made of."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from torch import Tensor, nn

from rlbook.agent import State


class Value(Protocol):
    """V(s), in reward units: the `value` of a policy with a critic is one."""

    def __call__(self, observations: Tensor, /) -> Tensor:
        """[N, ...] → [N]."""
        ...


class ActionValue(Protocol):
    """Q(s, ·), in reward units: an MLP, or a convolutional network, with one output an action."""

    def __call__(self, observations: Tensor, /) -> Tensor:
        """[N, ...] → [N, A]."""
        ...

    def parameters(self) -> Iterator[nn.Parameter]:
        """What is trained."""
        ...

    def state_dict(self) -> State:
        """The weights by name."""
        ...

    def load_state_dict(self, state: State, /) -> Any:
        """The inverse of `state_dict`."""
        ...
