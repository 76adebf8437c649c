"""What all agents with a table Q(s, a) share: acting ε-greedily, schedules, saving. How the table is learnt is each algorithm's own."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlbook.agent import Agent, State
from rlbook.seeding import rng_state, set_rng_state, stream


class TabularAgent(Agent):
    """An agent with one number for each of S states and A actions. Its config has `alpha` and `epsilon`, both schedules."""

    observations = "index"
    actions = "discrete"

    def __init__(self, env: Any, config: Any, seed: int = 0) -> None:
        super().__init__(env, config, seed)
        self.q = np.zeros((int(env.observation_space.n), int(env.action_space.n)))
        """Q(s, a): [S, A], in reward units. 0 to begin with."""
        self.rng = stream(seed, "exploration")

    @property
    def alpha(self) -> float:
        """The step size now, in (0, 1]."""
        return self.config.alpha(self.progress)

    @property
    def epsilon(self) -> float:
        """The probability of a random action now, in [0, 1]."""
        return self.config.epsilon(self.progress)

    def act(self, observation: int, *, explore: bool = True) -> int:
        """ε-greedy: a random action with probability ε, otherwise one of the best, all equally likely.

        Without exploration: the best, and among several the one that the state's number points at (`greedy_policy`).
        """
        if not explore:
            return _pointed_at(self._best(observation), observation)
        if self.rng.random() < self.epsilon:
            return int(self.rng.integers(self.q.shape[1]))
        best = self._best(observation)
        return best[0] if len(best) == 1 else best[self.rng.integers(len(best))]

    def _best(self, state: int) -> list[int]:
        """The actions with the highest value. Lists are faster than arrays at this length."""
        values = self.q[state].tolist()
        highest = max(values)
        return [action for action, value in enumerate(values) if value == highest]

    def values(self) -> np.ndarray:
        """max_a Q(s, a): [S], in reward units."""
        return self.q.max(axis=1)

    def action_values(self) -> np.ndarray:
        """Q(s, a): [S, A], in reward units."""
        return self.q.copy()

    def greedy_policy(self) -> np.ndarray:
        """[S] int: the action taken without exploration.

        Ties are broken by a fixed rule, the state's number modulo the number of best actions, so that acting is repeatable and yet
        states that were never visited do not all point the same way.
        """
        return np.array([_pointed_at(self._best(state), state) for state in range(len(self.q))])

    def state_dict(self) -> State:
        return {"q": self.q.copy(), "rng": rng_state(self.rng)}

    def load_state_dict(self, state: State) -> None:
        self.q = np.array(state["q"], dtype=np.float64)
        set_rng_state(self.rng, state["rng"])


def _pointed_at(actions: list[int], state: int) -> int:
    return actions[int(state) % len(actions)]
