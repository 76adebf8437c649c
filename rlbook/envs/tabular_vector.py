"""A table for thousands of agents at once, in numpy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from rlbook.envs.outcomes import normal
from rlbook.envs.tabular_env import MODES, TabularEnv
from rlbook.envs.uniforms import Uniforms


class TabularVectorEnv(VectorEnv):
    """N streams of a `TabularEnv` side by side; a subclass names another one in `single`.

    The loop owns the resets (autoreset is disabled): a stream that has ended ignores its action, repeats its observation, is paid 0 and
    keeps its flags until `reset(options={"reset_mask": ...})` names it. Ending with the last step that the time limit allows is a
    termination, not a truncation. Each stream sees what the single form would show it under the same seed.

    Args:
        num_envs: N, the number of streams, at least 1.
        max_episode_steps: time limit in environment steps, at least 1; None means none.
        options: as for the single form, `model` and the rest.
    """

    single: ClassVar[type[TabularEnv]] = TabularEnv
    metadata: ClassVar[dict[str, Any]] = {
        "render_modes": list(MODES), "render_fps": 8, "autoreset_mode": AutoresetMode.DISABLED,
    }  # fmt: skip

    def __init__(self, num_envs: int = 1, max_episode_steps: int | None = None, **options: Any) -> None:
        check_count("num_envs", num_envs)
        if max_episode_steps is not None:
            check_count("max_episode_steps", max_episode_steps)
        self.env = self.single(**options)
        self.num_envs, self.max_episode_steps, self.render_mode = int(num_envs), max_episode_steps, self.env.render_mode
        self.single_observation_space, self.single_action_space = self.env.observation_space, self.env.action_space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._outcomes = self.env._model.outcomes
        self._noisy = bool(self._outcomes.reward_std.any())
        self._uniforms = Uniforms(num_envs)
        self._state = np.full(num_envs, self._outcomes.start_state[0])
        self._steps = np.zeros(num_envs, dtype=np.int64)
        self._terminated, self._truncated = np.zeros(num_envs, dtype=bool), np.zeros(num_envs, dtype=bool)

    def model(self) -> Any:
        """The `TabularMDP` that all streams draw from."""
        return self.env.model()

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Begins an episode in the streams named by `options["reset_mask"]` [N] bool (all if left out); returns all observations.

        `seed`: an integer s seeds stream i with s + i; a list gives each stream its own. Streams not reset are not seeded.
        """
        streams = np.flatnonzero(reset_mask(options, self.num_envs))
        if seed is not None:
            seeds = stream_seeds(seed, self.num_envs)
            for stream in streams.tolist():
                if (own := seeds[stream]) is not None:
                    self._uniforms.seed(stream, int(own))
        self._state[streams] = self._outcomes.pick_starts(self._uniforms.draw(streams))
        self._steps[streams] = 0
        self._terminated[streams] = self._truncated[streams] = False
        return self._shown(), {}

    def step(self, actions: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """One step of every stream: observations [N], rewards [N] float64, terminated [N], truncated [N], and {}."""
        actions = self._checked(np.asarray(actions))
        alive = np.flatnonzero(~(self._terminated | self._truncated))
        rows = self._state[alive] * self._outcomes.num_actions + actions[alive]
        chosen = self._outcomes.pick(rows, self._uniforms.draw(alive))
        rewards = np.zeros(self.num_envs)
        rewards[alive] = self._outcomes.reward[chosen]
        if self._noisy:
            self._add_noise(rewards, alive, self._outcomes.reward_std[chosen])
        self._state[alive] = self._outcomes.successor[chosen]
        self._terminated[alive] = self._outcomes.ends[chosen]
        self._steps[alive] += 1
        if self.max_episode_steps is not None:
            self._truncated[alive] = (self._steps[alive] >= self.max_episode_steps) & ~self._terminated[alive]
        return self._shown(), rewards, self._terminated.copy(), self._truncated.copy(), {}

    def _add_noise(self, rewards: np.ndarray, alive: np.ndarray, std: np.ndarray) -> None:
        """Two more uniforms for each stream whose outcome is noisy; `rlbook.envs.outcomes.normal` for all of them."""
        noisy, std = alive[std > 0], std[std > 0]
        u1, u2 = self._uniforms.draw(noisy), self._uniforms.draw(noisy)
        rewards[noisy] += [scale * normal(*pair) for scale, *pair in zip(std.tolist(), u1.tolist(), u2.tolist(), strict=True)]

    def _checked(self, actions: np.ndarray) -> np.ndarray:
        if actions.shape != (self.num_envs,) or actions.dtype.kind not in "iu":
            raise ValueError(f"actions must be {self.num_envs} integers, got an array of shape {actions.shape} and type {actions.dtype}.")
        if actions.min() < 0 or actions.max() >= self._outcomes.num_actions:
            top = self._outcomes.num_actions - 1
            raise ValueError(f"actions must be integers from 0 to {top}, got values from {actions.min()} to {actions.max()}.")
        return actions.astype(np.int64, copy=False)

    def snapshot(self) -> dict[str, Any]:
        """Everything that continuing needs: states, steps since the reset, flags and generators."""
        return {
            "state": self._state.copy(), "steps": self._steps.copy(), "terminated": self._terminated.copy(),
            "truncated": self._truncated.copy(), "uniforms": self._uniforms.snapshot(),
        }  # fmt: skip

    def restore(self, snapshot: dict[str, Any]) -> None:
        """The inverse of `snapshot`."""
        self._state, self._steps = snapshot["state"].copy(), snapshot["steps"].copy()
        self._terminated, self._truncated = snapshot["terminated"].copy(), snapshot["truncated"].copy()
        self._uniforms.restore(snapshot["uniforms"])

    def render(self) -> tuple[Any, ...] | None:
        """One frame a stream, as the single form draws it; None (after printing) for "human"."""
        if self.render_mode == "rgb_array":
            return tuple(self.env.draw_pixels(state) for state in self._state.tolist())
        frames = tuple(self.env.draw_text(state) for state in self._state.tolist())
        if self.render_mode == "human":
            print("\n\n".join(frames), end="\n\n")
        return frames if self.render_mode == "ansi" else None

    def _shown(self) -> np.ndarray:
        if self.render_mode == "human":
            self.render()
        return self._state.copy() if self.env.views is None else self.env.views[self._state]


def reset_mask(options: dict[str, Any] | None, num_envs: int) -> np.ndarray:
    """`options["reset_mask"]` [N] bool, or all where it is left out. Raises ValueError where it is anything else."""
    if options is None or "reset_mask" not in options:
        return np.ones(num_envs, dtype=bool)
    mask = np.asarray(options["reset_mask"])
    if mask.shape != (num_envs,) or mask.dtype != bool:
        raise ValueError(f"reset_mask must be {num_envs} booleans, got an array of shape {mask.shape} and type {mask.dtype}.")
    return mask


def stream_seeds(seed: int | Sequence[int | None], num_envs: int) -> Sequence[int | None]:
    """One seed for each stream: an integer counts up. Raises ValueError for a list of another length."""
    if isinstance(seed, int | np.integer):
        return [int(seed) + stream for stream in range(num_envs)]
    if len(seed) != num_envs:
        raise ValueError(f"seed must be an integer or a list of {num_envs}, one for each stream, got {len(seed)}.")
    return seed


def check_count(name: str, value: Any) -> None:
    """Raises ValueError unless the value is an integer of at least 1."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise ValueError(f"{name} must be an integer of at least 1, got {value!r}.")
