"""Every logged number has an entry, which the command line prints, the site shows under an anchor,
and plots name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import rlbook
from rlbook.cli import main as cli
from rlbook.diagnosis.glossary import COMMON, GLOSSARY, descriptions_of
from rlbook.plots import plot_curves
from rlbook.registry import ALGORITHMS, agent_class

LOGGED = sorted(
    {name for algorithm in ALGORITHMS for name in agent_class(algorithm).METRICS} | set(COMMON)
)


def test_the_glossary_has_exactly_what_is_logged() -> None:
    assert sorted(GLOSSARY) == LOGGED
    assert not GLOSSARY.keys() & ALGORITHMS.keys(), "rlbook explain NAME must be either"


@pytest.mark.parametrize("name", LOGGED)
def test_an_entry_says_unit_healthy_values_and_what_others_mean(name: str) -> None:
    entry = GLOSSARY[name]
    assert entry.short and entry.unit and entry.healthy and entry.otherwise
    assert len(f"{name}: {entry.short}") <= 75, "it stands above a panel"


def test_what_is_said_about_a_number_stands_beside_who_says_it() -> None:
    found = descriptions_of("explained_variance")
    assert {"ppo", "a2c"} <= {
        algorithm for algorithms in found.values() for algorithm in algorithms
    }
    assert descriptions_of("return") == {COMMON["return"]: ["all"]}


def test_the_entry_of_a_named_reward_is_that_of_all_of_them(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.main(["explain", "reward/exact"]) == 0
    assert capsys.readouterr().out.startswith(f"reward/NAME: {GLOSSARY['reward/NAME'].short}")


@pytest.mark.parametrize("width", [60, 80])
def test_the_command_line_explains_a_number(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    for name in LOGGED:
        assert cli.main(["explain", name]) == 0
        printed = capsys.readouterr().out
        assert printed.startswith(f"{name}: {GLOSSARY[name].short}")
        assert all(len(line) <= width for line in printed.splitlines()), printed
    assert cli.main(["explain", "entropy", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["unit"] == "nats"


@pytest.mark.parametrize(
    ("given", "meant"),
    [("entrpy", "entropy"), ("eval-return", "eval_return"), ("Approx_KL", "approx_kl")],
)
def test_a_typo_is_answered_with_the_nearest_name(
    given: str, meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["explain", given]) == 2
    assert f"did you mean {meant!r}?" in capsys.readouterr().err


def test_a_plot_names_its_panels_and_leads_to_the_glossary(tmp_path: Path) -> None:
    rlbook.train("q_learning", "Maze-v0", episodes=40, out=tmp_path / "run")
    figure = plot_curves(tmp_path / "run", tmp_path / "curve.svg")
    names = ["return", "value_error", "policy_regret"]
    assert [axes.texts[0].get_text() for axes in figure.axes] == [
        f"{name}: {GLOSSARY[name].short}" for name in names
    ]
    drawn = (tmp_path / "curve.svg").read_text()
    assert all(
        f'href="logged-numbers.html#metric-{name.replace("_", "-")}"' in drawn for name in names
    )
    assert figure.get_supxlabel() == "What it means: " + ", ".join(
        f"rlbook explain {name}" for name in names
    )
    assert (
        "```{all-logged-numbers}"
        in (Path(__file__).parents[3] / "docs" / "logged-numbers.md").read_text()
    )
