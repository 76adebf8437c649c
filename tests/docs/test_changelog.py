"""The changelog: which version this is, and each change once."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path

import rlbook

ROOT = Path(__file__).parents[2]
CHANGELOG = (ROOT / "CHANGELOG.md").read_text()


def test_the_package_its_metadata_and_the_changelog_name_the_same_version() -> None:
    headings = re.findall(r"^## \[(.+?)\]", CHANGELOG, flags=re.MULTILINE)
    metadata = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert headings[0] == "Unreleased"
    assert headings[1] == metadata["version"] == rlbook.__version__
    command = [sys.executable, "-m", "rlbook", "--version"]
    shown = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True).stdout
    assert shown == f"rlbook {rlbook.__version__}\n"


def test_no_change_of_a_version_stands_twice_in_the_changelog() -> None:
    for version in CHANGELOG.split("\n## ")[1:]:
        items = re.findall(r"^(?:- |\| `)(.{30,60})", version, flags=re.MULTILINE)
        twice = [item for item, count in Counter(items).items() if count > 1]
        assert not twice, f"[{version.partition(']')[0]}: {twice}"
