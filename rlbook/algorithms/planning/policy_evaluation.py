"""Policy evaluation: compute the value of a policy in every state from a known model.

    V ← 0
    repeat
        for each s:  V(s) ← Σ_a π(a|s) [ r(s, a) + γ Σ_s' P(s'|s, a) V(s') ]               one sweep
    until V is close enough to V^π

The update solves a linear equation, with one unknown per state, which can also be solved
directly (`method = "linear"`). In place, a sweep uses the new values of earlier states;
synchronously, it computes all values from the old ones, which takes more sweeps but shows how
values propagate: after k sweeps V is the expected return of the next k steps.

The agent acts greedily by V^π, which is one step of policy improvement: better than π unless π is
already optimal.

Source: Sutton & Barto 2018, section 4.1, the box on page 75, and eq. 4.4. Deliberate difference:
stopped by a bound on the error (`bounds.py`), where the box uses the last change.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
from scipy import sparse

from rlbook.agent import Metrics
from rlbook.algorithms.planning.linear_solve import chain_values
from rlbook.algorithms.planning.planner_config import NumberedSpaces, PlannerConfig
from rlbook.algorithms.planning.policy_iteration import PolicyIteration
from rlbook.algorithms.planning.table_planner import TablePlanner
from rlbook.algorithms.tabular.prediction.given_policy import EPSILON_GREEDY, NAMES, OPTIMAL
from rlbook.checks import check, non_negative, one_of, positive_int, unit_interval
from rlbook.envs.tabular.mdp import TabularMDP, check_ends
from rlbook.errors import TrainingError
from rlbook.fast_forms import has_fast_form


def policy_evaluation_update(
    P: sparse.csr_array, r: np.ndarray, V: np.ndarray, gamma: float
) -> np.ndarray:
    """V(s) ← r(s) + γ Σ_s' P(s'|s) V(s') in all states at once: one synchronous sweep.

    Args:
        P, r: [S, S] and [S], of the chain that the policy makes of the model.
        V: [S], in reward units.
        gamma: γ, in [0, 1].
    """
    return r + gamma * (P @ V)


def evaluate_in_place(
    P: sparse.csr_array, r: np.ndarray, V: np.ndarray, gamma: float
) -> np.ndarray:
    """V(s) ← r(s) + γ Σ_s' P(s'|s) V(s'), state after state; V [S] is overwritten."""
    for s in range(len(V)):
        row = slice(P.indptr[s], P.indptr[s + 1])
        V[s] = r[s] + gamma * sum(P.data[row] * V[P.indices[row]])
    return V


@dataclass(frozen=True)
class PolicyEvaluationConfig(PlannerConfig):
    """Hyper-parameters of policy evaluation."""

    # "uniform", "optimal", "epsilon-greedy", an action for each state, or [S, A] probabilities
    policy: str | tuple[Any, ...] = "uniform"
    # with "epsilon-greedy": probability of a random action, in [0, 1]
    epsilon: Annotated[float, unit_interval] = 0.1
    # discount γ per environment step, in [0, 1]
    gamma: Annotated[float, unit_interval] = 0.99
    # "in-place" or "synchronous" sweeps, or "linear": solve the linear system directly
    method: Annotated[str, one_of("in-place", "synchronous", "linear")] = "in-place"
    # stop once V's error against V^π is below this, in reward units (times the largest reward if
    # below 1), at least 0
    tolerance: Annotated[float, non_negative] = 1e-8
    # stop after this many sweeps, whatever the error, at least 1
    max_sweeps: Annotated[int, positive_int] = 100_000

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.policy, str):
            check("policy", self.policy, one_of(*NAMES))
        else:
            object.__setattr__(self, "policy", _as_lists(self.policy))


class PolicyEvaluation(TablePlanner):
    """Policy evaluation on a `TabularMDP` with S states and A actions."""

    budget = {"steps": 100_000}
    name = "policy_evaluation"
    Config = PolicyEvaluationConfig
    METRICS: ClassVar[dict[str, str]] = {
        "sweep": "sweeps over all states so far",
        "change": "largest change of a state's value in this sweep, in reward units; with "
        "method linear, the largest residual",
        "bound": "upper bound on the error of V against V^π in any state, in reward units (with "
        "gamma 1 an estimate, once there is one)",
        "value": "mean value of the initial states, in reward units",
    }

    def __init__(self, env: NumberedSpaces, config: PolicyEvaluationConfig, seed: int = 0) -> None:
        super().__init__(env, config, seed)
        self._bound.in_place = config.method == "in-place"
        self._chain: tuple[sparse.csr_array, np.ndarray] | None = None

    def policy(self, model: TabularMDP) -> np.ndarray:
        """π(a|s): [S, A], the policy that is evaluated."""
        if self.config.policy == "uniform":
            return model.uniform_policy.copy()
        if self.config.policy in (OPTIMAL, EPSILON_GREEDY):
            greedy = PolicyIteration.solve(model, gamma=self.config.gamma).greedy_policy()
            epsilon = 0.0 if self.config.policy == OPTIMAL else self.config.epsilon
            best = np.eye(model.num_actions)[greedy]
            return epsilon * model.uniform_policy + (1 - epsilon) * best
        given = np.array(self.config.policy)
        return np.eye(model.num_actions)[given] if given.ndim == 1 else given.astype(np.float64)

    @property
    def target_policy(self) -> np.ndarray | None:
        """The same for the model that the agent was last given; None before."""
        return None if self._model is None else self.policy(self._model)

    @has_fast_form
    def _sweep(self, model: TabularMDP) -> None:
        if self.config.method == "linear":
            self._solve(model)
            return
        V, gamma, (P, r) = self._values, self.config.gamma, self._chain_of(model)
        if self.config.method == "in-place":
            self._values = evaluate_in_place(P, r, V.copy(), gamma)
        else:
            self._values = policy_evaluation_update(P, r, V, gamma)
        changes = self._values - V
        self._record_sweep(float(changes.min()), float(changes.max()))

    def _solve(self, model: TabularMDP) -> None:
        gamma = self.config.gamma
        self._values, residual = chain_values(*self._chain_of(model), gamma, self._values)
        self._bound.change = residual
        self._bound.error = residual / (1 - gamma) if gamma < 1 else residual
        self._end_sweep(converged=True)

    def _chain_of(self, model: TabularMDP) -> tuple[sparse.csr_array, np.ndarray]:
        """P_π [S, S] and r_π [S]. Raises TrainingError where γ = 1 and V^π is not finite."""
        if self._chain is None:
            self._chain = model.chain(self.policy(model))
            if self.config.gamma == 1:
                self._check_chain(*self._chain)
        return self._chain

    def _check_chain(self, chain: sparse.csr_array, rewards: np.ndarray) -> None:
        try:
            check_ends(chain, rewards)
        except ValueError as error:
            raise TrainingError(f"policy_evaluation: {str(error).rstrip('.')}") from None

    def _check_values(self, model: TabularMDP) -> None:
        """Does nothing: what matters is whether the given policy has finite values."""

    def _check_finite(self) -> None:
        """Does nothing: this was checked at the beginning."""

    def check_model(self, model: TabularMDP) -> None:
        """Raises ValueError if the model does not fit, or if the given policy does not fit the
        model.
        """
        super().check_model(model)
        if isinstance(self.config.policy, str):
            return
        given, actions = np.array(self.config.policy), model.num_actions
        if given.ndim == 1:
            fits = (
                given.shape == (model.num_states,)
                and given.dtype.kind in "iu"
                and bool(((given >= 0) & (given < actions)).all())
            )
        else:
            fits = given.shape == (model.num_states, actions) and bool(
                (given >= 0).all() and (abs(given.sum(axis=1) - 1) <= 1e-8).all()
            )
        if not fits:
            states = model.num_states
            wanted = f"{states} actions from 0 to {actions - 1}"
            wanted += f", or {states} rows of {actions} probabilities"
            raise ValueError(
                f"policy must be {wanted}, got numbers of shape {list(given.shape)} from "
                f"{given.min():g} to {given.max():g}."
            )

    def _metrics(self, model: TabularMDP) -> Metrics:
        known = super()._metrics(model)
        known.pop("policy_loss_bound", None)
        return known


def _as_lists(policy: object) -> tuple[Any, ...]:
    """[S] or [S, A] numbers as a tuple of numbers or of lists. ValueError where it is neither."""
    try:
        numbers = np.array(policy)
        if numbers.size and numbers.ndim in (1, 2) and numbers.dtype.kind in "iuf":
            return tuple(numbers.tolist())
    except ValueError:  # rows of different lengths
        pass
    raise ValueError(
        'policy must be "uniform", "optimal", "epsilon-greedy", an action for each state, '
        f"or a row of probabilities for each state, got {policy!r}"
    )
