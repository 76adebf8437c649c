"""Tree searches keep to action masks: in copies, in tables, in open-loop nodes and in rollouts."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from masked_doors import GAMMA, OPEN, Doors, DoorsTable, exact_action_values

import rlbook
from rlbook.algorithms.planning.search import mcts
from rlbook.algorithms.planning.search.guided_search import GuidedSearch, GuidedSearchConfig
from rlbook.algorithms.planning.search.mcts import MCTS, MCTSConfig
from rlbook.algorithms.planning.search.puct_selection import select_puct
from rlbook.algorithms.planning.search.simulators import CopySimulator, SnapshotSimulator
from rlbook.algorithms.planning.search.tree import SearchTree
from rlbook.algorithms.planning.search.tree_arrays import empty_tree
from rlbook.algorithms.planning.search.ucb_selection import draw_allowed, select, select_allowed
from rlbook.algorithms.planning.table_model import TableModel
from rlbook.envs.tabular.mdp import TabularMDP
from rlbook.fast.compiled import available
from rlbook.fast.tabular import table_search
from rlbook.fast_forms import use_plain_forms
from rlbook.interaction.environments import EnvRecipe
from rlbook.interaction.play_episodes import play


class Slippery(Doors):
    """At random a step leads from room 0 to the room beside the one that it leads to elsewhere,
    where other doors are open."""

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        began = self.room
        result = super().step(action)
        if began == 0 and self.np_random.random() < 0.5:
            self.room = 3 - self.room
            return self.room, *result[1:4], self._info()
        return result


def searched(env: gymnasium.Env, room: int, **settings: Any) -> SearchTree:
    """The tree of a search from a room of `Doors`, or of its forms."""
    agent = MCTS(env, MCTSConfig(gamma=GAMMA, **{"simulations": 400, **settings}), 0)
    env.reset(seed=0)
    if isinstance(env, Doors):
        env.room = room
    agent.act(room, action_mask=OPEN[room])
    assert agent.tree is not None
    return agent.tree


@pytest.mark.thorough(quick=1)
@pytest.mark.parametrize("leaf", ["rollout", "value"])
@pytest.mark.parametrize("stochastic", ["auto", "chance", "open-loop"])
@pytest.mark.parametrize("kind", [Doors, DoorsTable])
def test_only_allowed_actions_are_tried_and_the_best_of_them_is_found(
    kind: Any, stochastic: str, leaf: str
) -> None:
    """A simulated step through a closed door of `Doors` raises; in the table it would pay best."""
    exact = exact_action_values()
    for room in range(4):
        found = searched(kind(), room, stochastic=stochastic, leaf=leaf)
        assert found.best_actions() == [int(exact[room].argmax())]
        assert [count > 0 for count in found.counts()] == OPEN[room].tolist()


def test_which_world_a_search_looks_ahead_in() -> None:
    worlds = [
        MCTS(env, MCTSConfig())._world
        for env in (Doors(), DoorsTable(), rlbook.make("TicTacToe-v0"), rlbook.make("Taxi-v4"))
    ]
    assert [type(world) for world in worlds] == [
        CopySimulator,
        TableModel,
        SnapshotSimulator,
        TableModel,
    ]


def test_a_table_of_a_users_own_whose_masks_are_no_method_is_copied_instead() -> None:
    class Shows(Doors):
        def model(self) -> TabularMDP:
            return DoorsTable().model()

    assert isinstance(MCTS(Shows(), MCTSConfig())._world, CopySimulator)
    assert isinstance(MCTS(Shows(shows=False), MCTSConfig())._world, TableModel)
    assert searched(Shows(), 3).best_actions() == [2]


@pytest.mark.thorough(quick=1)
@pytest.mark.parametrize("stochastic", ["auto", "chance", "open-loop"])
def test_where_a_node_stands_for_rooms_with_other_doors_each_visit_keeps_to_its_room(
    stochastic: str,
) -> None:
    for room in range(4):
        searched(Slippery(), room, stochastic=stochastic)
    rlbook.train(
        "alphazero",
        Slippery(),
        episodes=30,
        stochastic=stochastic,
        simulations=20,
        gradient_steps=1,
        eval_every=0,
    )


def test_with_everything_allowed_the_choice_is_the_same_from_the_same_numbers() -> None:
    for seed in range(200):
        rng = np.random.default_rng(seed)
        # each is tried once before any is tried again
        count = rng.integers(*((0, 2) if seed % 2 else (1, 4)), size=8).tolist()
        mean = np.where(np.array(count) > 0, rng.integers(-2, 3, size=8), 0).astype(float).tolist()
        visits = [sum(count[:4]), sum(count[4:])]
        one, other = np.random.default_rng(seed), np.random.default_rng(seed)
        for node in range(2):
            plain = select(node, 4, visits, count, mean, [-2.0, 2.0], 0.7, one)
            masked = select_allowed(
                node, 4, count, mean, [-2.0, 2.0], 0.7, other, [1] * 8, 4 * node
            )
            assert plain == masked and one.random() == other.random()


def test_a_forbidden_edge_is_never_selected_however_good_it_looks() -> None:
    rng = np.random.default_rng(0)
    assert {
        select_allowed(0, 3, [5, 0, 5], [1.0, 0.0, 9.0], [0.0, 9.0], 0.7, rng, [1, 0, 0], 0)
        for _ in range(20)
    } == {0}
    assert {
        select_allowed(0, 3, [5, 0, 0], [1.0, 0.0, 0.0], [0.0, 9.0], 0.7, rng, [1, 1, 0], 0)
        for _ in range(20)
    } == {1}
    assert {draw_allowed([0, 0, 0, 1, 0, 1], 3, 3, rng) for _ in range(50)} == {0, 2}
    assert (
        select_puct(0, 3, [1, 1, 1], [0.0, 1.0, 9.0], [0.2, 0.2, 0.6], [0.0, 9.0], 1.0, [1, 1, 0])
        == 1
    )


@pytest.mark.thorough
@pytest.mark.fast_form
@pytest.mark.parametrize("open_loop", [False, True])
def test_in_a_table_all_forms_of_the_loop_grow_the_same_tree(open_loop: bool) -> None:
    world, config = MCTS(DoorsTable(), MCTSConfig())._world, MCTSConfig(gamma=GAMMA)
    assert isinstance(world, TableModel)
    mode = "open-loop" if open_loop else "chance"
    trees = [SearchTree(empty_tree(301, 3), 3, mode) for _ in range(3)]
    with use_plain_forms(True):
        mcts.grow(trees[0], world, 2, 300, config, np.random.default_rng(1))
    for found, run in (
        (trees[1], table_search.grow_plain),
        *([(trees[2], table_search.grow_compiled)] if available() else []),
    ):
        table = world.table if run is table_search.grow_plain else table_search.arrays_of(world)
        rng = np.random.default_rng(1)
        found.tree = run(
            found.tree, table, 2, 3, 300, GAMMA, config.c, config.depth, open_loop, rng
        )
        assert (found.counts(), found.values(), found.num_nodes) == (
            trees[0].counts(),
            trees[0].values(),
            trees[0].num_nodes,
        )


def test_a_kept_tree_keeps_its_masks_in_a_checkpoint() -> None:
    class Saved(Doors):
        def snapshot(self) -> dict[str, Any]:
            return {"room": self.room}

        def restore(self, saved: dict[str, Any]) -> None:
            self.room = saved["room"]

    env = Saved()
    agent = MCTS(env, MCTSConfig(gamma=GAMMA, reuse_tree=True, simulations=50), 0)
    env.reset(seed=0)
    env.room = 0
    step = rlbook.agent.Step(0, agent.act(0, action_mask=OPEN[0]), 0.0, 1, False, False)
    agent.learn(step._replace(action=0))
    kept = agent._kept
    assert kept is not None and [met.mask for met in kept.met[:1]] == [OPEN[1].astype(int).tolist()]
    loaded = SearchTree.from_state(kept.state_dict())
    assert [met.mask for met in loaded.met] == [met.mask for met in kept.met]


def test_the_guided_search_and_alphazero_try_what_is_allowed() -> None:
    exact = exact_action_values()
    run = rlbook.train(
        "alphazero",
        Doors(),
        episodes=60,
        simulations=30,
        gamma=GAMMA,
        gradient_steps=4,
        seed=0,
        eval_every=0,
    )
    for room in range(4):
        run.agent._world.copy.room = run.agent._world.real.unwrapped.room = room
        assert run.agent.act(room, explore=False, action_mask=OPEN[room]) == exact[room].argmax()
    ppo = rlbook.train(
        "ppo", Doors(shows=False), steps=64, num_envs=2, rollout_steps=8, batch_size=8, eval_every=0
    )
    found = GuidedSearch(ppo.agent, GuidedSearchConfig(simulations=64, gamma=GAMMA, top_k=3))
    assert len(play(found, EnvRecipe.from_env(Doors()), 20, 0).returns) == 20
    # what a closed door pays
    assert (play(found, EnvRecipe.from_env(DoorsTable()), 20, 0).returns < 9.0).all()


class Nim(gymnasium.Env):
    """One heap of 10: each side takes 1 to 3, the last to take wins. The other side plays exactly,
    or by chance where it is lost."""

    def __init__(self, heap: int = 10) -> None:
        self.observation_space, self.action_space = spaces.Discrete(heap + 1), spaces.Discrete(3)
        self.first = self.heap = heap

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        self.heap = self.first
        return self.heap, self._info()

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        assert action < self.heap, "more than there are"
        self.heap -= action + 1
        if self.heap == 0:
            return 0, 1.0, True, False, self._info()
        best = self.heap % 4
        self.heap -= best if best else int(self.np_random.integers(1, min(3, self.heap) + 1))
        return self.heap, -1.0 if self.heap == 0 else 0.0, self.heap == 0, False, self._info()

    def _info(self) -> dict[str, Any]:
        return {"action_mask": np.arange(3) < self.heap}


@pytest.mark.slow
def test_nim_is_won_by_search_whenever_it_can_be() -> None:
    """From 10 the exact first move is 2; from then on a multiple of 4 is left each time."""
    agent = MCTS(Nim(), MCTSConfig(simulations=1_000, gamma=1.0))
    assert play(agent, EnvRecipe.from_env(Nim()), 20, 0).returns.tolist() == [1.0] * 20


@pytest.mark.parametrize("reuse_tree", [False, True])
def test_a_search_of_taxi_tries_what_taxi_allows(reuse_tree: bool) -> None:
    """Taxi is a table, and its mask a method."""
    agent: Any = rlbook.train(
        "mcts", "Taxi-v4", steps=30, simulations=50, reuse_tree=reuse_tree, eval_every=0
    ).agent
    env: Any = gymnasium.make("Taxi-v4").unwrapped
    for state in range(0, 500, 7):
        tried = np.array(agent.search(state, np.random.default_rng(0)).counts()) > 0
        assert tried.tolist() == (env.action_mask(state) > 0).tolist()


def losses(opponent: str, games: int, observation: str = "board") -> int:
    """Of games of tic-tac-toe, moving second with 1 000 simulations a move. By number, it is a
    table."""
    env = rlbook.make("TicTacToe-v0", opponent=opponent, side="second", observation=observation)
    agent = MCTS(env, MCTSConfig(simulations=1_000, gamma=1.0))
    return int((play(agent, EnvRecipe.from_env(env), games, 0).returns < 0).sum())


@pytest.mark.slow
@pytest.mark.parametrize("opponent", ["random", "exact"])
def test_a_thousand_simulations_lose_no_game_of_tic_tac_toe_moving_second(opponent: str) -> None:
    assert losses(opponent, games=10) == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("opponent", "observation"), [("random", "board"), ("exact", "board"), ("exact", "index")]
)
def test_a_thousand_simulations_lose_none_of_sixty_games_of_tic_tac_toe_moving_second(
    opponent: str, observation: str
) -> None:
    """Not so on every seed against chance: the moves of the highest value lose 2 of 300 games
    there. The exact player never wins against moves that are right, whatever the seed.
    """
    assert losses(opponent, 60, observation) == 0
