"""A test that hangs is ended and named, and the others still run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HANGS = """
def test_hangs():
    while True:
        pass


def test_runs():
    pass
"""
CONFIG = Path(__file__).parents[2] / "pyproject.toml"


def test_a_test_that_hangs_is_ended_and_named(tmp_path: Path) -> None:
    (tmp_path / "test_hanging.py").write_text(HANGS)
    options = "-q -p pytest_timeout -p no:cacheprovider -o timeout=0.2".split()
    command = [sys.executable, "-m", "pytest", *options, "-c", str(CONFIG), "--rootdir", ".", "."]
    alone = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(
        command, cwd=tmp_path, env=alone, capture_output=True, text=True, timeout=60
    )
    assert "FAILED test_hanging.py::test_hangs" in done.stdout, done.stdout + done.stderr
    assert "1 failed, 1 passed" in done.stdout


@pytest.mark.slow
def test_slow_tests_have_more_time(request: pytest.FixtureRequest) -> None:
    assert _limit(request) > 1000


def test_every_other_test_has_minutes(request: pytest.FixtureRequest) -> None:
    assert 60 <= _limit(request) <= 600


def _limit(request: pytest.FixtureRequest) -> float:
    marker = request.node.get_closest_marker("timeout")
    return marker.args[0] if marker else float(request.config.getini("timeout"))
