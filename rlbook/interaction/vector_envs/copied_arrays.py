"""Copies of what a vector environment shows: it may write its next step into the same arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gymnasium.vector import VectorWrapper
from numpy.typing import ArrayLike

from rlbook.interaction.guards import unpack_reset, unpack_vector_step
from rlbook.interaction.single import own_copy


class CopiedArrays(VectorWrapper):
    """N environments whose observations and flags are not overwritten by later steps."""

    keeps_rewards = True  # see `round_rewards`

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> Any:
        answer = self.env.reset(seed=seed, options=options)  # type: ignore[arg-type]
        obs, info = unpack_reset(answer)
        return own_copy(obs), info

    def step(self, actions: ArrayLike) -> Any:
        answer = self.env.step(actions)  # type: ignore[arg-type]
        obs, reward, terminated, truncated, info = unpack_vector_step(answer, self.num_envs)
        return own_copy(obs), reward, terminated.copy(), truncated.copy(), info
