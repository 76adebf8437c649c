"""Checks what an environment returns before anything learns from it.

Whatever goes wrong in an environment becomes a `TrainingError` of one sentence that names the step
and the cause, so that a run ends with its last checkpoint intact.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import VectorEnv
from numpy.typing import ArrayLike, NDArray

from rlbook.checks import shorten
from rlbook.errors import RequestError, TrainingError, one_line
from rlbook.interaction.round_rewards import RoundScorer, Scored

Check = Callable[[object], None]
"""Raises `BadAnswer` or FloatingPointError for an observation that cannot be learned from."""

METRICS = "metrics"
"""The key in gymnasium's info of an environment's metrics; see `named_numbers`."""
UNCLIPPED = "unclipped_reward"
"""The key in the info of the unclipped reward, from which reported returns are computed."""
LIFE_LOST = "life_lost"
"""The key in the info for a lost life after which the game continues: nothing is bootstrapped
there. For a vector environment: [N] bool."""


class BadAnswer(ValueError):
    """An environment returned an invalid observation, reward, flag or info."""


def guarded_step(
    env: gymnasium.Env | VectorEnv, action: ArrayLike, step: int
) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
    """`env.step(action)`. Raises TrainingError if the environment raises, or if the action is not
    in its space. Steps count from 1."""
    try:
        obs, reward, terminated, truncated, info = env.step(action)
        return obs, reward, terminated, truncated, info
    except TrainingError:
        raise
    except FloatingPointError as error:
        raise failure(error, step) from None
    except Exception as error:
        if _is_foreign(env.action_space, action):
            raise TrainingError(
                f"act gave {_shorten(action)} at step {step}, which is not an action of {env.action_space}"
            ) from error
        raise failure(error, step) from error


def _is_foreign(space: spaces.Space, action: ArrayLike) -> bool:
    """Whether an action's shape, or one of its numbers, is not in the space."""
    given = np.asarray(action)
    if isinstance(space, spaces.Box):
        return given.shape != space.shape
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
        return given.dtype.kind not in "iu" or not space.contains(given.astype(space.dtype))
    return False


def guarded_reset(
    env: gymnasium.Env | VectorEnv,
    step: int,
    *,
    seed: int | Sequence[int] | None = None,
    options: dict[str, Any] | None = None,
) -> tuple[Any, dict[str, Any]]:
    """The result of `env.reset`, called after `step` steps. Raises TrainingError if the environment
    raises."""
    try:
        obs, info = env.reset(seed=seed, options=options)  # type: ignore[arg-type]
        return obs, info
    except (TrainingError, RequestError):
        raise
    except FloatingPointError as error:
        raise failure(error, step) from None
    except Exception as error:
        why = RESET if "unpack" in str(error) else cause_of(error)
        raise TrainingError(f"the environment failed to reset after step {step}: {why}") from error


def guarded_score(scorer: RoundScorer, step: int) -> Scored:
    """`scorer.score_round()` after `step` steps. Raises TrainingError if it raises."""
    try:
        return scorer.score_round()
    except TrainingError:
        raise
    except FloatingPointError as error:
        raise failure(error, step) from None
    except Exception as error:
        raise failure(error, step) from error


def failure(error: Exception, step: int) -> TrainingError:
    """The error that an environment raised, or its invalid return value, in one sentence."""
    if isinstance(error, FloatingPointError):
        what, value = error.args if len(error.args) == 2 else ("observation", error)
        return not_finite_error(what, value, step)
    return TrainingError(f"the environment failed at step {step}: {cause_of(error)}")


def cause_of(error: Exception) -> str:
    """An exception on one line; the name of its type is prefixed unless it is `BadAnswer`."""
    told = one_line(error)
    if told == "not enough values to unpack (expected 5, got 4)":  # a wrapper took them apart
        return OLD_STEP
    kind = type(error).__name__
    return told if isinstance(error, BadAnswer) or told.startswith(kind) else f"{kind}: {told}"


def not_finite_error(what: str, value: object, step: int) -> TrainingError:
    """The error for a reward or an observation that is not finite, in one sentence."""
    return TrainingError(f"{what} at environment step {step} is not finite: {value}")


DRAWN = 2**64
"""The bound below which all environment seeds set here lie; gymnasium draws one of 128 bits if none
is given."""


def seed_note(env: gymnasium.Env | VectorEnv) -> list[str]:
    """A note if an environment draws from `np_random`, and its `reset` has not passed the seed on."""
    for one in getattr(env.unwrapped, "envs", [env]):
        world = one.unwrapped
        if (getattr(world, "_np_random_seed", None) or 0) >= DRAWN:
            return [
                f"{type(world).__name__}.reset does not call super().reset(seed=seed), so "
                "np_random has no seed, and the same command gives different runs"
            ]
    return []


# ---- the form of an answer: gymnasium only warns of most of this, and goes on

RESET = "reset must return an observation and a dict"
STEP = "observation, reward, terminated, truncated and info"
OLD_STEP = f"step returned 4 values, as gym did before gymnasium: it must return 5, {STEP}"


def unpack_reset(answer: object) -> tuple[Any, dict[str, Any]]:
    """Unpacks the result of `reset`, (observation, dict). Raises BadAnswer for anything else."""
    if isinstance(answer, tuple | list) and len(answer) == 2 and isinstance(answer[1], dict):
        return answer[0], answer[1]
    raise BadAnswer(f"{RESET}, got {_shorten(answer)}")


def unpack_step(answer: object) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
    """Unpacks the result of `step` of one environment, with its flags as bools; the reward is not
    checked.

    Raises:
        BadAnswer: it is not of the form that gymnasium asks for.
    """
    if type(answer) is tuple and len(answer) == 5:
        _, _, terminated, truncated, info = answer
        if terminated.__class__ is bool and truncated.__class__ is bool and info.__class__ is dict:
            return answer
    obs, reward, terminated, truncated, info = _five_values(answer)
    return obs, reward, flag("terminated", terminated), flag("truncated", truncated), info


def unpack_vector_step(answer: object, num_envs: int) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
    """As `unpack_step`, for N environments: rewards [N] of any numeric type, flags [N] bool."""
    five, shape = _five_values(answer), (num_envs,)
    for name, value in zip(("reward", "terminated", "truncated"), five[1:4], strict=True):
        kinds, wanted = ("fiub", "numbers") if name == "reward" else ("b", "bools")
        if (
            not isinstance(value, np.ndarray)
            or value.shape != shape
            or value.dtype.kind not in kinds
        ):
            raise BadAnswer(
                f"{name} must be an array [{num_envs}] of {wanted}, got {_shorten(value)}"
            )
    return five


def _five_values(answer: object) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
    if isinstance(answer, tuple | list) and len(answer) == 5:
        if not isinstance(answer[4], dict):
            raise BadAnswer(f"info must be a dict, got {_shorten(answer[4])}")
        return tuple(answer)
    if isinstance(answer, tuple) and len(answer) == 4:
        raise BadAnswer(OLD_STEP)
    got = f"{len(answer)} values" if isinstance(answer, tuple) else _shorten(answer)
    raise BadAnswer(f"step must return {STEP}, got {got}")


def flag(name: str, value: object) -> bool:
    """`terminated` or `truncated` as a bool.

    A bool may be Python's, numpy's or torch's. gymnasium asks for one, and warns of all else; of
    that, the integers 0 and 1 leave no doubt.

    Raises:
        BadAnswer: anything else, such as "False", NaN and None, of which Python makes a bool too.
    """
    if isinstance(value, bool | np.bool_):
        return bool(value)
    array = _scalar(value)
    if array is None or array.dtype.kind not in "iub" or int(array) not in (0, 1):
        raise BadAnswer(f"{name} must be True or False, got {_shorten(value)}")
    return bool(array)


def _scalar(value: object) -> np.ndarray | None:
    """The only element of a NumPy or torch scalar; None for anything else."""
    try:
        array = np.asarray(value)
    except (TypeError, ValueError, RuntimeError):  # a ragged list, a tensor with a gradient
        return None
    return array if array.ndim == 0 else None


def _shorten(value: object) -> str:
    shown = " ".join(repr(value).split())
    return shown if len(shown) <= 60 else shown[:57] + "..."


# ---- rewards


PLAIN_NUMBERS = (float, int, np.floating, np.integer, np.bool_)


def number(reward: object) -> float:
    """The reward as a float, possibly NaN. Raises BadAnswer if it is not a single number."""
    if isinstance(reward, PLAIN_NUMBERS):
        try:
            return float(reward)
        except OverflowError:
            raise BadAnswer(
                f"the reward must be a number that a float can represent, got {_shorten(reward)}"
            ) from None
    array = _scalar(reward)
    try:
        if array is not None and array.dtype.kind in "fiubO":  # O: a Fraction, a Decimal
            return float(array)
    except (TypeError, ValueError):
        pass
    shape, why = tuple(getattr(reward, "shape", ())), ""
    if shape:
        why = f" of shape {shape}"
    elif getattr(reward, "requires_grad", False):
        why = ", which has a gradient"
    raise BadAnswer(f"the reward must be a number, got {_shorten(reward)}{why}")


def finite_number(reward: object) -> float:
    """The reward as a float. Raises BadAnswer if it is not a number, and FloatingPointError if it
    is not finite."""
    found = number(reward)
    if not math.isfinite(found):
        raise FloatingPointError("reward", found)
    return found


def check_rewards(reward: np.ndarray, step: int) -> None:
    """Raises TrainingError unless rewards [N] are finite numbers. If the sum of squares is finite,
    so is every term."""
    if reward.dtype.kind not in "fiub":
        wrong = next(
            (item for item in reward.tolist() if not isinstance(item, int | float)), reward.dtype
        )
        raise TrainingError(
            f"the environment failed at step {step}: the reward must be a number, got {wrong!r}"
        )
    if (
        reward.dtype.kind == "f"
        and not math.isfinite(np.vdot(reward, reward))
        and not np.isfinite(reward).all()
    ):
        raise not_finite_error("reward", reward[~np.isfinite(reward)].flat[0], step)


# ---- observations


def check_for(env: gymnasium.Env | VectorEnv) -> Check:
    """The observation check for `env`. An adapted environment has a check of its own, because its
    spaces are the agent's."""
    adapted = getattr(env, "check", None)
    if adapted is not None:
        return adapted
    if isinstance(env, VectorEnv):
        return observation_check(env.single_observation_space, batched=True)
    return observation_check(env.observation_space)


def skip_check(obs: object) -> None:
    """A check that does nothing, for observations that were already checked."""


def observation_check(
    space: spaces.Space, *, batched: bool = False, note: Callable[[str], object] = skip_check
) -> Check:
    """A fast check that observations lie in the space, one at a time or, with `batched`, as rows
    [N, ...].

    Bounds of a Box are compared with a margin for rounding. What lies outside of them but is finite
    is learned from all the same, since many environments state bounds that they do not keep; `note`
    is given a sentence about the first such number. Spaces of texts, sequences and graphs are left
    to the environment.
    """
    if isinstance(space, spaces.Discrete):
        return _whole_numbers(space, np.array(space.start), np.array(space.n), batched)
    if isinstance(space, spaces.MultiDiscrete):
        return _whole_numbers(space, space.start, space.nvec, batched)
    if isinstance(space, spaces.MultiBinary):
        return _whole_numbers(
            space, np.zeros(space.shape, dtype=np.int64), np.full(space.shape, 2), batched
        )
    if isinstance(space, spaces.Box):
        return _numbers(space, batched, note)
    if isinstance(space, spaces.Dict | spaces.Tuple):
        return _parts(space, batched, note)
    return skip_check


def _whole_numbers(
    space: spaces.Space, start: np.ndarray, count: np.ndarray, batched: bool
) -> Check:
    first, beyond = (0, 0) if start.ndim or batched else (int(start), int(start + count))
    shape, axes, none = start.shape, int(batched), not start.any()

    def check(obs: object) -> None:
        if (type(obs) is int or type(obs) is np.int64) and first <= obs < beyond:
            return
        array = np.asarray(obs)
        if array.dtype.kind not in "iub" or array.shape[axes:] != shape or array.ndim < axes:
            raise space_error(obs, space)
        above = array.astype(np.int64, copy=False)
        if not none:
            above = above - start
        if np.count_nonzero(above.view(np.uint64) >= count):  # a negative number becomes a huge one
            raise space_error(array[(above < 0) | (above >= count)].flat[0], space)

    count = count.astype(np.uint64)
    return check


def _numbers(space: spaces.Box, batched: bool, note: Callable[[str], object]) -> Check:
    """The check for numeric spaces. A number between the bounds is also finite, because infinite
    bounds are replaced by the largest finite number."""
    shape, axes, most = space.shape, int(batched), 0.0
    if space.dtype is not None and space.dtype.kind == "f":
        most = float(np.finfo(str(space.dtype)).max)
        margin = 8 * np.finfo(np.float32).eps
        low, high = (
            np.clip(bound.astype(np.float64), -most, most) for bound in (space.low, space.high)
        )
        low, high = (
            low - margin * np.minimum(np.abs(low), 1e30),
            high + margin * np.minimum(np.abs(high), 1e30),
        )
        low, high = (np.clip(bound, -most, most).astype(space.dtype) for bound in (low, high))
    else:
        low, high = space.low, space.high
        limits = (
            np.iinfo(str(space.dtype))
            if space.dtype is not None and space.dtype.kind in "iu"
            else None
        )
        if limits is not None and (low == limits.min).all() and (high == limits.max).all():
            low = high = None  # an image: its type is its bounds

    def check(obs: object) -> None:
        nonlocal low, high
        array = obs if isinstance(obs, np.ndarray) else np.asarray(obs)
        if array.shape[axes:] != shape or array.dtype.kind not in "fiub":
            raise BadAnswer(
                f"the observation has shape {array.shape} and type {array.dtype}, outside"
                f" {_space_name(space)}"
            )
        if low is None and array.dtype == space.dtype:
            return
        if (
            low is None
            or np.count_nonzero(array >= low) + np.count_nonzero(array <= high) != 2 * array.size
        ):
            excursion = _excursion(array, space, low, high)
            if excursion:  # from here on the bounds are those of the type: numbers are to be finite
                note(excursion)
                low, high = (
                    (np.full(shape, -most, space.dtype), np.full(shape, most, space.dtype))
                    if most
                    else (None, None)
                )

    return check


def _excursion(
    array: np.ndarray, space: spaces.Box, low: np.ndarray | None, high: np.ndarray | None
) -> str:
    """A sentence about a finite number outside its bounds; "" if all lie inside.

    Raises:
        FloatingPointError: a number is not finite.
        BadAnswer: one of another type is outside, which would become another number in the space's
            own.
    """
    real = space.dtype is not None and space.dtype.kind == "f"
    with np.errstate(over="ignore"):
        shown = array.astype(space.dtype) if real else array  # 1e300 is not finite in float32
    if shown.dtype.kind == "f" and not np.isfinite(shown).all():
        raise FloatingPointError("observation", array[~np.isfinite(shown)].flat[0])
    low, high = (space.low, space.high) if low is None or high is None else (low, high)
    wrong = (array < low) | (array > high)
    if not wrong.any():
        return ""
    if not real and array.dtype != space.dtype:
        raise space_error(array[wrong].flat[0], space)
    place = tuple(np.argwhere(wrong)[0].tolist())
    inner = place[len(place) - len(space.shape) :]
    bounds = f"{float(space.low[inner]):g} and {float(space.high[inner]):g}"
    return (
        f"observation {list(inner)} is {float(array[place]):g}, outside its bounds {bounds}; it is"
        " used unchanged"
    )


def _parts(
    space: spaces.Dict | spaces.Tuple, batched: bool, note: Callable[[str], object]
) -> Check:
    keys: Any = list(space.spaces) if isinstance(space, spaces.Dict) else range(len(space.spaces))
    checks = [
        (key, observation_check(space.spaces[key], batched=batched, note=note)) for key in keys
    ]
    named = isinstance(space, spaces.Dict)

    def check(obs: object) -> None:
        if not isinstance(obs, Mapping if named else tuple) or len(obs) != len(checks):
            raise space_error(obs, space)
        for key, part in checks:
            if isinstance(obs, Mapping) and key not in obs:
                raise BadAnswer(f"the observation has no key {key!r}")
            part(obs[key])

    return check


def space_error(obs: object, space: spaces.Space, name: str = "the observation") -> BadAnswer:
    """The error for an observation outside its space."""
    shown = shorten(obs.item() if isinstance(obs, np.generic) else obs)
    return BadAnswer(f"{name} {shown} is outside {_space_name(space)}")


def _space_name(space: spaces.Space) -> str:
    named = repr(space)
    if len(named) <= 80:
        return named
    parts = f"({', '.join(map(repr, space.spaces))})" if isinstance(space, spaces.Dict) else ""
    return f"{type(space).__name__}{space.shape or parts}"


# ---- named numbers


def named_numbers(info: dict[str, Any]) -> dict[str, Any] | None:
    """The numbers that the environment wants logged: `info["metrics"]`, name → number, or [N]
    numbers from a vector environment.

    The parts of a reward, for example. NaN stands for no number at this step. gymnasium's vector
    environments mark missing numbers in an array called `_NAME` instead.
    """
    found = info.get(METRICS)
    if not found:
        return None
    masked = {name: found.get(f"_{name}") for name in found if not name.startswith("_")}
    return {
        name: found[name] if mask is None else np.where(mask, found[name], np.nan)
        for name, mask in masked.items()
    }


def totals(
    numbers: Mapping[str, ArrayLike], valid: bool | NDArray[np.bool_]
) -> dict[str, tuple[float, int]]:
    """Name → sum and count of the numbers that are present. `valid` marks the rows to include:
    True, or [N] bool."""
    found = {}
    for name, values in numbers.items():
        row = np.asarray(values, dtype=np.float64)
        there = row[valid & ~np.isnan(row)] if row.ndim else row[~np.isnan(row)]
        if there.size:
            found[name] = (float(there.sum()), int(there.size))
    return found
