"""The command that the doctor prints for a run that falls short reaches the optimum, with each of
ten seeds."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

import rlbook
from rlbook.cli import main as cli
from rlbook.diagnosis.summary import CLOSE
from rlbook.diagnosis.symptoms import SHORT
from rlbook.evaluation.optimal_return import greedy_return, optimal_return

SHORT_RUNS: list[tuple[str, str, dict[str, Any]]] = [
    ("q_learning", "FrozenLake-v1", {"episodes": 500}),
    ("sarsa", "CliffWalking-v1", {}),
    ("mc_control", "Blackjack-v1", {"episodes": 500, "eval_episodes": 500}),
    ("q_learning", "Taxi-v4", {"episodes": 500}),
]


def recommended(
    algorithm: str, env: str, settings: dict[str, Any], folder: Path, capsys: Any
) -> list[str]:
    """The words of the command that the doctor prints for a run with these settings."""
    rlbook.train(algorithm, env, out=folder, **settings)
    assert cli.main(["doctor", str(folder)]) == 0
    (command,) = re.findall(rf"^{SHORT}: .*: (rlbook train .*)$", capsys.readouterr().out, re.M)
    return shlex.split(command)[2:]


def is_solved(algorithm: str, env: str, seed: int) -> bool:
    run = rlbook.train(algorithm, env, seed=seed)
    recipe = run.request.recipe.for_evaluation()
    value, best = greedy_return(run.agent, recipe), optimal_return(recipe)
    assert value is not None and best is not None
    return value >= best - CLOSE * max(1.0, abs(best))


@pytest.mark.slow
@pytest.mark.parametrize(("algorithm", "env", "settings"), SHORT_RUNS)
def test_what_the_doctor_recommends_reaches_the_optimum_with_each_of_ten_seeds(
    algorithm: str, env: str, settings: dict[str, Any], tmp_path: Path, capsys: Any
) -> None:
    """Seeds from 20 on: neither those that chose the settings nor those that chose the command."""
    name, where = recommended(algorithm, env, settings, tmp_path / "run", capsys)
    assert [is_solved(name, where, seed) for seed in range(20, 30)] == [True] * 10


@pytest.mark.thorough
def test_what_the_doctor_recommends_for_a_short_run_on_the_lake_reaches_the_optimum(
    tmp_path: Path, capsys: Any
) -> None:
    words = recommended(*SHORT_RUNS[0], tmp_path / "run", capsys)
    assert words == ["q_learning", "FrozenLake-v1"] and is_solved(words[0], words[1], seed=20)
