"""An evaluation on the way costs a few times the steps of training at most; the log and a note say
where it was shortened."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

import rlbook
from rlbook.runs.greedy_evaluation import affordable_episodes, short_evaluation_note, typical_length
from rlbook.runs.processes.interrupts import Interrupted
from rlbook.runs.progress import Notes, evaluation_cost
from rlbook.runs.request import Request
from rlbook.runs.run import Run


def test_an_evaluation_takes_at_most_four_times_the_steps_of_training_or_a_thousand() -> None:
    assert affordable_episodes(20, 100.0, 500) == 20  # 20 * 100 = 4 * 500
    assert affordable_episodes(20, 100.0, 400) == 16  # 4 * 400 / 100
    assert affordable_episodes(20, 50.0, 1) == 20  # 20 * 50 = 1 000
    assert affordable_episodes(20, 100.0, 1) == 10  # 1 000 / 100
    assert affordable_episodes(20, 500.0, 1) == 5, "5 episodes are played in any case"
    assert affordable_episodes(3, 10_000.0, 1) == 3, "never more than were asked for"


def test_the_usual_length_is_that_of_the_last_episodes_that_ended() -> None:
    assert typical_length([(1, 0.0, 3), (2, 0.0, 5)], [{"length": 9.0}]) == 4.0
    assert typical_length([], [{"length": 9.0}, {"step": 2}]) == 9.0
    assert typical_length([], [{"step": 1}]) is None


def test_only_evaluations_on_the_way_are_shortened_and_training_is_the_same() -> None:
    run = rlbook.train("q_learning", "Maze-v0", steps=1_000, epsilon=1.0)
    on_the_way = [
        report.get("eval_episodes", 20) for report in run.metrics[:-1] if "eval_return" in report
    ]
    # 1 000 steps are at least 10 episodes of 100
    assert min(on_the_way) >= 10 and any(count < 20 for count in on_the_way)
    assert "eval_episodes" not in run.metrics[-1] and "eval_return" in run.metrics[-1]
    assert short_evaluation_note(20) in run.notes
    quiet = rlbook.train("q_learning", "Maze-v0", steps=1_000, epsilon=1.0, eval_every=0)
    assert (
        quiet.episode_returns == run.episode_returns
        and short_evaluation_note(20) not in quiet.notes
    )


def test_a_run_that_was_cut_goes_on_with_evaluations_as_short(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"steps": 1_000, "epsilon": 1.0}

    def stop(run: Run) -> None:
        if len(run.metrics) == 15:  # behind the first of the shortened ones
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(Interrupted):
        rlbook.train("q_learning", "Maze-v0", out=tmp_path / "run", on_report=stop, **settings)
    resumed, whole = (
        rlbook.load(tmp_path / "run").resume(),
        rlbook.train("q_learning", "Maze-v0", **settings),
    )
    told = [
        [(report.get("eval_return"), report.get("eval_episodes")) for report in run.metrics]
        for run in (resumed, whole)
    ]
    assert told[0] == told[1] and resumed.notes == whole.notes


def test_where_a_return_decides_when_training_ends_every_evaluation_is_whole() -> None:
    run = rlbook.train("q_learning", "Maze-v0", steps=1_000, epsilon=1.0, stop_at_return=3.0)
    assert not any("eval_episodes" in report for report in run.metrics)


def test_a_note_is_said_once_and_one_that_turns_out_later_is_said_then() -> None:
    run, notes = rlbook.train("q_learning", "Maze-v0", steps=50), Notes()
    run.notes, run.seconds = ("first",), {}
    assert notes.take_new(run) == ["first"]
    assert notes.take_new(run) == []
    run.notes += ("second",)
    assert notes.take_new(run) == ["second"]
    run.seconds, notes.start = {"evaluate": 9.0}, notes.start - 10.0
    assert [note[:24] for note in notes.take_new(run)] == ["evaluation took 90% of t"]
    assert notes.take_new(run) == []


def test_evaluation_is_worth_a_word_where_it_takes_most_of_some_seconds() -> None:
    run = rlbook.train("q_learning", "Maze-v0", steps=50)
    for evaluating, whole, said in [
        (1.9, 2.0, ""),
        (3.0, 6.0, ""),
        (3.1, 6.0, "evaluation took 52% of the time; --eval-episodes 5"),
    ]:
        run.seconds = {"evaluate": evaluating}
        assert evaluation_cost(run, whole)[:50].strip() == said


def test_a_note_says_that_sums_are_evaluated_where_the_rows_bring_no_prompts(
    tmp_path: Path,
) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"prompt": "1+1=", "completion": "2"}\n' * 4)

    def notes(env: str, **env_kwargs: str) -> list[str]:
        run = Run(Request.build("sft", env, data=str(rows), env_kwargs=env_kwargs))
        return [note for note in run.notes if "evaluation asks" in note]

    assert notes("Chat-v0") == [
        "evaluation asks sums, the default task of "
        "Chat-v0; env.data names a file with other prompts"
    ]
    assert notes("Chat-v0", data=str(rows)) == []
    assert notes("Chat-v0", task="addition") == []
    assert notes("Addition-v0") == []
