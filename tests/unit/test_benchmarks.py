"""The command that runs the comparisons."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_an_unknown_comparison_is_refused_in_one_sentence() -> None:
    command = [sys.executable, "-m", "benchmarks", "planning", "taular"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2])
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith("error: no comparison is called 'taular'; there are imports, planning") and done.stderr.count("\n") == 1
