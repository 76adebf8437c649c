"""The bug museum: each line stands where its exhibit says, the curves show the bug, and the test it
names fails with the bug alone."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from rlbook.book.museum import charts, planted
from rlbook.book.museum.curves import BugCurves, load_curves, mean_curve, train_curves
from rlbook.book.museum.exhibit import PACKAGE, exhibits, place_of
from rlbook.cli.main import main
from rlbook.cli.train import parse_train

ROOT = Path(__file__).parents[3]
NAMES = sorted(exhibits())
QUICK = "ties-go-to-the-first-action"


PROOF = """
import json, os, sys, numpy, pytest, torch, transformers

def exit_code(name, tests):
    child = os.fork()
    if not child:
        code = 99
        try:
            if name:
                from rlbook.book.museum.planted import find_exhibit, plant
                plant(find_exhibit(name))
            loaded = "ignore::pytest.PytestAssertRewriteWarning"
            code = pytest.main(["-q", "-x", "-p", "no:cacheprovider", "--tb=no", "-W", loaded, *tests])
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

codes = {name: exit_code(name, tests) for name, tests in json.loads(sys.argv[1]).items()}
print()
print(json.dumps(codes))
"""
"""Runs tests with one bug, or with none, each time in a copy of a process that has loaded torch and
transformers but nothing of ours.

These have loaded plugins of pytest too, at which it must not stumble; 99 is a child that came to
grief outside its tests.
"""


def exit_codes(asked: dict[str, list[str]]) -> dict[str, int]:
    """Exhibit, or "" for none → how pytest ends on those tests with this bug in the library."""
    surroundings = {**os.environ, "RLBOOK_PLAIN": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", PROOF, json.dumps(asked)],
        cwd=ROOT,
        env=surroundings,
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


def test_every_line_stands_in_its_file_once_and_the_other_one_is_python() -> None:
    for exhibit in exhibits().values():
        source = (PACKAGE.parent / exhibit.file).read_text(encoding="utf-8")
        lines, other = source.split("\n"), exhibit.planted_in(source)
        compile(other, exhibit.file, "exec")
        changed = [
            number
            for number, pair in enumerate(zip(lines, other.split("\n"), strict=True), 1)
            if pair[0] != pair[1]
        ]
        assert changed == [exhibit.number] and exhibit.old.strip() == exhibit.old, exhibit.name


def test_no_exhibit_is_without_words() -> None:
    for exhibit in exhibits().values():
        told = (
            exhibit.title,
            exhibit.symptom,
            exhibit.question,
            exhibit.why,
            exhibit.notice,
            exhibit.seen,
            exhibit.shown.unit,
        )
        assert min(map(len, told)) > 15 and (
            exhibit.shown.known is None or exhibit.shown.known_is
        ), exhibit.name
        assert (ROOT / exhibit.test.split("::")[0]).is_file()


def test_a_line_that_has_gone_or_is_there_twice_is_refused() -> None:
    for source in ("x = 1\n", "y = 2\n  y = 2\n"):
        with pytest.raises(ValueError, match="once"):
            place_of("y = 2", source, "file.py")


def test_there_are_twenty_four_of_all_three_kinds() -> None:
    assert len(NAMES) >= 24
    assert {exhibit.part for exhibit in exhibits().values()} == {
        "tables",
        "networks",
        "language models",
    }


@pytest.mark.parametrize("name", NAMES)
def test_the_recorded_curves_show_the_bug(name: str) -> None:
    """The curves part: at the end the two means are further from each other than a tenth of all
    that is drawn. Without the bug a run reaches its end, but for a round that does not fit."""
    exhibit = exhibits()[name]
    curves = load_curves(exhibit)
    assert len(curves.without) == len(curves.planted) == exhibit.shown.seeds
    assert min(len(mean_curve(side)) for side in curves.sides.values()) >= 5
    reached = min(curve[-1][0] for curve in curves.without)
    assert reached >= 0.8 * exhibit.shown.settings.get("steps", 0)
    axes, ends = charts.Axes.from_curves(exhibit, curves), charts.numbers(exhibit, curves)
    without, with_it = ends.values()
    assert abs(axes.relative_height(without) - axes.relative_height(with_it)) > 0.1
    assert "<svg" in charts.as_svg(exhibit, curves)


def test_seeds_that_report_at_other_steps_are_averaged_at_the_same_step() -> None:
    """Each curve's value is its step, so the mean at a step is that step, and the end the end."""
    sparse, dense = ([(float(step), float(step)) for step in range(0, 41, gap)] for gap in (10, 2))
    assert mean_curve([sparse, dense]) == sparse and mean_curve([dense, sparse]) == dense
    late = [(step + 4.0, value + 4.0) for step, value in sparse]
    assert mean_curve([dense, late]) == [point for point in dense if 4 <= point[0] <= 40]
    curves = BugCurves([dense, late], [sparse, late])
    exhibit = exhibits()[QUICK]
    assert charts.Axes.from_curves(exhibit, curves).last == 44.0
    assert charts.numbers(exhibit, curves) == {"without the bug": 41.5, "with the bug": 42.0}


@pytest.mark.thorough(quick=1)
@pytest.mark.parametrize("name", NAMES)
def test_the_command_asks_for_what_is_shown(name: str) -> None:
    shown = exhibits()[name].shown
    asked = parse_train(shlex.split(exhibits()[name].command)[2:])
    given = {
        key: (*value,) if isinstance(value, tuple) else value
        for key, value in (asked.options | asked.hyperparameters).items()
    }
    wanted = {
        key: (*value,) if isinstance(value, list) else value
        for key, value in shown.settings.items()
    }
    assert {key: str(given[key]) for key in wanted} == {
        key: str(value) for key, value in wanted.items()
    }
    assert (asked.algorithm, asked.env, asked.env_kwargs) == (
        shown.algorithm,
        shown.env,
        dict(shown.env_kwargs),
    )


def test_each_has_its_page_and_no_page_is_left_over() -> None:
    pages = {
        path.stem: path.read_text(encoding="utf-8")
        for path in (ROOT / "docs" / "bugs").glob("*.md")
    }
    del pages["index"], pages["by-name"]
    contents = (
        (ROOT / "docs" / "bugs" / "index.md")
        .read_text(encoding="utf-8")
        .split(":hidden:")[1]
        .split("```")[0]
    )
    assert contents.split() == [*exhibits(), "by-name"]
    assert pages == {
        name: f"# {exhibit.bug}\n\n*{exhibit.title}.*\n\n```{{bug}} {name}\n```\n"
        for name, exhibit in exhibits().items()
    }


def test_the_list_by_name_leads_to_every_exhibit_and_to_tests_that_exist() -> None:
    text = (ROOT / "docs" / "bugs" / "by-name.md").read_text(encoding="utf-8")
    assert {*re.findall(r"\((\S+)\.md\)", text)} == {*exhibits()}
    named = [test.partition("::") for test in re.findall(r"`(tests/\S+)`", text)]
    assert (
        len(named) >= 42
        and [
            name
            for file, _, name in named
            if f"def {name}(" not in (ROOT / file).read_text(encoding="utf-8")
        ]
        == []
    )


def test_a_module_that_is_loaded_cannot_be_changed_any_more() -> None:
    from rlbook.algorithms.tabular import exploration

    assert exploration.greedy([1.0, 2.0], None) == 1  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="loaded already"):
        planted.plant(exhibits()[QUICK])


@pytest.mark.slow
def test_a_new_run_gives_what_was_recorded() -> None:
    exhibit = exhibits()[QUICK]
    new, kept = train_curves(exhibit, 1), load_curves(exhibit)
    assert (new.without, new.planted) == (kept.without[:1], kept.planted[:1])


@pytest.mark.slow
def test_each_is_noticed_by_the_test_it_names_which_passes_without_it() -> None:
    tests = {exhibit.name: [exhibit.test] for exhibit in exhibits().values()}
    codes = exit_codes({"": [test for each in tests.values() for test in each], **tests})
    assert codes.pop("") == 0
    assert {name for name, code in codes.items() if code != pytest.ExitCode.TESTS_FAILED} == set()


def test_the_command_shows_the_symptom_and_answers_when_it_is_asked(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["bug", "list"]) == 0
    assert QUICK in (listed := capsys.readouterr().out)
    assert exhibits()[QUICK].title in " ".join(listed.split())
    assert main(["bug", "show", QUICK]) == 0
    shown = capsys.readouterr().out
    assert (
        "o without the bug" in shown
        and "x with the bug" in shown
        and exhibits()[QUICK].old not in shown
    )
    assert main(["bug", "answer", QUICK, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["bug"] == exhibits()[QUICK].new


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["show", "ties-go-to-first-action"], "did you mean 'ties-go-to-the-first-action'"),
        (["shwo"], "did you mean 'show'"),
        (["answer"], "needs the name"),
        (["list", QUICK], "takes no name"),
        (["run", QUICK, "--seeds", "0"], "at least 1"),
        (["show", QUICK, "--seeds", "2"], "no --seeds"),
    ],
)
def test_a_typo_is_one_sentence(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bug", *words]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert said in line
