"""What the pages say that commands print is what they print."""

from __future__ import annotations

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
