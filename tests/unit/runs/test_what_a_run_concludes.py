"""What a run concludes: on which episodes and which split it is judged, which evaluation is the
best, which is the last; and settings beside the defaults that change a step."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest
import torch
from closeness import assert_near, near
from gymnasium import spaces
from torch import nn

import rlbook
from rlbook.agent import Agent, Metrics, State, Step
from rlbook.algorithms.policy.ppo import ppo_loss
from rlbook.algorithms.value.cql import conservative_gap
from rlbook.checks import crosses
from rlbook.data.replay import Transitions
from rlbook.evaluation.comparison import LAST, compare
from rlbook.interaction import play_episodes as playing
from rlbook.networks.optimizer import Adam, Group, LossOutput, adam
from rlbook.registry import agent_class
from rlbook.runs.greedy_evaluation import evaluation_metrics
from rlbook.runs.processes.interrupts import Interrupted
from rlbook.runs.storage.checkpoints import mark_best, read_best, read_best_file
from rlbook.runs.storage.state_encoding import encode


class Lottery(gymnasium.Env):
    """One step, which pays what the reset's seed says."""

    observation_space, action_space = spaces.Box(0.0, 1.0, (1,)), spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.pays = float(self.np_random.random())
        return np.zeros(1, dtype=np.float32), {}

    def step(self, action: Any) -> Any:
        return np.zeros(1, dtype=np.float32), self.pays, True, False, {}


class Scripted(Agent):
    """Earns by the step of its training what `scores` say: its action is the place in a list that
    the environment pays from."""

    batched = True

    def __init__(self, env: Any, config: Any, seed: int = 0) -> None:
        super().__init__(env, config, seed)
        self.seen = 0

    def act(self, observation: Any, *, explore: bool = True) -> Any:
        return np.full(len(observation), min(self.seen // 10, 4))

    def learn(self, step: Step) -> Metrics:
        self.seen += len(step.reward)
        return {}

    def state_dict(self) -> State:
        return {"seen": self.seen}

    def load_state_dict(self, state: State) -> None:
        self.seen = state["seen"]


class Pays(gymnasium.Env):
    """One step, which pays the entry of `scores` that the action names."""

    observation_space, action_space = spaces.Box(0.0, 1.0, (1,)), spaces.Discrete(5)

    def __init__(self, scores: tuple[float, ...] = (0.0, 1.0, 3.0, 3.0, 2.0)) -> None:
        self.scores = scores

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        return np.zeros(1, dtype=np.float32), {}

    def step(self, action: Any) -> Any:
        return np.zeros(1, dtype=np.float32), self.scores[int(action)], True, False, {}


def test_every_episode_of_an_evaluation_has_a_seed_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """More episodes than are played side by side: repeated ones would make the interval too
    narrow."""
    run = rlbook.train(Scripted, Lottery(), steps=8, num_envs=2, eval_every=0)
    beside = rlbook.evaluate(run, episodes=18).returns.tolist()
    monkeypatch.setattr(playing, "MAX_ENVS", 4)
    in_turn = rlbook.evaluate(run, episodes=18).returns.tolist()
    assert len(set(in_turn)) == 18 and in_turn == beside, (
        "in the order of their seeds, also of the last two, which are no whole round"
    )


def test_without_a_seed_a_run_is_evaluated_from_its_own(tmp_path: Path) -> None:
    rlbook.train(
        Scripted, Lottery(), steps=8, num_envs=2, seed=5, out=tmp_path / "run", eval_episodes=4
    )
    run = rlbook.load(tmp_path / "run", algorithm=Scripted, env=Lottery())
    own, five, zero = (
        rlbook.evaluate(run, episodes=4, seed=seed).returns.tolist() for seed in (None, 5, 0)
    )
    assert own == five != zero
    assert run.metrics[-1]["eval_return"] == near(np.mean(own), terms=4)


class Long(Pays):
    """An episode takes 100 steps, each of which pays 1."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.left = 100
        return super().reset(seed=seed)

    def step(self, action: Any) -> Any:
        self.left -= 1
        return np.zeros(1, dtype=np.float32), 1.0, self.left == 0, False, {}


def test_evaluations_on_the_way_are_shortened_and_the_last_one_is_whole() -> None:
    """1 000 steps are ten episodes, of the 20 that are usual; a return at which training ends asks
    for all of them every time."""
    options: dict[str, Any] = {"steps": 800, "num_envs": 2, "eval_every": 200}
    *on_the_way, last = [
        report
        for report in rlbook.train(Scripted, Long(), **options).metrics
        if "eval_return" in report
    ]
    assert (
        len(on_the_way) == 3 and [report.get("eval_episodes") for report in on_the_way] == [10] * 3
    )
    assert "eval_episodes" not in last and last["eval_return"] == 100.0
    whole = rlbook.train(Scripted, Long(), **options, stop_at_return=101.0).metrics
    assert not any("eval_episodes" in report for report in whole)
    seldom = rlbook.train(Scripted, Long(), **options | {"steps": 1_800, "eval_every": 600}).metrics
    assert len(seldom) > 10, (
        "four times the 600 steps since the evaluation before, whatever was reported meanwhile, are"
        " all 20"
    )
    assert not any("eval_episodes" in report for report in seldom)


@pytest.mark.parametrize("algorithm", ["q_learning", "dqn", "ppo"])
def test_exploring_in_an_evaluation_leaves_the_agents_generators_alone(algorithm: str) -> None:
    run = rlbook.train(algorithm, "Maze-v0", steps=60, eval_every=0)
    before = encode(run.agent.state_dict())
    for explore in (True, False):
        first, second = (
            rlbook.evaluate(run, episodes=3, explore=explore).returns.tolist() for _ in range(2)
        )
        assert first == second
        assert str(encode(run.agent.state_dict())) == str(before)


def test_a_run_is_judged_on_held_out_prompts_by_the_right_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Training pays for length; the evaluation asks whether the answer is right, on prompts that
    are never trained on."""
    seen: list[Any] = []
    played = playing.play

    def watched(agent: Agent, recipe: Any, *arguments: Any, **options: Any) -> Any:
        seen.append(recipe)
        return played(agent, recipe, *arguments, **options)

    for place in ("rlbook.runs.greedy_evaluation.play", "rlbook.evaluation.episodes.play"):
        monkeypatch.setattr(place, watched)
    kwargs = {"reward": {"length": 1.0}}
    run = rlbook.train(
        "grpo",
        "Addition-v0",
        steps=64,
        num_envs=16,
        eval_every=64,
        eval_episodes=8,
        env_kwargs=kwargs,
    )
    during = len(seen)
    asked = rlbook.evaluate(run, episodes=8)
    assert 0 < during < len(seen) and all(recipe.kwargs["split"] == "held_out" for recipe in seen)
    assert asked.mean == run.metrics[-1]["eval_return"]
    assert all(recipe.kwargs["reward"] != kwargs["reward"] for recipe in seen)
    assert 0.0 <= run.metrics[-1]["eval_return"] <= 1.0


def test_a_pass_that_was_cut_counts_as_whole_when_passes_are_added() -> None:
    """Stopped after one and a half passes: one more ends after the third."""
    options: dict[str, Any] = {"demonstrations": 40, "batch_size": 10, "eval_every": 0}
    run = rlbook.train(
        "sft",
        "Maze-v0",
        passes=10,
        on_report=lambda run: "stop" if run.passes >= 1.5 else None,
        **options,
    )
    assert run.passes == 1.5
    assert run.train(passes=1).passes == 3.0


def test_of_equal_evaluations_the_later_one_is_the_best_and_the_last_one_is_compared(
    tmp_path: Path,
) -> None:
    rlbook.train(
        Scripted,
        Pays(),
        steps=50,
        num_envs=2,
        eval_every=10,
        eval_episodes=2,
        out=tmp_path / "run",
    )
    reports = [
        json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    ]
    scores = {
        report["step"]: report["eval_return"]
        for report in reports
        if report.get("eval_return") is not None
    }
    assert scores[max(scores)] == 2.0 and max(scores.values()) == 3.0
    best = max(step for step, score in scores.items() if score == 3.0)
    found = read_best(tmp_path / "run")
    assert found is not None and tuple(found)[:2] == (best, 3.0)
    (row,) = compare([tmp_path / "run"])
    assert row.scores.tolist() == [2.0], "not the best of 3"


def test_without_an_evaluation_the_last_reports_of_training_are_compared(tmp_path: Path) -> None:
    """It earns 0, 1, 3, 3 and then 2 for the larger part of its training."""
    run = rlbook.train(Scripted, Pays(), steps=200, num_envs=2, eval_every=0, out=tmp_path / "run")
    returns = [report["return"] for report in run.metrics if "return" in report]
    (row,) = compare([tmp_path / "run"])
    assert len(returns) > 2 * LAST and row.scores.tolist() == [2.0] and min(returns) == 0.0


def test_a_run_that_goes_on_remembers_its_best(tmp_path: Path) -> None:
    """It earned 3 before it was cut, and earns 2 afterwards: what is loaded as the best is still
    the one that earned 3."""
    options: dict[str, Any] = {"num_envs": 2, "eval_every": 10, "eval_episodes": 2}
    rlbook.train(Scripted, Pays(), steps=40, out=tmp_path / "run", **options)
    before = read_best(tmp_path / "run")
    run = rlbook.load(tmp_path / "run", algorithm=Scripted, env=Pays()).resume(steps=80)
    assert run.metrics[-1]["eval_return"] == 2.0
    best = read_best(tmp_path / "run")
    assert before is not None and best is not None and before[1] == best[1] == 3.0
    loaded: Any = rlbook.load(tmp_path / "run", checkpoint="best", algorithm=Scripted, env=Pays())
    assert loaded.steps == best[0] and rlbook.evaluate(loaded, episodes=2).mean == 3.0


class Counting(Scripted):
    """Logs how many steps it has seen; ends its run by a signal where it has seen `stop_at`."""

    METRICS: ClassVar[dict[str, str]] = {"seen": "steps that it has seen"}
    stop_at: ClassVar[int] = 0

    def learn(self, step: Step) -> Metrics:
        super().learn(step)
        if self.seen == self.stop_at:
            signal.raise_signal(signal.SIGINT)
        return {"seen": float(self.seen)}


def test_a_run_that_is_cut_between_two_reports_keeps_what_the_next_one_is_the_mean_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A report every ten steps, five of them vector steps; the run is cut after the third of
    some."""
    options: dict[str, Any] = {"steps": 1_000, "num_envs": 2, "eval_every": 0}
    whole = rlbook.train(Counting, Pays(), **options)
    monkeypatch.setattr(Counting, "stop_at", 26)
    with pytest.raises(Interrupted):
        rlbook.train(Counting, Pays(), out=tmp_path / "run", **options)
    run = rlbook.load(tmp_path / "run", algorithm=Counting, env=Pays()).resume()
    assert [report["seen"] for report in run.metrics] == [
        report["seen"] for report in whole.metrics
    ]
    assert whole.metrics[2]["step"] == 30 and whole.metrics[2]["seen"] == 26.0, (
        "(22 + 24 + 26 + 28 + 30) / 5"
    )


@pytest.mark.parametrize("told", ["nothing", "a step that was given up"])
def test_what_is_known_of_the_best_goes_back_with_the_run(told: str, tmp_path: Path) -> None:
    """Killed between a checkpoint and the note of which is the best: the checkpoint that it goes on
    from knows, too."""
    rlbook.train(
        Scripted,
        Pays(),
        steps=40,
        num_envs=2,
        eval_every=10,
        eval_episodes=2,
        out=tmp_path / "run",
    )
    before = read_best(tmp_path / "run")
    assert before is not None and before[1] == 3.0
    if told == "nothing":
        (tmp_path / "run" / "checkpoints" / "best.json").unlink()
    else:
        mark_best(tmp_path / "run", 60, 9.0)
    rlbook.load(tmp_path / "run", algorithm=Scripted, env=Pays()).resume(steps=80)
    assert read_best(tmp_path / "run") == read_best_file(tmp_path / "run") == before
    assert (
        rlbook.load(tmp_path / "run", checkpoint="best", algorithm=Scripted, env=Pays()).steps
        == before[0]
    )


def test_an_evaluation_outside_the_agents_bounds_is_not_the_best(tmp_path: Path) -> None:
    class Bounded(Scripted):
        @property
        def may_be_best(self) -> bool:  # type: ignore[override]
            return not 20 <= self.seen < 40  # where it earns 3

    rlbook.train(
        Bounded,
        Pays(),
        steps=50,
        num_envs=2,
        eval_every=10,
        eval_episodes=2,
        out=tmp_path / "run",
    )
    found = read_best(tmp_path / "run")
    assert found is not None and found[1] == 2.0


def test_a_parameter_of_two_groups_has_the_rate_of_the_first() -> None:
    for make in (adam, lambda groups, rate: Adam(groups, rate, eps=1e-8, betas=(0.9, 0.999))):
        layer = nn.Linear(1, 1, bias=False)
        nn.init.zeros_(layer.weight)
        make([Group([layer], rate=1.0), Group([layer], rate=100.0)], 0.5).step(layer.weight.sum())
        assert layer.weight.item() == near(-0.5, dtype="float32", terms=4)


def test_rmsprop_of_a2c_has_the_epsilon_that_is_named() -> None:
    """One step down a gradient g from a square of 0: η g / (√(0.01 g²) + ε)."""
    for eps in (1e-5, 10.0):
        agent: Any = rlbook.train(
            "a2c",
            "CartPole-v1",
            steps=8,
            eval_every=0,
            optimizer="rmsprop",
            adam_eps=eps,
            num_envs=1,
        ).agent
        parameter = next(agent.policy.parameters())
        optimizer = agent.make_optimizer([Group([agent.policy])], 1.0)
        before = parameter.detach().clone()
        optimizer.step(sum(p.sum() for p in agent.policy.parameters()))
        moved = before - parameter.detach()
        assert_near(
            moved, torch.full_like(moved, 1.0 / (0.1 + eps)), dtype="float32", terms=8, size=10.0
        )


@pytest.mark.parametrize(("kl", "epochs"), [(0.02, 4), (0.0201, 1), (0.025, 1)])
def test_ppo_stops_as_soon_as_the_kl_is_above_its_target(kl: float, epochs: int) -> None:
    """Two minibatches an epoch, of which each says that the policy has moved so far."""
    made = agent_class("ppo")
    done: list[int] = []

    class Told(made):  # type: ignore[misc, valid-type]
        @staticmethod
        def loss(policy: Any, batch: Any, **options: Any) -> LossOutput:
            done.append(len(batch))
            total, _ = ppo_loss(policy, batch, **options)
            return LossOutput(total, {"approx_kl": torch.tensor(kl, dtype=torch.float64)})

    options: dict[str, Any] = {
        "steps": 16,
        "num_envs": 2,
        "rollout_steps": 8,
        "batch_size": 8,
        "epochs": 4,
        "target_kl": 0.02,
    }
    rlbook.train(Told, "CartPole-v1", eval_every=0, **options)
    assert done == [8] * (2 * epochs)


@pytest.mark.parametrize(("train_every", "num_envs", "updates"), [(4, 3, 7), (5, 3, 6), (2, 3, 10)])
def test_dqn_updates_whenever_the_steps_cross_a_multiple_of_train_every(
    train_every: int, num_envs: int, updates: int
) -> None:
    """30 steps, three at a time: multiples of 4 are crossed at 6, 9, 12, 18, 21, 24, 30; of 5 at 6,
    12, 15, 21, 27, 30; of 2 at each."""
    steps = range(0, 30, num_envs)
    assert sum(crosses(train_every, before, before + num_envs) for before in steps) == updates


@pytest.mark.parametrize("coefficient", [0.0, 0.5, 4.0])
def test_cql_adds_as_much_of_the_gap_as_is_asked_for(coefficient: float) -> None:
    agents = [
        rlbook.train(
            "cql", "Maze-v0", steps=20, eval_every=0, conservative_coef=each, walks=5
        ).agent
        for each in (0.0, coefficient)
    ]
    values = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))
    batch = Transitions(*(torch.zeros(6, *shape) for shape in ((25,), (), (), (25,), ())))._replace(
        action=torch.arange(6) % 4, terminated=torch.zeros(6, dtype=torch.bool)
    )
    losses: list[Any] = [
        agent.loss(lambda obs: values, agent.target, batch, config=agent.config)  # type: ignore[attr-defined]
        for agent in agents
    ]
    base, more = (output.loss.item() for output in losses)
    gap = conservative_gap(values, batch.action).item()
    assert more - base == near(
        coefficient * gap, dtype="float32", terms=32, size=4 * abs(gap) + abs(base)
    )


def test_an_evaluation_says_nothing_of_an_agent_that_seeks_no_return() -> None:
    run = rlbook.train(Scripted, Pays(), steps=4, num_envs=2, eval_every=0)
    assert evaluation_metrics(run.agent, run.request, None, 4) == {"eval_return": 0.0}
    run.agent.seeks_return = False
    assert evaluation_metrics(run.agent, run.request, None, 4) == {}
