"""Bandits: learn which action has the largest mean reward, when there is only one state.

    action values                                   gradient
    a ← argmax Q(a), at random with probability ε   a ~ π = softmax(H)
        or argmax Q(a) + c √(ln t / N(a))
        or argmax of draws from what is believed of each mean
    take a, see r                                   take a, see r
    N(a) ← N(a) + 1                                 H(·) ← H(·) + α (r - r̄) (1[· = a] - π(·))
    Q(a) ← Q(a) + α [ r - Q(a) ]                    r̄ ← mean of the rewards so far

With α = 1/N(a), Q(a) is the mean of the rewards that followed a. An initial value above all rewards
is another way to explore: each action disappoints until all have been tried ("optimistic").
The agent ignores the state, and learns only from the reward of the current step.

Source: Sutton & Barto 2018, chapter 2: the box on page 32, eq. 2.10 and eq. 2.12. No deliberate
difference: r̄ is the mean of the earlier rewards, and the first reward itself at the first step.
Thompson sampling, the third line: Russo et al. 2018, arXiv:1707.02038, sections 3 and 4.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple

import gymnasium
import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from rlbook.agent import Agent, Metrics, State, Step
from rlbook.checks import finite, non_negative, positive, unit_interval
from rlbook.errors import TrainingError
from rlbook.functional.bandits import (
    beta_posterior,
    normal_posterior,
    preference_gradient,
    random_argmax,
    softmax,
    upper_confidence_bound,
)
from rlbook.functional.schedules import Constant, Schedule
from rlbook.hyperparameters import Hyperparameters
from rlbook.seeding import rng_for, rng_state, set_rng_state


def choose(
    memory: BanditMemory, config: BanditConfig, rng: Generator, epsilon: float
) -> NDArray[np.int64]:
    """The action to take while learning: [...]."""
    problems, arms = memory.q.shape[:-1], memory.q.shape[-1]
    if config.method == "gradient":
        cumulative = softmax(memory.preferences).cumsum(axis=-1)
        drawn = rng.random(problems)[..., None] if problems else rng.random()
        return (drawn * cumulative[..., -1:] >= cumulative).sum(axis=-1)
    if config.method == "thompson":
        return draw_means(memory, config, rng).argmax(axis=-1)
    if config.method == "ucb":
        bound = upper_confidence_bound(memory.q, memory.counts, config.confidence)
        return random_argmax(bound, rng)
    explores = rng.random(problems) < epsilon
    return np.where(explores, rng.integers(arms, size=problems), random_argmax(memory.q, rng))


def draw_means(memory: BanditMemory, config: BanditConfig, rng: Generator) -> NDArray[np.float64]:
    """A sample of each action's mean reward from its posterior: [..., A]."""
    if config.prior == "beta":
        return rng.beta(*beta_posterior(memory.q, memory.counts))
    prior = config.initial_value, config.prior_std, config.noise_std
    return rng.normal(*normal_posterior(memory.q, memory.counts, *prior))


def update(
    memory: BanditMemory,
    config: BanditConfig,
    action: NDArray[np.int64],
    reward: NDArray[np.float64],
    allowed: NDArray[np.bool_] | None = None,
) -> NDArray[np.float64]:
    """One step of `action` [...] and `reward` [...], chosen among the `allowed` actions [..., A].
    Returns r - Q(a), or r - r̄: [...]."""
    q, counts, preferences, mean_reward = memory
    taken = np.arange(q.shape[-1]) == action[..., None]  # [..., A]
    counts += taken
    step_size = 1.0 / np.maximum(counts, 1) if config.alpha is None else config.alpha
    error = reward[..., None] - q  # [..., A]
    q += np.where(taken, step_size * error, 0.0)
    if config.method != "gradient":
        return error[taken].reshape(reward.shape)
    pulls = counts.sum(axis=-1)
    mean_reward[...] = np.where(pulls == 1, reward, mean_reward)
    baseline = mean_reward if config.baseline else np.zeros_like(mean_reward)
    alpha = 0.1 if config.alpha is None else config.alpha
    among = preferences if allowed is None else np.where(allowed, preferences, -np.inf)
    preferences += alpha * preference_gradient(among, action, reward, baseline)
    error = reward - mean_reward
    mean_reward += error / pulls
    return error


@dataclass(frozen=True)
class BanditConfig(Hyperparameters):
    # how actions are chosen while learning
    method: Literal["epsilon-greedy", "ucb", "thompson", "gradient"] = "epsilon-greedy"
    # step size α, > 0; none means 1/N(a), and 0.1 for the gradient method
    alpha: Annotated[float, positive] | None = None
    # probability ε of a random action, in [0, 1]
    epsilon: Annotated[Schedule, unit_interval] = Constant(0.1)
    # ucb: weight c of the exploration bonus, in reward units, at least 0
    confidence: Annotated[float, non_negative] = 2.0
    # initial Q, and thompson's prior mean, in reward units; optimistic if above all rewards
    initial_value: Annotated[float, finite] = 0.0
    # thompson: prior of a mean; beta is for rewards that are 0 or 1
    prior: Literal["normal", "beta"] = "normal"
    # thompson: standard deviation of the normal prior, in reward units, > 0
    prior_std: Annotated[float, positive] = 1.0
    # thompson: standard deviation of a reward around its mean, in reward units, > 0
    noise_std: Annotated[float, positive] = 1.0
    # gradient: subtract the mean reward as a baseline
    baseline: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.method == "thompson" and self.alpha is not None:
            raise ValueError(
                f"alpha must be none where method is thompson, got {self.alpha}: a posterior "
                "weights all rewards equally"
            )


def check_coin(reward: float) -> None:
    """Raises TrainingError for a reward that is neither 0 nor 1."""
    if reward not in (0.0, 1.0):
        raise TrainingError(
            f"prior beta is for rewards that are 0 or 1, got {reward:g}; set prior to normal"
        )


class BanditMemory(NamedTuple):
    """The tables of one problem, [A], or of many in parallel, [R, A]; changed in place."""

    q: NDArray[np.float64]  # [..., A], in reward units
    counts: NDArray[np.int64]  # [..., A]: N(a)
    preferences: NDArray[np.float64]  # [..., A]: H(a)
    mean_reward: NDArray[np.float64]  # [...]: r̄, in reward units


def empty_memory(shape: tuple[int, ...], config: BanditConfig) -> BanditMemory:
    """Before the first step; `shape` is (A,) or (R, A)."""
    q = np.full(shape, float(config.initial_value))
    return BanditMemory(q, np.zeros(shape, dtype=np.int64), np.zeros(shape), np.zeros(shape[:-1]))


class Bandit(Agent):
    """A bandit's learner; see the module docstring."""

    Config = BanditConfig
    budget = {"steps": 1_000}
    observations = "any"
    actions = "discrete"
    METRICS = {
        "reward_error": "|r - Q(a)|, or |r - r̄| for the gradient method, in reward units",
        "epsilon": "probability of a random action (ε-greedy)",
    }

    def __init__(self, env: gymnasium.Env, config: BanditConfig, seed: int = 0) -> None:
        super().__init__(env, config, seed)
        self.config: BanditConfig = config
        arms = int(env.action_space.n)  # type: ignore[attr-defined]
        self.memory = empty_memory((arms,), config)
        self.rng = rng_for(seed, "exploration")

    def act(
        self,
        observation: object,
        *,
        explore: bool = True,
        action_mask: NDArray[np.bool_] | None = None,
    ) -> int:
        """The action, chosen among those that a mask [A] allows."""
        allowed = np.arange(len(self.memory.q)) if action_mask is None else action_mask.nonzero()[0]
        q, counts, preferences, mean_reward = self.memory
        among = BanditMemory(q[allowed], counts[allowed], preferences[allowed], mean_reward)
        if explore:
            epsilon = self.config.epsilon(self.progress)
            return int(allowed[choose(among, self.config, self.rng, epsilon)])
        gradient = self.config.method == "gradient"
        return int(allowed[(among.preferences if gradient else among.q).argmax()])

    def learn(self, step: Step) -> Metrics:
        action = np.asarray(step.action, dtype=np.int64)
        reward = np.asarray(step.reward, dtype=float)
        if self.config.method == "thompson" and self.config.prior == "beta":
            check_coin(float(reward))
        error = update(self.memory, self.config, action, reward, step.action_mask)
        shown = {"reward_error": abs(float(error))}
        if self.config.method == "epsilon-greedy":
            shown["epsilon"] = self.config.epsilon(self.progress)
        return shown

    def action_values(self) -> np.ndarray:
        """Q(a) for each action: [A], in reward units."""
        return self.memory.q.copy()

    def state_dict(self) -> State:
        tables = {name: table.copy() for name, table in self.memory._asdict().items()}
        return {"memory": tables, "rng": rng_state(self.rng)}

    def load_state_dict(self, state: State) -> None:
        for name, table in self.memory._asdict().items():
            table[...] = state["memory"][name]
        set_rng_state(self.rng, state["rng"])
