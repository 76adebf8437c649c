"""The assignments: the key earns every point, a starter none, and each classic bug costs some."""

from __future__ import annotations

import ast
import csv
import importlib.util
import json
import os
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import torch

from rlbook.book.assignments import judging, probes
from rlbook.book.assignments.assignment import (
    KEY,
    Assignment,
    Bug,
    RubricLine,
    assignments,
    plant,
    reaches,
)
from rlbook.book.assignments.find_the_bug import BUGS
from rlbook.book.assignments.hand_out import key_files, student_files
from rlbook.book.assignments.judging import Award, award, judge, right_answers
from rlbook.book.course.syllabus import weeks
from rlbook.book.exercises.checking import EMPTY, RIGHT, WRONG
from rlbook.book.exercises.grading import MISSING, Mark, MarkRow, deadline
from rlbook.book.exercises.mark_formats import as_nbgrader
from rlbook.cli.main import main
from rlbook.llm.rewards.code import isolation_works

in_a_sandbox = pytest.mark.skipif(not isolation_works(), reason="this system has no sandbox")
SEED = 4711
PLANTED = {
    "dqn_catch": (
        ("terminal", Bug("bootstraps through the end", " * ~terminated\n", "\n")),
        (
            "gradient",
            Bug(
                "trains the target",
                "    with torch.no_grad():\n        following",
                "    if True:\n        following",
            ),
        ),
        (
            "loss",
            Bug(
                "broadcasts",
                ".gather(1, batch.action[:, None])[:, 0]",
                ".gather(1, batch.action[:, None])",
            ),
        ),
        (
            "loss",
            Bug(
                "takes the best action",
                "q_net(batch.obs).gather(1, batch.action[:, None])[:, 0]",
                "q_net(batch.obs).max(dim=1).values",
            ),
        ),
        (
            "target network",
            Bug("never syncs", "self.updates % self.sync_every == 0", "self.updates < 0"),
        ),
        (
            "target network",
            Bug("always syncs", "self.updates % self.sync_every == 0", "self.updates > 0"),
        ),
        (
            "target network",
            Bug(
                "is no copy",
                "self.target_net.load_state_dict(self.q_net.state_dict())",
                "self.target_net = self.q_net",
            ),
        ),
        ("targets", Bug("averages", ".max(dim=1).values", ".mean(dim=1)")),
        ("update", Bug("adds up the gradients", "        self.optimizer.zero_grad()\n", "")),
        (
            "exploration",
            Bug(
                "explores too little",
                "self.rng.random() < epsilon",
                "self.rng.random() < epsilon**2",
            ),
        ),
    ),
    "ppo_maze": (
        (
            "terminal",
            Bug(
                "bootstraps through the end",
                "next_value * ~terminated - value",
                "next_value - value",
            ),
        ),
        (
            "time limit",
            Bug(
                "takes the limit for an end",
                "next_value * ~terminated - value",
                "next_value * ~(terminated | truncated) - value",
            ),
        ),
        (
            "time limit",
            Bug(
                "goes on into the next episode",
                "goes_on = not (terminated[step] or truncated[step])",
                "goes_on = not terminated[step]",
            ),
        ),
        (
            "gradient",
            Bug(
                "trains the critic by the policy's loss",
                "old_log_prob.detach(), advantage.detach()",
                "old_log_prob.detach(), advantage",
            ),
        ),
        (
            "clipped loss",
            Bug(
                "turns the ratio over",
                "(log_prob - old_log_prob).exp()",
                "(old_log_prob - log_prob).exp()",
            ),
        ),
        ("clipped loss", Bug("takes the larger product", "torch.minimum(", "torch.maximum(")),
        (
            "update",
            Bug(
                "compares the policy with itself",
                "policy_loss(log_prob, rollout.log_prob,",
                "policy_loss(log_prob, log_prob.detach(),",
            ),
        ),
        ("update", Bug("makes one epoch", "range(self.epochs)", "range(1)")),
        (
            "entropy",
            Bug(
                "minimises the entropy",
                "- self.entropy_coef * entropy",
                "+ self.entropy_coef * entropy",
            ),
        ),
        (
            "acting",
            Bug(
                "tells another log-probability", "float(log_prob[action])", "float(log_prob.max())"
            ),
        ),
        (
            "episodes",
            Bug(
                "after the reset",
                "            rows.append(\n"
                "                (obs, action, log_prob, float(reward), int(next_obs), terminated,"
                " truncated)\n            )\n"
                "            obs = int(env.reset()[0]) if terminated or truncated else int(next_obs)\n",
                "            before = obs\n"
                "            obs = int(env.reset()[0]) if terminated or truncated else int(next_obs)\n"
                "            rows.append(\n"
                "                (before, action, log_prob, float(reward), obs, terminated, truncated)\n"
                "            )\n",
            ),
        ),
        ("advantages", Bug("forgets lambda", "gamma * lam * goes_on", "gamma * goes_on")),
    ),
    "grpo_sums": (
        (
            "groups",
            Bug(
                "compares the prompts",
                "reward.mean(dim=1, keepdim=True), reward.std(dim=1, keepdim=True)",
                "reward.mean(dim=0, keepdim=True), reward.std(dim=0, keepdim=True)",
            ),
        ),
        (
            "groups",
            Bug(
                "compares everything",
                "reward.mean(dim=1, keepdim=True), reward.std(dim=1, keepdim=True)",
                "reward.mean(), reward.std()",
            ),
        ),
        ("identical rewards", Bug("divides by zero", "(deviation + 1e-4)", "deviation")),
        (
            "mask",
            Bug("leaves the end out", "ends.cumsum(dim=1) - ends == 0", "ends.cumsum(dim=1) == 0"),
        ),
        ("mask", Bug("counts everything", "ends.cumsum(dim=1) - ends == 0", "ends >= 0")),
        (
            "padding",
            Bug(
                "masks after the exponential",
                "torch.where(mask, log_prob - old_log_prob, 0.0).exp()",
                "(log_prob - old_log_prob).exp()",
            ),
        ),
        (
            "loss",
            Bug(
                "averages over all tokens",
                "    per_text = (surrogate * mask).sum(dim=1) / mask.sum(dim=1)\n    return -per_text.mean()",
                "    return -(surrogate * mask).sum() / mask.sum()",
            ),
        ),
        ("loss", Bug("divides by the width", "/ mask.sum(dim=1)", "/ mask.shape[1]")),
        (
            "gradient",
            Bug("lets the advantage learn", "advantage.detach()[:, None]", "advantage[:, None]"),
        ),
        (
            "log-probabilities",
            Bug(
                "normalises over time",
                "torch.log_softmax(logits, dim=-1).gather(2",
                "torch.log_softmax(logits, dim=1).gather(2",
            ),
        ),
    ),
    "find_the_bug": tuple(("mended", bug) for bug in BUGS),
}
VISIBILITY = {"enum": ["hidden", "after_due_date", "after_published", "visible"]}
FORMAT = {"enum": ["text", "html", "simple_format", "md", "ansi"]}
# Source: https://gradescope-autograders.readthedocs.io/en/latest/specs/
GRADESCOPE = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "score": {"type": "number"},
        "execution_time": {"type": "number"},
        "output": {"type": "string"},
        "output_format": FORMAT,
        "test_output_format": FORMAT,
        "test_name_format": FORMAT,
        "visibility": VISIBILITY,
        "stdout_visibility": VISIBILITY,
        "extra_data": {"type": "object"},
        "leaderboard": {"type": "array"},
        "tests": {
            "type": "array",
            "items": {
                "type": "object",
                "additionalProperties": False,
                "properties": {
                    "score": {"type": "number"},
                    "max_score": {"type": "number"},
                    "status": {"enum": ["passed", "failed"]},
                    "name": {"type": "string"},
                    "name_format": FORMAT,
                    "number": {"type": "string"},
                    "output": {"type": "string"},
                    "output_format": FORMAT,
                    "tags": {"type": "array", "items": {"type": "string"}},
                    "visibility": VISIBILITY,
                    "extra_data": {"type": "object"},
                },
            },
        },
    },
    "anyOf": [
        {"required": ["score"]},
        {
            "required": ["tests"],
            "properties": {"tests": {"minItems": 1, "items": {"required": ["score"]}}},
        },
    ],
}
CASES = [
    pytest.param(name, criterion, bug, id=f"{name}: {bug.name}")
    for name, bugs in PLANTED.items()
    for criterion, bug in bugs
]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def quick_awards(item: Assignment, text: str) -> dict[str, Award]:
    """The criteria without training, in this process."""
    asked = [criterion for criterion in item.rubric if not criterion.trains]
    cases = [item.draw_cases(criterion, SEED) for criterion in asked]
    told = probes.report(text, list(zip([row.probe for row in asked], cases, strict=True)))
    return {
        row.name: award(item, row, drawn, json.loads(json.dumps(answer)))
        for row, drawn, answer in zip(asked, cases, told, strict=True)
    }


def training_award(item: Assignment, name: str, text: str) -> Award:
    (row,) = [criterion for criterion in item.rubric if criterion.name == name]
    cases = item.draw_cases(row, SEED)
    return award(item, row, cases, probes.report(text, [(row.probe, cases)])[0])


@pytest.mark.thorough(quick=1)
@pytest.mark.parametrize("name", [*PLANTED])
def test_the_key_earns_every_point_and_a_starter_none(name: str) -> None:
    item = assignments()[name]
    found = quick_awards(item, item.solution)
    assert all(row.points == row.of and row.said == "right" for row in found.values()), found
    for row in quick_awards(item, item.starter(SEED)).values():
        assert row.points == 0
        assert row.said == "not yet" or item.bugs


@pytest.mark.thorough(quick=1)
@pytest.mark.parametrize(("name", "criterion", "bug"), CASES)
def test_each_classic_bug_costs_its_points_and_the_reason_is_one_sentence(
    name: str, criterion: str, bug: Bug
) -> None:
    item = assignments()[name]
    found = quick_awards(item, plant(item.solution, bug))
    assert found[criterion].points == 0
    assert found[criterion].said != "right" and "\n" not in found[criterion].said
    # a mistake costs one criterion; where rewards are compared across prompts, two are about that
    also = {"identical rewards"} if criterion == "groups" else set()
    assert {row.criterion for row in found.values() if row.points < row.of} == {criterion} | also


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "criterion", "bug"),
    [
        (
            "dqn_catch",
            "time limit",
            Bug(
                "limit as end",
                "float(reward), next_obs, bool(terminated))",
                "float(reward), next_obs, bool(terminated or truncated))",
            ),
        ),
        (
            "dqn_catch",
            "learns",
            Bug("never syncs", "self.updates % self.sync_every == 0", "self.updates < 0"),
        ),
        (
            "ppo_maze",
            "learns",
            Bug("sign", "    return -torch.minimum(", "    return torch.minimum("),
        ),
        (
            "grpo_sums",
            "learns",
            Bug("sign", "    return -per_text.mean()", "    return per_text.mean()"),
        ),
    ],
)
def test_training_with_a_bug_loses_the_points_that_the_key_earns(
    name: str, criterion: str, bug: Bug
) -> None:
    item = assignments()[name]
    right = training_award(item, criterion, item.solution)
    assert right.points == right.of, right
    wrong = training_award(item, criterion, plant(item.solution, bug))
    assert wrong.points < wrong.of, wrong


def test_a_student_gets_nothing_of_the_key() -> None:
    files = student_files([*assignments().values()], seed=3)
    assert {*files} == {f"{name}{end}" for name in PLANTED for end in (".py", ".md")}
    for name, item in assignments().items():
        starter, solution = files[f"{name}.py"], item.solution
        assert "SOLUTION" not in starter and starter != solution
        ast.parse(starter)
        hidden = [
            line
            for block in solution.split("### BEGIN SOLUTION\n")[1:]
            for line in block.split("### END SOLUTION")[0].splitlines()
        ]
        assert bool(hidden) != bool(item.bugs)
        # a line such as `for step in range(steps):` may stand in what is given as well
        told = [line for line in hidden if len(line.strip()) > 40 and line in starter]
        assert told == []
        for row in item.rubric:
            assert row.asks in files[f"{name}.md"]
    assert "one bug" in files["find_the_bug.md"]


def test_another_seed_is_another_bug_and_other_cases() -> None:
    item = assignments()["find_the_bug"]
    assert {item.bug_of(seed).name for seed in range(100)} == {bug.name for bug in BUGS}
    assert item.starter(3) == item.starter(3)
    row = assignments()["dqn_catch"].rubric[0]
    drawn = [assignments()["dqn_catch"].draw_cases(row, seed) for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]


def test_the_key_says_which_bug_a_seed_has() -> None:
    text = key_files([assignments()["find_the_bug"]], seed=5)["find_the_bug-key.md"]
    assert f"seed 5 {assignments()['find_the_bug'].bug_of(5).name}" in text


def test_every_assignment_belongs_to_a_week_that_reads_its_chapters() -> None:
    for item in assignments().values():
        read = {page for week in weeks()[: item.week] for page in week.read}
        assert {f"chapters/{name}" for name in item.chapters} <= read
        assert item.points == (12 if item.bugs else 20)


@pytest.mark.thorough(quick=1)
@pytest.mark.parametrize(
    "told",
    [None, 3, [], {}, {"answers": 7}, {"answers": []}, {"answers": [None] * 4}]
    + [
        {"answers": [value] * 4}
        for value in ("x", [], [[[]]], {"a": 1}, [None], 1e999, [[1], [2, 3]])
    ],
)
def test_whatever_a_file_tells_is_judged(told: Any) -> None:
    for item in assignments().values():
        for row in item.rubric:
            found = award(item, row, item.draw_cases(row, SEED)[:4], told)
            assert found.points == 0 and found.said


def test_a_part_of_the_points_is_rounded_down_and_a_run_that_just_reaches_the_number_counts() -> (
    None
):
    judged = reaches(2.0, 3.0, "the return", lambda case, answer: float(answer))
    item, cases = assignments()["ppo_maze"], [{}, {}, {}]
    for points, found, earned in (
        (5, [2.0, 1.9, 3.0], 3),  # two of three runs: 3.3 of 5
        (4, [2.0, 1.9, 3.0], 2),  # 2.7 of 4
        (3, [2.0, 1.9, 1.9], 1),  # a third of 3 is one
        (4, [2.0, 2.0, 2.0], 4),
    ):
        row = RubricLine("trains", points, "", "", lambda rng: [], judged, trains=True)
        told = award(item, row, cases, {"answers": found})
        assert (told.points, told.of) == (earned, points)
        assert told.mark == (RIGHT if earned == points else WRONG)


def test_threads_that_grade_at_once_agree_on_what_is_right() -> None:
    # with two solutions at work at the same time, one draws what torch's generator has for the other
    item = assignments()["dqn_catch"]
    (row,) = [row for row in item.rubric if row.name == "update"]
    drawn = [item.draw_cases(row, seed) for seed in range(16)]

    def in_threads(threads: int) -> list[Any]:
        judging._right_answers.cache_clear()
        with ThreadPoolExecutor(threads) as pool:
            return list(pool.map(lambda cases: right_answers(item, row, cases), drawn))

    assert in_threads(8) == in_threads(1)


@pytest.mark.parametrize("name", ["dqn_catch", "ppo_maze", "grpo_sums"])
def test_a_program_does_not_see_what_its_world_is_made_of(name: str) -> None:
    seen = []
    student = probes.load("def train(world, **more): seen.append(world); raise NotImplementedError")
    vars(student)["seen"] = seen
    (row,) = [row for row in assignments()[name].rubric if row.name == "learns"]
    assert probes.run_probe(student, row.probe, assignments()[name].draw_cases(row, 0)) == {
        "error": "not yet"
    }
    assert {*vars(seen[0])} <= {
        *("reset", "step", "observation_space", "action_space"),
        *("prompts", "examples", "reward"),
    }


@in_a_sandbox
@pytest.mark.slow
@pytest.mark.parametrize(
    ("cheat", "said"),
    [
        (
            # what the right file would make the runner print
            "import json, os\nos.write(1, json.dumps({'token': None, 'told': [{'answers':"
            " [[True, False]] * 4}] * 9}).encode())\nos._exit(0)\n",
            "it ended with exit code 0 and without an answer",
        ),
        (
            "import os, signal\nfor pid in (os.getppid(), 1, -1, 0):\n    os.kill(pid,"
            " signal.SIGKILL)\n",
            "PermissionError",
        ),
        (
            "from rlbook.book.assignments.key.dqn_catch import *\n",
            "No module named 'rlbook'",
        ),
        (f"exec(open({str(KEY / 'dqn_catch.py')!r}).read())\n", "Error"),
        ("while True: pass\n", "it did not end within 2 seconds"),
        ("import subprocess\nsubprocess.run(['true'])\n", "Error"),
        ("import sys\nsys.exit(0)\n", "SystemExit"),
    ],
)
def test_a_cheat_earns_nothing_and_the_grader_goes_on(cheat: str, said: str) -> None:
    item = assignments()["dqn_catch"]
    limit = 2.0 if "while" in cheat else None
    found = judge(item, item.starter() + cheat, seconds=limit)
    assert [row.points for row in found] == [0] * len(item.rubric)
    assert all(said in row.said for row in found), found


def test_an_assignment_is_late_or_missing_once_however_many_criteria_it_has(
    tmp_path: Path,
) -> None:
    def mark(student: str, name: str, mark: str, late: bool) -> Mark:
        return Mark(student, 6, f"dqn_catch: {name}", "", mark, 0, "", late, 2, "dqn_catch")

    def row(*marks: str, late: bool = False) -> MarkRow:
        return MarkRow(
            "ann", tuple(mark("ann", f"{i}", sign, late) for i, sign in enumerate(marks))
        )

    assert (row(RIGHT, WRONG, EMPTY, late=True).late, row(RIGHT, WRONG, EMPTY).missing) == (1, 0)
    assert (row(EMPTY, EMPTY, EMPTY).missing, row(MISSING).missing) == (1, 1)


def test_a_week_has_the_points_of_its_exercises_and_an_assignment_those_of_its_criteria() -> None:
    marks = [
        Mark("ann", week, name, "", RIGHT, points, "", False, points, assignment)
        for week, name, points, assignment in (
            (5, "returns", 1, ""),
            (6, "td_target", 1, ""),
            (6, "dqn_catch: update", 4, "dqn_catch"),
            (6, "dqn_catch: trains", 3, "dqn_catch"),
        )
    ]
    row = MarkRow("ann", tuple(marks))
    assert [row.points(week) for week in (5, 6, 7)] == [1, 1, 0]
    assert row.points_of("dqn_catch") == 4 + 3 and row.points() == row.total == 1 + 1 + 4 + 3


@in_a_sandbox
@pytest.mark.slow
def test_a_class_hands_assignments_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    item = assignments()["ppo_maze"]
    files = {
        "ann": item.solution,
        "bob": plant(item.solution, PLANTED["ppo_maze"][0][1]),
        "cleo": "import rlbook.algorithms\n",
        "dan": "def gae(:\n",
        "eve": None,
    }
    for name, text in files.items():
        (tmp_path / "class" / name).mkdir(parents=True)
        if text is not None:
            (tmp_path / "class" / name / "ppo_maze.py").write_text(text)
    options = ["--assignments", "ppo_maze", "--seed", "9", "--details", "said.csv"]
    assert main(["course", "grade", "class", *options, "--nbgrader", "nb.csv"]) == 0
    shown = capsys.readouterr().out
    assert "ann      20/20" in shown and "eve      0/20" in shown
    assert "bob: ppo_maze: terminal: 0 of 2: after a terminated step no value follows" in shown
    assert shown.count("ModuleNotFoundError") == shown.count("SyntaxError") == 1
    assert "dan: ppo_maze: advantages, terminal, time limit, " in shown
    rows = [*csv.DictReader(Path("nb.csv").read_text().splitlines())]
    assert [(row["student_id"], row["assignment"], row["max_score"]) for row in rows] == [
        (name, "ppo_maze", "20") for name in files
    ]
    assert rows[0]["score"] == "20" and int(rows[1]["score"]) in range(10, 20)
    assert (
        main(
            [
                "course",
                "grade",
                "class/bob",
                *options[:4],
                "--out",
                "b.csv",
                "--gradescope",
                "r.json",
            ]
        )
        == 0
    )
    result = json.loads(Path("r.json").read_text())
    assert result["score"] == int(rows[1]["score"]) == sum(row["score"] for row in result["tests"])
    assert sum(row["max_score"] for row in result["tests"]) == 20
    jsonschema.validate(result, GRADESCOPE)


def test_whatever_lies_in_a_submission_there_is_a_result_for_gradescope(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "submission").mkdir()
    options = ["--assignments", "dqn_catch", "--trust"]
    for name in ("", "report.pdf", "src/model.py", "old/model.py", "my_dqn_catch.py"):
        file = tmp_path / "submission" / name
        if name:
            file.parent.mkdir(exist_ok=True)
            file.write_text("x = 1\n")
        for old in ("marks.csv", "results.json"):
            (tmp_path / old).unlink(missing_ok=True)
        words = ["course", "grade", "submission", *options, "--gradescope", "results.json"]
        assert main(words) == 0
        result = json.loads(Path("results.json").read_text())
        jsonschema.validate(result, GRADESCOPE)
        (test,) = result["tests"]
        assert (result["score"], test["score"], test["max_score"]) == (0, 0, 20)
    assert test["output"] == ("not handed in; my_dqn_catch.py should be called dqn_catch.py")


@pytest.mark.parametrize(
    "wrong",
    [
        {"score": "17"},
        {"tests": [{"status": "partial"}]},
        {"tests": [{"visibility": "public"}]},
        {"tests": [{"score": 1, "points": 2}]},
        {"output": "no score, and no tests"},
    ],
)
def test_the_schema_refuses_what_gradescope_does_not_read(wrong: dict[str, Any]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(wrong, GRADESCOPE)


@pytest.mark.filterwarnings("ignore")  # nbgrader's own
def test_nbgrader_reads_the_marks_and_exports_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = pytest.importorskip("nbgrader.api", reason="nbgrader is not installed")
    plugins = pytest.importorskip("nbgrader.plugins")
    # nbgrader starts alembic by its name
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    path = Path(__file__).parents[3] / "docs" / "nbgrader_import.py"
    spec = importlib.util.spec_from_file_location("nbgrader_import", path)
    assert spec is not None and spec.loader is not None
    spec.loader.exec_module(script := importlib.util.module_from_spec(spec))
    marks = [("ann", RIGHT, 20), ("bob", WRONG, 17), ("eve", MISSING, 0)]
    rows = [
        MarkRow(name, (Mark(name, 6, "", "", sign, points, "", False, 20, "dqn_catch"),))
        for name, sign, points in marks
    ]
    item = assignments()["dqn_catch"]
    written = [*csv.DictReader(as_nbgrader(rows, [], [item], deadline("2026-10-01")).splitlines())]
    with api.Gradebook(f"sqlite:///{tmp_path}/gradebook.db") as book:
        for _ in range(2):  # new marks take the place of the old ones
            script.import_marks(written, book)
        plugins.CsvExportPlugin(to=str(tmp_path / "grades.csv")).export(book)
    exported = [*csv.DictReader((tmp_path / "grades.csv").read_text().splitlines())]
    numbers = ("raw_score", "late_submission_penalty", "score", "max_score")
    for row, other in zip(written, exported, strict=True):
        assert {name: float(row.pop(name)) for name in numbers} == {
            name: float(other.pop(name)) for name in numbers
        }
        assert row == other


@in_a_sandbox
@pytest.mark.thorough
def test_a_file_may_print_a_tensor_and_use_all_of_numpy() -> None:
    item = assignments()["grpo_sums"]
    line, more = item.rubric[0], "print(torch.ones(2), np.random.default_rng(0), np.ma.ones(2))"
    cases = item.draw_cases(line, SEED)
    text = f"{item.solution}\nimport numpy as np\n{more}\n"
    (report,) = judging._run(text, [line], [cases], judging.SECONDS, True)
    assert award(item, line, cases, report) == Award("mask", RIGHT, 2, 2, "right")


@in_a_sandbox
@pytest.mark.slow
@pytest.mark.parametrize("name", [*PLANTED])
def test_the_key_earns_every_point_in_the_sandbox(name: str) -> None:
    item = assignments()[name]
    found = judge(item, item.solution, seed=SEED)
    assert sum(row.points for row in found) == item.points, found


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["start", "mine", "--assignments", "dqn_cach"], "did you mean 'dqn_catch'"),
        (["start", "mine", "--assignments", "dqn_catch", "--seed", "-1"], "seed"),
        (["grade", "class", "--assignments", "all", "--gradescope", "r.json"], "is not a folder"),
        (["key"], "one folder"),
    ],
)
def test_a_wrong_request_writes_nothing(
    words: list[str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["course", *words]) == 2
    assert said in capsys.readouterr().err
    assert not any(tmp_path.iterdir())


def test_start_and_key_write_their_files_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["course", "start", "mine", "--assignments", "dqn_catch"]) == 0
    assert sorted(path.name for path in (tmp_path / "mine").iterdir()) == [
        "dqn_catch.md",
        "dqn_catch.py",
    ]
    (tmp_path / "mine/dqn_catch.py").write_text("mine")
    assert main(["course", "start", "mine", "--assignments", "all"]) == 0
    assert (tmp_path / "mine/dqn_catch.py").read_text() == "mine"
    assert "2 files existed already" in capsys.readouterr().out
    assert main(["course", "key", "teacher"]) == 0
    assert len([*(tmp_path / "teacher").iterdir()]) == 2 * len(PLANTED)
