"""`rlbook demo` does what it says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
def test_the_demo_solves_the_maze_and_the_language_model_adds_better_than_before(
    tmp_path: Path,
) -> None:
    environment = {**os.environ, "COLUMNS": "100"}
    command = [sys.executable, "-m", "rlbook", "demo"]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=600,
    )
    text = " ".join(done.stdout.split())
    assert "Return of 100 greedy episodes: 3.00" in text  # the optimum
    (cloned,) = re.findall(r"now (\d+)% of its likeliest answers are right", text)
    assert 40 <= int(cloned) <= 60
    before, after = (
        int(share)
        for share in re.findall(r"it has (\d+)% right when it takes the likeliest token", text)
    )
    assert after >= before + 10
    assert (
        len(
            re.findall(
                r"^ {4}\d\d\+\d\d= .*(right|wrong) .*(right|wrong)", done.stdout, flags=re.MULTILINE
            )
        )
        == 8
    )
    assert not list(tmp_path.iterdir())
