"""The maze as a `TabularMDP`, built from the same tables that `step` reads."""

from __future__ import annotations

import numpy as np

from rlbook.envs.gridworlds.maze_tables import NUM_ACTIONS, PERPENDICULAR, MazeTables
from rlbook.envs.tabular.mdp import TabularMDP
from rlbook.envs.tabular.mdp_arrays import from_entries
from rlbook.envs.tabular.outcomes import Entries


def maze_model(tables: MazeTables) -> TabularMDP:
    """P(s'|s, a), the rewards, and which transitions are terminal. The time limit is not part of
    the model.

    The outcomes of an action stand in the order in which `slipped` tries them: sideways, the other
    side, straight on. So a number drawn from [0, 1) leads to the same place here and there.
    """
    num_states = tables.layout.num_states
    chances = [
        (PERPENDICULAR[:, 0], tables.slip / 2),
        (PERPENDICULAR[:, 1], tables.slip / 2),
        (np.arange(NUM_ACTIONS), 1 - tables.slip),
    ]
    possible = [(taken, chance) for taken, chance in chances if chance > 0]
    taken = np.column_stack([taken for taken, _ in possible])

    state = np.arange(num_states).repeat(taken.size)
    action = np.tile(np.arange(NUM_ACTIONS).repeat(len(possible)), num_states)
    successor, reward = tables.next_state[:, taken].ravel(), tables.reward[:, taken].ravel()
    probability = np.tile([chance for _, chance in possible], num_states * NUM_ACTIONS)

    initial = np.zeros(num_states)
    initial[tables.layout.start] = 1.0
    entries = Entries(state, action, successor, probability, reward, tables.terminal[successor])
    return from_entries(entries, num_states, NUM_ACTIONS, initial=initial)
