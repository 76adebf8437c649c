"""Tree search by hand, and the promises around it: exact values, nothing disturbed, the same tree
compiled or not."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from closeness import near
from gymnasium import spaces
from gymnasium.utils import EzPickle
from gymnasium.wrappers import TransformReward

import rlbook
from rlbook.agent import Step
from rlbook.algorithms.planning.search.mcts import MCTS, MCTSConfig
from rlbook.algorithms.planning.search.simulators import (
    CopySimulator,
    FieldSimulator,
    SnapshotSimulator,
)
from rlbook.algorithms.planning.search.tree import SearchTree
from rlbook.algorithms.planning.search.tree_arrays import back_up, empty_tree
from rlbook.algorithms.planning.search.ucb_selection import select
from rlbook.algorithms.planning.search.world import simulator_of
from rlbook.algorithms.planning.table_model import TableModel
from rlbook.envs import TabularMDP
from rlbook.envs.tabular.tabular_env import TabularEnv
from rlbook.fast.compiled import available
from rlbook.fast.tabular.table_search import arrays_of, grow_compiled, grow_plain
from rlbook.fast_forms import use_plain_forms
from rlbook.interaction.resumable import ResumableEnv
from rlbook.interaction.spaces import AdaptedEnv, adapt_to

GAMMA = 0.5


def two_levels(scale: float = 1.0) -> TabularMDP:
    """Two moves and out. State 0: left to 1 for 0, right to 2 for 1. State 1: 4 or 6, and the end.
    State 2: 2 or 0, and the end.

    With γ = 1/2: Q(1) = (4, 6), Q(2) = (2, 0), Q(0) = (0 + 6/2, 1 + 2/2) = (3, 2). Greed for the
    first reward goes right; left is best.
    """
    transitions = np.zeros((8, 4))
    transitions[[0, 1], [1, 2]] = 1.0
    transitions[2:, 3] = 1.0
    rewards = scale * np.array([[0.0, 1.0], [4.0, 6.0], [2.0, 0.0], [0.0, 0.0]])
    return TabularMDP.from_arrays(
        transitions, rewards, terminal=[False, False, False, True], initial=[1.0, 0, 0, 0]
    )


def chances() -> TabularMDP:
    """One decision: a sure 2, or a coin's 0 or 5 at the second step. Q = (2, 0.5 · 0.5 · 5 = 1.25)
    for γ = 1/2."""
    transitions = np.zeros((8, 4))
    transitions[0, 3] = 1.0
    transitions[1, [1, 2]] = 0.5
    transitions[2:, 3] = 1.0
    rewards = np.array([[2.0, 0.0], [0.0, 0.0], [5.0, 5.0], [0.0, 0.0]])
    return TabularMDP.from_arrays(
        transitions, rewards, terminal=[False, False, False, True], initial=[1.0, 0, 0, 0]
    )


def agent_in(
    env: Any, seed: int = 0, value: Any = None, **settings: Any
) -> tuple[MCTS, AdaptedEnv]:
    """An agent and its environment, as a run has them."""
    raw, config = ResumableEnv(env), MCTSConfig(**settings)
    fitted = AdaptedEnv(raw, adapt_to(MCTS, raw, config))
    return MCTS(fitted, config, seed, value), fitted


def searched(env: Any, seed: int = 0, value: Any = None, **settings: Any) -> SearchTree:
    """One search from the start of an episode."""
    agent, fitted = agent_in(env, seed, value, **settings)
    observation, _ = fitted.reset(seed=seed)
    agent.act(observation)
    assert agent.tree is not None
    return agent.tree


def exact(model: TabularMDP, gamma: float) -> np.ndarray:
    """Q*, by value iteration, to rounding."""
    values = np.zeros(model.num_states)
    for _ in range(3000):
        values = model.backup(values, gamma).max(axis=1)
    return model.backup(values, gamma)


# ---- by hand


def test_backup_discounts_each_step_and_averages() -> None:
    """Edges 1 and 4 of two nodes with 2 actions and then a third: rewards 1 and 2, the leaf 8, γ =
    1/2."""
    tree = empty_tree(3, 2)
    tree.path[:2], tree.rewards[:2] = [1, 4], [1.0, 2.0]
    arguments = (
        tree.path,
        tree.rewards,
        2,
        tree.visits,
        tree.count,
        tree.mean,
        tree.used,
        tree.bounds,
        GAMMA,
    )
    back_up(8.0, 2, *arguments)
    assert tree.mean == [0, 1 + 0.5 * (2 + 0.5 * 8), 0, 0, 2 + 0.5 * 8, 0]
    back_up(0.0, 2, *arguments)
    assert tree.mean == [0, (4 + (1 + 0.5 * 2)) / 2, 0, 0, (6 + 2) / 2, 0]
    assert tree.count == [0, 2, 0, 0, 2, 0] and tree.visits == [2, 0, 2]
    assert tree.bounds == [2.0, 6.0], "of all returns met: 4, 6, 2, 2"


def test_selection_is_ucb1_on_returns_scaled_to_one() -> None:
    """Q = 0 after 1 try, 6 after 8; returns from -2 to 8, so scaled 0.2 and 0.8. Equal where 0.2 +
    c √(ln 9) = 0.8 + c √(ln 9 / 8)."""
    threshold = (0.8 - 0.2) / (math.sqrt(math.log(9)) - math.sqrt(math.log(9) / 8))
    for c, chosen in ((threshold * 0.999, 1), (threshold * 1.001, 0)):
        assert (
            select(0, 2, [9], [1, 8], [0.0, 6.0], [-2.0, 8.0], c, np.random.default_rng(0))
            == chosen
        )


def test_an_untried_action_goes_first_and_each_is_as_likely() -> None:
    rng = np.random.default_rng(0)
    chosen = np.bincount(
        [
            select(0, 4, [1], [0, 1, 0, 0], [0.0, 99.0, 0.0, 0.0], [0.0, 99.0], 1.0, rng)
            for _ in range(3000)
        ],
        minlength=4,
    )
    assert chosen[1] == 0
    assert abs(chosen[[0, 2, 3]] - 1000).max() < 5 * math.sqrt(3000 * 1 / 3 * 2 / 3)


def test_equal_scores_are_equally_likely() -> None:
    rng = np.random.default_rng(0)
    chosen = np.bincount(
        [
            select(0, 4, [8], [2] * 4, [1.0, 3.0, 3.0, 3.0], [0.0, 4.0], 1.0, rng)
            for _ in range(3000)
        ],
        minlength=4,
    )
    assert chosen[0] == 0
    assert abs(chosen[1:] - 1000).max() < 5 * math.sqrt(3000 * 1 / 3 * 2 / 3)


def test_the_action_tried_most_often_is_played_and_the_value_decides_ties() -> None:
    """A high mean of few tries is luck."""
    tree = empty_tree(1, 4)
    tree.count[:], tree.mean[:] = [3, 7, 7, 1], [9.0, 1.0, 2.0, 99.0]
    assert SearchTree(tree, 4, "chance").best_actions() == [2]
    tree.mean[1] = 2.0
    assert SearchTree(tree, 4, "chance").best_actions() == [1, 2]


def test_a_tree_of_two_levels_holds_what_the_hand_computes() -> None:
    """Without rollouts every return is exact at the second level: Q(1) = (4, 6) and Q(2) = (2,
    0)."""
    tree = searched(TabularEnv(two_levels()), gamma=GAMMA, simulations=400, leaf="value", c=0.5)
    left, right = tree.children(0, 0)[0], tree.children(0, 1)[0]
    assert tree.values(left) == [4.0, 6.0] and tree.values(right) == [2.0, 0.0]
    assert tree.num_nodes == 1 + 2 + 4 and tree.depth == 2 and tree.simulations == 400
    assert sum(tree.counts()) == 400 and tree.best_actions() == [0]
    for action, child in ((0, left), (1, right)):
        tries, (first, second), values = (
            tree.counts()[action],
            tree.counts(child),
            tree.values(child),
        )
        assert first + second == tries - 1, "the simulation that added a node stopped there"
        paid = [0.0, 1.0][action]
        backed_up = (paid * tries + GAMMA * (first * values[0] + second * values[1])) / tries
        assert tree.values()[action] == near(backed_up, terms=tries, size=4)
        exact, best = ((3.0, 6.0), (2.0, 2.0))[action]
        assert exact - GAMMA * lost(tries, best) <= tree.values()[action] <= exact


def lost(tries: int, best: float) -> float:
    """How far a mean over `tries` of a state of `two_levels` may be below its best action; c = 1/2.

    The first try of the state pays nothing. Returns span 6, and the worse action pays 2 less. UCB1
    chooses it only while c √(ln N / n) · 6 > 2, that is n ≤ (6 c / 2)² ln N + 1 times.
    """
    return (best + 2 * ((6 * 0.5 / 2) ** 2 * math.log(tries) + 1)) / tries


def test_a_rollout_pays_what_random_moves_pay() -> None:
    """From state 1 they earn (4 + 6) / 2 = 5 on average, from state 2 they earn 1: Q(0) = (0 + 5/2,
    1 + 1/2) after one try each."""
    first_tries = [
        searched(TabularEnv(two_levels()), seed, gamma=GAMMA, simulations=2).values()
        for seed in range(400)
    ]
    # a return's deviation is 0.5 · 1
    assert np.mean(first_tries, axis=0) == pytest.approx([2.5, 1.5], abs=5 * 0.5 / 20)


def test_a_rollout_stops_at_its_depth() -> None:
    """A treadmill that pays 1 a step: 1 for the step in the tree and 3 for the rollout, or 10 more
    where states are said to be worth 10."""
    model = TabularMDP.from_arrays(np.ones((1, 1)), np.ones((1, 1)))
    assert searched(TabularEnv(model), gamma=1.0, simulations=1, rollout_depth=3).values() == [4.0]
    assert searched(TabularEnv(model), gamma=0.5, simulations=1, rollout_depth=3).values() == [
        1 + 0.5 + 0.25 + 0.125
    ]
    assert searched(
        TabularEnv(model), value=lambda state: 10.0, gamma=0.5, simulations=1, rollout_depth=3
    ).values() == [1.875 + 10 / 16]
    assert searched(
        TabularEnv(model), value=lambda state: 10.0, gamma=0.5, simulations=1, leaf="value"
    ).values() == [1 + 10 / 2]


def test_an_episode_that_terminated_is_worth_nothing_more() -> None:
    """Whatever the value function says of the last state."""
    for env in (TabularEnv(two_levels()), LadderReturns(truncates=False)):
        tree = searched(
            env, value=lambda state: 1000.0, gamma=GAMMA, simulations=50, leaf="value", c=1.0
        )
        assert max(tree.values(tree.children(0, 0)[0])) <= 6.0


def test_an_episode_that_the_environment_cuts_off_is_worth_what_the_value_function_says() -> None:
    """Two rungs of 1 each, then the end: 1 + 1/2 · 1 if it terminates, and 1/4 · 8 = 2 more if it
    is cut off."""
    for truncates, end in ((False, 0.0), (True, 8.0)):
        tree = searched(
            LadderReturns(truncates=truncates),
            value=lambda state: 8.0,
            gamma=GAMMA,
            simulations=20,
            leaf="value",
        )
        rung = tree.children(0, 0)[0]
        assert tree.values(rung)[0] == 1 + GAMMA * end
        assert tree.depth == 2, "nothing is simulated beyond"


def test_a_node_that_was_cut_off_keeps_its_worth_when_simulations_come_back_to_it() -> None:
    """Action 0 is cut off where 8 is shown, action 1 leads on, where 0 is shown: Q(0) = 1/2 · 8
    after every simulation of it, also when the simulation before has gone the other way. The same
    of a tree that was saved."""
    agent, env = agent_in(Fork(), value=float, gamma=GAMMA, simulations=30, leaf="value", c=5.0)
    agent.act(env.reset(seed=0)[0])
    found = agent.tree
    assert found is not None and found.mode == "closed"
    assert found.values()[0] == GAMMA * 8 and min(found.counts()) > 5
    loaded = SearchTree.from_state(found.state_dict())
    grown = agent.search(0, np.random.default_rng(1), reused_tree=loaded.subtree(0, spare=30))
    assert grown.simulations == 60 and grown.values()[0] == GAMMA * 8


def test_a_time_limit_does_not_end_a_simulation() -> None:
    env = gymnasium.wrappers.TimeLimit(
        TabularEnv(TabularMDP.from_arrays(np.ones((1, 1)), np.ones((1, 1)))), 2
    )
    assert searched(env, gamma=1.0, simulations=1, rollout_depth=5).values() == [6.0]


# ---- chance


@pytest.mark.parametrize("stochastic", ["chance", "open-loop"])
def test_outcomes_of_chance_are_averaged_not_maximised(stochastic: str) -> None:
    """Q = (2, 1.25); a search that took the best outcome for granted would see 2.5 and gamble.

    A gamble's deviation is 2.5 / 2 = 1.25; its mean is right up to 4 standard errors.
    """
    tree = searched(
        TabularEnv(chances()),
        gamma=GAMMA,
        simulations=20_000,
        stochastic=stochastic,
        leaf="value",
        c=1.0,
    )
    assert tree.best_actions() == [0] and tree.values()[0] == 2.0
    error = 1.25 / math.sqrt(tree.counts()[1])
    assert tree.values()[1] == pytest.approx(1.25, rel=0, abs=4 * error)
    assert len(tree.children(0, 1)) == (2 if stochastic == "chance" else 1)


@pytest.mark.parametrize("stochastic", ["chance", "open-loop"])
def test_a_table_and_a_simulated_environment_give_the_same_values(stochastic: str) -> None:
    for env in (TabularEnv(chances()), Hidden(chances())):
        tree = searched(
            env, gamma=GAMMA, simulations=4_000, stochastic=stochastic, leaf="value", c=1.0
        )
        gamble = pytest.approx(1.25, rel=0, abs=4 * 1.25 / math.sqrt(tree.counts()[1]))
        assert tree.values() == [2.0, gamble]


def test_a_random_environment_is_found_out() -> None:
    agent, fitted = agent_in(Hidden(chances()), gamma=GAMMA, simulations=500)
    agent.act(fitted.reset(seed=0)[0])
    assert agent.tree is not None and agent.tree.mode == "chance" and agent.tree.simulations == 500
    assert len(agent.tree.children(0, 1)) == 2
    assert searched(Certain(two_levels()), simulations=50).mode == "closed"
    assert searched(Noisy(), simulations=50).mode == "open-loop", "numbers that never come again"


def test_the_search_does_not_see_the_dice_of_the_real_environment() -> None:
    """A guess of a fair coin wins 1 or loses 1. Who saw the generator's next number would win
    nearly always; nobody can win on average."""
    for reuse in (False, True):
        agent, env = agent_in(
            Coin(), simulations=40, stochastic="chance", rollout_depth=1, reuse_tree=reuse
        )
        observation, _ = env.reset(seed=1)
        wins = 0
        for _ in range(400):
            action = agent.act(observation)
            observation_before = observation
            observation, reward, terminated, truncated, _ = env.step(action)
            agent.learn(
                Step(observation_before, action, reward, observation, terminated, truncated)
            )
            wins += reward > 0
        assert abs(wins - 200) < 4 * math.sqrt(400 / 4)


# ---- nothing is disturbed

ENVIRONMENTS: list[tuple[str, dict[str, Any], type]] = [
    ("Maze-v0", {"slip": 0.3}, TableModel),
    ("Maze-v0", {"slip": 0.3, "observation": "coordinates"}, SnapshotSimulator),
    ("FrozenLake-v1", {}, TableModel),
    ("Taxi-v4", {}, TableModel),
    ("CartPole-v1", {}, FieldSimulator),
    ("MountainCar-v0", {}, FieldSimulator),
    ("Acrobot-v1", {}, FieldSimulator),
    ("Pendulum-v1", {}, FieldSimulator),
    ("Addition-v0", {}, SnapshotSimulator),
    ("Blackjack-v1", {}, CopySimulator),
]


@pytest.mark.parametrize(
    ("name", "kwargs", "kind"), ENVIRONMENTS, ids=lambda item: item if isinstance(item, str) else ""
)
def test_a_search_leaves_the_real_environment_alone(
    name: str, kwargs: dict[str, Any], kind: type
) -> None:
    """The same actions lead through the same episode with searches in between and without, the
    generator's state included."""
    agent, searching = agent_in(rlbook.make(name, **kwargs), simulations=12, rollout_depth=4)
    assert type(agent._world) is kind
    _, alone = agent_in(rlbook.make(name, **kwargs), simulations=1)
    (one, _), (other, _) = searching.reset(seed=5), alone.reset(seed=5)
    for _ in range(8):
        assert frozen({"obs": one}) == frozen({"obs": other})
        before = _fingerprint(searching)
        action = agent.act(one)
        agent.act(one, explore=False)
        assert _fingerprint(searching) == before
        one, *rest, _ = searching.step(action)
        other, *others, _ = alone.step(action)
        assert rest == others
        if rest[1] or rest[2]:
            (one, _), (other, _) = searching.reset(), alone.reset()
    assert _generator(searching) == _generator(alone)


@pytest.mark.parametrize("reuse", [False, True])
def test_acting_without_exploring_changes_nothing_in_the_agent_and_repeats_itself(
    reuse: bool,
) -> None:
    for name in ("Maze-v0", "CartPole-v1"):
        agent, env = agent_in(rlbook.make(name), simulations=30, reuse_tree=reuse)
        observation, _ = env.reset(seed=0)
        action = agent.act(observation)
        agent.learn(Step(observation, action, 0.0, env.step(action)[0], False, False))
        observation, before = env.env.obs, frozen(agent.state_dict())  # type: ignore[attr-defined]
        actions = {agent.act(observation, explore=False) for _ in range(5)}
        rlbook.evaluate(agent, rlbook.make(name, max_episode_steps=20), episodes=2)
        rlbook.evaluate(agent, rlbook.make(name, max_episode_steps=20), episodes=2, explore=True)
        assert len(actions) == 1 and frozen(agent.state_dict()) == before


def test_an_evaluation_searches_in_its_own_environment() -> None:
    """The training environment waits elsewhere meanwhile, so a search that started from there would
    play at random."""
    agent, env = agent_in(rlbook.make("CartPole-v1"), simulations=40)
    env.reset(seed=0)
    while not env.step(0)[2]:
        pass  # until the pole lies on the floor
    assert (
        rlbook.evaluate(
            agent, rlbook.make("CartPole-v1", max_episode_steps=60), episodes=1
        ).lengths[0]
        == 60
    )


# ---- one tree, however it is grown


@pytest.mark.thorough(quick=1)
@pytest.mark.skipif(not available(), reason="numba is not installed")
@pytest.mark.parametrize("open_loop", [False, True])
def test_the_compiled_search_grows_the_same_tree_to_the_last_bit(open_loop: bool) -> None:
    for name, kwargs in (("Maze-v0", {}), ("FrozenLake-v1", {})):
        model = TableModel(TabularMDP.from_env(rlbook.make(name, **kwargs)))
        grown = []
        for run, table in ((grow_plain, model.table), (grow_compiled, arrays_of(model))):
            rng = np.random.default_rng(3)
            tree = empty_tree(701, 4)
            for simulations in (1, 99, 600):
                tree = run(tree, table, 0, 4, simulations, 0.95, 0.7, 10, open_loop, rng)
            grown.append(([np.asarray(field).tolist() for field in tree[:8]], rng.random()))
        assert grown[0] == grown[1]


@pytest.mark.parametrize("stochastic", ["chance", "open-loop"])
@pytest.mark.parametrize("name", ["Maze-v0", "FrozenLake-v1", "CartPole-v1"])
def test_the_search_that_is_read_grows_the_same_tree_as_its_fast_form(
    name: str, stochastic: str
) -> None:
    """With discounted rollouts that end in a value function, so that each line of the evaluation
    counts."""
    trees = {}
    for plain in (False, True):
        with use_plain_forms(plain):
            how: dict[str, Any] = {
                "gamma": 0.5,
                "simulations": 150,
                "rollout_depth": 4,
                "stochastic": stochastic,
            }
            agent, env = agent_in(rlbook.make(name), 3, value=lambda observation: 2.5, **how)
            observation, _ = env.reset(seed=3)
            action = agent.act(observation)
            assert agent.tree is not None
            trees[plain] = (
                [np.asarray(field).tolist() for field in agent.tree.tree[:8]],
                action,
                agent.rng.random(),
            )
    assert trees[True] == trees[False]


class Treadmill(gymnasium.Env[int, int]):
    """Pays 1 a step and goes on forever; a user's environment without a table."""

    observation_space, action_space = gymnasium.spaces.Discrete(1), gymnasium.spaces.Discrete(2)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        return 0, {}

    def step(self, action: int) -> tuple[int, Any, bool, bool, dict[str, Any]]:
        return 0, 1.0, False, False, {}


def test_a_rollout_of_a_simulated_environment_is_discounted_and_so_is_the_estimate_at_its_end() -> (
    None
):
    """γ = 1/2: the step in the tree, three of the rollout, and 10 where it ends: 1 + 1/2 + 1/4 +
    1/8 + 10/16."""
    for plain in (False, True):
        with use_plain_forms(plain):
            paid = searched(Treadmill(), gamma=0.5, simulations=2, rollout_depth=3).values()
            ended = searched(
                Treadmill(), value=lambda state: 10.0, gamma=0.5, simulations=2, rollout_depth=3
            ).values()
            valued = searched(
                Treadmill(), value=lambda state: 10.0, gamma=0.5, simulations=2, leaf="value"
            ).values()
            assert (paid, ended, valued) == ([1.875] * 2, [1.875 + 10 / 16] * 2, [1 + 10 / 2] * 2)


class Breaking(Treadmill):
    """Fails in its third step."""

    def __init__(self, answer: Any) -> None:
        self.answer, self.steps = answer, 0

    def step(self, action: int) -> tuple[int, Any, bool, bool, dict[str, Any]]:
        self.steps += 1
        if self.steps > 2 and isinstance(self.answer, Exception):
            raise self.answer
        return 0, 1.0 if self.steps <= 2 else self.answer, False, False, {}


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (
            KeyError("north"),
            "the environment failed in a simulation of the search: KeyError: 'north'",
        ),
        (
            None,
            (
                "the environment failed in a simulation of the search: the reward must be a number,"
                " got None"
            ),
        ),
        (math.nan, "the reward of a simulated step is not finite: nan"),
    ],
)
def test_an_environment_that_fails_in_a_simulation_is_told_in_one_sentence(
    answer: Any, said: str
) -> None:
    with pytest.raises(rlbook.TrainingError, match=said):
        rlbook.train("mcts", Breaking(answer), steps=5, simulations=20)


def test_the_logarithm_is_of_the_number_of_tries_and_of_nothing_more() -> None:
    """Equal scores where c (√(ln 4 / 1) - √(ln 4 / 3)) = 1 / 2; with a c a hair above the action
    tried once goes first."""
    threshold = 0.5 / (math.sqrt(math.log(4)) - math.sqrt(math.log(4) / 3))
    for c, chosen in ((threshold * (1 - 1e-9), 1), (threshold * (1 + 1e-9), 0)):
        assert (
            select(0, 2, [4], [1, 3], [0.0, 0.5], [0.0, 1.0], c, np.random.default_rng(0)) == chosen
        )


def test_a_simulated_environment_grows_the_tree_of_its_table() -> None:
    """Deterministic, so both draw the same numbers for the same purposes; the simulator draws one
    more before, for the environment."""
    model = two_levels()
    for c in (0.3, 1.0):
        rng, other = np.random.default_rng(4), np.random.default_rng(4)
        in_table, in_copies = (
            agent_in(TabularEnv(model), simulations=60, c=c)[0],
            agent_in(Certain(model), simulations=60, c=c)[0],
        )
        in_copies._world.real.reset(seed=0)  # type: ignore[union-attr]
        other.random()
        trees = in_copies.search(0, rng), in_table.search(0, other)
        assert trees[0].counts() == trees[1].counts() and trees[0].values() == trees[1].values()
        assert trees[0].tree.mean == trees[1].tree.mean


def test_rewards_times_a_thousand_change_nothing_but_the_values() -> None:
    """1024, so that not even rounding differs: c means the same whatever the rewards are, far below
    1 or far above."""
    small, middle, large = (
        searched(TabularEnv(two_levels(scale)), seed=2, simulations=200)
        for scale in (1 / 1024, 1.0, 1024.0)
    )
    assert small.tree.count == middle.tree.count == large.tree.count
    assert [1024 * value for value in small.tree.mean] == middle.tree.mean
    assert [1024 * value for value in middle.tree.mean] == large.tree.mean


def test_a_kept_tree_is_the_part_under_the_move() -> None:
    for env in (TabularEnv(two_levels()), Certain(two_levels())):
        agent, fitted = agent_in(env, gamma=GAMMA, simulations=50, reuse_tree=True)
        observation, _ = fitted.reset(seed=0)
        action = agent.act(observation)
        before = agent.tree
        assert before is not None
        child = before.children(0, action)[0]
        counts, values = before.counts(child), before.values(child)
        next_obs, reward, *_ = fitted.step(action)
        metrics = agent.learn(Step(observation, action, reward, next_obs, False, False))
        assert metrics["simulations"] == 50 and metrics["depth"] == 2
        kept = agent._kept
        assert (
            kept is not None
            and kept.counts() == counts
            and kept.values() == values
            and kept.depth == 1
        )
        agent.act(next_obs)
        assert agent.tree is not None and agent.tree.simulations == sum(counts) + 50


def test_nothing_is_kept_across_episodes_or_where_the_world_went_elsewhere() -> None:
    agent, env = agent_in(TabularEnv(two_levels()), simulations=50, reuse_tree=True)
    action = agent.act(0)
    agent.learn(Step(0, action, 0.0, action + 1, False, False))
    assert agent._kept is not None
    agent.begin()
    assert agent._kept is None
    agent.act(0)
    agent.learn(Step(0, 0, 0.0, 2, False, False))  # action 0 leads to 1 in the model
    assert agent._kept is None
    env.close()


@pytest.mark.parametrize("name", ["Maze-v0", "MountainCar-v0", "CartPole-v1"])
def test_an_agent_that_was_saved_goes_on_bit_for_bit(name: str) -> None:
    played = []
    for saved_at in (None, 3):
        agent, env = agent_in(rlbook.make(name), simulations=30, reuse_tree=True)
        observation, _ = env.reset(seed=0)
        actions = []
        for t in range(6):
            if t == saved_at:
                state = copy.deepcopy(agent.state_dict())
                agent, _ = agent_in(env.env.env, seed=99, simulations=30, reuse_tree=True)  # type: ignore[attr-defined]
                agent.load_state_dict(state)
            actions.append(agent.act(observation))
            next_obs, reward, terminated, truncated, _ = env.step(actions[-1])
            agent.learn(Step(observation, actions[-1], reward, next_obs, terminated, truncated))
            observation = next_obs
        played.append((actions, frozen(agent.state_dict())))
    assert played[0] == played[1]


@pytest.mark.thorough(quick=1)
@pytest.mark.parametrize(
    ("name", "kwargs"),
    [("Maze-v0", {"slip": 0.2}), ("MountainCar-v0", {}), ("Addition-v0", {"reward": "prefix"})],
)
def test_a_run_taken_up_again_ends_as_one_that_was_never_stopped(
    name: str, kwargs: dict[str, Any], tmp_path: Path
) -> None:
    options: dict[str, Any] = {
        "env_kwargs": kwargs,
        "seed": 4,
        "simulations": 20,
        "reuse_tree": True,
    }
    whole = rlbook.train("mcts", name, steps=40, out=tmp_path / "whole", **options)
    rlbook.train("mcts", name, steps=17, out=tmp_path / "parts", **options)
    parts = rlbook.load(tmp_path / "parts").resume(steps=40)
    assert frozen(parts.agent.state_dict()) == frozen(whole.agent.state_dict())
    assert parts.episode_returns == whole.episode_returns


# ---- which way of looking ahead


def test_a_wrapper_that_changes_the_rewards_is_searched_with() -> None:
    env = TransformReward(rlbook.make("Maze-v0"), lambda reward: 7.0 * reward)
    agent, fitted = agent_in(env, simulations=4, rollout_depth=1, gamma=0.0)
    assert isinstance(agent._world, CopySimulator)
    agent.act(fitted.reset(seed=0)[0])
    assert agent.tree is not None and agent.tree.values() == [
        -35.0,
        -7.0,
        -35.0,
        -7.0,
    ], "bumps above and to the left cost 5"


def test_what_cannot_be_copied_is_refused_in_one_sentence() -> None:
    class Locked(Coin):
        def __deepcopy__(self, memo: Any) -> Any:
            raise TypeError("cannot pickle 'socket' object")

    with pytest.raises(
        ValueError,
        match=(
            r"^Locked cannot be searched: .* cannot be copied \(cannot pickle 'socket' object\)\.$"
        ),
    ):
        agent_in(Locked())
    with pytest.raises(ValueError, match="reuse_tree needs an environment with snapshot"):
        agent_in(rlbook.make("Blackjack-v1"), reuse_tree=True)


def test_the_policy_and_values_of_a_table_are_those_of_a_search_in_each_state() -> None:
    """Q(0) = (3, 2), Q(1) = (4, 6), Q(2) = (2, 0)."""
    agent, _ = agent_in(TabularEnv(two_levels()), gamma=GAMMA, simulations=300, leaf="value")
    assert (
        agent.greedy_policy()[:3].tolist()
        == [agent.act(state, explore=False) for state in range(3)]
        == [0, 1, 0]
    )
    values = agent.values()
    assert 3 - GAMMA * lost(150, 6.0) <= values[0] <= 3, "at least half of the tries are the best's"
    assert values[1:] == near([6.0, 2.0, 0.0])
    with pytest.raises(rlbook.RequestError, match="only if the environment is a table"):
        agent_in(rlbook.make("CartPole-v1"))[0].greedy_policy()


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("simulations", 0),
        ("c", -1),
        ("leaf", "guess"),
        ("stochastic", "yes"),
        ("rollout_depth", 0),
        ("gamma", 2),
    ],
)
def test_settings_out_of_range_are_refused(name: str, wrong: Any) -> None:
    with pytest.raises(ValueError, match=f"^{name} must be "):
        MCTSConfig(**{name: wrong})


# ---- comparing and small worlds


def frozen(value: Any) -> Any:
    """Nested dicts, lists and arrays as something that can be compared with ==."""
    if isinstance(value, dict):
        return {key: frozen(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [frozen(item) for item in value]
    return (value.shape, value.tobytes()) if isinstance(value, np.ndarray) else value


class Hidden(TabularEnv):
    """A table that only shows itself through `step`, `snapshot` and `restore`."""

    def __init__(self, model: TabularMDP) -> None:
        super().__init__(model)
        self.observation_space = spaces.MultiDiscrete([model.num_states, 1])

    def reset(self, **options: Any) -> Any:
        state, info = super().reset(**options)
        return np.array([state, 0]), info

    def step(self, action: Any) -> Any:
        state, *rest = super().step(action)
        return np.array([state, 0]), *rest


class Certain(Hidden):
    """The same without dice: each action's likeliest outcome follows, and no random number is
    drawn."""

    def __init__(self, model: TabularMDP) -> None:
        super().__init__(model)
        self.tables = model

    def step(self, action: Any) -> Any:
        row = self._state * self.tables.num_actions + int(action)
        reward = float(self.tables.rewards[self._state, action])
        self._state = int(self.tables.transitions[[row]].toarray().argmax())
        return (
            np.array([self._state, 0]),
            reward,
            bool(self.tables.terminal[self._state]),
            False,
            {},
        )


class LadderReturns(gymnasium.Env):
    """Two rungs, 1 each, and the end: terminated or truncated."""

    observation_space, action_space = spaces.Box(0, 2, (1,)), spaces.Discrete(1)

    def __init__(self, *, truncates: bool) -> None:
        self.truncates, self.rung = truncates, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.rung = 0
        return np.zeros(1, dtype=np.float32), {}

    def step(self, action: Any) -> Any:
        self.rung += 1
        over = self.rung == 2
        return (
            np.full(1, self.rung, dtype=np.float32),
            1.0,
            over and not self.truncates,
            over and self.truncates,
            {},
        )


class Fork(gymnasium.Env):
    """Action 0 is cut off and shows 8; action 1 goes on and shows 0."""

    observation_space, action_space = spaces.Discrete(9), spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return 0, {}

    def step(self, action: Any) -> Any:
        return (0 if action else 8), 0.0, False, not action, {}

    def snapshot(self) -> dict[str, Any]:
        return {"rng": self.np_random.bit_generator.state}

    def restore(self, state: dict[str, Any]) -> None:
        self.np_random.bit_generator.state = state["rng"]


class Coin(gymnasium.Env):
    """Guess the toss."""

    observation_space, action_space = spaces.Discrete(2), spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return 0, {}

    def step(self, action: Any) -> Any:
        toss = int(self.np_random.random() < 0.5)
        return toss, 1.0 if action == toss else -1.0, False, False, {}

    def snapshot(self) -> dict[str, Any]:
        return {"rng": self.np_random.bit_generator.state}

    def restore(self, state: dict[str, Any]) -> None:
        self.np_random.bit_generator.state = state["rng"]


class Noisy(Coin):
    """Shows a number that never comes again."""

    observation_space = spaces.Box(-np.inf, np.inf, (1,), np.float64)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return np.zeros(1), {}

    def step(self, action: Any) -> Any:
        return self.np_random.random(1), 0.0, False, False, {}


def _generator(env: Any) -> Any:
    return env.unwrapped.np_random.bit_generator.state


def _fingerprint(env: Any) -> Any:
    """What the environment holds, the generator included."""
    inner = env.unwrapped
    if hasattr(inner, "snapshot"):
        return frozen(inner.snapshot())
    held = {
        key: value
        for key, value in vars(inner).items()
        if isinstance(value, int | float | str | tuple | list | np.ndarray | None)
    }
    return repr(held), repr(_generator(env))


class Remade(EzPickle, gymnasium.Env):
    """Counts its steps, and is copied as gymnasium's Box2D, MuJoCo and Atari are: by its arguments
    alone."""

    observation_space, action_space = spaces.Discrete(100), spaces.Discrete(2)

    def __init__(self) -> None:
        EzPickle.__init__(self)
        self.count = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        self.count = 0
        return 0, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        self.count += 1
        return self.count, 1.0, self.count > 50, False, {}


class Kept(Remade):
    """The same, with copies that are where it is."""

    def __deepcopy__(self, memo: dict[int, Any]) -> Kept:
        twin = Kept()
        twin.count = self.count
        return twin


def test_an_environment_whose_copies_begin_anew_is_refused() -> None:
    with pytest.raises(
        ValueError,
        match=(
            r"^Remade cannot be searched: .*, and a copy of it starts over \(it is an EzPickle\)\.$"
        ),
    ):
        simulator_of(Remade(), None, 2)
    env = Kept()
    env.reset()
    env.step(0)
    world: Any = simulator_of(env, None, 2)
    world.prepare(SearchTree(empty_tree(2, 2), 2, "closed"), np.random.default_rng(0))
    world.to_root()
    world.step(0)
    assert world.obs == 2


def test_a_search_sees_what_a_part_of_the_environment_shows() -> None:
    """MiniGrid's planes are shown by a wrapper of `rlbook.envs`, which is not left out as those of
    a run are."""

    class Doubled(gymnasium.ObservationWrapper):
        __module__ = "rlbook.envs.doubled"

        def observation(self, observation: int) -> int:
            return 2 * observation

    env = Doubled(Kept())
    env.reset()
    world: Any = simulator_of(env, None, 2)
    world.prepare(SearchTree(empty_tree(2, 2), 2, "closed"), np.random.default_rng(0))
    world.to_root()
    world.step(0)
    assert world.obs == 2
