"""Where a `TabularMDP` comes from: the environment's own model, gymnasium's table `P`, or trying out every action in every state."""

from __future__ import annotations

from typing import Any

import gymnasium
from gymnasium import spaces

from rlbook.envs.enumeration import NoModel, enumerate_states
from rlbook.envs.mdp import TabularMDP
from rlbook.envs.mdp_arrays import from_entries


def from_env(env: Any, *, max_transitions: int = 1_000_000) -> TabularMDP:
    """See `TabularMDP.from_env`."""
    if not isinstance(env, gymnasium.Env):
        raise ValueError(f"env must be a gymnasium.Env, got {type(env).__name__}.")
    _check_wrappers(env)
    inner: Any = env.unwrapped
    name = inner.spec.id if inner.spec is not None else type(inner).__name__
    if callable(getattr(inner, "model", None)):
        return inner.model()
    if getattr(inner, "fickle_passenger", False):
        raise NoModel(f"{name} with fickle_passenger has no model to plan with: the passenger's change of mind is not in its table P.")
    if hasattr(inner, "P"):
        return _from_table(inner)
    if not (hasattr(inner, "snapshot") and hasattr(inner, "restore")):
        raise NoModel(f"{name} has no model to plan with: neither a table P of transition probabilities nor snapshots to enumerate it.")
    if not isinstance(inner.action_space, spaces.Discrete):
        actions = type(inner.action_space).__name__
        raise NoModel(f"{name} has no model to plan with: its actions must be Discrete to be enumerated, got {actions}.")
    return enumerate_states(inner, name, max_transitions)


def _check_wrappers(env: Any) -> None:
    """A wrapper that changes what happens makes the model below it a model of something else."""
    while env is not env.unwrapped:
        changes = isinstance(env, gymnasium.RewardWrapper | gymnasium.ActionWrapper | gymnasium.ObservationWrapper)
        if changes and not type(env).__module__.startswith("rlbook."):
            raise NoModel(f"the wrapper {type(env).__name__} changes the environment, so the model below it is not a model of it.")
        env = env.env


def _from_table(env: Any) -> TabularMDP:
    """gymnasium's `P[s][a]`: lists of (probability, next state, reward, terminated). A successor named twice is added up."""
    num_states, num_actions = len(env.P), len(env.P[0])
    entries = [
        (state, action, successor, probability, reward, terminated)
        for state in range(num_states)
        for action in range(num_actions)
        for probability, successor, reward, terminated in env.P[state][action]
    ]
    initial = getattr(env, "initial_state_distrib", None)
    return from_entries(entries, num_states, num_actions, initial=initial)
