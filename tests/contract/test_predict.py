"""`run.predict`: five lines of plain gymnasium with a trained run, for every algorithm."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from state_content import content

import rlbook
from rlbook.envs.space_batches import WrongObservation, is_batch
from rlbook.evaluation.catalogue import read_catalogue
from rlbook.registry import ALGORITHMS, agent_class
from rlbook.runs.run import Run
from rlbook.seeding import rng_for

WORLDS = (
    "Maze-v0",
    "FrozenLake-v1",
    "Blackjack-v1",
    "TicTacToe-v0",
    "CartPole-v1",
    "Pendulum-v1",
    "Addition-v0",
)
"""Numbered cells, a tuple, a mask, vectors, a box of actions, and tokens."""
PLANNERS = (
    "policy_evaluation",
    "policy_iteration",
    "value_iteration",
    "modified_policy_iteration",
    "prioritized_sweeping",
)
BUDGETS: dict[str, dict[str, Any]] = {
    "environment": {"steps": 48},
    "model": {"steps": 3},
    "data": {"steps": 2},
}
SMALL: dict[str, dict[str, Any]] = {
    "mcts": {"simulations": 8},
    "alphazero": {"simulations": 4},
    "grpo": {"num_envs": 8},
    "semi_gradient_td": {},
    **{planner: {"sampled_steps": 500} for planner in PLANNERS},
}


def pairs() -> Iterator[Any]:
    """Every algorithm in every world that suits it; all but its last world are slow."""
    known = read_catalogue().table()  # which tests/contract/test_table.py holds to the truth
    for algorithm in ALGORITHMS:
        if agent_class(algorithm).plays():
            suited = [env for env in WORLDS if known[algorithm][env] is None]
            for env in suited:
                marks = () if env == suited[-1] else (pytest.mark.slow,)
                yield pytest.param(algorithm, env, marks=marks)


pytestmark = pytest.mark.usefixtures("plain_loops")


@cache
def trained(algorithm: str, env: str) -> Run:
    budget = BUDGETS[agent_class(algorithm).sources()[-1]]
    limit = {"max_episode_steps": 20} if env in ("Maze-v0", "Pendulum-v1") else {}
    return rlbook.train(
        algorithm, env, **budget, eval_every=0, env_kwargs=limit, **SMALL.get(algorithm, {})
    )


def played(run: Run, seed: int) -> float:
    """The return of an episode in plain gymnasium."""
    env = run.request.recipe.for_evaluation().make()
    agent = run.agent if run.agent.knows_env else run.agent.bind_env(env)
    obs, info = env.reset(seed=seed)
    total, over = 0.0, False
    while not over:
        mask = {"action_mask": info["action_mask"]} if "action_mask" in info else {}
        obs, reward, terminated, truncated, info = env.step(agent.predict(obs, **mask))
        total, over = total + float(reward), terminated or truncated
    return total


@pytest.mark.thorough(quick=1)
@pytest.mark.parametrize(("algorithm", "env"), [*pairs()])
def test_plain_gymnasium_earns_what_evaluation_earns(algorithm: str, env: str) -> None:
    run = trained(algorithm, env)
    before = content(run.agent.state_dict())
    for seed in (5, 6):
        reset_seed = int(rng_for(seed, "evaluation").integers(2**31 - 1 - 1))
        assert played(run, reset_seed) == run.evaluate(episodes=1, seed=seed).mean
    assert content(run.agent.state_dict()) == before


@pytest.mark.parametrize(("algorithm", "env"), [*pairs()])
def test_exploring_changes_nothing_in_training(algorithm: str, env: str) -> None:
    run = trained(algorithm, env)
    world = run.request.recipe.make()
    agent = run.agent if run.agent.knows_env else run.agent.bind_env(world)
    obs, info = world.reset(seed=0)
    mask = {"action_mask": info["action_mask"]} if "action_mask" in info else {}
    before = content(run.agent.state_dict())
    for _ in range(3):
        assert world.action_space.contains(agent.predict(obs, explore=True, **mask))
    assert content(run.agent.state_dict()) == before


def test_exploring_goes_on_from_call_to_call() -> None:
    agent = trained("ppo", "CartPole-v1").agent
    seen = [agent.predict(np.zeros(4, np.float32), explore=True) for _ in range(40)]
    assert {*seen} == {0, 1}


@pytest.mark.parametrize(
    "algorithm", ["sarsa", "n_step_sarsa", "sarsa_lambda", "semi_gradient_sarsa"]
)
def test_exploring_does_not_take_the_action_that_waits_in_training(algorithm: str) -> None:
    agent: Any = rlbook.train(algorithm, "Maze-v0", steps=5, eval_every=0, epsilon=1.0).agent
    waiting = agent.pending if hasattr(agent, "pending") else int(agent.memory.pending[0])
    assert waiting >= 0
    assert {agent.predict(11, explore=True) for _ in range(60)} == {0, 1, 2, 3}


@pytest.mark.parametrize("algorithm", ["q_learning", "td_prediction"])
def test_exploring_with_a_mask_does_not_write_it_into_the_table(algorithm: str) -> None:
    agent = rlbook.train(algorithm, "Maze-v0", steps=50, eval_every=0).agent
    before = content(agent.state_dict())
    for allowed in range(4):
        assert agent.predict(11, explore=True, action_mask=np.arange(4) == allowed) == allowed
    assert content(agent.state_dict()) == before


def test_a_search_in_a_world_model_explores_any_number_of_episodes() -> None:
    small = {"candidates": 4, "elites": 2, "iterations": 1, "horizon": 2, "gradient_steps": 1}
    run = rlbook.train("world_model", "CartPole-v1", steps=20, learning_starts=10, **small)
    assert len(run.evaluate(episodes=3, explore=True).returns) == 3
    assert run.agent.predict(np.zeros((5, 4), np.float32), explore=True).shape == (5,)


def test_one_observation_and_a_batch_are_told_apart_by_the_space() -> None:
    for algorithm in ("ppo", "dqn", "q_learning"):
        run = trained(algorithm, "FrozenLake-v1")
        one = [run.predict(state) for state in range(16)]
        assert all(isinstance(action, int) for action in one)
        assert run.predict(np.arange(16)).tolist() == one
    run = trained("sac", "Pendulum-v1")
    rows = np.array([[1.0, 0.0, 0.5], [0.0, 1.0, -2.0]], dtype=np.float32)
    batch = run.predict(rows)
    assert batch.shape == (2, 1) and run.predict(rows[0]).shape == (1,)
    np.testing.assert_array_equal(run.predict([1.0, 0.0, 0.5]), run.predict(rows[0]))
    assert np.abs(batch).max() <= 2.0


class Parts(gymnasium.Env):
    """Shows a dict with a tuple in it, and takes two numbers."""

    observation_space = spaces.Dict(
        place=spaces.Box(-1, 1, (2,), np.float32),
        held=spaces.Tuple((spaces.Discrete(3), spaces.MultiBinary(2))),
    )
    action_space = spaces.MultiDiscrete([2, 3])

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        self.left = 5
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action)
        self.left -= 1
        return self.observation_space.sample(), float(action[0]), self.left == 0, False, {}


def test_nested_observations_and_actions_are_the_environments_own() -> None:
    run = rlbook.train("ppo", Parts(), steps=64, eval_every=0)
    env = Parts()
    obs, _ = env.reset(seed=0)
    action = run.predict(obs)
    assert env.action_space.contains(action)
    rows, _ = gymnasium.vector.SyncVectorEnv([Parts] * 3).reset(seed=0)
    assert run.predict(rows).shape == (3, 2)


def test_texts_are_completed() -> None:
    run = trained("ppo", "Addition-v0")
    one = run.predict("1+2=")
    assert isinstance(one, str) and run.predict(["1+2=", "3+4="])[0] == one
    assert run.predict("1+2=", state=None) == (one, None)
    with pytest.raises(TypeError, match=r"^predict has no argument 'greedy'; it acts greedily"):
        run.agent.predict("1+2=", greedy=True)


@pytest.mark.parametrize(
    ("algorithm", "env", "given", "told"),
    [
        ("ppo", "CartPole-v1", np.zeros(3), r"one observation of Box.* got an array of shape \(3,"),
        ("ppo", "CartPole-v1", np.zeros((2, 2, 4)), r"or a batch of them, got an array of shape"),
        ("ppo", "CartPole-v1", [[0.0, 1.0], [2.0]], r"one observation of Box\(4,\), .* got \[\[0"),
        ("ppo", "CartPole-v1", (np.zeros(4), {}), r"unpack it: obs, info = env\.reset"),
        ("q_learning", "Maze-v0", (3, 0.0, False, False, {}), r"terminated, truncated, info = env"),
        ("q_learning", "Maze-v0", "left", "one observation of Discrete.* got 'left'"),
        ("ppo", "Blackjack-v1", {"a": 1}, r"got Dict\(a=1\)"),
        ("mcts", "TicTacToe-v0", 0, r"agent\.bind_env\(env\)\.predict\(observation\)"),
    ],
)
def test_what_is_no_observation_is_refused_in_one_sentence(
    algorithm: str, env: str, given: Any, told: str
) -> None:
    with pytest.raises(ValueError, match=told):
        trained(algorithm, env).predict(given)


def test_a_mask_is_kept_and_refused_where_it_has_no_effect() -> None:
    run = trained("ppo", "CartPole-v1")
    obs = np.zeros(4, np.float32)
    for allowed in (0, 1):
        mask = np.arange(2) == allowed
        assert run.predict(obs, action_mask=mask) == allowed
        assert run.predict(obs[None], action_mask=mask[None]).tolist() == [allowed]
    with pytest.raises(ValueError, match="does not use action masks"):
        trained("sac", "Pendulum-v1").predict(np.zeros(3, np.float32), action_mask=[True])


def test_parts_of_which_only_some_are_batches_are_no_observation() -> None:
    space = spaces.Dict({"a": spaces.Box(-1.0, 1.0, (2,)), "b": spaces.Discrete(3)})
    parts = {"a": np.zeros((4, 2), np.float32), "b": np.int64(1)}
    with pytest.raises(WrongObservation, match="or a batch of them"):
        is_batch(space, parts)
    assert is_batch(space, parts | {"b": np.arange(4) % 3})


def test_lists_are_batches_as_arrays_are() -> None:
    """As JSON brings them."""
    run = rlbook.train("ppo", "CartPole-v1", steps=32, rollout_steps=4, eval_every=0)
    rows = run.make_env().observation_space.sample()[None] * np.array([[0.0], [1.0], [-1.0]])
    found = run.predict(rows.tolist())
    assert found.tolist() == run.predict(rows.astype(np.float32)).tolist()
    assert run.predict(rows[1].tolist()) == found[1]


class Bytes(Parts):
    """Shows an image of bytes, alone or in a dict."""

    image = spaces.Box(0, 255, (4, 4, 1), np.uint8)

    def __init__(self, named: bool) -> None:
        self.observation_space = spaces.Dict(image=self.image) if named else self.image  # type: ignore[assignment]


@pytest.mark.parametrize("named", [False, True])
def test_an_image_of_another_type_is_its_bytes_or_refused(named: bool) -> None:
    run = rlbook.train("ppo", Bytes(named), steps=32, rollout_steps=4, eval_every=0)
    image = np.arange(16, dtype=np.uint8).reshape(4, 4, 1)

    def shown(image: np.ndarray) -> Any:
        return {"image": image} if named else image

    known = run.predict(shown(image)).tolist()
    for same in (image.astype(np.float64), image.tolist()):
        assert run.predict(shown(same)).tolist() == known
    for wrong, number in ((image / 2, "0.5"), (image + np.int64(250), "256"), (image - 1.0, "-1")):
        for one in (wrong, np.stack([wrong, wrong])):
            with pytest.raises(ValueError, match=f"with numbers of uint8, got {number}"):
                run.predict(shown(one))
