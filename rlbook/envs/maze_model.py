"""The maze as a `TabularMDP`, built from the very tables that `step` reads."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from rlbook.envs.maze_tables import NUM_ACTIONS, PERPENDICULAR, MazeTables
from rlbook.envs.mdp import TabularMDP


def maze_model(tables: MazeTables) -> TabularMDP:
    """P(s'|s, a), expected rewards, and which states end the episode. The time limit is no part of the model."""
    num_states = tables.layout.num_states
    taken = np.column_stack([np.arange(NUM_ACTIONS), PERPENDICULAR])
    probability = np.array([1 - tables.slip, tables.slip / 2, tables.slip / 2])
    rewards = tables.reward[:, taken] @ probability

    row = np.arange(num_states * NUM_ACTIONS).repeat(len(probability))
    column = tables.next_state[:, taken].ravel()
    value = np.tile(probability, num_states * NUM_ACTIONS)
    transitions = sparse.csr_array((value, (row, column)), shape=(num_states * NUM_ACTIONS, num_states))

    initial = np.zeros(num_states)
    initial[tables.layout.start] = 1.0
    return TabularMDP.from_arrays(transitions, rewards, terminal=tables.terminal, initial=initial)
