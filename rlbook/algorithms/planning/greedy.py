"""From action values to a greedy policy, with ties between the best actions broken well.

Several actions can be optimal, and at γ = 1 some of them go in circles: on a frozen lake without
slipping, every step that avoids the holes is worth 1. Among the optimal actions this takes those
that end the episode soonest, on average. So the policy ends the episode with probability 1 wherever
some optimal policy does, and on a deterministic map by a shortest optimal path.

    safe    ← the states from which optimal actions can end the episode with certainty, and the
              optimal actions that never leave them
    T(s)    ← 1 + min_a Σ_s' P(s'|s, a) T(s'), over those actions: the expected remaining steps
    π(s)    ← the action of the minimum; any optimal action in a state that is not safe

Source: states that are sure to reach an end: Baier & Katoen 2008, Principles of Model Checking,
section 10.6.1; the second line is a stochastic shortest path: Bertsekas & Tsitsiklis 1991,
doi:10.1287/moor.16.3.580.
"""

from __future__ import annotations

import numpy as np

from rlbook.envs.tabular.mdp import TabularMDP

TIE = 1e-7
"""Actions count as equally good within this, relative to the largest value."""
PATIENCE = 20_000
"""The largest number of sweeps for finding the quickest of the optimal policies."""


def greedy_policy(
    model: TabularMDP, action_values: np.ndarray, slack: float | None = None
) -> np.ndarray:
    """A best action for each state; see the module docstring. Remaining ties go to the lowest
    index. An unavailable action has value -∞, so it is never among the best.

    Args:
        model: S states, A actions.
        action_values: Q, [S, A], in reward units.
        slack: actions count as equally good within this, in reward units; None: `TIE` times the
            largest |Q|.

    Returns:
        [S] int.
    """
    if slack is None:
        slack = TIE * float(np.abs(action_values[np.isfinite(action_values)]).max(initial=0.0))
    best = action_values >= action_values.max(axis=1, keepdims=True) - slack
    if (best.sum(axis=1) == 1).all():
        return best.argmax(axis=1)
    safe, staying, action = _safe_states(model, best)
    if (staying.sum(axis=1) > 1).any():
        quickest = _quickest(model, staying & safe[:, None], safe)
        if can_end(model, quickest[:, None] == np.arange(model.num_actions))[0][safe].all():
            action = quickest
    return np.where(safe, action, best.argmax(axis=1))


def _safe_states(model: TabularMDP, best: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The safe states [S], the best actions that never leave them [S, A], and for each state [S]
    one of those that brings the end nearer.
    """
    safe = np.ones(model.num_states, dtype=bool)
    while True:
        staying = best & ~may_enter(model, ~safe)
        ends, action = can_end(model, staying)
        if (ends == safe).all():
            return safe, staying, action
        safe = ends


def can_end(
    model: TabularMDP, allowed: np.ndarray, goal: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """The states from which the end can be reached, found backwards from the ends, layer by layer.

    Args:
        allowed: [S, A] bool, the actions that may be taken.
        goal: [S] bool, states that count as ends; None: none does.

    Returns:
        [S] bool, the states that can come to an end by allowed actions, and [S] int, an action in
        each of them that brings it nearer; in a goal, and where there is none, the first allowed.
    """
    ends = np.zeros(model.num_states, dtype=bool) if goal is None else goal.copy()
    action = allowed.argmax(axis=1)
    opens = allowed & ((model.ends > 0) | may_enter(model, ends))
    while True:
        new = opens.any(axis=1) & ~ends
        if not new.any():
            return ends, action
        action[new] = opens[new].argmax(axis=1)
        ends |= new
        opens = allowed & may_enter(model, new)


def _quickest(model: TabularMDP, allowed: np.ndarray, safe: np.ndarray) -> np.ndarray:
    """[S]: the allowed action with the smallest expected number of remaining steps, by value
    iteration on that number.
    """
    steps = np.zeros(model.num_states)
    for _ in range(PATIENCE):
        to_go = np.where(allowed, 1.0 + model.expectation(steps), np.inf)
        new = np.where(safe, to_go.min(axis=1), 0.0)
        change, steps = float((new - steps).max()), new
        if change <= 1e-9 * float(steps.max()):
            break
    to_go = np.where(allowed, 1.0 + model.expectation(steps), np.inf)
    return (to_go <= to_go.min(axis=1, keepdims=True) * (1 + TIE)).argmax(axis=1)


def may_enter(model: TabularMDP, states: np.ndarray) -> np.ndarray:
    """[S, A] bool: actions that lead into `states` [S] bool with positive probability, without
    ending the episode.
    """
    return model.expectation(states.astype(np.float64)) > 0
