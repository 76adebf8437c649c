"""The variance of the sampled policy gradient, by the factor of the score.

    compared = compare_weights(model, preferences, gamma=0.9, episodes=10_000, seed=0)
    compared.exact                             # [S, A], the gradient of the expected return
    compared.mean["advantage"]                 # [S, A], the mean of the episodes' samples
    compared.variance["advantage"]             # of one episode's sample, all components added up

V, Q and the gradient are solutions of linear systems, so nothing here is learned.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.random import Generator
from numpy.typing import NDArray

from rlbook.checks import at_least, check
from rlbook.envs.tabular.mdp import TabularMDP
from rlbook.functional.bandits import softmax
from rlbook.functional.policy_gradients import (
    Array,
    Indices,
    discounted_visits,
    exact_policy_gradient,
    score_function_gradient,
    score_weights,
)
from rlbook.functional.returns import discounted_returns, td_target
from rlbook.seeding import rng_for


@dataclass(frozen=True)
class SampledEpisodes:
    """N episodes of at most T steps: [T, N] each. After an episode's end, rewards are 0."""

    state: Indices
    action: Indices
    reward: Array  # in reward units
    next_state: Indices
    terminated: NDArray[np.bool_]
    valid: NDArray[np.bool_]  # up to the step that ends the episode

    def returns(self, gamma: float) -> Array:
        """G_t, [T, N], in reward units."""
        reward, terminated, valid = map(
            torch.from_numpy, (self.reward, self.terminated, self.valid)
        )
        return discounted_returns(
            reward, terminated, torch.zeros_like(terminated), gamma, valid=valid
        ).numpy()

    def targets(self, value: Array, gamma: float) -> Array:
        """r + γ V(s'), [T, N], in reward units."""
        next_value = torch.from_numpy(value[self.next_state])
        return td_target(
            torch.from_numpy(self.reward), torch.from_numpy(self.terminated), next_value, gamma
        ).numpy()

    def discount(self, weight: Array, gamma: float) -> Array:
        """γ^t Ψ_t, and 0 after the end: [T, N] → [T, N]."""
        return weight * self.valid * gamma ** np.arange(len(weight))[:, None]


def play(model: TabularMDP, policy: Array, episodes: int, rng: Generator) -> SampledEpisodes:
    """Episodes side by side, until the last one has ended.

    Args:
        model: where each policy's episodes come to an end.
        policy: π, [S, A].
        episodes: N.
        rng: draws starts, actions and outcomes.
    """
    outcomes, cumulative = model.outcomes, policy.cumsum(axis=1)
    state, running, rows = (
        outcomes.pick_starts(rng.random(episodes)),
        np.ones(episodes, dtype=bool),
        [],
    )
    while running.any():
        drawn = (cumulative[state] <= rng.random(episodes)[:, None]).sum(axis=1)
        action = np.minimum(drawn, model.num_actions - 1)
        chosen = outcomes.pick(state * model.num_actions + action, rng.random(episodes))
        reward, successor = outcomes.reward[chosen] * running, outcomes.successor[chosen]
        ends = outcomes.ends[chosen]
        rows.append((state, action, reward, successor, ends, running))
        state, running = np.where(ends, state, successor), running & ~ends
    return SampledEpisodes(*map(np.stack, zip(*rows, strict=True)))


@dataclass(frozen=True)
class Comparison:
    """Gradients of the expected return with respect to the preferences, in reward units; by the
    name of Ψ."""

    exact: Array  # [S, A]
    mean: dict[str, Array]  # [S, A], over episodes
    standard_error: dict[str, Array]  # [S, A], of that mean
    # of one episode's sample, its components added up, in reward units squared
    variance: dict[str, float]


def compare_weights(
    model: TabularMDP, preferences: Array, *, gamma: float, episodes: int, seed: int = 0
) -> Comparison:
    """The five Ψ of `rlbook.functional.policy_gradients.score_weights` on the same episodes.

    Args:
        model: whose policies all end their episodes.
        preferences: H, [S, A].
        gamma: γ, discount per step, in [0, 1].
        episodes: how many to play, at least 2, or their samples have no variance.
        seed: of the episodes.
    """
    check("episodes", episodes, at_least(2))
    policy = softmax(preferences)
    value = model.policy_values(policy, gamma)
    action_values = model.backup(value, gamma)
    visits = discounted_visits(model.chain(policy)[0].toarray(), model.initial, gamma)
    played = play(model, policy, episodes, rng_for(seed, "environment"))
    weights = score_weights(
        played.returns(gamma),
        played.targets(value, gamma),
        played.state,
        played.action,
        action_values,
        value,
    )
    samples = {
        name: score_function_gradient(
            policy, played.state, played.action, played.discount(weight, gamma)
        )
        for name, weight in weights.items()
    }
    return Comparison(
        exact_policy_gradient(policy, visits, action_values),
        {name: sample.mean(axis=0) for name, sample in samples.items()},
        {name: sample.std(axis=0, ddof=1) / episodes**0.5 for name, sample in samples.items()},
        {name: float(sample.var(axis=0, ddof=1).sum()) for name, sample in samples.items()},
    )
