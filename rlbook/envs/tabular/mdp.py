"""Finite Markov decision processes as arrays, for planning."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from scipy.sparse.linalg import splu

from rlbook.envs.tabular.mdp_checks import TOLERANCE, Matrix, arrays_of_entries, checked_arrays
from rlbook.envs.tabular.mdp_sources import check_wrappers, listed_transitions
from rlbook.envs.tabular.outcomes import Entries, Outcomes, outcomes_of_arrays, outcomes_of_entries

LARGE = 500_000
"""The number of rows from which a model has no second, action-major copy."""


class TabularMDP:
    """A model with S states and A actions: P(s'|s, a), expected rewards, and which transitions end
    the episode.

    Ending belongs to a transition, not to a state, because some environments (Taxi) enter one state
    in both ways. What the equations need is `continues`: the transitions with those left out that
    end the episode, so that

        Q(s, a) = r(s, a) + γ Σ_s' continues(s'|s, a) V(s')

    never bootstraps from beyond an end. Time limits are not part of a model. What can be derived is
    derived when first asked for, so a model of a million states costs little more than its arrays.

    Make one with `from_env` or `from_arrays`.
    """

    def __init__(
        self,
        transitions: sparse.csr_array,
        rewards: np.ndarray,
        continues: sparse.csr_array,
        initial: np.ndarray,
        terminal: np.ndarray,
        *,
        observable: bool = True,
        entries: Entries | None = None,
    ) -> None:
        self.transitions = transitions
        """[S·A, S] CSR, row `s * A + a`: P(s'|s, a); each row sums to 1."""
        self.rewards = rewards
        """[S, A]: expected reward, in reward units; -∞ if the action is unavailable."""
        self.initial = initial
        """[S]: the initial distribution."""
        self.terminal = terminal
        """[S] bool: terminal states, in which no action is taken, because entering one ends the
        episode."""
        self.observable = observable
        """Whether the states are numbered as the environment's observations are."""
        self._entries = entries
        self._continuing = continues

    def __repr__(self) -> str:
        return (
            f"<TabularMDP: {self.num_states:,} states ({int(self.terminal.sum()):,} terminal),"
            f" {self.num_actions} actions, {self.transitions.nnz:,} transitions>"
        )

    @property
    def num_states(self) -> int:
        """S, the number of states."""
        return self.rewards.shape[0]

    @property
    def num_actions(self) -> int:
        """A, the number of actions."""
        return self.rewards.shape[1]

    @property
    def continues_by_state(self) -> sparse.csr_array:
        """P(s'|s, a) without terminal transitions, [S·A, S] CSR, row `s * A + a`; `transitions`
        itself if none is terminal."""
        return self._continuing

    @cached_property
    def continues(self) -> sparse.csr_array:
        """The same in action-major order, [A·S, S] CSR, row `a * S + s`. A copy, made on first
        use."""
        return action_major(self._continuing, self.num_actions)

    @cached_property
    def _rewards(self) -> np.ndarray:
        """The expected rewards, action-major, [A, S]."""
        return np.ascontiguousarray(self.rewards.T)

    @cached_property
    def ends(self) -> np.ndarray:
        """The probability that an action terminates the episode, [S, A]."""
        if self._continuing is self.transitions:
            return np.zeros(self.rewards.shape)
        ends = 1.0 - (self._continuing @ np.ones(self.num_states)).reshape(self.rewards.shape)
        return np.where(ends > TOLERANCE, ends, 0.0)

    @cached_property
    def can_end(self) -> bool:
        """Whether any transition can terminate the episode."""
        return self._continuing is not self.transitions and bool(self.ends.any())

    @cached_property
    def feasible(self) -> np.ndarray | None:
        """Which actions are available, [S, A] bool; None means all. At least one in each state, and
        all in terminal states."""
        infeasible = np.isneginf(self.rewards)
        return ~infeasible if infeasible.any() else None

    @cached_property
    def uniform_policy(self) -> np.ndarray:
        """The uniform policy over available actions, [S, A]."""
        feasible = (
            np.ones(self.rewards.shape)
            if self.feasible is None
            else self.feasible.astype(np.float64)
        )
        return feasible / feasible.sum(axis=1, keepdims=True)

    @cached_property
    def largest_reward(self) -> float:
        """The largest absolute expected reward, in reward units."""
        rewards = self.rewards if self.feasible is None else self.rewards[self.feasible]
        return max(float(rewards.max()), -float(rewards.min()))

    @classmethod
    def from_arrays(
        cls,
        transitions: Matrix,
        rewards: ArrayLike,
        *,
        terminal: ArrayLike | None = None,
        initial: ArrayLike | None = None,
    ) -> TabularMDP:
        """Builds a model from arrays.

        A CSR matrix and rewards of float64 are used as they are and not copied, so leave them
        alone afterwards. Successors may stand in any order, and more than once: then their
        probabilities add up.

        Args:
            transitions: [S, A, S], or [S·A, S] with row `s * A + a`, dense or sparse: P(·|s, a).
            rewards: [S, A], expected reward, in reward units. -∞ says that the action cannot be
                taken in that state, as QuantEcon's DiscreteDP has it; its row of transitions is
                ignored.
            terminal: [S] bool. Entering a terminal state ends the episode, and what its own rows
                say is ignored. None: the states whose rows are all 0 are terminal.
            initial: [S], probability of beginning there. None: every state that is not terminal
                alike.

        Raises:
            ValueError: one sentence: shapes that do not fit, a probability below 0, a row that
                does not add up to 1, NaN or infinity, a state in which no action can be taken.
        """
        arrays = checked_arrays(transitions, rewards, terminal=terminal, initial=initial)
        return cls(*arrays)

    @classmethod
    def from_env(cls, env: gymnasium.Env, *, max_transitions: int = 1_000_000) -> TabularMDP:
        """Builds the model of an environment, without its time limit.

        Three kinds of environment have one: those with a method `model()` (the maze), those with
        gymnasium's table `P` (FrozenLake, CliffWalking, Taxi), and deterministic ones with
        `snapshot()` and `restore()`, which are enumerated from their start.

        Args:
            env: a gymnasium environment, wrapped or not.
            max_transitions: how many state-action pairs an enumeration may visit.

        Raises:
            ValueError: one sentence saying why there is no model, or how many states were found
                when the limit was reached.
        """
        if not isinstance(env, gymnasium.Env):
            raise ValueError(f"env must be a gymnasium.Env, got {type(env).__name__}.")
        check_wrappers(env)
        inner: Any = env.unwrapped
        if callable(getattr(inner, "model", None)):
            return inner.model()
        entries, num_states, num_actions, initial, observable = listed_transitions(
            env, max_transitions
        )
        arrays, columns = arrays_of_entries(entries, num_states, num_actions, initial)
        return cls(*arrays, observable=observable, entries=columns)

    @property
    def from_entries(self) -> bool:
        """Whether the model was built from single outcomes and still holds them."""
        return self._entries is not None

    @cached_property
    def outcomes(self) -> Outcomes:
        """The transitions in the layout that a sampler needs, built on first use; a model made from
        arrays yields expected rewards."""
        if self._entries is not None:
            return outcomes_of_entries(
                self._entries, self.num_states, self.num_actions, self.initial
            )
        return outcomes_of_arrays(
            self.transitions, self.continues_by_state, self.rewards, self.initial
        )

    def with_initial(self, initial: ArrayLike) -> TabularMDP:
        """The same model, sharing its arrays, with another initial distribution.

        Args:
            initial: [S], probability of beginning there.

        Raises:
            ValueError: one sentence, if these are no S probabilities.
        """
        starts = np.asarray(initial, dtype=np.float64)
        if (
            starts.shape != self.initial.shape
            or not (starts >= 0.0).all()
            or not abs(starts.sum() - 1.0) <= TOLERANCE
        ):
            raise ValueError(
                f"initial must be {self.num_states} probabilities that add up to 1, got an array of"
                f" shape {starts.shape}."
            )
        return TabularMDP(
            self.transitions,
            self.rewards,
            self._continuing,
            starts,
            self.terminal,
            observable=self.observable,
            entries=self._entries,
        )

    def with_actions(self, allowed: np.ndarray) -> TabularMDP:
        """The same model restricted to the `allowed` [S, A] bool actions; terminal states, where no
        action is taken, keep all."""
        rewards = np.where(allowed | self.terminal[:, None], self.rewards, -np.inf)
        return TabularMDP(
            self.transitions,
            rewards,
            self._continuing,
            self.initial,
            self.terminal,
            observable=self.observable,
            entries=self._entries,
        )

    def __deepcopy__(self, memo: dict[int, object]) -> TabularMDP:
        """The model itself, because it is immutable."""
        return self

    def backup(self, values: np.ndarray, gamma: float) -> np.ndarray:
        """The Bellman backup of any V: Q(s, a) = r(s, a) + γ Σ_s' continues(s'|s, a) V(s').

        Args:
            values: V, [S], in reward units.
            gamma: γ, discount per step, in [0, 1].

        Returns:
            [S, A], in reward units.

        Source: Bellman 1957; Sutton & Barto 2018, eq. 4.10 before the maximum.
        """
        action_values = self.expectation(values)
        action_values *= gamma
        # as the product lies in memory
        action_values += self.rewards if self._is_large else self._rewards.T
        return action_values

    def backup_of(self, state: int, values: np.ndarray, gamma: float) -> list[float]:
        """Q(s, a) of one state for each of the A actions, in reward units; see `backup`."""
        rows, first = self._continuing, state * self.num_actions
        action_values = []
        for action in range(self.num_actions):
            row = slice(rows.indptr[first + action], rows.indptr[first + action + 1])
            expected = sum(rows.data[row] * values[rows.indices[row]])
            action_values.append(self.rewards[state, action] + gamma * expected)
        return action_values

    def expectation(self, values: np.ndarray) -> np.ndarray:
        """Σ_s' continues(s'|s, a) V(s'): [S] → [S, A], a new array."""
        if self._is_large:
            return (self._continuing @ values).reshape(self.rewards.shape)
        return (self.continues @ values).reshape(self.num_actions, self.num_states).T

    @property
    def _is_large(self) -> bool:
        """Whether the model is large. A small model also keeps its rows action-major, so that
        maxima over actions run along contiguous rows of length S."""
        return self.rewards.size > LARGE

    def chain(self, policy: np.ndarray) -> tuple[sparse.csr_array, np.ndarray]:
        """The Markov chain induced by a policy: P_π and r_π.

        Args:
            policy: [S, A] probabilities, or [S] integers for a deterministic policy.

        Returns:
            P_π [S, S] without what ends the episode, and r_π [S] in reward units.
        """
        rows, (num_states, num_actions) = self._continuing, self.rewards.shape
        policy = np.asarray(policy)
        if policy.shape == (num_states,) and policy.dtype.kind in "iu":
            chosen = np.arange(num_states) * num_actions + policy
            rewards = self.rewards.ravel()[chosen]
            self._check_possible(np.isneginf(rewards))
            return sparse.csr_array(rows[chosen]), rewards
        if policy.shape != (num_states, num_actions):
            raise ValueError(
                f"policy must have shape [{num_states}, {num_actions}] or [{num_states}], got"
                f" {policy.shape}."
            )
        # the A rows of a state stand one after the other: weighted and read as one row, they are
        # that of the chain
        weighted = rows.data * np.repeat(policy.ravel(), np.diff(rows.indptr))
        chain = sparse.csr_array(
            (weighted, rows.indices, rows.indptr[::num_actions].copy()),
            shape=(num_states, num_states),
            copy=True,
        )
        chain.sum_duplicates()
        chain.eliminate_zeros()
        if self.feasible is None:
            return chain, (policy * self.rewards).sum(axis=1)
        self._check_possible(np.any((policy > 0.0) & ~self.feasible, axis=1))
        return chain, (policy * np.where(self.feasible, self.rewards, 0.0)).sum(axis=1)

    @staticmethod
    def _check_possible(wrong: np.ndarray) -> None:
        """Raises ValueError if a policy takes an unavailable action: `wrong` [S] bool."""
        if wrong.any():
            raise ValueError(
                f"policy takes an action in state {wrong.argmax()} that cannot be taken there (its"
                " reward is -inf)."
            )

    def policy_values(self, policy: np.ndarray, gamma: float) -> np.ndarray:
        """The exact V^π: the solution of (I - γ P_π) V = r_π, where P_π excludes terminal
        transitions.

        Args:
            policy: [S, A] probabilities, or [S] integers for a deterministic policy.
            gamma: γ, discount per step, in [0, 1].

        Returns:
            [S], in reward units.

        Raises:
            ValueError: with γ = 1, if from some state the policy may never end the episode.

        Source: Sutton & Barto 2018, eq. 4.4 read as a linear system.
        """
        chain, rewards = self.chain(policy)
        return _solve(chain, rewards, gamma)

    def expected_steps(self, policy: np.ndarray) -> np.ndarray:
        """The expected number of steps until the episode ends, [S]. Arguments and errors as for
        `policy_values`."""
        steps = np.where(self.terminal, 0.0, 1.0)
        return _solve(self.chain(policy)[0], steps, gamma=1.0)

    def reachable(self) -> np.ndarray:
        """The states reachable by some sequence of actions, including initial and terminal ones,
        [S] bool."""
        visited, entered = self.initial > 0, self.initial > 0
        while entered.any():
            entered = self._successors(entered, self._continuing) & ~visited
            visited = visited | entered
        return visited | self._successors(visited, self.transitions)

    def _successors(self, states: np.ndarray, rows: sparse.csr_array) -> np.ndarray:
        """The possible successors of `states` [S] bool after one step, [S] bool; `rows` is [S·A,
        S], row `s * A + a`."""
        taken = np.repeat(states, self.num_actions)
        if self.feasible is not None:
            taken &= self.feasible.ravel()
        chosen = rows[np.flatnonzero(taken)]
        successors = np.zeros(self.num_states, dtype=bool)
        successors[chosen.indices[chosen.data > 0]] = True
        return successors


def action_major(rows: sparse.csr_array, num_actions: int) -> sparse.csr_array:
    """[S·A, S] with row `s * A + a` → [A·S, S] with row `a * S + s`."""
    order = np.arange(len(rows.indptr) - 1).reshape(-1, num_actions).T.ravel()
    return sparse.csr_array(rows[order])


def _solve(chain: sparse.csr_array, rewards: np.ndarray, gamma: float) -> np.ndarray:
    """Solves (I - γ P) V = r. With γ = 1, V = 0 in states from which no reward can follow, whether
    or not the episode ends."""
    if gamma == 1.0:
        chain = check_ends(chain, rewards)
    return splu(sparse.csc_array(sparse.eye_array(len(rewards)) - gamma * chain)).solve(rewards)


def check_ends(chain: sparse.csr_array, rewards: np.ndarray) -> sparse.csr_array:
    """Removes transitions from states after which no reward can follow from the chain [S, S], and
    checks that the rest ends, so that values under rewards [S] are finite without a discount.

    Raises:
        ValueError: from some states it does not come to an end with probability 1, nor to where
            nothing is paid.
    """
    paying = _can_reach(chain, rewards != 0.0)
    ending = _can_reach(chain, ~paying | ((chain @ np.ones(len(rewards))) < 1.0 - TOLERANCE))
    if not ending.all():
        raise ValueError(
            f"policy never ends the episode from {np.count_nonzero(~ending)} states, so with gamma"
            " 1 it has no values there."
        )
    return sparse.csr_array(sparse.diags_array(paying.astype(float)) @ chain)


def _can_reach(chain: sparse.csr_array, goal: np.ndarray) -> np.ndarray:
    """The states from which the chain [S, S] can reach `goal` [S] bool, [S] bool."""
    while True:
        wider = goal | ((chain @ goal.astype(float)) > 0)
        if (wider == goal).all():
            return goal
        goal = wider
