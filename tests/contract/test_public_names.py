"""The names that others build on: each does what the design says, from outside."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from closeness import near

import rlbook
from rlbook.agent import Agent
from rlbook.runs.storage.state_encoding import encode

CODE = "import sys, {module}; heavy = {heavy} & set(sys.modules); assert not heavy, heavy"


@pytest.mark.parametrize(
    ("module", "heavy"),
    [
        ("rlbook", {"torch", "transformers", "gymnasium", "numpy"}),
        ("rlbook.runs.run", {"torch", "transformers", "scipy", "matplotlib"}),
        ("rlbook.algorithms.tabular.q_learning", {"torch", "transformers", "scipy", "matplotlib"}),
    ],
)
def test_nothing_heavy_is_imported_before_it_is_needed(module: str, heavy: set[str]) -> None:
    subprocess.run([sys.executable, "-c", CODE.format(module=module, heavy=heavy)], check=True)


def test_tabular_training_needs_no_torch(tmp_path: Path) -> None:
    code = (
        "import sys, rlbook; run = rlbook.train('q_learning', 'Maze-v0', episodes=5, out='run',"
        " eval_episodes=2);rlbook.train('value_iteration', 'Maze-v0'); rlbook.load('run').resume();"
        " rlbook.evaluate('run', episodes=2);assert not {'torch', 'transformers'} &"
        " set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path)


def test_every_public_name_is_there() -> None:
    for name in rlbook.__all__:
        assert getattr(rlbook, name) is not None
    assert set(rlbook.__all__) <= set(dir(rlbook))
    assert not [name for name in dir(rlbook) if name.startswith("_") and name != "__version__"]
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        rlbook.nothing  # type: ignore[attr-defined]  # noqa: B018


PART_I = {
    "policy_evaluation",
    "policy_iteration",
    "modified_policy_iteration",
    "value_iteration",
    "prioritized_sweeping",
    "bandit",
    "mc_prediction",
    "mc_control",
    "off_policy_mc",
    "td_prediction",
    "n_step_td",
    "td_lambda",
    "sarsa",
    "expected_sarsa",
    "q_learning",
    "double_q_learning",
    "n_step_sarsa",
    "sarsa_lambda",
    "watkins_q_lambda",
    "dyna_q",
    "dyna_q_plus",
    "certainty_equivalence",
    "mcts",
}


def test_algorithms_and_environments_are_listed_by_name() -> None:
    import rlbook.algorithms.tabular.q_learning  # sets the package `rlbook.algorithms`, which can still be called

    for _ in range(2):
        algorithms, environments = rlbook.algorithms(), rlbook.environments()
        assert list(algorithms) == list(rlbook.registry.ALGORITHMS)
        later = {
            "alphazero",
            "world_model",
            "mbpo",
            "behavior_cloning",
            "rejection_sampling",
            "distillation",
            "co_distillation",
            "rce",
            "dagger",
            "gail",
            "reward_model",
            "fitted_q",
            "cql",
            "iql",
            "dqn",
            "reinforce",
            "a2c",
            "trpo",
            "ppo",
            "ddpg",
            "td3",
            "sac",
            "grpo",
            "dpo",
        }
        linear = {"semi_gradient_td", "lstd", "gradient_td", "semi_gradient_sarsa"}
        assert set(algorithms) == PART_I | linear | later
        assert (
            all(issubclass(agent, rlbook.Agent) for agent in algorithms.values())
            and algorithms["ppo"] is rlbook.PPO
        )
        assert (
            environments["Maze-v0"].id == "rlbook/Maze-v0"
            and environments["CartPole-v1"].max_episode_steps == 500
        )
        assert "Taxi-v4" in environments and "FrozenLake-v0" not in environments


@pytest.mark.parametrize("name", ["Maze-v0", "rlbook/Maze-v0"])
def test_make_takes_short_and_long_ids_and_arguments(name: str) -> None:
    env = rlbook.make(name, slip=0.5, max_episode_steps=9)
    assert (
        env.spec is not None and env.spec.id == "rlbook/Maze-v0" and env.spec.max_episode_steps == 9
    )
    assert rlbook.make("CartPole-v1").spec.id == "CartPole-v1"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "env",
    ["CartPole-v1", pytest.param(gymnasium.make("CartPole-v1"), marks=pytest.mark.slow)],
)
def test_a_run_tells_what_happened(env: Any, tmp_path: Path) -> None:
    run = rlbook.train(
        "ppo",
        env,
        steps=2000,
        seed=4,
        out=tmp_path / "run",
        num_envs=4,
        rollout_steps=32,
        eval_episodes=3,
    )
    assert type(run.agent) is rlbook.PPO and run.folder == tmp_path / "run" and run.steps == 2000
    assert all(episode_return >= 8 for episode_return in run.episode_returns)
    episodes = [
        line.split(",") for line in (tmp_path / "run" / "episodes.csv").read_text().splitlines()[1:]
    ]
    assert [float(episode_return) for _, episode_return, _ in episodes] == run.episode_returns
    assert [step for step, _, _ in episodes] == sorted((step for step, _, _ in episodes), key=int)
    lines = [
        json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    ]
    assert lines == run.metrics
    steps = [report["step"] for report in run.metrics]
    assert (
        steps == sorted(set(steps))
        and steps[-1] == 2000
        and run.metrics[-1]["episodes"] == len(run.episode_returns)
    )
    evaluated = [report["step"] for report in run.metrics if "eval_return" in report]
    assert evaluated == [200 * k for k in range(1, 11)], "ten in the run, the last one at its end"
    known = {"step", "episodes", "return", "length", "eval_return", *run.agent.METRICS}
    assert all(set(report) <= known for report in run.metrics)
    mean = sum(
        report["return"] * n for report, n in zip(run.metrics, new_episodes(run), strict=True) if n
    ) / len(run.episode_returns)
    assert mean == near(np.mean(run.episode_returns), terms=len(run.episode_returns), size=100.0)


def new_episodes(run: rlbook.Run) -> list[int]:
    counts = [0, *(report["episodes"] for report in run.metrics)]
    return [after - before for before, after in itertools.pairwise(counts)]


def test_without_a_folder_nothing_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert rlbook.train("ppo", "Maze-v0", steps=300).folder is None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("algorithm", ["q_learning", "ppo", "grpo"])
def test_a_budget_may_be_counted_in_episodes(algorithm: str) -> None:
    run = rlbook.train(algorithm, "Maze-v0", episodes=20, eval_every=0)
    assert 20 <= len(run.episode_returns) < 20 + run.request.num_envs
    both = rlbook.train(algorithm, "Maze-v0", episodes=20, steps=64, eval_every=0)
    assert 64 <= both.steps < 64 + both.request.num_envs, "whichever is used up first"


def test_without_a_budget_there_is_a_sensible_one() -> None:
    run = rlbook.train("q_learning", "Maze-v0", eval_every=0)
    assert len(run.episode_returns) == run.request.budget.episodes
    assert rlbook.evaluate(run, episodes=3).returns.tolist() == [3.0, 3.0, 3.0]


def test_a_preset_gives_way_to_what_is_asked_for_and_its_budget_replaces_the_default_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        rlbook.QLearning, "presets", {"Maze-v0": {"steps": 50, "alpha": 0.3, "gamma": 0.8}}
    )
    run = rlbook.train("q_learning", "Maze-v0", gamma=0.7, eval_every=0)
    assert (run.request.budget.steps, run.request.budget.episodes, run.steps) == (50, None, 50)
    assert (run.request.hyperparameters["alpha"], run.request.hyperparameters["gamma"]) == (
        "0.3",
        0.7,
    )
    assert (
        rlbook.train("q_learning", "Maze-v0", episodes=2, eval_every=0).request.budget.steps is None
    )


@pytest.mark.thorough
def test_evaluations_come_when_they_are_asked_for() -> None:
    run = rlbook.train("q_learning", "CartPole-v1", steps=1000, eval_every=250, eval_episodes=2)
    assert [report["step"] for report in run.metrics if "eval_return" in report] == [
        250,
        500,
        750,
        1000,
    ]
    never = rlbook.train("q_learning", "CartPole-v1", steps=500, eval_every=0)
    assert not any("eval_return" in report for report in never.metrics)


def test_the_best_checkpoint_is_the_best_evaluation(tmp_path: Path) -> None:
    run = rlbook.train(
        "ppo", "CartPole-v1", steps=2000, out=tmp_path / "run", seed=1, eval_episodes=4
    )
    evaluated = {
        report["step"]: report["eval_return"] for report in run.metrics if "eval_return" in report
    }
    best = rlbook.load(tmp_path / "run", checkpoint="best")
    assert evaluated[best.steps] == max(evaluated.values())
    assert rlbook.evaluate(best, episodes=4, seed=1).mean == max(evaluated.values()), (
        "the same episodes, the same numbers"
    )


def test_reports_come_as_training_goes_on() -> None:
    seen: list[int] = []
    run = rlbook.train(
        "dqn", "Maze-v0", steps=400, eval_every=0, on_report=lambda run: seen.append(run.steps)
    )
    assert (
        seen == [report["step"] for report in run.metrics] and len(seen) == 100 and seen[-1] == 400
    )


def test_every_equation_has_its_short_name() -> None:
    assert rlbook.functional.gae is rlbook.functional.advantages.gae
    assert rlbook.functional.dpo_loss is rlbook.functional.post_training.preference_losses.dpo_loss
    assert rlbook.functional.k3 is rlbook.functional.divergences.k3
    for name in ("Tensor", "torch", "_shapes_", "gea"):
        assert not hasattr(rlbook.functional, name), name


# ---- evaluation


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("algorithm", "episodes"),
    [
        ("q_learning", 23),
        ("ppo", 1),
        pytest.param("q_learning", 1, marks=pytest.mark.slow),
        pytest.param("ppo", 23, marks=pytest.mark.slow),
    ],
)
def test_exactly_so_many_whole_episodes_are_played(algorithm: str, episodes: int) -> None:
    run = rlbook.train(algorithm, "CartPole-v1", steps=200, eval_every=0)
    result = rlbook.evaluate(
        run, rlbook.make("CartPole-v1", max_episode_steps=7), episodes=episodes
    )
    assert (
        result.returns.tolist() == [7.0] * episodes and result.lengths.tolist() == [7] * episodes
    ), "no pole falls in 7 steps"
    assert result.mean == 7.0 and result.confidence_interval == (7.0, 7.0)
    whole = rlbook.evaluate(run, episodes=episodes)
    assert (
        len(whole.returns) == episodes
        and (whole.returns == whole.lengths).all()
        and whole.lengths.min() > 7
    )


def test_more_episodes_than_streams_are_the_same_episodes(monkeypatch: pytest.MonkeyPatch) -> None:
    run = rlbook.train("ppo", "CartPole-v1", steps=3000, seed=2, eval_every=0)
    at_once = rlbook.evaluate(run, episodes=20, seed=9)
    monkeypatch.setattr("rlbook.interaction.play_episodes.MAX_ENVS", 3)
    in_turn = rlbook.evaluate(run, episodes=20, seed=9)
    np.testing.assert_array_equal(at_once.returns, in_turn.returns)
    assert len(set(at_once.returns)) > 1


def test_evaluating_twice_gives_the_same_and_another_seed_gives_another() -> None:
    run = rlbook.train("q_learning", "FrozenLake-v1", episodes=300, seed=0, eval_every=0)
    first, second, other = (
        rlbook.evaluate(run, episodes=40, seed=seed) for seed in (None, None, 77)
    )
    np.testing.assert_array_equal(first.lengths, second.lengths)
    assert (first.lengths != other.lengths).any()
    np.testing.assert_array_equal(
        rlbook.evaluate(run, episodes=5).lengths, rlbook.evaluate(run, episodes=5, seed=0).lengths
    )


def test_the_interval_is_students() -> None:
    result = rlbook.evaluation.episodes.Evaluation(
        np.array([1.0, 2.0, 3.0, 6.0]), np.ones(4, dtype=np.int64)
    )
    # mean 3, s² = (4 + 1 + 0 + 9) / 3, t(0.975, 3) = 3.1824463
    half = 3.1824463 * (14 / 3) ** 0.5 / 4**0.5
    assert result.mean == 3.0 and result.confidence_interval == near(
        (3 - half, 3 + half), decimals=7
    )


def test_a_run_a_folder_and_an_agent_can_be_judged(tmp_path: Path) -> None:
    run = rlbook.train("q_learning", "Maze-v0", seed=0, out=tmp_path / "run", eval_every=0)
    for target, env in (
        (run, None),
        (tmp_path / "run", None),
        (str(tmp_path / "run"), "Maze-v0"),
        (run.agent, "Maze-v0"),
    ):
        assert rlbook.evaluate(target, env, episodes=3).returns.tolist() == [3.0] * 3
    assert rlbook.evaluate(run, rlbook.make("Maze-v0", rewards="shaped"), episodes=1).mean == near(
        9.2, terms=8, size=10.0
    )


def as_bytes(agent: Agent) -> tuple[Any, dict[str, bytes]]:
    skeleton, arrays = encode(agent.state_dict())
    return skeleton, {name: array.tobytes() for name, array in arrays.items()}


@pytest.mark.parametrize("algorithm", ["q_learning", "dqn", "ppo"])
def test_exploring_in_an_evaluation_is_another_walk_and_changes_nothing_in_the_agent(
    algorithm: str,
) -> None:
    run = rlbook.train(algorithm, "Maze-v0", steps=2000, seed=0, eval_every=0)
    before = as_bytes(run.agent)
    greedy, first, second = (
        rlbook.evaluate(run, episodes=20, explore=explore) for explore in (False, True, True)
    )
    assert as_bytes(run.agent) == before
    np.testing.assert_array_equal(first.returns, second.returns)
    assert len(set(first.returns)) > len(set(greedy.returns)) == 1, (
        "one start, and a deterministic maze"
    )


def test_exploring_a_language_model_samples_from_it() -> None:
    from rlbook.plots.completions import write

    run = rlbook.train("grpo", "Addition-v0", steps=1, eval_every=0)
    greedy, sampled = (
        rlbook.evaluate(run, episodes=512, explore=explore).mean for explore in (False, True)
    )
    other = write(
        run.agent, run.request.recipe.for_evaluation(), range(512), samples=1, seed=1
    ).mean_reward
    assert abs(sampled - other) < 0.094  # twice the same share: 3 · √(2 · 0.25 / 512) = 0.094
    assert sampled < greedy


def test_an_agent_that_walks_in_circles_is_judged_too() -> None:
    run = rlbook.train("q_learning", "CliffWalking-v1", steps=1, eval_every=0)
    result = rlbook.evaluate(run, episodes=1)
    assert result.lengths.tolist() == [10_000], "no time limit, and untrained"


# ---- what agents show


@pytest.mark.parametrize("algorithm", ["value_iteration", "q_learning"])
def test_tabular_agents_show_their_tables(algorithm: str) -> None:
    agent: Any = rlbook.train(algorithm, "Maze-v0", seed=0, gamma=0.9, eval_every=0).agent
    values, action_values, policy = agent.values(), agent.action_values(), agent.greedy_policy()
    assert values.shape == (25,) and action_values.shape == (25, 4) and policy.shape == (25,)
    np.testing.assert_array_equal(values, action_values.max(axis=1))
    np.testing.assert_array_equal(action_values[np.arange(25), policy], values)
    # 8 moves to the goal. Seeds 100 to 109 come to it with errors of 2e-14 to 3e-14.
    assert values[0] == near(-(1 - 0.9**7) / 0.1 + 10 * 0.9**7, terms=100, size=10.0)
    assert [agent.act(state, explore=False) for state in range(25)] == policy.tolist()


def test_a_critic_values_the_environments_own_observations() -> None:
    maze: Any = rlbook.train("ppo", "Maze-v0", steps=500, eval_every=0).agent
    assert maze.value(np.arange(25)).shape == (25,)
    cart: Any = rlbook.train("ppo", "CartPole-v1", steps=500, eval_every=0).agent
    assert cart.value(np.zeros((3, 4), dtype=np.float32)).shape == (3,)
    q: Any = rlbook.train("dqn", "Maze-v0", steps=100, eval_every=0).agent
    assert q.action_values(np.arange(25)).shape == (25, 4)


def test_torch_has_as_many_threads_afterwards_as_before() -> None:
    import torch

    inside: list[int] = []
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        run = rlbook.train(
            "ppo",
            "Maze-v0",
            steps=300,
            eval_every=0,
            on_report=lambda run: inside.append(torch.get_num_threads()),
        )
        rlbook.evaluate(run, episodes=2)
        assert set(inside) == {1} and torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_an_alias_may_come_with_settings_that_the_user_may_change() -> None:
    from rlbook.registry import ALIASES, VARIANTS
    from rlbook.runs.request import Request

    for name, settings in VARIANTS.items():
        config = Request.build(name, "Maze-v0").config
        assert {field: getattr(config, field) for field in settings} == settings, name
        assert name in ALIASES and Request.build(name, "Maze-v0").algorithm == ALIASES[name]
    assert Request.build("rloo", "Maze-v0", hyperparameters={"kl_coef": 0.2}).config.kl_coef == 0.2
