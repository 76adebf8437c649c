"""A table of transitions that a search simulates in. The environment itself is never stepped."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, SupportsInt, cast

import numpy as np
from numpy.typing import NDArray

from rlbook.algorithms.planning.search.tree import SearchTree
from rlbook.algorithms.planning.search.tree_arrays import Floats, Ints
from rlbook.envs.tabular.mdp import TabularMDP
from rlbook.seeding import UniformSource

GOES_ON, TERMINATED, STUCK = 0, 1, 2
"""The outcome of a step. STUCK is the environment's own truncation: nothing is known about what
would follow."""


class OutcomeTable(NamedTuple):
    """`rlbook.envs.tabular.outcomes.Outcomes` in the form that a search reads: lists, or arrays for
    compiled code.

    Noise on a reward is left out: its mean is 0.
    """

    first: Ints  # [S·A + 1] int; row s * A + a owns the outcomes first[row] : first[row + 1]
    cumulative: Floats  # [K] float; their probabilities, added up
    successor: Ints  # [K] int
    reward: Floats  # [K] float, in reward units
    ends: Ints  # [K] int; 1 where the episode ends
    value: Floats  # [S] float; what a state counts where a simulation stops, in reward units
    allowed: Ints  # [S·A] int; 1 where row s * A + a is allowed; [0] where there are no masks


class TableModel:
    """A `TabularMDP` of S states, which are the observations. The environment itself is never
    stepped.

    Args:
        model: the table.
        start: the number of the first observation.
        masks: [S, A] bool, what is allowed in each state; None: everything.
    """

    saves = True  # what is met in it can be kept in a checkpoint

    def __init__(
        self, model: TabularMDP, start: int = 0, masks: NDArray[np.bool_] | None = None
    ) -> None:
        outcomes = model.outcomes
        self.num_actions, self.start = model.num_actions, start
        self.searched = 0  # simulations so far; a fast form compiles after many
        self.table = OutcomeTable(
            outcomes.first.tolist(),
            outcomes.cumulative.tolist(),
            outcomes.successor.tolist(),
            outcomes.reward.tolist(),
            outcomes.ends.astype(np.int64).tolist(),
            [0.0] * model.num_states,
            [] if masks is None else masks.astype(int).ravel().tolist(),
        )
        self.state = self.root = 0
        self._rng: UniformSource = np.random.default_rng(0)  # `begin` says which

    def __deepcopy__(self, memo: dict[int, object]) -> TableModel:
        return self

    @property
    def observations(self) -> range:
        """The observation of each of the S states."""
        return range(self.start, self.start + len(self.table.value))

    @property
    def obs(self) -> int:
        """The observation of the current state."""
        return self.state + self.start

    @property
    def allowed(self) -> Ints | None:
        """[A], 1 for each action allowed in the current state; None: all are."""
        return self._mask(self.state)

    @property
    def root_mask(self) -> Ints | None:
        """[A], 1 for each action allowed at the root; None: all are."""
        return self._mask(self.root)

    def _mask(self, state: int) -> Ints | None:
        first = state * self.num_actions
        return self.table.allowed[first : first + self.num_actions] if self.table.allowed else None

    def set_value(self, value: Callable[[int], float] | None) -> None:
        """Sets the value of each state where a simulation stops: a function of the observation,
        called once per state.
        """
        values = [
            0.0 if value is None else float(value(observation)) for observation in self.observations
        ]
        self.table = self.table._replace(value=values)

    def key(self, observation: object, mode: str, ending: int) -> int:
        """The key that distinguishes an action's outcome with this observation from its other
        outcomes; `ending` is 1 if it ends the episode.
        """
        return 0 if mode == "open-loop" else 2 * self._state_of(observation) + ending

    def prepare(self, search_tree: SearchTree, rng: np.random.Generator) -> None:
        """Does nothing: the observation is the state."""

    def has_drawn(self) -> bool:
        """Whether a deterministic search met a random outcome; never, because a table knows all
        outcomes."""
        return False

    def begin(self, observation: object, rng: UniformSource) -> None:
        """Starts a search from this observation, and draws outcomes from `rng`."""
        self.root, self._rng = self._state_of(observation), rng

    def _state_of(self, observation: object) -> int:
        return int(cast(SupportsInt, observation)) - self.start

    def to_root(self) -> None:
        """Returns to the state where the search started."""
        self.state = self.root

    def load(self, state: int) -> None:
        """Moves to a state."""
        self.state = state

    def show(self, observation: object) -> None:
        """Moves to the state with this observation."""
        self.state = self._state_of(observation)

    def save(self) -> int:
        """The current state."""
        return self.state

    def step(self, action: int) -> tuple[float, int]:
        """One step: the reward, and whether the episode goes on.

        One uniform number where there is more than one outcome.
        """
        table = self.table
        k = table.first[self.state * self.num_actions + action]
        if table.cumulative[k] < 1.0:
            uniform = self._rng.random()
            while table.cumulative[k] <= uniform:
                k += 1
        self.state = table.successor[k]
        return table.reward[k], TERMINATED if table.ends[k] else GOES_ON

    def estimate(self) -> float:
        """The value of the current state where a simulation stops, in reward units."""
        return self.table.value[self.state]
