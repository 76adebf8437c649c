"""What make installs: torch's build for a CPU where nothing speaks for another one."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAM = """#!/bin/sh
case "$*" in
  *"pip config list"*) printf '%s\\n' "$CONFIGURED" ;;
  *) echo "$*" >> commands ;;
esac
"""


def install_commands(
    folder: Path, *, system: str, driver: bool = False, configured: str = ""
) -> str:
    """What the rule for torch calls `.venv/bin/python` with, on a machine of this kind."""
    programs = {".venv/bin/python": PROGRAM, "bin/uname": f"#!/bin/sh\necho {system}\n"}
    if driver:
        programs["bin/nvidia-smi"] = "#!/bin/sh\n"
    for name, text in programs.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    for name in ("Makefile", "constraints.txt"):
        shutil.copy(ROOT / name, folder / name)
    # of this machine only what the rule calls
    for name in ("sh", "grep", "touch", "python3"):
        (folder / "bin" / name).symlink_to(shutil.which(name) or name)
    environment = {**os.environ, "PATH": str(folder / "bin"), "CONFIGURED": configured}
    make = shutil.which("make")
    assert make is not None
    command = [make, "SHELL=/bin/sh", ".venv/.torch"]
    subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True)
    assert (folder / ".venv" / ".torch").exists()
    commands = folder / "commands"
    return commands.read_text() if commands.exists() else ""


def test_on_linux_without_a_driver_torch_comes_in_its_build_for_a_cpu(tmp_path: Path) -> None:
    commands = install_commands(tmp_path, system="Linux")
    assert commands.splitlines() == [
        "-m pip install -qq --disable-pip-version-check -c constraints.txt"
        " --extra-index-url https://download.pytorch.org/whl/cpu torch"
    ]


@pytest.mark.parametrize(
    "machine",
    [
        {"system": "Darwin"},
        {"system": "Linux", "driver": True},
        {"system": "Linux", "configured": "global.index-url='https://mirror.example/simple'"},
        {"system": "Linux", "configured": "env.extra-index-url='https://mirror.example/simple'"},
    ],
)
def test_elsewhere_pip_chooses_the_build(machine: dict, tmp_path: Path) -> None:
    assert install_commands(tmp_path, **machine) == ""
