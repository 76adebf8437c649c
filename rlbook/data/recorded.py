"""Recorded episodes in the environment's spaces, and their conversion to the agent's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from rlbook.data.episodes import Episode
from rlbook.interaction.spaces import Adaptation, encode_actions


class RecordedEpisode(NamedTuple):
    """One episode in the environment's own spaces."""

    observations: Sequence[Any]  # T + 1 of them, the last one included
    actions: Sequence[Any]  # T, as the environment took them
    rewards: Sequence[float]  # T
    terminated: bool
    truncated: bool
    seed: int
    # [T + 1, A], the actions allowed at each observation; None where the environment showed no mask
    action_masks: NDArray[np.bool_] | None = None

    def to_episode(
        self, adaptation: Adaptation, raw_spaces: tuple[spaces.Space, spaces.Space]
    ) -> Episode:
        """The episode in the agent's format; `raw_spaces` are the environment's own observation and
        action spaces."""
        observations, actions = (
            stack_values(space, values) for space, values in zip(raw_spaces, self[:2], strict=True)
        )
        return to_episode(
            observations,
            actions,
            np.asarray(self.rewards),
            self.terminated,
            adaptation,
            raw_spaces[1],
            self.action_masks,
        )


def stack_values(space: spaces.Space, values: Sequence[Any]) -> Any:
    """Stacks T values of a space into one array [T, ...] for each component of the space."""
    if isinstance(space, spaces.Dict):
        return {
            key: stack_values(part, [value[key] for value in values])
            for key, part in space.spaces.items()
        }
    if isinstance(space, spaces.Tuple):
        return tuple(
            stack_values(part, [value[i] for value in values])
            for i, part in enumerate(space.spaces)
        )
    return np.asarray(values, dtype=space.dtype)


def to_episode(
    observations: Any,
    actions: Any,
    rewards: NDArray[Any],
    terminated: bool,
    adaptation: Adaptation,
    action_space: spaces.Space,
    action_masks: NDArray[np.bool_] | None = None,
) -> Episode:
    """Builds an episode of T steps from stacked observations [T + 1, ...], actions [T, ...],
    rewards [T] and, where actions were forbidden, masks [T + 1, A].

    Raises:
        ValueError: actions of this space cannot be learned from.
    """
    length, action = len(rewards), encode_actions(np.asarray(actions), action_space)
    reward = np.asarray(rewards, dtype=np.float32)
    # a text: the first observation is its prompt
    if adaptation.observe is None and isinstance(observations, dict):
        prompt = observations["tokens"][0][: int(observations["length"][0])]
        return Episode(np.asarray(prompt), action, reward, terminated)
    seen = np.asarray(
        observations if adaptation.observe is None else adaptation.observe(observations)
    )
    if action_masks is not None:  # who took an action was able to, whatever the mask says
        action_masks = action_masks.copy()
        action_masks[np.arange(length), action] = True
    return Episode(
        seen[:length], action, reward, terminated, seen[length], action_masks=action_masks
    )
