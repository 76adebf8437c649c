"""The command that runs the comparisons."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import a2c_cartpole, dqn_cartpole, grpo_step, maze_steps, ppo_cartpole, sac_pendulum


def test_an_unknown_comparison_is_refused_in_one_sentence() -> None:
    command = [sys.executable, "-m", "benchmarks", "planning", "taular"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2])
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith("error: no comparison is called 'taular'; there are imports, planning") and done.stderr.count("\n") == 1


@pytest.mark.slow
@pytest.mark.parametrize("run", [
    lambda: ppo_cartpole.ours(512, ppo_cartpole.ZOO),
    lambda: a2c_cartpole.ours(80),
    lambda: maze_steps.acting_steps_per_second(num_envs=16, rounds=2),
    lambda: dqn_cartpole.our_agent().update(),
    lambda: sac_pendulum.our_agent().update(),
    lambda: grpo_step.our_steps(),
], ids=["ppo", "a2c", "maze", "dqn", "sac", "grpo"])  # fmt: skip
def test_our_side_of_a_comparison_runs(run):
    assert run()
