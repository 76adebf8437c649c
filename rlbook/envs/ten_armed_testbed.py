"""The ten-armed testbed: a bandit problem with ten slot machines and noisy rewards."""

from __future__ import annotations

import numpy as np

from rlbook.envs.option_checks import check_integer, check_number
from rlbook.envs.tabular.mdp import TabularMDP
from rlbook.envs.tabular.mdp_arrays import from_entries
from rlbook.envs.tabular.outcomes import Entries
from rlbook.envs.tabular.tabular_env import TabularEnv
from rlbook.envs.tabular.tabular_vector import TabularVectorEnv


class TenArmedTestbed(TabularEnv):
    """
    ## Description
    A bandit: each action is a slot machine whose payments vary around a mean of its own, and
    nothing else matters. The means are not known and do not change. Pulling the machine that looks
    best earns the most today; pulling another may show that it is better.

    ## Action Space
    `Discrete(arms)`: which machine to pull.

    ## Observation Space
    `Discrete(1)`: there is nothing to see.

    ## Rewards
    N(q*(a), 1), where `means` [A] holds q*.

    ## Starting State
    Always 0.

    ## Episode End
    Termination: after each pull, so an episode's return is one reward.

    ## Arguments
    - `problem`: which of the test bed's problems, an integer of at least 0. Its means are drawn
      from N(mean, 1) by `numpy.random.default_rng(problem)`.
    - `arms`: number of machines, at least 2.
    - `mean`: around which the means are drawn, in reward units.
    - `render_mode`: `"ansi"` (text), `"rgb_array"` (an image) or `"human"` (prints the text after
      each reset and step).

    ## Known answer
    V* is the largest mean. In problem 0 it is 1.304000, of action 6; random actions are worth
    0.084680. Over all problems V* averages 1.538753, the mean of the largest of ten standard normal
    numbers, and random actions average 0.

    Source: Sutton & Barto 2018, section 2.3.

    ## Version History
    - v0: first version.
    """

    def __init__(
        self, problem: int = 0, arms: int = 10, mean: float = 0.0, render_mode: str | None = None
    ) -> None:
        self.means = machine_means(problem, arms, mean)
        """[A]: q*(a), in reward units."""
        super().__init__(machine_model(self.means), render_mode=render_mode)
        self.action_names = tuple(f"machine {arm}" for arm in range(len(self.means)))


class TenArmedTestbedVector(TabularVectorEnv):
    """N copies of the same problem in parallel; see `TenArmedTestbed`."""

    single = TenArmedTestbed


def machine_means(problem: int, arms: int = 10, mean: float = 0.0) -> np.ndarray:
    """The true action values q* of one problem: [A], in reward units. Raises ValueError if an
    argument is out of range."""
    check_integer("problem", problem, 0)
    check_integer("arms", arms, 2)
    check_number("mean", mean)
    return mean + np.random.default_rng(int(problem)).standard_normal(int(arms))


def machine_model(means: np.ndarray) -> TabularMDP:
    """The model: one state, in which every action terminates with a noisy reward."""
    arms = len(means)
    zeros, ones = np.zeros(arms, dtype=np.int64), np.ones(arms)
    entries = Entries(zeros, np.arange(arms), zeros, ones, means, ones.astype(bool), ones)
    return from_entries(entries, 1, arms, initial=[1.0])
