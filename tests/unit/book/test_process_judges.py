"""Judges of steps and of outcomes: which solution they take, and what is counted of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rlbook.book.experiments.language_models import countdown_judges, process_judges
from rlbook.book.experiments.language_models.process_judges import (
    BEFORE,
    SAMPLES,
    SINGLE,
    VERIFIER,
    JudgedSolutions,
    Solutions,
    measurements,
)


def solutions(right: list[list[float]], steps: list[list[float]]) -> Solutions:
    return Solutions(np.array(right), np.array(steps))


def test_gains_are_counted_seed_by_seed() -> None:
    """Two seeds, two prompts: the judge gains 1/2 and 0, so the mean is 1/4 and half of the interval
    tan(0.475 π) · 1/4 (one degree of freedom); of steps it has one and two more."""
    base = solutions([[0, 0], [1, 0]], [[4, 4], [4, 4]])
    taken = solutions([[1, 0], [0, 1]], [[5, 5], [6, 6]])
    found = measurements(
        JudgedSolutions({SINGLE: base, "outcome": taken}, {BEFORE: base, VERIFIER: taken}, {})
    )
    for told in ("best of 16, outcome", f"paid by, {VERIFIER}"):
        assert (found[told], found[f"{told}: steps"]) == (0.5, 5.5)
        assert (found[f"{told}: gain"], found[f"{told}: steps more"]) == (0.25, 1.5)
        half = np.tan(0.475 * np.pi) / 4
        # SciPy before 1.17 finds a quantile of t to ten digits
        assert found[f"{told}: gain, ±"] == pytest.approx(half, rel=1e-10)
        # and so here
        assert found[f"{told}: steps more, ±"] == pytest.approx(2 * half, rel=1e-10)


def test_the_row_of_each_prompts_best_solution() -> None:
    score = np.zeros(3 * SAMPLES)
    score[[5, SAMPLES + 2, SAMPLES + 9]] = 1.0, 3.0, 3.0
    rows = process_judges.best_rows(score)
    assert rows.tolist() == [5, SAMPLES + 2, 2 * SAMPLES]  # of equal ones the first


def test_a_short_experiment_has_every_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_judges, "FIT", process_judges.FIT | {"passes": 1})
    problem = process_judges.SUMS._replace(minibatches=2)
    short: dict[str, Any] = {
        "problem": problem,
        "learned_from": 8,
        "prompts": 4,
        "train": {"steps": 64, "num_envs": 8},
    }
    found = process_judges.run(seeds=1, first=3, paid=("process, sum",), **short)
    assert found.chosen.keys() == {*process_judges.JUDGES, VERIFIER, SINGLE}
    assert found.trained.keys() == {BEFORE, "process, sum"}
    assert all(each.right.shape == each.steps.shape == (1, 4) for each in found.chosen.values())
    assert (found.chosen[VERIFIER].right >= found.chosen[SINGLE].right).all()
    assert found.score["process, sum"].shape == (1, 2)


@pytest.mark.thorough
def test_a_short_experiment_on_countdown_has_a_judge_of_rollouts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(process_judges, "FIT", process_judges.FIT | {"passes": 1})
    problem = countdown_judges.COUNTDOWN._replace(minibatches=2)
    short: dict[str, Any] = {
        "problem": problem,
        "learned_from": 8,
        "prompts": 4,
        "train": {"steps": 64, "num_envs": 8},
    }
    found = countdown_judges.run(seeds=1, first=3, paid=("rollouts, min",), **short)
    assert found.chosen.keys() == {*process_judges.JUDGES, "rollouts, min", VERIFIER, SINGLE}
    assert found.trained.keys() == {BEFORE, "rollouts, min"}
    assert (found.chosen[VERIFIER].right >= found.chosen["rollouts, min"].right).all()
