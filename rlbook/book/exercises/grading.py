"""Grades a course's submissions: a folder for each student, with files that define exercises'
functions.

Every answer runs as `rlbook exercise check` runs it, in a process of its own with limits; several
at once. Nothing that a student hands in ends the grading: what cannot be read or run is a mark like
the others, with the reason.
"""

from __future__ import annotations

import csv
import dataclasses
import functools
import io
import re
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, time
from itertools import chain
from pathlib import Path

from rlbook.book.assignments.assignment import Assignment
from rlbook.book.assignments.judging import judge
from rlbook.book.course.syllabus import Week
from rlbook.book.exercises.checking import (
    EMPTY,
    FAILED,
    MISTAKEN,
    NOT_HANDED_IN,
    RIGHT,
    WRONG,
    answers_in,
    check_answer,
    functions_in,
    printable,
    text_of,
)
from rlbook.book.exercises.exercise import find_exercise
from rlbook.checks import nearest_name
from rlbook.errors import RequestError, system_reason

MISSING = "missing"
SIGNS = {RIGHT: "1", MISTAKEN: "h", WRONG: "0", FAILED: "!", EMPTY: "-", MISSING: "-"}
"""The sign of a mark in a table."""
MOST_FILES = 500  # of one student; the rest is not looked at


@dataclass(frozen=True)
class Mark:
    """A student's mark for one exercise."""

    student: str
    week: int
    exercise: str
    file: str
    """The path within the folder of submissions; empty if nothing was submitted."""
    mark: str
    """One of `SIGNS`."""
    points: int
    said: str
    late: bool
    of: int = 1
    """The maximum number of points."""
    assignment: str = ""
    """The name of the assignment of which the exercise is a criterion."""

    @property
    def is_begun(self) -> bool:
        return self.mark not in (MISSING, EMPTY)


@dataclass(frozen=True)
class MarkRow:
    """A student's marks, and their totals."""

    student: str
    marks: tuple[Mark, ...]
    unread: tuple[str, ...] = ()
    """A sentence for each file that is not Python, and in which no required exercise was recognised,
    and for each exercise with several answers."""

    def points(self, week: int | None = None) -> int:
        """The points for a week's exercises, or for everything."""
        return sum(
            mark.points
            for mark in self.marks
            if week is None or (week == mark.week and not mark.assignment)
        )

    def points_of(self, assignment: str) -> int:
        """The points for an assignment."""
        return sum(mark.points for mark in self.marks if mark.assignment == assignment)

    @property
    def total(self) -> int:
        """The maximum total."""
        return sum(mark.of for mark in self.marks)

    @property
    def late(self) -> int:
        """The number of late answers; an assignment is one."""
        return len({mark.assignment or mark.exercise for mark in self.marks if mark.late})

    @property
    def missing(self) -> int:
        """The number of answers that were not submitted or not started; an assignment is one."""
        parts = {mark.assignment or mark.exercise for mark in self.marks}
        return len(
            parts - {mark.assignment or mark.exercise for mark in self.marks if mark.is_begun}
        )

    @property
    def hints(self) -> int:
        """The number of answers with a known mistake, for which the student gets a hint."""
        return sum(mark.mark == MISTAKEN for mark in self.marks)


def students(folder: Path) -> dict[str, list[Path]]:
    """The submissions by student: one for each subfolder, or a single student if the files are in
    the folder itself.

    Raises:
        RequestError: no such folder, nothing in it, or files beside the students' folders.
    """
    if not folder.is_dir():
        raise RequestError(f"{folder} is not a folder")
    try:
        inside = sorted(
            path
            for path in folder.iterdir()
            if not path.name.startswith(".") and path.name not in NOT_HANDED_IN
        )
    except OSError as error:
        raise RequestError(f"cannot read {folder}: {system_reason(error)}") from error
    folders = [path for path in inside if path.is_dir() and not path.is_symlink()]
    loose = [
        path for path in inside if path.suffix == ".py" and path.is_file() and not path.is_symlink()
    ]
    if folders and loose:
        raise RequestError(
            f"{folder} holds students' folders and a loose file, {loose[0].name}: put each file "
            "into its student's folder"
        )
    if loose:
        return {folder.resolve().name: loose}
    if not folders:
        raise RequestError(f"{folder} holds no students' folders and no Python files")
    return {path.name: submitted_files(path) for path in folders}


def submitted_files(folder: Path) -> list[Path]:
    """A student's Python files, as `answers_in` has them."""
    return answers_in(folder)[:MOST_FILES]


def deadline(text: str) -> datetime:
    """A day, which ends at midnight, or a day and a time: 2026-10-01 or 2026-10-01T18:00, by this
    machine's clock.

    Raises:
        RequestError: it is neither.
    """
    try:
        due = datetime.fromisoformat(text)
    except ValueError:
        raise RequestError(
            f"a date is written as 2026-10-01 or 2026-10-01T18:00, got {text!r}"
        ) from None
    return datetime.combine(due.date(), time.max) if len(text) <= len("2026-10-01") else due


def grade(
    folder: Path,
    weeks: Sequence[Week],
    *,
    due: datetime | None = None,
    jobs: int = 1,
    seconds: float | None = None,
    isolate: bool = True,
    on_mark: Callable[[int, int], None] = lambda done, total: None,
    assigned: Sequence[Assignment] = (),
    seed: int = 0,
    alone: bool = False,
) -> list[MarkRow]:
    """Grades all hand-ins.

    Args:
        folder: of a folder for each student, or of one student's files.
        weeks: the weeks whose exercises count.
        due: a file that was changed later is late.
        jobs: answers that run at the same time.
        seconds: of the processor that an answer may take.
        isolate: in the sandbox, without files, network and other processes.
        on_mark: told after each answer how many are done, and of how many.
        assigned: the assignments that count.
        seed: of the assignments' hidden cases.
        alone: the folder is one student's, whatever lies in it, and be it nothing.

    Raises:
        RequestError: as `students`.
    """
    marks: dict[str, list[list[Mark]]] = {}
    unread: dict[str, tuple[str, ...]] = {}
    waiting: list[tuple[str, int, Callable[[], list[Mark]]]] = []

    def answer_marks(mark: Mark, text: str) -> list[Mark]:
        answer = check_answer(find_exercise(mark.exercise), text, isolate=isolate, seconds=seconds)
        points = int(answer.mark == RIGHT)
        return [dataclasses.replace(mark, mark=answer.mark, points=points, said=answer.said)]

    def assignment_marks(item: Assignment, mark: Mark, text: str) -> list[Mark]:
        found = judge(item, text, seed=seed, seconds=seconds, isolate=isolate)
        return [
            dataclasses.replace(
                mark,
                exercise=f"{item.name}: {award.criterion}",
                mark=award.mark,
                points=award.points,
                of=award.of,
                said=award.said,
            )
            for award in found
        ]

    handed = {folder.resolve().name: submitted_files(folder)} if alone else students(folder)
    for student, files in handed.items():
        marks[student] = []
        found, broken, doubled = _collect(student, folder, files, weeks, due)
        whole, others = _collect_assignments(student, folder, files, assigned, due, broken)
        unread[student] = (*others, *doubled)
        for mark, text in found:
            if text is not None:
                place = len(marks[student])
                waiting.append((student, place, functools.partial(answer_marks, mark, text)))
            marks[student].append([mark])
        for item, mark, text in whole:
            if text is not None:
                run = functools.partial(assignment_marks, item, mark, text)
                waiting.append((student, len(marks[student]), run))
            marks[student].append([mark])
    with ThreadPoolExecutor(jobs) as pool:
        running = [pool.submit(run) for _, _, run in waiting]
        try:
            for done, (task, (student, place, _)) in enumerate(
                zip(running, waiting, strict=True), start=1
            ):
                marks[student][place] = task.result()
                on_mark(done, len(waiting))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return [
        MarkRow(printable(student), tuple(chain.from_iterable(row)), unread[student])
        for student, row in marks.items()
    ]


def _collect_assignments(
    student: str,
    folder: Path,
    files: Sequence[Path],
    assigned: Sequence[Assignment],
    due: datetime | None,
    broken: dict[Path, str],
) -> tuple[list[tuple[Assignment, Mark, str | None]], tuple[str, ...]]:
    """For each assignment its total mark, and the file's text if there is one to run; and a
    sentence for each file in which nothing was recognised."""
    found: list[tuple[Assignment, Mark, str | None]] = []
    for item in assigned:
        mark = Mark(
            printable(student),
            item.week,
            item.name,
            "",
            MISSING,
            0,
            "not handed in",
            False,
            item.points,
            item.name,
        )
        path = next((path for path in files if path.stem == item.name), None)
        text = None
        if path is None and (close := nearest_name(item.name, [path.stem for path in files])):
            said = printable(f"not handed in; {close}.py should be called {item.name}.py")
            mark = dataclasses.replace(mark, said=said)
        if path is not None:
            mark = _locate_mark(mark, path, folder, due)
            try:
                text = text_of(path)
            except RequestError as error:
                said = printable(str(error).replace(str(path), path.name))
                mark = dataclasses.replace(mark, mark=FAILED, said=said)
            broken.pop(path, None)
        found.append((item, mark, text))
    return found, tuple(broken.values())


def _collect(
    student: str, folder: Path, files: Sequence[Path], weeks: Sequence[Week], due: datetime | None
) -> tuple[list[tuple[Mark, str | None]], dict[Path, str], list[str]]:
    """For each exercise its mark, and the text of the answer if there is one to run; a sentence for
    each other file that is not Python; and one for each exercise with several answers, of which that
    in the file of its name, or else in the first one, counts."""
    texts: dict[Path, str] = {}
    holds: dict[str, list[Path]] = {}
    unread: dict[str, tuple[Path, str]] = {}
    broken: dict[Path, str] = {}
    for path in files:
        try:
            texts[path], names = functions_in(path)
        except RequestError as error:
            broken[path] = printable(str(error).replace(str(path), path.name))
            for name in (path.stem, *_guess_functions(path)):
                unread.setdefault(name, (path, broken[path]))
            continue
        for name in dict.fromkeys(names):
            holds.setdefault(name, []).append(path)
        if path.stem not in names:
            close = (
                f"; it has {printable(match)!r}"
                if (match := nearest_name(path.stem, names))
                else ""
            )
            why = printable(f"{path.name} defines no function {path.stem!r}{close}")
            unread.setdefault(path.stem, (path, why))
    found: list[tuple[Mark, str | None]] = []
    doubled: list[str] = []
    for week in weeks:
        for name in week.write:
            mark = Mark(
                printable(student), week.number, name, "", MISSING, 0, "not handed in", False
            )
            if there := sorted(holds.get(name, []), key=lambda path: path.stem != name):
                found.append((_locate_mark(mark, there[0], folder, due), texts[there[0]]))
                if len({texts[path] for path in there}) > 1:
                    counted, *rest = (str(path.relative_to(folder)) for path in there)
                    also = f"is defined in {counted} and in {', '.join(rest)}"
                    doubled.append(printable(f"{name} {also}; the one in {counted} counts"))
            elif name in unread:
                path, why = unread[name]
                broken.pop(path, None)
                found.append(
                    (
                        dataclasses.replace(
                            _locate_mark(mark, path, folder, due), mark=FAILED, said=why
                        ),
                        None,
                    )
                )
            else:
                found.append((mark, None))
    return found, broken, doubled


def _guess_functions(path: Path) -> list[str]:
    """The functions that a file with invalid Python seems to define."""
    try:
        return re.findall(r"^def (\w+)\(", text_of(path), flags=re.MULTILINE)
    except RequestError:
        return []


def _locate_mark(mark: Mark, path: Path, folder: Path, due: datetime | None) -> Mark:
    late = due is not None and path.stat().st_mtime > due.timestamp()
    return dataclasses.replace(mark, file=printable(str(path.relative_to(folder))), late=late)


def mistakes(rows: Sequence[MarkRow]) -> list[tuple[str, str, int]]:
    """The known mistakes of the class: exercise, hint, and the number of students who made it, the
    most frequent first."""
    told = Counter(
        (mark.exercise, mark.said) for row in rows for mark in row.marks if mark.mark == MISTAKEN
    )
    return [(exercise, said, count) for (exercise, said), count in told.most_common()]


def as_csv(
    rows: Sequence[MarkRow], weeks: Sequence[Week], assigned: Sequence[Assignment] = ()
) -> str:
    """One line per student: a column for each exercise, each week's points, each assignment's
    points, and the total."""
    exercises = [name for week in weeks for name in week.write]
    head = [
        "student",
        *exercises,
        *(f"week {week.number}" for week in weeks),
        *(item.name for item in assigned),
        "points",
        "of",
        "late",
        "missing",
        "hints",
    ]
    lines: list[list[object]] = [
        [
            row.student,
            *(mark.points for mark in row.marks if not mark.assignment),
            *(row.points(week.number) for week in weeks),
            *(row.points_of(item.name) for item in assigned),
            row.points(),
            row.total,
            row.late,
            row.missing,
            row.hints,
        ]
        for row in rows
    ]
    return write_csv([head, *lines])


def details_as_csv(rows: Sequence[MarkRow]) -> str:
    """One line per student and exercise: the file, the mark, and a comment."""
    names = [item.name for item in dataclasses.fields(Mark)]
    return write_csv(
        [names, *([getattr(mark, name) for name in names] for row in rows for mark in row.marks)]
    )


def write_csv(lines: Sequence[Sequence[object]]) -> str:
    """Lines as CSV. Text that a spreadsheet would take for a formula begins with an apostrophe."""
    out = io.StringIO()
    safe = [
        [
            f"'{cell}" if isinstance(cell, str) and cell.startswith(("=", "+", "-", "@")) else cell
            for cell in line
        ]
        for line in lines
    ]
    csv.writer(out, lineterminator="\n").writerows(safe)
    return out.getvalue()
