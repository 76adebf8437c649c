"""One algorithm, four speeds, one table: step by step, in a plain loop, in a model's tables, and
compiled."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Discrete

import rlbook
from rlbook.algorithms.tabular.tabular_agent import TableAgent
from rlbook.envs import TabularMDP
from rlbook.fast import compiled
from rlbook.fast.tabular.simulation import CHUNK, BufferedUniforms
from rlbook.fast.tabular.table_interaction import EnvInteraction, TableInteraction
from rlbook.fast_forms import use_plain_forms
from rlbook.interaction.action_masks import mask_table
from rlbook.interaction.budget import Budget
from rlbook.interaction.loop import loop
from rlbook.interaction.resumable import ResumableEnv
from rlbook.interaction.single import SingleInteraction
from rlbook.interaction.spaces import AdaptedEnv, adapt_to
from rlbook.registry import agent_class
from rlbook.seeding import rng_for

# Every agent with a table, with settings that take all of its paths.
LEARNERS: list[tuple[str, dict[str, Any]]] = [
    ("mc_prediction", {}),
    ("off_policy_mc", {}),
    ("off_policy_mc", {"exploration": "softmax", "gamma": 0.9, "epsilon": 1.0}),
    (
        "off_policy_mc",
        {
            "task": "prediction",
            "policy": "uniform",
            "epsilon": "linear(1.0, 0.1)",
            "visits": "first",
        },
    ),
    ("off_policy_mc", {"task": "prediction", "weighting": "ordinary", "gamma": 0.9}),
    (
        "off_policy_mc",
        {"task": "prediction", "weighting": "truncated", "gamma": 0.9, "alpha": "linear(0.5, 0.1)"},
    ),
    ("mc_prediction", {"visits": "every", "alpha": "linear(0.5, 0.1)", "epsilon": 0.3}),
    ("mc_control", {}),
    (
        "mc_control",
        {"visits": "every", "alpha": 0.2, "exploration": "ucb", "exploring_starts": "actions"},
    ),
    ("mc_control", {"exploration": "softmax", "epsilon": "inverse(1.0)"}),
    ("q_learning", {}),
    (
        "q_learning",
        {
            "exploration": "softmax",
            "temperature": "exponential(2.0, 0.1)",
            "alpha": "inverse(1.0, 0.7)",
        },
    ),
    ("q_learning", {"exploration": "ucb", "confidence": 1.0, "alpha": "linear(0.5, 0.1)"}),
    ("q_learning", {"epsilon": "inverse(1.0, 0.5)", "initial_value": 3.0, "gamma": 1.0}),
    ("dyna_q", {"planning_steps": 3}),
    ("dyna_q", {"planning_steps": 2, "exploration": "ucb", "alpha": "inverse(1.0, 0.7)"}),
    ("sarsa", {}),
    ("sarsa", {"exploration": "ucb", "confidence": 1.0, "alpha": "inverse(1.0, 0.7)"}),
    ("sarsa", {"exploration": "softmax", "temperature": 0.5, "alpha": "linear(0.5, 0.1)"}),
    ("expected_sarsa", {"alpha": 0.5}),
    (
        "expected_sarsa",
        {
            "exploration": "softmax",
            "temperature": "exponential(2.0, 0.1)",
            "alpha": "inverse(1.0, 0.7)",
        },
    ),
    ("double_q_learning", {}),
    ("double_q_learning", {"exploration": "ucb", "confidence": 1.0, "alpha": "inverse(1.0, 0.7)"}),
    ("td_prediction", {}),
    ("td_prediction", {"policy": "optimal", "epsilon": 0.3, "alpha": "inverse(1.0, 0.6)"}),
    ("dyna_q_plus", {"planning_steps": 3, "kappa": 0.01}),
    ("n_step_td", {"n": 3}),
    ("n_step_td", {"n": 100_000, "alpha": "inverse(1.0)"}),
    ("n_step_sarsa", {"n": 4}),
    ("n_step_sarsa", {"n": 100_000, "exploration": "softmax"}),
    *[
        ("td_lambda", {"traces": traces})
        for traces in ("accumulating", "replacing", "true-online", "offline")
    ],
    *[
        ("sarsa_lambda", {"traces": traces})
        for traces in ("accumulating", "replacing", "true-online")
    ],
    ("sarsa_lambda", {"exploration": "ucb", "alpha": "inverse(1.0, 0.7)"}),
    ("watkins_q_lambda", {"epsilon": 0.1}),
    (
        "watkins_q_lambda",
        {"traces": "accumulating", "trace_decay": 0.5, "gamma": 1.0, "alpha": "linear(0.5, 0.1)"},
    ),
]


def compiled_again(algorithm: str, config: dict[str, Any]) -> bool:
    """Whether these settings put another way to choose or other traces into the loop, so that it is
    compiled once more."""
    if "traces" in config:
        return config["traces"] != "replacing"
    return algorithm != "q_learning" and ("exploration" in config or "exploring_starts" in config)


COMPILED = [
    pytest.param(*learner, marks=[pytest.mark.slow] if compiled_again(*learner) else [])
    for learner in LEARNERS
]
"""Every update is compiled in the quick suite, with the usual way to choose and replacing traces;
every way to choose with Q-learning."""
ENVIRONMENTS: list[tuple[str, dict[str, Any]]] = [
    ("FrozenLake-v1", {}),
    ("Maze-v0", {}),
    ("Taxi-v4", {"max_episode_steps": 40}),
    ("MaximizationBias-v0", {}),
]


def is_quick(number: int, env: str) -> bool:
    """Whether the quick suite takes this learner there: each to the slippery lake and to one of the
    others, whose long episodes and noisy rewards meet every algorithm in turn."""
    others = [name for name, _ in ENVIRONMENTS[1:]]
    return env == ENVIRONMENTS[0][0] or env == others[number % len(others)]


FOUR_SPEEDS = [
    pytest.param(*learner, *env, marks=[] if is_quick(number, env[0]) else [pytest.mark.slow])
    for number, learner in enumerate(LEARNERS)
    for env in ENVIRONMENTS
]
needs_numba = pytest.mark.skipif(not compiled.available(), reason="numba is not installed")


def trained(
    how: str,
    algorithm: str,
    env_id: str,
    env_kwargs: dict[str, Any],
    budget: Budget,
    config: dict[str, Any],
    seed: int = 3,
    *,
    told: bool = True,
) -> Any:
    """The agent's state, the episodes that ended, and where the interaction stands.

    `told`: the tables say from the beginning which actions the environment allows, as they do in a
    run that knows its model.
    """
    kind = agent_class(algorithm)
    env = rlbook.make(env_id, **env_kwargs)
    limit = env.spec.max_episode_steps if env.spec is not None else None
    raw = ResumableEnv(env)
    settings = kind.Config(**config)
    fitted = AdaptedEnv(raw, adapt_to(kind, raw, settings))
    agent = kind(fitted, settings, seed)
    assert isinstance(agent, TableAgent)
    rng = rng_for(seed, "environment")
    masks = (
        mask_table(env, range(agent.num_states))
        if told and isinstance(env.observation_space, Discrete)
        else None
    )
    for state in [] if masks is None else np.flatnonzero(~masks.all(axis=1)):
        agent.forbid(int(state), masks[state])
    if how in ("one by one", "plain loop"):
        interaction: SingleInteraction = (
            SingleInteraction if how == "one by one" else EnvInteraction
        )(fitted, rng)
    else:
        interaction = TableInteraction(
            TabularMDP.from_env(env), rng, limit, compiled=how == "compiled", masks=masks
        )
    for _ in loop(agent, interaction, budget):
        pass
    return (
        agent.state_dict(),
        interaction.finished,
        (int(interaction.obs), interaction.steps, interaction.episodes),
    )


def assert_same(one: Any, other: Any) -> None:
    for name, table in one[0]["memory"].items():
        np.testing.assert_array_equal(table, other[0]["memory"][name], err_msg=name)
    assert one[0]["rng"] == other[0]["rng"]
    assert one[1:] == other[1:]


def ids(item: Any) -> str:
    return (
        ",".join(f"{key}={value}" for key, value in item.items())
        if isinstance(item, dict)
        else str(item)
    )


@pytest.mark.thorough(quick=1)
@pytest.mark.parametrize(("algorithm", "config", "env", "env_kwargs"), FOUR_SPEEDS, ids=ids)
def test_many_steps_at_once_leave_the_table_that_single_steps_leave(
    algorithm: str, config: dict[str, Any], env: str, env_kwargs: dict[str, Any]
) -> None:
    """The environment's generator, the agent's, and the order of arithmetic are all the same, so
    nothing may differ, not in a bit."""
    budget = Budget(600, None)
    slow = trained("one by one", algorithm, env, env_kwargs, budget, config)
    unmarked = (
        trained("one by one", algorithm, env, env_kwargs, budget, config, told=False)
        if env == "Taxi-v4"
        else slow
    )
    assert_same(
        unmarked, trained("plain loop", algorithm, env, env_kwargs, budget, config, told=False)
    )
    assert_same(slow, trained("tables", algorithm, env, env_kwargs, budget, config))


@pytest.mark.thorough
@needs_numba
@pytest.mark.parametrize(("algorithm", "config"), COMPILED, ids=ids)
def test_compiled_code_leaves_the_table_that_plain_code_leaves(
    algorithm: str, config: dict[str, Any]
) -> None:
    for env, env_kwargs in ENVIRONMENTS:
        chunks = env == "FrozenLake-v1"  # more steps, and more episodes, than one call takes
        budget = Budget(3 * CHUNK // 2 if chunks else 3_000, 2_000)
        plain = trained("tables", algorithm, env, env_kwargs, budget, config)
        assert_same(plain, trained("compiled", algorithm, env, env_kwargs, budget, config))


def test_numbers_drawn_ahead_are_the_generators_numbers_and_the_rest_is_put_back() -> None:
    for count in (0, 1, 7, 8, 9, 20):
        ahead, one_by_one = np.random.default_rng(5), np.random.default_rng(5)
        uniforms = BufferedUniforms(ahead, block=8)
        assert [uniforms.random() for _ in range(count)] == [
            one_by_one.random() for _ in range(count)
        ]
        uniforms.put_back()
        assert ahead.random() == one_by_one.random()


def test_an_environment_that_a_wrapper_changes_is_not_sampled_from_its_model() -> None:
    class Doubled(gymnasium.Wrapper):
        def step(self, action: Any) -> Any:
            obs, reward, *rest = self.env.step(action)
            return obs, 2 * float(reward), *rest

    plain = rlbook.train("q_learning", rlbook.make("Maze-v0"), steps=200, eval_every=0)
    wrapped = rlbook.train("q_learning", Doubled(rlbook.make("Maze-v0")), steps=200, eval_every=0)
    assert any("model's tables" in note for note in plain.notes)
    assert not any("model's tables" in note for note in wrapped.notes)
    assert sum(wrapped.episode_returns[:1]) == 2 * sum(plain.episode_returns[:1])


def test_an_agent_with_a_way_of_its_own_to_learn_is_asked_at_every_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kind, calls = agent_class("q_learning"), []
    original = kind.learn
    monkeypatch.setattr(
        kind, "learn", lambda self, step: calls.append(step) or original(self, step)
    )
    rlbook.train("q_learning", "Maze-v0", steps=50, eval_every=0)
    assert len(calls) == 50


@pytest.mark.parametrize("env", ["FrozenLake-v1", "MaximizationBias-v0", "WindyGridWorld-v0"])
def test_plain_code_alone_leaves_the_same_table(env: str) -> None:
    """Chance in the steps, noise on the rewards, and neither: the plain loop samples the same model
    with the same numbers."""
    tables = []
    for plain in (False, True):
        with use_plain_forms(plain):
            run: Any = rlbook.train("q_learning", env, steps=700, eval_every=0, epsilon=0.3, seed=2)
        tables.append((run.agent.q, run.episode_returns))
    np.testing.assert_array_equal(tables[0][0], tables[1][0])
    assert tables[0][1] == tables[1][1]


def test_a_time_limit_that_only_a_wrapper_knows_of_is_kept() -> None:
    env = gymnasium.wrappers.TimeLimit(rlbook.make("GridWorld-v0", layout="5x5").unwrapped, 7)
    env.unwrapped.spec = None
    run = rlbook.train("q_learning", env, steps=50, eval_every=0)
    assert any("model's tables" in note for note in run.notes)
    assert len(run.episode_returns) == 50 // 7


def test_simulate_false_steps_the_environment() -> None:
    run = rlbook.train("q_learning", "Maze-v0", steps=50, eval_every=0, simulate=False)
    assert not any("model's tables" in note for note in run.notes)
