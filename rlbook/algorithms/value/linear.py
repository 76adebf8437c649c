"""What linear agents share: features of the observation, weights, a given policy, and saving.

    v(s) = w·x(s)                 prediction: weights [d, 1]
    q(s, a) = w_a·x(s)            control: weights [d, A], a column for each action

The features x(s) are a hyper-parameter, see `rlbook.interaction.features`. With K active binary
features, one update with step size α moves each of their weights by α/K times the error, and thus
the value at s by α times it.

Source: Sutton & Barto 2018, section 9.4, eq. 9.8. Difference: the book's α is per weight, ours
per value; the book's is our α/K.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Annotated, ClassVar

import gymnasium
import numpy as np
from gymnasium.spaces import Discrete, MultiDiscrete
from numpy.typing import ArrayLike, NDArray

from rlbook.agent import Agent, Metrics, State
from rlbook.algorithms.exact_metrics import EXACT_METRICS
from rlbook.algorithms.tabular.prediction.given_policy import (
    UNIFORM,
    GivenPolicy,
    check_epsilon,
    cumulative,
    plain_policy,
    probabilities,
    restrict_policy,
)
from rlbook.checks import at_least, positive, saved_array, unit_interval
from rlbook.envs.tabular.outcomes import draw
from rlbook.functional.schedules import Constant, Schedule
from rlbook.interaction.action_masks import mask_table
from rlbook.interaction.features import FeatureConfig, linear, make_features
from rlbook.seeding import rng_for, rng_state, set_rng_state

Observation = int | NDArray[np.float64] | NDArray[np.int64]
"""A state index, or a vector of numbers [D]."""


@dataclass(frozen=True)
class LinearConfig(FeatureConfig):
    """Hyper-parameters that all linear agents share."""

    # discount γ per environment step, in [0, 1]
    gamma: Annotated[float, unit_interval] = 0.99
    # step size α, > 0: the fraction of the error at s that one update removes (binary features)
    alpha: Annotated[Schedule, positive] = Constant(0.1)
    # discrete values per dimension of a continuous action, at least 2
    action_bins: Annotated[int, at_least(2)] = 5


class LinearAgent(Agent):
    """An agent whose values are linear in features. Acts in one environment."""

    budget = {"episodes": 500}
    observations = "numbers"
    actions = "discrete"
    weights: NDArray[np.float64]
    """w: [d, 1] or [d, A], in reward units."""
    METRICS: ClassVar[dict[str, str]] = {"alpha": "step size α of the value; α/K per weight"}

    def __init_subclass__(cls) -> None:
        cls.METRICS = cls.METRICS | EXACT_METRICS

    def __init__(self, env: gymnasium.Env, config: LinearConfig, seed: int = 0) -> None:
        """Raises RequestError if the observations do not have such features."""
        super().__init__(env, config, seed)
        assert isinstance(env.action_space, Discrete)
        self.num_actions, self.space = int(env.action_space.n), env.observation_space
        self.features = make_features(self.space, config, self.num_actions)
        self.weights = np.zeros((self.features.num_features, self.columns()))
        self.rng = rng_for(seed, "exploration")
        self.allowed: NDArray[np.bool_] | None = None
        """The allowed actions of the environment's own method in each state, [S, A]; None: all."""
        own = env.unwrapped.observation_space
        if isinstance(self.space, Discrete) and isinstance(own, Discrete):
            self.allowed = mask_table(env, range(int(own.start), int(own.start + own.n)))

    @abstractmethod
    def columns(self) -> int:
        """The number of columns of w: 1, or A."""

    @property
    def step_size(self) -> float:
        """α/K: the fraction of the error by which each weight changes."""
        return self.config.alpha(self.progress) / self.features.num_active

    def rates(self) -> Metrics:
        """The current values of the schedules."""
        return {"alpha": self.config.alpha(self.progress)}

    def states(self) -> NDArray[np.int64]:
        """All observations, [S] or [S, D], in the order of tables. Raises TypeError if they are
        continuous.
        """
        if isinstance(self.space, Discrete):
            return np.arange(int(self.space.n))
        if isinstance(self.space, MultiDiscrete):
            sizes = tuple(int(size) for size in self.space.nvec)
            return np.stack(np.unravel_index(np.arange(np.prod(sizes)), sizes), axis=-1)
        raise TypeError("these observations are continuous, so a table cannot list their values")

    def state_dict(self) -> State:
        return {"weights": self.weights.copy(), "rng": rng_state(self.rng)}

    def load_state_dict(self, state: State) -> None:
        """The inverse of `state_dict`. Raises ValueError where the state does not fit."""
        shape = self.weights.shape
        self.weights = saved_array("weights", state["weights"], np.float64, shape)
        set_rng_state(self.rng, state["rng"])


@dataclass(frozen=True)
class LinearPredictionConfig(LinearConfig):
    """Hyper-parameters that all agents with a linear V(s) share."""

    # policy to evaluate: uniform; with discrete states also optimal, epsilon-greedy, one action per
    # state, or a .json file
    policy: GivenPolicy = UNIFORM
    # probability ε with which the policy acts uniformly at random instead, in [0, 1]
    epsilon: Annotated[float, unit_interval] = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "policy", plain_policy(self.policy))
        check_epsilon(self.policy, self.epsilon)


class LinearPrediction(LinearAgent):
    """Follows a given policy π and learns its values, v(s) = w·x(s)."""

    budget = {"episodes": 1_000}
    seeks_return = False

    def __init__(self, env: gymnasium.Env, config: LinearPredictionConfig, seed: int = 0) -> None:
        """Raises ValueError where the policy does not fit the environment."""
        super().__init__(env, config, seed)
        self._target_policy = self.policy_of(config.policy, env, config.epsilon)
        self.follow_policy(self._target_policy)

    def follow_policy(self, policy: np.ndarray) -> None:
        """Acts by these probabilities from now on: [S, A], or [1, A]."""
        self._followed, self._cumulative = policy, cumulative(policy)

    def policy_of(self, policy: GivenPolicy, env: gymnasium.Env, epsilon: float) -> np.ndarray:
        """π(a|s): [S, A], or [1, A] where states are not numbered."""
        if isinstance(self.space, Discrete):
            table = probabilities(policy, env, self.config.gamma, epsilon)
            if self.allowed is None:
                return table
            return np.stack(
                [restrict_policy(*pair) for pair in zip(table, self.allowed, strict=True)]
            )
        if policy != UNIFORM:
            raise ValueError(
                f"policy must be 'uniform' where states are not numbered, got {str(policy)[:60]!r}"
            )
        return np.full((1, self.num_actions), 1.0 / self.num_actions)

    def columns(self) -> int:
        return 1

    @property
    def target_policy(self) -> np.ndarray:
        """π(a|s), whose values are learned: [S, A], or [1, A] where states are not numbered."""
        return self._target_policy.copy()

    def act(
        self,
        observation: Observation,
        *,
        explore: bool = True,
        action_mask: NDArray[np.bool_] | None = None,
    ) -> int:
        self.check_one(observation)
        state = int(observation) if isinstance(self.space, Discrete) else 0
        if not explore:
            policy = self._target_policy[state]
            policy = policy if action_mask is None else restrict_policy(policy, action_mask)
            return int(policy.argmax())
        if action_mask is None:
            return draw(self._cumulative[state], 0, self.rng)
        policy = restrict_policy(self._followed[state], action_mask)
        return draw(cumulative(policy[None])[0], 0, self.rng)

    def value(self, observations: ArrayLike) -> NDArray[np.float64]:
        """v of the environment's observations: [N, ...] → [N], in reward units."""
        return linear(self.weights, self.features(self.adapt_observations(observations)))[..., 0]

    def values(self) -> NDArray[np.float64]:
        """v(s): [S], in reward units, if states can be enumerated."""
        return linear(self.weights, self.features(self.states()))[..., 0]

    def greedy_policy(self) -> NDArray[np.int64]:
        """[S]: the policy's most probable action; the first one among ties."""
        return np.array([self.act(state, explore=False) for state in self.states()])
