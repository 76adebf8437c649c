"""`rlbook list` keeps its word: every cell of the table trains, or is refused for the reason that
it states."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import rlbook
from rlbook.agent import Planner
from rlbook.envs.descriptions import DESCRIPTIONS
from rlbook.envs.gridworlds.maze import Maze
from rlbook.evaluation.catalogue import read_catalogue
from rlbook.interaction import play_episodes as playing
from rlbook.registry import ALGORITHMS, agent_class, table

PLANNERS = [name for name in ALGORITHMS if issubclass(agent_class(name), Planner)]

BOXES_ONLY = {"ddpg", "td3"}
"""Algorithms whose actions are numbers."""
TABLE = read_catalogue().table()
"""What `rlbook list` says; to compute it takes seconds, which one test does."""

# other tests register some of their own
KNOWN, ENVIRONMENTS = tuple(ALGORITHMS), {*DESCRIPTIONS}
TEXTS = {
    "Addition-v0",
    "Reverse-v0",
    "Sorting-v0",
    "ModularArithmetic-v0",
    "TaggedCopy-v0",
    "Countdown-v0",
    "Reasoning-v0",
    "Chat-v0",
    "Mixture-v0",
    "Retrieval-v0",
}
SISTERS = {
    "CliffWalkingSlippery-v1",
    "FrozenLake8x8-v1",
    "WindyGridWorld-v0",
    "Acrobot-v1",
    "MountainCar-v0",
    "MountainCarContinuous-v0",
    *TEXTS,
} - {"Addition-v0"}
"""Environments of the same kind and spaces as another one; `make test-all` goes through these
too."""
TABULAR = {
    "CliffWalking-v1",
    "DeepSea-v0",
    "FrozenLake-v1",
    "Gambler-v0",
    "GridWorld-v0",
    "MaximizationBias-v0",
    "RandomWalk-v0",
    "ShortCorridor-v0",
    "TMaze-v0",
    "TenArmedTestbed-v0",
}
"""Environments whose states and actions are a few numbers, as the maze's are."""
QUICK = {
    "CarRental-v0": {"value_iteration", "q_learning"},
    "DynaMaze-v0": {"value_iteration", "q_learning", "dyna_q_plus", "certainty_equivalence", "ppo"},
    "mbpo": {"Maze-v0", "CartPole-v1", "Pendulum-v1"},
    "world_model": {"Maze-v0", "CartPole-v1", "Pendulum-v1", "Addition-v0"},
}
"""Of environments with a costly model, and of algorithms that are costly or two others, the cells
that `make test` goes through."""


def is_slow(algorithm: str, env: str) -> bool:
    return (
        env in SISTERS
        or algorithm not in QUICK.get(env, {algorithm})
        or env not in QUICK.get(algorithm, {env})
        or (TABLE[algorithm][env] is None and env != "Maze-v0" and is_skipped(algorithm, env))
    )


def is_skipped(algorithm: str, env: str) -> bool:
    """Whether its neighbours stand for it: of environments with a table of their own every sixth
    cell is tried, of the others every fourth, in each row and each column. Neighbours share the
    loop, the adaptation and the tables."""
    every = 6 if env in TABULAR else 4
    return ([*TABLE].index(algorithm) + sorted(ENVIRONMENTS).index(env)) % every != 0


CELLS = [
    pytest.param(algorithm, env, marks=[pytest.mark.slow] if is_slow(algorithm, env) else [])
    for algorithm, row in TABLE.items()
    for env in row
]


def test_the_table_has_every_algorithm_and_every_environment() -> None:
    assert set(TABLE) == set(KNOWN)
    assert all(
        set(row)
        >= {"Maze-v0", "Addition-v0", "Reverse-v0", "CartPole-v1", "Taxi-v4", "Pendulum-v1"}
        for row in TABLE.values()
    )
    assert all(set(row) == ENVIRONMENTS for row in TABLE.values())
    assert set(rlbook.environments()) >= ENVIRONMENTS


@pytest.mark.thorough
def test_the_catalogue_that_list_reads_is_the_table() -> None:
    """`python -m rlbook.evaluation.catalogue` writes it again."""
    computed = table()
    listed = {
        algorithm: {env: computed[algorithm][env] for env in DESCRIPTIONS} for algorithm in KNOWN
    }
    assert listed == TABLE
    assert json.loads(json.dumps(computed)) == computed


def test_every_algorithm_trains_somewhere_and_the_maze_trains_all() -> None:
    others = TABLE.keys() - BOXES_ONLY - {"distillation"}
    assert {name: TABLE[name]["Maze-v0"] for name in others} == dict.fromkeys(others)
    assert TABLE["distillation"]["Maze-v0"] == "it needs a teacher (--teacher, teacher=…)"
    assert {
        (TABLE[name]["Pendulum-v1"], "(Box)" in str(TABLE[name]["Maze-v0"])) for name in BOXES_ONLY
    } == {(None, True)}
    assert TABLE["value_iteration"]["Addition-v0"] and TABLE["q_learning"]["Addition-v0"], (
        "no table is large enough for these"
    )
    assert TABLE["value_iteration"]["ShortCorridor-v0"], (
        "what cannot be told apart cannot be planned for"
    )


@pytest.mark.parametrize("algorithm", PLANNERS)
def test_planners_train_where_there_is_no_model_and_a_table_is_large_enough(algorithm: str) -> None:
    unknown = ("CartPole-v1", "Pendulum-v1", "MountainCar-v0", "Acrobot-v1", "Blackjack-v1")
    assert [TABLE[algorithm][env] for env in unknown] == [None] * 5


@pytest.mark.thorough(quick=1)
@pytest.mark.parametrize(("algorithm", "env"), CELLS)
def test_a_cell_trains_two_hundred_steps_or_says_why_not(
    algorithm: str, env: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    if env != "TicTacToe-v0":  # whose table takes longer as lists than a loop takes to compile
        request.getfixturevalue("plain_loops")
    reason = TABLE[algorithm][env]
    if reason is not None:
        with pytest.raises(rlbook.RequestError) as refused:
            rlbook.train(algorithm, env, steps=200)
        assert str(refused.value) == f"{algorithm} does not train on {env}: {reason}"
        assert "\n" not in reason and len(reason) < 300
        return
    kind = agent_class(algorithm)
    cheap = {
        "sampled_steps": 200,
        "bins": 2,
        "simulations": 5,
        "walks": 20,
        "demonstrations": 200,
        "gradient_steps": 2,
    }
    cheap |= {"horizon": 1, "candidates": 5, "elites": 2, "iterations": 1, "greedy_simulations": 2}
    cheap |= {
        "model_steps": 2,
        "model_batch_size": 8,
        "model_hidden_sizes": (8,),
        "buffer_size": 1_000,
        "learning_starts": 150,
    }
    if kind.sources() == ("data",) or hasattr(kind.Config, "buffer_size"):
        cheap["batch_size"] = 8
    monkeypatch.setattr(playing, "LONGEST", 300)
    if env in TEXTS:
        del cheap["walks"]  # texts are compared, and nobody walks
    else:
        cheap["hidden_sizes"] = (8,)
    settings: dict[str, Any] = {name: cheap[name] for name in cheap if hasattr(kind.Config, name)}
    run = rlbook.train(algorithm, env, steps=200, eval_every=0, **settings)
    if issubclass(kind, Planner):
        assert 1 <= run.steps <= 200 and set(run.metrics[-1]) & set(run.agent.METRICS)
    else:
        assert 200 <= run.steps < 200 + run.request.num_envs
    if kind.plays():
        assert rlbook.evaluate(run, episodes=1).returns.shape == (1,)


@pytest.mark.thorough(quick=1)
@pytest.mark.parametrize("algorithm", ["rce", "reward_model"])
def test_the_list_names_where_random_walks_cannot_be_ranked(algorithm: str) -> None:
    """At random nobody reaches the hill of MountainCar, or swings Acrobot up, in 200 steps: every
    walk returns -200."""
    said = (
        "it learns from random episodes that differ in their return, but here all return -200; give"
        " data (--data, data=…)"
    )
    assert {env for env, reason in TABLE[algorithm].items() if reason is not None} == {
        "MountainCar-v0",
        "Acrobot-v1",
    }
    assert TABLE[algorithm]["MountainCar-v0"] == said
    with pytest.raises(rlbook.RequestError) as refused:
        rlbook.train(algorithm, "MountainCar-v0", steps=6)
    assert str(refused.value) == f"{algorithm} does not train on MountainCar-v0: {said}"


@pytest.mark.parametrize(
    ("algorithm", "walks"),
    [pytest.param("rce", 8 * 16, marks=pytest.mark.slow), ("reward_model", 64 // 2)],
)
def test_a_budget_of_six_minibatches_walks_no_farther_than_it_can_read(
    algorithm: str, walks: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    steps: list[int] = []
    plain = Maze.step

    def counted(maze: Maze, action: int) -> Any:
        steps.append(action)
        return plain(maze, action)

    monkeypatch.setattr(Maze, "step", counted)
    run = rlbook.train(
        algorithm, "Maze-v0", steps=6, eval_every=0, eval_episodes=1, out=tmp_path / "run"
    )
    assert run.request.config.walks == walks
    # episodes of at most 200 steps, and the last evaluation's
    assert len(steps) < 2 * 200 * (walks + 20)
    steps.clear()
    assert rlbook.load(tmp_path / "run").resume(steps=9).request.config.walks == walks, (
        "the data stay what they were"
    )
    given = rlbook.train(algorithm, "Maze-v0", steps=6, walks=16, eval_every=0, eval_episodes=1)
    assert given.request.config.walks == 16
