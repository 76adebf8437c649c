"""The command that runs the comparisons."""

from __future__ import annotations

import ast
import dataclasses
import math
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from closeness import assert_near, rounding_bound, widths

from benchmarks import (
    a2c_cartpole,
    dqn_cartpole,
    dqn_pong,
    fit_steps,
    grpo_step,
    maze_steps,
    ppo_cartpole,
    recurrent_ppo,
    sac_pendulum,
    sampling,
    training,
)
from benchmarks.model_sizes import SIZES
from rlbook.llm.models.language_model import LanguageModelPolicy

ROOT = Path(__file__).parents[2]


def test_make_bench_installs_what_the_comparisons_import() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    makefile = (ROOT / "Makefile").read_text()
    line = re.search(r"^\.venv/\.bench:.*\n.*\n.*\[\$\(EXTRAS\),(.*)\]", makefile, re.M)
    always = re.search(r"^EXTRAS := (.*)", makefile, re.M)
    assert line is not None and always is not None
    wanted = [*extras["dependencies"]]
    for extra in f"{always[1]},{line[1]}".split(","):
        wanted += extras["optional-dependencies"][extra]
    installed = {re.split(r"[\[<>=;]", name)[0].lower().replace("-", "_") for name in wanted}
    known = sys.stdlib_module_names | installed | {"rlbook", "benchmarks"}
    imported = {
        (node.module if isinstance(node, ast.ImportFrom) else alias.name) or ""
        for file in (ROOT / "benchmarks").glob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    assert {name.split(".")[0] for name in imported} - known == set()


def test_an_unknown_comparison_is_refused_in_one_sentence() -> None:
    command = [sys.executable, "-m", "benchmarks", "planning", "taular"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2])
    assert done.returncode == 2 and done.stdout == ""
    assert (
        done.stderr.startswith(
            "error: no comparison is called 'taular'; there are imports, planning"
        )
        and done.stderr.count("\n") == 1
    )


@pytest.mark.slow
def test_our_side_of_pong_plays_and_trains(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ale_py")
    monkeypatch.setattr(dqn_pong, "GRADIENT_STEPS", 2)
    side = dqn_pong.Ours()
    side.play()
    side.train()
    assert side.agent.optimizer.steps == (dqn_pong.STEPS - dqn_pong.STARTS) // dqn_pong.EVERY + 2  # type: ignore[attr-defined]
    frames = side.agent.replay.frames
    assert frames is not None and frames.stack == 4 and frames.count == dqn_pong.STEPS + 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "run",
    [
        lambda: ppo_cartpole.ours(512, ppo_cartpole.ZOO),
        lambda: recurrent_ppo.ours(recurrent_ppo.without_velocities, 1024),
        lambda: a2c_cartpole.ours(80),
        lambda: maze_steps.acting_steps_per_second(num_envs=16, rounds=2),
        lambda: dqn_cartpole.our_agent().update(),
        lambda: sac_pendulum.our_agent().update(),
        lambda: grpo_step.our_steps(),
        lambda: fit_steps.our_fine_tuning(),
        lambda: fit_steps.our_dpo(),
        lambda: fit_steps.our_reward_model(),
    ],
    ids=[
        "ppo",
        "recurrent ppo",
        "a2c",
        "maze",
        "dqn",
        "sac",
        "grpo",
        "fine-tuning",
        "dpo pairs",
        "reward model",
    ],
)
def test_our_side_of_a_comparison_runs(run):
    assert run()


def test_the_batch_of_a_training_comparison_is_the_same_work_for_both_sides() -> None:
    """The same loss of the same completions, and so the same gradient, to rounding."""
    model, batch = SIZES[0].model(), training.example(SIZES[0])
    losses = training.ours(LanguageModelPolicy(model), batch), training.theirs(model, batch)
    assert_near(losses[0], losses[1], terms=widths(model))
    assert [size.name for size in SIZES] == ["0.1 M", "1 M", "10 M", "135 M"]
    small = [
        sum(parameter.numel() for parameter in size.model().parameters()) for size in SIZES[:3]
    ]
    assert [
        0.6 < count / 1e6 / millions < 1.4
        for count, millions in zip(small, (0.1, 1, 10), strict=True)
    ] == [True] * 3


@pytest.mark.slow
def test_both_sides_sample_from_one_distribution() -> None:
    size = dataclasses.replace(SIZES[0], rounds=1, completions=2, new_tokens=4)
    bound = rounding_bound(
        "float32", terms=widths(size.model()), size=math.log(size.sizes["vocabulary_size"])
    )
    assert float(sampling.beside(size).note.split()[-2]) < bound
