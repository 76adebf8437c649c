"""What the pages say that commands print is what they print."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest

DOCS = Path(__file__).parents[2] / "docs"
PRINTED = SimpleNamespace(**runpy.run_path(str(DOCS / "printed.py")))
SECTIONS = PRINTED.sections()
LONG = PRINTED.LONG


@pytest.mark.slow
@pytest.mark.parametrize("place", SECTIONS, ids=" · ".join)
def test_a_page_shows_what_its_commands_print(place: tuple[str, str]) -> None:
    for output in [*PRINTED.outputs(SECTIONS[place], long=False)]:
        assert output.holds(), f"{output.commands}prints\n{output.printed}"


FAULTS = [heading for page, heading in SECTIONS if page == "why-it-does-not-learn"]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [10, 11, 12])
@pytest.mark.parametrize("heading", FAULTS)
def test_the_doctor_names_the_fault_and_not_the_repaired_run_on_other_seeds(
    heading: str, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the page says of seed 0 on one processor is so on others."""
    section = SECTIONS["why-it-does-not-learn", heading]
    monkeypatch.chdir(tmp_path)
    PRINTED.write_files(section)
    told = []
    for commands, _ in PRINTED.OUTPUT.findall(section):
        words = re.sub(r"^(rlbook train .*)$", rf"\1 --seed {seed}", commands, flags=re.MULTILINE)
        told.append("".join(map(PRINTED.printed, words.splitlines())))
    assert [f"\n{heading}: " in text for text in told] == [True, False], "\n".join(told)


def test_every_chapter_that_is_in_the_common_form_shows_what_its_commands_print() -> None:
    chapters = [
        page
        for page in (DOCS / "chapters").glob("*.md")
        if "\n## Run it\n" in page.read_text(encoding="utf-8")
    ]
    assert (
        len(chapters) >= 21
        and [page.stem for page in chapters if (f"chapters/{page.stem}", "Run it") not in SECTIONS]
        == []
    )


def test_each_command_that_is_named_as_long_is_in_a_page() -> None:
    found = [
        commands for section in SECTIONS.values() for commands, _ in PRINTED.OUTPUT.findall(section)
    ]
    assert [
        begin for begin in LONG if not any(commands.startswith(begin) for commands in found)
    ] == []


def test_elsewhere_the_doctor_may_name_other_faults_beside_the_one_of_the_section(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(PRINTED.Output.holds.__globals__, "rounded_by", lambda: "another processor")
    shown = "the files are undamaged\ngradient zero: 3 of\n  the groups\n"
    more = "the files are undamaged\nbudget too short: a\ngradient zero: 4 of the groups\n"
    none = "the files are undamaged, and its log shows no known problem\n"
    assert PRINTED.Output("", shown, more, "gradient zero").holds()
    assert not PRINTED.Output("", shown, none, "gradient zero").holds()
    assert not PRINTED.Output("", none, more, "gradient zero").holds()
    assert not PRINTED.Output("", none, more, "budget too short").holds()
    assert PRINTED.Output("", none, "the files are undamaged\nbudget too short: a\n", "x").holds()


def test_numbers_are_compared_and_seconds_are_not() -> None:
    shown = "ppo on Maze-v0: 8 steps, 1.8 s\n…\nreturn  -3.5e-05,\n  of 3\n"
    printed = (
        "ppo on Maze-v0: 8 steps, 9 s\ntime: act 3%\nnote\nreturn -3.5e-05, of {}\n\n  rlbook plot"
        " runs/x\n"
    )
    other = PRINTED.Output("", shown, printed.format(4))
    assert PRINTED.Output("", shown, printed.format(3)).renewed() == shown
    assert other.renewed() == shown.replace("1.8", "9").replace("of 3", "of 4")
    assert other.holds() == (PRINTED.rounded_by() != PRINTED.WRITTEN_WITH)
    assert not PRINTED.Output(
        "", shown.replace("note", "", 1).replace("…\n", ""), printed.format(3)
    ).holds()
