"""Certainty equivalence: estimate a model, plan in it as if it were true, and act on the plan.

    N ← 0 for all s, a, s'
    for each step
        a ← a random action with probability ε, otherwise π(s)
        take a, see r and s';   N(s, a, s') ← N(s, a, s') + 1, and r is added up
        every m steps
            P(s'|s, a) ← N(s, a, s') / N(s, a),   r(s, a) ← the mean of the rewards seen
            π ← the best policy of this model, by value iteration

The plan makes full use of the data: for a given policy, the values of the estimated model are what
TD(0) converges to when it replays the same steps forever. This takes far fewer environment steps
than learning from each one once, but far more computation.

If the environment shows action masks, only allowed actions are taken, and the model has no others.
Pairs that were never tried have no counts. `unseen` sets their value: "zero", as if the agent
stayed there forever without reward, or "optimistic", the largest reward seen forever,
r_max / (1 - γ), so that the plan leads to unknown pairs (R-max). With "zero", only the random
actions explore.

Planners use the same method when an environment has no model: see
`rlbook.runs.planning_models`.

Source: Sutton & Barto 2018, section 6.3, page 128 (the certainty-equivalence estimate); Kumar &
Varaiya 1986. "optimistic": Brafman & Tennenholtz 2002 (R-max), with a pair known after its first
try. Deliberate difference: the plan is not updated at every step, but every `plan_every` steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import gymnasium
import numpy as np
from numpy.typing import NDArray

from rlbook.agent import Agent, Metrics, State, Step
from rlbook.algorithms.exact_metrics import EXACT_METRICS
from rlbook.algorithms.model_based.saved_counts import saved_counts, saved_steps
from rlbook.algorithms.planning.value_iteration import ValueIteration
from rlbook.algorithms.tabular.tabular_agent import table_shape
from rlbook.checks import (
    at_least,
    one_of,
    positive,
    positive_int,
    saved_array,
    saved_number,
    unit_interval,
)
from rlbook.envs.tabular.estimate import TransitionCounts
from rlbook.envs.tabular.mdp import TabularMDP
from rlbook.errors import TrainingError
from rlbook.functional.schedules import Linear, Schedule
from rlbook.hyperparameters import Hyperparameters
from rlbook.seeding import rng_for, rng_state, set_rng_state


def certainty_equivalence_update(
    counts: TransitionCounts,
    steps: Sequence[tuple[Any, ...]],
    config: CertaintyEquivalenceConfig,
) -> tuple[NDArray[np.int64], TabularMDP, ValueIteration]:
    """Counts some steps, and plans in the model estimated from all counts.

    Args:
        counts: N(s, a, s') and the rewards, changed in place.
        steps: state, action, reward, successor, and whether the episode terminated.
        config: hyper-parameters.

    Returns:
        The states seen so far, [M], which are all that is known yet, their model, and its plan.

    Raises:
        TrainingError: γ = 1, and V is infinite.
    """
    counts.add(*zip(*steps, strict=True))
    states = counts.seen_states
    model = counts.model(unseen_value(counts, config), states)
    gamma, tolerance, limit = config.gamma, config.tolerance, config.max_sweeps
    try:
        plan = ValueIteration.solve(model, gamma=gamma, tolerance=tolerance, max_sweeps=limit)
    except (ValueError, TrainingError) as error:
        raise TrainingError(
            f"certainty_equivalence cannot plan in the model counted so far: {error}"
        ) from None
    return states, model, plan


def unseen_value(counts: TransitionCounts, config: CertaintyEquivalenceConfig) -> float:
    """The value of a pair that was never tried, in reward units: 0, or r_max / (1 - γ)."""
    return counts.largest_reward / (1 - config.gamma) if config.unseen == "optimistic" else 0.0


@dataclass(frozen=True)
class CertaintyEquivalenceConfig(Hyperparameters):
    # discount γ per environment step, in [0, 1]; must be below 1 if unseen is optimistic
    gamma: Annotated[float, unit_interval] = 0.99
    # probability ε of a random action, in [0, 1]; 1.0 samples uniformly
    epsilon: Annotated[Schedule, unit_interval] = Linear(1.0, 0.05)
    # environment steps between plans, at least 1
    plan_every: Annotated[int, positive_int] = 200
    # value of an untried action: "zero", or "optimistic", the largest reward forever
    unseen: Annotated[str, one_of("zero", "optimistic")] = "zero"
    # stop planning once the error of the values in the model is below this, in reward units, > 0
    tolerance: Annotated[float, positive] = 1e-4
    # maximum number of sweeps per plan, at least 1
    max_sweeps: Annotated[int, positive_int] = 10_000
    # bins per dimension of a continuous observation, at least 1
    bins: Annotated[int, positive_int] = 8
    # discrete values per dimension of a continuous action, at least 2
    action_bins: Annotated[int, at_least(2)] = 5

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.unseen == "optimistic" and self.gamma == 1:
            raise ValueError(
                "gamma must be below 1 where unseen is 'optimistic', because a reward received "
                "forever has no finite value"
            )


class CertaintyEquivalence(Agent):
    """Counts transitions, plans and acts. S states, A actions, one environment."""

    budget = {"steps": 20_000}
    Config = CertaintyEquivalenceConfig
    observations = "index"
    actions = "discrete"
    METRICS: ClassVar[dict[str, str]] = {
        "known_pairs": "state-action pairs in the model of the last plan",
        "known_states": "states in the model of the last plan",
        "sweeps": "sweeps that the last plan took",
        "converged": "1 if the last plan met its tolerance, 0 if it stopped at max_sweeps",
        "value": "mean value of the initial states under the last plan, in reward units",
        "epsilon": "probability of a random action",
        **EXACT_METRICS,
    }

    def __init__(
        self, env: gymnasium.Env, config: CertaintyEquivalenceConfig, seed: int = 0
    ) -> None:
        super().__init__(env, config, seed)
        self.num_states, self.num_actions = table_shape(env)
        self.rng = rng_for(seed, "exploration")
        self.counts = TransitionCounts(self.num_states, self.num_actions)
        # steps since the last plan: state, action, reward, successor, terminated
        self._fresh: list[tuple[Any, ...]] = []
        # whether the next step is the first of its episode
        self._begins = True
        self._values = np.zeros(self.num_states)
        self._policy = np.arange(self.num_states) % self.num_actions
        self._told: Metrics = {}  # of the last plan

    def act(
        self,
        observation: int,
        *,
        explore: bool = True,
        action_mask: NDArray[np.bool_] | None = None,
    ) -> int:
        self.check_one(observation)
        allowed = np.arange(self.num_actions) if action_mask is None else action_mask.nonzero()[0]
        if explore and self.rng.random() < self.config.epsilon(self.progress):
            return int(allowed[int(self.rng.random() * len(allowed))])
        planned = int(self._policy[observation])
        if action_mask is None or action_mask[planned]:
            return planned
        return int(allowed[planned % len(allowed)])  # nothing is planned for this state yet

    def begin(self) -> None:
        self._begins = True

    def learn(self, step: Step) -> Metrics:
        if self._begins:
            self.counts.starts[step.obs] += 1
            self._begins = False
        if step.action_mask is not None:
            self.counts.note_mask(step.obs, step.action_mask)
        self._fresh.append((step.obs, step.action, step.reward, step.next_obs, step.terminated))
        if len(self._fresh) >= self.config.plan_every:
            states, model, plan = certainty_equivalence_update(
                self.counts, self._fresh, self.config
            )
            self._fresh = []
            self._values[:] = self.unseen_value  # of states that are not known to be there
            self._values[states], self._policy[states] = plan.values(), plan.greedy_policy()
            self._told = {
                "known_pairs": float(len(self.counts.known_pairs)),
                "known_states": float(len(states)),
                "sweeps": float(plan.state_dict()["sweep"]),
                "converged": float(plan.converged),
                "value": float(model.initial @ plan.values()),
            }
        return self._told | {"epsilon": self.config.epsilon(self.progress)}

    @property
    def unseen_value(self) -> float:
        """The value of a pair that was never tried, in reward units."""
        return unseen_value(self.counts, self.config)

    def model(self) -> TabularMDP:
        """The model of the last plan, with all S states."""
        return self.counts.model(self.unseen_value)

    def counted_model(self) -> TabularMDP:
        """The model of all steps so far, with all S states."""
        if self._fresh:
            self.counts.add(*zip(*self._fresh, strict=True))
            self._fresh = []
        return self.model()

    def values(self) -> np.ndarray:
        """V(s) by the last plan: [S], in reward units."""
        return self._values.copy()

    def action_values(self) -> np.ndarray:
        """Q(s, a) by the last plan: [S, A], in reward units; zeros before the first one."""
        return self.model().backup(self._values, self.config.gamma)

    def greedy_policy(self) -> np.ndarray:
        """[S] int: the action taken without exploration."""
        return self._policy.copy()

    def state_dict(self) -> State:
        return {
            "counts": self.counts.snapshot(),
            "begins": self._begins,
            "fresh": np.array(self._fresh, dtype=np.float64).reshape(-1, 5),
            "values": self._values,
            "policy": self._policy,
            "told": dict(self._told),
            "rng": rng_state(self.rng),
        }

    def load_state_dict(self, state: State) -> None:
        size = self.num_states, self.num_actions
        steps = saved_steps(state["fresh"], *size)
        shape = (self.num_states,)
        values = saved_array("values", state["values"], np.float64, shape)
        policy = saved_array(
            "policy", state["policy"], self._policy.dtype, shape, low=0, high=self.num_actions
        )
        told = {name: saved_number(name, value) for name, value in state["told"].items()}
        self.counts.restore(saved_counts(state["counts"], *size))
        self._fresh, self._values, self._policy, self._told = steps, values, policy, told
        self._begins = bool(state["begins"])
        set_rng_state(self.rng, state["rng"])
