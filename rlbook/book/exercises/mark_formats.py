"""Marks in the formats of other systems."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime

from rlbook.book.assignments.assignment import Assignment
from rlbook.book.course.syllabus import Week
from rlbook.book.exercises.grading import MarkRow, write_csv

NBGRADER_COLUMNS = (
    "assignment",
    "duedate",
    "timestamp",
    "student_id",
    "last_name",
    "first_name",
    "email",
    "raw_score",
    "late_submission_penalty",
    "score",
    "max_score",
)


def as_gradescope(row: MarkRow) -> str:
    """One student's marks as the results.json of a Gradescope autograder: a test for each exercise
    and criterion, with its points and the reason.

    Source: https://gradescope-autograders.readthedocs.io/en/latest/specs/
    """
    tests = [
        {
            "name": mark.exercise,
            "score": mark.points,
            "max_score": mark.of,
            "status": "passed" if mark.points == mark.of else "failed",
            "output": mark.said,
        }
        for mark in row.marks
    ]
    output = "\n".join(row.unread)
    return json.dumps({"score": row.points(), "output": output, "tests": tests}, indent=2) + "\n"


def as_nbgrader(
    rows: Sequence[MarkRow],
    weeks: Sequence[Week],
    assigned: Sequence[Assignment],
    due: datetime | None,
) -> str:
    """The marks in the columns of `nbgrader export`: one line per student and week, and per student
    and assignment. Names and addresses stay empty, and lateness costs nothing.

    Source: nbgrader 0.9, plugins/export.py.
    """
    lines: list[list[object]] = []
    for row in rows:
        parts = [
            (f"week-{week.number}", row.points(week.number), len(week.write)) for week in weeks
        ]
        parts += [(item.name, row.points_of(item.name), item.points) for item in assigned]
        lines += [
            [name, due or "", "", row.student, "", "", "", points, 0.0, points, of]
            for name, points, of in parts
        ]
    return write_csv([NBGRADER_COLUMNS, *lines])
