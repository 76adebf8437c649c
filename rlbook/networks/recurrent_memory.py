"""The memory of the episodes in progress, for an agent with a recurrent network."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from rlbook.agent import State


class RecurrentMemory:
    """One row of numbers for each of N environments; zeros where an episode starts.

    Training has one, and whoever lets an agent act outside training has another
    (`rlbook.interaction.player`).

    Args:
        like: a row [S] of the network's type and device.
    """

    def __init__(self, like: Tensor) -> None:
        self._like = like
        self.state: Tensor | None = None
        """[N, S]; None stands for zeros."""
        self.before: Tensor | None = None
        """[N, S], from which the last action was chosen."""

    def rows(self, count: int) -> Tensor:
        """The states of `count` environments: [N, S].

        Raises:
            ValueError: it is of another number of environments.
        """
        if self.state is None:
            return self._like.new_zeros(count, len(self._like))
        if len(self.state) != count:
            raise ValueError(
                f"the state must have a row for each of {count} observations, got {len(self.state)}"
            )
        return self.state

    def advance(self, before: Tensor, after: Tensor) -> None:
        """Records that an action was chosen: the states [N, S] before it, and after the observation
        was read."""
        self.before, self.state = before, after

    def forget(self, ended: ArrayLike) -> None:
        """Resets the state where an episode has ended: [N] bool, or one for N = 1."""
        over = np.atleast_1d(np.asarray(ended, dtype=bool))
        if self.state is None or not over.any():
            return
        here = torch.from_numpy(over).to(self.state.device)
        self.state = self.state.masked_fill(here[:, None], 0.0)

    def clear(self) -> None:
        """Resets the states of all environments."""
        self.state = self.before = None

    def as_array(self) -> NDArray[np.floating[Any]]:
        """The state [N, S] for storage by the caller."""
        assert self.state is not None
        state = self.state.detach()
        return (state.float() if state.dtype == torch.bfloat16 else state).cpu().numpy()

    def from_array(self, state: ArrayLike) -> None:
        """The inverse of `as_array`; one row [S] is that of one environment.

        Raises:
            ValueError: it has not the shape of this network's state.
        """
        given = np.atleast_2d(np.asarray(state))
        if given.ndim != 2 or given.shape[1] != len(self._like):
            raise ValueError(
                f"the state must be an array [N, {len(self._like)}] as predict returned it, or"
                f" None at the start of an episode, got shape {list(np.shape(state))}"
            )
        self.state = torch.from_numpy(given).to(self._like)

    def state_dict(self) -> State:
        return {"state": self.state}

    def load_state_dict(self, state: State) -> None:
        kept = state["state"]
        if kept is not None and (kept.dim() != 2 or kept.shape[1] != len(self._like)):
            raise ValueError(
                f"the saved memory must be [N, {len(self._like)}], got {list(kept.shape)}"
            )
        # a copy: how a product is rounded may depend on where in memory its factors begin
        self.state = None if kept is None else kept.to(self._like).clone()
