"""Where a search takes its steps: in the environment's table, or in the fastest copy of it."""

from __future__ import annotations

import gymnasium
from gymnasium import spaces
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker, TimeLimit

from rlbook.algorithms.planning.search.simulators import (
    Act,
    CopySimulator,
    FieldSimulator,
    Simulator,
    SnapshotSimulator,
)
from rlbook.algorithms.planning.table_model import TableModel
from rlbook.envs.tabular.mdp import TabularMDP
from rlbook.interaction.action_masks import (
    mask_table,
    shows_action_mask,
)
from rlbook.interaction.observed_masks import wrap_observed_mask

World = TableModel | Simulator
"""The simulator of a search."""
FIELDS: dict[str, tuple[str, ...]] = {
    "gymnasium.envs.classic_control.cartpole.CartPoleEnv": ("state", "steps_beyond_terminated"),
    "gymnasium.envs.classic_control.mountain_car.MountainCarEnv": ("state",),
    "gymnasium.envs.classic_control.continuous_mountain_car.Continuous_MountainCarEnv": ("state",),
    "gymnasium.envs.classic_control.acrobot.AcrobotEnv": ("state",),
    "gymnasium.envs.classic_control.pendulum.PendulumEnv": ("state", "last_u"),
    "gymnasium.envs.toy_text.frozen_lake.FrozenLakeEnv": ("s", "lastaction"),
    "gymnasium.envs.toy_text.cliffwalking.CliffWalkingEnv": ("s", "lastaction"),
}
"""Class → the attributes that a step replaces, and never changes in place."""


def simulator_of(env: gymnasium.Env, act: Act | None, num_actions: int) -> TableModel | Simulator:
    """The simulator for an agent's search: the table if the environment has one and shows its
    state, otherwise the fastest kind of copy.

    Args:
        env: the real environment, as an agent gets it; later it must be where the observation given
            to a search came from.
        act, num_actions: as for `Simulator`.

    Raises:
        ValueError: the environment can be neither tabulated nor copied.
    """
    while isinstance(env, gymnasium.Wrapper) and _is_of_the_run(env):
        env = env.env
    model, inner, shown = _model_of(env), env.unwrapped, env.observation_space
    if model is not None and model.num_actions == num_actions:
        assert isinstance(shown, spaces.Discrete)
        masks = mask_table(env, range(shown.start, shown.start + model.num_states))
        if masks is not None or not shows_action_mask(env):
            return TableModel(model, int(shown.start), masks)
    if not _has_only_checks(env):
        return CopySimulator(env, act, num_actions)
    inner = wrap_observed_mask(inner)
    name = f"{type(inner).__module__}.{type(inner).__qualname__}"
    if name in FIELDS:
        return FieldSimulator(inner, act, num_actions, FIELDS[name])
    if all(callable(getattr(inner.unwrapped, name, None)) for name in ("snapshot", "restore")):
        return SnapshotSimulator(inner, act, num_actions)
    return CopySimulator(inner, act, num_actions)


def _is_of_the_run(wrapper: gymnasium.Wrapper) -> bool:
    """Whether a wrapper is one that a run puts around any environment; those of `rlbook.envs` are
    part of an environment, and change what it shows.
    """
    module = type(wrapper).__module__
    return module.startswith("rlbook.") and not module.startswith("rlbook.envs.")


def _model_of(env: gymnasium.Env) -> TabularMDP | None:
    """The table, if there is one at no cost and its states are the environment's observations."""
    inner, shown = env.unwrapped, env.observation_space
    if not isinstance(shown, spaces.Discrete) or not (
        callable(getattr(inner, "model", None)) or hasattr(inner, "P")
    ):
        return None
    try:
        model = TabularMDP.from_env(env)
    except ValueError:  # a wrapper changes what happens
        return None
    return (
        model
        if isinstance(model, TabularMDP) and model.observable and model.num_states == shown.n
        else None
    )


def _has_only_checks(env: gymnasium.Env) -> bool:
    """Whether all wrappers can be left out of a search."""
    while isinstance(env, gymnasium.Wrapper):
        if type(env) not in (TimeLimit, OrderEnforcing, PassiveEnvChecker):
            return False
        env = env.env
    return True
