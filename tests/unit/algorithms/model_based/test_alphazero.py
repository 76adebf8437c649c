"""AlphaZero: PUCT, its targets and its loss by hand; searches with exact values; whose gain a value
is."""

from __future__ import annotations

import math
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from closeness import assert_near, near, rounding_bound, widths

import rlbook
from rlbook.agent import Step
from rlbook.algorithms.model_based.alphazero import AlphaZero, alphazero_loss
from rlbook.algorithms.model_based.alphazero_config import AlphaZeroConfig
from rlbook.algorithms.planning.search.puct_selection import mix_noise, select_puct, visit_policy
from rlbook.data.positions import Positions
from rlbook.envs.tic_tac_toe import boards, is_finished, number, perfect_values, positions
from rlbook.functional.policy_losses import cross_entropy_loss
from rlbook.interaction.spaces import AdaptedEnv, adapt_to

PERFECT = perfect_values()


def puct(
    count: list[int],
    mean: list[float],
    prior: list[float],
    *,
    c: float,
    bounds: tuple[float, float] = (0.0, 1.0),
) -> int:
    return select_puct(0, len(count), count, mean, prior, list(bounds), c)


def agent_in(
    env: Any, seed: int = 0, env_kwargs: dict[str, Any] | None = None, **options: Any
) -> tuple[AlphaZero, Any]:
    made, config = (
        rlbook.make(env, **(env_kwargs or {})) if isinstance(env, str) else env,
        AlphaZeroConfig(**options),
    )
    adapted = AdaptedEnv(made, adapt_to(AlphaZero, made, config))
    return AlphaZero(adapted, config, seed), adapted


def against_itself(seed: int = 0, **options: Any) -> tuple[AlphaZero, Any]:
    return agent_in("TicTacToe-v0", seed, {"opponent": "self"}, **{"gamma": 1.0} | options)


def oracle(observation: Any, allowed: Any = None) -> tuple[list[float], float]:
    """A uniform prior, and what the position is worth to the side to move."""
    free = np.asarray(observation) == 0
    return (free / max(free.sum(), 1)).tolist(), float(PERFECT[number(np.asarray(observation))])


def some_positions(count: int) -> np.ndarray:
    """Open positions in which not every move is as good as every other."""
    after = -PERFECT[
        number(
            np.where(boards()[:, None] == 0, 0, 3 - boards()[:, None]) + 2 * np.eye(9, dtype=int)
        )
        % 3**9
    ]
    free = boards() == 0
    uneven = np.where(free, after, np.inf).min(axis=1) < np.where(free, after, -np.inf).max(axis=1)
    return np.random.default_rng(0).permutation(
        np.flatnonzero(positions() & ~is_finished() & uneven)
    )[:count]


def share_of_best_moves(agent: AlphaZero, env: Any, states: np.ndarray) -> float:
    """Of greedy moves that keep what the position is worth."""
    good = 0
    for state in states.tolist():
        env.unwrapped.restore(env.unwrapped.snapshot() | {"state": state})
        cell = agent.act(boards()[state], explore=False)
        env.unwrapped.restore(env.unwrapped.snapshot() | {"state": state})
        shown, reward, ended, *_ = env.step(cell)
        good += (reward if ended else -PERFECT[number(shown)]) == PERFECT[state]
    return good / len(states)


def test_puct_by_hand() -> None:
    """N(s) = 1 + 3 + 1: 0.5 + c · 0.5 · √5 / 4 against 0 + c · 0.5 · √5 / 2. They meet at c = 0.5 /
    (√5 / 8) = 1.789."""
    meet = 0.5 / (math.sqrt(5) / 8)
    assert puct([3, 1], [0.5, 0.0], [0.5, 0.5], c=meet - 1e-6) == 0
    assert puct([3, 1], [0.5, 0.0], [0.5, 0.5], c=meet + 1e-6) == 1
    low, high = -30.0, 50.0  # the same returns in other units: the same choice at the same c
    shifted = [low + 0.5 * (high - low), low]
    assert puct([3, 1], shifted, [0.5, 0.5], c=meet - 1e-6, bounds=(low, high)) == 0
    assert puct([3, 1], shifted, [0.5, 0.5], c=meet + 1e-6, bounds=(low, high)) == 1


def test_the_first_choice_follows_the_prior_and_a_prior_of_zero_is_never_chosen() -> None:
    assert puct([0, 0, 0], [0.0] * 3, [0.2, 0.5, 0.3], c=1.0, bounds=(math.inf, -math.inf)) == 1
    assert puct([9, 0], [-5.0, 0.0], [1.0, 0.0], c=100.0, bounds=(-5.0, 5.0)) == 0


def test_an_untried_action_counts_as_the_mean_of_the_tried_ones() -> None:
    """(2 · 0.9 + 1 · 0.3) / 3 = 0.7 at c = 0: less than 0.9, more than 0.3."""
    assert puct([2, 1, 0], [0.9, 0.3, 0.0], [1 / 3] * 3, c=0.0) == 0
    assert puct([1, 1, 0], [0.3, 0.3, 0.0], [0.3, 0.3, 0.4], c=0.01) == 2


def test_what_a_search_recommends_are_its_visits_sharpened_by_the_temperature() -> None:
    assert_near(visit_policy([1, 3]), [1 / 4, 3 / 4])
    assert_near(visit_policy([1, 3], 0.5), [1 / 10, 9 / 10], terms=2)  # 1² and 3²
    assert_near(visit_policy([4, 0, 4, 1], 0.0), [0.5, 0, 0.5, 0])
    assert_near(visit_policy([10**6, 1], 1e-3), [1, 0])  # no overflow


def test_noise_keeps_its_share_and_stays_off_what_is_not_allowed() -> None:
    """The rest of the noise, (0.1, 0.3), is made to add up to 1: (0.25, 0.75)."""
    mixed = mix_noise([0.6, 0.0, 0.4], np.array([0.1, 0.6, 0.3]), 0.25)
    assert_near(mixed, [0.75 * 0.6 + 0.25 * 0.25, 0.0, 0.75 * 0.4 + 0.25 * 0.75], terms=2)


def test_a_prior_is_a_softmax_over_the_moves_that_are_allowed() -> None:
    agent, _ = against_itself()
    for parameter in agent.network.parameters():
        parameter.data.zero_()
    agent.network.policy.layers[-1].bias.data[:3] = torch.tensor([9.0, 0.0, math.log(3)])
    board = np.array([1, 0, 0, 1, 1, 1, 2, 2, 2])
    prior = agent.expect(board, board == 0)[0]
    assert prior == near([0, 0.25, 0.75] + [0] * 6, dtype="float32", terms=9)


def test_the_loss_by_hand() -> None:
    """-(0.25 log 0.5 + 0.75 log 0.5) = log 2 while p is uniform; ½ ((6 - 4) / 2 - 0)² = 0.5."""
    agent, _ = agent_in("Maze-v0", value_coef=3.0)
    for parameter in agent.network.parameters():
        parameter.data.zero_()
    target = torch.tensor([[0.25, 0.75, 0.0, 0.0]])
    batch = Positions(torch.zeros(1, 25), target, torch.tensor([6.0]))
    output = alphazero_loss(agent.network, batch, config=agent.config, center=4.0, deviation=2.0)
    assert output.loss.item() == near(math.log(4) + 3.0 * 0.5, dtype="float32", terms=5)
    log_prob = torch.tensor([[0.5, 0.5], [0.9, 0.1]]).log()
    expected = -(0.25 * math.log(0.5) + 0.75 * math.log(0.5) + 1.0 * math.log(0.1)) / 2
    found = cross_entropy_loss(log_prob, torch.tensor([[0.25, 0.75], [0.0, 1.0]])).item()
    assert found == near(expected, dtype="float32", terms=4)
    with pytest.raises(ValueError, match="target must have the shape"):
        cross_entropy_loss(log_prob, torch.zeros(2, 1))


def test_with_exact_values_and_a_uniform_prior_the_search_plays_perfectly_and_with_a_wrong_sign_it_does_not() -> (
    None
):
    agent, env = against_itself(simulations=150)
    env.reset(seed=0)
    agent.expect = oracle  # type: ignore[method-assign]
    states = some_positions(60)
    assert share_of_best_moves(agent, env, states) == 1.0
    agent.discount = 1.0  # the bug: the opponent's gain taken for one's own
    assert share_of_best_moves(agent, env, states) < 0.8


def test_with_exact_values_and_a_uniform_prior_the_search_finds_the_way_out_of_the_maze() -> None:
    planner: Any = rlbook.train("value_iteration", "Maze-v0", eval_every=0).agent
    agent, _ = agent_in("Maze-v0", simulations=100)
    agent.expect = lambda observation, allowed: ([0.25] * 4, float(planner.values()[observation]))  # type: ignore[method-assign,assignment]
    model = rlbook.make("Maze-v0").unwrapped.model()  # type: ignore[attr-defined]
    best = planner.action_values() >= planner.action_values().max(axis=1, keepdims=True) - 1e-9
    for state in np.flatnonzero(model.reachable() & ~model.terminal).tolist():
        assert best[state, agent.act(state, explore=False)], state


def test_an_end_is_worth_nothing_beside_what_the_last_move_earned() -> None:
    agent, env = against_itself(simulations=20)
    env.reset(seed=0)
    for cell in (0, 1, 2, 4, 3, 5, 7, 6):  # X O X / X O O / O X .: the last mark is a draw
        shown = env.step(cell)[0]
    agent.expect = lambda observation, allowed: (oracle(observation)[0], 1000.0)  # type: ignore[method-assign]
    tree = agent.search(shown, np.random.default_rng(0))
    assert tree.counts() == [0] * 8 + [20] and tree.values()[8] == 0.0


class Bet(gymnasium.Env):
    """Action 0 ends the episode, or leads to a choice between 1 and 0: either as often. Action 1
    costs 1 and ends it."""

    observation_space, action_space = gymnasium.spaces.Discrete(2), gymnasium.spaces.Discrete(2)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        self.where = 0
        return 0, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        if self.where == 1:
            return 1, float(action), True, False, {}
        if action == 1:
            return 0, -1.0, True, False, {}
        self.where = 1
        return 1, 0.0, bool(self.np_random.random() < 0.5), False, {}


def test_in_an_open_loop_search_what_first_ended_the_episode_is_searched_where_it_goes_on() -> None:
    """The node behind action 0 gets its prior when it is met, even at a termination: with none, its
    first action alone would be tried."""
    met = set()
    for seed in range(8):
        agent, env = agent_in(Bet(), simulations=60, stochastic="open-loop", noise_fraction=0.0)
        agent.expect = lambda observation, allowed: ([0.5, 0.5], 0.7)  # type: ignore[method-assign, assignment]
        shown, _ = env.reset(seed=seed)
        first = agent.search(shown, np.random.default_rng(seed), simulations=1)
        met.add(first.values()[0])
        tree = agent.search(shown, np.random.default_rng(seed))
        (behind,) = tree.children(0, 0)
        assert tree.prior[2 * behind : 2 * behind + 2] == [0.5, 0.5]
        assert tree.counts(behind)[1] > tree.counts(behind)[0] > 0 and tree.values(behind) == [
            0.0,
            1.0,
        ]
        assert tree.best_actions() == [0]
    assert met == {0.0, 0.99 * 0.7}, "some first meet the end, some do not"


class Found:
    """A search that likes one action best, or several alike."""

    def __init__(self, *best: int, value: float = 0.0) -> None:
        self.best, self.value = best, value

    def best_actions(self) -> list[int]:
        return list(self.best)

    def values(self) -> list[float]:
        return [self.value] * 9


def played(agent: AlphaZero, cells: tuple[int, ...], env: Any, **disliked: float) -> None:
    """One game of given moves, learned from, as if the search liked them best; but for `disliked`,
    m3=v: the fourth, in whose place it found a move worth v."""
    shown, _ = env.reset(seed=0)
    for move, cell in enumerate(cells):
        agent.act(shown)
        value = disliked.get(f"m{move}")
        agent.tree = Found(cell) if value is None else Found((cell + 1) % 9, value=value)  # type: ignore[assignment]
        after, reward, terminated, truncated, _ = env.step(cell)
        agent.learn(Step(shown, cell, reward, after, terminated, truncated))
        shown = after


def test_the_sign_of_what_followed_changes_from_move_to_move() -> None:
    """X wins with the fifth mark: 1 to X, -1 to O; with γ = 0.9 the earlier the less."""
    for gamma in (1.0, 0.9):
        agent, env = against_itself(simulations=2, gamma=gamma)
        played(agent, (0, 3, 1, 4, 2), env)
        assert_near(agent.kept.z, [gamma**4, -(gamma**3), gamma**2, -gamma, 1.0])


def test_behind_a_move_that_the_search_did_not_like_best_its_value_stands_for_what_followed() -> (
    None
):
    agent, env = against_itself(simulations=2, gamma=0.9)
    played(agent, (0, 3, 1, 4, 2), env, m3=0.5)
    assert_near(agent.kept.z, [-(0.9**3) * 0.5, 0.9**2 * 0.5, -0.9 * 0.5, 0.5, 1.0])


def test_behind_a_move_that_the_search_liked_as_well_as_another_what_followed_stands() -> None:
    agent, env = agent_in("Maze-v0", simulations=2, gamma=0.9, gradient_steps=1)
    env.reset(seed=0)
    for obs, after in ((0, 1), (1, 2)):
        agent.act(obs)
        agent.tree = Found(0, 3, value=9.0)  # type: ignore[assignment]
        agent.learn(Step(obs, 3, -1.0, after, after == 2, False))
    assert_near(agent.kept.z, [-1.0 + 0.9 * -1.0, -1.0])


def test_in_the_maze_what_followed_is_the_discounted_return_and_behind_a_time_limit_the_networks_value() -> (
    None
):
    agent, env = agent_in("Maze-v0", simulations=2, gamma=0.9, gradient_steps=1)
    value = agent.expect(2)[1]
    assert value != 0.0
    env.reset(seed=0)
    for obs, after, truncated in ((0, 1, False), (1, 2, True)):
        agent.act(obs)
        agent.tree = Found(3)  # type: ignore[assignment]
        agent.learn(Step(obs, 3, -1.0, after, False, truncated))
    assert_near(agent.kept.z, [-1.0 + 0.9 * (-1.0 + 0.9 * value), -1.0 + 0.9 * value], terms=3)


def test_only_the_last_states_are_kept_and_values_are_told_in_reward_units() -> None:
    agent, env = against_itself(simulations=2, buffer_size=7)
    for _ in range(2):
        played(agent, (0, 3, 1, 4, 2), env)
    assert agent.kept.z.tolist() == [-1, 1, 1, -1, 1, -1, 1]
    standard = [agent.estimates.center, agent.estimates.deviation]
    assert standard == near([1 / 7, math.sqrt(1 - 1 / 49)], dtype="float32", terms=7)
    empty = np.zeros((1, 9), dtype=np.int64)
    with torch.no_grad():
        raw = agent.network(agent.estimates.vector(empty))[1].item()
    rounded: dict[str, Any] = {"dtype": "float32", "terms": widths(agent.network), "size": 1.0}
    assert agent.value(empty)[0] == near(1 / 7 + agent.estimates.deviation * raw, **rounded)
    assert agent.value(empty)[0] == near(agent.expect(empty[0])[1], **rounded)


def test_an_agent_that_was_saved_draws_the_moves_and_minibatches_that_the_first_one_draws() -> None:
    (agent, env), (other, _) = (
        against_itself(seed, simulations=3, batch_size=4, gradient_steps=3) for seed in (0, 1)
    )
    played(agent, (0, 3, 1, 4, 2), env)
    other.load_state_dict(agent.state_dict())
    for one in (agent, other):
        played(one, (4, 0, 8, 2, 1, 7, 6, 3, 5), env)
    assert rlbook.seeding.rng_state(other.rng) == rlbook.seeding.rng_state(agent.rng)
    for ours, theirs in zip(agent.network.parameters(), other.network.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_it_learns_after_so_many_episodes() -> None:
    agent, env = against_itself(simulations=2, train_every=3, gradient_steps=2)
    done = []
    for _ in range(7):
        played(agent, (0, 3, 1, 4, 2), env)
        done.append(int(agent.optimizer.state_dict()["steps"]))
    assert done == [0, 0, 2, 2, 2, 4, 4]


def test_a_minibatch_is_turned_together_with_what_was_recommended() -> None:
    """Each image stays the game it was: π, the cells that are free, still says which those are; all
    eight images come up."""
    agent, _ = against_itself()
    board = np.array([1, 2, 0, 0, 1, 0, 0, 0, 2])
    rows = Positions(
        agent.estimates.vector(np.tile(board, (400, 1))),
        torch.tensor(board == 0).float().expand(400, 9),
        torch.zeros(400),
    )
    assert agent._symmetries is not None
    turned = rows.minibatch(400, np.random.default_rng(0), agent._symmetries)
    seen = turned.obs.reshape(400, 9, 3).argmax(dim=2)
    assert torch.equal((seen == 0).float(), turned.target)
    assert len(torch.unique(seen, dim=0)) == 8
    agent, _ = against_itself(symmetries=False)
    assert agent._symmetries is None and torch.equal(
        rows.minibatch(9, np.random.default_rng(0), None).obs, rows.obs[:9]
    )


def test_playing_somebody_it_searches_the_game_and_not_its_opponent() -> None:
    """The same position gives the same tree whoever will answer; the opponent's env is only
    read."""
    agent, _ = against_itself(simulations=30)
    trees = []
    for opponent in ("random", "exact"):
        made: Any = rlbook.make("TicTacToe-v0", opponent=opponent, side="first")
        env: Any = AdaptedEnv(made, adapt_to(AlphaZero, made, agent.config))
        shown, _ = env.reset(seed=0)
        before = env.unwrapped.snapshot()
        trees.append(agent.bind_env(env).search(shown, np.random.default_rng(0)))
        assert env.unwrapped.snapshot() == before
    assert trees[0].counts() == trees[1].counts() and trees[0].values() == trees[1].values()


@pytest.mark.parametrize("fraction", [0.0, 0.25, 0.6])
def test_at_the_root_the_noise_has_its_share_of_the_prior(fraction: float) -> None:
    """The prior is (1 - ε) P + ε η: η adds up to 1, is drawn anew for each move, and is nowhere
    below 0."""
    noise = {"noise_fraction": fraction} | ({"noise_alpha": 0.5} if fraction else {})
    agent, env = against_itself(simulations=2, **noise)
    shown, _ = env.reset(seed=0)
    prior, seen = np.array(agent.expect(shown)[0]), []
    for _ in range(6):
        agent.act(shown)
        assert agent.tree is not None
        share = np.array(agent.tree.prior[:9]) - (1 - fraction) * prior
        assert share.min() >= -rounding_bound("float64", terms=9) and share.sum() == near(
            fraction, terms=9, size=1.0
        )
        seen.append(share.tolist())
    assert (np.ptp(seen, axis=0).max() > 0.1 * fraction) == (fraction > 0)


def test_in_training_moves_are_drawn_by_their_visits_at_the_temperature_of_this_time() -> None:
    """τ from 1 to 0: at first moves that are seldom visited are played, too; in the second half the
    most visited alone."""
    agent, env = against_itself(simulations=30, temperature="linear(1.0, 0.0, 0.5)")
    shown, _ = env.reset(seed=0)
    for progress, always in ((0.0, False), (0.5, True), (0.9, True)):
        agent.progress = progress
        played = []
        for _ in range(12):
            move = agent.act(shown)
            assert agent.tree is not None
            counts = agent.tree.counts()
            played.append(counts[move] == max(counts))
        assert all(played) == always


def test_greedy_play_is_the_same_again_and_without_noise() -> None:
    agent, env = against_itself(simulations=20, greedy_simulations=30)
    shown, _ = env.reset(seed=0)
    asked: list[int | None] = []
    search = agent.search
    agent.search = lambda *args, simulations=None, **options: (  # type: ignore[method-assign]
        asked.append(simulations) or search(*args, simulations=simulations, **options)
    )
    before = rlbook.seeding.rng_state(agent.rng)
    assert len({agent.act(shown, explore=False) for _ in range(3)}) == 1
    assert (
        rlbook.seeding.rng_state(agent.rng) == before
        and agent.tree is None
        and asked == [30, 30, 30]
    )
    agent.act(shown)
    assert agent.tree is not None and agent.tree.prior[:9] != agent.expect(shown)[0]
