"""Small worlds whose state is hidden, solved exactly: a belief, the probability of each state given
all that was seen and done, is a state that can be planned with.

    b'(s') ∝ O(o|s') Σ_s P(s'|s, a) b(s)

Where only finitely many beliefs can be reached, they are the states of an ordinary decision process
(`belief_mdp`). Otherwise V is the largest of finitely many linear functions of b after each sweep,
the α-vectors (`alpha_vectors`).

Source: Åström 1965; Smallwood & Sondik 1973; Kaelbling, Littman & Cassandra 1998,
doi:10.1016/S0004-3702(98)00023-X, sections 3 and 4.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import linprog

from rlbook.envs.tabular.mdp import TabularMDP
from rlbook.envs.tabular.mdp_arrays import from_entries

Array = NDArray[np.float64]
SAME = 1e-9  # beliefs nearer than that are one


class HiddenModel(NamedTuple):
    """A decision process whose states are seen through a noisy channel."""

    model: TabularMDP
    observed: Array  # [S, O]: O(o|s), the probability of each observation in a state


class BeliefModel(NamedTuple):
    """The decision process over beliefs; state b of `model` is the belief `beliefs[b]`."""

    model: TabularMDP
    beliefs: Array  # [B, S]

    def optimal_return(self, gamma: float, sweeps: int = 100_000) -> float:
        """The expected return of the best policy with a memory, in reward units.

        Args:
            gamma: γ, in [0, 1].
            sweeps: of value iteration, at most.
        """
        values = np.zeros(self.model.num_states)
        for _ in range(sweeps):
            after = self.model.backup(values, gamma).max(axis=1)
            change = np.abs(after - values).max()
            values = after
            if change <= 1e-15 * max(1.0, np.abs(values).max()):
                break
        return float(self.model.initial @ values)


def hidden_model(model: TabularMDP, views: ArrayLike) -> HiddenModel:
    """A model whose states look like `views`: [S] int, or [S, O] probabilities.

    Raises:
        ValueError: one sentence: a shape that does not fit, or rows that do not add up to 1.
    """
    seen = np.asarray(views)
    if seen.ndim == 1 and len(seen) == model.num_states:
        seen = np.eye(int(seen.max()) + 1)[seen]
    if seen.ndim != 2 or len(seen) != model.num_states:
        raise ValueError(
            f"views must be [{model.num_states}] or [{model.num_states}, O], got {seen.shape}"
        )
    if (seen < 0).any() or not np.allclose(seen.sum(axis=1), 1.0):
        raise ValueError("each row of views must be probabilities that add up to 1")
    return HiddenModel(model, seen.astype(np.float64))


def belief_mdp(hidden: HiddenModel, *, most: int = 10_000) -> BeliefModel:
    """The decision process over all beliefs that can be reached.

    Args:
        most: the largest number of beliefs; beyond it, `alpha_vectors` is the way.

    Raises:
        ValueError: more than `most` beliefs can be reached.
    """
    actions = hidden.model.num_actions
    beliefs: list[Array] = []
    known: dict[bytes, int] = {}

    def number(belief: Array) -> int:
        key = np.round(belief / SAME).astype(np.int64).tobytes()
        if key not in known:
            if len(beliefs) == most:
                raise ValueError(f"more than {most} beliefs can be reached")
            known[key] = len(beliefs)
            beliefs.append(belief)
        return known[key]

    first = [
        (number(belief), chance) for chance, belief in _observations(hidden, hidden.model.initial)
    ]
    entries = []
    place = 0
    while place < len(beliefs):
        belief = beliefs[place]
        for action in range(actions):
            reward = float(belief @ hidden.model.rewards[:, action])
            left = 1.0
            for chance, after in _observations(
                hidden, belief @ _continues(hidden.model)[:, action]
            ):
                entries.append((place, action, number(after), chance, reward, False))
                left -= chance
            if left > SAME:  # the episode ends
                entries.append((place, action, place, left, reward, True))
        place += 1
    initial = np.zeros(len(beliefs))
    for start, chance in first:
        initial[start] += chance
    return BeliefModel(
        from_entries(entries, len(beliefs), actions, initial=initial), np.array(beliefs)
    )


def alpha_vectors(hidden: HiddenModel, gamma: float, *, precision: float = 1e-3) -> Array:
    """The α-vectors of value iteration over beliefs: V(b) = max over rows of α · b.

    Incremental pruning: what no belief needs is left out after each sum, by a linear program.

    Args:
        gamma: γ, in [0, 1).
        precision: how far V may be from V*, in reward units.

    Returns:
        [K, S], in reward units.

    Source: Zhang & Liu 1996; Cassandra, Littman & Zhang 1997 for the pruning.

    Raises:
        ValueError: γ is not below 1.
    """
    if not 0.0 <= gamma < 1.0:
        raise ValueError(f"gamma must be at least 0 and below 1, got {gamma}")
    model, going = hidden.model, _continues(hidden.model)
    alphas = np.zeros((1, model.num_states))
    change = np.inf
    while change * gamma / (1.0 - gamma) > precision:
        found = []
        for action in range(model.num_actions):
            sums = model.rewards[:, action][None]
            for seen in hidden.observed.T:
                after = gamma * (alphas * seen) @ going[:, action].T  # [K, S]
                sums = prune((sums[:, None] + prune(after)[None]).reshape(-1, model.num_states))
            found.append(sums)
        new = prune(np.concatenate(found))
        change = _farthest(new, alphas)
        alphas = new
    return alphas


def prune(alphas: Array) -> Array:
    """Those vectors that are the largest one for some belief: [K, S] → [≤ K, S]."""
    alphas = np.unique(np.round(alphas, 12), axis=0)
    kept: list[Array] = []
    waiting = list(alphas[np.argsort(-alphas.sum(axis=1))])
    while waiting:
        belief = _witness(waiting[0], np.array(kept)) if kept else np.ones(alphas.shape[1])
        if belief is None:
            waiting.pop(0)
            continue
        best = int(np.argmax([alpha @ belief for alpha in waiting]))
        kept.append(waiting.pop(best))
    return np.array(kept)


def _witness(alpha: Array, other_alphas: Array) -> Array | None:
    """A belief at which `alpha` is larger than all others, or None."""
    states = len(alpha)
    cost = np.zeros(states + 1)
    cost[-1] = -1.0  # the largest advantage
    found = linprog(
        cost,
        A_ub=np.hstack([other_alphas - alpha, np.ones((len(other_alphas), 1))]),
        b_ub=np.zeros(len(other_alphas)),
        A_eq=np.append(np.ones(states), 0.0)[None],
        b_eq=[1.0],
        bounds=[(0.0, 1.0)] * states + [(None, None)],
    )
    return found.x[:-1] if found.status == 0 and found.x[-1] > SAME else None


def _farthest(new: Array, old: Array) -> float:
    """The largest |V_new(b) - V_old(b)| over beliefs, at most: each vector of one against the best
    of the other."""

    def largest_excess(first: Array, second: Array) -> float:
        states = first.shape[1]
        largest = 0.0
        for alpha in first:
            cost = np.append(-alpha, 1.0)  # maximise α · b - v, where v ≥ every α' · b
            found = linprog(
                cost,
                A_ub=np.hstack([second, -np.ones((len(second), 1))]),
                b_ub=np.zeros(len(second)),
                A_eq=np.append(np.ones(states), 0.0)[None],
                b_eq=[1.0],
                bounds=[(0.0, 1.0)] * states + [(None, None)],
            )
            largest = max(largest, -float(found.fun))
        return largest

    return max(largest_excess(new, old), largest_excess(old, new))


def best_memoryless_policy(
    hidden: HiddenModel, gamma: float, *, most: int = 1_000_000
) -> tuple[float, NDArray[np.int64]]:
    """The best deterministic policy that sees the present observation alone: its expected return,
    and the action for each observation, [O].

    Each of the Aᴼ policies is evaluated exactly. With γ below 1, an observation that one state alone
    can show needs no search: once the other observations have their actions, what is best there is
    found by planning. Then Aᴷ plans are made, for the K observations that several states share.

    Args:
        gamma: γ, in [0, 1]. With 1, policies that never end are left out.
        most: the largest number of policies, or of plans.

    Raises:
        ValueError: there are more than `most` policies, or none has a finite value.
    """
    model, (_, views) = hidden.model, hidden.observed.shape
    shown = hidden.observed[model.reachable()] > 0  # [R, O]
    is_planned = gamma < 1.0 and (shown.sum(axis=1) == 1).all()
    searched = np.flatnonzero(shown.sum(axis=0) > 1) if is_planned else np.arange(views)
    count = model.num_actions ** len(searched)
    if count > most:
        raise ValueError(f"there are {count} policies, but at most {most} are tried")
    best, chosen = -np.inf, None
    for tried in product(range(model.num_actions), repeat=len(searched)):
        actions = np.zeros(views, dtype=np.int64)
        actions[searched] = tried
        try:
            value = _upper_bound(hidden, gamma, actions, searched if is_planned else None)
        except ValueError:
            continue  # it never ends
        if value > best:
            best, chosen = value, actions
    if chosen is None:
        raise ValueError("no policy has a finite value")
    return best, chosen


def _upper_bound(
    hidden: HiddenModel, gamma: float, actions: NDArray[np.int64], fixed: NDArray[np.int64] | None
) -> float:
    """The expected return of these actions [O]; those that are not `fixed` are replaced by the best
    ones, by policy iteration (None: all stay)."""
    model, observed = hidden.model, hidden.observed
    seen = observed * model.reachable()[:, None]
    free = np.ones(observed.shape[1], dtype=bool)
    free[slice(None) if fixed is None else fixed] = False
    while True:
        values = model.policy_values(observed @ np.eye(model.num_actions)[actions], gamma)
        backup = seen.T @ model.backup(values, gamma)  # of a free view: its one state's
        better = np.where(free, backup.argmax(axis=1), actions)
        gain = backup[np.arange(len(actions)), better] - backup[np.arange(len(actions)), actions]
        if not free.any() or gain.max() <= SAME:
            return float(model.initial @ values)
        actions[gain > SAME] = better[gain > SAME]


def _observations(hidden: HiddenModel, mass: Array) -> Iterator[tuple[float, Array]]:
    """From the probability of each state, that of each observation, and the belief after it."""
    for seen in hidden.observed.T:
        joint = mass * seen
        chance = float(joint.sum())
        if chance > SAME:
            yield chance, joint / chance


def _continues(model: TabularMDP) -> Array:
    """P(s'|s, a) without what ends the episode, [S, A, S]."""
    rows = model.continues_by_state.toarray()
    return rows.reshape(model.num_states, model.num_actions, model.num_states)
