"""The transitions of an environment: from Gymnasium's table `P`, or by trying every action."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import gymnasium
from gymnasium import spaces

from rlbook.envs.masked_observations import keys_beside_mask
from rlbook.envs.tabular.enumeration import ListedModel, NoModel, enumerate_states


class TableEnv(Protocol):
    """An environment with gymnasium's table `P[s][a]`: lists of (probability, next state, reward,
    terminated)."""

    P: Mapping[int, Mapping[int, Sequence[tuple[float, int, float, bool]]]]


def listed_transitions(env: gymnasium.Env, max_transitions: int) -> ListedModel:
    """The transitions of an environment that has no `model()` method; see `TabularMDP.from_env`.

    Raises:
        NoModel: it has no table `P`, and its states cannot be enumerated.
        ValueError: more than `max_transitions` pairs of a state and an action.
    """
    inner: Any = env.unwrapped
    name = inner.spec.id if inner.spec is not None else type(inner).__name__
    if getattr(inner, "fickle_passenger", False):
        raise NoModel(
            f"{name} with fickle_passenger has no model to plan with: "
            f"the passenger's change of mind is not in its table P."
        )
    if hasattr(inner, "P"):
        return _from_table(inner)
    if not (hasattr(inner, "snapshot") and hasattr(inner, "restore")):
        raise NoModel(
            f"{name} has no model to plan with: neither a table P of transition probabilities "
            f"nor snapshots to enumerate it."
        )
    if keys_beside_mask(inner.observation_space, inner.action_space):
        raise NoModel(
            f"{name} has no model to plan with: its observations hold action masks, and it can be "
            f"enumerated only where every action may be tried."
        )
    if not isinstance(inner.action_space, spaces.Discrete):
        actions = type(inner.action_space).__name__
        raise NoModel(
            f"{name} has no model to plan with: "
            f"its actions must be Discrete to be enumerated, got {actions}."
        )
    return enumerate_states(inner, name, max_transitions)


def check_wrappers(env: gymnasium.Env) -> None:
    """Raises NoModel if a wrapper changes the dynamics, so that the model of the wrapped
    environment would be wrong."""
    while isinstance(env, gymnasium.Wrapper):
        changes = isinstance(
            env,
            gymnasium.RewardWrapper | gymnasium.ActionWrapper | gymnasium.ObservationWrapper,
        )
        if changes and not type(env).__module__.startswith("rlbook."):
            raise NoModel(
                f"the wrapper {type(env).__name__} changes the environment, so the model of the "
                "wrapped environment does not describe it."
            )
        env = env.env


def _from_table(env: TableEnv) -> ListedModel:
    """The transitions in Gymnasium's `P[s][a]`: lists of (probability, next state, reward,
    terminated).

    A successor named twice is added up.
    """
    num_states, num_actions = len(env.P), len(env.P[0])
    entries = [
        (state, action, successor, probability, reward, terminated)
        for state in range(num_states)
        for action in range(num_actions)
        for probability, successor, reward, terminated in env.P[state][action]
    ]
    initial = getattr(env, "initial_state_distrib", None)
    return ListedModel(entries, num_states, num_actions, initial, observable=True)
