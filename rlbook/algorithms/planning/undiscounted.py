"""Checks before planning with γ = 1, because values may then be infinite.

Rewards stop when the episode ends, or in states where the agent can stay forever without reward:
such states have value 0 or more. A policy that reaches one of the two from everywhere has finite
values, and so has every improvement of it.

If a policy can stay forever with a positive average reward per step, values are infinite: value
iteration would add that reward at each sweep.

Source: Bertsekas & Tsitsiklis 1991, doi:10.1287/moor.16.3.580 (proper policies); Puterman 1994,
section 8.2 (gain). The resting states are ours.
"""

from __future__ import annotations

import numpy as np
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from rlbook.algorithms.planning.greedy import can_end, may_enter
from rlbook.envs.tabular.mdp import TabularMDP

AVERAGED = 200
"""The number of means of the reward before and after a step, taken to find the reward per step."""


def resting_states(model: TabularMDP) -> np.ndarray:
    """[S] bool: the states from which some policy collects 0 at every step forever.

    They are worth 0 at least.
    """
    unpaid = model.rewards == 0.0
    resting = np.ones(model.num_states, dtype=bool)
    while True:
        stays = (unpaid & ~may_enter(model, ~resting)).any(axis=1)
        if (stays == resting).all():
            return resting
        resting = stays & resting


def ending_policy(model: TabularMDP, resting: np.ndarray) -> np.ndarray:
    """[S] int: actions that lead to an end, or to one of the states `resting` [S] bool, from
    everywhere with probability 1.

    Raises:
        ValueError: from some states neither can be reached.
    """
    every = np.ones(model.rewards.shape, dtype=bool)
    possible = every if model.feasible is None else model.feasible
    ends, action = can_end(model, possible, resting)
    if not ends.all():
        lost = np.count_nonzero(~ends)
        raise ValueError(
            f"with gamma 1 no policy has finite values in {lost} states, from which nothing ends "
            "the episode."
        )
    return action


def gaining_states(model: TabularMDP, values: np.ndarray) -> tuple[int, float]:
    """How many states the greedy policy never leaves while it is paid, and the least it is paid.

    The states it never leaves are the closed classes of its chain. The mean of a reward there and
    after one step, taken again and again, approaches the reward a step from both sides.

    Args:
        values: V, [S], in reward units, that the policy is greedy by.

    Returns:
        The number of states, and the mean reward a step, in reward units; 0 and 0 if there is none.
    """
    policy = model.backup(values, 1.0).argmax(axis=1)
    chain, rewards = model.chain(policy)
    _, label = connected_components(chain, connection="strong")
    left = sparse.coo_array(chain)
    closed = np.ones(label.max() + 1, dtype=bool)
    closed[label[left.row[(label[left.row] != label[left.col]) & (left.data > 0)]]] = False
    closed[label[model.ends[np.arange(model.num_states), policy] > 0]] = False
    gain = np.where(closed[label], rewards, 0.0)
    for _ in range(AVERAGED):
        gain = (gain + chain @ gain) / 2
    least = np.full(len(closed), np.inf)
    np.minimum.at(least, label, gain)
    paid = closed & (least > 1e-9 * np.abs(rewards).max())
    return int(paid[label].sum()), float(least[paid].min(initial=np.inf)) if paid.any() else 0.0
