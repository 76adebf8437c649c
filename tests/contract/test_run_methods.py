"""What a run offers once it is trained: more training, a copy, evaluation, pictures, a line that
says what it has come to; and who may look on while it trains."""

from __future__ import annotations

import math
import signal
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from state_content import content

import rlbook
from rlbook import RequestError
from rlbook.agent import Metrics, Step
from rlbook.algorithms import PPO, SAC
from rlbook.cli.main import main
from rlbook.runs.processes.interrupts import Interrupted
from rlbook.runs.run_views import sparkline


def short(out: Path | None = None, **settings: Any) -> rlbook.Run:
    asked: dict[str, Any] = {"steps": 400, "num_envs": 4, "rollout_steps": 25, "eval_episodes": 2}
    return rlbook.train("ppo", "CartPole-v1", out=out, **asked | settings)


@pytest.mark.parametrize("kept", [False, True])
def test_more_of_the_same_run_is_what_one_longer_run_is(kept: bool, tmp_path: Path) -> None:
    """Where nothing follows the budget."""
    fixed: dict[str, Any] = {"anneal_learning_rate": False, "eval_every": 0}
    run = short(tmp_path / "run" if kept else None, **fixed)
    assert run.train(steps=200) is run and run.steps == 600
    whole = short(steps=600, **fixed)
    assert content(run.agent.state_dict()) == content(whole.agent.state_dict())
    assert run.episode_returns == whole.episode_returns
    if kept:
        loaded = rlbook.load(tmp_path / "run").train(steps=100)
        assert loaded.steps == 700 and loaded.request.earlier_budgets == (
            {"steps": 400},
            {"steps": 600},
        )
        text = (tmp_path / "run" / "config.yaml").read_text()
        assert "steps: 700" in text and "- steps: 400\n- steps: 600\n" in text


def test_what_follows_the_budget_is_said() -> None:
    run = short()
    assert not any("stretched" in note for note in run.notes)
    run.train(steps=400)
    assert (
        "the budget grew from 400 steps to 800 steps; what follows it is stretched over the new"
        " one: anneal_learning_rate" in run.notes
    )
    assert run.agent.progress == 1.0


def test_a_run_is_kept_by_its_interruption_and_goes_on_as_if_there_had_been_none() -> None:
    """The third report comes in the middle of a rollout."""

    def interrupt(run: rlbook.Run) -> None:
        if len(run.metrics) == 3:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(Interrupted) as caught:
        short(on_report=interrupt)
    run, (note,) = caught.value.run, caught.value.__notes__
    assert (
        run is not None and 0 < run.steps < 400 and f"stopped at {run.steps} steps of 400" in note
    )
    run.train()
    whole = short()
    assert content(run.agent.state_dict()) == content(whole.agent.state_dict())
    assert run.metrics == whole.metrics


def test_a_run_saved_in_a_callback_is_not_told_again_of_episodes_that_had_ended(
    tmp_path: Path,
) -> None:
    """The fifth episode ends between two lines of the log, so that the checkpoint holds it."""
    told: list[int] = []
    again: list[int] = []

    def tell(run: rlbook.Run) -> None:
        told.append(len(run.episode_returns))
        if len(told) == 5:
            run.save(tmp_path / "copy")

    rlbook.train("q_learning", "Maze-v0", steps=4_000, eval_every=0, on_episode=tell)
    rlbook.load(tmp_path / "copy").resume(
        on_episode=lambda run: again.append(len(run.episode_returns))
    )
    assert again == told[5:] and len(told) > 10


def test_a_smaller_budget_after_an_interruption_is_not_said_to_grow(tmp_path: Path) -> None:
    with pytest.raises(Interrupted) as caught:
        short(out=tmp_path / "run", on_report=lambda run: signal.raise_signal(signal.SIGINT))
    assert "rlbook.load('" in caught.value.__notes__[0]
    run = rlbook.load(tmp_path / "run").train(steps=40)
    assert any(f"shrank from 400 steps to {run.steps} steps" in note for note in run.notes)


def test_a_run_at_its_best_checkpoint_tells_of_that_one(tmp_path: Path) -> None:
    whole = rlbook.train("dqn", "CartPole-v1", steps=3000, out=tmp_path / "run")
    best, last = whole.reports.best, whole.evaluations()[-1]
    assert best is not None and best[0] < whole.steps and best[1] > last
    told = rlbook.load(tmp_path / "run", checkpoint="best").summary()
    ended = sum(end <= best[0] for end in np.cumsum(whole.episode_lengths))
    assert f": {best[0]:,.0f} steps, {ended} episodes; evaluation {best[1]:.4g} (best" in told
    assert f"evaluation {last:.4g} (best {best[1]:.4g})" in whole.summary()


class Divided(PPO):
    """Logs 0 / 0 and 1."""

    def learn(self, step: Step) -> Metrics:
        found = super().learn(step)
        return found | {"share": math.nan, "fine": 1.0} if found else found


def test_a_metric_of_ones_own_that_is_not_a_number_is_noted_once() -> None:
    run = rlbook.train(Divided, "CartPole-v1", steps=400, num_envs=4, rollout_steps=25)
    assert [note for note in run.notes if "learn returned" in note] == [
        "learn returned nan as 'share' at step 100; the log has null in the reports of such steps,"
        " and curves leave them out"
    ]
    assert all("'fine'" not in note for note in run.notes)


SCHEDULED = [
    ("q_learning", "Maze-v0", {"alpha": "linear(0.5, 0.1{})", "epsilon": "linear(1, 0.05{})"}),
    (
        "dqn",
        "CartPole-v1",
        {
            "anneal_learning_rate": False,
            "epsilon": "exponential(1, 0.1{})",
            "prioritized": True,
            "importance_exponent": "linear(0.4, 1{})",
        },
    ),
    ("sac", "Pendulum-v1", {"learning_starts": 20, "learning_rate": "cosine(1e-3, 1e-4{})"}),
    ("ppo", "CartPole-v1", {"anneal_learning_rate": False, "clip": "linear(0.3, 0.1{})"}),
    ("grpo", "Addition-v0", {"anneal_learning_rate": False, "kl_coef": "linear(0.2, 0.1{})"}),
]


@pytest.mark.thorough(quick=1)
@pytest.mark.parametrize("kept", [pytest.param(False, marks=pytest.mark.slow), True])
@pytest.mark.parametrize(
    ("algorithm", "env", "settings"), SCHEDULED, ids=lambda item: str(item)[:9]
)
def test_held_schedules_are_those_of_a_run_whose_schedules_end_halfway(
    algorithm: str, env: str, settings: dict[str, Any], kept: bool, tmp_path: Path
) -> None:
    def settings_with(fraction: str) -> dict[str, Any]:
        return {
            name: value.format(fraction) if isinstance(value, str) else value
            for name, value in settings.items()
        }

    steps = 512 if algorithm == "grpo" else 128
    extended = rlbook.train(
        algorithm,
        env,
        steps=steps,
        eval_every=0,
        out=tmp_path / "run" if kept else None,
        **settings_with(""),
    )
    assert extended.train(steps=steps, schedules="hold") is extended
    whole = rlbook.train(algorithm, env, steps=2 * steps, eval_every=0, **settings_with(", 0.5"))
    assert extended.request.hyperparameters == whole.request.hyperparameters
    assert content(extended.agent.state_dict()) == content(whole.agent.state_dict())
    assert any("what follows it keeps its last value: " in note for note in extended.notes)
    if kept:
        held = rlbook.load(tmp_path / "run")
        assert held.request.hyperparameters == whole.request.hyperparameters


def test_a_learning_rate_is_not_held_at_zero(tmp_path: Path, capsys: Any) -> None:
    run = short(tmp_path / "run")
    before = (tmp_path / "run" / "config.yaml").read_bytes()
    with pytest.raises(RequestError, match="the learning rate to 0 by 400 steps; held there, noth"):
        run.train(steps=400, schedules="hold")
    with pytest.raises(RequestError, match="learning_rate has lowered the learning rate to 0 by"):
        short(anneal_learning_rate=False, learning_rate="linear(0.001, 0)").train(
            steps=400, schedules="hold"
        )
    with pytest.raises(RequestError, match=r"one of 'stretch', 'hold', got 'holt'; did you mean"):
        run.train(steps=400, schedules="holt")
    with pytest.raises(
        RequestError, match="both budgets have the same unit, got steps and episodes"
    ):
        short(anneal_learning_rate=False, clip="linear(0.2, 0.1)").train(
            episodes=100, schedules="hold"
        )
    again = ["train", "--resume", str(tmp_path / "run"), "--schedules", "hold"]
    assert main(again) == 2 and "a larger budget; give that too" in capsys.readouterr().err
    assert main([*again, "--steps", "800"]) == 2 and "learned" in capsys.readouterr().err
    assert main(["train", "ppo", "Maze-v0", "--schedules", "hold"]) == 2
    assert "--schedules belongs to --resume" in capsys.readouterr().err
    assert (tmp_path / "run" / "config.yaml").read_bytes() == before


def test_a_run_that_has_used_its_budget_wants_to_know_how_much_more() -> None:
    with pytest.raises(RequestError, match=r"has used its budget, 400 steps and .* run\.train\(st"):
        short().train()


@pytest.mark.parametrize("kept", [False, True])
def test_a_run_that_was_stopped_reports_each_hundredth_of_a_larger_budget(
    kept: bool, tmp_path: Path
) -> None:
    def stop(run: rlbook.Run) -> str | None:
        return "stop" if run.steps >= 300 else None

    out = tmp_path / "run" if kept else None
    run = rlbook.train("q_learning", "Maze-v0", steps=1000, eval_every=0, on_report=stop, out=out)
    with pytest.raises(RequestError, match=r"ended before its budget was used, after 300 steps"):
        run.train()
    run.train(steps=1700)
    steps = [report["step"] for report in run.metrics][-86:]
    assert (steps[0], steps[-1]) == (300, 2000), "one that ends the first part, 85 of the second"
    assert max(later - step for step, later in pairwise(steps)) <= 21


@pytest.mark.parametrize(
    ("algorithm", "env", "budget"),
    [
        ("q_learning", "Maze-v0", {"episodes": 5}),
        ("value_iteration", "FrozenLake-v1", {"steps": 3}),
        ("behavior_cloning", "Maze-v0", {"passes": 1}),
    ],
)
def test_every_kind_of_run_goes_on(algorithm: str, env: str, budget: dict[str, Any]) -> None:
    run = rlbook.train(algorithm, env, **budget, eval_every=0)
    before = run.steps
    run.train(**budget)
    assert run.steps > before and run.request.earlier_budgets == (budget,)


@pytest.mark.parametrize("kept", [False, True])
def test_a_saved_run_is_the_same_run(kept: bool, tmp_path: Path) -> None:
    run = short(tmp_path / "first" if kept else None)
    assert run.save(tmp_path / "copy") == tmp_path / "copy"
    copy = rlbook.load(tmp_path / "copy")
    assert content(copy.agent.state_dict()) == content(run.agent.state_dict())
    assert copy.metrics == run.metrics and copy.episode_returns == run.episode_returns
    ways = (run, copy) if kept else (short(), copy)
    ends = [content(one.train(steps=100).agent.state_dict()) for one in ways]
    assert ends[0] == ends[1]
    with pytest.raises(RequestError, match="already holds a run"):
        run.save(tmp_path / "copy")


@pytest.mark.thorough
def test_evaluate_plot_and_watch_are_those_of_the_library(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = rlbook.train("q_learning", "Maze-v0", episodes=30)
    assert run.evaluate(episodes=3).returns.tolist() == [*rlbook.evaluate(run, episodes=3).returns]
    assert len(run.plot(tmp_path / "curve.png").axes) > 0 and (tmp_path / "curve.png").exists()
    assert len(run.watch(episodes=2)) == 2 and "episode 2" in capsys.readouterr().out
    run.watch(gif=tmp_path / "film.gif")
    assert (tmp_path / "film.gif").read_bytes()[:3] == b"GIF"
    with pytest.raises(RequestError, match="render_mode must be 'human', got 'rgb'"):
        run.watch(render_mode="rgb")


def test_a_run_makes_the_environment_whose_observations_it_takes() -> None:
    """With the frames that its agent saw, and the arguments of its environment."""
    run = rlbook.train(
        "dqn", "Catch-v0", steps=20, frame_stack=3, eval_every=0, env_kwargs={"pixels": True}
    )
    env = run.make_env()
    obs, _ = env.reset(seed=0)
    assert obs.shape[0] == 3 and run.predict(obs) in env.action_space
    with pytest.raises(ValueError, match="observation"):
        run.predict(obs[0])


def test_a_window_needs_a_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("sys.platform", "linux")
    with pytest.raises(RequestError, match="needs a screen, but there is none"):
        short().watch(render_mode="human")


def test_a_run_and_an_evaluation_say_what_they_are(tmp_path: Path) -> None:
    run = rlbook.train("value_iteration", "Maze-v0", out=tmp_path / "run")
    assert repr(run).startswith("<Run value_iteration on Maze-v0: ")
    assert f"evaluation 3 (best 3, optimum 3); {tmp_path / 'run'}>" in repr(run)
    assert repr(run.evaluate(episodes=100)) == "<Evaluation 3.00 ± 0.00, 100 episodes>"
    assert run._repr_html_().count("<img") == 2  # the curve and the map
    assert "▁" in repr(short()) and "best" in repr(short())


def test_a_sparkline_has_a_bar_for_each_share_of_the_numbers() -> None:
    assert sparkline([]) == sparkline([1.0]) == ""
    assert sparkline([0.0, 1.0]) == "▁█" and sparkline([2.0, 2.0]) == "▁▁"
    assert sparkline([float(n) for n in range(400)])[::19] == "▁█"


class Watcher:
    """Counts what it is told of."""

    def __init__(self, **last: int) -> None:
        self.last, self.seen = last, {"on_report": 0, "on_episode": 0, "on_evaluation": 0}

    def note(self, moment: str) -> str | None:
        self.seen[moment] += 1
        return "stop" if self.seen[moment] == self.last.get(moment) else None

    def on_report(self, run: rlbook.Run) -> str | None:
        return self.note("on_report")

    def on_episode(self, run: rlbook.Run) -> str | None:
        assert len(run.episode_returns) == self.seen["on_episode"] + 1
        return self.note("on_episode")

    def on_evaluation(self, run: rlbook.Run) -> str | None:
        assert run.metrics[-1]["eval_return"] is not None
        return self.note("on_evaluation")


@pytest.mark.parametrize("algorithm", ["q_learning", "ppo"])
def test_callbacks_are_told_of_every_report_episode_and_evaluation(algorithm: str) -> None:
    watcher = Watcher()
    run = rlbook.train(algorithm, "Maze-v0", steps=1500, callbacks=[watcher], eval_episodes=1)
    assert watcher.seen == {
        "on_report": len(run.metrics),
        "on_episode": len(run.episode_returns),
        "on_evaluation": len(run.evaluations()),
    }
    assert min(watcher.seen.values()) > 1
    silent = rlbook.train(algorithm, "Maze-v0", steps=1500, eval_episodes=1)
    assert silent.episode_returns == run.episode_returns


@pytest.mark.parametrize("moment", ["on_report", "on_episode", "on_evaluation"])
@pytest.mark.parametrize("algorithm", ["q_learning", "ppo"])
def test_a_callback_ends_the_run(algorithm: str, moment: str, tmp_path: Path) -> None:
    watcher, out = Watcher(**{moment: 2}), tmp_path / "run"
    run = rlbook.train(
        algorithm, "Maze-v0", steps=3000, eval_episodes=1, callbacks=[watcher], out=out
    )
    assert run.steps < 3000 and watcher.seen[moment] >= 2
    if (algorithm, moment) == ("q_learning", "on_episode"):
        assert len(run.episode_returns) == 2
    assert run.metrics[-1]["eval_return"] is not None, "the last report has an evaluation"
    ended = rlbook.load(out).resume()
    assert ended.steps == run.steps, "a run that was ended stays as it is"
    assert rlbook.load(out).train(steps=100).steps >= run.steps + 100


@pytest.mark.thorough(quick=1)
@pytest.mark.parametrize("moment", ["on_report", "on_episode", "on_evaluation"])
@pytest.mark.parametrize("algorithm", ["q_learning", "ppo"])
@pytest.mark.parametrize("kept", [False, True])
def test_a_callback_saves_the_run_as_it_is(
    kept: bool, algorithm: str, moment: str, tmp_path: Path
) -> None:
    """The copy goes on as the run does, and the run is the same with and without it."""
    half, steps = tmp_path / "half", []

    def save_once(run: rlbook.Run) -> None:
        if run.steps >= 700 and not steps:
            assert run.save(half) == half
            steps.append(run.steps)

    # of several environments the episodes end together, and callbacks come to one after the other
    asked: dict[str, Any] = {"steps": 1500, "eval_episodes": 1}
    asked["env_kwargs"] = {"max_episode_steps": 7}
    out = tmp_path / "run" if kept else None
    run = rlbook.train(algorithm, "Maze-v0", out=out, **{moment: save_once}, **asked)
    copy = rlbook.load(half)
    assert [copy.steps] == steps and copy.steps < run.steps and run.folder == out
    copy.resume(**{moment: save_once})
    plain = rlbook.train(algorithm, "Maze-v0", **{moment: lambda run: None}, **asked)
    for one in (run, copy):
        assert content(one.agent.state_dict()) == content(plain.agent.state_dict())
        assert one.metrics == plain.metrics and one.episode_returns == plain.episode_returns
    assert run.reports.best == plain.reports.best


def test_functions_are_callbacks_too() -> None:
    seen: list[str] = []
    rlbook.train(
        "q_learning",
        "Maze-v0",
        episodes=3,
        on_report=lambda run: seen.append("report"),
        on_episode=lambda run: seen.append("episode"),
        on_evaluation=lambda run: seen.append("evaluation"),
    )
    assert seen.count("episode") == 3 and {"report", "evaluation"} <= {*seen}
    with pytest.raises(RequestError, match="has a method on_report, on_episode or on_evaluation"):
        rlbook.train("q_learning", "Maze-v0", episodes=3, callbacks=[print])


def test_a_config_stands_for_all_hyper_parameters() -> None:
    run = rlbook.train(PPO, "Maze-v0", steps=64, config=PPO.Config(clip=0.1), eval_every=0)
    assert run.agent.config == PPO.Config(clip=0.1), "the preset of the maze counts no more"
    both = rlbook.train("ppo", "Maze-v0", steps=64, config=PPO.Config(clip=0.1), clip=0.3)
    assert both.agent.config.clip == 0.3
    with pytest.raises(RequestError, match=r"config must be a PPO\.Config, got SACConfig"):
        rlbook.train("ppo", "Maze-v0", config=SAC.Config())


def test_all_classes_come_from_one_place() -> None:
    for name, kind in rlbook.algorithms().items():
        assert getattr(rlbook.algorithms, kind.__name__) is kind, name
        assert kind.__name__ in dir(rlbook.algorithms)
    with pytest.raises(AttributeError, match="no attribute 'PPOO'; did you mean 'PPO'"):
        rlbook.algorithms.PPOO  # noqa: B018


def test_an_agent_that_is_not_kept_needs_no_state(tmp_path: Path) -> None:
    class Left(rlbook.Agent):
        observations, actions = "index", "discrete"

        def act(self, observation: int, *, explore: bool = True) -> int:
            return 0

        def learn(self, step: rlbook.Step) -> dict[str, float]:
            return {}

    assert rlbook.train(Left, "Maze-v0", episodes=2).steps == 200
    with pytest.raises(RequestError, match=r"Left cannot be saved in a folder: it has no state_d"):
        rlbook.train(Left, "Maze-v0", episodes=2, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_bar_and_a_closing_line_are_shown_where_asked(
    capsys: pytest.CaptureFixture[str],
) -> None:
    short()
    assert capsys.readouterr().err == ""
    short(quiet=False)
    told = capsys.readouterr().err
    assert told.splitlines()[-1].startswith("ppo on CartPole-v1: 400 steps, ")
    short(quiet=True)
    assert capsys.readouterr().err == ""


@pytest.mark.thorough
def test_runs_are_compared_as_their_folders_are(tmp_path: Path) -> None:
    runs = [short(tmp_path / str(seed), seed=seed) for seed in range(3)]
    other = rlbook.train("q_learning", "Maze-v0", episodes=30)
    ours, theirs = rlbook.compare([*runs, other])
    (kept,) = rlbook.compare([run.folder or "" for run in runs])
    assert (ours.folders, ours.interquartile_mean) == (kept.folders, kept.interquartile_mean)
    assert ours.scores.tolist() == [run.evaluations()[-1] for run in runs]
    assert theirs.algorithm == "q_learning"


@pytest.mark.thorough
def test_the_command_extends_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "run")
    begin = ["train", "ppo", "CartPole-v1", "--steps", "400", "--eval-every", "0", "--json"]
    assert main([*begin, "--out", out]) == 0
    again = ["train", "--resume", out, "--eval-every", "0", "--json"]
    assert main([*again, "--steps", "400"]) == 0, "the same budget again changes nothing"
    assert rlbook.load(out).request.earlier_budgets == ()
    capsys.readouterr()
    assert main([*again, "--steps", "800"]) == 0
    told = capsys.readouterr()
    assert '"steps": 800' in told.out and "the budget grew from 400 steps to 800" in told.err
    assert main([*again, "--steps", "300"]) == 2
    assert "the run has already taken 800 steps" in capsys.readouterr().err
    assert main([*again, "--steps", "900", "--clip", "0.4"]) == 2
    assert "was started with clip 0.2; --resume cannot make it 0.4" in capsys.readouterr().err
    assert rlbook.load(out).request.options.steps == 800
