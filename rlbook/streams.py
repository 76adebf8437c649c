"""Streams of experience: one environment, or N side by side, stepped and reset in one way, and able to stop and go on anywhere.

The loop owns the resets, so `next_obs` is always the true successor and every action reaches an environment.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.vector.utils import concatenate, create_empty_array
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker, TimeLimit

from rlbook.agent import State, Step
from rlbook.errors import TrainingError


class Recorder(gymnasium.Wrapper):
    """Remembers how the episode in progress came about, so that it can be taken up again in another process.

    Where the environment has `snapshot` and `restore`, those are used; otherwise the generator's state at the reset and the actions since.
    """

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        self._start: State = {}
        self._actions: list[Any] = []
        self._time_limit = self._snapshot_wrappers()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self._start = {"seed": seed, "rng": None if seed is not None else self.unwrapped.np_random.bit_generator.state}
        self._actions = []
        return self.env.reset(seed=seed, options=options)

    def step(self, action: Any) -> Any:
        self._actions.append(action)
        return self.env.step(action)

    def snapshot(self) -> State:
        if self._time_limit is not None:
            return {"env": self.unwrapped.snapshot(), "elapsed": [limit._elapsed_steps for limit in self._time_limit]}  # type: ignore[attr-defined]
        return {**self._start, "actions": [np.asarray(action) for action in self._actions]}

    def restore(self, state: State) -> None:
        """Puts the environment where `snapshot` found it."""
        if self._time_limit is not None:
            self.env.reset()
            self.unwrapped.restore(state["env"])  # type: ignore[attr-defined]
            for limit, elapsed in zip(self._time_limit, state["elapsed"], strict=True):
                limit._elapsed_steps = elapsed
            return
        if state["seed"] is None:
            self.unwrapped.np_random.bit_generator.state = state["rng"]
        self.env.reset(seed=state["seed"])
        for action in state["actions"]:
            self.env.step(action if action.ndim else action.item())
        self._start = {"seed": state["seed"], "rng": state["rng"]}
        self._actions = list(state["actions"])

    def _snapshot_wrappers(self) -> list[TimeLimit] | None:
        """The time limits to save beside a snapshot; None where replaying is the way (no snapshot, or wrappers that may hold state)."""
        if not hasattr(self.unwrapped, "snapshot") or not hasattr(self.unwrapped, "restore"):
            return None
        limits, env = [], self.env
        while isinstance(env, gymnasium.Wrapper):
            if type(env) not in (TimeLimit, OrderEnforcing, PassiveEnvChecker):
                return None
            limits += [env] if isinstance(env, TimeLimit) else []
            env = env.env
        return limits


class SyncStreams(SyncVectorEnv):
    """N gymnasium environments stepped in turn. A stream that has ended waits, its action ignored, until it is reset."""

    def __init__(self, env_fns: Any) -> None:
        super().__init__(env_fns=[lambda fn=fn: Recorder(fn()) for fn in env_fns], autoreset_mode=AutoresetMode.DISABLED, copy=False)

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> Any:
        _, info = super().reset(seed=seed, options=options)
        return self._stacked(), info

    def step(self, actions: Any) -> Any:
        rewards = np.zeros(self.num_envs)
        for i, env in enumerate(self.envs):
            if not self._autoreset_envs[i]:
                self._env_obs[i], rewards[i], self._terminations[i], self._truncations[i], _ = env.step(actions[i])
        self._autoreset_envs = self._terminations | self._truncations
        return self._stacked(), rewards, self._terminations.copy(), self._truncations.copy(), {}

    def _stacked(self) -> Any:
        """The current observations of all streams, in fresh arrays."""
        return concatenate(self.single_observation_space, self._env_obs, create_empty_array(self.single_observation_space, self.num_envs))

    def snapshot(self) -> State:
        return {"envs": [env.snapshot() for env in self.envs], "terminated": self._terminations.copy(), "truncated": self._truncations.copy()}  # type: ignore[attr-defined]

    def restore(self, state: State) -> None:
        super().reset()
        for env, saved in zip(self.envs, state["envs"], strict=True):
            env.restore(saved)  # type: ignore[attr-defined]
        self._terminations, self._truncations = state["terminated"].copy(), state["truncated"].copy()
        self._autoreset_envs = self._terminations | self._truncations


class OneStream:
    """One environment, scalars. What a tabular agent learns from."""

    def __init__(self, env: gymnasium.Env, rng: np.random.Generator) -> None:
        self.env, self.rng = env, rng
        self.finished: list[tuple[int, float, int]] = []       # (environment step, return, length) of episodes that ended
        self.steps = self.episodes = 0
        self._return, self._length, self._over = 0.0, 0, False
        self.obs: Any = None

    def start(self) -> None:
        self.obs, _ = self.env.reset(seed=_seed(self.rng))
        check_finite("observation", self.obs, 0)

    def step(self, action: Any) -> Step:
        obs = self.obs
        self.obs, reward, terminated, truncated, _ = self.env.step(action)
        self.steps += 1
        check_finite("reward", reward, self.steps)
        check_finite("observation", self.obs, self.steps)
        self._return += float(reward)
        self._length += 1
        self._over = bool(terminated or truncated)
        return Step(obs, action, float(reward), self.obs, bool(terminated), bool(truncated and not terminated), True)

    def reset_finished(self) -> bool:
        """Resets what has ended. True where all streams start afresh."""
        if self._over:
            self.finished.append((self.steps, self._return, self._length))
            self.episodes += 1
            self._return, self._length, self._over = 0.0, 0, False
            self.obs, _ = self.env.reset()
            check_finite("observation", self.obs, self.steps)
            return True
        return False

    def state_dict(self) -> State:
        env = _outermost(self.env, Recorder).snapshot()
        return {"env": env, "obs": self.obs, "return": self._return, "length": self._length, "steps": self.steps, "episodes": self.episodes, "rng": self.rng.bit_generator.state}

    def load_state_dict(self, state: State) -> None:
        _outermost(self.env, Recorder).restore(state["env"])
        self.obs, self._return, self._length = state["obs"], state["return"], state["length"]
        self.steps, self.episodes = state["steps"], state["episodes"]
        self.rng.bit_generator.state = state["rng"]


class ManyStreams:
    """N environments, arrays [N, ...].

    With `rollout = "episodes"` all streams start together and a finished one waits, its rows invalid, until the last one ends;
    then neighbouring groups of `group_size` start from one seed each. Equal seeds make equal starts and equal dynamics noise:
    common random numbers, which leave a group-relative gradient unbiased and make it less noisy.
    """

    def __init__(self, env: VectorEnv, rng: np.random.Generator, *, rollout: str = "steps", group_size: int = 1) -> None:
        self.env, self.rng, self.rollout, self.group_size = env, rng, rollout, group_size
        self.finished: list[tuple[int, float, int]] = []       # (environment step, return, length) of episodes that ended
        self.steps = self.episodes = 0
        self.valid = np.ones(env.num_envs, dtype=bool)
        self._return, self._length = np.zeros(env.num_envs), np.zeros(env.num_envs, dtype=np.int64)
        self._over = np.zeros(env.num_envs, dtype=bool)
        self.obs: Any = None

    def start(self) -> None:
        seeds = [_seed(self.rng) for _ in range(self.env.num_envs // self.group_size)]
        self.obs, _ = self.env.reset(seed=[seed for seed in seeds for _ in range(self.group_size)])
        self.valid = np.ones(self.env.num_envs, dtype=bool)
        check_finite("observation", self.obs, self.steps)

    def step(self, action: Any) -> Step:
        obs, valid = self.obs, self.valid
        self.obs, reward, terminated, truncated, _ = self.env.step(action)
        self.steps += int(np.count_nonzero(valid))
        check_finite("reward", reward, self.steps)
        check_finite("observation", self.obs, self.steps)
        reward = np.where(valid, reward, 0.0)
        self._return += reward
        self._length += valid
        self._over = (terminated | truncated) & valid
        return Step(obs, action, reward.astype(np.float32), self.obs, terminated & valid, truncated & ~terminated & valid, valid)

    def reset_finished(self) -> bool:
        """Resets what has ended, or lets it wait for the others. True where all streams start afresh."""
        if not self._over.any():
            return False
        for i in np.flatnonzero(self._over):
            self.finished.append((self.steps, float(self._return[i]), int(self._length[i])))
        self.episodes += int(np.count_nonzero(self._over))
        self._return[self._over], self._length[self._over] = 0.0, 0
        if self.rollout == "episodes":
            self.valid = self.valid & ~self._over
            self._over = np.zeros_like(self._over)
            if not self.valid.any():
                self.start()
                return True
            return False
        self.obs, _ = self.env.reset(options={"reset_mask": self._over})
        self._over = np.zeros_like(self._over)
        check_finite("observation", self.obs, self.steps)
        return False

    def state_dict(self) -> State:
        return {
            "env": self.env.unwrapped.snapshot(), "obs": self.obs, "valid": self.valid, "return": self._return, "length": self._length,
            "steps": self.steps, "episodes": self.episodes, "rng": self.rng.bit_generator.state,
        }  # type: ignore[attr-defined]  # fmt: skip

    def load_state_dict(self, state: State) -> None:
        self.env.unwrapped.restore(state["env"])  # type: ignore[attr-defined]
        self.obs, self.valid, self.steps, self.episodes = state["obs"], state["valid"], state["steps"], state["episodes"]
        self._return, self._length = state["return"].copy(), state["length"].copy()
        self.rng.bit_generator.state = state["rng"]


def check_finite(what: str, value: Any, step: int) -> None:
    """A NaN or an infinity stops the run before anything learns from it."""
    if isinstance(value, (dict, tuple)):
        for item in value.values() if isinstance(value, dict) else value:
            check_finite(what, item, step)
    elif isinstance(value, np.ndarray) and value.dtype.kind == "f":
        if not np.isfinite(value).all():
            raise TrainingError(f"{what} at environment step {step} is not finite: {value[~np.isfinite(value)].flat[0]}")
    elif isinstance(value, (float, np.floating)) and not np.isfinite(value):
        raise TrainingError(f"{what} at environment step {step} is not finite: {value}")


def _seed(rng: np.random.Generator) -> int:
    return int(rng.integers(2**31 - 1))


def _outermost(env: Any, kind: type) -> Any:
    while not isinstance(env, kind):
        env = env.env
    return env
