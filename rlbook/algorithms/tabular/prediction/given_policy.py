"""A fixed policy, given as a hyper-parameter: a name, one action per state, or probabilities.

"uniform"               every action with equal probability
"optimal"               the best action of each state, computed from the environment's model
"epsilon-greedy"        that action, but with probability ε a random one
(0, 2, 1)               in state s the action with this number: [S]
((0.5, 0.5), (1, 0))    in state s these probabilities: [S][A]
"""

from __future__ import annotations

import gymnasium
import numpy as np

from rlbook.algorithms.planning.value_iteration import ValueIteration
from rlbook.algorithms.tabular.tabular_agent import table_shape
from rlbook.checks import did_you_mean
from rlbook.envs.tabular.mdp import TabularMDP

UNIFORM, OPTIMAL, EPSILON_GREEDY = NAMES = ("uniform", "optimal", "epsilon-greedy")
WANTED = (
    "policy must be 'uniform', 'optimal', 'epsilon-greedy', one action per state or rows of "
    "probabilities, got"
)
GivenPolicy = str | tuple[int, ...] | tuple[tuple[float, ...], ...]
"""The possible values of the hyper-parameter."""
TOLERANCE = 1e-6
"""The allowed deviation of a row's sum from 1; the row is rescaled."""
ENUMERATED = 20_000
"""The largest number of transitions to try when an environment's model has to be found by
enumeration."""


def plain_policy(policy: object) -> GivenPolicy:
    """The hyper-parameter as a name or as tuples of numbers, for storing in a config; arrays and
    lists become tuples.

    Raises:
        ValueError: one sentence, where it is not a policy whatever the environment.
    """
    policy = policy.tolist() if isinstance(policy, np.ndarray) else policy
    if isinstance(policy, str):
        if policy not in NAMES:
            raise ValueError(f"{WANTED} {policy!r}{did_you_mean(policy, NAMES, ' ({})')}")
        return policy
    if isinstance(policy, tuple | list) and policy:
        if all(_is_whole(item) for item in policy):
            return tuple(int(action) for action in policy)
        if all(
            isinstance(row, tuple | list) and row and all(_is_number(item) for item in row)
            for row in policy
        ):
            rows = tuple(tuple(float(item) for item in row) for row in policy)
            _check_rows(rows)
            return rows
    raise ValueError(f"{WANTED} {_shorten_repr(policy)}")


def check_epsilon(policy: GivenPolicy, epsilon: float) -> None:
    """Raises ValueError where an ε-greedy policy would take no random action."""
    if policy == EPSILON_GREEDY and epsilon == 0:
        raise ValueError(
            "epsilon must be above 0 with policy 'epsilon-greedy', got 0; 'optimal' always takes "
            "the best action"
        )


def probabilities(
    policy: GivenPolicy, env: gymnasium.Env, gamma: float, epsilon: float = 0.0
) -> np.ndarray:
    """π(a|s) as [S, A], mixed with a share ε of the uniform policy; mixing a greedy policy gives
    the ε-greedy one.

    Args:
        policy: as `plain_policy` returns it.
        env: adapted; its spaces give S and A, its model the optimal actions.
        gamma: γ, which decides what is optimal, in [0, 1].
        epsilon: ε, in [0, 1].

    Raises:
        ValueError: one sentence: a policy that does not fit the environment, or "optimal" where
            there is no model.
    """
    num_states, num_actions = table_shape(env)
    table = np.full((num_states, num_actions), 1.0 / num_actions)
    if policy == UNIFORM:
        return table
    by_name = policy in (OPTIMAL, EPSILON_GREEDY)
    shape = num_states, num_actions
    given = _optimal(env, *shape, gamma) if by_name else np.array(_fitting(policy, *shape))
    if given.ndim == 1:
        given = np.eye(num_actions)[given]
    return epsilon * table + (1.0 - epsilon) * given / given.sum(axis=1, keepdims=True)


def restrict_policy(row: np.ndarray, allowed: np.ndarray) -> np.ndarray:
    """A policy's probabilities in one state, [A], restricted to the allowed actions; uniform if it
    would take only forbidden ones.
    """
    share = np.where(allowed, row, 0.0)
    return share / share.sum() if share.sum() > 0.0 else allowed / allowed.sum()


def cumulative(table: np.ndarray) -> np.ndarray:
    """Σ_{b ≤ a} π(b|s): [S, A].

    Exactly 1 from the last possible action on, so that every uniform number below 1 draws an
    action.
    """
    sums = np.minimum(np.cumsum(table, axis=1), 1.0)
    last = table.shape[1] - 1 - np.argmax(table[:, ::-1] > 0, axis=1)
    sums[np.arange(table.shape[1]) >= last[:, None]] = 1.0
    return sums


def check_cumulative(name: str, sums: np.ndarray) -> None:
    """Raises ValueError unless every row rises from at least 0 to 1, so that it defines a
    distribution.
    """
    if not (
        (sums[:, 0] >= 0).all() and (np.diff(sums, axis=1) >= 0).all() and (sums[:, -1] == 1).all()
    ):
        raise ValueError(f"the saved {name} must rise to 1 in each row")


def _optimal(env: gymnasium.Env, num_states: int, num_actions: int, gamma: float) -> np.ndarray:
    """The optimal action of each state, [S] int."""
    model = TabularMDP.from_env(env, max_transitions=ENUMERATED)
    if not model.observable or (model.num_states, model.num_actions) != (num_states, num_actions):
        raise ValueError(
            "policy 'optimal' needs a model whose states and actions are numbered as the agent "
            "sees them"
        )
    return ValueIteration.solve(model, gamma=gamma).greedy_policy()


def _fitting(policy: GivenPolicy, num_states: int, num_actions: int) -> GivenPolicy:
    if len(policy) != num_states:
        raise ValueError(
            f"policy must have one entry for each of the {num_states} states, got {len(policy)}"
        )
    for state, entry in enumerate(policy):
        if isinstance(entry, int) and not 0 <= entry < num_actions:
            raise ValueError(
                f"policy must name actions from 0 to {num_actions - 1}, "
                f"got {entry} in state {state}"
            )
        if isinstance(entry, tuple) and len(entry) != num_actions:
            raise ValueError(
                f"policy must have one probability for each of the {num_actions} actions, "
                f"got {len(entry)} in state {state}"
            )
    return policy


def _check_rows(rows: tuple[tuple[float, ...], ...]) -> None:
    for state, row in enumerate(rows):
        if (
            not all(probability >= 0.0 for probability in row)
            or not abs(sum(row) - 1.0) <= TOLERANCE
        ):
            wanted = "probabilities of at least 0 that add up to 1 in each state"
            raise ValueError(
                f"policy must have {wanted}, got {_shorten_repr(row)} in state {state}"
            )


def _is_whole(value: object) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)


def _shorten_repr(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
