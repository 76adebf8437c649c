"""What a progress bar says: how much of which budget is done, and counts that stay short."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

import rlbook
from rlbook.interaction.budget import Budget
from rlbook.runs.progress import (
    Notes,
    _Bar,
    _format_count,
    _Lines,
    done_and_total,
    recent_return,
)


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0"),
        (999, "999"),
        (1_000, "1k"),
        (1_234, "1234"),
        (9_500, "9.5k"),
        (12_500, "12.5k"),
        (123_456, "123k"),
        (999_499, "999k"),
        (999_600, "1M"),
        (1_234_567, "1.23M"),
        (2_000_000, "2M"),
        (50_000_000, "50M"),
        (10**9, "1G"),
    ],
)
def test_a_count_has_five_characters_at_most(count: int, text: str) -> None:
    assert _format_count(count) == text and len(text) <= 5


def run(budget: Budget, *, steps: int, episodes: int = 0, passes: float = 0.0) -> Any:
    """A run that has come so far."""
    return SimpleNamespace(
        request=SimpleNamespace(budget=budget),
        agent=SimpleNamespace(progress=budget.progress(steps, episodes, passes)),
        steps=steps,
        passes=passes,
        unit="steps",
        episode_returns=[0.0] * episodes,
        metrics=[],
        notes_shown=0,
    )


def test_the_bar_counts_what_ends_the_run_first() -> None:
    both = Budget(1_000, 10)
    assert done_and_total(run(both, steps=500, episodes=3)) == (500, 1_000, "steps")
    assert done_and_total(run(both, steps=500, episodes=6)) == (6, 10, "episodes")
    assert done_and_total(run(Budget(None, 10), steps=500, episodes=3)) == (3, 10, "episodes")
    read = Budget(1_000, None, 4)
    assert done_and_total(run(read, steps=200, passes=2.5)) == (2, 4, "passes")
    assert done_and_total(run(read, steps=900, passes=2.5)) == (900, 1_000, "steps")
    planner = run(both, steps=7)
    planner.unit = "sweeps"
    assert done_and_total(planner) == (7, None, "sweeps")


def test_the_return_is_that_of_the_last_report_in_which_an_episode_ended() -> None:
    some = run(Budget(10, None), steps=0)
    assert recent_return(some) is None
    some.metrics = [{"return": 1.0}, {"return": 2.0}, {"step": 3}, {"return": None}]
    assert recent_return(some) == 2.0


def test_each_note_is_shown_once() -> None:
    some, notes = run(Budget(10, None), steps=0), Notes()
    some.notes, some.seconds = ["one", "two"], {}
    assert notes.take_new(some) == ["one", "two"]
    some.notes.append("three")
    assert notes.take_new(some) == ["three"] and notes.take_new(some) == []


def test_a_run_that_is_trained_again_shows_only_new_notes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = rlbook.train("q_learning", "Maze-v0", steps=50, eval_every=0)
    run.notes += ("an old note",)
    run.train(steps=50, quiet=False)
    run.train(steps=50, quiet=False)
    assert capsys.readouterr().err.count("an old note") == 1


def test_the_time_left_is_that_of_what_a_resumed_run_does_itself() -> None:
    """At nine tenths of a budget when it is resumed, of which it has done none so far."""
    display, resumed = _Bar(), run(Budget(1_000, None), steps=900)
    resumed.notes, resumed.seconds = (), {}
    resumed.request.algorithm, resumed.request.recipe = "ppo", SimpleNamespace(name="Maze-v0")
    display(resumed)
    assert (display.bar.n, display.bar.initial) == (900, 900)
    display.close()


def test_a_log_file_gets_a_line_for_each_tenth_of_a_run(capsys: pytest.CaptureFixture[str]) -> None:
    lines, some = _Lines(), run(Budget(1_000, None), steps=0)
    some.notes, some.seconds, some.request.algorithm = [], {}, "ppo"
    some.request.recipe = SimpleNamespace(name="Maze-v0")
    for some.steps in range(0, 1_001, 20):
        lines(some)
    said = capsys.readouterr().err.splitlines()
    assert [line.split(",")[0] for line in said[:2]] == [
        "ppo Maze-v0: 100 of 1",
        "ppo Maze-v0: 200 of 1",
    ]
    assert len(said) == 10
