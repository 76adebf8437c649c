"""The course of twelve weeks: what to read, run and write, read from course.yaml; and the files
that a learner starts with.

rlbook course                       the syllabus
rlbook course week 3                one week
rlbook course start my-course       a file for each exercise
rlbook course grade hand-ins        `rlbook.book.exercises.grading`
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from rlbook.book.exercises.exercise import find_exercise, starter
from rlbook.errors import RequestError, system_reason
from rlbook.runs.storage.plain_yaml import parse_yaml


@dataclass(frozen=True)
class Week:
    """The work of one week."""

    number: int
    title: str
    read: tuple[str, ...]
    """Pages of docs/, without their extension."""
    notebooks: tuple[str, ...]
    """Pages of notebooks/, without their extension."""
    write: tuple[str, ...]
    """Exercises by name; each is a point."""
    further: str
    """Further reading outside the book."""
    show: str
    """What a teacher runs in the lecture."""


@cache
def weeks() -> tuple[Week, ...]:
    """The whole course."""
    entries = parse_yaml(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
    return tuple(
        Week(
            number,
            item["title"],
            tuple(item["read"]),
            tuple(item["notebooks"]),
            tuple(item["write"]),
            item["further"],
            item["show"],
        )
        for number, item in enumerate(entries, start=1)
    )


def select_weeks(text: str | None) -> list[Week]:
    """The weeks named by "3", "1-4" or "1,3,5-6"; all of them for None.

    Raises:
        RequestError: it is none of these, or the course has no such week.
    """
    if text is None:
        return [*weeks()]
    numbers: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if (
            not (first.isdecimal() and (last.isdecimal() or not dash))
            or max(len(first), len(last)) > 3
        ):
            raise RequestError(f"weeks are given as 3, 1-4 or 1,3,5-6, got {text!r}")
        low, high = int(first), int(last or first)
        if not 1 <= low <= high <= len(weeks()):
            raise RequestError(f"the course has weeks 1 to {len(weeks())}, got {part.strip()!r}")
        numbers |= set(range(low, high + 1))
    return [week for week in weeks() if week.number in numbers]


def start(
    folder: Path, weeks: Sequence[Week], more: Mapping[str, str] | None = None
) -> tuple[list[Path], list[Path]]:
    """Writes the exercise files of some weeks. Existing files are not changed.

    Args:
        folder: where to.
        weeks: the weeks.
        more: further files, name → text.

    Returns:
        What was written, and what was there.

    Raises:
        RequestError: the folder cannot be made or written to.
    """
    files = {f"{name}.py": starter(find_exercise(name)) for week in weeks for name in week.write}
    return write_files(folder, files | dict(more or {}))


def write_files(folder: Path, files: Mapping[str, str]) -> tuple[list[Path], list[Path]]:
    """Writes files, name → text, into a folder. Existing files are not changed.

    Returns:
        What was written, and what was there.

    Raises:
        RequestError: the folder cannot be made or written to.
    """
    written: list[Path] = []
    there: list[Path] = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            path = folder / name
            try:
                with path.open("x", encoding="utf-8") as file:
                    file.write(text)
            except FileExistsError:
                there.append(path)
            else:
                written.append(path)
    except OSError as error:
        raise RequestError(f"cannot write to {folder}: {system_reason(error)}") from error
    return written, there
