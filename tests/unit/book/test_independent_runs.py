"""Many runs at once: each is the run that `train` makes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlbook
from rlbook.book.experiments import independent_runs as experiments
from rlbook.envs import TabularMDP
from rlbook.envs.random_walk import random_walk_model
from rlbook.functional.schedules import parse_schedule
from rlbook.interaction.play_episodes import LONGEST
from rlbook.registry import agent_class

AGENTS = [
    ("td_lambda", {"alpha": "linear(0.5, 0.1)"}),
    *(
        pytest.param(*slow, marks=pytest.mark.slow)  # each loop is compiled, which takes seconds
        for slow in (
            ("sarsa", {"epsilon": "linear(1.0, 0.1)"}),
            ("double_q_learning", {}),
            ("n_step_td", {"n": 1000}),
        )
    ),
]


def table_agent(algorithm: str) -> Any:
    return agent_class(algorithm)


def config_of(algorithm: str, settings: dict[str, Any]) -> Any:
    schedules = {
        name: parse_schedule(value) if name in ("alpha", "epsilon") else value
        for name, value in settings.items()
    }
    return agent_class(algorithm).Config(**schedules)


@pytest.mark.parametrize(("algorithm", "settings"), AGENTS, ids=str)
def test_each_curve_goes_from_the_first_table_to_the_one_that_train_ends_with(
    algorithm: str, settings: dict[str, Any]
) -> None:
    model, kind, config = (
        random_walk_model(9, 1, -1.0, 1.0),
        table_agent(algorithm),
        config_of(algorithm, settings),
    )
    curves = experiments.value_curves(
        kind, config, model, episodes=12, runs=3, seed=4, time_limit=10_000
    )
    assert curves.shape == (3, 13, 11)
    assert not curves[:, 0].any()
    for index in range(3):
        env = rlbook.make("RandomWalk-v0", length=9, left_reward=-1.0)
        agent: Any = rlbook.train(
            algorithm, env, episodes=12, seed=4 + index, eval_every=0, **settings
        ).agent
        np.testing.assert_array_equal(curves[index, -1], agent.values())


@pytest.mark.parametrize(("algorithm", "settings"), AGENTS, ids=str)
def test_one_call_for_many_episodes_records_what_asking_after_each_episode_finds(
    algorithm: str, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """700 walks are more steps than one call takes."""
    model, kind, config = (
        random_walk_model(9, 1, -1.0, 1.0),
        table_agent(algorithm),
        config_of(algorithm, settings),
    )
    recorded = experiments.value_curves(kind, config, model, episodes=700, runs=1)
    monkeypatch.setattr(experiments, "_table_rows", lambda agent, states: np.empty(()))
    np.testing.assert_array_equal(
        experiments.value_curves(kind, config, model, episodes=700, runs=1), recorded
    )
    assert (recorded[0, 1:] != recorded[0, :-1]).any(axis=1).sum() > 600


def test_returns_are_those_of_the_training_episodes() -> None:
    env = rlbook.make("CliffWalking-v1")
    model, kind = TabularMDP.from_env(env), table_agent("q_learning")
    shown = experiments.returns(
        kind, kind.Config(), model, episodes=1_500, runs=2, seed=1, time_limit=LONGEST
    )
    assert shown.shape == (2, 1_500)
    run = rlbook.train("q_learning", env, episodes=1_500, seed=2, eval_every=0)
    assert shown[1].tolist() == list(run.episode_returns)
