"""Checks of components that many saved states contain, wherever they occur.

A run that was just made cannot say what these look like: its replay buffer, its rollout and its
episode are still empty. So they are known by their names:

    {"bit_generator": …}                    the state of a random generator
    {"obs": …, "action": …, …}              steps: one, N side by side, or a buffer of them
    {"steps": […], "log_probs": […]}        a rollout
    {"mean", "square", "steps"}             what an optimiser keeps
    "log_prob", "reference_log_prob"        of actions that were drawn
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import Space, spaces

from rlbook.runs.storage.state_encoding import StateError
from rlbook.seeding import check_rng_state

LARGEST_LOG_PROB = 1e4
"""The lowest possible log-probability, in nats, per component of an action, in absolute value.
Sampled values have none below -150: a float32 uniform is 0 or at least 2^-149, and a normal number
lies within 40 deviations of its mean."""

WITH_NEXT = frozenset({"next_obs", "next_obs_frames"})
OBSERVED = WITH_NEXT | {"obs"}
"""The fields of steps besides their actions: observations, or the numbers of their frames, which
the buffer checks."""
_FLAGS = ("terminated", "truncated", "valid", "mask", "written")
_LOG_PROBS = ("log_prob", "reference_log_prob")


def check_parts(value: object, where: str, observation: Space | None, action: Space | None) -> None:
    """Raises StateError if a component of a saved value could not be used to continue.

    Args:
        value: of any kind; dicts and lists are entered.
        where: its place, for a message.
        observation, action: of one environment as the agent sees it; None where there is none.
    """
    if isinstance(value, dict):
        if "bit_generator" in value:
            _check_generator(value, where)
            return
        if "square" in value and "steps" in value:
            _check_moments(value, where)
        if "steps" in value and "log_probs" in value:
            _check_rollout(value, where)
        steps = "action" in value and not OBSERVED.isdisjoint(value)
        if observation is not None and action is not None and steps:
            _check_steps(value, where, observation, action)
        for name in _LOG_PROBS:
            if value.get(name) is not None:
                _check_log_prob(value[name], f"{where}/{name}", action)
        for name, part in value.items():
            check_parts(part, f"{where}/{name}" if where else name, observation, action)
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            check_parts(item, f"{where}/{index}", observation, action)
    elif type(value) is int and not -(2**63) <= value < 2**63:
        raise StateError(f"{where} is an integer that does not fit in 64 bits")


def _check_generator(value: dict[str, Any], where: str) -> None:
    try:
        check_rng_state(value)
    except ValueError as error:
        raise StateError(f"{where}: {error}") from None


def _check_moments(value: dict[str, Any], where: str) -> None:
    """Checks the state of Adam or RMSprop: the step count and the second moments."""
    steps, square = value["steps"], value["square"]
    if not hasattr(steps, "dtype") or not hasattr(square, "dtype"):
        return  # of another optimiser, or of no kind that fits
    taken = float(steps.reshape(-1)[0]) if _size(steps) == 1 else math.nan
    if not (taken >= 0 and taken.is_integer()):
        raise StateError(f"{where}/steps is not a number of steps")
    if _size(square) and float(square.min()) < 0:
        raise StateError(f"{where}/square holds means of squares below 0")


def _check_rollout(value: dict[str, Any], where: str) -> None:
    steps, log_probs = value["steps"], value["log_probs"]
    if (
        not isinstance(steps, list)
        or not isinstance(log_probs, list)
        or len(steps) != len(log_probs)
    ):
        raise StateError(f"{where} must have one array of log-probabilities for each step")
    for index, (step, log_prob) in enumerate(zip(steps, log_probs, strict=True)):
        if not isinstance(step, dict) or not {"obs", "action", "reward"} <= step.keys():
            raise StateError(f"{where}/steps/{index} is not a step")
        _check_log_prob(log_prob, f"{where}/log_probs/{index}", None, _shape(step["reward"]))


def _check_log_prob(
    value: object, where: str, action: Space | None, shape: Sequence[int] | None = None
) -> None:
    """Checks log-probabilities; `shape` is the required shape, or None for any."""
    if _kind(value) != "f" or (shape is not None and _shape(value) != tuple(shape)):
        raise StateError(f"{where} are not log-probabilities of these actions")
    most = LARGEST_LOG_PROB * max(1, math.prod(getattr(action, "shape", None) or ()))
    if _size(value) and not -most <= float(_minimum(value)) <= float(_maximum(value)) <= most:
        raise StateError(f"{where} holds a log-probability that no sampled action can have")


def _check_steps(value: dict[str, Any], where: str, observation: Space, action: Space) -> None:
    """Checks steps with any leading axes, those of their actions: rows, time and rows, or none."""
    _check_actions(value["action"], action, f"{where}/action")
    shape = _shape(value["action"])
    lead = shape[: len(shape) - len(action.shape or ())]
    for name in ("obs", "next_obs"):
        if value.get(name) is not None:  # language models keep the first and the last alone
            _check_observations(value[name], observation, f"{where}/{name}", lead)
    reward = value.get("reward")
    if reward is not None and (_kind(reward) not in ("f", float) or _shape(reward) != lead):
        raise StateError(f"{where}/reward are not rewards of these actions")
    lasting = not WITH_NEXT.isdisjoint(value)
    if lasting and (reward is None or value.get("terminated") is None):
        raise StateError(f"{where} lacks its reward, or whether the episode ended")
    if hasattr(reward, "dtype") and lasting and _dtype(reward) != np.float32:
        raise StateError(f"{where}/reward must be float32, got {_dtype(reward)}")
    for name in _FLAGS:
        flag = value.get(name)
        if flag is not None and (_kind(flag) not in ("b", bool) or _shape(flag) != lead):
            raise StateError(f"{where}/{name} are not booleans, one for each action")


def _check_actions(value: object, space: Space, where: str) -> None:
    shape, trailing = _shape(value), space.shape or ()
    fits = len(shape) >= len(trailing) and shape[len(shape) - len(trailing) :] == tuple(trailing)
    if isinstance(space, spaces.Discrete):
        start, end = int(space.start), int(space.start) + int(space.n)
        fits = _kind(value) in ("i", int) and fits
        fits = fits and (not _size(value) or start <= _minimum(value) <= _maximum(value) < end)
    elif isinstance(space, spaces.Box):
        fits = fits and _kind(value) == np.dtype(space.dtype).kind
    if not fits:
        raise StateError(f"{where} holds a value that is not an action of {str(space)[:80]}")


def _check_observations(value: object, space: Space, where: str, lead: tuple[int, ...]) -> None:
    if isinstance(space, spaces.Dict):
        if not isinstance(value, Mapping) or set(value) != set(space.spaces):
            raise StateError(f"{where} is not an observation of {str(space)[:80]}")
        for name, part in space.spaces.items():
            _check_observations(value[name], part, f"{where}/{name}", _shape(value[name])[:1])
        return
    shape, own = _shape(value), tuple(space.shape or ())
    if isinstance(space, spaces.Discrete):
        end = int(space.start) + int(space.n)
        fits = _kind(value) in ("i", int) and shape[: len(lead)] == lead
        fits = fits and (
            not _size(value) or int(space.start) <= _minimum(value) <= _maximum(value) < end
        )
    elif isinstance(space, spaces.MultiDiscrete):
        fits = _kind(value) == "i" and (*lead, *own) == shape
        fits = fits and (
            not _size(value) or 0 <= _minimum(value) <= _maximum(value) < int(space.nvec.max())
        )
    elif isinstance(space, spaces.Box):
        fits = _kind(value) == np.dtype(space.dtype).kind and (*lead, *own) == shape
        whole = fits and np.dtype(space.dtype).kind in "iu" and _size(value) > 0
        if whole:  # a float may lie a little outside its bounds
            fits = _minimum(value) >= space.low.min() and _maximum(value) <= space.high.max()
    else:
        return
    if not fits:
        raise StateError(f"{where} holds a value that is not an observation of {str(space)[:80]}")


# ---- arrays, tensors and numbers alike


def _shape(value: object) -> tuple[int, ...]:
    return tuple(getattr(value, "shape", ()))


def _size(value: object) -> int:
    return math.prod(_shape(value))


def _minimum(value: object) -> Any:
    return getattr(value, "min", lambda: value)()


def _maximum(value: object) -> Any:
    return getattr(value, "max", lambda: value)()


def _dtype(value: object) -> np.dtype | None:
    """The dtype of an array, a tensor or a NumPy scalar; None for anything else."""
    name = str(getattr(value, "dtype", "")).removeprefix("torch.")
    try:
        return np.dtype("float16" if name == "bfloat16" else name) if name else None
    except TypeError:
        return None


def _kind(value: object) -> str | type:
    """ "f", "i" or "b" for an array, a tensor or a NumPy scalar; the type of anything else."""
    dtype = _dtype(value)
    return type(value) if dtype is None else dtype.kind
