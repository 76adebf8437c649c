"""The policy gradient of a softmax policy with tabular preferences: exact, and estimated from
episodes.

The policy is π(a|s) = softmax of H(s, ·), so that ∂ log π(a|s) / ∂ H(s, b) = 1[a = b] - π(b|s).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Indices = NDArray[np.int64]


def discounted_visits(chain: Array, initial: Array, gamma: float) -> Array:
    """The discounted number of visits to each state in an episode: a visit at time t counts γ^t.

    η(s) = Σ_t γ^t P(s_t = s),   η = d_0 + γ P_πᵀ η

    Args:
        chain: P_π, [S, S], without what ends the episode.
        initial: d_0, [S], where episodes begin, as probabilities.
        gamma: γ, discount per environment step, in [0, 1].

    Returns:
        [S], in discounted steps.

    Source: Sutton & Barto 2018, eq. 9.2, with discounting as in the text below it.
    """
    return np.linalg.solve(np.eye(len(initial)) - gamma * chain.T, initial).astype(np.float64)


def exact_policy_gradient(policy: Array, visits: Array, action_values: Array) -> Array:
    """The policy-gradient theorem for a softmax policy with tabular preferences.

    ∂J / ∂H(s, a) = η(s) π(a|s) (Q(s, a) - V(s)),   V(s) = Σ_b π(b|s) Q(s, b)

    Args:
        policy: π, [S, A].
        visits: η, [S]; see `discounted_visits`.
        action_values: Q^π, [S, A], in reward units.

    Returns:
        [S, A], in reward units.

    Source: Sutton et al. 2000, theorem 1; Sutton & Barto 2018, eq. 13.5, in which γ = 1.
    """
    value = (policy * action_values).sum(axis=1, keepdims=True)
    return visits[:, None] * policy * (action_values - value)


def score_function_gradient(policy: Array, state: Indices, action: Indices, weight: Array) -> Array:
    """One unbiased sample of the policy gradient per episode; the mean over episodes is the
    estimate.

    ĝ = Σ_t w_t ∇ log π(a_t|s_t),   w_t = γ^t Ψ_t

    The sum over an episode's steps is not divided by their number: with a mean over all steps,
    long episodes would count less, and the expectation would be another one.

    Args:
        policy: π, [S, A], which drew the actions.
        state, action: [T, N], of N episodes.
        weight: [T, N], in reward units; 0 after an episode's end.

    Returns:
        [N, S, A], in reward units.

    Source: Williams 1992, doi:10.1007/BF00992696, theorem 1; Sutton & Barto 2018, eq. 13.8.
    """
    episode = np.broadcast_to(np.arange(state.shape[1]), state.shape)
    gradient = np.zeros((state.shape[1], *policy.shape))
    np.add.at(gradient, (episode, state, action), weight)
    return gradient - gradient.sum(axis=2, keepdims=True) * policy


def score_weights(
    returns: Array,
    target: Array,
    state: Indices,
    action: Indices,
    action_values: Array,
    value: Array,
) -> dict[str, Array]:
    """Five choices of Ψ, the factor of the score ∇ log π. All have the same expected gradient.

    G_t,   G_t - V(s_t),   Q(s_t, a_t),   Q(s_t, a_t) - V(s_t),   r_t + γ V(s_{t+1}) - V(s_t)

    Args:
        returns: G, [T, N], in reward units.
        target: r + γ V(s'), [T, N]; see `rlbook.functional.returns.td_target`.
        state, action: [T, N].
        action_values: Q^π, [S, A].
        value: V^π, [S].

    Returns:
        Name → Ψ, [T, N], in reward units.

    Source: Schulman et al. 2016, arXiv:1506.02438, eq. 1, cases 2 to 6.
    """
    return {
        "return": returns,
        "return - baseline": returns - value[state],
        "Q": action_values[state, action],
        "advantage": action_values[state, action] - value[state],
        "TD error": target - value[state],
    }
