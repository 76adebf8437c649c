"""DAgger: labels by hand, who acts, what is learned from, and the maze where one cloned episode is
not enough."""

from __future__ import annotations

import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from closeness import near
from steps import train_on

import rlbook
from rlbook.agent import Agent, State
from rlbook.algorithms.imitation.dagger import DAgger, DAggerConfig, labelled_rows
from rlbook.algorithms.planning.policy_iteration import PolicyIteration
from rlbook.envs.tabular.mdp import TabularMDP
from rlbook.errors import RequestError
from rlbook.interaction.environments import EnvRecipe
from rlbook.interaction.expert_actions import AdvisedVectorEnv
from rlbook.interaction.play_episodes import adapted_vector
from rlbook.registry import model_of
from rlbook.runs.demonstrations import exact_expert
from rlbook.runs.processes.interrupts import Interrupted
from rlbook.runs.run import Run


class Last(Agent):
    """Takes the last action, whatever it sees, and counts how often it is asked."""

    asked = 0

    def act(self, observation: Any, *, explore: bool = True) -> int:
        self.asked += 1
        assert not explore
        return 3

    def state_dict(self) -> State:
        return {}

    def load_state_dict(self, state: State) -> None:
        pass


class LastAllowed(Last):
    """The same of what a mask allows."""

    def act(
        self, observation: Any, *, explore: bool = True, action_mask: np.ndarray | None = None
    ) -> int:
        assert not explore and action_mask is not None
        return int(np.flatnonzero(action_mask)[-1])


def slippery() -> TabularMDP:
    return model_of(rlbook.make("Maze-v0", slip=0.2))


def values(run: Run, model: TabularMDP) -> np.ndarray:
    """V of the greedy policy, exactly, γ = 0.99."""
    chosen = run.agent.act(np.eye(model.num_states, dtype=np.float32), explore=False)
    return model.policy_values(chosen, 0.99)


def test_the_expert_is_asked_about_the_state_that_the_environments_show() -> None:
    """A planner that takes indices beside a learner that sees one-hot vectors: its advice is the
    exact policy of each state."""
    recipe = EnvRecipe.from_env("Maze-v0", kwargs={"slip": 0.2})
    plain = adapted_vector(DAgger, recipe, 5, DAggerConfig())
    env = AdvisedVectorEnv(plain.env, lambda: exact_expert(recipe))
    best = PolicyIteration.solve(slippery(), gamma=0.99).greedy_policy()
    obs, _ = env.reset(seed=3)
    rng = np.random.default_rng(0)
    for _ in range(40):
        assert (
            (best[obs, env.advised_actions()] > 0).all()
            if best.ndim == 2
            else (env.advised_actions() == best[obs]).all()
        )
        obs, _, terminated, truncated, _ = env.step(rng.integers(4, size=5))
        if (terminated | truncated).any():
            obs, _ = env.reset(options={"reset_mask": terminated | truncated})


def test_an_expert_that_knows_masks_is_asked_for_what_it_would_do_within_them() -> None:
    config = DAggerConfig()
    env = adapted_vector(DAgger, EnvRecipe.from_env("Maze-v0"), 2, config)
    asked = AdvisedVectorEnv(env.env, lambda: LastAllowed(env, None))
    asked.reset(seed=0)
    mask = np.array([[True, False, True, False], [False, True, False, False]])
    assert asked.advised_actions(mask).tolist() == [2, 1]


@pytest.mark.parametrize(("beta", "up"), [(1.0, 0), (0.0, 20)])
def test_beta_says_who_acts_and_the_expert_labels_either_way(beta: float, up: int) -> None:
    config = DAggerConfig(beta=beta, rollout_steps=5)
    env = adapted_vector(DAgger, EnvRecipe.from_env("Maze-v0"), 4, config)
    asked = AdvisedVectorEnv(env.env, lambda: Last(env, None))
    agent = DAgger(env, config, 0, rlbook.agent.Parts(advice=asked.advised_actions))
    agent.policy.actor.layers[-1].bias.data[0] = 1.0  # up is likeliest, and what the learner does
    obs, _ = asked.reset(seed=0)
    taken = [agent.act(env.adaptation.observe(obs)) for _ in range(5)]  # type: ignore[misc]
    assert (
        (np.stack(taken) == 0).sum() == up
        and (np.concatenate(agent.labels) == 3).all()
        and agent.new == 20
    )


def test_the_agreement_is_that_of_the_states_since_the_last_fit() -> None:
    config = DAggerConfig(rollout_steps=5, gradient_steps=1)
    env = adapted_vector(DAgger, EnvRecipe.from_env("Maze-v0"), 4, config)
    asked = AdvisedVectorEnv(env.env, lambda: Last(env, None))
    agent = DAgger(env, config, 0, rlbook.agent.Parts(advice=asked.advised_actions))
    agent.policy.actor.layers[-1].bias.data[3] = 1.0  # what the expert does, always
    obs, _ = asked.reset(seed=0)
    seen, step = env.adaptation.observe(obs), SimpleNamespace(reward=np.zeros(4))  # type: ignore[misc]
    for fits in (1, 2):
        for _ in range(5):
            agent.act(seen)
            told = agent.learn(step)  # type: ignore[arg-type]
        assert told["agreement"] == 1.0 and told["labels"] == 20 * fits


def test_the_loss_is_the_experts_action_under_the_policy() -> None:
    """Uniform at first: ln 4. After a step it is smaller."""
    config = DAggerConfig(batch_size=4)
    agent = DAgger(adapted_vector(DAgger, EnvRecipe.from_env("Maze-v0"), 2, config), config)
    for parameter in list(agent.policy.parameters())[-2:]:
        torch.nn.init.zeros_(parameter)
    rows = labelled_rows(np.eye(25, dtype=np.float32)[:4], np.array([0, 1, 3, 3]))
    assert float(train_on(agent, rows)["loss"]) == near(np.log(4), dtype="float32", terms=4)
    assert float(train_on(agent, rows)["loss"]) < np.log(4)


def test_everything_that_was_ever_labelled_is_learned_from() -> None:
    """160 steps of 8 environments, a fit every 4 · 8: after each, all states so far."""
    run = rlbook.train(
        "dagger", "Maze-v0", steps=160, num_envs=8, rollout_steps=4, gradient_steps=2, eval_every=0
    )
    assert [report["labels"] for report in run.metrics if "labels" in report] == [
        32,
        64,
        96,
        128,
        160,
    ]
    assert len(run.agent.labels) == 1 and run.agent.obs[0].shape == (160, 25)  # type: ignore[attr-defined]


def test_an_expert_is_asked_in_training_and_not_in_evaluation(tmp_path: Path) -> None:
    expert = Last(rlbook.make("Maze-v0"), None)
    run = rlbook.train(
        "dagger", "Maze-v0", expert=expert, steps=64, num_envs=2, rollout_steps=16, eval_every=0
    )
    asked = expert.asked
    rlbook.evaluate(run, episodes=2)
    assert asked == 64 == expert.asked
    assert run.agent.act(np.eye(25, dtype=np.float32)[[0]], explore=False).tolist() == [3]
    with pytest.raises(
        RequestError, match="must be able to reload its expert: give the folder of the expert's run"
    ):
        rlbook.train("dagger", "Maze-v0", expert=expert, steps=64, out=tmp_path / "run")


@pytest.mark.parametrize(
    ("env", "expert", "sentence"),
    [
        (
            "CartPole-v1",
            None,
            r"it needs an expert \(--expert, expert=…\), since CartPole-v1 has no model",
        ),
        ("Addition-v0", None, "a reference answer labels only its own prefixes"),
        (
            "FrozenLake-v1",
            "Maze-v0",
            r"made for another environment: its observation space is Discrete\(16\)",
        ),
        (
            "Maze-v0",
            "mcts",
            "must return an action for any observation, which MCTS does not",
        ),
    ],
)
def test_who_cannot_be_asked_is_refused(env: str, expert: str | None, sentence: str) -> None:
    named = (
        None
        if expert is None
        else rlbook.train(
            "mcts" if expert == "mcts" else "value_iteration", "Maze-v0", steps=3, eval_every=0
        )
    )
    with pytest.raises(RequestError, match=sentence):
        rlbook.train("dagger", env, expert=named, steps=8)


@pytest.mark.parametrize("cut", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_a_run_cut_after_a_fit_goes_on_bit_for_bit(tmp_path: Path, cut: int) -> None:
    settings: dict[str, Any] = {
        "steps": 400,
        "num_envs": 4,
        "rollout_steps": 10,
        "gradient_steps": 3,
        "eval_every": 0,
        "beta": 0.5,
    }
    whole = rlbook.train("dagger", "Maze-v0", env_kwargs={"slip": 0.2}, **settings)

    def stop(run: Run) -> None:
        if run.agent.optimizer.steps >= 3 * cut:  # type: ignore[attr-defined]
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(Interrupted):
        rlbook.train(
            "dagger",
            "Maze-v0",
            env_kwargs={"slip": 0.2},
            out=tmp_path / "run",
            on_report=stop,
            **settings,
        )
    resumed = rlbook.load(tmp_path / "run")
    assert 0 < resumed.steps < 400
    resumed = resumed.resume()
    assert resumed.episode_returns == whole.episode_returns
    for ours, theirs in zip(
        whole.agent.policy.parameters(), resumed.agent.policy.parameters(), strict=True
    ):  # type: ignore[attr-defined]
        assert torch.equal(ours, theirs)


def ladder(seed: int) -> tuple[float, float, float]:
    """On the slippery maze with as many labels: V of a clone, of DAgger, and V*, at the start."""
    model, both = slippery(), {"env_kwargs": {"slip": 0.2}, "eval_every": 0, "seed": seed}
    clone = rlbook.train("behavior_cloning", "Maze-v0", demonstrations=16, steps=500, **both)
    asked = rlbook.train("dagger", "Maze-v0", steps=2_000, **both)
    best = PolicyIteration.solve(model, gamma=0.99).values()
    return tuple(
        float(model.initial @ each) for each in (values(clone, model), values(asked, model), best)
    )  # type: ignore[return-value]


@pytest.mark.thorough
def test_dagger_is_optimal_on_the_slippery_maze_where_a_clone_of_one_episode_is_far_from_it() -> (
    None
):
    clone, asked, best = ladder(0)
    # a rounding is carried on for 1 / (1 - γ) = 100 steps
    assert asked == near(best, terms=25, size=100 * abs(best)) and clone < best - 5


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3, 4])
def test_it_is_so_from_every_seed(seed: int) -> None:
    clone, asked, best = ladder(seed)
    # a rounding is carried on for 1 / (1 - γ) = 100 steps
    assert asked == near(best, terms=25, size=100 * abs(best)) and clone < best - 5


def test_a_run_with_action_masks_is_loaded_and_extended(tmp_path: Path) -> None:
    settings = {"rollout_steps": 8, "gradient_steps": 1, "num_envs": 1, "eval_every": 0}
    run = rlbook.train("dagger", "TicTacToe-v0", steps=20, out=tmp_path / "run", **settings)
    loaded = rlbook.load(tmp_path / "run")
    assert len(loaded.agent.allowed) == len(run.agent.allowed) > 0
    loaded.train(steps=8)
    assert sum(map(len, loaded.agent.allowed)) == sum(map(len, loaded.agent.labels)) == 28
