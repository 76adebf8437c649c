"""What is said while a run trains, and when it is over."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
import termios
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tqdm import tqdm

import rlbook
from rlbook.cli.output import training_summary
from rlbook.diagnosis.summary import _training, summary_sentences
from rlbook.envs.tabular.tabular_env import TabularEnv
from rlbook.runs.progress import bar_format
from rlbook.runs.request import Request
from rlbook.runs.run import Run


@pytest.mark.parametrize("width", [60, 80, 100])
@pytest.mark.parametrize("value", [0.5, -12.34, -10_000.0])
def test_the_return_stands_first_and_whole_and_the_bar_has_room(width: int, value: float) -> None:
    layout = bar_format(f"return {value:.2f} ", " 225k of 500k steps", True, width)
    line = tqdm.format_meter(225, 500, 60.0, ncols=width, bar_format=layout)
    assert line.startswith(f"return {value:.2f} ") and len(line) <= width
    bar = re.search(r"\|(.*)\|", line)
    assert bar is not None and len(bar.group(1)) >= 20
    assert ("225k of 500k steps" in line) == (width >= 80)


def test_without_an_end_there_is_no_bar() -> None:
    assert bar_format("", "", False, 60) == "{n_fmt} done, {elapsed}"


@pytest.mark.slow
@pytest.mark.parametrize("columns", [60, 80])
def test_in_a_terminal_no_line_is_wider_than_it(columns: int, tmp_path: Path) -> None:
    parent, child = pty.openpty()
    termios.tcsetwinsize(child, (40, columns))
    environment = {
        name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")
    } | {"TERM": "xterm"}
    command = [
        sys.executable,
        "-m",
        "rlbook",
        "train",
        "q_learning",
        "FrozenLake-v1",
        "--episodes",
        "300",
        "--simulate",
        "false",
    ]
    with subprocess.Popen(
        command, stdout=child, stderr=child, cwd=tmp_path, env=environment
    ) as running:
        os.close(child)
        shown = b""
        try:
            while block := os.read(parent, 65_536):
                shown += block
        except OSError:  # the terminal is closed
            pass
        assert running.wait(timeout=120) == 0
    text = shown.decode()
    lines = [
        line
        for line in re.split(r"[\r\n]+", re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", text))
        if line.strip()
    ]
    assert [line for line in lines if len(line) > columns] == []
    assert any(line.startswith("return 0.") and "100%" in line for line in lines)


def said(algorithm: str, env: Any, **options: Any) -> list[str]:
    return summary_sentences(rlbook.train(algorithm, env, **options))


@pytest.mark.thorough
def test_greedy_play_is_set_beside_the_optimum() -> None:
    assert (
        said("q_learning", "Maze-v0", steps=20_000, epsilon=0.2, alpha=0.5)[-1]
        == "greedy play solves it: 3.00 of 3.00"
    )
    assert said("q_learning", "Maze-v0", steps=50)[-1].startswith("greedy play does not solve it: ")
    assert said("value_iteration", "Maze-v0", eval_every=1) == [
        "greedy play solves it: 3.00 of 3.00"
    ]
    assert " of -0.04" in " ".join(said("q_learning", "Blackjack-v1", steps=200, eval_episodes=20))
    assert len(said("q_learning", "CartPole-v1", steps=200)) == 1, "nobody knows the optimum"


@pytest.mark.thorough
def test_defaults_that_do_not_solve_it_are_told_with_the_command_that_does() -> None:
    """SARSA goes round the cliff by the safe way, since a random step falls. Settings of one's own
    are left to the doctor."""
    (line,) = [item for item in said("sarsa", "CliffWalking-v1") if item.startswith("greedy")]
    assert line == (
        "greedy play does not solve it: -17.00 of -13.00; sarsa learns the values of its own"
        " policy, random steps included, and q_learning those of the best one: rlbook train"
        " q_learning CliffWalking-v1"
    )
    (line,) = [
        item
        for item in said("sarsa", "CliffWalking-v1", epsilon=0.1, alpha=0.5)
        if item.startswith("greedy")
    ]
    assert "rlbook train" not in line


def test_a_mean_above_the_optimum_is_told_to_be_luck() -> None:
    """The optimum of the slippery lake is 0.74 on average, and an episode is worth 0 or 1."""
    run = Run(Request.build("ppo", "FrozenLake-v1"))
    for mean, lucky in ((0.75, False), (0.8, True)):
        run.metrics.append({"step": 0, "eval_return": mean})
        last = summary_sentences(run)[-1]
        assert last.startswith(f"greedy play solves it: {mean:.2f} of 0.74")
        assert ("these episodes were lucky" in last) == lucky


def test_a_run_that_was_stopped_by_its_return_says_so() -> None:
    ended = said("q_learning", "Maze-v0", steps=20_000, alpha=0.5, stop_at_return=2.5)
    assert ended[0] == "ended by --stop-at-return 2.5: the last evaluation returned 3"
    whole = said("q_learning", "Maze-v0", steps=300, stop_at_return=2.5)
    assert not any("stop-at-return" in line for line in whole)
    reached = {"stop_at_return": -1e6, "eval_every": 100, "eval_episodes": 1}
    last = said("q_learning", "Maze-v0", steps=100, **reached)  # in the evaluation at its end
    assert not any("stop-at-return" in line for line in last)


def test_returns_move_where_they_move_by_more_than_two_hundredths_of_themselves() -> None:
    for last, what in ((101.0, "stayed near 101.00"), (103.0, "rose from 100.00 to 103.00")):
        returns = [100.0] * 10 + [last] * 10
        run: Any = SimpleNamespace(unit="steps", steps=20, episode_returns=returns)
        assert what in _training(run)


def test_few_episodes_are_counted() -> None:
    assert said("q_learning", "Maze-v0", episodes=3, eval_every=0) == [
        "3 episodes finished, too few to learn much from; increase --steps or --episodes"
    ]
    assert said("q_learning", "Maze-v0", steps=3, eval_every=0) == [
        "no episode finished in 3 steps; increase --steps"
    ]


def test_rewards_that_were_all_0_are_named() -> None:
    """FrozenLake pays 1 or nothing, so a return of 0 has no other reading. Where rewards may
    cancel, only the returns are known."""
    assert said("q_learning", "FrozenLake8x8-v1", episodes=2, eval_every=0, seed=0) == [
        "2 episodes finished, and every reward was 0, so nothing distinguished good actions from bad ones"
    ]


@pytest.mark.parametrize(("paid", "what"), [(-1.0, "reward"), (1.0, "reward"), (None, "return")])
def test_rewards_of_one_sign_cannot_cancel(paid: float | None, what: str) -> None:
    """In a state that is never reached both actions pay this; None: one pays 1 and one costs 1."""
    after = np.zeros((3, 2, 3))
    after[[0, 2], :, 1] = 1.0  # 1 ends the episode
    model = rlbook.envs.TabularMDP.from_arrays(
        after,
        [[0.0, 0.0], [0.0, 0.0], [paid or 1.0, paid or -1.0]],
        terminal=[False, True, False],
        initial=[1, 0, 0],
    )
    run = rlbook.train("q_learning", TabularEnv(model), episodes=2, eval_every=0)
    assert summary_sentences(run) == [
        f"2 episodes finished, and every {what} was 0, so nothing distinguished good actions from bad ones"
    ]


def test_episodes_that_were_cut_are_told() -> None:
    (last,) = [
        line
        for line in said("q_learning", "CliffWalking-v1", steps=300)
        if line.startswith("greedy")
    ]
    assert (
        last == "greedy play did not finish: 100% of its episodes were cut off, because the "
        "environment has no time limit"
    )


def test_what_is_printed_of_a_run_is_its_last_hundred_episodes_and_its_last_evaluation(
    tmp_path: Path,
) -> None:
    """That evaluation was shortened to 3 episodes."""
    run = rlbook.train("q_learning", "Maze-v0", episodes=120, eval_every=0)
    run.metrics.append({"step": run.steps, "eval_return": 1.5, "eval_episodes": 3})
    facts, text = training_summary(run, tmp_path, 1.0)
    last = run.episode_returns[-100:]
    assert facts["return"] == sum(last) / 100 != sum(run.episode_returns[:100]) / 100
    assert "mean return of the last 100 training episodes: " in text
    assert "mean return of 3 greedy episodes: 1.5" in text


def test_evaluation_that_takes_most_of_the_time_is_told() -> None:
    run = rlbook.train("q_learning", "Maze-v0", episodes=20, eval_every=0)
    run.seconds = {"learn": 1.0, "evaluate": 9.0}
    assert (
        summary_sentences(run)[-1]
        == "evaluation took 90% of the time; --eval-episodes 5 (eval_episodes=5) makes it shorter,"
        " --eval-every 0 (eval_every=0) disables it"
    )
    run.seconds = {"learn": 9.0, "evaluate": 9.0 - 1e-9}
    assert not any("evaluation" in line for line in summary_sentences(run))
