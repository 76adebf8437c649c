"""Exercises: the library's answer is right, every known mistake is told by its hint, and an answer
runs where it can do no harm."""

from __future__ import annotations

import ast
import contextlib
import json
import re
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlbook.book.exercises import checking
from rlbook.book.exercises.checking import (
    EMPTY,
    MISTAKEN,
    RIGHT,
    WRONG,
    check_file,
    compare_answers,
)
from rlbook.book.exercises.exercise import CASES, Exercise, exercises, start, starter
from rlbook.cli.main import main
from rlbook.errors import RequestError
from rlbook.llm.rewards.code import ProgramOutcome, isolation_works

DOCS = Path(__file__).parents[3] / "docs"
in_a_sandbox = pytest.mark.skipif(not isolation_works(), reason="this system has no sandbox")
ANSWER = (
    "import numpy as np\ndef running_mean(rewards):\n    return np.cumsum(rewards) / np.arange(1,"
    " len(rewards) + 1)\n"
)


def answers(item: Exercise, function) -> list:
    return [np.asarray(function(*case), dtype=float).tolist() for case in item.draw_cases()]


def test_there_are_at_least_forty_and_each_belongs_to_a_chapter() -> None:
    assert len(exercises()) >= 40
    assert {item.chapter for item in exercises().values()} <= {
        path.stem for path in (DOCS / "chapters").glob("*.md")
    }


def test_each_exercise_of_a_page_has_a_check_and_names_it() -> None:
    named, asked_of = {}, set()
    for path in (DOCS / "algorithms").glob("*.md"):
        asked = path.read_text(encoding="utf-8").partition("## Exercises\n")[2]
        number = ""
        for line in asked.splitlines():
            found = re.match(r"(\d+)\. ", line)
            number = found[1] if found else number
            asked_of |= {f"{path.stem} {number}"} if found else set()
            for name in re.findall(r"`rlbook exercise start (\w+)`", line):
                named[name] = f"{path.stem} {number}"
    assert named == {item.name: item.page for item in exercises().values() if item.page}
    assert asked_of - set(named.values()) == set()  # each has one


def test_a_title_is_a_whole_sentence() -> None:
    assert [item.title for item in exercises().values() if not item.title.endswith(".")] == []
    assert exercises()["first_visit"].title.endswith("and 0 where it was not visited.")


@pytest.mark.thorough(quick=1)
@pytest.mark.parametrize("name", exercises())
def test_the_librarys_answer_is_right_and_each_mistake_is_told_by_its_hint(name: str) -> None:
    item = exercises()[name]
    assert compare_answers(item, item.draw_cases(), answers(item, item.function)) == (
        RIGHT,
        "right",
    )
    assert item.mistakes
    for hint, mistake in item.mistakes.items():
        assert compare_answers(item, item.draw_cases(), answers(item, mistake)) == (
            MISTAKEN,
            f"not right: {hint}",
        )
    tree = ast.parse(starter(item))
    assert [part.name for part in tree.body if isinstance(part, ast.FunctionDef)] == [name]


NEVER_READ = {
    *("td_error", "lstd_weight", "td3_target", "fitted_target"),  # truncated: V goes on
    "life_targets",  # cut, likewise
    "linear_dqn_step",  # next_action: off-policy
    "loss_after_a_fall",  # fall: the difference stays
    "weight_of_a_token",  # lengths: the sum over tokens has no divisor
}
"""Exercises with an argument that the right answer doesn't need, which is what they ask about."""


@pytest.mark.thorough(quick=1)
@pytest.mark.parametrize("name", sorted(exercises().keys() - NEVER_READ))
def test_an_answer_that_takes_an_argument_for_a_constant_is_not_right(name: str) -> None:
    """The constant is what the first cases have."""
    item, number = exercises()[name], len(exercises()[name].draw_cases()[0])
    for place in range(number):
        for held in [case[place] for case in item.draw_cases()[:2]]:

            def constant(*case: Any, place: int = place, held: Any = held) -> Any:
                return item.function(*case[:place], held, *case[place + 1 :])

            with contextlib.suppress(ValueError, IndexError, TypeError, np.linalg.LinAlgError):
                found = answers(item, constant)
                assert compare_answers(item, item.draw_cases(), found).mark != RIGHT, place


def test_what_is_not_right_is_shown_with_the_case_or_the_shape() -> None:
    item = exercises()["running_mean"]
    off, short = answers(item, lambda rewards: np.cumsum(rewards)), [[0.0]] * CASES
    assert compare_answers(item, item.draw_cases(), off)[1].startswith(
        "not right: running_mean(rewards=np.array(["
    )
    assert "should have" in compare_answers(item, item.draw_cases(), short)[1]
    assert compare_answers(item, item.draw_cases(), [None] * CASES) == (
        EMPTY,
        "not yet: it returns nothing",
    )
    sometimes = [*answers(item, item.function)[:-1], None]  # a branch without its return
    mark, said = compare_answers(item, item.draw_cases(), sometimes)
    assert mark == WRONG and said.endswith("returns nothing") and "running_mean(rewards=" in said
    nothing = [[float("nan")] * len(case[0]) for case in item.draw_cases()]
    assert compare_answers(item, item.draw_cases(), nothing).mark == WRONG


def test_answers_to_some_of_the_cases_are_none() -> None:
    said = checking._answers_of(ProgramOutcome('{"answers": [1.0]}', 0), 2.0)
    assert said == "it ended with exit code 0 and without an answer"


@pytest.mark.thorough
@in_a_sandbox
def test_an_answer_runs_with_numpy_and_without_files_or_an_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, secret = tmp_path / "answer.py", tmp_path / "secret"
    secret.write_text("7")
    path.write_text(ANSWER)
    assert [verdict.said for verdict in check_file(path)] == ["right"]
    # parts of NumPy that it loads when they are asked for
    path.write_text(f"from numpy import *\nrandom.default_rng(0), ma.ones(2)\n{ANSWER}")
    assert [verdict.said for verdict in check_file(path)] == ["right"]
    for body, said in (
        (f"    return [float(open({str(secret)!r}).read())]", "Error"),
        ("    return rewards[99]", "it failed: IndexError"),
        ("    import os; os._exit(3)", "exit code 3"),
    ):
        path.write_text(f"def running_mean(rewards):\n{body}\n")
        (verdict,) = check_file(path)
        assert not verdict.right and said in verdict.said
    monkeypatch.setattr(checking, "SECONDS", 0.4)
    path.write_text("def running_mean(rewards):\n    while True: pass\n")
    assert (
        "did not end within 0.4 seconds" in check_file(path)[0].said
        or "exit code" in check_file(path)[0].said
    )


def test_an_answer_that_the_system_killed_is_not_called_slow() -> None:
    said = {
        signum: checking.last_line(ProgramOutcome("", -signum), 2.0)[1]
        for signum in (signal.SIGXCPU, signal.SIGKILL)
    }
    assert said[signal.SIGXCPU] == "it did not end within 2 seconds"
    assert "killed it" in said[signal.SIGKILL] and "memory" in said[signal.SIGKILL]


@in_a_sandbox
def test_the_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["exercise", "list", "--chapter", "bandits"]) == 0
    assert capsys.readouterr().out.startswith("running_mean")
    assert main(["exercise", "list", "--chapter", "dpo"]) == 0
    assert capsys.readouterr().out.startswith("where_ipo_stops")
    assert main(["exercise", "start", "running_mean"]) == 0
    assert main(["exercise", "start", "running_mean"]) == 2  # nobody's work is written over
    (tmp_path / "class").mkdir()
    (tmp_path / "class" / "ann.py").write_text(ANSWER)
    (tmp_path / "class" / "bob.py").write_text("def running_mean(rewards):\n    return rewards\n")
    (tmp_path / "class" / ".venv").mkdir()
    (tmp_path / "class" / ".venv" / "six.py").write_text("")  # no answer of anybody's
    capsys.readouterr()
    assert main(["exercise", "check", "class", "--json"]) == 1
    facts = json.loads(capsys.readouterr().out)
    assert (
        facts["right"],
        facts["of"],
        [Path(item["file"]).name for item in facts["answers"]],
    ) == (1, 2, ["ann.py", "bob.py"])
    assert facts["unread"] == []
    assert main(["exercise", "check", "class/ann.py"]) == 0


@in_a_sandbox
def test_check_takes_the_name_that_start_took(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["exercise", "start", "running_mean"]) == 0
    assert "rlbook exercise check running_mean\n" in capsys.readouterr().out
    assert main(["exercise", "start", "running_mean", "--out", "my own.py"]) == 0
    assert "rlbook exercise check 'my own.py'\n" in capsys.readouterr().out
    assert "rlbook exercise check 'my own.py'\n" in Path("my own.py").read_text()
    assert main(["exercise", "check", "running_mean"]) == 1
    assert "not yet" in capsys.readouterr().out
    (tmp_path / "running_mean").mkdir()  # whose name is no answer
    (tmp_path / "running_mean.py").write_text(ANSWER)
    assert main(["exercise", "check", "running_mean"]) == 0


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("returns", "returns.py does not exist; rlbook exercise start returns writes it"),
        ("retruns", "no file, folder or exercise 'retruns'; did you mean 'returns'?"),
    ],
)
def test_what_was_not_started_cannot_be_checked(
    asked: str,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["exercise", "check", asked, "--trust"]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = (", "cannot be read as Python"),
        ("def runing_mean(rewards): pass", "did you mean 'running_mean'"),
        ("", "defines no exercise's function"),
    ],
)
def test_a_file_that_is_no_answer_is_one_sentence(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "answer.py").write_text(text)
    with pytest.raises(RequestError, match=message):
        check_file(tmp_path / "answer.py")
    with pytest.raises(RequestError, match="did you mean 'returns'"):
        start("retruns", tmp_path / "new.py")
    assert not (tmp_path / "new.py").exists()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "project",  # of two returns the farther one gets more
            "import math\ndef project(p, reward, terminated):\n    found = [0.0] * 4\n"
            "    for z, share in enumerate(p):\n"
            "        b = min(max(reward + 0.5 * z * (not terminated), 0), 3)\n"
            "        low, high = math.floor(b), math.ceil(b)\n"
            "        found[low] += share * (b - low if low < high else 1)\n"
            "        found[high] += share * (high - b)\n    return found\n",
        ),
        (
            "beam_weights",  # 0 / 0 where all scores are equal
            "import numpy as np\ndef beam_weights(s, tau):\n"
            "    odds = np.exp((s - s.mean()) / s.std() / tau)\n    return odds / odds.sum()\n",
        ),
        (
            "two_averages",  # divides by the returns that have a weight
            "def two_averages(G, w):\n"
            "    return (w * G).sum() / (w > 0).sum(), (w * G).sum() / w.sum()\n",
        ),
        (
            "q_learning_step",  # the table itself, and no new array
            "def q_learning_step(q, s, a, r, after, over):\n"
            "    q[s, a] += 0.5 * (r + 0.9 * (not over) * q[after].max() - q[s, a])\n    return q\n",
        ),
    ],
)
def test_an_answer_that_is_wrong_in_few_cases_is_not_right(name: str, text: str) -> None:
    assert checking.check_answer(exercises()[name], text, isolate=False).mark != RIGHT


def test_an_answer_may_define_a_dataclass_with_later_annotations() -> None:
    text = (
        "from __future__ import annotations\nfrom dataclasses import dataclass\n\n@dataclass\n"
        f"class Sum:\n    total: float = 0.0\n\n{ANSWER}"
    )
    assert checking.check_answer(exercises()["running_mean"], text, isolate=False).mark == RIGHT
