"""Off-policy Monte Carlo: learn about one policy from another's importance-weighted returns.

    ρ_{t:T-1} = Π_{k=t}^{T-1} π(A_k|S_k) / b(A_k|S_k)

b is the behaviour policy, π the target policy, whose values are learned.

Prediction: the values of a given π. V(s) is an average over the visits to s in b's episodes that
count, the first of each episode or every one:

    ordinary     Σ ρ G / N             unbiased with first visits; the variance of ρ may be infinite
    weighted     Σ ρ G / Σ ρ           biased while there are few visits; the variance falls to 0
    truncated    Σ min(ρ, c) G / N     permanently biased where c truncates; bounded variance

Control: π is greedy in Q, and Q is weighted. Backwards through the episode:

    G ← 0, W ← 1
    for t = T-1, …, 0
        G ← γ G + R_{t+1}
        C(S_t, A_t) ← C(S_t, A_t) + W
        Q(S_t, A_t) ← Q(S_t, A_t) + W / C(S_t, A_t) [ G - Q(S_t, A_t) ]
        π(S_t) ← argmax_a Q(S_t, a)
        if A_t ≠ π(S_t): stop here           the weight of everything before is 0
        W ← W / b(A_t|S_t)

Source: Sutton & Barto 2018, eqs. 5.3 to 5.8, the boxes on pages 110 and 111; Ionides 2008,
doi:10.1198/106186008X320456, on truncation. Differences: prediction learns V, where the
box learns Q, so that ρ begins with the action of t itself; a truncated episode ends with the
table's value of its last state; weights above 1e100 count as 1e100, so that no square of one
overflows.
"""

from __future__ import annotations

from typing import Any, ClassVar

import gymnasium
import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from rlbook.agent import Metrics
from rlbook.algorithms.tabular.control_agent import ControlAgent
from rlbook.algorithms.tabular.episode import EPISODE, EVERY, EpisodeAgent, empty_episode, record
from rlbook.algorithms.tabular.exploration import explore, probability, row_max
from rlbook.algorithms.tabular.off_policy_mc_config import PREDICTION, OffPolicyMCConfig
from rlbook.algorithms.tabular.prediction.given_policy import (
    EPSILON_GREEDY,
    check_cumulative,
    cumulative,
    probabilities,
    restrict_policy,
)
from rlbook.algorithms.tabular.prediction.off_policy_prediction import (
    LARGEST,
    WEIGHTINGS,
    OffPolicyMemory,
    OffPolicySettings,
    behaviour_action,
    count,
    prediction_update,
)
from rlbook.algorithms.tabular.tabular_agent import Choose, Update, table_shape


def control_update(
    memory: OffPolicyMemory,
    settings: OffPolicySettings,
    rng: Generator,
    state: int,
    action: int,
    reward: float,
    next_state: int,
    terminated: bool,
    truncated: bool,
) -> float | None:
    """Records the step; at the end of an episode, updates Q in place along its greedy tail.

    Returns the mean |G - Q| in reward units, or None before that.
    """
    chance = probability(memory, settings, state, action)
    memory.ratios[record(memory, state, action, reward) - 1] = chance
    if not (terminated or truncated):
        return None
    outcome = 0.0 if terminated else row_max(memory.q[next_state])
    weight, error, updates = 1.0, 0.0, 0
    for time in range(memory.recorded[0] - 1, -1, -1):
        state, action = memory.states[time], memory.actions[time]
        outcome = settings.gamma * outcome + memory.rewards[time]
        count(memory, weight)
        memory.visits[state][action] += 1
        memory.total[state][action] += weight
        difference = outcome - memory.q[state][action]
        memory.q[state][action] += weight / memory.total[state][action] * difference
        error += abs(difference)
        updates += 1
        if action != steady_best(memory.q[state], state):
            break
        weight = min(weight / memory.ratios[time], LARGEST)
    memory.recorded[0] = 0
    return error / updates


def steady_best(row: NDArray[np.float64], state: int) -> int:
    """A best action, always the same one, as in `ControlAgent.greedy_action`."""
    best, ties = row_max(row), 0
    for action in range(len(row)):
        if row[action] == best:
            ties += 1
    skip = state % ties
    for action in range(len(row)):
        if row[action] == best:
            if skip == 0:
                return action
            skip -= 1
    return 0


SOFT = 0.1
"""ε of the target policy "epsilon-greedy"; the hyper-parameter `epsilon` is that of the behaviour
policy.
"""


class OffPolicyMC(EpisodeAgent, ControlAgent):
    """Off-policy Monte Carlo with tables. Acts in one environment; learns when an episode ends."""

    memory: OffPolicyMemory
    settings: OffPolicySettings
    budget = {"episodes": 2_000}
    Config = OffPolicyMCConfig
    METRICS: ClassVar[dict[str, str]] = ControlAgent.METRICS | {
        "td_error": "mean over an episode's updates of |G - Q(s, a)| in control, and of the "
        "changes of V in prediction, in reward units",
        "alpha": "step size in ordinary and truncated prediction (not with a 1/N schedule)",
        "mean_weight": "mean of the importance weights of all updates so far; in prediction 1 on "
        "average, unless they are truncated",
        "weight_variance": "variance of the importance weights of all updates so far",
        "effective_updates": "effective sample size (Σ ρ)² / Σ ρ², in updates of equal weight",
    }
    choose = staticmethod(explore)
    update = staticmethod(control_update)
    marks = ("first",)
    per_step = (*EPISODE, "ratios")

    def __init__(self, env: gymnasium.Env, config: OffPolicyMCConfig, seed: int = 0) -> None:
        """Raises ValueError if the target policy does not fit the environment."""
        self.is_prediction = config.task == PREDICTION
        self.seeks_return = not self.is_prediction
        shape = table_shape(env)
        self._target = np.full(shape, 1.0 / shape[1])
        if self.is_prediction:
            epsilon = SOFT if config.policy == EPSILON_GREEDY else 0.0
            self._target = probabilities(config.policy, env, config.gamma, epsilon)
        self._given = self._target.copy()
        super().__init__(env, config, seed)

    @property
    def target_policy(self) -> np.ndarray | None:
        """Prediction: π(a|s), whose values are learned, [S, A]. Control: None, because the optimal
        policy is sought.
        """
        return self._target.copy() if self.is_prediction else None

    def functions(self) -> tuple[Choose, Update]:
        if self.is_prediction:
            return behaviour_action, prediction_update
        return super().functions()[0], control_update

    def make_settings(self) -> OffPolicySettings:
        config = self.config
        return OffPolicySettings(
            *super().make_settings(),
            every_visit=config.visits == EVERY,
            weighting=WEIGHTINGS.index(config.weighting),
            clip=float(config.clip),
        )

    def make_memory(self) -> OffPolicyMemory:
        v = np.full(self.num_states, float(self.config.initial_value))
        return OffPolicyMemory(
            *super().make_memory(),
            **empty_episode(),
            v=v,
            total=np.zeros(self._target.shape),
            target=self._target,
            sums=cumulative(self._target),
            ratios=np.zeros(0),
            first=np.zeros(self.num_states, dtype=np.int64),
            weights=np.zeros(3),
        )

    def check_saved(self, tables: dict[str, np.ndarray]) -> None:
        super().check_saved(tables)
        check_cumulative("sums", tables["sums"])

    def rates(self) -> Metrics:
        updates, total, squares = self.memory.weights.tolist()
        shown = super().rates()
        if self.config.weighting == "weighted":
            shown.pop("alpha", None)
        if updates == 0.0:
            return shown
        mean, effective = total / updates, total * total / squares if squares > 0.0 else 0.0
        variance = squares / updates - mean * mean
        return shown | {
            "mean_weight": mean,
            "weight_variance": variance,
            "effective_updates": effective,
        }

    def forbid(self, state: int, allowed: NDArray[np.bool_], memory: Any = None) -> None:
        """Prediction: restricts the target policy to the allowed actions."""
        super().forbid(state, allowed, memory)
        if self.is_prediction:
            row = self._target[state] = restrict_policy(self._given[state], allowed)
            tables: Any = self.memory if memory is None else memory
            tables.target[state][:] = row.tolist()
            tables.sums[state][:] = cumulative(row[None])[0].tolist()

    def greedy_action(self, state: int, action_mask: NDArray[np.bool_] | None = None) -> int:
        """Control: a best action. Prediction: the target policy's most probable one."""
        if self.is_prediction:
            row = self._target[state]
            return int((row if action_mask is None else restrict_policy(row, action_mask)).argmax())
        return super().greedy_action(state, action_mask)

    def values(self) -> np.ndarray:
        """V(s) of the target policy, max_a Q(s, a) in control: [S], in reward units."""
        return self.memory.v.copy() if self.is_prediction else super().values()
