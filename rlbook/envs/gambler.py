"""The gambler: how much to stake on an unfair coin in order to reach a capital of 100."""

from __future__ import annotations

import numpy as np

from rlbook.envs.option_checks import check_probability
from rlbook.envs.slot_rendering import filled_slots, slots_pixels, slots_text
from rlbook.envs.tabular.mdp import TabularMDP
from rlbook.envs.tabular.mdp_arrays import from_entries
from rlbook.envs.tabular.outcomes import Entries
from rlbook.envs.tabular.tabular_env import TabularEnv
from rlbook.envs.tabular.tabular_vector import TabularVectorEnv

TARGET = 100
NUM_STATES = TARGET + 1
NUM_ACTIONS = TARGET // 2
SIDE = 10
"""The number of coins per line of the picture."""


class Gambler(TabularEnv):
    """
    ## Description
    A gambler bets on the flips of a coin. Heads wins as much as was staked, tails loses the stake.
    The game is won with a capital of 100 and lost with a capital of 0. Heads is usually the less
    likely side, and the question is how much to stake.

    ## Action Space
    `Discrete(50)`: action a stakes a + 1. What is more than the capital, or more than is missing to
    100, is not staked: action a in state s stakes min(a + 1, s, 100 - s), which `stakes` [S, A]
    lists. So each stake that the rules allow has an action, no action has any other, and the
    optimum is that of the rules. Several actions may mean the same stake; the lowest of them is the
    stake minus 1.

    ## Observation Space
    `Discrete(101)`: the capital.

    ## Rewards
    +1 for reaching 100, otherwise 0. So without discounting a value is the probability of winning.

    ## Starting State
    A capital from 1 to 99, each with equal probability.

    ## Episode End
    Termination: a capital of 0 or 100. Truncation: after 10000 steps.

    ## Arguments
    - `heads_probability`: probability that the coin comes up heads, in [0, 1].
    - `render_mode`: `"ansi"` (text), `"rgb_array"` (an image) or `"human"` (prints the text after
      each reset and step).

    ## Known answer
    γ = 1. For a heads probability of 0.4, V* is 0.16 at 25, 0.4 at 50 and 0.64 at 75: 0.4², 0.4 and
    0.4 + 0.6 · 0.4. It is 0.002066 at 1, 0.403098 at 51 and 0.964333 at 99. The only best stake is
    25 at 25, 50 at 50 and 25 at 75; at 51 both 1 and 49 are best (figure 4.3). For 0.5, V*(s) = s /
    100 whatever is staked; for 0.55, staking 1 is best everywhere, and V*(50) is 0.999956.

    Many stakes come within 1e-12 of each other, so a policy is to be compared with a tolerance.

    Source: Sutton & Barto 2018, example 4.3. There a stake of 0 is allowed too; it wins nothing and
    is left out.

    ## Version History
    - v0: first version.
    """

    action_names = tuple(f"stake {stake}" for stake in range(1, NUM_ACTIONS + 1))

    def __init__(self, heads_probability: float = 0.4, render_mode: str | None = None) -> None:
        check_probability("heads_probability", heads_probability)
        self.stakes = gambler_stakes()
        """[S, A] int: the stake of each action."""
        super().__init__(gambler_model(float(heads_probability)), render_mode=render_mode)

    def draw_text(self, state: int) -> str:
        return f"capital {state} of {TARGET}\n{slots_text(_coins(state))}"

    def draw_pixels(self, state: int) -> np.ndarray:
        return slots_pixels(_coins(state), discs=True)


class GamblerVector(TabularVectorEnv):
    """N gamblers in parallel; see `Gambler`."""

    single = Gambler


def _coins(capital: int) -> np.ndarray:
    """[10, 10] bool."""
    return filled_slots(np.clip(capital - SIDE * np.arange(TARGET // SIDE), 0, SIDE), SIDE)


def gambler_stakes() -> np.ndarray:
    """The actual stake of each action, min(a + 1, s, 100 - s), [S, A] int; 0 in terminal states."""
    capital = np.arange(NUM_STATES)[:, None]
    return np.minimum(np.arange(1, NUM_ACTIONS + 1), np.minimum(capital, TARGET - capital))


def gambler_model(heads_probability: float) -> TabularMDP:
    """The model; heads comes before tails in the order of sampling."""
    stakes = gambler_stakes()
    state, action = (index.ravel() for index in np.indices(stakes.shape))
    over = (state == 0) | (state == TARGET)
    heads, tails = state + stakes.ravel(), state - stakes.ravel()
    successor = np.stack([heads, tails], axis=1)
    reward = ((successor == TARGET) & ~over[:, None]).astype(float)
    probability = np.tile([heads_probability, 1.0 - heads_probability], len(state))
    entries = Entries(
        state.repeat(2),
        action.repeat(2),
        successor.ravel(),
        probability,
        reward.ravel(),
        np.isin(successor, (0, TARGET)).ravel(),
    )
    playing = np.arange(NUM_STATES) % TARGET != 0
    return from_entries(entries, NUM_STATES, NUM_ACTIONS, initial=playing / playing.sum())
