"""Environments defined by tables: each step is sampled from a `TabularMDP`. For many environments
in parallel see `tabular_vector`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium import spaces

from rlbook.envs.gridworlds.grids import Grid
from rlbook.envs.option_checks import MODES, check_render_mode
from rlbook.envs.rendering import FREE_COLOUR, draw_cells
from rlbook.envs.tabular.mdp import TabularMDP
from rlbook.envs.tabular.outcome_lists import OutcomeLists, OutcomeRows, drawn_from
from rlbook.envs.tabular.snapshots import check_state
from rlbook.seeding import set_rng_state


class TabularEnv(gymnasium.Env):
    """An environment whose states, actions and outcomes are given as a table.

    A step draws one uniform number from `np_random` and looks up which outcome of the state and
    action it chooses (see `Outcomes`), as gymnasium's toy text does; a reset draws one for the
    state to begin in. So stepping and planning cannot disagree. Subclasses build a model and say
    how to draw a state. Where the model has actions that cannot be taken, `info["action_mask"]` [A]
    says which can.

    Args:
        model: the table, S states and A actions. Observations are `Discrete(S)`, actions
            `Discrete(A)`.
        views: [S] int, what each state looks like to the agent; None: its number. Then the
            observation is `Discrete(max + 1)`.
        grid: the map whose cells the states are; None where they are not cells. With it the
            environment has `grid_shape`, (rows, columns), and `grid_walls`, [rows, columns] bool.
        render_mode: "ansi" (text), "rgb_array" (an image) or "human" (prints the text after each
            reset and step); None draws nothing.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": list(MODES), "render_fps": 8}

    observation_space: spaces.Discrete
    action_space: spaces.Discrete
    action_names: Sequence[str] = ()
    """The names of the actions; empty: their indices."""

    def __init__(
        self,
        model: TabularMDP,
        views: np.ndarray | None = None,
        grid: Grid | None = None,
        render_mode: str | None = None,
    ) -> None:
        if not isinstance(model, TabularMDP):
            raise ValueError(f"model must be a TabularMDP, got {type(model).__name__}.")
        check_render_mode(render_mode)
        self.render_mode = render_mode
        self.views = views
        self.grid = grid
        if grid is not None:
            self.grid_shape, self.grid_walls = grid.shape, grid.walls
        self.observation_space = spaces.Discrete(
            model.num_states if views is None else int(views.max()) + 1
        )
        self.action_space = spaces.Discrete(model.num_actions)
        self._model = model
        if model.feasible is not None and views is None:
            self.action_mask = self._mask_of  # as gymnasium's Taxi has it
        self._state = int(np.argmax(model.initial > 0))

    @cached_property
    def _outcomes(self) -> OutcomeLists | OutcomeRows:
        """The outcomes, built at the first reset or step, because planning does not need them."""
        return drawn_from(self._model)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._state = self._outcomes.start(self.np_random)
        return self._observe(), self._info()

    def _info(self) -> dict[str, Any]:
        """The info with an action mask, if some actions are unavailable."""
        return {} if self._model.feasible is None else {"action_mask": self._mask_of(self._state)}

    def _mask_of(self, state: int) -> np.ndarray:
        """The actions available in a state, [A] bool; a copy, which may be written to."""
        assert self._model.feasible is not None
        return self._model.feasible[state].copy()

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if not 0 <= action < self._model.num_actions:
            raise ValueError(
                f"action must be an integer from 0 to {self._model.num_actions - 1}, got"
                f" {action!r}."
            )
        if self._model.feasible is not None:
            check_feasible(self._model.feasible, self._state, int(action))
        self._state, reward, ended = self._outcomes.step(self.np_random, self._state, int(action))
        return self._observe(), reward, ended, False, self._info()

    def snapshot(self) -> dict[str, Any]:
        """All state needed to continue: the state and the generator."""
        return {"state": self._state, "rng": self.np_random.bit_generator.state}

    def restore(self, snapshot: dict[str, Any]) -> None:
        """The inverse of `snapshot`."""
        self._state = check_state(snapshot["state"], self._model.num_states)
        set_rng_state(self.np_random, snapshot["rng"])

    def model(self) -> TabularMDP:
        """The model, for planning. The same object every time."""
        return self._model

    def render(self) -> Any:
        if self.render_mode == "rgb_array":
            return self.draw_pixels(self._state)
        if self.render_mode == "ansi":
            return self.draw_text(self._state)
        if self.render_mode == "human":
            print(self.draw_text(self._state), end="\n\n")
        return None

    def draw_text(self, state: int) -> str:
        """A state as text."""
        if self.grid is not None:
            return self.grid.draw_text(state)
        return f"state {state} of {self._model.num_states}"

    def draw_pixels(self, state: int) -> np.ndarray:
        """A state as an image [H, W, 3] uint8: the map, or without one a cell per state, at most 40
        per row."""
        if self.grid is not None:
            return self.grid.draw_pixels(state)
        num_states = self._model.num_states
        columns = min(num_states, 40)
        return draw_cells(
            np.full((-(-num_states // columns), columns, 3), FREE_COLOUR, dtype=np.uint8),
            state,
            lines=True,
        )

    def _observe(self) -> Any:
        if self.render_mode == "human":
            self.render()
        return self._state if self.views is None else int(self.views[self._state])


def check_feasible(
    feasible: np.ndarray, states: int | np.ndarray, actions: int | np.ndarray
) -> None:
    """Raises ValueError for an unavailable action: `feasible` [S, A] bool, with states and actions
    two integers or two arrays [N]."""
    wrong = ~np.atleast_1d(feasible[states, actions])
    if wrong.any():
        state, action = np.atleast_1d(states)[wrong][0], np.atleast_1d(actions)[wrong][0]
        raise ValueError(
            f'action {action} cannot be taken in state {state}; info["action_mask"] says which can'
        )
