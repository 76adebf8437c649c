"""The score-function estimator against the exact gradient of a small problem, and how much its
forms vary."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from closeness import assert_near, rounding_bound
from steps import loss_of

from rlbook.book.experiments.policy_gradients import compare_weights, play
from rlbook.envs.tabular.mdp import TabularMDP
from rlbook.envs.tabular.tabular_env import TabularEnv
from rlbook.functional.advantages import leave_one_out_advantage
from rlbook.functional.bandits import preference_gradient, softmax
from rlbook.functional.policy_gradients import (
    discounted_visits,
    exact_policy_gradient,
    score_function_gradient,
)

GAMMA = 0.9
PREFERENCES = np.array([[0.3, -0.2], [-0.5, 0.4], [0.0, 0.0]])
WEIGHTS = ("return", "return - baseline", "Q", "advantage", "TD error")


def two_states() -> TabularMDP:
    """Two states and an end, two actions, all of chance; rewards of either sign, around 2."""
    transitions = [
        [[0.3, 0.5, 0.2], [0.0, 0.6, 0.4]],
        [[0.5, 0.1, 0.4], [0.0, 0.2, 0.8]],
        [[0.0, 0.0, 0.0], [0.0, 0.0, 0.0]],
    ]
    return TabularMDP.from_arrays(
        np.array(transitions),
        np.array([[3.0, 1.0], [-1.0, 4.0], [0.0, 0.0]]),
        initial=[0.75, 0.25, 0.0],
    )


def expected_return(preferences: np.ndarray) -> float:
    model = two_states()
    return float(model.initial @ model.policy_values(softmax(preferences), GAMMA))


def exact_gradient() -> np.ndarray:
    model, policy = two_states(), softmax(PREFERENCES)
    value = model.policy_values(policy, GAMMA)
    visits = discounted_visits(model.chain(policy)[0].toarray(), model.initial, GAMMA)
    return exact_policy_gradient(policy, visits, model.backup(value, GAMMA))


def test_the_policy_gradient_theorem_gives_the_derivative_of_the_expected_return() -> None:
    """(J(H + h e) - J(H - h e)) / 2h with J from a linear solve; the error is h² J''' / 6, and J's
    rounding over h. |J| < 4 / 0.2."""
    numeric, h = np.empty_like(PREFERENCES), 1e-5
    for entry in np.ndindex(PREFERENCES.shape):
        step = np.zeros_like(PREFERENCES)
        step[entry] = h
        numeric[entry] = (
            expected_return(PREFERENCES + step) - expected_return(PREFERENCES - step)
        ) / (2 * h)
    error = h**2 * 20 + rounding_bound("float64", terms=9, size=20) / h
    np.testing.assert_allclose(exact_gradient(), numeric, rtol=0, atol=error)
    assert np.abs(numeric[:2]).min() > 0.1


def test_visits_by_hand() -> None:
    """From state 0 one stays with ½ and else ends: 1 + ½γ + ¼γ² + … = 1 / (1 - 0.45)."""
    assert_near(discounted_visits(np.array([[0.5]]), np.ones(1), GAMMA), [1 / 0.55], terms=4)


def test_an_episodes_sample_by_hand() -> None:
    """Steps (0, a=1) and (0, a=0) with weights 2 and 3: 2 (e₁ - π) + 3 (e₀ - π) = (3, 2) - 5 π."""
    policy = np.array([[0.25, 0.75]])
    state, action, weight = (
        np.zeros((2, 1), dtype=np.int64),
        np.array([[1], [0]]),
        np.array([[2.0], [3.0]]),
    )
    expected = [3 - 1.25, 2 - 3.75]
    assert_near(
        score_function_gradient(policy, state, action, weight), [[expected]], terms=4, size=5.0
    )
    parts = [preference_gradient(np.log(policy[0]), a, w, 0.0) for a, w in ((1, 2.0), (0, 3.0))]
    assert_near(sum(parts), expected, terms=4, size=5.0)


@pytest.fixture(scope="module")
def compared() -> Any:
    return compare_weights(two_states(), PREFERENCES, gamma=GAMMA, episodes=40_000)


@pytest.mark.parametrize("name", WEIGHTS)
def test_all_five_weights_have_the_exact_gradient_as_their_mean(compared: Any, name: str) -> None:
    """Within four standard errors, component by component; each is known to better than a tenth of
    the gradient's largest component."""
    assert_near(compared.exact, exact_gradient(), terms=9, size=20.0)
    error, allowed = compared.mean[name] - compared.exact, 4 * compared.standard_error[name]
    assert (np.abs(error) <= allowed).all()
    assert allowed.max() < 0.1 * np.abs(compared.exact).max()


def test_one_episode_has_no_variance_and_is_refused() -> None:
    with pytest.raises(ValueError, match="episodes must be an integer of at least 2, got 1"):
        compare_weights(two_states(), PREFERENCES, gamma=GAMMA, episodes=1)


def test_the_variance_falls_from_the_return_to_the_advantage(compared: Any) -> None:
    """G > G - V > TD error > Q - V: each leaves out noise that the one before has. Q has the noise
    of no reward, but V's height."""
    variance = compared.variance
    assert tuple(variance) == WEIGHTS
    assert variance["return"] > 1.2 * variance["return - baseline"]
    assert variance["return - baseline"] > 1.2 * variance["TD error"]
    assert variance["TD error"] > 1.2 * variance["advantage"]
    assert variance["return"] > 1.2 * variance["Q"] > 1.2**2 * variance["advantage"]


def samples(weight: Callable[[np.ndarray], np.ndarray], *, discount: bool = True) -> np.ndarray:
    """[N, S, A] samples, with γ^t Ψ_t from the returns [T, N] of N = 40 000 episodes."""
    policy = softmax(PREFERENCES)
    played = play(two_states(), policy, 40_000, np.random.default_rng(3))
    weights = played.discount(weight(played.returns(GAMMA)), GAMMA if discount else 1.0)
    return score_function_gradient(policy, played.state, played.action, weights)


def off_by(sample: np.ndarray) -> float:
    """The largest error of the mean over independent samples, in standard errors."""
    error = np.abs(sample.mean(axis=0) - exact_gradient())[:2]
    return float((error / (sample.std(axis=0, ddof=1)[:2] / len(sample) ** 0.5)).max())


def without_own(returns: np.ndarray, group: int) -> np.ndarray:
    """G_t - b, where b is the mean return of the other episodes of the group."""
    others = returns[0] - leave_one_out_advantage(torch.from_numpy(returns[0]), group).numpy()
    return returns - others


def test_the_estimator_is_unbiased_without_a_baseline_and_with_the_mean_of_the_others() -> None:
    """Of the latter, groups of four are independent samples, their episodes are not. The baseline
    lowers the variance."""
    plain = samples(lambda returns: returns)
    grouped = (
        samples(lambda returns: without_own(returns, 4))
        .reshape(-1, 4, *PREFERENCES.shape)
        .mean(axis=1)
    )
    assert off_by(plain) < 4 and off_by(grouped) < 4
    assert grouped.var(axis=0).sum() < 0.8 * plain.var(axis=0).sum() / 4


def test_a_baseline_that_contains_the_own_return_and_a_missing_discount_are_found_out() -> None:
    """The mean of all four shrinks the part of the gradient that is due to the start by ¼; without
    γ^t late steps count too much."""
    with_own = samples(lambda returns: returns - returns[0].reshape(-1, 4).mean(axis=1).repeat(4))
    assert off_by(with_own.reshape(-1, 4, *PREFERENCES.shape).mean(axis=1)) > 6
    assert off_by(samples(lambda returns: returns, discount=False)) > 6


@pytest.mark.parametrize("baseline", ["none", "leave-one-out"])
def test_reinforces_gradient_is_this_estimator(stage: Callable[..., Any], baseline: str) -> None:
    """γ = 1, a linear network on one-hot states, which is a table: ∂loss/∂w[a, s] = -mean over
    episodes of ĝ[s, a]."""
    theatre = stage(
        "reinforce",
        TabularEnv(two_states()),
        num_envs=6,
        gamma=1.0,
        baseline=baseline,
        hidden_sizes=(),
    )
    steps = theatre.round()
    agent = theatre.agent
    (gradient, _) = torch.autograd.grad(
        loss_of(agent, agent.prepare()).loss, agent.policy.actor.weights
    )
    state = np.stack([step.obs.argmax(axis=1) for step in steps])
    valid, reward = (
        np.stack([step.valid for step in steps]),
        np.stack([step.reward for step in steps]),
    )
    returns = (reward * valid)[::-1].cumsum(axis=0)[::-1]
    weight = (returns if baseline == "none" else without_own(returns, 6)) * valid
    logits = agent.policy.distribution(torch.eye(3)).logits.detach().numpy().astype(np.float64)
    sample = score_function_gradient(
        softmax(logits), state, np.stack([step.action for step in steps]), weight
    )
    terms, size = sample.shape[0] * len(steps), float(np.abs(sample).max())
    assert_near(gradient.T, -sample.mean(axis=0), terms=terms, size=size)
