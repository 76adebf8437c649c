"""An algorithm as a user would write it: one value an action, whatever the state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from rlbook.agent import Agent, Metrics, State, Step
from rlbook.seeding import rng_for, rng_state, set_rng_state


@dataclass(frozen=True)
class BanditConfig:
    alpha: float = 0.1  # step size, in (0, 1]


class Bandit(Agent):
    """Prefers the action that paid best on average."""

    Config = BanditConfig
    budget = {"steps": 400}
    presets = {"FrozenLake-v1": {"episodes": 7, "alpha": 0.5}}
    METRICS = {"td_error": "reward minus its estimate, in reward units"}
    observations = "index"
    actions = "discrete"

    def __init__(self, env: Any, config: BanditConfig, seed: int = 0) -> None:
        super().__init__(env, config, seed)
        self.q = np.zeros(int(env.action_space.n))
        self.rng = rng_for(seed, "exploration")

    def act(self, observation: int, *, explore: bool = True) -> int:
        if explore and self.rng.random() < 0.2:
            return int(self.rng.integers(len(self.q)))
        return int(self.q.argmax())

    def learn(self, step: Step) -> Metrics:
        error = step.reward - self.q[step.action]
        self.q[step.action] += self.config.alpha * error
        return {"td_error": float(error)}

    def state_dict(self) -> State:
        return {"q": self.q.copy(), "rng": rng_state(self.rng)}

    def load_state_dict(self, state: State) -> None:
        self.q = state["q"].copy()
        set_rng_state(self.rng, state["rng"])
