"""gymnasium's Blackjack-v1 as a tabular model, so that its values can be computed exactly.

Cards come from an infinite deck: 1 (the ace) to 9 with probability 1/13 each, 10 with 4/13. A
hand's ace counts 11 where that does not go beyond 21; then it is usable. The dealer shows one card
and draws until 17. This is the game with `sab=False` and `natural=False`, in which 21 with two
cards is worth no more than with three, so that what the player sees is all there is to know.

Source: Sutton & Barto 2018, example 5.1, but for the natural; `with_naturals` adds it.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from rlbook.envs.tabular.mdp import TabularMDP
from rlbook.envs.tabular.mdp_arrays import Entry, from_entries

SHAPE = (32, 11, 2)
"""(player's sum, dealer's card, usable ace), as in the environment's observation; a state's number
counts so, the last fastest."""
STICK, HIT = 0, 1
CARDS = {card: 4 / 13 if card == 10 else 1 / 13 for card in range(1, 11)}
"""Card → probability."""

Hand = tuple[int, bool]
"""Its sum, and whether an ace in it counts as 11."""


def blackjack_model() -> TabularMDP:
    """All 704 observations as states. 280 of them are decision points of the player; the others
    terminate with reward 0.

    Stick is action 0, hit is action 1. The reward is 1 for a win, 0 for a draw and -1 for a loss.
    """
    count = int(np.prod(SHAPE))
    entries = [entry for state in range(count) for entry in _entries(state)]
    return from_entries(entries, count, 2, initial=_starts())


def naturals_model() -> TabularMDP:
    """The game with `sab=True`, as in `gymnasium.make("Blackjack-v1")`: an ace and a ten form a
    natural, which wins unless the dealer has one too.

    The player is not shown whether 21 is a natural, so ten states follow those of `blackjack_model`,
    one for each of the dealer's cards; `observation_numbers` says what is seen in each.
    """
    count = int(np.prod(SHAPE))
    plain = [entry for state in range(count) for entry in _entries(state)]
    naturals: list[Entry] = []
    initial = np.append(_starts(), np.zeros(len(CARDS)))
    for card, shown in CARDS.items():
        state, beside = count + card - 1, number((21, True), card)
        both = {1: CARDS[10], 10: CARDS[1]}.get(card, 0.0)
        naturals.append((state, STICK, state, 1.0 - both, 1.0, True))
        if both:
            naturals.append((state, STICK, state, both, 0.0, True))
        naturals += [(state, *entry[1:]) for entry in _entries(beside) if entry[1] == HIT]
        initial[state] = 2 * CARDS[1] * CARDS[10] * shown
        initial[beside] -= initial[state]
    return from_entries(plain + naturals, count + len(CARDS), 2, initial=initial.clip(min=0.0))


def observation_numbers() -> np.ndarray:
    """The observation index of each state of `with_naturals`, [S]."""
    count = int(np.prod(SHAPE))
    return np.append(np.arange(count), [number((21, True), card) for card in CARDS])


def number(hand: Hand, card: int) -> int:
    """The index of a state."""
    return int(np.ravel_multi_index((hand[0], card, int(hand[1])), SHAPE))


def add_card(hand: Hand, card: int) -> Hand:
    """The hand after drawing one more card; its sum may be above 21."""
    total, usable = hand[0] + card, hand[1]
    if card == 1 and not usable and total + 10 <= 21:
        return total + 10, True
    return (total - 10, False) if usable and total > 21 else (total, usable)


@cache
def dealer_totals(hand: Hand) -> dict[int, float]:
    """The distribution of the dealer's final sum, as sum → probability; a bust counts as 0."""
    if hand[0] >= 17:
        return {hand[0] if hand[0] <= 21 else 0: 1.0}
    totals: dict[int, float] = {}
    for card, chance in CARDS.items():
        for total, probability in dealer_totals(add_card(hand, card)).items():
            totals[total] = totals.get(total, 0.0) + chance * probability
    return totals


def _entries(state: int) -> list[Entry]:
    total, card, usable = (int(number) for number in np.unravel_index(state, SHAPE))
    if card >= 1 and (12 if usable else 4) <= total <= 21:
        return _choices(state, (total, bool(usable)), card)
    return [(state, action, state, 1.0, 0.0, True) for action in (STICK, HIT)]


def _choices(state: int, hand: Hand, card: int) -> list[Entry]:
    entries: list[Entry] = []
    for total, probability in dealer_totals(add_card((0, False), card)).items():
        entries.append((state, STICK, state, probability, float(np.sign(hand[0] - total)), True))
    for drawn, probability in CARDS.items():
        after = add_card(hand, drawn)
        entries.append(
            (
                state,
                HIT,
                number(after, card),
                probability,
                -1.0 if after[0] > 21 else 0.0,
                after[0] > 21,
            )
        )
    return entries


def _starts() -> np.ndarray:
    """The distribution of initial states, [S]: two cards each."""
    initial = np.zeros(int(np.prod(SHAPE)))
    for first, one in CARDS.items():
        for second, two in CARDS.items():
            for card, shown in CARDS.items():
                initial[number(add_card(add_card((0, False), first), second), card)] += (
                    one * two * shown
                )
    return initial / initial.sum()
