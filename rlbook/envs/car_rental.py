"""Jack's car rental: two locations, and each night a decision how many cars to move between
them."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy.special import gammaln, pdtrc

from rlbook.envs.option_checks import check_flag
from rlbook.envs.slot_rendering import filled_slots, slots_pixels, slots_text
from rlbook.envs.tabular.mdp import TabularMDP
from rlbook.envs.tabular.mdp_arrays import from_entries
from rlbook.envs.tabular.outcomes import Entries
from rlbook.envs.tabular.tabular_env import TabularEnv
from rlbook.envs.tabular.tabular_vector import TabularVectorEnv

CAPACITY = 20
"""The capacity of a lot, in cars."""
COUNTS = CAPACITY + 1
NUM_STATES = COUNTS * COUNTS
FURTHEST = 5
"""The largest number of cars that can be moved in one night."""
NUM_ACTIONS = 2 * FURTHEST + 1
START = 10 * COUNTS + 10

RENTAL, MOVE, PARKING = 10.0, 2.0, 4.0
"""The income from a rental; the cost of moving a car; the modified problem's cost of a lot with
more than `FREE_PARKING` cars at night."""
FREE_PARKING = 10
REQUESTS, RETURNS = (3.0, 4.0), (3.0, 2.0)
"""Average number of customers and of returned cars a day, first lot and second."""


class CarRental(TabularEnv):
    """
    ## Description
    Jack rents out cars at two places. Each night he may drive up to five from one lot to the other,
    to have them where they will be asked for. On the next day customers come, Poisson distributed,
    3 on average to the first lot and 4 to the second; each takes a car if one is left. Then 3 and 2
    cars on average are returned, and can be rented from the day after. A lot holds 20 cars; what
    does not fit leaves the problem.

    ## Action Space
    `Discrete(11)`: action a drives a - 5 cars from the first lot to the second, a negative number
    the other way. No more cars are driven than there are; `moved` [S, A] lists how many really are.

    ## Observation Space
    `Discrete(441)`: 21 · cars on the first lot + cars on the second, in the evening.

    ## Rewards
    +10 for a rental, -2 for a car driven. With `modified`, one car a night goes from the first lot
    to the second for nothing, and a lot on which more than 10 cars spend the night, after the
    driving, costs 4.

    What a step pays for rentals is the average over all days that begin and end with the same
    numbers of cars. This leaves every expectation, so every value, as it is, and makes returns a
    little less scattered than Jack's.

    ## Starting State
    10 cars on each lot, state 220.

    ## Episode End
    Termination: never. Truncation: after 100 days.

    ## Arguments
    - `modified`: the prices of exercise 4.7 in place of those of example 4.2.
    - `render_mode`: `"ansi"` (text), `"rgb_array"` (an image) or `"human"` (prints the text after
      each reset and step).

    ## Known answer
    γ = 0.9. V* of the state with

    | cars on the first lot, on the second | 0, 0 | 0, 20 | 10, 10 | 20, 0 | 20, 20 |
    |---|---|---|---|---|---|
    | example 4.2 | 421.414 | 567.769 | 574.948 | 554.948 | 636.990 |
    | `modified` | 429.946 | 563.864 | 580.964 | 559.980 | 603.537 |

    The best policy of example 4.2 is that of figure 4.2: it drives 5 cars to the second lot from
    (20, 0), 4 to the first from (0, 20), and none from (0, 0), (10, 10) or (20, 20). No probability
    is cut off, so these are exact; programs that add up the Poisson terms only to about 10 arrive
    at lower values.

    Source: Sutton & Barto 2018, example 4.2 and exercise 4.7.

    ## Version History
    - v0: first version.
    """

    action_names = tuple(f"move {cars}" for cars in range(-FURTHEST, FURTHEST + 1))

    def __init__(self, modified: bool = False, render_mode: str | None = None) -> None:
        check_flag("modified", modified)
        self.modified = modified
        self.moved = nights(modified).moved
        """[S, A] int: cars driven from the first lot to the second; negative: the other way."""
        super().__init__(car_rental_model(modified), render_mode=render_mode)

    def draw_text(self, state: int) -> str:
        counts = divmod(state, COUNTS)
        labels = [
            f"{name} lot {count:2}"
            for name, count in zip(("first ", "second"), counts, strict=True)
        ]
        return slots_text(filled_slots(np.array(counts), CAPACITY), labels)

    def draw_pixels(self, state: int) -> np.ndarray:
        beyond_free = np.arange(CAPACITY) >= (FREE_PARKING if self.modified else CAPACITY)
        return slots_pixels(
            filled_slots(np.array(divmod(state, COUNTS)), CAPACITY),
            marked=np.tile(beyond_free, (2, 1)),
        )


class CarRentalVector(TabularVectorEnv):
    """N car rentals in parallel; see `CarRental`."""

    single = CarRental


class LocationDay(NamedTuple):
    """One location's day: from the number of cars in the morning to the number in the evening."""

    chance: np.ndarray  # [21, 21]: probability of each evening, given the morning
    # [21, 21]: expected number of rentals, given morning and evening; 0 where impossible
    rentals: np.ndarray


def lot(requests: float, returns: float) -> LocationDay:
    """The day of a location whose requests and returns are Poisson with these means.

    Nothing is cut off: all the ways to run out of cars, and all the ways to fill the lot, are one
    event each, with the probability that is left. So each row adds up to 1 and the expectations are
    exact.
    """
    chance, rented = np.zeros((COUNTS, COUNTS)), np.zeros((COUNTS, COUNTS))
    for morning in range(COUNTS):
        for rentals, probability in enumerate(_capped_poisson(requests, morning)):
            kept = morning - rentals
            joint = probability * _capped_poisson(returns, CAPACITY - kept)
            chance[morning, kept:] += joint
            rented[morning, kept:] += joint * rentals
    return LocationDay(
        chance, np.divide(rented, chance, out=np.zeros_like(rented), where=chance > 0)
    )


def _capped_poisson(average: float, most: int) -> np.ndarray:
    """[most + 1]: the distribution of min(Poisson(average), most)."""
    counts = np.arange(most + 1)
    distribution = np.exp(counts * np.log(average) - average - gammaln(counts + 1))
    distribution[most] = pdtrc(most - 1, average) if most else 1.0
    return distribution


class OvernightMoves(NamedTuple):
    """The overnight effect of each action in each state."""

    # [S, A] int: cars driven from the first lot to the second; negative: the other way
    moved: np.ndarray
    first: np.ndarray  # [S, A] int: cars on the first lot in the morning
    second: np.ndarray  # [S, A] int: cars on the second
    price: np.ndarray  # [S, A], in reward units


def nights(modified: bool) -> OvernightMoves:
    """The overnight moves: never more cars than there are; cars in excess of the capacity are
    lost."""
    first, second = np.divmod(np.arange(NUM_STATES)[:, None], COUNTS)
    moved = np.clip(np.arange(NUM_ACTIONS) - FURTHEST, -second, first)
    first, second = np.minimum(first - moved, CAPACITY), np.minimum(second + moved, CAPACITY)
    price = MOVE * np.abs(moved)
    if modified:
        price = (
            price
            - MOVE * (moved > 0)
            + PARKING * (first > FREE_PARKING)
            + PARKING * (second > FREE_PARKING)
        )
    return OvernightMoves(moved, first, second, price)


@lru_cache(maxsize=2)
def car_rental_model(modified: bool) -> TabularMDP:
    """The model. The reward of an outcome is its conditional expectation: the mean income of the
    days that begin and end with these numbers of cars.

    The two lots do not influence each other during the day, so a day's table is made of two of 21 ×
    21.
    """
    night, one, two = nights(modified), lot(REQUESTS[0], RETURNS[0]), lot(REQUESTS[1], RETURNS[1])
    chance = np.kron(one.chance, two.chance)
    income = RENTAL * (
        np.repeat(np.repeat(one.rentals, COUNTS, 0), COUNTS, 1)
        + np.tile(two.rentals, (COUNTS, COUNTS))
    )
    morning = (night.first * COUNTS + night.second).ravel()
    state, action, successor = (
        index.ravel() for index in np.indices((NUM_STATES, NUM_ACTIONS, NUM_STATES))
    )
    probability, reward = (
        chance[morning].ravel(),
        (income[morning] - night.price.reshape(-1, 1)).ravel(),
    )
    entries = Entries(
        state, action, successor, probability, reward, np.zeros(len(state), dtype=bool)
    )
    return from_entries(entries, NUM_STATES, NUM_ACTIONS, initial=np.eye(NUM_STATES)[START])
