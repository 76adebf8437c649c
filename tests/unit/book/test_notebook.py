"""What the notebooks use to show code and to check answers."""

from __future__ import annotations

import numpy as np
import pytest

from rlbook.book.course.notebook import check, difference, lines
from rlbook.book.experiments import ladder
from rlbook.envs.tabular.mdp import TabularMDP


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (None, "not yet"),
        ([0.5, None], "not yet"),
        ([0.5, 0.25], "right"),
        (np.array([0.5, 0.25 + 0.9e-3]), "right"),
        ([0.5, 0.35], "not right, off by 0.1"),
        ([0.5], "not right, it has shape [1] and should have [2]"),
        ([[0.5, 0.25]], "not right, it has shape [1, 2] and should have [2]"),
        ([0.5, float("nan")], "not right, it contains a number that is not finite"),
    ],
)
def test_an_answer_is_right_only_where_it_agrees_with_the_exact_one(answer, said, capsys):
    check("exercise 1", answer, np.array([0.5, 0.25]), tolerance=1e-3)
    assert capsys.readouterr().out == f"exercise 1: {said}\n"


def test_a_single_number_is_an_answer_too(capsys):
    check("2", 0.1 + 0.2, 0.3)
    check("2", True, 0.0)
    assert capsys.readouterr().out == "2: right\n2: not right, off by 1\n"


def test_lines_shows_a_method_without_its_docstring():
    shown = repr(lines(TabularMDP.backup))
    assert shown.startswith("# rlbook/envs/tabular/mdp.py\ndef backup(self, values")
    assert "action_values = self.expectation(values)\n    action_values *= gamma\n" in shown
    assert '"""' not in shown
    assert lines(TabularMDP.backup)._repr_markdown_() == f"```python\n{shown}\n```"


def test_a_difference_shows_both_functions_whole():
    shown = difference(ladder.a2c, ladder.ppo)
    rows = repr(shown).splitlines()
    for function, gone in ((ladder.a2c, "+"), (ladder.ppo, "-")):
        assert [row[1:] for row in rows if row[0] != gone] == repr(lines(function)).splitlines()
    assert shown._repr_markdown_() == f"```diff\n{shown}\n```"


def test_a_function_is_found_by_its_place() -> None:
    assert repr(lines("envs.tabular.mdp.TabularMDP.backup")) == repr(lines(TabularMDP.backup))
