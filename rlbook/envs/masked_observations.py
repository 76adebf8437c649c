"""Observations that hold their own action mask: `{"observation": x, "action_mask": m}`.

Source: the convention of PettingZoo's turn-based games and of RLlib's example of action masking,
which calls the first entry "observations". The names of the other entries do not matter here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gymnasium import spaces

MASK_KEY = "action_mask"
"""The entry of an observation that is a mask."""


def keys_beside_mask(
    observation_space: spaces.Space | None, action_space: spaces.Space | None
) -> tuple[str, ...]:
    """The entries of an observation other than its action mask; () where it holds no mask.

    A mask is an entry `action_mask` of a Dict with other entries: n numbers that are 0 or 1, of a
    Box, a MultiBinary or a MultiDiscrete, where the actions are Discrete(n).
    """
    if not isinstance(observation_space, spaces.Dict) or not isinstance(
        action_space, spaces.Discrete
    ):
        return ()
    part = observation_space.spaces.get(MASK_KEY)
    if part is None or part.shape != (int(action_space.n),) or not _is_zero_or_one(part):
        return ()
    return tuple(key for key in observation_space.spaces if key != MASK_KEY)


def _is_zero_or_one(space: spaces.Space) -> bool:
    if isinstance(space, spaces.Box):
        return bool((space.low == 0).all() and (space.high == 1).all())
    if isinstance(space, spaces.MultiDiscrete):
        return bool((space.start == 0).all() and (space.nvec == 2).all())
    return isinstance(space, spaces.MultiBinary)


def space_beside_mask(space: spaces.Dict) -> spaces.Space:
    """The space of an observation without its mask: the other entry's, or a Dict of the others."""
    rest = {key: part for key, part in space.spaces.items() if key != MASK_KEY}
    return next(iter(rest.values())) if len(rest) == 1 else spaces.Dict(rest)


def split_observation(observation: Mapping[str, Any]) -> tuple[Any, Any]:
    """What an observation shows besides its mask, as `space_beside_mask` has it, and the mask; of
    one observation or of a batch.

    Raises:
        KeyError: it holds no mask, or nothing else.
    """
    rest = {key: part for key, part in observation.items() if key != MASK_KEY}
    if not rest:
        raise KeyError("observation")
    return next(iter(rest.values())) if len(rest) == 1 else rest, observation[MASK_KEY]


def is_masked_observation(observation: object, space: spaces.Space | None) -> bool:
    """Whether an observation, or a batch, holds a mask that its space, an agent's, does not have."""
    return (
        isinstance(observation, Mapping)
        and MASK_KEY in observation
        and len(observation) > 1
        and MASK_KEY not in (getattr(space, "spaces", None) or ())
    )
