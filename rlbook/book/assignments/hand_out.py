"""The files of an assignment: the student's starter, and the teacher's key."""

from __future__ import annotations

from collections.abc import Sequence

from rlbook.book.assignments.assignment import Assignment


def student_files(assignments: Sequence[Assignment], seed: int = 0) -> dict[str, str]:
    """File name → text: a starter and a page for each assignment. The seed chooses the bug to
    find."""
    files: dict[str, str] = {}
    for item in assignments:
        files |= {f"{item.name}.py": item.starter(seed), f"{item.name}.md": page(item)}
    return files


def key_files(assignments: Sequence[Assignment], seed: int = 0) -> dict[str, str]:
    """File name → text: a solution and the hidden cases for each assignment."""
    files: dict[str, str] = {}
    for item in assignments:
        files |= {f"{item.name}.py": item.solution, f"{item.name}-key.md": key_page(item, seed)}
    return files


def page(item: Assignment) -> str:
    """The student's page: what to do, what it is worth, and how it runs."""
    task = (
        "The file has one bug. Find it, and mend it without changing anything else."
        if item.bugs
        else "Write what raises `NotImplementedError`, as the docstrings ask. Keep every name and"
        " argument."
    )
    chapters = ", ".join(f"`docs/chapters/{name}.md`" for name in item.chapters)
    return "\n".join(
        [
            f"# {item.title}",
            "",
            f"Week {item.week}, about {item.hours} hours. Read first: {chapters}.",
            "",
            f"{task} `python {item.name}.py` trains on the real environment (with rlbook"
            " installed), so that you see whether it learns. The file may import NumPy and PyTorch"
            " at its top, and nothing else outside of Python's own library.",
            "",
            "```sh",
            f"python {item.name}.py",
            f"rlbook exercise check {item.name}.py",
            "```",
            "",
            "The second command grades the file as your teacher does, but with other cases.",
            "",
            f"## What it is worth: {item.points} points",
            "",
            *rubric_table(item),
            "",
            "A criterion tries one function. Where it calls another one of the file, a stand-in"
            " takes that one's place, so that one mistake costs one criterion: call the functions"
            " by their names. Only the training runs all of the file together.",
            "",
            "Style is not graded. A criterion is tried on cases and seeds that you do not see, in a"
            " sandbox without files, network and other processes."
            f" All training together may take {item.seconds:g} seconds of one processor; the"
            " solution takes a quarter of that or less.",
            "",
        ]
    )


def rubric_table(item: Assignment) -> list[str]:
    """The rubric as the lines of a table in Markdown."""
    rows = [f"| {row.name} | {row.points} | {row.asks} |" for row in item.rubric]
    return ["| criterion | points | what earns them |", "|---|---|---|", *rows]


def key_page(item: Assignment, seed: int) -> str:
    """The teacher's page: the rubric, the number of cases, and the bug of a seed."""
    lines = [f"# {item.title}: the key", "", "Not for students.", "", *rubric_table(item), ""]
    lines += ["## What is tried", ""]
    for row in item.rubric:
        cases = item.draw_cases(row, seed)
        lines.append(f"- {row.name}: {len(cases)} cases with seed {seed}, by `{row.probe}`")
    if item.bugs:
        planted = item.bug_of(seed).name
        lines += ["", "## Which bug", "", f"The file of seed {seed} {planted}. All of them:", ""]
        lines += [f"- {bug.name}" for bug in item.bugs]
    return "\n".join([*lines, ""])
