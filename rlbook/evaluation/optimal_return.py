"""The optimal return, computed from the environment's model if it has one."""

from __future__ import annotations

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.envs.toy_text.blackjack import BlackjackEnv

from rlbook.agent import Agent
from rlbook.envs.blackjack import SHAPE, blackjack_model, naturals_model, observation_numbers
from rlbook.envs.descriptions import GRID_OPTIMA, SOLVED_FROM
from rlbook.envs.tabular.mdp import TabularMDP
from rlbook.evaluation.control_optima import control_return, control_task
from rlbook.interaction.action_masks import mask_table
from rlbook.interaction.environments import EnvRecipe

LARGEST = 20_000  # states; above it a figure would have to wait
NO_LIMIT = 2_000  # steps, where the environment has no time limit
CLOSE = 0.02  # of the optimum, within which a mean return counts as optimal


def horizon_values(model: TabularMDP, horizon: int, policy: np.ndarray | None = None) -> np.ndarray:
    """The expected undiscounted return of the next `horizon` steps, by backward induction.

    V_0 = 0,   V_k(s) = max_a [ r(s, a) + Σ_s' P(s'|s, a) V_{k-1}(s') ],   or a = π(s) in place of the maximum

    With the time limit as horizon this is exact, also where without a limit no end would be
    reached.

    Args:
        model: S states, A actions.
        horizon: steps.
        policy: [S] int, one action a state; None is the best way to act.

    Returns:
        [S], in reward units.

    Source: Puterman 1994, section 4.5.
    """
    values, states = np.zeros(model.num_states), np.arange(model.num_states)
    for _ in range(horizon):
        action_values = model.backup(values, 1.0)
        before, values = (
            values,
            action_values.max(axis=1) if policy is None else action_values[states, policy],
        )
        if np.array_equal(before, values):
            break
    return values


def horizon_of(recipe: EnvRecipe) -> int:
    """An environment's time limit, in steps."""
    return recipe.time_limit or NO_LIMIT


def optimal_return(recipe: EnvRecipe) -> float | None:
    """The optimal expected return of an episode, in reward units; None if it is unknown.

    An environment may state it itself (`optimal_return`); otherwise it follows from the
    environment's model, if there is one. That of three classic control tasks was computed on a grid
    (`rlbook.evaluation.control_optima`).
    """
    if control_task(recipe) is not None:
        return GRID_OPTIMA[recipe.name]
    try:
        env = recipe.make()
        stated = getattr(env.unwrapped, "optimal_return", None)
        return _from_model(env, horizon_of(recipe)) if stated is None else float(stated)
    except ValueError:  # no such environment here, or a wrapper has changed what the model is of
        return None


def solving_return(recipe: EnvRecipe) -> float | None:
    """The mean return at which greedy play solves an environment, in reward units: within 2 % of
    the optimum, or, where that was computed on a grid, the threshold that gymnasium or
    `SOLVED_FROM` states; None if the optimum is unknown."""
    best = optimal_return(recipe)
    if best is not None and control_task(recipe) is not None:
        return SOLVED_FROM.get(recipe.name) or gymnasium.registry[recipe.name].reward_threshold
    return None if best is None else best - CLOSE * max(1.0, abs(best))


def greedy_return(agent: Agent, recipe: EnvRecipe) -> float | None:
    """The exact expected return of the greedy policy of a value table, in reward units, time limit
    included.

    None where the environment has no model, or where the table's states are not the model's.
    """
    policy_of = getattr(agent, "greedy_policy", None)
    try:
        model = None if policy_of is None else _model(recipe.make())
    except ValueError:
        return None
    if policy_of is None or model is None or not model.observable:
        return None
    policy = np.asarray(policy_of())
    if isinstance(recipe.make().unwrapped, BlackjackEnv):
        policy = policy[observation_numbers()[: model.num_states]]
    if policy.shape != (model.num_states,):
        return None
    return _policy_return(model, recipe, policy)


def expected_return(agent: Agent, recipe: EnvRecipe) -> float | None:
    """The expected return of greedy play, in reward units, where it can be computed quickly: of a
    value table, and of any policy in a classic control task with two state variables."""
    found = control_return(agent, recipe)
    return greedy_return(agent, recipe) if found is None else found


def network_return(agent: Agent, recipe: EnvRecipe) -> float | None:
    """The exact expected return of the greedy policy of an agent with a network, in reward units,
    time limit included: the agent is queried for its action in every state.

    None where the environment has no model, or does not show the number of its state, as a whole or
    digit by digit.
    """
    env = recipe.make()
    model = _model(env)
    if model is None or not model.observable:
        return None
    if isinstance(env.unwrapped, BlackjackEnv):
        shown = observation_numbers()[: model.num_states]
        return _policy_return(model, recipe, agent.predict(np.unravel_index(shown, SHAPE)))
    states, space = np.arange(model.num_states), env.observation_space
    if isinstance(space, spaces.MultiDiscrete) and space.nvec.prod() == model.num_states:
        states = np.stack(np.unravel_index(states, space.nvec), axis=1)
    elif getattr(space, "n", None) != model.num_states:
        return None
    policy = agent.predict(states, action_mask=mask_table(env, list(states)))
    return _policy_return(model, recipe, policy)


def _policy_return(model: TabularMDP, recipe: EnvRecipe, policy: np.ndarray) -> float:
    """The expected return of a policy, [S] int."""
    values = horizon_values(model, horizon_of(recipe), np.asarray(policy))
    return float(model.initial @ values)


def random_return(recipe: EnvRecipe) -> float | None:
    """The expected return of the uniform random policy over the actions that can be taken; None if
    the environment has no model."""
    model = _model(recipe.make())
    if model is None:
        return None
    chain, rewards = model.chain(model.uniform_policy)
    values = np.zeros(model.num_states)
    for _ in range(horizon_of(recipe)):
        before, values = values, rewards + chain @ values
        if np.array_equal(before, values):
            break
    return float(model.initial @ values)


def blind_return(recipe: EnvRecipe, probabilities: np.ndarray) -> float | None:
    """The expected return of the policy that takes each action with equal probability in every
    state, like one without observations; None if the environment has no model.

    Args:
        probabilities: [A], with the sum 1.
    """
    model = _model(recipe.make())
    if model is None:
        return None
    values = np.zeros(model.num_states)
    for _ in range(horizon_of(recipe)):
        values = model.backup(values, 1.0) @ probabilities
    return float(model.initial @ values)


def _from_model(env: gymnasium.Env, horizon: int) -> float | None:
    model = _model(env)
    return None if model is None else float(model.initial @ horizon_values(model, horizon))


def _model(env: gymnasium.Env) -> TabularMDP | None:
    """An environment's own model, if it is small enough to be solved while a figure is drawn."""
    inner = env.unwrapped
    if isinstance(inner, BlackjackEnv):  # it has no model of its own
        if inner.sab:
            return naturals_model()
        return None if inner.natural else blackjack_model()
    has_model = callable(getattr(inner, "model", None)) or hasattr(inner, "P")
    if not has_model or getattr(env.observation_space, "n", 0) > LARGEST:
        return None
    model = TabularMDP.from_env(env)
    return model if model.num_states <= LARGEST else None
