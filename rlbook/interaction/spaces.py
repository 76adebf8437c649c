"""Adapts an environment's observation space to an agent by one-hot encoding, flattening or binning;
raises an error with the reason if no sensible mapping exists.

What an agent wants stands in `Agent.observations` ("index", "numbers", "vector", "network",
"policy") and in `Agent.actions` ("discrete", "discrete only", "any", "scaled", "scaled
box").

    index    one integer: Discrete as it is; MultiDiscrete, Tuple and Dict numbered in mixed radix; Box cut into bins
    numbers  Discrete as it is; everything else a vector, int64 where all its components are whole,
    else float64 with their bounds
    vector   float32 [O]: Discrete and MultiDiscrete one-hot; Box flattened; Dict and Tuple concatenated
    network  an image as it is, uint8 [H, W, C] or [C, H, W]; all else as "vector"
    policy   as "network", unless the environment brings a policy of its own (a language model), which sees the observation itself
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import VectorEnv, VectorWrapper
from gymnasium.vector.utils import batch_space
from numpy.typing import ArrayLike, NDArray

from rlbook.agent import Agent
from rlbook.envs.space_batches import plain
from rlbook.errors import RequestError
from rlbook.interaction.action_spaces import Code, adapt_actions, joint_number
from rlbook.interaction.features import (
    FeatureConfig,
    interval,
    make_features,
    place_values,
    power,
)
from rlbook.interaction.guards import (
    observation_check,
    skip_check,
    unpack_reset,
    unpack_step,
    unpack_vector_step,
)
from rlbook.interaction.observed_masks import mask_note

MAX_TABLE = 10_000_000  # entries of a Q table
MAX_VECTOR = 1_000_000  # numbers in one observation of an MLP
UNBOUNDED = 3.0  # unbounded dimensions are cut into bins over [-3, 3]
VAST = 1e6  # bounds beyond this are as good as none

Observations = NDArray[Any] | Mapping[str, "Observations"] | tuple["Observations", ...]
"""One or more observations, in the format of their space."""


@dataclass(frozen=True)
class Adaptation:
    """How observations and actions are converted; None means unchanged."""

    observation_space: spaces.Space  # what the agent sees
    action_space: spaces.Space  # what it chooses from
    observe: Code | None
    act: Code | None
    notes: tuple[str, ...]
    env_observation_space: spaces.Space | None = None  # what the environment shows
    env_action_space: spaces.Space | None = None  # what it takes
    origin: Callable[[], Adaptation] | None = None  # makes the two conversions again

    def __reduce__(self) -> tuple[Any, ...]:
        """For `pickle`, which does not take the functions that convert: they are made again."""
        if self.origin is None:
            return super().__reduce__()  # type: ignore[return-value]
        own = ("notes", "env_observation_space", "env_action_space", "origin")
        return _adapt_again, (self.origin, {name: getattr(self, name) for name in own})

    def adapt_observation(self, obs: Observations, check: Callable[[Any], object]) -> Any:
        """Converts an observation for the agent. It is checked first if a conversion applies;
        otherwise the caller that steps the environment checks it."""
        if self.observe is None:
            return obs
        check(obs)
        return self.observe(obs)

    def adapt_action(self, action: ArrayLike) -> Any:
        """Converts the agent's action for the environment."""
        return action if self.act is None else self.act(action)


def _adapt_again(origin: Callable[[], Adaptation], own: dict[str, Any]) -> Adaptation:
    return replace(origin(), **own)


def adapt(
    observation_space: spaces.Space,
    action_space: spaces.Space,
    agent: type[Agent],
    *,
    own_policy: bool = False,
    bins: int = 10,
    action_bins: int = 5,
) -> Adaptation:
    """The conversion between an environment and an agent class.

    Args:
        observation_space, action_space: the environment's, single.
        agent: the agent class.
        own_policy: whether the environment names a policy that reads its observations as they are.
        bins: cells per dimension of a Box observation, for tabular agents.
        action_bins: values per dimension of a Box action, for agents that choose among discrete
            actions.

    Raises:
        RequestError: there is no sensible way, with the reason.
    """
    notes: list[str] = []
    adapted_actions, act = adapt_actions(action_space, agent, action_bins, notes)
    if agent.observations == "any" or (agent.observations == "policy" and own_policy):
        return Adaptation(
            observation_space, adapted_actions, None, act, tuple(dict.fromkeys(notes))
        )
    if agent.observations == "index":
        num_actions = int(adapted_actions.n) if isinstance(adapted_actions, spaces.Discrete) else 1
        size, observe = _index(observation_space, bins, notes)
        if size * num_actions > MAX_TABLE:
            most = f"{MAX_TABLE // num_actions:,}"
            raise RequestError(
                f"a table needs one row a state, and this observation space has {power(size)} of"
                f" them (at most {most})"
            )
        same = isinstance(observation_space, spaces.Discrete) and observation_space.start == 0
        return Adaptation(
            spaces.Discrete(size),
            adapted_actions,
            None if same else observe,
            act,
            tuple(dict.fromkeys(notes)),
        )
    if agent.observations == "numbers":
        adapted, observe = _numbers(observation_space, notes)
        return Adaptation(adapted, adapted_actions, observe, act, tuple(dict.fromkeys(notes)))
    if agent.observations in ("network", "policy") and is_image(observation_space):
        height, width, channels = image_size(observation_space)
        notes.append(f"observation: an image of {height} x {width} pixels and {channels} channels")
        return Adaptation(
            observation_space, adapted_actions, None, act, tuple(dict.fromkeys(notes))
        )
    size, observe = as_vector(observation_space, notes)
    is_vector = (
        isinstance(observation_space, spaces.Box)
        and len(observation_space.shape) == 1
        and observation_space.dtype == np.float32
    )
    vector = spaces.Box(-np.inf, np.inf, (size,), np.float32)
    return Adaptation(
        vector, adapted_actions, None if is_vector else observe, act, tuple(dict.fromkeys(notes))
    )


def adapt_to(agent: type[Agent], env: gymnasium.Env | VectorEnv, config: object) -> Adaptation:
    """The conversion between `env` (an Env or a VectorEnv) and an agent class; see `adapt`."""
    observation_space = getattr(env, "single_observation_space", None) or env.observation_space
    action_space = getattr(env, "single_action_space", None) or env.action_space
    bins = {
        name: getattr(config, name) for name in ("bins", "action_bins") if hasattr(config, name)
    }
    own_policy = hasattr(env.unwrapped, "policy_kind")
    origin = partial(adapt, observation_space, action_space, agent, own_policy=own_policy, **bins)
    made = origin()
    if isinstance(config, FeatureConfig):
        num_actions = (
            int(made.action_space.n) if isinstance(made.action_space, spaces.Discrete) else 1
        )
        note = make_features(made.observation_space, config, num_actions).note
        made = replace(made, notes=(*made.notes, note))
    return replace(
        made,
        notes=mask_note(env) + made.notes,
        env_observation_space=observation_space,
        env_action_space=action_space,
        origin=origin,
    )


def is_image(space: spaces.Space) -> bool:
    """Whether observations are images: bytes or booleans along three axes, one of them the
    channels; or along four, a stack of such images."""
    return (
        isinstance(space, spaces.Box)
        and space.dtype in (np.uint8, np.bool_)
        and len(space.shape) in (3, 4)
    )


def image_size(space: spaces.Space) -> tuple[int, int, int]:
    """Height, width and channels of an image; of a stack, the channels of all its images."""
    frames = math.prod((space.shape or ())[:-3])
    first, middle, last = _three_axes(space)
    if channels_first(space):
        return middle, last, frames * first
    return first, middle, frames * last


def channels_first(space: spaces.Space) -> bool:
    """Whether an image is [C, H, W] rather than [H, W, C]: if exactly two axes are equal, they are
    the sides; if all three differ, the shorter of the first and the last holds the channels. Of a
    stack [S, ...]: whether each of its images is."""
    first, middle, last = _three_axes(space)
    return first < last if (first == middle) == (middle == last) else middle == last


def _three_axes(space: spaces.Space) -> tuple[int, int, int]:
    first, middle, last = (space.shape or (0, 0, 0))[-3:]
    return first, middle, last


# ---- observations as a vector


@dataclass(frozen=True)
class VectorCode:
    """Flattens observations of a space; see `as_vector`."""

    space: spaces.Space
    function: Code

    def __call__(self, observation: Observations) -> Any:
        return self.function(observation)

    def __reduce__(self) -> tuple[Any, ...]:
        """For `pickle`, which does not take the function: it is made again."""
        return _vector_code, (self.space,)


def _vector_code(space: spaces.Space) -> Code:
    return as_vector(space, [])[1]


def as_vector(space: spaces.Space, notes: list[str]) -> tuple[int, Code]:
    """The length O, and a function that flattens observations of a space to float32 vectors [...,
    O], for agents that support both vectors and images; records in `notes` what it does.

    Raises:
        RequestError: they have no fixed length, or are too long.
    """
    size, observe = _vector(space, notes)
    if size > MAX_VECTOR:
        raise RequestError(
            f"the observation flattens to {power(size)} numbers (at most {MAX_VECTOR:,})"
        )
    return size, VectorCode(space, observe)


def _vector(space: spaces.Space, notes: list[str]) -> tuple[int, Code]:
    if isinstance(space, spaces.Discrete):
        n, start = int(space.n), int(space.start)
        eye = np.eye(n, dtype=np.float32) if n <= 4096 else None
        notes.append("observation: one-hot (for each state a vector with one 1 and zeros else)")
        return (
            n,
            lambda x: (
                eye[np.asarray(x) - start]
                if eye is not None
                else _one_hot((np.asarray(x) - start)[..., None], np.array([n]))
            ),
        )
    if isinstance(space, spaces.MultiDiscrete):
        radix, start, dims = space.nvec.reshape(-1), space.start.reshape(-1), space.nvec.ndim
        notes.append("observation: each component one-hot (a vector with one 1 and zeros else)")
        return int(radix.sum()), lambda x: _one_hot(_flatten_last(x, dims) - start, radix)
    if isinstance(space, (spaces.Box, spaces.MultiBinary)):
        dims = len(space.shape)
        if dims != 1:
            notes.append(f"observation: an array of shape {space.shape}, flattened to one vector")
        narrows = space.dtype is not None and space.dtype.kind == "f" and space.dtype.itemsize > 4
        return (
            math.prod(space.shape),
            lambda x: (
                _to_float32(_flatten_last(x, dims))
                if narrows
                else _flatten_last(x, dims).astype(np.float32, copy=False)
            ),
        )
    if isinstance(space, (spaces.Dict, spaces.Tuple)):
        parts = [(key, *_vector(part, notes)) for key, part in _parts(space)]
        notes.append("observation: its parts joined into one vector")
        return sum(size for _, size, _ in parts), lambda x: np.concatenate(
            [code(x[key]) for key, _, code in parts], axis=-1
        )
    raise RequestError(
        f"{type(space).__name__} observations have no fixed length that an MLP could take"
    )


def _parts(space: spaces.Dict | spaces.Tuple) -> list[tuple[Any, spaces.Space]]:
    return list(space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces))


def _flatten_last(x: ArrayLike, dims: int) -> np.ndarray:
    x = np.asarray(x)
    return x.reshape(*x.shape[: x.ndim - dims], -1)


def _to_float32(x: np.ndarray) -> np.ndarray:
    """float64 → float32. Raises FloatingPointError if a number overflows."""
    with np.errstate(over="ignore"):
        out = x.astype(np.float32)
    if not np.isfinite(out).all():
        raise FloatingPointError("observation", x[~np.isfinite(out)].flat[0])
    return out


def _one_hot(index: np.ndarray, radix: np.ndarray) -> np.ndarray:
    """One-hot encoding: index [..., K] → [..., Σ radix]."""
    out = np.zeros((*index.shape[:-1], int(radix.sum())), dtype=np.float32)
    np.put_along_axis(out, index + np.concatenate([[0], np.cumsum(radix)[:-1]]), 1.0, axis=-1)
    return out


# ---- observations as an index


def _index(space: spaces.Space, bins: int, notes: list[str]) -> tuple[int, Code]:
    sizes, code = _digits(space, bins, notes)
    size = math.prod(sizes)
    if size > MAX_TABLE:
        return size, code
    weights = place_values(sizes)

    def observe(x: ArrayLike) -> Any:
        index = code(x) @ weights
        return index if index.ndim else int(index)

    return size, observe


def _digits(space: spaces.Space, bins: int, notes: list[str]) -> tuple[list[int], Code]:
    """The radices of a space, and a function that turns its observations into digits [..., K]
    int64."""
    if isinstance(space, spaces.Discrete):
        return [int(space.n)], lambda x: np.asarray(x, dtype=np.int64)[..., None] - int(space.start)
    if isinstance(space, spaces.MultiDiscrete):
        dims, start = space.nvec.ndim, space.start.reshape(-1)
        return [
            int(n) for n in space.nvec.reshape(-1)
        ], lambda x: _flatten_last(x, dims).astype(np.int64) - start
    if isinstance(space, spaces.MultiBinary):
        dims = len(space.shape)
        return [2] * math.prod(space.shape), lambda x: _flatten_last(x, dims).astype(np.int64)
    if isinstance(space, spaces.Box):
        low, high = _range(space)
        notes.append(
            f"observation: {bins} bins for each of {low.size} dimensions, over"
            f" {interval(low, high)}; each combination is a state"
        )
        return [bins] * low.size, _binner(low, high, bins, len(space.shape))
    if isinstance(space, (spaces.Dict, spaces.Tuple)):
        parts = [(key, *_digits(part, bins, notes)) for key, part in _parts(space)]
        return [n for _, sizes, _ in parts for n in sizes], lambda x: np.concatenate(
            [code(x[key]) for key, _, code in parts], axis=-1
        )
    raise RequestError(
        f"{type(space).__name__} observations cannot be numbered, and a table needs one row a state"
    )


# ---- observations as numbers


def _numbers(space: spaces.Space, notes: list[str]) -> tuple[spaces.Space, Code | None]:
    """The space of vectors [D], and a function that turns observations into them; a Discrete space
    is kept."""
    if isinstance(space, spaces.Discrete):
        start = int(space.start)
        return (space, None) if start == 0 else (spaces.Discrete(int(space.n)), lambda x: x - start)
    if _is_integer(space):
        sizes, code = _digits(space, 1, notes)
        return spaces.MultiDiscrete(sizes), code
    low, high, code = _components(space, notes)
    return spaces.Box(low, high, dtype=np.float64), code


def _is_integer(space: spaces.Space) -> bool:
    if isinstance(space, (spaces.Dict, spaces.Tuple)):
        return all(_is_integer(part) for _, part in _parts(space))
    return isinstance(space, (spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary))


def _components(space: spaces.Space, notes: list[str]) -> tuple[np.ndarray, np.ndarray, Code]:
    """The least and the largest value of each component (infinite if unbounded), and a function
    that returns observations as float64 [..., D]."""
    if isinstance(space, spaces.Box):
        low, high, dims = (
            space.low.reshape(-1).astype(float),
            space.high.reshape(-1).astype(float),
            len(space.shape),
        )
        return (
            np.where(np.abs(low) < VAST, low, -np.inf),
            np.where(np.abs(high) < VAST, high, np.inf),
            lambda x: _to_finite(_flatten_last(x, dims)),
        )
    if isinstance(space, (spaces.Dict, spaces.Tuple)):
        parts = [(key, *_components(part, notes)) for key, part in _parts(space)]
        low, high = (
            np.concatenate([low for _, low, _, _ in parts]),
            np.concatenate([high for _, _, high, _ in parts]),
        )
        return (
            low,
            high,
            lambda x: np.concatenate([code(x[key]) for key, _, _, code in parts], axis=-1),
        )
    sizes, code = _digits(space, 1, notes)
    return np.zeros(len(sizes)), np.array(sizes, dtype=float), lambda x: code(x).astype(float)


def _to_finite(x: np.ndarray) -> np.ndarray:
    """Converts to float64. Raises FloatingPointError for NaN and infinities."""
    x = x.astype(np.float64, copy=False)
    if not math.isfinite(np.vdot(x, x)) and not np.isfinite(x).all():
        raise FloatingPointError(float(x[~np.isfinite(x)].flat[0]))
    return x


def _binner(low: np.ndarray, high: np.ndarray, bins: int, dims: int) -> Code:
    """Bins numbers into intervals of equal width; values outside the range fall into the outermost
    bin. Raises FloatingPointError for NaN and infinities."""
    scale = bins / np.where(high > low, high - low, 1.0)

    def digits(x: ArrayLike) -> np.ndarray:
        scaled = (_flatten_last(x, dims) - low) * scale
        if not math.isfinite(np.vdot(scaled, scaled)) and not np.isfinite(scaled).all():
            raise FloatingPointError(float(np.asarray(x)[~np.isfinite(x)].flat[0]))
        return np.clip(np.floor(scaled), 0, bins - 1).astype(np.int64)

    return digits


def _range(space: spaces.Box) -> tuple[np.ndarray, np.ndarray]:
    """The range that the bins cover: the bounds; 2 · UNBOUNDED from the only finite bound; or
    ±UNBOUNDED."""
    low, high = space.low.reshape(-1).astype(float), space.high.reshape(-1).astype(float)
    has_low, has_high = np.abs(low) < VAST, np.abs(high) < VAST
    from_high = np.where(has_high, high - 2 * UNBOUNDED, -UNBOUNDED)
    from_low = np.where(has_low, low + 2 * UNBOUNDED, UNBOUNDED)
    return np.where(has_low, low, from_high), np.where(has_high, high, from_low)


# ---- environments as an agent wants them


def outermost_snapshot_env(env: VectorEnv) -> Any:
    """The outermost environment in a chain of wrappers that has a `snapshot` method; the innermost
    one if none has."""
    while isinstance(env, VectorWrapper) and not hasattr(env, "snapshot"):
        env = env.env
    return env


def length_free_space(space: spaces.Space | None) -> object:
    """A space; of texts, the vocabulary alone, since a language model reads any length."""
    tokens = space.get("tokens") if isinstance(space, spaces.Dict) else None
    return int(tokens.nvec.max()) if isinstance(tokens, spaces.MultiDiscrete) else space


def encode_actions(action: NDArray[Any], space: spaces.Space) -> NDArray[Any]:
    """The environment's actions [T, ...] of `space` in the policy's format: indices from 0, or
    vectors [T, A].

    Raises:
        ValueError: actions of this space cannot be learned from.
    """
    if isinstance(space, spaces.Discrete):
        return action.astype(np.int64) - int(space.start)
    if isinstance(space, spaces.Box):
        return action.reshape(len(action), -1).astype(np.float32)
    if isinstance(space, spaces.MultiDiscrete | spaces.MultiBinary):
        return joint_number(action, space)
    raise ValueError(f"cannot learn from actions of {space}")


class AdaptedEnv(gymnasium.Wrapper):
    """One environment with observations and actions converted for an agent."""

    def __init__(self, env: gymnasium.Env, translation: Adaptation) -> None:
        super().__init__(env)
        self.adaptation = translation
        self.observation_space, self.action_space = (
            translation.observation_space,
            translation.action_space,
        )
        self.excursions: list[str] = []  # out of the bounds of the space, for the run's notes
        self._check = observation_check(env.observation_space, note=self.excursions.append)
        # whose actions become Python's integers: some environments refuse numpy's
        self._discrete = isinstance(env.action_space, spaces.Discrete)
        # for whoever steps it
        self.check = self._check if translation.observe is None else skip_check

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        obs, info = unpack_reset(self.env.reset(seed=seed, options=options))
        return self.adaptation.adapt_observation(obs, self._check), info

    def step(self, action: ArrayLike) -> Any:
        own = self.adaptation.adapt_action(action)
        answer = self.env.step(plain(own) if self._discrete else own)
        obs, reward, terminated, truncated, info = unpack_step(answer)
        return (
            self.adaptation.adapt_observation(obs, self._check),
            reward,
            terminated,
            truncated,
            info,
        )


class AdaptedVectorEnv(VectorWrapper):
    """N environments with observations and actions converted for an agent."""

    keeps_rewards = True  # see `round_rewards`

    def __init__(self, env: VectorEnv, translation: Adaptation) -> None:
        super().__init__(env)
        self.adaptation = translation
        self.excursions: list[str] = []  # out of the bounds of the space, for the run's notes
        self._check = observation_check(
            env.single_observation_space, batched=True, note=self.excursions.append
        )
        self.check = self._check if translation.observe is None else skip_check
        self.single_observation_space, self.single_action_space = (
            translation.observation_space,
            translation.action_space,
        )
        self.observation_space = batch_space(translation.observation_space, env.num_envs)
        self.action_space = batch_space(translation.action_space, env.num_envs)

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> Any:
        answer = self.env.reset(seed=seed, options=options)  # type: ignore[arg-type]
        obs, info = unpack_reset(answer)
        return self.adaptation.adapt_observation(obs, self._check), info

    def step(self, actions: ArrayLike) -> Any:
        answer = self.env.step(self.adaptation.adapt_action(actions))
        obs, reward, terminated, truncated, info = unpack_vector_step(answer, self.num_envs)
        return (
            self.adaptation.adapt_observation(obs, self._check),
            reward,
            terminated,
            truncated,
            info,
        )
