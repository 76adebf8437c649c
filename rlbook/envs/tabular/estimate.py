"""A model estimated from experience: the empirical frequencies of outcomes, and their mean
rewards."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from rlbook.envs.tabular.mdp import TabularMDP
from rlbook.envs.tabular.mdp_arrays import from_entries
from rlbook.envs.tabular.outcomes import Entries


class TransitionCounts:
    """The maximum-likelihood model of S states and A actions, from observed transitions.

        P(s', end | s, a) = N(s, a, s', end) / N(s, a),    r(s, a, s', end) = the mean of the rewards seen there

    Only what was seen takes memory: K different outcomes. For a pair that was never tried nothing
    can be counted; `model` is told what such a pair is worth. One that an action mask forbids
    cannot be taken in the model either.
    """

    def __init__(self, num_states: int, num_actions: int) -> None:
        self.num_states, self.num_actions = num_states, num_actions
        self.keys = np.zeros(0, dtype=np.int64)
        """[K]: ((s · A + a) · S + s') · 2 + end of each outcome seen, in order."""
        self.counts = np.zeros(0, dtype=np.int64)
        """[K]: the number of times each was seen."""
        self.rewards = np.zeros(0)
        """[K]: the total reward of each, in reward units."""
        self.starts = np.zeros(num_states, dtype=np.int64)
        """[S]: the number of episodes that began in each state."""
        self.largest_reward = 0.0
        """The largest reward seen; 0 if none was positive."""
        self._allowed: dict[int, np.ndarray] = {}  # state → [A] bool, where a mask was shown

    def add(
        self,
        states: ArrayLike,
        actions: ArrayLike,
        rewards: ArrayLike,
        successors: ArrayLike,
        ended: ArrayLike,
    ) -> None:
        """Counts n steps in order. All arguments are [n]; `ended` is True where the episode
        terminated."""
        states, actions, successors = (
            np.asarray(column, dtype=np.int64) for column in (states, actions, successors)
        )
        rewards = np.asarray(rewards, dtype=np.float64)
        fresh = (
            (states * self.num_actions + actions) * self.num_states + successors
        ) * 2 + np.asarray(ended, dtype=np.int64)
        self.keys, place = np.unique(np.concatenate([self.keys, fresh]), return_inverse=True)
        counts = np.concatenate([self.counts, np.ones(len(fresh), dtype=np.int64)])
        self.counts = np.bincount(place, weights=counts).astype(np.int64)
        self.rewards = np.bincount(place, weights=np.concatenate([self.rewards, rewards]))
        self.largest_reward = max(self.largest_reward, float(rewards.max(initial=0.0)))

    def note_mask(self, state: int, action_mask: np.ndarray) -> None:
        """Records the action mask of a state, [A] bool; the latest mask counts."""
        self._allowed[int(state)] = action_mask

    @property
    def forbidden_pairs(self) -> np.ndarray:
        """Indices s · A + a of pairs that the masks forbid, sorted; pairs that were tried
        nevertheless are not included."""
        pairs = [
            state * self.num_actions + np.flatnonzero(~mask)
            for state, mask in self._allowed.items()
        ]
        return (
            np.setdiff1d(np.concatenate(pairs), self.known_pairs)
            if pairs
            else np.zeros(0, dtype=np.int64)
        )

    @property
    def known_pairs(self) -> np.ndarray:
        """Indices s · A + a of the pairs tried so far, sorted."""
        return np.unique(self.keys // (2 * self.num_states))

    @property
    def seen_states(self) -> np.ndarray:
        """The states encountered so far, sorted, as the source or the successor of a transition."""
        return np.union1d(self.known_pairs // self.num_actions, self.keys // 2 % self.num_states)

    def model(self, unseen_value: float = 0.0, states: np.ndarray | None = None) -> TabularMDP:
        """The estimated model.

        Args:
            unseen_value: what a pair that was never tried is worth, in reward units: it pays this
                and ends the episode. For γ < 1, 0 gives the same values as staying in place without
                reward.
            states: [M], in order, the states to make it of, such as `seen_states`; the m-th is the
                model's state m. None: all of them.
        """
        states = np.arange(self.num_states) if states is None else states
        successor, ended = self.keys // 2 % self.num_states, self.keys % 2 == 1
        pair = self.keys // (2 * self.num_states)
        total = np.bincount(np.unique(pair, return_inverse=True)[1], weights=self.counts)
        probability = self.counts / np.repeat(total, np.unique(pair, return_counts=True)[1])
        row = (
            np.searchsorted(states, pair // self.num_actions) * self.num_actions
            + pair % self.num_actions
        )
        unseen = np.setdiff1d(np.arange(len(states) * self.num_actions), row)
        rows = np.concatenate([row, unseen])
        entries = Entries(
            rows // self.num_actions,
            rows % self.num_actions,
            np.concatenate([np.searchsorted(states, successor), unseen // self.num_actions]),
            np.concatenate([probability, np.ones(len(unseen))]),
            np.concatenate([self.rewards / self.counts, np.full(len(unseen), float(unseen_value))]),
            np.concatenate([ended, np.ones(len(unseen), dtype=bool)]),
        )
        begun = self.starts[states]
        model = from_entries(
            entries,
            len(states),
            self.num_actions,
            initial=begun / begun.sum() if begun.any() else None,
        )
        pairs = self.forbidden_pairs
        shown = np.isin(pairs // self.num_actions, states)
        state, action = np.divmod(pairs[shown], self.num_actions)
        model.rewards[np.searchsorted(states, state), action] = -np.inf
        return model

    def snapshot(self) -> dict[str, Any]:
        """All state needed to continue counting."""
        return {
            "keys": self.keys,
            "counts": self.counts,
            "rewards": self.rewards,
            "starts": self.starts.copy(),
            "largest_reward": self.largest_reward,
            "forbidden": self.forbidden_pairs,
        }

    def restore(self, snapshot: dict[str, Any]) -> None:
        """The inverse of `snapshot`."""
        if snapshot["starts"].shape != (self.num_states,):
            raise ValueError(
                f"starts must have shape [{self.num_states}], got {list(snapshot['starts'].shape)}."
            )
        self.keys, self.counts, self.rewards = (
            snapshot["keys"],
            snapshot["counts"],
            snapshot["rewards"],
        )
        self.starts, self.largest_reward = (
            snapshot["starts"].copy(),
            float(snapshot["largest_reward"]),
        )
        self._allowed = {}
        for pair in snapshot.get("forbidden", ()):
            state, action = divmod(int(pair), self.num_actions)
            self._allowed.setdefault(state, np.ones(self.num_actions, dtype=bool))[action] = False
