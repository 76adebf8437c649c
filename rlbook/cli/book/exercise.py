"""`rlbook exercise`: lists the book's exercises, writes one's file, and checks answers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import tyro
from tyro.conf import Positional

from rlbook.checks import did_you_mean
from rlbook.cli.options import (
    File,
    Flag,
    PrintingOptions,
    Word,
    action_of,
    command_options,
    parse,
    refuse_idle,
)
from rlbook.cli.output import Result, align_columns, for_terminal, shell_command
from rlbook.errors import RequestError

ACTIONS = ("list", "start", "check", "hint")


@command_options
class Exercises(PrintingOptions):
    """Functions to write, checked against the library's own. list shows them, start writes a file
    to fill in, check tells which answers are right.

    An answer runs in a sandbox if the system has one: without access to files, the network or other
    processes. A folder of answers is checked file by file; rlbook course grade marks the hand-ins
    of a class.

    Examples:
      rlbook exercise list --chapter planning
      rlbook exercise start returns
      rlbook exercise check returns
      rlbook exercise check solutions --json
    """

    action: Positional[Word] = None  # list, start, check or hint
    # an exercise, or a file or folder of answers; for check, an exercise's name means NAME.py
    what: Annotated[
        tuple[str, ...],
        tyro.conf.Positional,
        tyro.conf.arg(metavar="NAME|FILE|FOLDER", help_behavior_hint=""),
    ] = ()
    chapter: Word = None  # list: only the exercises of this chapter or algorithm's page
    out: File = None  # start: the file to write (default: NAME.py)
    # check: run without a sandbox if the system has none; time and memory are still limited
    trust: Flag = False


def exercise(words: Sequence[str]) -> tuple[bool, Result, int]:
    """Runs the command. Returns whether JSON is requested, what to print, and the exit code: 1 if
    an answer is wrong.

    Raises:
        RequestError: one sentence: what, which value, what is allowed.
    """
    options = parse(Exercises, words, "rlbook exercise")
    action = action_of("exercise", options.action, ACTIONS)
    used = {"list": ("chapter",), "start": ("what", "out"), "check": ("what", "trust")}
    refuse_idle(options, f"exercise {action}", used.get(action, ("what",)))
    if action == "list":
        return options.json, _list_exercises(options.chapter), 0
    if not options.what:
        raise RequestError(
            f"exercise {action} needs"
            f" {'an exercise, a file or a folder' if action == 'check' else 'the name of an exercise'}"
        )
    if action == "check":
        return options.json, *_check_answers(
            [_answer_path(item) for item in options.what], trust=options.trust
        )
    name, *more = options.what
    if more:
        raise RequestError(f"exercise {action} takes one name, got {' '.join(options.what)}")
    return (
        options.json,
        (
            _hints(name)
            if action == "hint"
            else _start_exercise(name, Path(options.out or default_file(name)))
        ),
        0,
    )


def _list_exercises(chapter: str | None) -> Result:
    from rlbook.book.exercises.exercise import exercises

    found = [
        item
        for item in exercises().values()
        if chapter in (None, item.chapter, item.page.split(" ")[0])
    ]
    if not found:
        chapters = list(dict.fromkeys(item.chapter for item in exercises().values()))
        hint = did_you_mean(chapter, chapters)
        raise RequestError(
            f"there are no exercises of a chapter {chapter!r}{hint} (known: {', '.join(chapters)})"
        )
    facts = [
        {"name": item.name, "chapter": item.chapter, "page": item.page, "title": item.title}
        for item in found
    ]
    return {"exercises": facts}, align_columns([(fact["name"], fact["title"]) for fact in facts])


def _answer_path(name: str) -> Path:
    """The path of the answers that a word names: those of an exercise are in the file that `start`
    writes.

    Raises:
        RequestError: there is no such file, folder or exercise, or the exercise was not started.
    """
    from rlbook.book.exercises.exercise import exercises

    path = Path(name)
    if name in exercises() and not path.is_file():
        written = default_file(name)
        if written.is_file():
            return written
        if not path.exists():
            raise RequestError(
                f"there is no answer to exercise {name!r} here: {written} does not exist; rlbook"
                f" exercise start {name} writes it"
            )
    if not path.exists():
        raise RequestError(
            f"there is no file, folder or exercise {name!r}{did_you_mean(name, exercises())}"
        )
    return path


def default_file(name: str) -> Path:
    """The file that `start` writes by default."""
    return Path(f"{name}.py")


def _start_exercise(name: str, path: Path) -> Result:
    from rlbook.book.exercises.exercise import start

    start(name, path)
    check = shell_command("exercise check", name if path == default_file(name) else path)
    return {"exercise": name, "file": str(path)}, f"{path}\n\n  {check}"


def _hints(name: str) -> Result:
    from rlbook.book.exercises.exercise import find_exercise

    item = find_exercise(name)
    lines = [item.title, f"chapter: {item.chapter}", *(f"- {hint}" for hint in item.mistakes)]
    return {"exercise": name, "chapter": item.chapter, "hints": list(item.mistakes)}, "\n".join(
        map(for_terminal, lines)
    )


def _check_answers(paths: Sequence[Path], *, trust: bool) -> tuple[Result, int]:
    from rlbook.book.assignments.assignment import NAMES
    from rlbook.book.assignments.judging import check_assignment
    from rlbook.book.exercises.checking import answers_in, check_file
    from rlbook.llm.rewards.code import isolation_works

    if not trust and not isolation_works():
        raise RequestError(
            "answers are programs, and this system has no sandbox to run them in (Linux on "
            "x86-64 has one); --trust runs them without"
        )
    verdicts, unread = [], []
    for path in paths:
        for file in answers_in(path) if path.is_dir() else [path]:
            try:
                check = check_assignment if file.stem in NAMES else check_file
                verdicts += check(file, isolate=not trust)
            except RequestError as error:
                if not path.is_dir():
                    raise
                unread.append(str(error))
    right = sum(verdict.right for verdict in verdicts)
    facts: dict[str, Any] = {
        "right": right,
        "of": len(verdicts),
        "answers": [vars(verdict) for verdict in verdicts],
        "unread": unread,
    }
    several = len({verdict.file for verdict in verdicts}) > 1
    lines = [
        f"{f'{verdict.file}: ' if several else ''}{verdict.exercise}: {verdict.said}"
        for verdict in verdicts
    ]
    lines += unread + ([f"{right} of {len(verdicts)} right"] if len(verdicts) > 1 else [])
    return (facts, "\n".join(map(for_terminal, lines)) or "no answers"), int(
        right < len(verdicts) or bool(unread)
    )
