"""Tabular environments by the thousand, in NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import ArrayLike

from rlbook.envs.option_checks import MODES, check_integer
from rlbook.envs.tabular.mdp import TabularMDP
from rlbook.envs.tabular.outcomes import standard_normal
from rlbook.envs.tabular.snapshots import check_array, check_states
from rlbook.envs.tabular.tabular_env import TabularEnv, check_feasible
from rlbook.envs.tabular.uniforms import Uniforms
from rlbook.envs.tabular.vector_resets import reset_mask, seed_list


class TabularVectorEnv(VectorEnv):
    """N environments of a `TabularEnv` in parallel; a subclass sets the environment class in
    `single`.

    The loop owns the resets (autoreset is disabled): an environment whose episode has ended ignores
    its action, repeats its observation, is paid 0 and keeps its flags until
    `reset(options={"reset_mask": ...})` names it. Ending with the last step that the time limit
    allows is a termination, not a truncation. Each environment shows what the single form would
    show under the same seed.

    Args:
        num_envs: N, the number of environments, at least 1.
        max_episode_steps: time limit in environment steps, at least 1; None means none.
        options: as for the single form, `model` and the rest.
    """

    single: ClassVar[type[TabularEnv]] = TabularEnv
    metadata: ClassVar[dict[str, Any]] = {
        "render_modes": list(MODES),
        "render_fps": 8,
        "autoreset_mode": AutoresetMode.DISABLED,
    }

    def __init__(
        self, num_envs: int = 1, max_episode_steps: int | None = None, **options: Any
    ) -> None:
        check_integer("num_envs", num_envs)
        if max_episode_steps is not None:
            check_integer("max_episode_steps", max_episode_steps)
        self.env = self.single(**options)
        self.num_envs, self.max_episode_steps, self.render_mode = (
            int(num_envs),
            max_episode_steps,
            self.env.render_mode,
        )
        self.single_observation_space, self.single_action_space = (
            self.env.observation_space,
            self.env.action_space,
        )
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._outcomes = self.env._model.outcomes
        self._noisy = bool(self._outcomes.reward_std.any())
        self._uniforms = Uniforms(num_envs)
        self._state = np.full(num_envs, self._outcomes.start_state[0])
        self._steps = np.zeros(num_envs, dtype=np.int64)
        self._terminated, self._truncated = (
            np.zeros(num_envs, dtype=bool),
            np.zeros(num_envs, dtype=bool),
        )

    def model(self) -> TabularMDP:
        """The `TabularMDP` that all environments sample from."""
        return self.env.model()

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Resets the environments of `options["reset_mask"]` [N] bool (default: all); returns all
        observations.

        `seed`: an integer s seeds environment i with s + i; a list gives each environment its own.
        Environments not reset are not seeded.
        """
        indices = np.flatnonzero(reset_mask(options, self.num_envs))
        if seed is not None:
            seeds = seed_list(seed, self.num_envs)
            for index in indices.tolist():
                if (own := seeds[index]) is not None:
                    self._uniforms.seed(index, int(own))
        self._state[indices] = self._outcomes.pick_starts(self._uniforms.draw(indices))
        self._steps[indices] = 0
        self._terminated[indices] = self._truncated[indices] = False
        return self._observe(), self._info()

    def _info(self) -> dict[str, Any]:
        """The info with action masks [N, A], if some actions are unavailable."""
        feasible = self.env._model.feasible
        return {} if feasible is None else {"action_mask": feasible[self._state]}

    def step(
        self, actions: ArrayLike
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Steps every environment: observations [N], rewards [N] float64, terminated [N], truncated
        [N], and {}."""
        actions = self._check_actions(np.asarray(actions))
        alive = np.flatnonzero(~(self._terminated | self._truncated))
        if self.env._model.feasible is not None:
            check_feasible(self.env._model.feasible, self._state[alive], actions[alive])
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
            self._truncated[alive] = (
                self._steps[alive] >= self.max_episode_steps
            ) & ~self._terminated[alive]
        return (
            self._observe(),
            rewards,
            self._terminated.copy(),
            self._truncated.copy(),
            self._info(),
        )

    def _add_noise(self, rewards: np.ndarray, alive: np.ndarray, std: np.ndarray) -> None:
        """Adds reward noise: two more uniform numbers for each environment with a noisy outcome,
        then `rlbook.envs.tabular.outcomes.normal` for all of them."""
        noisy, std = alive[std > 0], std[std > 0]
        u1, u2 = self._uniforms.draw(noisy), self._uniforms.draw(noisy)
        rewards[noisy] += [
            scale * standard_normal(*pair)
            for scale, *pair in zip(std.tolist(), u1.tolist(), u2.tolist(), strict=True)
        ]

    def _check_actions(self, actions: np.ndarray) -> np.ndarray:
        if actions.shape != (self.num_envs,) or actions.dtype.kind not in "iu":
            raise ValueError(
                f"actions must be {self.num_envs} integers, got an array of shape {actions.shape}"
                f" and type {actions.dtype}."
            )
        if actions.min() < 0 or actions.max() >= self._outcomes.num_actions:
            top = self._outcomes.num_actions - 1
            raise ValueError(
                f"actions must be integers from 0 to {top}, got values from {actions.min()} to"
                f" {actions.max()}."
            )
        return actions.astype(np.int64, copy=False)

    def snapshot(self) -> dict[str, Any]:
        """All state needed to continue: states, steps since the reset, flags and generators."""
        return {
            "state": self._state.copy(),
            "steps": self._steps.copy(),
            "terminated": self._terminated.copy(),
            "truncated": self._truncated.copy(),
            "uniforms": self._uniforms.snapshot(),
        }

    def restore(self, snapshot: dict[str, Any]) -> None:
        """The inverse of `snapshot`."""
        self._state = check_states(snapshot["state"], self._state, self.env._model.num_states)
        self._steps = check_array("steps", snapshot["steps"], self._steps, low=0)
        self._terminated = check_array("terminated", snapshot["terminated"], self._terminated)
        self._truncated = check_array("truncated", snapshot["truncated"], self._truncated)
        self._uniforms.restore(snapshot["uniforms"])

    def render(self) -> tuple[Any, ...] | None:
        """One frame per environment, rendered as by the single form; None (after printing) for
        "human"."""
        if self.render_mode == "rgb_array":
            return tuple(self.env.draw_pixels(state) for state in self._state.tolist())
        frames = tuple(self.env.draw_text(state) for state in self._state.tolist())
        if self.render_mode == "human":
            print("\n\n".join(frames), end="\n\n")
        return frames if self.render_mode == "ansi" else None

    def _observe(self) -> np.ndarray:
        if self.render_mode == "human":
            self.render()
        return self._state.copy() if self.env.views is None else self.env.views[self._state]
