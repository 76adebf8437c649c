"""Monte Carlo against exact answers: blackjack, whose every value is worked out from the deck, and
the best path through the maze."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from closeness import near, rounding_bound

import rlbook
from rlbook.envs import TabularMDP
from rlbook.envs.blackjack import SHAPE, blackjack_model, number

SUMS = np.unravel_index(np.arange(704), SHAPE)[0]
STICK_ON_20 = np.where(SUMS >= 20, 0, 1)
"""The policy of figure 5.1."""


@pytest.fixture(scope="module")
def blackjack() -> TabularMDP:
    return blackjack_model()


def standard_scores(agent: Any, exact: np.ndarray, model: TabularMDP) -> np.ndarray:
    """(V - V^π) / its standard error, where the states were met 100 times; the return is -1, 0 or
    1, so its variance is at most 1 - V²."""
    visits = agent.memory.visits
    known = (visits >= 100) & ~model.terminal
    return (agent.values() - exact)[known] * np.sqrt(visits[known] / (1.0 - exact[known] ** 2))


@pytest.mark.slow
def test_half_a_million_games_give_the_values_of_figure_5_1_within_their_error(
    blackjack: TabularMDP,
) -> None:
    """280 states, of which none is off by 4.5 standard errors (once in 500 such tests), and on
    average none by more than one."""
    exact = blackjack.policy_values(STICK_ON_20, 1.0)
    run = rlbook.train(
        "mc_prediction", blackjack, episodes=500_000, gamma=1.0, policy=STICK_ON_20, eval_every=0
    )
    scores = standard_scores(run.agent, exact, blackjack)
    assert len(scores) == 280
    assert np.abs(scores).max() < 4.5
    assert np.mean(scores**2) < 1.0
    # the cliff in the figure: from 20 on it sticks
    assert exact[number((21, True), 5)] > 0.8 > 0.0 > exact[number((19, False), 5)]


@pytest.mark.slow
def test_the_real_game_has_the_values_of_the_table(blackjack: TabularMDP) -> None:
    """The same policy in gymnasium's environment, card by card."""
    exact = blackjack.policy_values(STICK_ON_20, 1.0)
    env = rlbook.make("Blackjack-v1", sab=False)
    run = rlbook.train(
        "mc_prediction",
        env,
        episodes=20_000,
        gamma=1.0,
        policy=tuple(STICK_ON_20.tolist()),
        eval_every=0,
    )
    scores = standard_scores(run.agent, exact, blackjack)
    assert len(scores) > 30
    assert np.abs(scores).max() < 4.5 and np.mean(scores**2) < 1.2
    expected = float(blackjack.initial @ exact)
    assert np.mean(run.episode_returns) == pytest.approx(expected, rel=0, abs=4 / np.sqrt(20_000))


@pytest.mark.thorough(quick=1)
@pytest.mark.parametrize("weighting", ["ordinary", "weighted"])
def test_playing_at_random_tells_what_another_policy_is_worth(
    blackjack: TabularMDP, weighting: str
) -> None:
    """20 runs of 20 000 games by coin flips: for four hands, the mean of V is the exact value
    within 3.5 standard errors of that mean."""
    exact = blackjack.policy_values(STICK_ON_20, 1.0)
    hands = [
        number(hand, card)
        for hand, card in (((13, True), 2), ((20, False), 10), ((18, False), 10), ((12, False), 7))
    ]
    config = {
        "task": "prediction",
        "policy": STICK_ON_20,
        "epsilon": 1.0,
        "weighting": weighting,
        "gamma": 1.0,
        "eval_every": 0,
    }
    found = np.array(
        [
            rlbook.train(
                "off_policy_mc", blackjack, episodes=20_000, seed=seed, **config
            ).agent.values()[hands]
            for seed in range(20)
        ]
    )
    error = found.std(axis=0, ddof=1) / np.sqrt(20)
    assert (
        np.abs(found.mean(axis=0) - exact[hands])
        <= 3.5 * error + rounding_bound("float64", terms=20_000)
    ).all()


@pytest.mark.slow
def test_weighted_sampling_is_steadier_than_ordinary_and_truncated_is_biased(
    blackjack: TabularMDP,
) -> None:
    """A hand of soft 13, from which several cards are drawn: what figure 5.3 shows, by the errors
    of 30 runs of 1 000 games."""
    hand, exact = number((13, True), 2), blackjack.policy_values(STICK_ON_20, 1.0)
    start = blackjack.with_initial(np.eye(704)[hand])
    errors, weights = {}, {}
    for weighting in ("ordinary", "weighted", "truncated"):
        config = {
            "task": "prediction",
            "policy": STICK_ON_20,
            "epsilon": 1.0,
            "weighting": weighting,
            "clip": 2.0,
            "gamma": 1.0,
        }
        runs = [
            rlbook.train("off_policy_mc", start, episodes=1_000, seed=seed, eval_every=0, **config)
            for seed in range(30)
        ]
        errors[weighting] = np.array([run.agent.values()[hand] for run in runs]) - exact[hand]
        weights[weighting] = np.array([run.agent.rates()["mean_weight"] for run in runs])
    assert np.mean(errors["weighted"] ** 2) < np.mean(errors["ordinary"] ** 2)
    assert abs(errors["truncated"].mean()) > 5 * errors["truncated"].std() / np.sqrt(30)
    error = weights["ordinary"].std(ddof=1) / np.sqrt(30)
    assert abs(weights["ordinary"].mean() - 1.0) < 4 * error < 0.1
    assert weights["truncated"].mean() < 0.9


@pytest.mark.slow
def test_exploring_starts_find_the_best_way_to_play(blackjack: TabularMDP) -> None:
    """A million games: on average at most .004 of a stake is lost to the optimal policy (figure
    5.2), which loses .0466 to the bank."""
    best = rlbook.train("policy_iteration", blackjack, gamma=1.0).agent.values() @ blackjack.initial
    run = rlbook.train(
        "mc_control",
        blackjack,
        episodes=1_000_000,
        gamma=1.0,
        epsilon=0.0,
        exploring_starts="pairs",
        eval_every=0,
    )
    achieved = blackjack.policy_values(run.agent.greedy_policy(), 1.0) @ blackjack.initial
    assert best == near(-0.046556, decimals=6)
    assert best - 0.004 < achieved <= best + 1e-12


def solved(algorithm: str, rewards: str, episodes: int, seeds: int, **config: Any) -> float:
    """The share of seeds whose greedy policy takes the shortest path through the maze."""
    optimum = {"standard": 7 * -1 + 10, "shaped": 8 * -0.1 + 10}[rewards]
    env = rlbook.make("Maze-v0", rewards=rewards, max_episode_steps=200)
    runs = [
        rlbook.train(algorithm, env, episodes=episodes, seed=seed, eval_every=0, **config)
        for seed in range(seeds)
    ]
    model = TabularMDP.from_env(env)
    best = near(optimum, terms=8, size=10.0)
    return float(
        np.mean([_greedy_return(model, run.agent.greedy_policy()) == best for run in runs])
    )


def _greedy_return(model: TabularMDP, policy: np.ndarray) -> float:
    """Undiscounted, of at most 200 steps; -inf where the policy walks in circles."""
    state, total = int(model.initial.argmax()), 0.0
    for _ in range(200):
        row = state * model.num_actions + policy[state]
        outcome = model.outcomes.first[row]
        total += model.outcomes.reward[outcome]
        if model.outcomes.ends[outcome]:
            return float(total)
        state = int(model.outcomes.successor[outcome])
    return -np.inf


@pytest.mark.slow
@pytest.mark.parametrize(
    ("config", "rewards", "rate"),
    [
        ({"alpha": 0.1, "epsilon": 0.1}, "standard", 0.87),
        ({"alpha": 0.1, "epsilon": 0.1}, "shaped", 0.78),
        ({"alpha": 0.1, "epsilon": "linear(1.0, 0.05)"}, "standard", 0.97),
        ({"epsilon": 0.1}, "standard", 0.66),
    ],
)
def test_500_episodes_find_the_shortest_path_as_often_as_expected(
    config: dict[str, Any], rewards: str, rate: float
) -> None:
    """The rates are those of 400 seeds of an independent program; 100 seeds may fall short by 4
    standard errors."""
    assert solved("mc_control", rewards, 500, 100, **config) > rate - 4 * np.sqrt(
        rate * (1 - rate) / 100
    )


@pytest.mark.slow
def test_averaging_all_returns_forgets_less_and_finds_less() -> None:
    """What was learned by playing badly stays in the average: 66 % against 97 %."""
    assert solved("mc_control", "standard", 500, 100, epsilon=0.1) < 0.85


@pytest.mark.thorough
def test_off_policy_control_finds_the_shortest_path_from_restless_play() -> None:
    assert solved("off_policy_mc", "standard", 2_000, 20, epsilon=0.5) >= 0.9
