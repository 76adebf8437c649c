"""REINFORCE with a baseline: make the actions of episodes that went better than usual more likely.

    π(a|s) = exp θ(s, a) / Σ_b exp θ(s, b)
    after an episode, for each of its steps:   δ = G_t - v(s),   v(s) ← v(s) + α δ,   θ(s, ·) ← θ(s, ·) + α δ ∇ log π(a|s)

Source: Williams 1992; Sutton & Barto 2018, section 13.4, the box on page 330. Deliberate
difference: no factor γ^t, as everywhere in practice.
"""

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from rlbook import Agent
from rlbook.checks import positive, unit_interval
from rlbook.hyperparameters import Hyperparameters
from rlbook.seeding import rng_for, rng_state, set_rng_state


@dataclass(frozen=True)
class ReinforceConfig(Hyperparameters):
    alpha: Annotated[float, positive] = 0.1  # α, step size of the policy and of the baseline
    gamma: Annotated[float, unit_interval] = 0.9  # γ, discount for each step


class Reinforce(Agent):
    Config = ReinforceConfig
    METRICS = {"delta": "mean |δ| over the steps of the last episode, in reward units"}
    budget = {"steps": 50_000}
    observations, actions = "index", "discrete"

    def __init__(self, env, config, seed=0):
        super().__init__(env, config, seed)
        self.theta = np.zeros((env.observation_space.n, env.action_space.n))
        self.v = np.zeros(env.observation_space.n)
        self.rng, self.episode = rng_for(seed, "exploration"), []

    def policy(self, state):
        odds = np.exp(self.theta[state] - self.theta[state].max())
        return odds / odds.sum()

    def act(self, observation, *, explore=True):
        p = self.policy(observation)
        return int(self.rng.choice(len(p), p=p) if explore else p.argmax())

    def learn(self, step):
        self.episode.append([int(step.obs), int(step.action), float(step.reward)])
        if not (step.terminated or step.truncated):
            return {}
        g, errors = 0.0, []
        for state, action, reward in reversed(self.episode):
            g = reward + self.config.gamma * g
            delta = g - self.v[state]
            gradient = np.eye(self.theta.shape[1])[action] - self.policy(state)
            self.v[state] += self.config.alpha * delta
            self.theta[state] += self.config.alpha * delta * gradient
            errors.append(abs(delta))
        self.episode = []
        return {"delta": float(np.mean(errors))}

    def state_dict(self):
        return {
            "theta": self.theta,
            "v": self.v,
            "rng": rng_state(self.rng),
            "episode": self.episode,
        }

    def load_state_dict(self, state):
        self.theta, self.v, self.episode = state["theta"], state["v"], list(state["episode"])
        set_rng_state(self.rng, state["rng"])
