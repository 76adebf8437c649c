"""`rlbook course`: the syllabus, a learner's files, and the grading of a class."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro
from tyro.conf import Positional

from rlbook.checks import whole_number
from rlbook.cli.options import (
    Decimal,
    File,
    Flag,
    Number,
    PrintingOptions,
    Word,
    action_of,
    command_options,
    parse,
    refuse_idle,
)
from rlbook.cli.output import (
    Result,
    align_columns,
    fill_paragraph,
    for_terminal,
    note,
    shell_command,
    width,
)
from rlbook.errors import RequestError, system_reason

if TYPE_CHECKING:
    from rlbook.book.assignments.assignment import Assignment
    from rlbook.book.course.syllabus import Week
    from rlbook.book.exercises.grading import Mark, MarkRow

ACTIONS = ("list", "week", "start", "grade", "key")
USED = {
    "list": ("weeks",),
    "week": (),
    "start": ("weeks", "assignments", "seed"),
    "key": ("assignments", "seed"),
}
"""The options that have an effect on an action; on grade all have."""
LONGEST = 3_600.0  # seconds that an answer may be given


@command_options
class Course(PrintingOptions):
    """A course of twelve weeks: what to read, run and write each week. start writes a learner's
    files, grade marks a class's hand-ins, key writes the teacher's solutions of assignments.

    A class is a folder with one subfolder per student, which holds the files with the exercises'
    functions. Every answer runs in a sandbox with limits, so that no hand-in can stop the grading
    of the others. The marks are also written to a CSV file. An assignment is a whole agent to write,
    graded by a rubric; its hidden tests are drawn with --seed, which only the teacher needs to know.

    Examples:
      rlbook course
      rlbook course week 3
      rlbook course start my-course --weeks 1-4
      rlbook course grade hand-ins --weeks 3 --due 2026-10-01 --details said.csv
      rlbook course start my-course --assignments dqn_catch
      rlbook course grade hand-ins --assignments dqn_catch --seed 4711
    """

    action: Positional[Word] = None  # list, week, start, grade or key
    # a week's number, or a folder
    what: Annotated[
        tuple[str, ...],
        tyro.conf.Positional,
        tyro.conf.arg(metavar="N|FOLDER", help_behavior_hint=""),
    ] = ()
    # start and grade: the weeks, such as 3, 1-4 or 1,3,5-6 (default: all, or with assignments none)
    weeks: Word = None
    # start, grade and key: dqn_catch, ppo_maze, find_the_bug, grpo_sums, several with commas, or all
    assignments: Word = None
    # grade: chooses the hidden tests; start and key: chooses the bug of find_the_bug (default: 0)
    seed: Number = None
    # grade: files modified after this date or time are late, such as 2026-10-01 or 2026-10-01T18:00
    due: Word = None
    out: File = None  # grade: the CSV file to write the marks to (default: marks.csv)
    details: File = None  # grade: a file to write the feedback to, one line per answer
    # grade: a results.json for Gradescope to write; the folder is then one student's
    gradescope: File = None
    nbgrader: File = None  # grade: a CSV file to write with the columns of nbgrader export
    # grade: answers to run in parallel (default: one per processor)
    jobs: Number = None
    # grade: limit of processor time per answer, in seconds (default: 10, or an assignment's own)
    seconds: Decimal = None
    # grade: run without a sandbox if the system has none; time and memory are still limited
    trust: Flag = False


def course(words: Sequence[str]) -> tuple[bool, Result]:
    """Runs the command. Returns whether JSON is requested, and what to print.

    Raises:
        RequestError: one sentence: what, which value, what is allowed.
    """
    options = parse(Course, words, "rlbook course")
    action = action_of("course", options.action, ACTIONS)
    wanted = {"list": "nothing more", "week": "the number of a week"}.get(action, "one folder")
    if len(options.what) != int(action != "list"):
        raise RequestError(
            f"course {action} takes {wanted}, got {' '.join(options.what) or 'nothing'}"
        )
    if action != "grade":
        refuse_idle(options, f"course {action}", ("what", *USED[action]))
    from rlbook.book.course.syllabus import select_weeks

    if action in ("list", "week"):
        asked = select_weeks(options.what[0] if options.what else options.weeks)
        return options.json, _syllabus(asked, all_weeks=action == "week")
    from rlbook.book.assignments.assignment import select_assignments

    folder, named = Path(options.what[0]), options.assignments
    assigned = select_assignments("all" if action == "key" and named is None else named)
    seed = whole_number("seed", options.seed or 0, 0, 2**32)
    asked = [] if assigned and options.weeks is None else select_weeks(options.weeks)
    if action == "grade":
        return options.json, _grade(folder, asked, assigned, seed, options)
    if action == "key":
        return options.json, _write_key(folder, assigned, seed)
    return options.json, _start_course(folder, asked, assigned, seed)


def _syllabus(chosen_weeks: Sequence[Week], *, all_weeks: bool) -> Result:
    from rlbook.book.assignments.assignment import assignments
    from rlbook.book.exercises.exercise import exercises

    texts = []
    for week in chosen_weeks:
        rows = [("read", ", ".join(week.read)), ("notebooks", ", ".join(week.notebooks))]
        rows += [] if all_weeks else [("write", ", ".join(week.write))]
        assigned = [item.name for item in assignments().values() if item.week == week.number]
        rows += [("assignment", ", ".join(assigned))] if assigned else []
        rows += [("read on", week.further), ("show", week.show)]
        lines = [
            f"week {week.number}: {week.title}",
            *(fill_paragraph(text, f"  {name:<11}", " " * 13) for name, text in rows),
        ]
        if all_weeks:
            lines += [
                "  write",
                *(
                    fill_paragraph(exercises()[name].title, f"    {name:<24}", " " * 28)
                    for name in week.write
                ),
            ]
        texts.append("\n".join(lines))
    weeks = (
        chosen_weeks[0].number
        if len(chosen_weeks) == 1
        else f"{chosen_weeks[0].number}-{chosen_weeks[-1].number}"
    )
    texts.append(
        "pages are in docs/ and in the site, notebooks in notebooks/\n\n  rlbook course start"
        f" FOLDER --weeks {weeks}"
    )
    return {"weeks": [vars(week) for week in chosen_weeks]}, "\n\n".join(texts)


def _start_course(
    folder: Path, weeks: Sequence[Week], assigned: Sequence[Assignment], seed: int
) -> Result:
    from rlbook.book.assignments.hand_out import student_files
    from rlbook.book.course.syllabus import start

    written, there = start(folder, weeks, student_files(assigned, seed))
    lines = [f"{path}" for path in written]
    lines += [f"{len(there)} files existed already, and were not changed"] if there else []
    facts = {
        "folder": str(folder),
        "written": [str(path) for path in written],
        "there": [str(path) for path in there],
    }
    return facts, "\n".join([*lines, "", f"  {shell_command('exercise check', folder)}"])


def _write_key(folder: Path, assigned: Sequence[Assignment], seed: int) -> Result:
    from rlbook.book.assignments.hand_out import key_files
    from rlbook.book.course.syllabus import write_files

    written, there = write_files(folder, key_files(assigned, seed))
    lines = [f"{path}" for path in written]
    lines += [f"{len(there)} files were there already, and stay as they are"] if there else []
    lines += ["", "Keep this folder from your students."]
    return {"folder": str(folder), "written": [str(path) for path in written]}, "\n".join(lines)


def _grade(
    folder: Path,
    weeks: Sequence[Week],
    assigned: Sequence[Assignment],
    seed: int,
    options: Course,
) -> Result:
    from rlbook.book.exercises.grading import as_csv, deadline, details_as_csv, grade, students
    from rlbook.book.exercises.mark_formats import as_gradescope, as_nbgrader
    from rlbook.llm.rewards.code import isolation_works

    seconds, last = options.seconds, None if options.due is None else deadline(options.due)
    jobs = whole_number(
        "jobs", (os.cpu_count() or 1) if options.jobs is None else options.jobs, 1, 1_000
    )
    if seconds is not None and not 0.1 <= seconds <= LONGEST:
        raise RequestError(f"seconds must be a number in [0.1, {LONGEST:,.0f}], got {seconds!r}")
    alone = bool(options.gradescope)
    if alone and not folder.is_dir():
        raise RequestError(f"{folder} is not a folder")
    if not alone:
        students(folder)
    wanted = (
        options.out or "marks.csv",
        options.details,
        options.gradescope,
        options.nbgrader,
    )
    files = [Path(name) for name in wanted if name]
    for file in files:
        if [other.absolute() for other in files].count(file.absolute()) > 1:
            raise RequestError(f"{file} is named for two outputs; choose a file for each")
        if file.exists():
            raise RequestError(f"{file} exists already; move it away, or choose another file")
        if not file.parent.is_dir():
            raise RequestError(f"{file} cannot be written: there is no folder {file.parent}")
    if not options.trust and not isolation_works():
        raise RequestError(
            "answers are programs, and this system has no sandbox to run them in (Linux on "
            "x86-64 has one); --trust runs them without"
        )
    with _count_answers() as on_mark:
        rows = grade(
            folder,
            weeks,
            due=last,
            jobs=jobs,
            seconds=seconds,
            isolate=not options.trust,
            on_mark=on_mark,
            assigned=assigned,
            seed=seed,
            alone=alone,
        )
    texts = (
        as_csv(rows, weeks, assigned),
        details_as_csv(rows) if options.details else None,
        as_gradescope(rows[0]) if options.gradescope else None,
        as_nbgrader(rows, weeks, assigned, last) if options.nbgrader else None,
    )
    for file, text in zip(files, [text for text in texts if text is not None], strict=True):
        try:
            file.write_text(text, encoding="utf-8")
        except OSError as error:
            raise RequestError(f"cannot write {file}: {system_reason(error)}") from error
    return _facts(rows, weeks, assigned, files), "\n".join(
        [_table(rows, weeks, assigned), "", *_remarks(rows), *map(str, files)]
    )


@contextlib.contextmanager
def _count_answers() -> Iterator[Callable[[int, int], None]]:
    """Shows on a terminal how many answers have run."""

    def on_mark(done: int, total: int) -> None:
        if sys.stderr.isatty():
            print(f"\r{done} of {total} answers", end="", file=sys.stderr, flush=True)

    try:
        yield on_mark
    finally:
        if sys.stderr.isatty():
            note("")


def _facts(
    rows: Sequence[MarkRow],
    weeks: Sequence[Week],
    assigned: Sequence[Assignment],
    files: Sequence[Path],
) -> dict[str, Any]:
    return {
        "students": [
            {
                "student": row.student,
                "points": row.points(),
                "late": row.late,
                "missing": row.missing,
                "hints": row.hints,
                "unread": [*row.unread],
                "weeks": {str(week.number): row.points(week.number) for week in weeks},
                "assignments": {item.name: row.points_of(item.name) for item in assigned},
                "marks": [vars(mark) for mark in row.marks],
            }
            for row in rows
        ],
        "of": rows[0].total,
        "files": [str(file) for file in files],
    }


def _table(rows: Sequence[MarkRow], weeks: Sequence[Week], assigned: Sequence[Assignment]) -> str:
    """Each mark as its sign, or each week's points if the line would be too long; and each
    assignment's points."""
    from rlbook.book.exercises.grading import SIGNS

    def signs(row: MarkRow, week: Week) -> str:
        return "".join(
            SIGNS[mark.mark]
            for mark in row.marks
            if mark.week == week.number and not mark.assignment
        )

    earned = [[f"{row.points_of(item.name)}/{item.points}" for item in assigned] for row in rows]
    marks = [
        [*(signs(row, week) for week in weeks), *end] for row, end in zip(rows, earned, strict=True)
    ]
    points = [
        [*(f"{row.points(week.number)}" for week in weeks), *end]
        for row, end in zip(rows, earned, strict=True)
    ]

    def table(cells: list[list[str]]) -> str:
        head = (
            "student",
            *(f"week {week.number}" for week in weeks),
            *(item.name for item in assigned),
            "points",
            "late",
            "missing",
            "hints",
        )
        last = [
            (f"{row.points()}/{row.total}", str(row.late), str(row.missing), str(row.hints))
            for row in rows
        ]
        return align_columns(
            [
                head,
                *(
                    (row.student, *cell, *end)
                    for row, cell, end in zip(rows, cells, last, strict=True)
                ),
            ]
        )

    whole = table(marks)
    return whole if max(map(len, whole.splitlines())) <= width() else table(points)


def _remarks(rows: Sequence[MarkRow]) -> list[str]:
    """The meaning of the signs, what did not run, and the known mistakes of the class."""
    from rlbook.book.exercises.checking import FAILED
    from rlbook.book.exercises.grading import mistakes

    lines = []
    if any(not mark.assignment for row in rows for mark in row.marks):
        signs = "1 right, 0 not right, h a known mistake (the hint is counted), ! did not run, -"
        lines += [for_terminal(f"{signs} nothing handed in"), ""]
    lost: dict[tuple[str, str, str], list[Mark]] = {}
    for row in rows:
        for mark in row.marks:
            if mark.assignment and mark.points < mark.of:
                lost.setdefault((mark.student, mark.assignment, mark.said), []).append(mark)
    for (student, assignment, said), marks in lost.items():
        names = ", ".join(mark.exercise.removeprefix(f"{assignment}: ") for mark in marks)
        head = student if names == assignment else f"{student}: {assignment}"
        points = f"{sum(mark.points for mark in marks)} of {sum(mark.of for mark in marks)}"
        lines.append(for_terminal(f"{head}: {names}: {points}: {said}"))
    lines += [""] if lost else []
    failed = [
        mark for row in rows for mark in row.marks if mark.mark == FAILED and not mark.assignment
    ]
    said = [f"{mark.student}: {mark.exercise}: {mark.said}" for mark in failed]
    said += [f"{row.student}: {sentence}" for row in rows for sentence in row.unread]
    if said:
        lines += [*map(for_terminal, said), ""]
    known = mistakes(rows)
    if known:
        lines += [
            *(for_terminal(f"{count} × {exercise}: {said}") for exercise, said, count in known),
            "",
        ]
    return lines
