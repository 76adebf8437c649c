"""From action values to a policy, with an eye on ties.

Several actions can be best, and at γ = 1 some of them lead in circles: on a frozen lake without slipping every step that avoids the
holes is worth 1. Among the best actions this takes one that can bring the end of the episode a step nearer, and never one that
may lead to where a best policy can no longer be sure to end. So the policy ends the episode with probability 1 wherever some best
policy does, and on a deterministic map by the shortest of the best ways.

Source: the states from which an end is reached with probability 1: Baier & Katoen 2008, Principles of Model Checking, section 10.6.1.
"""

from __future__ import annotations

import numpy as np

from rlbook.envs.mdp import TabularMDP

TIE = 1e-9
"""Actions count as equally good within this, relative to the largest value (and at least 1)."""


def greedy_policy(model: TabularMDP, action_values: np.ndarray) -> np.ndarray:
    """A best action for each state; see the module docstring. The lowest number decides what is left undecided.

    Args:
        model: S states, A actions.
        action_values: Q, [S, A], in reward units.

    Returns:
        [S] int.
    """
    slack = TIE * max(1.0, float(np.abs(action_values).max()))
    best = action_values >= action_values.max(axis=1, keepdims=True) - slack
    safe = np.ones(model.num_states, dtype=bool)
    while True:
        staying = best & ~_may_enter(model, ~safe)
        ends, action = _towards_the_end(model, staying)
        if (ends == safe).all():
            return np.where(safe, action, best.argmax(axis=1))
        safe = ends


def _towards_the_end(model: TabularMDP, allowed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Backwards from the ends, one layer at a time: which states [S] can end the episode by allowed actions [S, A], and the action [S]."""
    ends = np.zeros(model.num_states, dtype=bool)
    action = np.zeros(model.num_states, dtype=np.int64)
    opens = allowed & (model.ends > 0)
    while True:
        new = opens.any(axis=1) & ~ends
        if not new.any():
            return ends, action
        action[new] = opens[new].argmax(axis=1)
        ends |= new
        opens = allowed & _may_enter(model, new)


def _may_enter(model: TabularMDP, states: np.ndarray) -> np.ndarray:
    """[S, A] bool: actions that with some probability lead into `states` [S] bool, the episode going on."""
    probability = model.continues @ states.astype(np.float64)
    return (probability > 0).reshape(model.num_actions, model.num_states).T
