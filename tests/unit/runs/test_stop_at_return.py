"""`stop_at_return`: a run ends at the first evaluation that is good enough, and stays ended when it
is taken up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import rlbook
from rlbook.errors import RequestError
from rlbook.runs.run import Run

OPTIONS: dict[str, Any] = {
    "steps": 4_000,
    "eval_every": 100,
    "eval_episodes": 1,
    "stop_at_return": 3.0,
}


def evaluations(run: Run) -> list[float]:
    return [report["eval_return"] for report in run.metrics if "eval_return" in report]


def test_a_run_ends_at_the_first_evaluation_that_reaches_the_return() -> None:
    run = rlbook.train("q_learning", "Maze-v0", **OPTIONS)
    *before, last = evaluations(run)
    assert before and max(before) < 3.0 <= last
    assert run.metrics[-1]["step"] == run.steps < 4_000
    never = rlbook.train("q_learning", "Maze-v0", **OPTIONS | {"steps": 500, "stop_at_return": 3.5})
    assert never.steps == 500


def test_a_run_that_was_stopped_stays_as_it_is_and_one_that_was_cut_stops_at_the_same_step(
    tmp_path: Path,
) -> None:
    whole = rlbook.train("q_learning", "Maze-v0", out=tmp_path / "whole", **OPTIONS)
    again = rlbook.load(tmp_path / "whole").resume()
    assert again.steps == whole.steps and again.metrics == whole.metrics

    def cut(run: Run) -> None:
        if run.steps >= 300:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        rlbook.train("q_learning", "Maze-v0", out=tmp_path / "cut", on_report=cut, **OPTIONS)
    resumed = rlbook.load(tmp_path / "cut").resume()
    assert resumed.request.stop_at_return == 3.0 and resumed.metrics == whole.metrics


@pytest.mark.parametrize(
    ("algorithm", "options", "message"),
    [
        (
            "q_learning",
            {"stop_at_return": float("nan")},
            "stop_at_return must be a finite number, got nan",
        ),
        ("q_learning", {"stop_at_return": "3"}, "stop_at_return must be a finite number, got '3'"),
        (
            "q_learning",
            {"stop_at_return": 3, "eval_every": 0},
            "stop_at_return needs evaluations during training",
        ),
        (
            "value_iteration",
            {"stop_at_return": 3},
            "value_iteration is not evaluated during training, so stop_at_return has no effect",
        ),
        ("td_prediction", {"stop_at_return": 3}, "td_prediction is not evaluated during training"),
    ],
)
def test_it_is_refused_where_no_evaluation_could_stop_the_run(
    algorithm: str, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(RequestError, match=message):
        rlbook.train(algorithm, "Maze-v0", **options)
