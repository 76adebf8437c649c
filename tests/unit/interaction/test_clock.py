"""Where the time goes: a sample of the steps stands for all, and nothing of it is in what a run
must reproduce."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import rlbook
from rlbook.interaction import loop
from rlbook.interaction.loop import SAMPLED, LoopClock, act_step_reset


def test_a_sample_of_the_steps_stands_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """170 steps of 3 s, before each of which is thought for 1 s, and after each learned for 5 s."""
    now = [0.0]
    monkeypatch.setattr(loop, "time", SimpleNamespace(perf_counter=lambda: now[0]))

    def spend(seconds: float) -> Any:
        now[0] += seconds
        return seconds

    interaction: Any = SimpleNamespace(
        obs=0, action_mask=None, step=lambda action: spend(3.0), reset_finished=lambda: False
    )
    clock = LoopClock()
    steps = act_step_reset(
        interaction, lambda obs: spend(1.0), lambda step: spend(5.0), clock=clock
    )
    for _ in range(10 * SAMPLED):
        next(steps)
    assert (clock.acting, clock.stepping) == (170 * 1.0, 170 * 3.0)
    assert now[0] == 170 * (1 + 3 + 5)


def test_a_run_says_where_its_time_went(tmp_path: Path) -> None:
    run = rlbook.train(
        "ppo", "CartPole-v1", steps=1000, rollout_steps=16, out=tmp_path / "run", eval_episodes=2
    )
    kept = json.loads((tmp_path / "run" / "seconds.json").read_text())
    assert (
        list(kept) == list(run.seconds) == ["environment", "act", "learn", "evaluate", "save"]
        and min(run.seconds.values()) > 0
    )
    assert kept == {name: round(value, 3) for name, value in run.seconds.items()}
    assert "seconds" not in (tmp_path / "run" / "metrics.jsonl").read_text()
    run.resume(steps=1500)
    more = json.loads((tmp_path / "run" / "seconds.json").read_text())
    # a resumed run adds to it; three numbers, each rounded to a millisecond
    assert all(abs(more[name] - kept[name] - run.seconds[name]) <= 1.5e-3 for name in kept)


def test_a_planner_and_a_compiled_loop_do_it_all_at_once() -> None:
    assert list(rlbook.train("value_iteration", "Maze-v0").seconds) == [
        *("learn", "evaluate", "save")
    ]


def test_without_evaluation_none_of_the_time_went_there() -> None:
    run = rlbook.train("q_learning", "Maze-v0", steps=500, eval_every=0)
    assert run.seconds["evaluate"] == 0 < run.seconds["save"]


def test_a_file_that_cannot_be_used_stops_nothing(tmp_path: Path) -> None:
    rlbook.train("value_iteration", "Maze-v0", out=tmp_path / "run")
    (tmp_path / "run" / "seconds.json").write_text("[")
    assert rlbook.load(tmp_path / "run").resume().steps == 10
