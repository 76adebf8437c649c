"""Builds a `TabularMDP` from one entry per possible transition."""

from __future__ import annotations

from collections.abc import Iterable

from numpy.typing import ArrayLike

from rlbook.envs.tabular.mdp import TabularMDP
from rlbook.envs.tabular.mdp_checks import Entry, arrays_of_entries
from rlbook.envs.tabular.outcomes import Entries

__all__ = ["Entry", "from_entries"]


def from_entries(
    entries: Iterable[Entry] | Entries,
    num_states: int,
    num_actions: int,
    *,
    initial: ArrayLike | None = None,
    observable: bool = True,
) -> TabularMDP:
    """A model from one entry per possible transition, as tuples or as columns.

    Entries with equal state, action and next state are added up for planning;
    `TabularMDP.outcomes` keeps them apart, in their order.

    Args:
        entries: state, action, next state, probability, reward (in reward units), whether the
            episode ends.
        num_states: S.
        num_actions: A.
        initial: [S], probability of beginning there; None: every state alike.
        observable: whether states are numbered as the environment's observations are.

    Raises:
        ValueError: one sentence; see `TabularMDP.from_arrays`.
    """
    arrays, columns = arrays_of_entries(entries, num_states, num_actions, initial)
    return TabularMDP(*arrays, observable=observable, entries=columns)
