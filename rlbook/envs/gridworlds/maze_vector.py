"""The maze for thousands of environments in NumPy: each step is one table look-up for all of
them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import ArrayLike

from rlbook.envs.gridworlds.maze_tables import NUM_ACTIONS, MazeTables, apply_slip, maze_tables
from rlbook.envs.option_checks import MODES, check_integer, check_render_mode
from rlbook.envs.rendering import draw_pixels, draw_text
from rlbook.envs.tabular.snapshots import check_array, check_states
from rlbook.envs.tabular.uniforms import EnvGenerators
from rlbook.envs.tabular.vector_resets import reset_mask, seed_list

NEVER = np.iinfo(np.int64).max


class MazeVector(VectorEnv):
    """N mazes in parallel; see `Maze` for the task and the options.

    The loop owns the resets (autoreset is disabled): an environment that has ended ignores its
    action, repeats its observation, is paid 0 and keeps its flags until
    `reset(options={"reset_mask": ...})` names it. Reaching the goal with the last step that the
    time limit allows is a termination, not a truncation.

    How it is fast: an environment's place is one number that also says whether it has ended,
    `state`, `S + state` (truncated) or `2S + state` (terminated), times the number of actions. Then
    place plus action is the row of every table, the ended places lead to themselves for nothing,
    and a step has no branches. Time limits are kept as deadlines on a common clock, so that a step
    in which no environment is due costs one comparison of two integers.

    Args:
        num_envs: N, the number of environments, at least 1.
        max_episode_steps: time limit in environment steps, at least 1; None means none.
            `gymnasium.make_vec` passes 100.
        options: as for `Maze`.
    """

    metadata: ClassVar[dict[str, Any]] = {
        "render_modes": list(MODES),
        "render_fps": 8,
        "autoreset_mode": AutoresetMode.DISABLED,
    }

    def __init__(
        self,
        num_envs: int = 1,
        max_episode_steps: int | None = None,
        layout: str | None = None,
        size: int | None = None,
        seed: int | None = None,
        rewards: str = "standard",
        slip: float = 0.0,
        observation: str = "index",
        render_mode: str | None = None,
    ) -> None:
        check_integer("num_envs", num_envs)
        if max_episode_steps is not None:
            check_integer("max_episode_steps", max_episode_steps)
        check_render_mode(render_mode)
        self.num_envs = num_envs
        self.render_mode = render_mode
        self.max_episode_steps = max_episode_steps
        self.tables = maze_tables(layout, size, seed, rewards, slip, observation)
        self.single_observation_space = self.tables.observation_space
        self.single_action_space = spaces.Discrete(NUM_ACTIONS)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._build_look_ups(self.tables)
        self._place = np.full(num_envs, self.tables.layout.start * NUM_ACTIONS)
        self._rngs = EnvGenerators(num_envs)
        self._clock = 0
        self._deadline = np.full(
            num_envs, NEVER if max_episode_steps is None else max_episode_steps
        )
        self._next_deadline = int(self._deadline[0])

    def _build_look_ups(self, tables: MazeTables) -> None:
        """Look-up tables over 3S places × A actions (`_place_after`, `_reward`) and over places
        (`_state`)."""
        num_states = tables.layout.num_states
        ended = 2 * num_states * tables.terminal[tables.next_state]
        stay = np.arange(num_states, 3 * num_states)[:, None].repeat(NUM_ACTIONS, axis=1)
        self._place_after = np.concatenate([tables.next_state + ended, stay]).ravel() * NUM_ACTIONS
        self._reward = np.concatenate([tables.reward, np.zeros(stay.shape)]).ravel()
        self._state = np.tile(np.arange(num_states), 3).repeat(NUM_ACTIONS)
        self._first_truncated = num_states * NUM_ACTIONS
        self._first_terminated = 2 * num_states * NUM_ACTIONS

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Resets the environments of `options["reset_mask"]` [N] bool (default: all) to the start;
        returns all observations.

        `seed`: an integer s seeds environment i with s + i; a list gives each environment its own.
        Environments not reset are not seeded.
        """
        mask = reset_mask(options, self.num_envs)
        if seed is not None:
            self._seed(seed_list(seed, self.num_envs), mask)
        self._place[mask] = self.tables.layout.start * NUM_ACTIONS
        if self.max_episode_steps is not None:
            self._deadline[mask] = self._clock + self.max_episode_steps
            self._next_deadline = self._earliest_deadline()
        self._show()
        return self._observe(), {}

    def step(
        self, actions: ArrayLike
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Steps every environment: observations [N, ...], rewards [N] float64, terminated [N],
        truncated [N], and {}."""
        actions = self._check_actions(np.asarray(actions))
        if self.tables.slip:
            actions = self._slip(actions)
        row = self._place + actions
        reward = self._reward.take(row)
        self._place_after.take(row, out=self._place, mode="clip")
        self._clock += 1
        if self._clock >= self._next_deadline:
            self._truncate()
        terminated = self._place >= self._first_terminated
        truncated = (self._place >= self._first_truncated) ^ terminated
        self._show()
        return self._observe(), reward, terminated, truncated, {}

    def _observe(self) -> np.ndarray:
        states = self._state.take(self._place)
        return states if self._observes_index else self.tables.observe(states)

    @property
    def _observes_index(self) -> bool:
        return isinstance(self.single_observation_space, spaces.Discrete)

    def _check_actions(self, actions: np.ndarray) -> np.ndarray:
        if actions.shape != (self.num_envs,) or actions.dtype.kind not in "iu":
            raise ValueError(
                f"actions must be {self.num_envs} integers, got an array of shape {actions.shape}"
                f" and type {actions.dtype}."
            )
        # one pass instead of a minimum and a maximum
        if np.bitwise_or.reduce(actions) & ~(NUM_ACTIONS - 1):
            raise ValueError(
                f"actions must be 0, 1, 2 or 3, got values from {actions.min()} to {actions.max()}."
            )
        return actions.astype(np.int64, copy=False)

    def _slip(self, actions: np.ndarray) -> np.ndarray:
        """The directions actually taken. Only active environments draw, each from its own
        generator."""
        alive = np.flatnonzero(self._place < self._first_truncated)
        uniform = np.array([self._rngs[index].random() for index in alive.tolist()])
        taken = actions.copy()
        taken[alive] = apply_slip(actions[alive], uniform, self.tables.slip)
        return taken

    def _truncate(self) -> None:
        due = (self._deadline <= self._clock) & (self._place < self._first_truncated)
        self._place[due] += self._first_truncated
        self._next_deadline = self._earliest_deadline()

    def _earliest_deadline(self) -> int:
        return int(self._deadline.min(where=self._deadline > self._clock, initial=NEVER))

    def _seed(self, seeds: Sequence[int | None], mask: np.ndarray) -> None:
        for index in np.flatnonzero(mask).tolist() if self.tables.slip else []:
            if (own := seeds[index]) is not None:
                self._rngs.seed(index, int(own))

    def snapshot(self) -> dict[str, Any]:
        """All state needed to continue: places, steps left until the time limit, and the generators
        that decide on slips."""
        return {
            "place": self._place.copy(),
            "steps_left": self._deadline - self._clock,
            "rngs": self._rngs.snapshot(),
        }

    def restore(self, snapshot: dict[str, Any]) -> None:
        """The inverse of `snapshot`."""
        self._place = check_states(snapshot["place"], self._place, len(self._state))
        self._clock = 0
        self._deadline = check_array("steps_left", snapshot["steps_left"], self._deadline)
        self._next_deadline = self._earliest_deadline()
        self._rngs.restore(snapshot["rngs"])

    def render(self) -> tuple[Any, ...] | None:
        """One frame per environment, rendered as by `Maze.render`; None (after printing) for
        "human"."""
        states = self._state[self._place].tolist()
        if self.render_mode == "rgb_array":
            return tuple(draw_pixels(self.tables.layout, state) for state in states)
        frames = tuple(draw_text(self.tables.layout, state) for state in states)
        if self.render_mode == "human":
            print("\n\n".join(frames), end="\n\n")
        return frames if self.render_mode == "ansi" else None

    def _show(self) -> None:
        if self.render_mode == "human":
            self.render()
