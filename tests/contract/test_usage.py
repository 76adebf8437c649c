"""The help: every command in one of four groups, at any width, and what one changes most first."""

from __future__ import annotations

import re

import pytest

from rlbook.cli import main as cli
from rlbook.cli.usage import GROUPS, usage

WIDTHS = [40, 60, 80, 120]


def test_every_command_stands_in_one_group() -> None:
    named = [line.split()[0] for commands in GROUPS.values() for line in commands]
    assert sorted(named) == sorted(cli.COMMANDS)
    assert list(GROUPS) == ["learn", "look", "understand", "teach"]


@pytest.mark.parametrize("columns", WIDTHS)
def test_the_usage_fits_the_terminal_and_keeps_examples_whole(
    columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    text = usage()
    lines = text.splitlines()
    examples = [
        example
        for commands in GROUPS.values()
        for said in commands.values()
        for example in re.findall(r": (rlbook .*)$", said)
    ]
    assert len(examples) > 5
    for example in examples:
        assert any(example in line for line in lines), example
    longest = max(len(example) for example in examples) + 6  # an example is never broken
    assert max(map(len, lines)) <= max(columns, longest)
    assert columns < 60 or max(map(len, lines)) <= columns
    assert "\0" not in text
    for group in GROUPS:
        assert f"{group.capitalize()}:" in lines


def test_rlbook_alone_shows_the_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 0
    alone = capsys.readouterr().out
    assert cli.main(["--help"]) == 0
    assert alone == capsys.readouterr().out == usage()
