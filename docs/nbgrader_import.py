"""Puts the marks of `rlbook course grade … --nbgrader FILE` into a gradebook of nbgrader:

    python nbgrader_import.py FILE sqlite:///gradebook.db

Each assignment or week becomes an assignment with one notebook, in which one cell is graded. A
second call with new marks replaces the old ones; names, addresses and other assignments stay.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

from nbgrader.api import Gradebook, MissingEntry


def import_marks(rows: list[dict[str, str]], book: Gradebook) -> None:
    """Writes a row for each student and assignment as an automatic grade."""
    for row in rows:
        name, student = row["assignment"], row["student_id"]
        try:
            book.find_student(student)
        except MissingEntry:
            book.add_student(student)
        book.update_or_create_assignment(name, duedate=row["duedate"] or None)
        book.update_or_create_notebook(name, name)
        worth = {"max_score": float(row["max_score"]), "cell_type": "code"}
        book.update_or_create_grade_cell("marks", name, name, **worth)
        book.update_or_create_submission(name, student)
        grade = book.find_grade("marks", name, name, student)
        grade.auto_score, grade.needs_manual_grade = float(row["score"]), False
        book.db.commit()


def main() -> None:
    file, database = sys.argv[1:]
    with Gradebook(database) as book, Path(file).open(encoding="utf-8", newline="") as lines:
        import_marks([*csv.DictReader(lines)], book)


if __name__ == "__main__":
    main()
