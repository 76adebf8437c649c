"""Presets for environments of other packages: one run more comes to what the file says."""

from __future__ import annotations

import json

import pytest

from rlbook.cli import main as cli


@pytest.mark.slow
@pytest.mark.parametrize(("package", "algorithm", "env"), [("Box2D", "ppo", "LunarLander-v3")])
def test_verify_proves_a_preset_by_one_more_run(
    package: str, algorithm: str, env: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Seed 0 is none of those that were measured, and none that chose a setting."""
    pytest.importorskip(package)
    words = ["verify", algorithm, env, "--budget", "2h", "--jobs", "1", "--json"]
    assert cli.main(words) == 0, "the run came to less than 95 % of runs do"
    (found,) = json.loads(capsys.readouterr().out)["presets"]
    assert (found["algorithm"], found["env"], found["holds"]) == (algorithm, env, True)
