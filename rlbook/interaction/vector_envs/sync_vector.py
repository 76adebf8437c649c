"""N gymnasium environments in one process, as a vector environment without autoreset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array
from gymnasium.wrappers import FrameStackObservation
from numpy.typing import NDArray

from rlbook.agent import State
from rlbook.checks import saved_array
from rlbook.fast_forms import has_fast_form
from rlbook.interaction.action_masks import ACTION_MASK, HAS_MASK
from rlbook.interaction.guards import (
    LIFE_LOST,
    METRICS,
    BadAnswer,
    number,
    space_error,
    unpack_step,
)
from rlbook.interaction.observed_masks import observed_keys
from rlbook.interaction.resumable import ResumableEnv

Masks = dict[int, Any]
"""The action masks of single environments, where they show any: row → mask."""


class VectorStep(NamedTuple):
    """The result of one step of N environments."""

    rows: list[Any]
    """The N observations, as returned by the environments."""
    rewards: NDArray[np.float64]  # [N]
    terminated: NDArray[np.bool_]  # [N]
    truncated: NDArray[np.bool_]  # [N]
    named: dict[int, dict[str, float]]
    """The metrics of single environments, if they have any: row → name → number."""
    masks: Masks
    lost: dict[int, bool]
    """The environments in which a life was lost: row → True."""


class SyncVector(VectorEnv):
    """N environments stepped in turn. After its episode has ended, an environment ignores actions
    until it is reset.

    Unlike gymnasium's `SyncVectorEnv` it lets finished environments wait and has `snapshot` and
    `restore`; observations are fresh arrays.

    Args:
        envs: N environments of the same kind, at least one.
    """

    def __init__(self, envs: Sequence[gymnasium.Env]) -> None:
        self.envs = [ResumableEnv(env) for env in envs]
        describe(self, envs[0], len(envs))
        self._discrete = isinstance(self.single_action_space, spaces.Discrete)
        self._terminated, self._truncated = (
            np.zeros(self.num_envs, dtype=bool),
            np.zeros(self.num_envs, dtype=bool),
        )

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> Any:
        """Resets the environments of `options["reset_mask"]` [N] bool (default: all); returns all
        observations, and their action masks if the environments have any (see `action_masks`)."""
        rows, masks = self.restart(*resets_and_seeds(self.num_envs, seed, options))
        return stack_observations(self.single_observation_space, rows), mask_columns(
            masks, self.num_envs
        )

    def restart(
        self, mask: NDArray[np.bool_], seeds: Sequence[int | None], options: dict[str, Any] | None
    ) -> tuple[list[Any], Masks]:
        """Resets the environments of `mask` [N], each with its own seed; returns a list of all
        observations, and their action masks."""
        # a step that was returned keeps its flags
        self._terminated, self._truncated = (
            self._terminated & ~mask,
            self._truncated & ~mask,
        )
        masks: Masks = {}
        for i in np.flatnonzero(mask).tolist():
            _, info = self.envs[i].reset(seed=seeds[i], options=options)
            if ACTION_MASK in info:
                masks[i] = info[ACTION_MASK]
        return [recorder.obs for recorder in self.envs], masks

    def step(self, actions: NDArray[Any]) -> Any:
        """Steps every environment whose episode has not ended: observations [N, ...], rewards [N],
        terminated [N], truncated [N], and a dict with the environments' metrics and action masks,
        if they have any (see `guards.named_numbers`, `action_masks`)."""
        rows, rewards, terminated, truncated, named, masks, lost = self.advance(actions)
        info = shared_info(named, masks, lost, self.num_envs)
        return (
            stack_observations(self.single_observation_space, rows),
            rewards,
            terminated,
            truncated,
            info,
        )

    @has_fast_form
    def advance(self, actions: NDArray[Any]) -> VectorStep:
        """As `step`, with observations, metrics and action masks as lists with one item per
        environment."""
        # spaces check Python's integers faster than numpy's
        actions = actions.tolist() if self._discrete else actions
        rewards, terminated, truncated = (
            np.zeros(self.num_envs),
            self._terminated.copy(),
            self._truncated.copy(),
        )
        waiting, named, masks, lost = (terminated | truncated).tolist(), {}, {}, {}
        for i, recorder in enumerate(self.envs):
            if not waiting[i]:
                recorder.actions.append(actions[i])
                answer = unpack_step(recorder.env.step(actions[i]))
                recorder.obs, reward, terminated[i], truncated[i], info = answer
                rewards[i] = number(reward)
                if METRICS in info:
                    named[i] = info[METRICS]
                if ACTION_MASK in info:
                    masks[i] = info[ACTION_MASK]
                if LIFE_LOST in info:
                    lost[i] = True
        self._terminated, self._truncated = terminated, truncated
        rows = [recorder.obs for recorder in self.envs]
        return VectorStep(rows, rewards, terminated, truncated, named, masks, lost)

    @property
    def is_over(self) -> NDArray[np.bool_]:
        """Which environments have ended their episode and await a reset, [N]."""
        return self._terminated | self._truncated

    def snapshot(self) -> State:
        """All state needed to continue, even in the middle of an episode."""
        return {
            "envs": [env.snapshot() for env in self.envs],
            "terminated": self._terminated,
            "truncated": self._truncated,
        }

    def restore(self, state: State) -> None:
        """The inverse of `snapshot`."""
        for env, saved in zip(self.envs, state["envs"], strict=True):
            env.restore(saved)
        shape = (self.num_envs,)
        self._terminated = saved_array("terminated", state["terminated"], np.bool_, shape)
        self._truncated = saved_array("truncated", state["truncated"], np.bool_, shape)

    def close_extras(self, **kwargs: object) -> None:
        """Closes the environments."""
        for env in self.envs:
            env.close()


def describe(vector: VectorEnv, env: gymnasium.Env, num_envs: int) -> None:
    """Sets the spaces, the metadata, the `frame_stack` and the `observed_keys` of a vector
    environment of `num_envs` environments like `env`."""
    vector.num_envs = num_envs
    vector.metadata = dict(env.metadata) | {"autoreset_mode": AutoresetMode.DISABLED}
    vector.render_mode = env.render_mode
    vector.single_observation_space, vector.single_action_space = (
        env.observation_space,
        env.action_space,
    )
    vector.observation_space = batch_space(env.observation_space, num_envs)
    vector.action_space = batch_space(env.action_space, num_envs)
    vector.frame_stack = stacked_frames(env)  # type: ignore[attr-defined]
    vector.observed_keys = observed_keys(env)  # type: ignore[attr-defined]


def stacked_frames(env: gymnasium.Env) -> int:
    """The frames that an observation of gymnasium's `FrameStackObservation` has; 1 where none is
    around the environment, or where what is around it shows something else."""
    shape, layer = env.observation_space.shape, env
    while isinstance(layer, gymnasium.Wrapper):
        if isinstance(layer, FrameStackObservation) and layer.observation_space.shape == shape:
            return int(layer.stack_size)
        layer = layer.env
    return 1


def resets_and_seeds(
    num_envs: int, seed: int | Sequence[int | None] | None, options: dict[str, Any] | None
) -> tuple[NDArray[np.bool_], Sequence[int | None], dict[str, Any] | None]:
    """Which environments a `reset` applies to [N], their N seeds, and the options passed on to
    them."""
    mask = (options or {}).get("reset_mask")
    rest = {key: value for key, value in (options or {}).items() if key != "reset_mask"}
    seeds = (
        [seed + i for i in range(num_envs)] if isinstance(seed, int) else seed or [None] * num_envs
    )
    return (
        np.ones(num_envs, dtype=bool) if mask is None else np.asarray(mask, dtype=bool),
        seeds,
        rest or None,
    )


def stack_observations(
    space: spaces.Space, rows: Sequence[Any], name: str = "the observation"
) -> Any:
    """Stacks observations of a space into fresh arrays [N, ...], part by part if it has parts.
    `name` is what errors call an observation.

    Raises:
        BadAnswer: one is not of the space's shape, or holds what its type does not.
    """
    if isinstance(space, spaces.Dict):
        return {
            key: stack_observations(part, _part_of(rows, key, space, name), f"{name}[{key!r}]")
            for key, part in space.spaces.items()
        }
    if isinstance(space, spaces.Tuple):
        return tuple(
            stack_observations(part, _part_of(rows, i, space, name), f"{name}[{i}]")
            for i, part in enumerate(space.spaces)
        )
    if space.shape is None or space.dtype is None:
        return concatenate(space, rows, create_empty_array(space, len(rows)))
    whole = np.empty((len(rows), *space.shape), space.dtype)
    shape, dtype = space.shape, whole.dtype
    for i, row in enumerate(rows):
        if row.__class__ is np.ndarray and row.dtype is dtype and row.shape == shape:
            whole[i] = row
        else:
            _write_row(whole, i, row, space, name)
    return whole


def _part_of(
    rows: Sequence[Any], key: Any, space: spaces.Dict | spaces.Tuple, name: str
) -> list[Any]:
    """One part of each observation."""
    kind = Mapping if isinstance(space, spaces.Dict) else tuple | list
    for row in rows:
        if not isinstance(row, kind):
            raise space_error(row, space, name)
        if key not in (row if isinstance(row, Mapping) else range(len(row))):
            raise BadAnswer(f"{name} has no {key!r}, which observation_space has")
    return [row[key] for row in rows]


def _write_row(batch: np.ndarray, i: int, row: object, space: spaces.Space, name: str) -> None:
    """`whole[i] = row`, but without NumPy's broadcasting along missing axes and without its
    wrap-around of bytes (300 → 44).

    Raises:
        BadAnswer: the row is not of the space's shape, or holds what its type does not.
    """
    array = row if isinstance(row, np.ndarray) else np.asarray(row)
    if array.shape != space.shape or array.dtype.kind not in "fiub":
        raise BadAnswer(f"{name} has shape {array.shape} and type {array.dtype}, outside {space}")
    if array.dtype == batch.dtype or batch.dtype.kind == "f":
        batch[i] = array
        return
    with np.errstate(invalid="ignore"):
        batch[i] = array
    if not np.array_equal(batch[i], array):
        raise space_error(array[batch[i] != array].flat[0], space, name)


def shared_info(
    named: dict[int, dict[str, float]], masks: Masks, lost: dict[int, bool], num_envs: int
) -> dict[str, Any]:
    """The info of N environments: metrics, action masks and lost lives, where there are any."""
    info = columns(named, num_envs) | mask_columns(masks, num_envs)
    if lost:
        info[LIFE_LOST] = np.isin(np.arange(num_envs), list(lost))
    return info


def columns(named: dict[int, dict[str, float]], num_envs: int) -> dict[str, Any]:
    """Metrics of single environments as an info: name → [N], NaN where an environment has none; {}
    if none has any."""
    found: dict[str, np.ndarray] = {}
    for row, numbers in named.items():
        for name, value in numbers.items():
            found.setdefault(name, np.full(num_envs, np.nan))[row] = value
    return {METRICS: found} if found else {}


def mask_columns(masks: Masks, num_envs: int) -> dict[str, Any]:
    """The action masks of single environments, in the format of gymnasium's vector infos; {} if
    there are none."""
    if not masks:
        return {}
    rows, known = np.empty(num_envs, dtype=object), np.zeros(num_envs, dtype=bool)
    for row, mask in masks.items():
        rows[row], known[row] = np.asarray(mask), True
    return {ACTION_MASK: rows, HAS_MASK: known}
