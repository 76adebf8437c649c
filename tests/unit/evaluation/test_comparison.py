"""Comparing runs: the interquartile mean by hand, groups of seeds, and what is refused."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
from closeness import near

import rlbook
from rlbook.cli import main as cli
from rlbook.evaluation.comparison import (
    LAST,
    final_return,
    improvements,
    interquartile_mean,
    probability_of_improvement,
    settings_of,
    shorten_value,
)


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ([7.0], 7.0),
        ([1.0, 5.0], (1 + 5) / 2),
        ([100.0, 2.0, 4.0, -50.0], (2 + 4) / 2),
        (
            [0.0, 1.0, 2.0, 3.0, 90.0],
            (0.75 * 1 + 2 + 0.75 * 3) / 2.5,
        ),  # 5/4 of the runs are left out on each side
        (list(range(8)), (2 + 3 + 4 + 5) / 4),
    ],
)
def test_the_interquartile_mean_is_the_mean_of_the_middle_half(
    scores: list[float], expected: float
) -> None:
    assert interquartile_mean(np.array(scores)) == near(expected, terms=len(scores))


def test_a_run_comes_to_its_last_evaluation_or_to_the_mean_of_its_last_reports() -> None:
    early = [{"return": 100.0, "eval_return": None}, {"return": 50.0}]
    late = [{"return": float(value)} for value in range(LAST)]
    assert final_return([*early, *late, {"length": 3.0}]) == near((LAST - 1) / 2, terms=LAST)
    assert final_return(early) == near((100 + 50) / 2, terms=2)
    evaluated = [{"eval_return": 1.0}, *late, {"eval_return": 2.0}, {"return": 7.0}]
    assert final_return(evaluated) == 2.0
    assert final_return([{"length": 3.0}]) is None


def write(folder: Path, seed: int, reports: list[dict[str, float]], alpha: float = 0.1) -> str:
    folder.mkdir()
    config = {
        "algorithm": "q_learning",
        "env": "rlbook/Maze-v0",
        "seed": seed,
        "hyperparameters": {"alpha": alpha},
    }
    (folder / "config.yaml").write_text(json.dumps(config))
    (folder / "metrics.jsonl").write_text("".join(json.dumps(report) + "\n" for report in reports))
    return str(folder)


def test_runs_that_differ_in_their_seed_are_one_row(tmp_path: Path) -> None:
    ours = [
        write(tmp_path / f"a{seed}", seed, [{"step": 9, "eval_return": float(seed)}])
        for seed in range(4)
    ]
    other = write(
        tmp_path / "b", 0, [{"step": 9, "return": 3.0}, {"step": 10, "return": 5.0}], alpha=0.5
    )
    first, second = rlbook.compare([*ours, other])
    assert (first.algorithm, first.env, first.folders) == ("q_learning", "Maze-v0", tuple(ours))
    assert first.interquartile_mean == (1 + 2) / 2
    low, high = first.confidence_interval
    assert 0 <= low < 1.5 < high <= 3 and rlbook.compare(ours)[0].confidence_interval == (low, high)
    assert (second.interquartile_mean, second.confidence_interval) == ((3 + 5) / 2, (4.0, 4.0))


def test_runs_that_differ_in_their_budget_are_told_apart(tmp_path: Path) -> None:
    report = [{"step": 9, "eval_return": 1.0}]
    folders = []
    for name, steps in (("short", 100), ("long", 900)):
        folders.append(write(tmp_path / name, 0, report))
        config = tmp_path / name / "config.yaml"
        config.write_text(config.read_text().replace("{", f'{{"steps": {steps}, ', 1))
    assert rlbook.compare(folders).labels() == ["q_learning, steps 100", "q_learning, steps 900"]


def test_runs_whose_long_settings_begin_alike_are_told_apart(tmp_path: Path) -> None:
    report = [{"step": 9, "eval_return": 1.0}]
    paths = [f"preferences/of/the/first/year/{name}.jsonl" for name in ("first", "second")]
    folders = [write(tmp_path / str(place), 0, report) for place in range(2)]
    for folder, path in zip(folders, paths, strict=True):
        config = Path(folder) / "config.yaml"
        config.write_text(config.read_text().replace("{", f'{{"data": "{path}", ', 1))
    rows = rlbook.compare(folders)
    assert rows.labels() == [f"q_learning, data {path}" for path in paths]
    assert len(improvements(rows)) == 1


def test_worlds_whose_long_arguments_begin_alike_are_told_apart(tmp_path: Path) -> None:
    """One algorithm in two worlds, which another has, too: both worlds count for the chance."""
    report = [{"step": 9, "eval_return": 1.0}]
    maps = ["SFFFFFFFFFFFFFFFFFFFFFFFG", "SFFFFFFFFFFFFFFFFFFFFFFHG"]
    folders = []
    for place, (desc, alpha) in enumerate(itertools.product(maps, (0.1, 0.5))):
        folders.append(write(tmp_path / str(place), 0, report, alpha))
        config = Path(folders[-1]) / "config.yaml"
        world = f'{{"env_kwargs": {{"desc": "{desc}"}}, '
        config.write_text(config.read_text().replace("{", world, 1))
    rows = rlbook.compare(folders)
    assert len({row.world for row in rows}) == 2
    assert all(len(row.world) == len("Maze-v0 (desc=)") + 24 for row in rows)
    (chance,) = improvements(rows)
    assert len(chance.worlds) == 2


def test_a_comparison_is_shown_as_the_table_of_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folders = [
        write(tmp_path / name, 0, [{"step": 9, "eval_return": score}], alpha=alpha)
        for name, score, alpha in (("one", 12345.0, 0.1), ("other", -1.5, 0.5))
    ]
    rows = rlbook.compare(folders)
    assert repr(rows).splitlines() == [
        "algorithm              environment  runs  interquartile mean  95 % interval",
        "q_learning, alpha 0.1  Maze-v0      1     12,345              –",
        "q_learning, alpha 0.5  Maze-v0      1     -1.5                –",
    ]
    assert cli.main(["compare", *folders]) == 0
    assert capsys.readouterr().out.startswith(f"{rows!r}\n")
    assert rows._repr_html_().count("<tr>") == 3 and "<td>12,345</td>" in rows._repr_html_()


def test_two_runs_of_a_setting_have_an_interval_in_the_table(tmp_path: Path) -> None:
    """A quarter of the resamples are the lower score twice, and a quarter the higher one."""
    folders = [
        write(tmp_path / str(seed), seed, [{"step": 9, "eval_return": score}])
        for seed, score in enumerate((1.0, 3.0))
    ]
    assert rlbook.compare(folders).table()[1][2:] == ["2", "2", "1 to 3"]


def test_the_command_prints_a_table_or_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = [
        write(tmp_path / name, seed, [{"step": 9, "eval_return": -8.0}])
        for seed, name in enumerate("ab")
    ]
    assert cli.main(["compare", *folders]) == 0
    header, row = capsys.readouterr().out.splitlines()
    assert header.split()[:3] == ["algorithm", "environment", "runs"]
    assert row.split() == ["q_learning", "Maze-v0", "2", "-8", "-8", "to", "-8"]
    assert cli.main(["compare", *folders, "--json"]) == 0
    (facts,) = json.loads(capsys.readouterr().out)["rows"]
    assert (facts["interquartile_mean"], facts["scores"], facts["folders"]) == (
        -8.0,
        [-8.0, -8.0],
        folders,
    )


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ([3.0, 4.0], [1.0, 3.0], (1 + 0.5 + 1 + 1) / 4),  # of the four pairs one is a tie
        ([1.0], [2.0], 0.0),
        ([5.0, 5.0], [5.0, 5.0, 5.0], 0.5),
    ],
)
def test_the_probability_of_improvement_counts_pairs(
    first: list[float], second: list[float], expected: float
) -> None:
    probability, (low, high) = probability_of_improvement([(np.array(first), np.array(second))])
    assert probability == expected and 0 <= low <= expected <= high <= 1


def test_a_single_run_beside_several_has_one_score_in_every_resample() -> None:
    several, single = np.array([-1.0, -2.0]), np.array([-5.0])
    assert probability_of_improvement([(several, single)]) == (1.0, (1.0, 1.0))


def test_kinds_without_a_common_environment_are_not_compared(tmp_path: Path) -> None:
    report = [{"step": 9, "eval_return": 1.0}]
    one, other = (write(tmp_path / name, 0, report) for name in ("one", "other"))
    config = Path(other) / "config.yaml"
    config.write_text(config.read_text().replace("Maze", "Catch").replace("q_learning", "dqn"))
    rows = rlbook.compare([one, other])
    assert [row.env for row in rows] == ["Maze-v0", "Catch-v0"] and improvements(rows) == []


def test_runs_of_one_seed_whose_logs_differ_are_two(tmp_path: Path) -> None:
    """As of two versions of the library, or of two machines; copies of a log count once."""
    folders = [
        write(tmp_path / str(score), 0, [{"step": 9, "eval_return": score}]) for score in (1.0, 2.0)
    ]
    (row,) = rlbook.compare(folders)
    assert row.scores.tolist() == [1.0, 2.0]


def test_a_seed_is_no_setting_and_a_long_value_is_cut() -> None:
    config = {"algorithm": "ppo", "env": "Maze-v0", "seed": 3, "steps": 9}
    assert settings_of(config | {"hyperparameters": {"clip": 0.1}}) == {"steps": 9, "clip": 0.1}
    assert [shorten_value(value) for value in (1e9, 1e6, 1234567.0, 1e10)] == [
        "1e9",
        "1e6",
        "1234567.0",
        "1e10",
    ]
    assert shorten_value("x" * 24) == "x" * 24 and shorten_value("x" * 25) == "x" * 23 + "…"


def test_the_bootstrap_is_stratified_over_environments() -> None:
    """Always better in one environment, always worse in another: the mean is 0.5 in each stratified
    resample, and in no other way."""
    low, high = np.array([1.0, 2.0, 3.0]), np.array([11.0, 12.0, 13.0])
    assert probability_of_improvement([(high, low), (low, high)]) == (0.5, (0.5, 0.5))


def test_two_kinds_are_named_by_what_sets_them_apart_and_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    reports = [
        [{"step": step, "return": value, "eval_return": value} for step in (5, 9)]
        for value in (1.0, 2.0, 3.0, 4.0)
    ]
    good = [
        write(tmp_path / f"good-{seed}", seed, reports[seed + 1], alpha=0.5) for seed in range(3)
    ]
    bad = [write(tmp_path / f"bad-{seed}", seed, reports[seed]) for seed in range(3)]
    assert cli.main(["compare", *good, *bad, "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert [row["label"] for row in facts["rows"]] == [
        "q_learning, alpha 0.5",
        "q_learning, alpha 0.1",
    ]
    (found,) = facts["improvements"]
    assert (found["better"], found["than"], found["envs"]) == (
        "q_learning, alpha 0.5",
        "q_learning, alpha 0.1",
        ["Maze-v0"],
    )
    # 2, 3, 4 against 1, 2, 3: six above, two ties
    assert found["probability"] == near((6 + 2 * 0.5) / 9, terms=9)
    assert found["confidence_interval"][0] < found["probability"] < found["confidence_interval"][1]
    assert facts["written"] == ["compare.png"] and Path(facts["written"][0]).stat().st_size > 5_000
    (again,) = improvements(rlbook.compare([*good, *bad]))
    assert (again.probability, list(again.confidence_interval)) == (
        found["probability"],
        found["confidence_interval"],
    )
    assert cli.main(["compare", *good, "--out", str(tmp_path / "x.txt")]) == 2
    assert cli.main(["compare", *good, "--our", "x.png"]) == 2
    assert "did you mean '--out'" in capsys.readouterr().err


def test_what_cannot_be_compared_is_refused(tmp_path: Path) -> None:
    with pytest.raises(rlbook.RequestError, match="needs the folder of a run"):
        rlbook.compare([])
    for folder, why in ((tmp_path, "it has no config"), (tmp_path / "no", "it does not exist")):
        with pytest.raises(rlbook.RequestError, match=rf"^{folder} is not a run folder: {why}"):
            rlbook.compare(folder)
    with pytest.raises(rlbook.RequestError, match="no episode has finished"):
        rlbook.compare(write(tmp_path / "run", 0, [{"step": 1}]))


def test_links_to_runs_are_runs_and_logs_may_differ_in_length(tmp_path: Path) -> None:
    """Nothing counts twice, and a link to nothing is named."""
    reports = [{"step": step, "eval_return": float(step)} for step in range(1, 9)]
    long, short = write(tmp_path / "a", 0, reports), write(tmp_path / "b", 1, reports[:1])
    for name, target in (("link", long), ("dead", "nowhere")):
        (tmp_path / name).symlink_to(target)
    (row,) = rlbook.compare([long, short, tmp_path / "link"])
    assert sorted(row.scores) == [1.0, 8.0]
    with pytest.raises(
        rlbook.RequestError, match="dead is not a run folder: it is a link to nowhere, wh"
    ):
        rlbook.compare([tmp_path / "dead"])
