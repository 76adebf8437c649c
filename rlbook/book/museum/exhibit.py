"""The bug museum's exhibits: one line of the library, its wrong version, and the symptom.

An exhibit is a file `exhibits/PART/NAME.yaml`. Nothing in it is executed: the line is planted in a
process of its own (`planted`), which then trains (`training`) or runs the test that must notice it.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Any

from rlbook.checks import did_you_mean
from rlbook.errors import RequestError

PACKAGE = Path(__file__).parents[2]
FOLDER = Path(__file__).parent / "exhibits"
PARTS = ("tables", "networks", "language models")


@dataclass(frozen=True)
class BugRun:
    """The run that shows the bug, and the metric to look at."""

    algorithm: str
    env: str
    number: str
    """A column of the log."""
    unit: str
    """What it is, with its unit."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Options of the run and hyper-parameters."""
    env_kwargs: Mapping[str, Any] = field(default_factory=dict)
    seeds: int = 3
    along: str = "steps"
    """The unit of the log's steps: environment steps, or minibatches of recorded data."""
    known: float | None = None
    """The true or optimal value of the metric, if it is known."""
    known_is: str = ""
    log: bool = False
    """Whether the number is drawn on a logarithmic axis."""


@dataclass(frozen=True)
class Exhibit:
    """A one-line bug."""

    name: str
    part: str
    bug: str
    """The bug in a few words; the file is named after it."""
    title: str
    """The symptom of the bug in a few words."""
    symptom: str
    question: str
    file: str
    """From the root of the repository."""
    old: str
    """The correct line, without its indentation; it occurs in the file once."""
    new: str
    shown: BugRun
    why: str
    notice: str
    seen: str
    """Where others have encountered it."""
    test: str
    """The test that detects it, by pytest's name."""

    @property
    def module(self) -> str:
        """The file's import name."""
        return self.file.removesuffix(".py").replace("/", ".")

    @property
    def number(self) -> int:
        """The line's number in its file, from 1.

        Raises:
            ValueError: the line does not stand there exactly once.
        """
        return place_of(
            self.old, (PACKAGE.parent / self.file).read_text(encoding="utf-8"), self.file
        )

    def planted_in(self, source: str) -> str:
        """The module's source with the bug."""
        lines, place = source.split("\n"), place_of(self.old, source, self.file) - 1
        indentation = lines[place][: len(lines[place]) - len(lines[place].lstrip())]
        lines[place] = indentation + self.new
        return "\n".join(lines)

    @property
    def command(self) -> str:
        """The run without the bug, as it is typed."""
        words = [
            _option(name.replace("_", "-"), value) for name, value in self.shown.settings.items()
        ]
        for name, value in self.shown.env_kwargs.items():
            words.append(f"--env.{name} {str(value).lower() if isinstance(value, bool) else value}")
        return " ".join(["rlbook train", self.shown.algorithm, self.shown.env, *words])


def place_of(line: str, source: str, file: str) -> int:
    """The number of a line, from 1. Raises ValueError unless it occurs exactly once."""
    places = [number for number, other in enumerate(source.split("\n"), 1) if other.strip() == line]
    if len(places) != 1:
        raise ValueError(
            f"{file} must hold the line {line!r} once, and holds it {len(places)} times"
        )
    return places[0]


def _option(name: str, value: object) -> str:
    if isinstance(value, bool):
        return f"--{name}" if value else f"--no-{name}"
    words = [str(item) for item in value] if isinstance(value, list) else [str(value)]
    return shlex.join([f"--{name}", *words])


@cache
def exhibits() -> dict[str, Exhibit]:
    """Name → exhibit, in the order of the parts."""
    found = [read_exhibit(path) for path in sorted(FOLDER.glob("*/*.yaml"))]
    return {
        item.name: item
        for item in sorted(found, key=lambda item: (PARTS.index(item.part), item.name))
    }


def read_exhibit(path: Path) -> Exhibit:
    """An exhibit's file.

    Raises:
        ValueError: a field is missing, or one is not known.
    """
    import yaml

    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    wanted = {item.name for item in fields(Exhibit)} - {"name"}
    if content.keys() != wanted:
        raise ValueError(
            f"{path.name} must have the fields {', '.join(sorted(wanted))}; differs in"
            f" {sorted(content.keys() ^ wanted)}"
        )
    texts = {
        name: " ".join(value.split())
        for name, value in content.items()
        if name not in ("old", "new", "shown")
    }
    return Exhibit(
        name=path.stem,
        old=content["old"],
        new=content["new"],
        shown=BugRun(**content["shown"]),
        **texts,
    )


def find_exhibit(name: str) -> Exhibit:
    """The exhibit of this name.

    Raises:
        RequestError: there is none; the nearest name is given.
    """
    known = exhibits()
    if name not in known:
        hint = did_you_mean(name, known)
        raise RequestError(f"the museum has no bug {name!r}{hint} (rlbook bug list shows them)")
    return known[name]
