"""What has to be known of a model before planning in it with γ = 1, where values are finite only if rewards come to an end.

Rewards end with the episode, or where one can stay for ever without being paid: such states are worth 0 at least. A policy that leads
from everywhere to one of the two has finite values, and from such a policy every improvement does.

Source: Bertsekas & Tsitsiklis 1991, doi:10.1287/moor.16.3.580 (proper policies); the states of rest are ours.
"""

from __future__ import annotations

import numpy as np

from rlbook.algorithms.planning.greedy import can_end, may_enter
from rlbook.envs.mdp import TabularMDP


def resting_states(model: TabularMDP) -> np.ndarray:
    """[S] bool: the states from which some policy collects 0 at every step for ever. They are worth 0 at least."""
    unpaid = model.rewards == 0.0
    resting = np.ones(model.num_states, dtype=bool)
    while True:
        stays = (unpaid & ~may_enter(model, ~resting)).any(axis=1)
        if (stays == resting).all():
            return resting
        resting = stays & resting


def ending_policy(model: TabularMDP, resting: np.ndarray) -> np.ndarray:
    """[S] int: actions that lead to an end, or to one of the states `resting` [S] bool, from everywhere with probability 1.

    Raises:
        ValueError: from some states neither can be reached.
    """
    ends, action = can_end(model, np.ones(model.rewards.shape, dtype=bool), resting)
    if not ends.all():
        lost = np.count_nonzero(~ends)
        raise ValueError(f"with gamma 1 no policy has finite values in {lost} states, from which nothing ends the episode.")
    return action
