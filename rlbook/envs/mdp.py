"""Finite Markov decision processes as arrays, which is what planning works on."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import splu

from rlbook.envs.outcomes import Entries, Outcomes, outcomes_of_arrays, outcomes_of_entries

TOLERANCE = 1e-8
"""How far the probabilities of a row may be from adding up to 1."""


class TabularMDP:
    """A model with S states and A actions: P(s'|s, a), expected rewards, and which transitions end the episode.

    Ending belongs to a transition, not to a state, because some environments (Taxi) enter one state in both ways. What the
    equations need is `continues`: the transitions with those left out that end the episode, so that

        Q(s, a) = r(s, a) + γ Σ_s' continues(s'|s, a) V(s')

    never bootstraps from beyond an end. Its rows are stored action-major (row `a * S + s`): then the maximum over actions
    runs along whole rows of length S. Time limits are no part of a model.

    Make one with `from_env` or `from_arrays`.
    """

    def __init__(
        self,
        transitions: sparse.csr_array,
        rewards: np.ndarray,
        continues: sparse.csr_array,
        initial: np.ndarray,
        observable: bool = True,
        entries: Entries | None = None,
    ) -> None:
        self.transitions = transitions
        """[S·A, S] CSR, row `s * A + a`: P(s'|s, a); each row adds up to 1."""
        self.rewards = rewards
        """[S, A]: expected reward, in reward units."""
        self.initial = initial
        """[S]: where episodes begin, as probabilities."""
        self.observable = observable
        """Whether the states are numbered as the environment's observations are."""
        self._entries = entries
        self._continues = action_major(continues, self.num_actions)
        self._rewards = np.ascontiguousarray(rewards.T)
        ends = 1.0 - np.asarray(self._continues.sum(axis=1)).reshape(self.num_actions, self.num_states).T
        self.ends = np.where(ends > TOLERANCE, ends, 0.0)
        """[S, A]: probability that the action ends the episode."""
        self.terminal = ((ends > 1.0 - TOLERANCE) & (self.rewards == 0.0)).all(axis=1)
        """[S] bool: states in which nothing is left to gain, since every action ends the episode and pays 0."""

    @property
    def num_states(self) -> int:
        """S."""
        return self.rewards.shape[0]

    @property
    def num_actions(self) -> int:
        """A."""
        return self.rewards.shape[1]

    @property
    def continues(self) -> sparse.csr_array:
        """[A·S, S] CSR, row `a * S + s`: P(s'|s, a) without the transitions that end the episode."""
        return self._continues

    @classmethod
    def from_arrays(cls, transitions: Any, rewards: Any, *, terminal: Any = None, initial: Any = None) -> TabularMDP:
        """A model from arrays.

        Args:
            transitions: [S·A, S], sparse or dense; row `s * A + a` holds P(·|s, a).
            rewards: [S, A], expected reward, in reward units.
            terminal: [S] bool; entering one of these ends the episode, and what their own rows say is ignored. None: no state is.
            initial: [S], probability of beginning there. None: every state that is not terminal alike.

        Raises:
            ValueError: one sentence: shapes that do not fit, a probability below 0, a row that does not add up to 1, NaN or infinity.
        """
        from rlbook.envs.mdp_arrays import from_arrays

        return from_arrays(transitions, rewards, terminal=terminal, initial=initial)

    @classmethod
    def from_env(cls, env: Any, *, max_transitions: int = 1_000_000) -> TabularMDP:
        """The model of an environment; its time limit is left out.

        Three kinds of environment have one: those with a method `model()` (the maze), those with gymnasium's table `P` (FrozenLake,
        CliffWalking, Taxi), and deterministic ones with `snapshot()` and `restore()`, which are enumerated from their start.

        Args:
            env: a gymnasium environment, wrapped or not.
            max_transitions: how many state-action pairs an enumeration may visit.

        Raises:
            ValueError: one sentence saying why there is no model, or how many states were found when the limit was reached.
        """
        from rlbook.envs.mdp_sources import from_env

        return from_env(env, max_transitions=max_transitions)

    @cached_property
    def outcomes(self) -> Outcomes:
        """The transitions as a sampler needs them. Built when first asked for; a model made from arrays pays its expected reward."""
        if self._entries is not None:
            return outcomes_of_entries(self._entries, self.num_states, self.num_actions, self.initial)
        order = np.arange(self.num_states * self.num_actions).reshape(self.num_actions, self.num_states).T.ravel()
        return outcomes_of_arrays(self.transitions, self.continues[order], self.rewards, self.initial)

    def __deepcopy__(self, memo: Any) -> TabularMDP:
        """The model itself: nothing changes it once it is made."""
        return self

    def backup(self, values: np.ndarray, gamma: float) -> np.ndarray:
        """Q(s, a) = r(s, a) + γ Σ_s' continues(s'|s, a) V(s'). The Bellman backup, whatever V is.

        Args:
            values: V, [S], in reward units.
            gamma: γ, discount per step, in [0, 1].

        Returns:
            [S, A], in reward units.

        Source: Bellman 1957; Sutton & Barto 2018, eq. 4.10 before the maximum.
        """
        action_values = self.expectation(values)
        action_values *= gamma
        action_values += self._rewards.T  # both lie action-major in memory
        return action_values

    def expectation(self, values: np.ndarray) -> np.ndarray:
        """Σ_s' continues(s'|s, a) V(s'): [S] → [S, A], a new array."""
        return (self._continues @ values).reshape(self.num_actions, self.num_states).T

    def policy_values(self, policy: np.ndarray, gamma: float) -> np.ndarray:
        """V^π, exactly: the solution of (I - γ P_π) V = r_π, where P_π leaves out what ends the episode.

        Args:
            policy: [S, A] probabilities, or [S] integers for a deterministic policy.
            gamma: γ, discount per step, in [0, 1].

        Returns:
            [S], in reward units.

        Raises:
            ValueError: with γ = 1, if from some state the policy may never end the episode.

        Source: Sutton & Barto 2018, eq. 4.4 read as a linear system.
        """
        policy = self._as_probabilities(policy)
        return self._solve(policy, (policy * self._rewards).sum(axis=0), gamma)

    def expected_steps(self, policy: np.ndarray) -> np.ndarray:
        """[S]: how many steps the policy takes on average until the episode ends. Arguments and errors as for `policy_values`."""
        steps = np.where(self.terminal, 0.0, 1.0)
        return self._solve(self._as_probabilities(policy), steps, gamma=1.0)

    def reachable(self) -> np.ndarray:
        """[S] bool: states that some sequence of actions leads to, the initial ones and those that end the episode included."""
        visited, entered = self.initial > 0, self.initial > 0
        while entered.any():
            entered = self._successors(entered, self._continues) & ~visited
            visited = visited | entered
        return visited | self._successors(visited, action_major(self.transitions, self.num_actions))

    def _successors(self, states: np.ndarray, rows: sparse.csr_array) -> np.ndarray:
        """[S] bool: where one step from `states` [S] bool may lead; `rows` is action-major."""
        chosen = rows[np.flatnonzero(np.tile(states, self.num_actions))]
        successors = np.zeros(self.num_states, dtype=bool)
        successors[chosen.indices[chosen.data > 0]] = True
        return successors

    def _as_probabilities(self, policy: np.ndarray) -> np.ndarray:
        """[A, S]."""
        policy = np.asarray(policy)
        if policy.shape == (self.num_states,):
            policy = np.eye(self.num_actions)[policy]
        if policy.shape != (self.num_states, self.num_actions):
            raise ValueError(f"policy must have shape [{self.num_states}, {self.num_actions}] or [{self.num_states}], got {policy.shape}.")
        return policy.T

    def _solve(self, policy: np.ndarray, rewards: np.ndarray, gamma: float) -> np.ndarray:
        weighted = sparse.diags_array(policy.ravel()) @ self._continues
        chain = sum(weighted[a * self.num_states : (a + 1) * self.num_states] for a in range(self.num_actions))
        if gamma == 1.0:
            _check_ends(sparse.csr_array(chain))
        return splu(sparse.csc_array(sparse.eye_array(self.num_states) - gamma * chain)).solve(rewards)


def action_major(rows: sparse.csr_array, num_actions: int) -> sparse.csr_array:
    """[S·A, S] with row `s * A + a` → [A·S, S] with row `a * S + s`."""
    order = np.arange(len(rows.indptr) - 1).reshape(-1, num_actions).T.ravel()
    return sparse.csr_array(rows[order])


def _check_ends(chain: sparse.csr_array) -> None:
    """Raises ValueError unless from every state the chain [S, S] comes to an end with probability 1."""
    ending = np.asarray(chain.sum(axis=1)).ravel() < 1.0 - TOLERANCE
    growing = True
    while growing:
        wider = ending | ((chain @ ending.astype(float)) > 0)
        growing = bool((wider != ending).any())
        ending = wider
    if not ending.all():
        raise ValueError(f"policy never ends the episode from {np.count_nonzero(~ending)} states, so with gamma 1 it has no values there.")
