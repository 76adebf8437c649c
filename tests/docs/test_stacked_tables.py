"""Tables whose columns have no room on a phone carry their columns' names in their cells; the
others stay as they are."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path

import pytest

pytest.importorskip("sphinx")
spec = importlib.util.spec_from_file_location(
    "stacked_tables", Path(__file__).parents[2] / "docs" / "ext" / "stacked_tables.py"
)
assert spec is not None and spec.loader is not None
stacked_tables = importlib.util.module_from_spec(spec)
sys.modules["stacked_tables"] = stacked_tables
spec.loader.exec_module(stacked_tables)


def table(names: list[str], *rows: list[str]) -> str:
    """As Sphinx writes it."""
    head = "".join(f'<th class="head"><p>{name}</p></th>' for name in names)
    body = "".join(
        "<tr>" + "".join(f"<td><p>{cell}</p></td>" for cell in row) + "</tr>" for row in rows
    )
    return (
        '<table class="docutils'
        f' align-default"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
    )


def test_a_command_of_many_words_beside_two_columns_is_stacked() -> None:
    words = " ".join(["rlbook train ppo Maze-v0 --seed 0"] * 5)
    found = stacked_tables.stacked(
        table(
            ["what", "result", "command"],
            ["the maze", "optimal return 3 from 10 of 10 seeds", words],
        )
    )
    assert 'class="docutils align-default stacked"' in found
    assert re.findall(r'column-name"><p>(\w+)</p></div><div class="cell"><p>(\w+)', found) == [
        ("result", "optimal"),
        ("command", "rlbook"),
    ]


def test_numbers_have_room_and_so_have_two_columns_and_a_cell_without_words_has_no_name() -> None:
    numbers = table(["", "error", "bias", "steps"], ["group", "9.558", "1.797", "0"])
    pair = table(["number", "meaning"], ["step", "many words " * 30])
    assert stacked_tables.stacked(numbers + pair) == numbers + pair
    wide = table(["a", "b", "c"], ["x" * 20, "", "y" * 40])
    assert stacked_tables.stacked(wide).count('class="column-name"') == 1


def test_a_formula_is_measured_once_and_not_with_its_form_for_screen_readers() -> None:
    formula = (
        '<span class="katex-mathml"><math>'
        + "<mi>x</mi>" * 90
        + '</math></span><span class="katex-html">x</span>'
    )
    small = table(["sign", "meaning", "unit"], [formula, "a state", "none"])
    assert stacked_tables.stacked(small) == small
