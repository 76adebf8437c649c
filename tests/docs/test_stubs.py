"""rlbook/training.pyi: what editors know of `rlbook.train` is what it takes."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
RIGHT = """
rlbook.train("ppo", "Maze-v0", clip=0.1)
rlbook.train("ppo", "Maze-v0", clip=Linear(0.2, 0.1), hidden_sizes=(32,), normalize_over="rollout")
rlbook.train(PPO, "Maze-v0", clip=0.1, steps=1000, seed=3)
rlbook.train("rloo", "Maze-v0", group_size=4)
rlbook.train(input(), "Maze-v0", clip=0.1, alpha=0.5)
rlbook.train(Mine, "Maze-v0", patience=3)
"""
WRONG = """
rlbook.train("ppo", "Maze-v0", clip="x")
rlbook.train("ppo", "Maze-v0", clipp=0.1)
rlbook.train("ppo", "Maze-v0", normalize_over="epoch")
rlbook.train("ppo", "Maze-v0", steps="many")
rlbook.train("q_learning", "Maze-v0", exploration="greedy")
rlbook.train("own:Agent", "Maze-v0", clip="x")
"""
HEAD = """
import rlbook
from rlbook.algorithms.policy.ppo import PPO
from rlbook.functional.schedules import Linear

class Mine(rlbook.Agent): ...
"""


def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("stubs", ROOT / "docs" / "stubs.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_stub_is_what_its_generator_writes() -> None:
    """Renew it with `python docs/stubs.py`."""
    stubs = generator()
    assert stubs.formatted(stubs.stub()) == stubs.PATH.read_text(encoding="utf-8")


@pytest.mark.slow
def test_pyright_accepts_what_trains_and_rejects_what_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("pyright")
    lines = (HEAD + RIGHT + WRONG).splitlines()
    (tmp_path / "typed.py").write_text("\n".join(lines), encoding="utf-8")
    settings = {"include": ["typed.py"], "extraPaths": [str(ROOT)], "pythonVersion": "3.11"}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "pyright", "--outputjson", "-p", str(tmp_path)]
    command += ["--pythonpath", sys.executable]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = json.loads(done.stdout)["generalDiagnostics"]
    errors = {item["range"]["start"]["line"] for item in found if item["severity"] == "error"}
    wrong = {lines.index(line) for line in WRONG.split("\n") if line}
    assert errors == wrong, found
