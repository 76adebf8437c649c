"""Preprocessing between an environment and an agent that learns from images: frames skipped, grey,
resized and stacked, rewards clipped, lost lives marked.

The wrappers are gymnasium's, from the inside out: `AtariPreprocessing` for a game of the Arcade
Learning Environment, and for all else `MaxAndSkipObservation`, `GrayscaleObservation` and
`ResizeObservation`; outermost `FrameStackObservation`, so that the first axis of what is seen
counts the frames, the newest last. Frames and lives that a wrapper remembers are saved and restored
with the environment (`wrapper_states`).

Source: Mnih et al. 2015, doi:10.1038/nature14236, Methods, "Preprocessing" and "Training details".
Differences: gymnasium resizes by area, and takes the maximum of frames before they become grey; the
game goes on after a lost life, as in Castro et al. 2018 (Dopamine), arXiv:1812.06110.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils import RecordConstructorArgs
from gymnasium.vector import VectorWrapper
from gymnasium.wrappers import (
    AtariPreprocessing,
    ClipReward,
    FrameStackObservation,
    GrayscaleObservation,
    MaxAndSkipObservation,
    ResizeObservation,
)
from numpy.typing import ArrayLike

from rlbook.agent import State
from rlbook.checks import saved_array, saved_count
from rlbook.errors import RequestError
from rlbook.interaction.guards import LIFE_LOST, UNCLIPPED, number, observation_check

ATARI = ("ale_py.env:", "rlbook.envs.atari:")
"""Prefixes of the entry points of Atari's games."""
LARGEST_REWARD = 1.0
"""The largest absolute value of a clipped reward."""


@dataclass(frozen=True)
class Preprocessing:
    """How observations are made from an environment's frames; the fields are options of a run, see
    `rlbook.runs.options.RunOptions`."""

    frame_stack: int = 1
    grayscale: bool = False
    resize: int | None = None
    max_and_skip: int = 1
    noop_starts: int = 0
    episodic_life: bool = False
    read_masks: bool = True  # see `rlbook.interaction.observed_masks`

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> Preprocessing:
        """Reads the options of these names; those that are None stay at their defaults."""
        named = {item.name: options.get(item.name) for item in fields(cls)}
        return cls(**{name: value for name, value in named.items() if value is not None})

    @property
    def is_used(self) -> bool:
        """Whether anything is changed."""
        return self != Preprocessing()

    def for_evaluation(self) -> Preprocessing:
        """The same frames; a lost life has no effect in evaluation."""
        return replace(self, episodic_life=False)

    def env_kwargs(self, spec: EnvSpec, kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments with which an environment of an id is made: Atari's own frame skip is off
        if frames are skipped here, and its frames are grey from the start."""
        if not str(spec.entry_point).startswith(ATARI):
            return {}
        wanted: dict[str, Any] = {"frameskip": 1} if self.max_and_skip > 1 else {}
        wanted |= {"obs_type": "grayscale"} if self.grayscale else {}
        usual: dict[str, Any] = {"obs_type": "rgb", "frameskip": 4} | spec.kwargs
        return {
            name: value
            for name, value in wanted.items()
            if kwargs.get(name, usual[name]) == usual[name]
        }

    def wrap(self, env: gymnasium.Env, name: str) -> gymnasium.Env:
        """The environment in the requested wrappers.

        Args:
            env: as it was made.
            name: what a message calls it.

        Raises:
            RequestError: an option that does not fit this environment, or an extra that is missing.
        """
        if not self.is_used:
            return env
        self._check_fit(env, name)
        one_channel = self.grayscale and self.frame_stack > 1  # the frames are the channels
        if _is_atari(env) and self._changes_frames:
            height, width = env.observation_space.shape[:2]  # type: ignore[index]
            env = AtariPreprocessing(
                env,
                noop_max=self.noop_starts,
                frame_skip=self.max_and_skip,
                screen_size=self.resize or (width, height),
                grayscale_obs=self.grayscale,
                grayscale_newaxis=not one_channel,
            )
        else:
            if self.max_and_skip > 1:
                env = MaxAndSkipObservation(env, self.max_and_skip)
            if self.grayscale:
                env = GrayscaleObservation(env, keep_dim=not one_channel)
            if self.resize is not None:
                env = ResizeObservation(env, (self.resize, self.resize))
        if self.episodic_life:
            env = EpisodicLife(env)
        return env if self.frame_stack == 1 else FrameStackObservation(env, self.frame_stack)

    @property
    def _changes_frames(self) -> bool:
        return self.grayscale or bool(self.resize) or self.max_and_skip > 1 or self.noop_starts > 0

    def _check_fit(self, env: gymnasium.Env, name: str) -> None:
        """Raises RequestError if an option has no meaning in this environment."""
        space, atari = env.observation_space, _is_atari(env)
        if self.noop_starts and not atari:
            raise RequestError(f"noop_starts is for Atari's games (ALE/...), got {name}")
        if self.episodic_life and not (atari or hasattr(env.unwrapped, "lives")):
            raise RequestError(
                f"episodic_life is for environments with lives, such as Atari's games, got {name}"
            )
        shape = space.shape or ()
        image = _is_bytes(space) and len(shape) == 3
        grey = atari and _is_bytes(space) and len(shape) == 2
        if self.grayscale and not (grey or (image and shape[-1:] == (3,))):
            raise RequestError(
                f"grayscale needs images in three colours, uint8 [H, W, 3], but {name} shows "
                f"{_describe_space(space)}"
            )
        if self.resize is not None and not (image or grey):
            raise RequestError(
                f"resize needs images, uint8 [H, W, C], but {name} shows {_describe_space(space)}"
            )
        if (self.max_and_skip > 1 or self.noop_starts > 0) and not isinstance(space, spaces.Box):
            option = "max_and_skip" if self.max_and_skip > 1 else "noop_starts"
            raise RequestError(
                f"{option} takes the maximum of arrays of numbers, but {name} shows "
                f"{_describe_space(space)}"
            )
        texts = hasattr(env.unwrapped, "policy_kind")  # it brings a policy that reads single ones
        if self.frame_stack > 1 and (texts or not _has_shape(space)):
            raise RequestError(
                f"frame_stack needs observations of one shape, but {name} shows "
                f"{'texts' if texts else _describe_space(space)}"
            )
        skipped = getattr(env.unwrapped, "_frameskip", 1) if atari else 1
        if self.max_and_skip > 1 and skipped != 1:
            raise RequestError(
                f"max_and_skip {self.max_and_skip} needs single frames, but {name} skips "
                f"{skipped} itself; give --env.frameskip 1 (env_kwargs={{'frameskip': 1}})"
            )
        needs_opencv = self.resize is not None or (atari and self._changes_frames)
        if needs_opencv and importlib.util.find_spec("cv2") is None:
            what = "resize needs" if self.resize is not None else "these frames need"
            raise RequestError(f'{what} opencv; `pip install "rlbook[atari]"` brings it')


def _is_atari(env: gymnasium.Env) -> bool:
    return hasattr(env.unwrapped, "ale")


def _is_bytes(space: spaces.Space) -> bool:
    return (
        isinstance(space, spaces.Box)
        and space.dtype == np.uint8
        and not space.low.any()
        and bool((space.high == 255).all())
    )


def _has_shape(space: spaces.Space) -> bool:
    if isinstance(space, spaces.Dict | spaces.Tuple):
        parts = space.spaces.values() if isinstance(space, spaces.Dict) else space.spaces
        return all(map(_has_shape, parts))
    kinds = spaces.Box | spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary
    return isinstance(space, kinds)


def _describe_space(space: spaces.Space) -> str:
    kind = type(space).__name__
    return kind if space.shape is None else f"{kind} {list(space.shape)} of {space.dtype}"


class EpisodicLife(gymnasium.Wrapper, RecordConstructorArgs):
    """Marks in `info` that a life was lost: for the learner an end beyond which no value is
    estimated, and not a time limit. The game goes on, and a reported return is a whole game's.

    Args:
        env: tells in `info["lives"]` how many are left.
    """

    def __init__(self, env: gymnasium.Env) -> None:
        RecordConstructorArgs.__init__(self)
        gymnasium.Wrapper.__init__(self, env)
        self.lives = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        obs, info = self.env.reset(seed=seed, options=options)
        self.lives = int(info.get("lives", 0))
        return obs, info

    def step(self, action: ArrayLike) -> Any:
        obs, reward, terminated, truncated, info = self.env.step(action)
        before, self.lives = self.lives, int(info.get("lives", 0))
        # some games show 0 lives for some frames before they are over
        if 0 < self.lives < before and not terminated:
            info = {**info, LIFE_LOST: True}
        return obs, reward, terminated, truncated, info


class ClippedEnv(ClipReward):
    """Clips rewards to [-1, 1]; the unclipped reward is in `info`, for the reported return."""

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env, -LARGEST_REWARD, LARGEST_REWARD)

    def step(self, action: ArrayLike) -> Any:
        obs, reward, terminated, truncated, info = self.env.step(action)  # type: ignore[arg-type]
        paid = number(reward)
        return obs, self.reward(paid), terminated, truncated, {**info, UNCLIPPED: paid}


class ClippedVectorEnv(VectorWrapper):
    """N environments with rewards as in `ClippedEnv`."""

    def step(self, actions: ArrayLike) -> Any:
        obs, reward, terminated, truncated, info = self.env.step(actions)  # type: ignore[arg-type]
        clipped = np.clip(reward, -LARGEST_REWARD, LARGEST_REWARD)
        return obs, clipped, terminated, truncated, {**info, UNCLIPPED: reward}


# ---- what wrappers remember

REMEMBERING = (FrameStackObservation, MaxAndSkipObservation, AtariPreprocessing, EpisodicLife)
FORGETFUL = (GrayscaleObservation, ResizeObservation)
"""Observation wrappers without state."""


def _stateful_wrappers(env: gymnasium.Env) -> Iterator[Any]:
    """The wrappers whose state is known here, from the outermost to the innermost."""
    while isinstance(env, gymnasium.Wrapper):
        if type(env) in REMEMBERING:
            yield env
        env = env.env


def wrapper_states(env: gymnasium.Env) -> list[State]:
    """The states of an environment's wrappers: frames, and the remaining lives. From the outermost
    to the innermost."""
    return [_state_of(item) for item in _stateful_wrappers(env)]


def _state_of(item: Any) -> State:
    if isinstance(item, FrameStackObservation):
        return {"frames": list(item.obs_queue)}
    if isinstance(item, MaxAndSkipObservation):
        return {"frames": item._obs_buffer.copy()}
    if isinstance(item, AtariPreprocessing):
        return {"frames": np.stack(item.obs_buffer), "lives": int(item.lives)}
    return {"lives": item.lives}


def restore_wrapper_states(env: gymnasium.Env, states: Sequence[State]) -> None:
    """The inverse of `wrapper_states`.

    Raises:
        ValueError: the states are not those of such wrappers.
    """
    for item, state in zip(_stateful_wrappers(env), states, strict=True):
        if isinstance(item, FrameStackObservation):
            check, frames = observation_check(item.env.observation_space), list(state["frames"])
            if len(frames) != item.stack_size:
                raise ValueError(f"the saved frames must be {item.stack_size}, got {len(frames)}")
            for frame in frames:
                check(frame)
            item.obs_queue.extend(frames)
        elif isinstance(item, MaxAndSkipObservation):
            buffer = item._obs_buffer
            buffer[...] = saved_array("frames", state["frames"], buffer.dtype, buffer.shape)
        elif isinstance(item, AtariPreprocessing):
            shape = (2, *item.obs_buffer[0].shape)
            item.obs_buffer = list(saved_array("frames", state["frames"], np.uint8, shape).copy())
            item.lives = saved_count("lives", state["lives"])
        else:
            item.lives = saved_count("lives", state["lives"])
