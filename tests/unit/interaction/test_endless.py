"""Environments without a time limit: training episodes and evaluations are cut, and that is
said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import rlbook
from rlbook.cli import main as cli
from rlbook.interaction import play_episodes as playing
from rlbook.interaction.environments import EnvRecipe, environments


class Endless(gymnasium.Env):
    """Two states, and nothing ever ends; a step costs 1."""

    observation_space, action_space = spaces.Discrete(2), spaces.Discrete(2)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        return 0, {}

    def step(self, action: Any) -> tuple[int, float, bool, bool, dict[str, Any]]:
        return int(action), -1.0, False, False, {}


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(playing, "LONGEST", 50)
    monkeypatch.setattr(playing, "SHORTEST", 20)


@pytest.mark.parametrize(
    ("algorithm", "options"),
    [
        ("q_learning", {}),
        ("q_learning", {"simulate": False}),
        ("reinforce", {"num_envs": 2}),
    ],
)
def test_a_training_episode_that_might_never_end_is_cut_and_that_is_said(
    algorithm: str, options: dict[str, Any]
) -> None:
    run = rlbook.train(algorithm, Endless(), steps=300, eval_every=0, **options)
    assert set(run.episode_lengths) == {50}
    assert "Endless has no time limit; training episodes are cut off after 50 steps" in run.notes


def test_a_table_that_is_simulated_cuts_at_the_same_step() -> None:
    runs = [
        rlbook.train(
            "q_learning", "CliffWalking-v1", steps=600, eval_every=0, seed=3, simulate=simulate
        )
        for simulate in (True, False)
    ]
    assert runs[0].episode_lengths == runs[1].episode_lengths and max(runs[0].episode_lengths) == 50
    np.testing.assert_array_equal(runs[0].agent.q, runs[1].agent.q)


def test_what_is_cut_bootstraps() -> None:
    """A cut is no ending: with γ = ½ every step is worth -1 / (1 - ½) = -2 in the long run, not -1.

    Once each of the four pairs was updated, the largest error is at most 1 - α (1 - γ) = .9 of what
    it was. 40 random steps meet all four with a probability of 1 - 4e-5: 4 000 do it 100 times.
    """
    run = rlbook.train(
        "q_learning", Endless(), steps=4_000, eval_every=0, gamma=0.5, alpha=0.2, epsilon=1.0
    )
    np.testing.assert_allclose(run.agent.q, -2.0, rtol=0, atol=2 * 0.9**100)


def test_a_run_that_was_stopped_goes_on_as_if_it_had_not(tmp_path: Path) -> None:
    options: dict[str, Any] = {"seed": 1, "eval_episodes": 3}
    whole = rlbook.train("sarsa", "CliffWalking-v1", steps=700, out=tmp_path / "whole", **options)
    rlbook.train(
        "sarsa", "CliffWalking-v1", steps=350, out=tmp_path / "half", epsilon=1.0, **options
    )
    again = rlbook.load(tmp_path / "half").resume(steps=700)
    assert max(again.episode_lengths) <= 50 and max(whole.episode_lengths) <= 50


@pytest.mark.parametrize("algorithm", ["q_learning", "reinforce"])
def test_an_evaluation_takes_about_as_many_steps_as_training_did_since_the_one_before(
    algorithm: str,
) -> None:
    """30 steps of training between evaluations: an episode is cut after 30, and a table begins no
    other one after that."""
    agent = rlbook.train(algorithm, Endless(), steps=100, eval_every=0).agent
    recipe = EnvRecipe.from_env(Endless())
    shortened, whole = (
        playing.play(agent, recipe, 4, 0, effort=30),
        playing.play(agent, recipe, 4, 0),
    )
    assert set(whole.lengths) == {50} and whole.num_unfinished == 4
    assert set(shortened.lengths) == {30} and shortened.num_unfinished == len(
        shortened.lengths
    ) == (1 if algorithm == "q_learning" else 4)
    assert set(playing.play(agent, recipe, 4, 0, effort=1).lengths) == {20}, (
        "no episode is cut sooner than that"
    )


def test_the_log_says_how_many_evaluation_episodes_were_cut() -> None:
    run = rlbook.train("q_learning", Endless(), steps=400, eval_episodes=4)
    evaluated = [report for report in run.metrics if "eval_return" in report]
    assert [report["eval_unfinished"] for report in evaluated] == [1.0] * 10
    # 400 / 10 steps since the one before
    assert [report["eval_return"] for report in evaluated] == [-40.0] * 10
    assert not any(
        "eval_unfinished" in report
        for report in rlbook.train("q_learning", "Maze-v0", steps=400).metrics
    )


def test_episodes_of_every_world_that_has_no_time_limit_end_by_themselves_or_are_cut() -> None:
    shipped = {
        name: spec
        for name, spec in environments().items()
        if str(spec.entry_point).startswith(("rlbook.", "gymnasium."))
    }
    # other tests register environments of their own
    names = [name for name, spec in shipped.items() if spec.max_episode_steps is None]
    endless = [name for name in names if EnvRecipe(environments()[name].id).may_never_end]
    assert endless == ["CliffWalking-v1", "CliffWalkingSlippery-v1"]
    assert not EnvRecipe("CliffWalking-v1", {"max_episode_steps": 100}).may_never_end
    assert EnvRecipe("rlbook/Maze-v0", {"max_episode_steps": -1}).may_never_end
    assert not EnvRecipe.from_env(gymnasium.wrappers.TimeLimit(Endless(), 9)).may_never_end


def test_evaluate_says_how_many_episodes_did_not_finish(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rlbook.train("q_learning", "CliffWalking-v1", steps=30, eval_every=0, out=tmp_path / "run")
    assert cli.main(["evaluate", str(tmp_path / "run"), "--episodes", "2"]) == 0
    assert (
        "2 of 2 episodes did not finish: they were truncated after 50 steps"
        in capsys.readouterr().out
    )
