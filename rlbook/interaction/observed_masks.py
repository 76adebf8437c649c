"""Wrappers for environments whose observations hold their action masks, as PettingZoo's and RLlib's
do: the mask goes into the info, where `action_masks` reads it, and the agent sees the rest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
from gymnasium import spaces
from gymnasium.utils import RecordConstructorArgs
from gymnasium.vector import VectorEnv, VectorWrapper
from gymnasium.vector.utils import batch_space
from numpy.typing import ArrayLike

from rlbook.envs.masked_observations import (
    MASK_KEY,
    keys_beside_mask,
    space_beside_mask,
    split_observation,
)
from rlbook.interaction.guards import (
    BadAnswer,
    unpack_reset,
    unpack_step,
    unpack_vector_step,
)


class ObservedMask(gymnasium.Wrapper, RecordConstructorArgs):
    """One environment whose observations hold a mask (`keys_beside_mask`).

    Its observation is the other entry, or a dict of the others; `info["action_mask"]` is the mask,
    unchecked.
    """

    def __init__(self, env: gymnasium.Env) -> None:
        RecordConstructorArgs.__init__(self)
        gymnasium.Wrapper.__init__(self, env)
        space = env.observation_space
        assert isinstance(space, spaces.Dict)
        self.observation_space = space_beside_mask(space)
        self._keys = tuple(space.spaces)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        obs, info = unpack_reset(self.env.reset(seed=seed, options=options))
        return _split(obs, info, self._keys)

    def step(self, action: ArrayLike) -> Any:
        answer = unpack_step(self.env.step(action))
        obs, reward, terminated, truncated, info = answer
        rest, info = _split(obs, info, self._keys)
        return rest, reward, terminated, truncated, info


class ObservedMasks(VectorWrapper):
    """N environments as in `ObservedMask`; masks are [N, A]."""

    keeps_rewards = True  # see `round_rewards`

    def __init__(self, env: VectorEnv) -> None:
        super().__init__(env)
        space = env.single_observation_space
        assert isinstance(space, spaces.Dict)
        self.single_observation_space = space_beside_mask(space)
        self.observation_space = batch_space(self.single_observation_space, env.num_envs)
        self._keys = tuple(space.spaces)

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> Any:
        answer = self.env.reset(seed=seed, options=options)  # type: ignore[arg-type]
        obs, info = unpack_reset(answer)
        return _split(obs, info, self._keys)

    def step(self, actions: ArrayLike) -> Any:
        answer = self.env.step(actions)  # type: ignore[arg-type]
        obs, reward, terminated, truncated, info = unpack_vector_step(answer, self.num_envs)
        rest, info = _split(obs, info, self._keys)
        return rest, reward, terminated, truncated, info


def _split(obs: object, info: dict[str, Any], keys: tuple[str, ...]) -> tuple[Any, dict[str, Any]]:
    """An observation without its mask, and the info with it.

    Raises:
        BadAnswer: the observation has other entries than its space.
    """
    if not isinstance(obs, Mapping) or set(obs) != set(keys):
        found = sorted(map(str, obs)) if isinstance(obs, Mapping) else type(obs).__name__
        raise BadAnswer(f"the observation must be a dict with {sorted(keys)}, got {found!r:.60}")
    rest, mask = split_observation(obs)
    return rest, {**info, MASK_KEY: mask}


def wrap_observed_mask(env: gymnasium.Env) -> gymnasium.Env:
    """The environment, wrapped in `ObservedMask` if its observations hold a mask."""
    holds = keys_beside_mask(env.observation_space, env.action_space)
    return ObservedMask(env) if holds else env


def wrap_observed_masks(env: VectorEnv) -> VectorEnv:
    """The vector environment, wrapped in `ObservedMasks` if its observations hold a mask."""
    holds = keys_beside_mask(env.single_observation_space, env.single_action_space)
    return ObservedMasks(env) if holds else env


def observed_keys(env: gymnasium.Env | VectorEnv) -> tuple[str, ...]:
    """The entries beside the mask that `ObservedMask` or `ObservedMasks` takes out of the
    observations of an environment; () where neither is around it."""
    layer: Any = env
    while True:
        if isinstance(layer, ObservedMask | ObservedMasks):
            return tuple(key for key in layer._keys if key != MASK_KEY)
        if not isinstance(layer, gymnasium.Wrapper | VectorWrapper):
            return getattr(layer, "observed_keys", ())  # a vector of environments, see `describe`
        layer = layer.env


def mask_note(env: gymnasium.Env | VectorEnv) -> tuple[str, ...]:
    """What a run's notes say of an environment whose observations hold a mask."""
    keys = observed_keys(env)
    if not keys:
        return ()
    seen = repr(keys[0]) if len(keys) == 1 else "the rest"
    return (
        f"observation: its {MASK_KEY!r} is the mask of the allowed actions, and the agent sees "
        f"only {seen}",
    )
