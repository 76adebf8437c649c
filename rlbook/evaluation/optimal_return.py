"""The best return there is, where the environment has a model to compute it from."""

from __future__ import annotations

from typing import TYPE_CHECKING

import gymnasium
import numpy as np

from rlbook.interaction.environments import EnvRecipe

if TYPE_CHECKING:
    from rlbook.envs.tabular.mdp import TabularMDP

LARGEST = 20_000  # states; above it a figure would have to wait
NO_LIMIT = 2_000  # steps, where the environment has no time limit


def horizon_values(model: TabularMDP, horizon: int, policy: np.ndarray | None = None) -> np.ndarray:
    """Expected undiscounted return of the next `horizon` steps, by backward induction.

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
    """The best expected return of an episode, in reward units; None where nobody knows.

    An environment may state it itself (`optimal_return`); otherwise it follows from the
    environment's model, if there is one.
    """
    try:
        env = recipe.make()
        stated = getattr(env.unwrapped, "optimal_return", None)
        return _from_model(env, horizon_of(recipe)) if stated is None else float(stated)
    except ValueError:  # no such environment here, or a wrapper has changed what the model is of
        return None


def _from_model(env: gymnasium.Env, horizon: int) -> float | None:
    from rlbook.envs.tabular.mdp import TabularMDP

    has_model = callable(getattr(env.unwrapped, "model", None)) or hasattr(env.unwrapped, "P")
    if not has_model or getattr(env.observation_space, "n", 0) > LARGEST:
        return None
    model = TabularMDP.from_env(env)
    return (
        float(model.initial @ horizon_values(model, horizon))
        if model.num_states <= LARGEST
        else None
    )
