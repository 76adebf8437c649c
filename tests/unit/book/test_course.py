"""The course: its data name what exists, a learner's files are written once, and a class is graded
whatever it hands in."""

from __future__ import annotations

import csv
import json
import os
from pathlib import Path

import pytest

from rlbook.book.course.syllabus import select_weeks, start, weeks
from rlbook.book.exercises.checking import RIGHT, check_answer, check_file, functions_in
from rlbook.book.exercises.exercise import exercises
from rlbook.book.exercises.grading import deadline, grade, students
from rlbook.cli.commands import COMMANDS
from rlbook.cli.main import main
from rlbook.errors import RequestError
from rlbook.llm.rewards.code import isolation_works

ROOT = Path(__file__).parents[3]
in_a_sandbox = pytest.mark.skipif(not isolation_works(), reason="this system has no sandbox")

FIRST_VISIT = (
    "def first_visit(states, G, state):\n    return next((g for s, g in zip(states, G) if s =="
    " state), 0.0)\n"
)
WEIGHTS = (
    "import numpy as np\ndef importance_weights(actions, pi, b):\n    return np.cumprod((pi /"
    " b)[actions][::-1])[::-1]\n"
)
AVERAGES = (
    "def two_averages(G, weight):\n    return [(weight * G).mean(), (weight * G).sum() /"
    " weight.sum()]\n"
)
UPSIDE_DOWN = WEIGHTS.replace("pi / b", "b / pi")
FORGED = """
import json, os
def first_visit(*given):
    os.write(1, (json.dumps({"answers": [[{}]] * 24}) + "\\n").encode())
    os._exit(0)
"""


def test_the_course_names_what_there_is_and_leaves_nothing_out() -> None:
    assert [week.number for week in weeks()] == [*range(1, 13)]
    written = [name for week in weeks() for name in week.write]
    # each once; those of an algorithm's page are for whoever reads the page
    assert sorted(written) == sorted(item.name for item in exercises().values() if not item.page)
    assert {name for week in weeks() for name in week.notebooks} == {
        path.stem for path in (ROOT / "notebooks").glob("*.ipynb")
    }
    read = {page for week in weeks() for page in week.read}
    assert read >= {f"chapters/{path.stem}" for path in (ROOT / "docs/chapters").glob("*.md")}
    assert all((ROOT / "docs" / f"{page}.md").is_file() for page in read)
    for week in weeks():
        assert {f"chapters/{exercises()[name].chapter}" for name in week.write} <= {*week.read}
        assert "rlbook" not in week.show or week.show.split("rlbook ")[1].split()[0] in COMMANDS


def test_the_page_for_teachers_names_the_weeks_that_two_lectures_do_not_hold() -> None:
    long = [
        week.number
        for week in weeks()
        if sum(page.startswith("chapters/") for page in week.read) > 2
    ]
    assert long == [6, 8, 9, 10, 11]
    said = (ROOT / "docs" / "teach.md").read_text(encoding="utf-8")
    assert "Weeks 6 and 8 to 11 have three or four chapters" in said


def test_weeks_are_chosen_by_number_and_by_span() -> None:
    assert [week.number for week in select_weeks("1,3,5-6")] == [1, 3, 5, 6]
    assert len(select_weeks(None)) == 12
    for text in ("13", "0", "4-2", "1-99", "9999999999", "one", "", "1-", "-3", "1,,2"):
        with pytest.raises(RequestError):
            select_weeks(text)


def test_a_learners_files_are_written_once_and_kept(tmp_path: Path) -> None:
    written, there = start(tmp_path / "mine", select_weeks("3"))
    assert [path.name for path in written] == [
        "first_visit.py",
        "importance_weights.py",
        "two_averages.py",
    ] and not there
    written[0].write_text(FIRST_VISIT)
    more, kept = start(tmp_path / "mine", select_weeks("3-4"))
    assert len(more) == 6 and kept == written
    assert written[0].read_text() == FIRST_VISIT
    (tmp_path / "file").write_text("")
    with pytest.raises(RequestError, match="cannot write to"):
        start(tmp_path / "file", select_weeks("3"))


@pytest.mark.thorough
@in_a_sandbox
def test_a_class_is_graded_whatever_it_hands_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    ann, bob, eve, zoe = (tmp_path / "class" / name for name in ("ann", "bob", "=eve", "zoe"))
    for folder in (ann / "week", bob, eve, zoe):
        folder.mkdir(parents=True)
    # as an editor on Windows saves it
    (ann / "week" / "all.py").write_text("\ufeff" + FIRST_VISIT + WEIGHTS + AVERAGES)
    (bob / "first_visit.py").write_text(FIRST_VISIT.replace("0.0", "1.0"))
    (bob / "importance_weights.py").write_text(UPSIDE_DOWN)
    (bob / "two_averages.py").write_text("def two_average(G, weight):\n    return G\n")
    os.utime(bob / "importance_weights.py", (2e9, 2e9))
    (eve / "first_visit.py").write_text(FORGED)
    (eve / "importance_weights.py").write_text("def importance_weights(:\n")
    (zoe / "notes.py").write_bytes(b"\xff\xfe")
    (eve / "two_averages.py").write_text("def two_averages(G, weight):\n    while True: pass\n")
    options = ["--due", "2030-01-01", "--seconds", "1", "--jobs", "2", "--details", "said.csv"]
    assert main(["course", "grade", "class", "--weeks", "3", *options]) == 0
    shown = capsys.readouterr().out
    for line in (
        "ann      111",
        "bob      0h!     0/3     1     0        1",
        "=eve     !!!",
        "zoe      ---     0/3     0     3        0",
    ):
        assert line in shown
    for said in (
        "did not end within 1 seconds",
        "an answer is neither a number",
        "defines no function 'two_averages'; it has 'two_average'",
        "importance_weights.py cannot be read as Python",
        "zoe: cannot read notes.py",
        "1 × importance_weights: not right: it is the target's",
    ):
        assert said in shown
    head, *rows = csv.reader(Path("marks.csv").read_text().splitlines())
    assert head == [
        "student",
        "first_visit",
        "importance_weights",
        "two_averages",
        "week 3",
        "points",
        "of",
        "late",
        "missing",
        "hints",
    ]
    assert rows == [
        ["'=eve", "0", "0", "0", "0", "0", "3", "0", "0", "0"],
        ["ann", "1", "1", "1", "3", "3", "3", "0", "0", "0"],
        ["bob", "0", "0", "0", "0", "0", "3", "1", "0", "1"],
        ["zoe", "0", "0", "0", "0", "0", "3", "0", "3", "0"],
    ]
    assert len([*csv.reader(Path("said.csv").read_text().splitlines())]) == 1 + 4 * 3
    assert main(["course", "grade", "class", "--weeks", "3"]) == 2  # marks are not written over
    assert "marks.csv exists already" in capsys.readouterr().err
    assert main(["course", "grade", "class", "--out", "no/marks.csv"]) == 2
    assert "there is no folder no" in capsys.readouterr().err


@in_a_sandbox
@pytest.mark.slow
def test_programs_that_mean_harm_are_named_and_the_others_graded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    harm = {
        "exits": (
            "import sys\nsys.exit(0)\ndef first_visit(*given): return 1\n",
            "it calls exit()",
        ),
        "imports": ("import rlbook\ndef first_visit(*given): return 1\n", "ModuleNotFoundError"),
        "reads": (
            f"def first_visit(*given): return len(open({str(ROOT / 'README.md')!r}).read())\n",
            "Error",
        ),
        "starts": ("import os\ndef first_visit(*given): return os.system('true')\n", None),
        "connects": (
            (
                "import socket\ndef first_visit(*given): return"
                " socket.create_connection(('127.0.0.1', 9))\n"
            ),
            "Error",
        ),
        "eats": ("def first_visit(*given): return len(bytearray(10**11))\n", "MemoryError"),
        "prints": ("def first_visit(*given):\n    while True: print('x' * 10**6)\n", "did not end"),
        "sleeps": ("import time\ndef first_visit(*given): time.sleep(60)\n", "did not end"),
        "recurses": ("def first_visit(*given): return first_visit(*given)\n", "RecursionError"),
        "crashes": (
            "import ctypes\ndef first_visit(*given): ctypes.string_at(0)\n",
            "exit code -11",
        ),
        "steers": (
            "def first_visit(*given): raise ValueError('\\x1b[2J\\ud800')\n",
            "ValueError: ?[2J?",
        ),
        "nests": (
            "def first_visit(*given): return " + "(" * 5_000 + "\n",
            "cannot be read as Python",
        ),
        "counts": (FORGED.replace("* 24", "* 23"), "without an answer"),
        "objects": ("def first_visit(*given): return 10**400\n", "OverflowError"),
        "nothing": ("def first_visit(*given): return NotImplemented\n", None),
        "right": (FIRST_VISIT + "print('spoken')\n", None),
    }
    for name, (text, _) in harm.items():
        (tmp_path / "class" / name).mkdir(parents=True)
        (tmp_path / "class" / name / "first_visit.py").write_text(text)
    assert (
        main(
            ["course", "grade", "class", "--weeks", "3", "--seconds", "2", "--jobs", "4", "--json"]
        )
        == 0
    )
    facts = json.loads(capsys.readouterr().out)
    found = {student["student"]: student["marks"][0] for student in facts["students"]}
    assert {name for name, mark in found.items() if mark["points"]} == {"right"}
    for name, (_, said) in harm.items():
        assert said is None or (said in found[name]["said"] and found[name]["mark"] == "failed"), (
            found[name]
        )
    assert found["nothing"]["mark"] == "not begun"


def test_a_file_that_does_not_parse_is_named_for_each_function_in_it(tmp_path: Path) -> None:
    (tmp_path / "ann").mkdir()
    (tmp_path / "ann" / "all.py").write_text(FIRST_VISIT + WEIGHTS + "x = (\n")
    (row,) = grade(tmp_path, select_weeks("3"))
    assert [mark.mark for mark in row.marks] == ["failed", "failed", "missing"] and not row.unread
    assert "all.py cannot be read as Python: '(' was never closed (line 6)" in row.marks[0].said


def test_of_two_answers_it_is_said_which_one_counts(tmp_path: Path) -> None:
    """That in the file of its name, or else the first; not of two copies of one file."""
    (tmp_path / "ada" / "old").mkdir(parents=True)
    (tmp_path / "ada" / "a.py").write_text(UPSIDE_DOWN)
    (tmp_path / "ada" / "old" / "importance_weights.py").write_text(WEIGHTS)
    (row,) = grade(tmp_path, select_weeks("3"))
    here = str(Path("ada/old/importance_weights.py"))
    assert row.unread == (
        f"importance_weights is defined in {here} and in {Path('ada/a.py')};"
        f" the one in {here} counts",
    )
    (tmp_path / "ada" / "a.py").write_text(WEIGHTS)
    assert grade(tmp_path, select_weeks("3"))[0].unread == ()


def test_who_is_a_student(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="is not a folder"):
        students(tmp_path / "none")
    with pytest.raises(RequestError, match="holds no students' folders and no Python files"):
        students(tmp_path)
    (tmp_path / "ann").mkdir()
    (tmp_path / "ann" / ".venv").mkdir()
    (tmp_path / "ann" / ".venv" / "returns.py").write_text("")
    (tmp_path / "ann" / "returns.py").write_text("")
    (tmp_path / "ann" / "link.py").symlink_to("/etc/passwd")
    assert students(tmp_path) == {"ann": [tmp_path / "ann" / "returns.py"]}
    # one student's folder, flat
    assert students(tmp_path / "ann") == {"ann": [tmp_path / "ann" / "returns.py"]}
    (tmp_path / "ann" / "old").mkdir()  # an earlier try does not count before the last one
    (tmp_path / "ann" / "old" / "returns.py").write_text("")
    assert students(tmp_path)["ann"] == [
        tmp_path / "ann" / name for name in ("returns.py", "old/returns.py")
    ]
    (tmp_path / "bob.py").write_text("")
    with pytest.raises(RequestError, match=r"a loose file, bob\.py"):
        students(tmp_path)


def test_a_day_ends_at_midnight() -> None:
    assert deadline("2026-10-01").isoformat() == "2026-10-01T23:59:59.999999"
    assert deadline("2026-10-01T18:00").hour == 18
    with pytest.raises(RequestError, match="a date is written as"):
        deadline("1.10.2026")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["course", "grad", "class"], "did you mean 'grade'"),
        (["course", "week", "13"], "weeks 1 to 12"),
        (["course", "week"], "got nothing"),
        (["course", "start"], "one folder"),
        (["course", "start", "mine", "--weeks", "0"], "weeks 1 to 12"),
        (["course", "start", "mine", "--weks", "1"], "--weks"),
        (["course", "grade", "class"], "is not a folder"),
        (["course", "grade", "class", "--due", "soon"], "a date is written as"),
        (["course", "grade", "class", "--jobs", "0"], "jobs"),
        (["course", "grade", "class", "--seconds", "x"], "seconds"),
    ],
)
def test_a_wrong_request_is_one_sentence_and_writes_nothing(
    words: list[str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    assert said in capsys.readouterr().err
    assert not any(tmp_path.iterdir())


def test_no_output_of_a_grading_is_written_over_by_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "class" / "ann").mkdir(parents=True)
    assert main(["course", "grade", "class", "--details", "./marks.csv"]) == 2
    assert "marks.csv is named for two outputs" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["class"]


def test_the_syllabus_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["course"]) == 0
    assert capsys.readouterr().out.count("\nweek ") == 11
    assert main(["course", "week", "3", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["weeks"][0]["write"] == [
        "first_visit",
        "importance_weights",
        "two_averages",
    ]


def test_a_file_is_read_in_the_encoding_that_it_declares(tmp_path: Path) -> None:
    path = tmp_path / "first_visit.py"
    text = "# coding: {}\n# Löse es so:\n" + FIRST_VISIT
    for encoding in ("latin-1", "utf-8", "cp1252"):
        path.write_bytes(text.format(encoding).encode(encoding))
        assert functions_in(path) == (text.format(encoding), ["first_visit"])
    for wrong in (text.format("rot13"), text.format("klingon"), f"# ö\n{FIRST_VISIT}"):
        path.write_bytes(wrong.encode("latin-1"))
        with pytest.raises(RequestError, match=r"^cannot read .*first_visit\.py: "):
            functions_in(path)


def test_a_file_is_read_without_running_it(tmp_path: Path) -> None:
    path = tmp_path / "answer.py"
    path.write_text("1/0\ndef returns(rewards, gamma): return '\\d'\n")
    assert functions_in(path)[1] == ["returns"]
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(RequestError, match="cannot read"):
        check_file(path)


@in_a_sandbox
@pytest.mark.slow
def test_every_exercise_can_be_solved_with_numpy_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ann").mkdir()
    (tmp_path / "ann" / "all.py").write_text(
        Path(__file__).with_name("exercise_solutions.py").read_text()
    )
    assert main(["course", "grade", "ann", "--json"]) == 0
    (student,) = json.loads(capsys.readouterr().out)["students"]
    assert [mark for mark in student["marks"] if mark["mark"] != "right"] == []
    assert student["points"] == sum(not item.page for item in exercises().values())
    text = (tmp_path / "ann" / "all.py").read_text()
    of_pages = [item for item in exercises().values() if item.page]
    found = {item.name: check_answer(item, text).mark for item in of_pages}
    assert found == dict.fromkeys(found, RIGHT) and len(found) > 40
