"""A planner on an environment without a model: one is estimated, said, the same each time, and only
where there really is none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from closeness import assert_near, near

import rlbook
from rlbook.agent import Planner
from rlbook.algorithms.planning.planner_config import PlannerConfig
from rlbook.algorithms.planning.value_iteration import ValueIteration
from rlbook.envs.tabular.enumeration import NoModel
from rlbook.registry import ALGORITHMS, agent_class, model_of, refusal_reason
from rlbook.runs.planning_models import planning_model
from rlbook.runs.request import Request

PLANNERS = [name for name in ALGORITHMS if issubclass(agent_class(name), Planner)]
SMALL: dict[str, Any] = {"sampled_steps": 3_000, "bins": 6, "eval_every": 0}


def model_for(algorithm: str, env: Any, **hyperparameters: Any) -> Any:
    """(model, notes), as a run gets them."""
    return planning_model(Request.build(algorithm, env, hyperparameters=hyperparameters))


def test_the_planners_are_those_that_the_registry_says() -> None:
    assert all(issubclass(agent_class(name).Config, PlannerConfig) for name in PLANNERS)


def test_an_environment_with_a_model_is_planned_in_as_it_is() -> None:
    model, notes = model_for("value_iteration", "FrozenLake-v1")
    assert notes == () and model.num_states == 16
    assert rlbook.train("value_iteration", "FrozenLake-v1").notes == ()


def test_a_run_without_a_model_says_that_one_is_estimated_and_from_how_many_steps() -> None:
    run = rlbook.train("value_iteration", "CartPole-v1", **SMALL)
    assert (
        "model: the environment has none, so one is estimated from 3,000 sampled steps"
        " (certainty_equivalence)" in run.notes
    )
    assert "observation: 6 bins for each of 4 dimensions" in " ".join(run.notes)


def test_the_sampled_model_is_a_model_of_the_bins_with_a_count_for_each_step() -> None:
    """6⁴ states, 2 actions. CartPole pays 1 a step, so r = 1 wherever anything was tried, and 0
    where nothing was."""
    model, _ = model_for("value_iteration", "CartPole-v1", sampled_steps=3_000, bins=6)
    assert (model.num_states, model.num_actions) == (6**4, 2)
    tried = model.rewards > 0.5
    assert_near(model.rewards[tried], np.ones(tried.sum()), terms=3_000)
    assert (
        20 < tried.sum() < 3_000
        and (model.rewards[~tried] == 0.0).all()
        and (model.ends[~tried] == 1.0).all()
    )
    assert model.initial.sum() == near(1.0, terms=6**4)
    assert tried[model.initial > 0].any(axis=1).all()


@pytest.mark.thorough
def test_the_same_seed_gives_the_same_model_and_another_seed_another() -> None:
    def made(seed: int) -> Any:
        request = Request.build(
            "value_iteration",
            "CartPole-v1",
            seed=seed,
            hyperparameters={"sampled_steps": 2_000, "bins": 6},
        )
        return planning_model(request)[0]

    first, again, other = made(1), made(1), made(2)
    assert first.rewards.tobytes() == again.rewards.tobytes()
    assert first.transitions.data.tobytes() == again.transitions.data.tobytes()
    assert first.rewards.tobytes() != other.rewards.tobytes()


@pytest.mark.thorough
def test_all_planners_find_the_same_values_in_the_same_sampled_model() -> None:
    values = [
        rlbook.train(name, "CartPole-v1", seed=3, **SMALL).agent.values()  # type: ignore[attr-defined]
        for name in PLANNERS
        if name != "policy_evaluation"
    ]
    tolerance = 1e-8  # of each
    for other in values[1:]:
        np.testing.assert_allclose(other, values[0], rtol=0, atol=2 * tolerance)
    assert values[0].max() > 10


@pytest.mark.thorough
def test_a_run_of_a_planner_in_a_sampled_model_is_loaded_with_its_policy(tmp_path: Path) -> None:
    run: Any = rlbook.train("value_iteration", "CartPole-v1", out=tmp_path / "run", seed=2, **SMALL)
    loaded: Any = rlbook.load(tmp_path / "run")
    assert loaded.agent.greedy_policy().tolist() == run.agent.greedy_policy().tolist()
    assert (
        rlbook.evaluate(loaded, episodes=3).returns.tolist()
        == rlbook.evaluate(run, episodes=3).returns.tolist()
    )


def test_actions_that_are_a_box_are_cut_into_bins() -> None:
    run = rlbook.train(
        "value_iteration", "Pendulum-v1", sampled_steps=1_000, bins=5, action_bins=3, eval_every=0
    )
    agent: Any = run.agent
    assert agent.action_values().shape == (5**3, 3)


class Shown(gymnasium.ObservationWrapper):
    """Shows the maze's states in the reverse order."""

    def observation(self, observation: int) -> int:
        return 24 - observation


def test_a_wrapped_environment_is_sampled_as_the_agent_sees_it() -> None:
    """The wrapper makes the maze's own model useless. In the estimated one the start is state 24,
    and the optimal return 3 is reached."""
    env = Shown(rlbook.make("Maze-v0"))
    run: Any = rlbook.train("value_iteration", env, eval_every=0)
    assert any("sampled steps" in note for note in run.notes)
    within = 1e-8 + 5e-11  # the tolerance, and ten decimals
    assert run.agent.values()[24] == pytest.approx(2.5271882698, rel=0, abs=within)
    assert rlbook.evaluate(run, episodes=2).returns.tolist() == [3.0, 3.0]


def test_the_seed_feeds_the_sampling_agent_too() -> None:
    """The maze leaves nothing to chance, so 30 steps of two seeds differ only in the actions that
    were tried."""
    env = Shown(rlbook.make("Maze-v0"))
    models = [
        planning_model(
            Request.build("value_iteration", env, seed=seed, hyperparameters={"sampled_steps": 30})
        )[0]
        for seed in (1, 2)
    ]
    assert (models[0].rewards != models[1].rewards).any()


class Noisy(gymnasium.Env):
    """Has snapshots, but its steps draw random numbers: no model can be enumerated. Action 1 in
    state 0 pays 1 half of the time."""

    observation_space, action_space = gymnasium.spaces.Discrete(2), gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        return 0, {}

    def step(self, action: Any) -> tuple[int, float, bool, bool, dict[str, Any]]:
        return 1, float(action == 1 and self.np_random.random() < 0.5), True, False, {}

    def snapshot(self) -> dict[str, Any]:
        return {"rng": self.np_random.bit_generator.state}

    def restore(self, snapshot: dict[str, Any]) -> None:
        self.np_random.bit_generator.state = snapshot["rng"]


def test_random_steps_are_averaged() -> None:
    """20 000 steps, most of them greedy: a frequency of 1/2 from at least 5 000 tries has standard
    error below .0071."""
    run: Any = rlbook.train("value_iteration", Noisy(), eval_every=0)
    assert run.agent.values()[0] == pytest.approx(0.5, rel=0, abs=4 * 0.5 / 5_000**0.5)
    assert run.agent.greedy_policy()[0] == 1


def test_what_is_too_large_or_not_observable_is_refused_as_before() -> None:
    assert "a table needs one row a state" in str(refusal_reason("value_iteration", "Addition-v0"))
    assert "does not identify the state" in str(
        refusal_reason("value_iteration", "ShortCorridor-v0")
    )
    with pytest.raises(rlbook.RequestError, match="DynaMaze changes after 1000 steps"):
        rlbook.train("value_iteration", "DynaMaze-v0", env_kwargs={"variant": "blocking"})
    with pytest.raises(NoModel, match="CartPole-v1 has no model to plan with"):
        model_of(gymnasium.make("CartPole-v1"))


@pytest.mark.parametrize(("name", "value"), [("sampled_steps", 0), ("bins", 0), ("action_bins", 1)])
def test_hyper_parameters_out_of_range_are_refused(name: str, value: int) -> None:
    with pytest.raises(
        ValueError, match=f"{name} must be an integer of at least {value + 1}, got {value}"
    ):
        ValueIteration.Config(**{name: value})
