"""The assignments: the key earns every point, a starter none, and each classic bug costs some."""

from __future__ import annotations

import ast
import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from rlbook.book.assignments import probes
from rlbook.book.assignments.assignment import Assignment, Bug, assignments, plant
from rlbook.book.assignments.find_the_bug import BUGS
from rlbook.book.assignments.hand_out import key_files, student_files
from rlbook.book.assignments.judging import Award, award, judge
from rlbook.book.course.syllabus import weeks
from rlbook.cli.main import main
from rlbook.llm.rewards.code import isolation_works

in_a_sandbox = pytest.mark.skipif(not isolation_works(), reason="this system offers no sandbox")
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
        ("groups of one mind", Bug("divides by zero", "(deviation + 1e-4)", "deviation")),
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
    assert "bob: ppo_maze: terminal: 0 of 2: after a terminated step nothing follows" in shown
    assert "ModuleNotFoundError" in shown and "SyntaxError" in shown
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
        (["grade", "class", "--assignments", "all", "--gradescope", "r.json"], "is no folder"),
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
    assert "2 files were there already" in capsys.readouterr().out
    assert main(["course", "key", "teacher"]) == 0
    assert len([*(tmp_path / "teacher").iterdir()]) == 2 * len(PLANTED)
