"""One agent, many independent runs in a model: learning curves as arrays, for figures and for
claims about averages.

    curves = value_curves(NStepTD, NStepTDConfig(n=4, alpha=Constant(0.4), gamma=1.0), walk,
    episodes=10, runs=1000)
    error = np.sqrt(((curves - exact) ** 2).mean(axis=2))            # [runs, episodes + 1]

Run i learns what `rlbook.train(..., episodes=episodes, seed=seed + i)` learns, to the bit.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from rlbook.algorithms.tabular.control_agent import ControlAgent
from rlbook.algorithms.tabular.off_policy_mc import OffPolicyMC
from rlbook.algorithms.tabular.prediction.prediction_agent import PredictionAgent
from rlbook.algorithms.tabular.tabular_agent import TableAgent, TableConfig
from rlbook.envs.tabular.mdp import TabularMDP
from rlbook.envs.tabular.tabular_env import TabularEnv
from rlbook.fast.compiled import link_globals
from rlbook.fast.tabular.curves import record
from rlbook.fast.tabular.simulation import CHUNK, SimulationClock, simulate
from rlbook.fast.tabular.table_interaction import TableInteraction
from rlbook.interaction.budget import Budget
from rlbook.seeding import rng_for

LARGE = 1_000
"""The number of entries of an agent's tables from which arrays are used. In plain Python lists are
faster than arrays, but not if so many change in every episode."""


def value_curves(
    agent_class: type[TableAgent],
    config: TableConfig,
    model: TabularMDP,
    *,
    episodes: int,
    runs: int,
    seed: int = 0,
    time_limit: int | None = None,
    states: slice = slice(None),
) -> np.ndarray:
    """`agent.values()` before the first episode and after each.

    Args:
        agent_class: the algorithm.
        config: its hyper-parameters; schedules go from the first to the last episode.
        model: what it learns in.
        episodes: E, of one run.
        runs: how many, with seeds `seed`, `seed + 1`, ...
        time_limit: of an episode, in steps; None for none.
        states: the states whose values are wanted, K of them; all of a large table after each
            episode would be much.

    Returns:
        [runs, E + 1, K], in reward units.
    """
    curves = np.empty((runs, episodes + 1, len(range(model.num_states)[states])))
    for curve, (agent, interaction) in zip(
        curves, _starts(agent_class, config, model, runs, seed, time_limit), strict=True
    ):
        curve[0] = agent.values()[states]
        at_once = interaction.compiled or sum(table.size for table in agent.memory) > LARGE
        shape = _table_rows(agent, states).shape if at_once else ()
        if len(shape) == 1:
            _record(agent, interaction, curve[1:], states)
        elif len(shape) == 2:
            tables = np.empty((episodes, math.prod(shape)))
            _record(agent, interaction, tables, states)
            curve[1:] = tables.reshape(episodes, *shape).max(axis=2)
        else:
            _record_after_each(agent, interaction, curve[1:], states)
    return curves


def returns(
    agent_class: type[TableAgent],
    config: TableConfig,
    model: TabularMDP,
    *,
    episodes: int,
    runs: int,
    seed: int = 0,
    time_limit: int | None = None,
) -> np.ndarray:
    """The return of each training episode, undiscounted: [runs, E], in reward units. Arguments as
    for `value_curves`."""
    budget, out = Budget(None, episodes), np.empty((runs, episodes))
    for row, (agent, interaction) in zip(
        out, _starts(agent_class, config, model, runs, seed, time_limit), strict=True
    ):
        interaction.at_once = episodes
        while interaction.episodes < episodes:
            interaction.advance(agent, budget)
        row[:] = [episode[1] for episode in interaction.finished]
    return out


class EpisodeInteraction(TableInteraction):
    """Runs whole episodes, `at_once` of them per call."""

    marks = 1
    at_once = 1

    def _clock(self, budget: Budget, progress: float) -> SimulationClock:
        clock = super()._clock(budget, progress)
        return clock._replace(last_episode=min(clock.last_episode, self.episodes + self.at_once))


def _starts(
    agent_class: type[TableAgent],
    config: TableConfig,
    model: TabularMDP,
    runs: int,
    seed: int,
    time_limit: int | None,
) -> Iterator[tuple[TableAgent, EpisodeInteraction]]:
    env = TabularEnv(model)
    for index in range(seed, seed + runs):
        agent = agent_class(env, config, index)
        interaction = EpisodeInteraction(model, rng_for(index, "environment"), time_limit)
        interaction.start()
        agent.begin()
        yield agent, interaction


def _table_rows(agent: TableAgent, states: slice) -> np.ndarray:
    """The rows of the table from which `agent.values()` is read, V [K] or Q [K, A]; empty [] if it
    is computed from more than that."""
    kind: Any = type(agent)
    if isinstance(agent, OffPolicyMC) and agent.is_prediction:
        return agent.memory.v[states]
    if isinstance(agent, ControlAgent) and (kind.values, kind.action_values) == (
        ControlAgent.values,
        ControlAgent.action_values,
    ):
        return agent.memory.q[states]
    if isinstance(agent, PredictionAgent) and kind.values is PredictionAgent.values:
        return agent.memory.v[states]
    return np.empty(())


def _record_after_each(
    agent: TableAgent, interaction: TableInteraction, curve: np.ndarray, states: slice
) -> None:
    budget = Budget(None, len(curve))
    while interaction.episodes < len(curve):
        before = interaction.episodes
        interaction.advance(agent, budget)
        if interaction.episodes > before:
            curve[before] = agent.values()[states]


def _record(
    agent: TableAgent, interaction: TableInteraction, curve: np.ndarray, states: slice
) -> None:
    """As `_record_after_each`, for many episodes in one call. `curve` is [E, K], where K is the number
    of entries of the table."""
    (choose, update), outcomes, row = agent.functions(), interaction._tables, np.empty((1, 3))
    how = "compiled" if interaction.compiled else "arrays"
    loop = link_globals(record, how, run=link_globals(simulate, how, choose=choose, update=update))
    state, episode_return, length, steps, done, budget = (
        interaction.obs,
        0.0,
        0,
        0,
        0,
        Budget(None, len(curve)),
    )
    while done < len(curve):
        agent.make_room(CHUNK)
        clock = interaction._clock(budget, 0.0)._replace(
            steps=steps, episodes=done, last_step=steps + CHUNK, last_episode=len(curve)
        )
        table = _table_rows(agent, states).reshape(-1)
        state, episode_return, length, steps, done = loop(
            outcomes,
            agent.memory,
            agent.settings,
            agent.rng,
            interaction.world_rng,
            state,
            episode_return,
            length,
            clock,
            row,
            table,
            curve[done:],
        )
