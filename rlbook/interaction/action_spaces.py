"""Adapts an environment's action space to an agent by joining, binning, clipping or scaling; raises
an error with the reason if no sensible mapping exists.

What an agent wants stands in `Agent.actions` ("discrete", "discrete only",
"any", "scaled", "scaled box").
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import ArrayLike, NDArray

from rlbook.agent import Agent
from rlbook.errors import RequestError
from rlbook.interaction.features import interval, power

MAX_ACTIONS = 4_096  # discrete actions after binning or joining

Code = Callable[[Any], Any]  # batched or single: a leading [N] axis passes through


def adapt_actions(
    space: spaces.Space, agent: type[Agent], action_bins: int, notes: list[str]
) -> tuple[spaces.Space, Code | None]:
    """The action space that the agent sees, and the function that maps its actions to the
    environment's (None if they are the same). Appends what was done to `notes`.

    Raises:
        RequestError: this agent cannot choose such actions.
    """
    if agent.actions == "scaled box" and not isinstance(space, spaces.Box):
        raise RequestError(f"needs continuous actions (Box), got {type(space).__name__}")
    if agent.actions == "discrete only" and isinstance(space, spaces.Box):
        raise RequestError(f"needs discrete actions, got {space}")
    if isinstance(space, spaces.Discrete):
        start = int(space.start)
        return (space, None) if start == 0 else (spaces.Discrete(int(space.n)), lambda a: a + start)
    if isinstance(space, (spaces.MultiDiscrete, spaces.MultiBinary)):
        return _joint(space, notes)
    if isinstance(space, spaces.Box) and agent.actions == "discrete":
        return _bin_space(space, action_bins, notes)
    if isinstance(space, spaces.Box) and agent.actions in ("scaled", "scaled box"):
        return _scale_space(space, notes)
    if isinstance(space, spaces.Box):
        notes.append("action: drawn from a Gaussian, and clipped to the environment's bounds")
        return _clip_space(space)
    raise RequestError(f"{type(space).__name__} actions are neither discrete nor a box of numbers")


def _clip_space(space: spaces.Box) -> tuple[spaces.Space, Code]:
    low, high, whole = space.low, space.high, np.issubdtype(space.dtype, np.integer)

    def act(a: ArrayLike) -> np.ndarray:
        a = np.asarray(a).reshape((*np.shape(a)[:-1], *space.shape))
        return np.asarray(np.clip(np.rint(a) if whole else a, low, high), dtype=space.dtype)

    flat_low, flat_high = (bound.reshape(-1).astype(np.float32) for bound in (low, high))
    return spaces.Box(flat_low, flat_high, dtype=np.float32), act


def _scale_space(space: spaces.Box, notes: list[str]) -> tuple[spaces.Space, Code]:
    """The box rescaled to [-1, 1] in every dimension."""
    low, high = space.low.reshape(-1).astype(float), space.high.reshape(-1).astype(float)
    if not (np.isfinite(low).all() and np.isfinite(high).all()):
        raise RequestError("needs bounded actions, got an unbounded Box")
    if not ((low == -1).all() and (high == 1).all()):
        scaled = interval(low, high)
        notes.append(f"action: the network's numbers from -1 to 1 are scaled to {scaled}")
    middle, half, (_, clipped) = (low + high) / 2, (high - low) / 2, _clip_space(space)
    return spaces.Box(-1.0, 1.0, (low.size,), np.float32), lambda a: clipped(
        middle + half * np.asarray(a)
    )


def _joint(
    space: spaces.MultiDiscrete | spaces.MultiBinary, notes: list[str]
) -> tuple[spaces.Space, Code]:
    start, radix = _parts(space)
    size = math.prod(int(n) for n in radix)
    if size > MAX_ACTIONS:
        raise RequestError(f"the joint action has {power(size)} values (at most {MAX_ACTIONS:,})")
    table = np.stack(np.unravel_index(np.arange(size), radix), axis=-1) + start
    table = table.reshape(size, *space.shape).astype(space.dtype)
    notes.append(f"action: one of {size} combinations")
    return spaces.Discrete(size), lambda a: table[a]


def joint_number(
    action: NDArray[Any], space: spaces.MultiDiscrete | spaces.MultiBinary
) -> NDArray[np.int64]:
    """The environment's actions [T, ...] as indices [T] of joint actions: the inverse of the
    mapping that `adapt_actions` returns."""
    start, radix = _parts(space)
    parts = action.reshape(len(action), -1).astype(np.int64) - start
    return np.asarray(np.ravel_multi_index(tuple(parts.T), tuple(radix.tolist())), dtype=np.int64)


def _parts(space: spaces.MultiDiscrete | spaces.MultiBinary) -> tuple[NDArray[Any], NDArray[Any]]:
    """The lowest value of each component of an action, and the number of its values."""
    if isinstance(space, spaces.MultiBinary):
        return np.zeros(math.prod(space.shape), dtype=np.int64), np.full(math.prod(space.shape), 2)
    return space.start.reshape(-1), space.nvec.reshape(-1)


def _bin_space(space: spaces.Box, action_bins: int, notes: list[str]) -> tuple[spaces.Space, Code]:
    low, high = space.low.reshape(-1).astype(float), space.high.reshape(-1).astype(float)
    if not (np.isfinite(low).all() and np.isfinite(high).all()):
        raise RequestError(
            "needs discrete actions, but an unbounded Box cannot be divided into bins"
        )
    size = action_bins**low.size
    if size > MAX_ACTIONS:
        made = (
            f"{action_bins} values for each of {low.size} action dimensions make {power(size)}"
            " actions"
        )
        raise RequestError(f"{made} (at most {MAX_ACTIONS:,}); lower action_bins")
    axes = [
        np.linspace(a, b, action_bins) if action_bins > 1 else np.array([(a + b) / 2])
        for a, b in zip(low, high, strict=True)
    ]
    table = np.stack([axis.reshape(-1) for axis in np.meshgrid(*axes, indexing="ij")], axis=-1)
    table = table.reshape(size, *space.shape).astype(space.dtype)
    notes.append(
        f"action: {action_bins} values for each of {low.size} dimensions, over"
        f" {interval(low, high)}"
    )
    return spaces.Discrete(size), lambda a: table[a]
