"""Streams of experience: one environment, or N side by side, stepped and reset in one way, and able to stop and go on anywhere.

The loop owns the resets, so `next_obs` is always the true successor and every action reaches an environment.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv

from rlbook.agent import State, Step
from rlbook.errors import TrainingError
from rlbook.seeding import rng_state, set_rng_state

if TYPE_CHECKING:
    from rlbook.envs.mdp import TabularMDP

Episode = tuple[int, float, int]
"""(environment step it ended at, return in reward units, length in environment steps)"""


class SingleInteraction:
    """One environment, scalars. What a tabular agent learns from.

    Args:
        env: has `snapshot` and `restore` where the run is to be resumed; see `rlbook.interaction.resumable.ResumableEnv`.
        rng: draws the seed of the first reset.
    """

    note = ""
    """How the steps are taken, where that is worth saying."""
    model: TabularMDP | None = None
    """What happens in the environment, exactly, where that is known."""

    def __init__(self, env: gymnasium.Env, rng: np.random.Generator) -> None:
        self.env, self.rng = env, rng
        self.finished: list[Episode] = []    # episodes that ended; whoever reads them clears them
        self.steps = self.episodes = 0
        self._return, self._length, self._over = 0.0, 0, False
        self.obs: Any = None                 # None before the first reset

    def start(self) -> None:
        """The first reset, the only one with a seed."""
        self._reset(draw_seed(self.rng))

    def step(self, action: Any) -> Step:
        """One step. Raises TrainingError where the reward or the observation is not finite."""
        obs = self.obs
        self.steps += 1
        try:
            self.obs, reward, terminated, truncated, _ = _step(self.env, action, self.steps)
        except FloatingPointError as error:
            raise not_finite("observation", error, self.steps) from None
        reward = float(reward)
        check_finite("reward", reward, self.steps)
        check_finite("observation", self.obs, self.steps)
        self._return += reward
        self._length += 1
        self._over = bool(terminated or truncated)
        return Step(obs, action, reward, self.obs, bool(terminated), bool(truncated and not terminated), True)

    def reset_finished(self) -> bool:
        """Resets the environment where the episode has ended. True where it did."""
        if not self._over:
            return False
        self.finished.append((self.steps, self._return, self._length))
        self.episodes += 1
        self._return, self._length, self._over = 0.0, 0, False
        self._reset(None)
        return True

    def _reset(self, seed: int | None) -> None:
        try:
            self.obs, _ = self.env.reset(seed=seed)
        except FloatingPointError as error:
            raise not_finite("observation", error, self.steps) from None
        check_finite("observation", self.obs, self.steps)

    def state_dict(self) -> State:
        return {
            "env": None if self.obs is None else self.env.get_wrapper_attr("snapshot")(), "obs": self.obs, "return": self._return,
            "length": self._length, "steps": self.steps, "episodes": self.episodes, "finished": episode_table(self.finished),
            "rng": rng_state(self.rng),
        }  # fmt: skip

    def load_state_dict(self, state: State) -> None:
        if state["env"] is not None:
            self.env.get_wrapper_attr("restore")(state["env"])
        self.obs, self._return, self._length = state["obs"], state["return"], state["length"]
        self.steps, self.episodes, self.finished = state["steps"], state["episodes"], episodes_of(state["finished"])
        set_rng_state(self.rng, state["rng"])


class VectorInteraction:
    """N environments, arrays [N, ...].

    With `rollout = "episodes"` all streams start together and a finished one waits, its rows invalid, until the last one ends;
    then neighbouring groups of `group_size` start from one seed each. Equal seeds make equal starts and equal dynamics noise:
    common random numbers, which leave a group-relative gradient unbiased and make it less noisy.

    Args:
        env: autoreset disabled; has `snapshot` and `restore` where the run is to be resumed.
        rng: draws the seeds.
        rollout: "steps" or "episodes".
        group_size: neighbouring streams that start from the same seed; divides N.

    Raises:
        ValueError: the environment resets itself, or cannot let a finished stream wait.
    """

    note, model = "", None

    def __init__(self, env: VectorEnv, rng: np.random.Generator, *, rollout: str = "steps", group_size: int = 1) -> None:
        _check_resets(env, rollout)
        self.rng, self.rollout, self.group_size = rng, rollout, group_size
        self.env: Any = env
        self.finished: list[Episode] = []    # episodes that ended; whoever reads them clears them
        self.steps = self.episodes = 0
        self._all = np.ones(env.num_envs, dtype=bool)
        self.valid = self._all
        self._return, self._length = np.zeros(env.num_envs), np.zeros(env.num_envs, dtype=np.int64)
        self._over = ~self._all
        self.obs: Any = None                 # None before the first reset

    def start(self) -> None:
        """Resets all streams with fresh seeds, one a group."""
        seeds = [draw_seed(self.rng) for _ in range(self.env.num_envs // self.group_size)]
        self.obs, _ = self.env.reset(seed=[seed for seed in seeds for _ in range(self.group_size)])
        self.valid = self._all
        check_finite("observation", self.obs, self.steps)

    def step(self, action: Any) -> Step:
        """One step of every valid stream. Raises TrainingError where a reward or an observation is not finite."""
        obs, valid = self.obs, self.valid
        self.obs, reward, terminated, truncated, _ = _step(self.env, action, self.steps + 1)
        waiting = valid is not self._all
        self.steps += int(np.count_nonzero(valid)) if waiting else len(valid)
        check_finite("reward", reward, self.steps)
        check_finite("observation", self.obs, self.steps)
        if waiting:
            reward, terminated, truncated = np.where(valid, reward, 0.0), terminated & valid, truncated & valid
        self._return += reward
        self._length += valid
        self._over = terminated | truncated
        return Step(obs, action, reward.astype(np.float32), self.obs, terminated, truncated > terminated, valid)

    def reset_finished(self) -> bool:
        """Resets what has ended, or lets it wait for the others. True where all streams start afresh."""
        over = self._over
        if not over.any():
            return False
        for i in np.flatnonzero(over):
            self.finished.append((self.steps, float(self._return[i]), int(self._length[i])))
            self.episodes += 1
        self._return[over], self._length[over] = 0.0, 0
        self._over = ~self._all
        if self.rollout == "episodes":
            self.valid = self.valid & ~over
            if self.valid.any():
                return False
            self.start()
            return True
        self.obs, _ = self.env.reset(options={"reset_mask": over})
        check_finite("observation", self.obs, self.steps)
        return False

    def state_dict(self) -> State:
        return {
            "env": None if self.obs is None else self.env.unwrapped.snapshot(), "obs": self.obs, "valid": self.valid,
            "return": self._return, "length": self._length, "steps": self.steps, "episodes": self.episodes,
            "finished": episode_table(self.finished), "rng": rng_state(self.rng),
        }  # fmt: skip

    def load_state_dict(self, state: State) -> None:
        if state["env"] is not None:
            self.env.unwrapped.restore(state["env"])
        self.obs, self.valid = state["obs"], self._all if state["valid"].all() else state["valid"]
        self._return, self._length = state["return"].copy(), state["length"].copy()
        self.steps, self.episodes, self.finished = state["steps"], state["episodes"], episodes_of(state["finished"])
        set_rng_state(self.rng, state["rng"])


def _step(env: Any, action: Any, steps: int) -> Any:
    """`env.step`; whatever the environment raises becomes one sentence, and costs no checkpoint."""
    try:
        return env.step(action)
    except (TrainingError, FloatingPointError):
        raise
    except Exception as error:
        raise env_failure(error, steps) from error


def env_failure(error: Exception, step: int) -> TrainingError:
    """What an environment raised, in one sentence."""
    return TrainingError(f"the environment failed at step {step}: {type(error).__name__}: {' '.join(str(error).split())}")


def check_finite(what: str, value: Any, step: int) -> None:
    """A NaN or an infinity stops the run before anything learns from it."""
    if isinstance(value, np.ndarray):
        if value.dtype.kind != "f" or math.isfinite(np.vdot(value, value)):    # a finite sum of squares has finite terms only
            return
        if not np.isfinite(value).all():
            raise not_finite(what, value[~np.isfinite(value)].flat[0], step)
    elif isinstance(value, (dict, tuple)):
        for item in value.values() if isinstance(value, dict) else value:
            check_finite(what, item, step)
    elif isinstance(value, (float, np.floating)) and not math.isfinite(value):
        raise not_finite(what, value, step)


def not_finite(what: str, value: Any, step: int) -> TrainingError:
    """A reward or an observation that nothing can be learned from, in one sentence."""
    return TrainingError(f"{what} at environment step {step} is not finite: {value}")


def _check_resets(env: VectorEnv, rollout: str) -> None:
    if env.metadata.get("autoreset_mode") is not AutoresetMode.DISABLED:
        raise ValueError("a vector environment must leave its resets to the loop: make it with autoreset_mode=AutoresetMode.DISABLED")
    if rollout == "episodes" and isinstance(env.unwrapped, (SyncVectorEnv, AsyncVectorEnv)):
        name = type(env.unwrapped).__name__
        raise ValueError(f"{name} cannot let a finished stream wait for the others; use rlbook.interaction.sync_vector.SyncVector")


def draw_seed(rng: np.random.Generator) -> int:
    """The seed of a first reset."""
    return int(rng.integers(2**31 - 1))


def episode_table(episodes: list[Episode]) -> np.ndarray:
    """Episodes as rows [E, 3]; float64 holds steps up to 2^53."""
    return np.array(episodes, dtype=np.float64).reshape(-1, 3)


def episodes_of(table: Any) -> list[Episode]:
    """The inverse of `episode_table`."""
    steps, returns, lengths = np.asarray(table, dtype=np.float64).reshape(-1, 3).T
    return list(zip(steps.astype(np.int64).tolist(), returns.tolist(), lengths.astype(np.int64).tolist(), strict=True))
