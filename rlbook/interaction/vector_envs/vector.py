"""The interaction with N environments: arrays [N, ...], stepped together and reset when an episode
has ended.

The loop owns the resets, so `next_obs` is always the true successor and every action reaches an
environment.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv
from numpy.typing import ArrayLike, NDArray

from rlbook.agent import State, Step
from rlbook.checks import ENDLESS, saved_array, saved_count
from rlbook.interaction.action_masks import ACTION_MASK, MaskReader
from rlbook.interaction.budget import Budget
from rlbook.interaction.episodes import Episode, draw_seed, episode_table, episodes_of
from rlbook.interaction.guards import (
    LIFE_LOST,
    UNCLIPPED,
    BadAnswer,
    check_for,
    check_rewards,
    failure,
    guarded_reset,
    guarded_score,
    guarded_step,
    named_numbers,
    observation_check,
)
from rlbook.interaction.round_rewards import RoundScorer, round_scorer
from rlbook.interaction.spaces import outermost_snapshot_env
from rlbook.interaction.vector_envs.split_vector import check_process_count
from rlbook.seeding import rng_state, set_rng_state

UNSCORED = "unscored"
"""The key in a saved state of the episodes that have ended and have no reward yet."""


class VectorInteraction:
    """The interaction of an agent with a neural network with N environments.

    With `rollout = "episodes"` all environments start together and a finished one waits, its rows
    invalid, until the last one ends; then neighbouring groups of `group_size` start from one seed
    each. Equal seeds make equal starts and equal dynamics noise: common random numbers, which leave
    a group-relative gradient unbiased and make it less noisy.

    Args:
        env: autoreset disabled; has `snapshot` and `restore` where the run is to be resumed.
        rng: draws the seeds.
        rollout: "steps" or "episodes".
        group_size: neighbouring environments that start from the same seed; divides N.
        seeds: the N seeds of one round of whole episodes, after which `obs` is None; None: seeds
            are drawn without end.
        longest: steps after which an episode is cut.
        scoring: when rewards are asked for, where the environment can wait with them (see
            `round_rewards`) and the rollout is "episodes": at each "step", once a "round" in one
            call, or "never", for whoever wants the episodes without their rewards.

    Raises:
        ValueError: the environment resets itself, or cannot let a finished one wait.
    """

    note: ClassVar[str] = ""
    model: ClassVar[None] = None

    def __init__(
        self,
        env: VectorEnv,
        rng: np.random.Generator | None = None,
        *,
        rollout: str = "steps",
        group_size: int = 1,
        seeds: Sequence[int] | None = None,
        longest: int = ENDLESS,
        scoring: str = "step",
    ) -> None:
        _check_resets(env, rollout)
        self._scorer = _find_scorer(env, rollout, scoring)
        self._scores = scoring == "round" and self._scorer is not None
        # step and row of each episode that has ended and whose return is not known yet; and of each
        # whose return is
        self._unscored: list[tuple[int, int]] = []
        self._scored: list[tuple[int, int]] = []
        self.budget: Budget | None = None
        """When training ends, if known: what has ended by then is scored."""
        self.rng, self.rollout, self.group_size = rng, rollout, group_size
        self._seeds, self._longest = seeds, longest
        self.env: Any = env
        self._check = check_for(env)
        self._masks = MaskReader(env)
        # [N, A] bool, what is allowed now; None where the environment shows no masks
        self.action_mask: Any = None
        self.notes = self._masks.notes  # what turned out on the way that is worth saying
        self.finished: list[Episode] = []  # episodes that ended; whoever reads them clears them
        self.steps = self.episodes = 0
        self._all = np.ones(env.num_envs, dtype=bool)
        self.valid = self._all
        self.returns, self.lengths = np.zeros(env.num_envs), np.zeros(env.num_envs, dtype=np.int64)
        """[N]: of the episodes in progress, in reward units and in steps; of one that waits, in
        all."""
        self._over = ~self._all
        # None before the first reset, and after the last given seed's episodes
        self.obs: Any = None

    def start(self) -> None:
        """Resets all environments with fresh seeds, one per group."""
        seeds = self._seeds
        if seeds is None:
            assert self.rng is not None
            drawn = [draw_seed(self.rng) for _ in range(self.env.num_envs // self.group_size)]
            seeds = [seed for seed in drawn for _ in range(self.group_size)]
        self.valid = self._all
        self.returns[:], self.lengths[:] = 0.0, 0
        self._reset(seed=list(seeds))

    def _reset(self, done: np.ndarray | None = None, *, seed: list[int] | None = None) -> None:
        """Resets the environments marked in `done` [N], or all."""
        options = None if done is None else {"reset_mask": done}
        self.obs, info = guarded_reset(self.env, self.steps, seed=seed, options=options)
        self._check_observations(self.steps, info, self._all if done is None else done, ~self._all)

    def _check_observations(
        self, step: int, info: dict[str, Any], changed: np.ndarray, done: np.ndarray
    ) -> None:
        """Checks the observations after `changed` [N] were reset or stepped; `done` [N] marks those
        whose episode has ended."""
        try:
            self._check(self.obs)
            if self.action_mask is not None or ACTION_MASK in info:
                self.action_mask = self._masks.read_rows(info, self.action_mask, changed, done)
        except (BadAnswer, FloatingPointError) as error:
            raise failure(error, step) from None

    def step(self, action: ArrayLike) -> Step:
        """Steps all environments whose episode has not ended.

        Raises:
            TrainingError: the environment failed, a reward is not finite, or an observation
                is outside its space.
        """
        obs, valid, mask = self.obs, self.valid, self.action_mask
        self.obs, reward, terminated, truncated, info = guarded_step(
            self.env, action, self.steps + 1
        )
        waiting = valid is not self._all
        self.steps += int(np.count_nonzero(valid)) if waiting else len(valid)
        paid = info.get(UNCLIPPED, reward)
        check_rewards(paid, self.steps)
        self._check_observations(self.steps, info, valid, terminated | truncated)
        if waiting:
            reward, paid, terminated, truncated = (
                np.where(valid, reward, 0.0),
                np.where(valid, paid, 0.0),
                terminated & valid,
                truncated & valid,
            )
        self.returns += paid
        self.lengths += valid
        if self._longest < ENDLESS:
            truncated = truncated | (valid & (self.lengths >= self._longest))
        self._over = terminated | truncated
        named = named_numbers(info) if info else None
        scored_before = self.cut_short(whole_rounds=False)
        self._unscored += [(self.steps, row) for row in np.flatnonzero(self._over).tolist()]
        final_reward = None
        playing = valid & ~self._over
        if self._scores and self._is_last(playing):
            scores, numbers = self._score()
            if playing.any() or scored_before:
                numbers = {}  # see `cut_short`
            # numbers of the step itself count for the rows that were stepped
            own = {name: np.where(valid, values, np.nan) for name, values in (named or {}).items()}
            named = {**own, **numbers} or None
            final_reward = np.where(playing, np.nan, scores).astype(np.float32)
            reward = np.where(valid, scores, reward)
        if LIFE_LOST in info:
            terminated = terminated | (info[LIFE_LOST] & valid)
        return Step(
            obs,
            action,
            reward.astype(np.float32),
            self.obs,
            terminated,
            truncated > terminated,
            valid,
            named,
            mask,
            self.action_mask,
            final_reward,
        )

    def _is_last(self, playing: NDArray[np.bool_]) -> bool:
        """Whether this step is the last one of the round, or of training; `playing` [N] marks the
        episodes that go on."""
        if not playing.any():
            return True
        if self.budget is None or not self._unscored:
            return False
        episodes = self.episodes + int(np.count_nonzero(self._over))
        return self.budget.progress(self.steps, episodes) >= 1.0

    def _score(self) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """The rewards [N] of the episodes of this round that have ended, and the numbers to log of
        those that had not been scored; their returns are complete now."""
        assert self._scorer is not None
        reward, named = guarded_score(self._scorer, self.steps)
        check_rewards(reward, self.steps)
        rows = [row for _, row in self._unscored]
        self.returns[rows] += reward[rows]
        self._scored += self._unscored
        self._unscored = []
        new = np.isin(np.arange(len(reward)), rows)
        return reward, {name: np.where(new, values, np.nan) for name, values in named.items()}

    def cut_short(self, *, whole_rounds: bool) -> int:
        """How many episodes of a round have ended and have their rewards because training ended
        before the round did. They are its shortest ones, so the means in the log leave them out,
        and its longest ones, too, where training goes on (`rest_of_round`).

        Args:
            whole_rounds: whether the log waits for the end of a round also where rewards come with
                each step.
        """
        if not (self._scores or (whole_rounds and self.rollout == "episodes")):
            return 0
        return int(np.count_nonzero(~self.valid)) - len(self._unscored)

    def rest_of_round(self, *, whole_rounds: bool) -> int:
        """How many episodes go on of a round that training has cut short; 0 if it has cut none."""
        cut = self.cut_short(whole_rounds=whole_rounds)
        return int(np.count_nonzero(self.valid)) if cut and not self.finished else 0

    def score_ended(self) -> None:
        """Scores the episodes that have ended, if the rest of the round is not needed."""
        if self._scores and self._unscored:
            self._score()

    def reset_finished(self) -> bool:
        """Resets environments whose episode has ended, or leaves them until all have ended. Returns
        whether all environments were reset."""
        over = self._over
        if not self._scores:
            self._scored, self._unscored = self._unscored, []
        for steps, row in self._scored:
            self.finished.append((steps, float(self.returns[row]), int(self.lengths[row])))
        self._scored = []
        if not over.any():
            return False
        self.episodes += int(np.count_nonzero(over))
        self._over = ~self._all
        if self.rollout == "episodes":
            return self._wait(over)
        self.returns[over], self.lengths[over] = 0.0, 0
        self._reset(over)
        return False

    def _wait(self, done: np.ndarray) -> bool:
        self.valid = self.valid & ~done
        if self.valid.any():
            return False
        if self._seeds is not None:
            self.obs = self.action_mask = None
            return False
        self.start()
        return True

    def state_dict(self) -> State:
        assert self.rng is not None
        return {
            "env": None if self.obs is None else outermost_snapshot_env(self.env).snapshot(),
            "obs": self.obs,
            "valid": self.valid,
            "return": self.returns,
            "length": self.lengths,
            "steps": self.steps,
            "episodes": self.episodes,
            "finished": episode_table(self.finished),
            "rng": rng_state(self.rng),
            **({} if self.action_mask is None else {ACTION_MASK: self.action_mask}),
            **({UNSCORED: np.array(self._unscored)} if self._unscored else {}),
        }

    def load_state_dict(self, state: State) -> None:
        """The inverse of `state_dict`. Raises ValueError if the state does not fit this
        environment."""
        assert self.rng is not None
        shape = (self.env.num_envs,)
        valid = saved_array("valid", state["valid"], np.bool_, shape)
        if state["obs"] is not None and not (
            valid.any() if self.rollout == "episodes" else valid.all()
        ):
            raise ValueError("the saved valid must be true for every episode that has not ended")
        returns = saved_array("return", state["return"], np.float64, shape)
        lengths = saved_array("length", state["length"], np.int64, shape, low=0)
        self.steps, self.episodes = (
            saved_count("steps", state["steps"]),
            saved_count("episodes", state["episodes"]),
        )
        if state["obs"] is not None:
            observation_check(self.env.single_observation_space, batched=True)(state["obs"])
        if state["env"] is not None:
            keeper = outermost_snapshot_env(self.env)
            check_process_count(keeper, state["env"])
            keeper.restore(state["env"])
        if ACTION_MASK in state:
            self.action_mask = saved_array(
                ACTION_MASK, state[ACTION_MASK], np.bool_, (*shape, self._masks.num_actions)
            )
        self._unscored = _saved_rows(state[UNSCORED], valid) if UNSCORED in state else []
        self.obs, self.valid = state["obs"], self._all if valid.all() else valid
        self.returns, self.lengths, self.finished = returns, lengths, episodes_of(state["finished"])
        set_rng_state(self.rng, state["rng"])


def _find_scorer(env: VectorEnv, rollout: str, scoring: str) -> RoundScorer | None:
    """The scorer of a round, told whether to defer rewards; None if rewards come with each step."""
    scorer = round_scorer(env)
    waits = rollout == "episodes" and scoring != "step"
    return scorer if scorer is not None and scorer.defer_rewards(waits) and waits else None


def _saved_rows(unscored: np.ndarray, valid: np.ndarray) -> list[tuple[int, int]]:
    """The episodes without a reward in a saved state: (step, row) each. Raises ValueError if one of
    them has not ended."""
    found = saved_array("unscored", unscored, np.int64, np.shape(unscored), low=0)
    rows = found[:, 1] if found.ndim == 2 and found.shape[1] == 2 else None
    if rows is None or (rows >= len(valid)).any() or valid[rows].any():
        raise ValueError(
            "the saved unscored entries must be the steps and rows of finished episodes"
        )
    return [(int(step), int(row)) for step, row in found]


def _check_resets(env: VectorEnv, rollout: str) -> None:
    if env.metadata.get("autoreset_mode") is not AutoresetMode.DISABLED:
        raise ValueError(
            "the training loop resets the environments: make it with "
            "autoreset_mode=AutoresetMode.DISABLED"
        )
    if rollout == "episodes" and isinstance(env.unwrapped, (SyncVectorEnv, AsyncVectorEnv)):
        name, ours = (
            type(env.unwrapped).__name__,
            "rlbook.interaction.vector_envs.sync_vector.SyncVector",
        )
        raise ValueError(
            f"{name} cannot let a finished environment wait for the others; use {ours}"
        )
