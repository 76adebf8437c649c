"""Action masks: which actions an environment allows in its current state.

An environment with discrete actions may put `info["action_mask"]` into the info of `reset` and of
every `step`: [A], 1 for an allowed action and 0 for a forbidden one, bool or numbers; a vector
environment [N, A], where `info["_action_mask"]` [N] says which rows have one. It is gymnasium's
convention. A mask that an observation holds (`rlbook.envs.masked_observations`) is put there by
`observed_masks`. What came is checked here, once, and is bool from then on:

    interaction.action_mask → agent.act(obs, action_mask=…) → Step.action_mask,
    Step.next_action_mask

Each is [A], or [N, A] for a batched agent, and None as long as the environment has shown no mask.
From the first mask on, a row without one allows everything. So does the last state of an episode
that allows nothing: nobody acts there.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import VectorEnv
from numpy.typing import ArrayLike, NDArray

from rlbook.agent import ACTION_MASK
from rlbook.envs.masked_observations import keys_beside_mask
from rlbook.interaction.guards import BadAnswer
from rlbook.interaction.observed_masks import observed_keys

HAS_MASK = "_action_mask"
"""The key in a vector environment's info that marks the rows with a mask."""
Mask = NDArray[np.bool_]
IN_INFO, IN_OBSERVATION = "info['action_mask']", "the observation's 'action_mask'"
"""The names of a mask in messages, by where the environment shows it."""
UNUSED = (
    "this agent does not use the action masks of the environment and may take forbidden actions"
)


def checked_mask(
    raw_mask: ArrayLike, num_actions: int, ndim: int = 1, where: str = IN_INFO
) -> Mask:
    """Validates a mask [A] (or, with `ndim` 2, masks [N, A]) and returns it as bool; `where` is
    what a message calls it.

    Raises:
        BadAnswer: another shape, or anything but 0 and 1.
    """
    mask = np.asarray(raw_mask)
    if mask.shape[-1:] != (num_actions,) or mask.ndim != ndim:
        raise BadAnswer(
            f"{where} must have {num_actions} entries, one per action, got shape {mask.shape}"
        )
    if mask.dtype == np.bool_:
        return mask
    if mask.dtype.kind not in "iufO" or not np.isin(mask, (0, 1)).all():
        raise BadAnswer(
            f"{where} must hold 1 for allowed and 0 for forbidden actions, "
            f"got {mask.reshape(-1, num_actions)[0].tolist()!r:.60}"
        )
    return mask.astype(bool)


def mask_method(env: gymnasium.Env) -> Callable[[Any], Any] | None:
    """The environment's own `action_mask(observation)` method, as gymnasium's Taxi has; None
    without one, and where its observations hold the masks, which the method may want to see."""
    method: Any = getattr(env.unwrapped, ACTION_MASK, None)
    if _holds_mask(env):
        return None
    if not callable(method) or not isinstance(env.unwrapped.action_space, spaces.Discrete):
        return None
    try:
        inspect.signature(method).bind(0)
    except (TypeError, ValueError):
        return None
    return method


def mask_table(env: gymnasium.Env, observations: Iterable[Any]) -> Mask | None:
    """The masks that the environment's own method returns for each of S observations, [S, A].

    Where it allows nothing is an end, where nobody acts: there everything is.
    """
    method = mask_method(env)
    if method is None:
        return None
    num_actions = int(env.unwrapped.action_space.n)  # type: ignore[attr-defined]
    masks = np.stack([checked_mask(method(obs), num_actions) for obs in observations])
    return masks | ~masks.any(axis=1, keepdims=True)


def shows_action_mask(env: gymnasium.Env) -> bool:
    """Whether `reset` returns a mask, in its observation or in its info, which is tried on a copy.
    Environments of rlbook and gymnasium are not tried, because their masks are also available as
    methods.
    """
    if _holds_mask(env):
        return True
    if type(env.unwrapped).reset.__module__.split(".")[0] in ("rlbook", "gymnasium"):
        return False
    try:
        return ACTION_MASK in copy.deepcopy(env).reset(seed=0)[1]
    except Exception:  # whatever the user's class holds
        return False


def _holds_mask(env: gymnasium.Env) -> bool:
    """Whether the observations of the environment itself hold masks."""
    inner: Any = env.unwrapped
    return bool(keys_beside_mask(getattr(inner, "observation_space", None), inner.action_space))


def nth_allowed(action_mask: Mask | None, n: NDArray[np.int64]) -> NDArray[np.int64]:
    """The index of the n-th allowed action of each row, counted from 0: [N, A], [N] → [N]."""
    if action_mask is None:
        return n
    return (action_mask.cumsum(axis=1) > n[:, None]).argmax(axis=1)


class MaskReader:
    """Reads the action masks of one environment or of a vector environment.

    Args:
        env: as its agent sees it. Only masks of discrete actions are read.
    """

    def __init__(self, env: gymnasium.Env | VectorEnv) -> None:
        own: Any = getattr(env, "env", env) if hasattr(env, "adaptation") else env
        seen: Any = getattr(env, "single_action_space", None) or env.action_space
        chosen: Any = getattr(own, "single_action_space", None) or own.action_space
        discrete = isinstance(seen, spaces.Discrete) and isinstance(chosen, spaces.Discrete)
        self.num_actions = int(seen.n) if discrete else 0
        """A; 0 where no mask is read."""
        self.notes: list[str] = []
        """A note on masks that the environment shows but that are not read."""
        self._space = chosen
        self._where = IN_OBSERVATION if observed_keys(env) else IN_INFO

    def read_mask(
        self, info: Mapping[str, Any], before: Mask | None, *, done: bool = False
    ) -> Mask | None:
        """The current mask of one environment, [A].

        Args:
            info: of `reset` or `step`.
            before: the last mask; None where there was none yet.
            done: the episode has ended.

        Raises:
            BadAnswer: what stands there is no mask, or allows nothing and the episode goes on.
        """
        if before is None and ACTION_MASK not in info:
            return None
        found = info.get(ACTION_MASK)
        if not self.num_actions:
            return self._note_ignored_mask()
        if found is None:
            return np.ones(self.num_actions, dtype=bool)
        mask = checked_mask(found, self.num_actions, where=self._where)
        if mask.any():
            return mask.copy()
        if not done:
            raise BadAnswer(f"{self._where} allows no action, but the episode has not ended")
        return np.ones_like(mask)

    def read_rows(
        self, info: Mapping[str, Any], before: Mask | None, changed: Mask, done: Mask
    ) -> Mask | None:
        """The current masks of N environments, [N, A].

        Args:
            info: of a vector environment's `reset` or `step`.
            before: [N, A], the last masks; None where there were none yet.
            changed: [N], the environments that were reset or stepped; the others keep their masks.
            done: [N], those whose episode has ended.

        Raises:
            BadAnswer: as in `read_mask`.
        """
        if before is None and ACTION_MASK not in info:
            return None
        found = info.get(ACTION_MASK)
        if not self.num_actions:
            return self._note_ignored_mask()
        masks = np.ones((len(changed), self.num_actions), dtype=bool)
        if found is not None:
            if len(found) != len(changed):
                raise BadAnswer(
                    f"{self._where} must have {len(changed)} rows, one per environment, "
                    f"got {len(found)}"
                )
            known = np.asarray(info.get(HAS_MASK, changed), dtype=bool) & changed
            rows = np.asarray(found)[known]
            if rows.dtype == object and len(rows):  # an array of arrays
                rows = np.stack(
                    [checked_mask(row, self.num_actions, where=self._where) for row in rows]
                )
            if len(rows):
                rows = checked_mask(rows, self.num_actions, 2, self._where)
            masks[known] = rows if len(rows) else True
            empty = ~masks.any(axis=1)
            if empty.any():
                if (empty & ~done).any():
                    row = int(np.flatnonzero(empty & ~done)[0])
                    raise BadAnswer(
                        f"{self._where} allows no action in environment {row}, "
                        "but its episode has not ended"
                    )
                masks[empty] = True
        if before is not None and not changed.all():
            masks[~changed] = before[~changed]
        return masks

    def _note_ignored_mask(self) -> None:
        told = (
            f"the action masks are ignored: only masks of Discrete actions are read, not of"
            f" {self._space}"
        )
        if told not in self.notes:
            self.notes.append(told)
