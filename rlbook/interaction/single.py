"""The interaction with one environment: step it, and reset it when an episode has ended.

The loop owns the resets, so `next_obs` is always the true successor and every action reaches the
environment.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from copy import deepcopy
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any, ClassVar

import gymnasium
import numpy as np
from numpy.typing import ArrayLike

from rlbook.agent import State, Step
from rlbook.checks import ENDLESS, saved_array, saved_count, saved_number
from rlbook.interaction.action_masks import ACTION_MASK, MaskReader
from rlbook.interaction.budget import Budget
from rlbook.interaction.episodes import Episode, draw_seed, episode_table, episodes_of
from rlbook.interaction.guards import (
    LIFE_LOST,
    UNCLIPPED,
    BadAnswer,
    check_for,
    failure,
    finite_number,
    guarded_reset,
    guarded_step,
    named_numbers,
    observation_check,
)
from rlbook.seeding import rng_state, set_rng_state

if TYPE_CHECKING:
    from rlbook.envs.tabular.mdp import TabularMDP


def own_copy(obs: Any) -> Any:
    """A copy of an observation whose arrays the environment may overwrite in its next step."""
    if isinstance(obs, np.ndarray):
        return obs.copy()
    return deepcopy(obs) if isinstance(obs, dict | tuple | list) else obs


class SingleInteraction:
    """The interaction of a tabular agent with one environment.

    Args:
        env: has `snapshot` and `restore` where the run is to be resumed; see
            `rlbook.interaction.resumable.ResumableEnv`.
        rng: draws the seed of the first reset; later episodes go on from there.
        seeds: the reset seeds, one an episode; after the last episode `obs` is None. None: as `rng`
            says, without end.
        longest: steps after which an episode is cut.
    """

    note: str = ""
    """A note on how the steps are taken, if that is worth mentioning."""
    model: TabularMDP | None = None
    """The environment's exact model, if it is known."""
    rollout: ClassVar[str] = "steps"
    """There are no rounds of episodes."""

    def cut_short(self, *, whole_rounds: bool) -> int:
        """0, because there are no rounds; see `VectorInteraction.cut_short`."""
        return 0

    def rest_of_round(self, *, whole_rounds: bool) -> int:
        """0, as above."""
        return 0

    def __init__(
        self,
        env: gymnasium.Env,
        rng: np.random.Generator | None = None,
        *,
        seeds: Iterable[int] | None = None,
        longest: int = ENDLESS,
    ) -> None:
        self.env, self.rng, self._longest = env, rng, longest
        self._seeds: Iterator[int | None] = self._one_seed() if seeds is None else iter(seeds)
        self._check = check_for(env)
        self._masks = MaskReader(env)
        # [A] bool, what the environment allows now; None where it shows no mask
        self.action_mask: Any = None
        self.notes = self._masks.notes  # what turned out on the way that is worth saying
        self.finished: list[Episode] = []  # episodes that ended; whoever reads them clears them
        self.steps = self.episodes = 0
        self._return, self._length, self._over = 0.0, 0, False
        self.obs: Any = None  # None before the first reset, and after the last episode
        self.budget: Budget | None = None  # when training ends, where it does

    def _one_seed(self) -> Iterator[int | None]:
        assert self.rng is not None
        yield draw_seed(self.rng)
        yield from repeat(None)

    def start(self) -> None:
        """The first reset."""
        self._reset()

    def step(self, action: ArrayLike) -> Step:
        """One step. Raises TrainingError if the reward is not a finite number or the observation
        lies outside its space."""
        obs, mask = self.obs, self.action_mask
        self.steps += 1
        seen, reward, terminated, truncated, info = guarded_step(self.env, action, self.steps)
        try:
            reward = finite_number(reward)
            paid = finite_number(info[UNCLIPPED]) if UNCLIPPED in info else reward
            self._check(seen)
            self.obs = own_copy(seen)
            if mask is not None or ACTION_MASK in info:
                self.action_mask = self._masks.read_mask(info, mask, done=terminated or truncated)
        except (BadAnswer, FloatingPointError) as error:
            raise failure(error, self.steps) from None
        self._return += paid
        self._length += 1
        terminated, cut = bool(terminated), bool(truncated) or self._length >= self._longest
        self._over = terminated or cut
        named = named_numbers(info) if info else None
        terminated = terminated or LIFE_LOST in info
        return Step(
            obs,
            action,
            reward,
            self.obs,
            terminated,
            cut and not terminated,
            True,
            named,
            mask,
            self.action_mask,
        )

    def reset_finished(self) -> bool:
        """Resets the environment if its episode has ended. Returns whether it did."""
        if not self._over:
            return False
        self.finished.append((self.steps, self._return, self._length))
        self.episodes += 1
        self._return, self._length, self._over = 0.0, 0, False
        self._reset()
        return True

    def _reset(self) -> None:
        for seed in self._seeds:
            seen, info = guarded_reset(self.env, self.steps, seed=seed)
            try:
                self._check(seen)
                self.obs = own_copy(seen)
                self.action_mask = self._masks.read_mask(info, self.action_mask)
            except (BadAnswer, FloatingPointError) as error:
                raise failure(error, self.steps) from None
            return
        self.obs = self.action_mask = None

    def state_dict(self) -> State:
        assert self.rng is not None
        return {
            "env": None if self.obs is None else self.env.get_wrapper_attr("snapshot")(),
            "obs": self.obs,
            "return": self._return,
            "length": self._length,
            "steps": self.steps,
            "episodes": self.episodes,
            "finished": episode_table(self.finished),
            "rng": rng_state(self.rng),
            **({} if self.action_mask is None else {ACTION_MASK: self.action_mask}),
        }

    def load_state_dict(self, state: State) -> None:
        """The inverse of `state_dict`. Raises ValueError if the state does not fit this
        environment."""
        assert self.rng is not None
        self._load_counts(state)
        if state["env"] is not None:
            self.env.get_wrapper_attr("restore")(state["env"])
        set_rng_state(self.rng, state["rng"])

    def _load_counts(self, state: State) -> None:
        if state["obs"] is not None:
            observation_check(self.env.observation_space)(state["obs"])
            self._seeds = chain(repeat(None))  # the first reset has been
        if ACTION_MASK in state:
            self.action_mask = saved_array(
                ACTION_MASK, state[ACTION_MASK], np.bool_, (self._masks.num_actions,)
            )
        self.obs = state["obs"]
        self._return, self._length = (
            saved_number("return", state["return"]),
            saved_count("length", state["length"]),
        )
        self.steps, self.episodes = (
            saved_count("steps", state["steps"]),
            saved_count("episodes", state["episodes"]),
        )
        self.finished = episodes_of(state["finished"])
