"""An exploration bonus: a reward for rarely taken steps, added to the environment's own. It is paid
through `rlbook.interaction.learned_reward`, so that every algorithm can use it, and is kept across
episodes.

Here is the one that counts; the one that a network learns is in
`rlbook.networks.random_distillation`.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlbook.agent import State
from rlbook.functional.exploration_bonuses import count_bonus
from rlbook.interaction.spaces import Observations

DIGEST = 16
"""The number of bytes of a state-action pair's hash; a collision of two pairs has probability
2^-64."""


class CountBonus:
    """β / √n(s, a), where n counts how often action a was taken in state s, over all environments
    together.

    States are told apart by their bytes, so that this is for states that are seen again.

    Args:
        coef: β, in reward units.

    Source: see `count_bonus`. Difference: it is paid as a reward, for model-free agents.
    """

    learns = True
    """It changes with each step that it scores."""

    def __init__(self, coef: float) -> None:
        self.coef = coef
        self.counts: dict[bytes, int] = {}

    def adapt_observations(self, observations: Observations) -> Any:
        """The observations, unchanged."""
        return observations

    def score_steps(
        self,
        obs: Any,
        action: NDArray[Any],
        next_obs: Any,
        done: NDArray[np.bool_],
        active: NDArray[np.bool_] | None = None,
    ) -> tuple[NDArray[np.float64], None]:
        """The bonuses [N] of the steps [N] that are `active`, which are counted first (None: all);
        0 for the others."""
        active = np.ones(len(done), dtype=bool) if active is None else active
        count = np.ones(len(active))
        for row in np.flatnonzero(active):
            key = _digest(obs, action, int(row))
            count[row] = self.counts[key] = self.counts.get(key, 0) + 1
        return np.where(active, count_bonus(count, self.coef), 0.0), None

    def state_dict(self) -> State:
        """The pairs, [K, 16] bytes, and how often each was taken, [K]."""
        pairs = np.frombuffer(b"".join(self.counts), dtype=np.uint8).reshape(-1, DIGEST)
        return {"pairs": pairs.copy(), "counts": np.array([*self.counts.values()], dtype=np.int64)}

    def load_state_dict(self, state: State) -> None:
        """The inverse of `state_dict`. Raises ValueError if the two do not belong together."""
        pairs, counts = np.asarray(state["pairs"]), np.asarray(state["counts"])
        if pairs.shape != (len(counts), DIGEST) or pairs.dtype != np.uint8 or (counts < 1).any():
            raise ValueError("the saved counts of the exploration bonus are damaged")
        keys = (pair.tobytes() for pair in pairs)
        self.counts = dict(zip(keys, counts.tolist(), strict=True))


def _digest(obs: Any, action: NDArray[Any], row: int) -> bytes:
    """A hash of the state-action pair of one row."""
    hashed = hashlib.blake2b(digest_size=DIGEST)
    for part in (*_leaves(obs), action):
        hashed.update(np.ascontiguousarray(part[row]).tobytes())
    return hashed.digest()


def _leaves(obs: Any) -> list[NDArray[Any]]:
    """The arrays of a batch of observations."""
    if isinstance(obs, dict):
        return [leaf for part in obs.values() for leaf in _leaves(part)]
    if isinstance(obs, tuple):
        return [leaf for part in obs for leaf in _leaves(part)]
    return [np.asarray(obs)]
