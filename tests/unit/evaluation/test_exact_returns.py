"""Returns of tables that need no episodes: of the best policy, of an agent's own, of chance."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from closeness import near

import rlbook
from rlbook.envs.blackjack import (
    STICK,
    blackjack_model,
    naturals_model,
    number,
    observation_numbers,
)
from rlbook.envs.tabular.mdp import TabularMDP
from rlbook.envs.tabular.tabular_env import TabularEnv
from rlbook.evaluation.optimal_return import (
    blind_return,
    greedy_return,
    network_return,
    optimal_return,
    random_return,
    solving_return,
)
from rlbook.interaction.environments import EnvRecipe

CORRIDOR = EnvRecipe("rlbook/Maze-v0", {"layout": "S.G"})


def test_a_greedy_return_is_that_of_the_agents_own_policy() -> None:
    """Two steps to the right: -1, then 10 at the goal. Before it has learned, an agent bumps."""
    agent: Any = rlbook.train(
        "q_learning", "Maze-v0", env_kwargs=CORRIDOR.kwargs, episodes=200, eval_every=0
    ).agent
    assert greedy_return(agent, CORRIDOR) == near(9.0, terms=2, size=11.0)
    agent.memory.q[:] = 0.0
    agent.memory.q[:, 2] = 1.0  # to the left, into the wall: -5 at each step
    limit = CORRIDOR.time_limit
    assert limit is not None
    assert greedy_return(agent, CORRIDOR) == near(-5.0 * limit, terms=limit, size=5.0 * limit)


def test_the_greedy_return_counts_the_time_limit_and_every_slip() -> None:
    """What a planner's policy earns on the slippery lake in 100 steps: as the played mean says."""
    run = rlbook.train("value_iteration", "FrozenLake-v1")
    exact, best = greedy_return(run.agent, run.request.recipe), optimal_return(run.request.recipe)
    assert exact is not None and best is not None and best - 0.01 < exact < best
    played = rlbook.evaluate(run, episodes=400, seed=0).mean
    assert abs(played - exact) < 4 * np.sqrt(exact * (1 - exact) / 400)  # four standard errors


def test_without_a_model_or_a_table_nothing_is_computed() -> None:
    table = rlbook.train("q_learning", "CartPole-v1", steps=50, eval_every=0)
    network = rlbook.train("reinforce", "Maze-v0", steps=200, eval_every=0)
    hidden = rlbook.train("q_learning", "ShortCorridor-v0", steps=50, eval_every=0)
    for run in (table, network, hidden):
        assert greedy_return(run.agent, run.request.recipe) is None
    assert random_return(EnvRecipe("CartPole-v1")) is None


def test_a_network_is_asked_in_every_state() -> None:
    """The corridor has no chance in it, so one played episode tells the same; of blackjack 400 do,
    each of which pays -1, 0, 1 or 1.5: four standard errors."""
    run = rlbook.train("reinforce", "Maze-v0", env_kwargs=CORRIDOR.kwargs, steps=400, eval_every=0)
    exact = network_return(run.agent, run.request.recipe)
    played = rlbook.evaluate(run, episodes=1).mean
    assert exact is not None and exact == near(played, terms=1_000, size=abs(played))
    cards = rlbook.train("dqn", "Blackjack-v1", steps=400, eval_every=0)
    exact, found = (
        network_return(cards.agent, cards.request.recipe),
        rlbook.evaluate(cards, episodes=400),
    )
    assert exact is not None
    assert abs(found.mean - exact) < 4 * found.returns.std() / np.sqrt(400)
    hidden = rlbook.train("reinforce", "ShortCorridor-v0", steps=50, eval_every=0)
    assert network_return(hidden.agent, hidden.request.recipe) is None


def test_a_board_is_shown_cell_by_cell() -> None:
    """A table that is asked on every board earns what its policy does by the numbers of the states."""
    run = rlbook.train("q_learning", "TicTacToe-v0", episodes=300, eval_every=0)
    exact = greedy_return(run.agent, run.request.recipe)
    assert exact is not None and -0.9 < exact < 0.9
    assert network_return(run.agent, run.request.recipe) == near(exact, terms=9)


def test_random_play_in_a_corridor_by_hand() -> None:
    """One step from S: one of four actions enters the goal and pays 10, three bump and pay -5; the
    limit is one step."""
    recipe = EnvRecipe("rlbook/Maze-v0", {"layout": "SG", "max_episode_steps": 1})
    assert random_return(recipe) == near((10 - 3 * 5) / 4, terms=4, size=25.0)


@pytest.mark.slow
def test_naturals_are_what_the_two_games_of_blackjack_differ_by() -> None:
    """Best play sticks on 21 in both, so the difference is what a natural earns above any 21."""
    plain, full = blackjack_model(), naturals_model()
    shown, count = observation_numbers(), plain.num_states
    gain = full.rewards[count:, STICK] - plain.rewards[shown[count:], STICK]
    without = optimal_return(EnvRecipe("Blackjack-v1", {"sab": False}))
    value = optimal_return(EnvRecipe("Blackjack-v1"))
    assert value is not None and without is not None and without < value < 0
    assert value - without == near(float(full.initial[count:] @ gain), terms=count)
    assert optimal_return(EnvRecipe("Blackjack-v1", {"sab": False, "natural": True})) is None


def test_a_natural_wins_unless_the_dealer_has_one() -> None:
    """The dealer's six can become no natural: sticking pays 1. With an ace shown, a ten makes one,
    with 4/13: sticking pays 9/13 on average."""
    model = naturals_model()
    first = len(observation_numbers()) - 10
    assert model.rewards[first + 6 - 1, STICK] == near(1.0, terms=1)
    assert model.rewards[first + 1 - 1, STICK] == near(9 / 13, terms=2)
    assert model.rewards[first + 10 - 1, STICK] == near(12 / 13, terms=2)
    assert observation_numbers()[first + 5] == number((21, True), 6)
    assert model.initial.sum() == near(1.0, terms=model.num_states)
    # 2 · (1/13) · (4/13) of the hands are naturals
    assert model.initial[first:].sum() == near(8 / 169, terms=30)


def test_a_policy_for_blackjack_is_worth_what_it_earns() -> None:
    """Sticking on everything, exactly and in 20 000 games."""
    run = rlbook.train("q_learning", "Blackjack-v1", steps=1, eval_every=0)
    agent: Any = run.agent
    agent.memory.q[:, STICK] = 1.0
    exact = greedy_return(agent, run.request.recipe)
    assert exact is not None
    games = rlbook.evaluate(run, episodes=5_000, seed=0)
    # a game pays -1, 0 or 1: a standard deviation of at most 1
    assert abs(games.mean - exact) < 4 / np.sqrt(len(games.returns))


def test_an_environment_is_solved_within_2_percent_of_the_optimum_or_within_002_of_a_small_one() -> (
    None
):
    cliff, lake = (EnvRecipe.from_env(name) for name in ("CliffWalking-v1", "FrozenLake-v1"))
    assert optimal_return(cliff) == -13 and solving_return(cliff) == near(-13 - 0.02 * 13)
    best = optimal_return(lake)
    assert best is not None and 0.7 < best < 0.8 and solving_return(lake) == near(best - 0.02)


def test_who_sees_nothing_is_paid_until_the_time_limit() -> None:
    """Always to the left, into the wall: -5 at each step. Always to the right: -1, then 10."""
    limit = CORRIDOR.time_limit
    assert limit is not None
    left, right = np.array([0.0, 0.0, 1.0, 0.0]), np.array([0.0, 0.0, 0.0, 1.0])
    assert blind_return(CORRIDOR, left) == near(-5.0 * limit, terms=limit, size=5.0 * limit)
    assert blind_return(CORRIDOR, right) == near(10.0 - 1.0, terms=2)
    assert blind_return(EnvRecipe.from_env("CartPole-v1"), np.array([0.5, 0.5])) is None


def test_chance_takes_no_action_that_cannot_be_taken() -> None:
    """Actions 0 and 2 end the episode and pay 1 and 3; action 1 is forbidden."""
    model = TabularMDP.from_arrays(
        np.array([[[0.0, 1.0]] * 3, [[0.0, 0.0]] * 3]),
        [[1.0, -np.inf, 3.0], [0.0, 0.0, 0.0]],
        terminal=np.array([False, True]),
    )
    assert random_return(EnvRecipe.from_env(TabularEnv(model))) == near(2.0, terms=2)
