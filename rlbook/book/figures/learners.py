"""Many runs of one learner in a model, with the results of each episode and the trained agent."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rlbook.algorithms.tabular.tabular_agent import TableAgent, TableConfig
from rlbook.envs.tabular.mdp import TabularMDP
from rlbook.envs.tabular.tabular_env import TabularEnv
from rlbook.fast.tabular.table_interaction import TableInteraction
from rlbook.interaction.budget import Budget
from rlbook.seeding import rng_for


def learners(
    agent_class: type[TableAgent],
    config: TableConfig,
    model: TabularMDP,
    *,
    episodes: int,
    runs: int,
    seed: int,
) -> Iterator[tuple[TableAgent, np.ndarray]]:
    """Runs one after the other; run i is that of `rlbook.train` with `seed + i`.

    Args:
        agent_class: the algorithm.
        config: its hyper-parameters.
        model: what it learns in.
        episodes: E, of one run.
        runs: how many.
        seed: of the first.

    Yields:
        The agent after the last episode, and [E, 2]: return in reward units, undiscounted, and
        length in steps of each.
    """
    env, budget = TabularEnv(model), Budget(None, episodes)
    for index in range(seed, seed + runs):
        agent, interaction = (
            agent_class(env, config, index),
            TableInteraction(model, rng_for(index, "environment")),
        )
        interaction.marks = 1
        interaction.start()
        agent.begin()
        while interaction.episodes < episodes:
            interaction.advance(agent, budget)
        yield agent, np.array([episode[1:] for episode in interaction.finished])
