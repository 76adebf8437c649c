"""The table of default settings: its page and what the doctor recommends follow from what was
measured."""

from __future__ import annotations

import importlib.util
import json
import re
import shlex
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from closeness import near

import rlbook
from rlbook.cli.train import parse_train
from rlbook.diagnosis.better_settings import better_settings, default_solvers
from rlbook.registry import ALGORITHMS
from rlbook.runs.request import Request

PATH = Path(__file__).parents[2] / "docs" / "default_settings.py"


RESULTS = PATH.with_name("results.json")


@cache
def load_settings() -> ModuleType:
    spec = importlib.util.spec_from_file_location("default_settings", PATH)
    assert spec is not None and spec.loader is not None
    spec.loader.exec_module(module := importlib.util.module_from_spec(spec))
    return module


@pytest.fixture(scope="module")
def settings() -> ModuleType:
    return load_settings()


def item(returns: list[float], seconds: float = 1.0) -> dict[str, Any]:
    return {
        "returns": returns,
        "seconds": seconds,
        "optimum": 2.0,
        "random": -2.0,
        "machine": "here",
        "seeds": list(range(10, 10 + len(returns))),
    }


def test_the_page_and_the_doctors_file_are_those_of_the_measurements(settings: ModuleType) -> None:
    known, page = settings.read_defaults(), settings.PAGE.read_text(encoding="utf-8")
    assert page == settings.with_tables(page, known), "run docs/measure.py -"
    assert default_solvers() == settings.solved_everywhere(known), "run docs/measure.py -"


FACTS = ("optimum", "random", "solved_from")


@pytest.mark.slow
def test_the_facts_of_each_environment_are_what_they_are_today(settings: ModuleType) -> None:
    for env, items in settings.read_defaults().items():
        facts = settings.facts_of(env)
        for algorithm, found in items.items():
            for name, value in facts.items():
                expected = None if value is None else near(value, terms=1_000)  # over all states
                assert found[name] == expected, (env, algorithm, name)


def test_every_pair_was_measured_with_seeds_that_chose_no_setting(
    settings: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten, five where a run takes more than ten seconds, three where it takes more than a minute; what
    was measured as a preset is what docs/results.json has."""
    known = settings.read_defaults()
    monkeypatch.setattr(
        settings,
        "facts_of",
        lambda env: {
            name: value for name, value in next(iter(known[env].values())).items() if name in FACTS
        },
    )
    assert set(known) <= set(settings.ENVIRONMENTS)
    assert {*settings.LEARNERS, *settings.NETWORKS, *settings.MODELS} <= set(ALGORITHMS)
    for env, items in known.items():
        for algorithm, found in items.items():
            preset = settings.preset_result(algorithm, env)
            count = len(found["returns"])
            if preset is not None:
                assert found == preset, (env, algorithm)
            else:
                assert found["seeds"] == list(settings.SEEDS[:count]), (env, algorithm)
                assert count >= settings.seed_count(found["seconds"]), (env, algorithm)
            if found["optimum"] is not None:  # with as many digits as the returns have
                assert max(found["returns"]) <= float(f"{found['optimum']:.6g}")


def test_as_many_seeds_are_measured_as_the_time_of_a_run_allows(settings: ModuleType) -> None:
    assert [settings.seed_count(seconds) for seconds in (9.9, 10.0, 59.0, 60.0)] == [10, 5, 5, 3]


def unsolved_pairs() -> list[tuple[str, str]]:
    """Environment and algorithm of each row in which a seed falls short."""
    module = load_settings()
    return [
        (env, algorithm)
        for env, items in module.read_defaults().items()
        for algorithm, found in items.items()
        if not all(module.is_solved(value, found) for value in found["returns"])
    ]


def advised(env: str, algorithm: str, **settings: Any) -> str:
    """The words after `rlbook train` of the command that is named for a run."""
    told = better_settings(Request.build(algorithm, env, seed=30, hyperparameters=settings))
    assert told is not None, (env, algorithm)
    (words,) = re.findall(r": rlbook train (.*?)(?:, then rlbook evaluate --explore)?$", told)
    return words


def is_proven(words: str) -> bool:
    """Whether the command solved its environment with each of the seeds that it was measured with:
    in the table, or in docs/results.json."""
    module, results = load_settings(), json.loads(RESULTS.read_text(encoding="utf-8"))
    found = module.read_defaults()
    algorithm, env, *options = words.split()
    if not options:
        row = found[env][algorithm]
        return len(row["returns"]) >= 3 and all(
            module.is_solved(value, row) for value in row["returns"]
        )
    return any(
        item["commands"][0].startswith(f"rlbook train {algorithm} {env} ")
        and set(options) <= set(item["commands"][0].split())
        and all(module.is_solved(value, module.facts_of(env)) for value in item["means"])
        for item in results["measurements"].values()
        if item.get("commands") and "means" in item
    )


@pytest.mark.parametrize(("env", "algorithm"), unsolved_pairs())
def test_a_row_that_falls_short_is_told_a_command_that_was_measured_to_solve_it(
    env: str, algorithm: str
) -> None:
    """Also a run with a setting of its own, which another algorithm or the default is named for."""
    words = advised(env, algorithm)
    assert is_proven(words), words
    assert parse_train(shlex.split(words)).algorithm == words.split()[0]
    assert is_proven(advised(env, algorithm, gamma=0.7))


@pytest.mark.slow
@pytest.mark.parametrize("words", sorted({advised(*pair) for pair in unsolved_pairs()}))
def test_a_command_that_is_named_solves_it_with_a_seed_that_chose_nothing(words: str) -> None:
    """Seed 30. A policy that has to be random is judged as it samples."""
    asked, module = parse_train(shlex.split(words)), load_settings()
    run = rlbook.train(
        str(asked.algorithm),
        str(asked.env),
        **asked.options | {"seed": 30},
        **asked.hyperparameters,
    )
    value, facts = module.judged_return(run), module.facts_of(str(asked.env))
    assert module.is_solved(value, facts), f"{value} of {facts}"


def test_a_row_by_hand(settings: ModuleType) -> None:
    """Returns of 2 and 1 between -2 and 2: shares 1 and 3/4, and one of the two at the optimum."""
    table = settings.table_of("Maze-v0", {"sarsa": item([2.0, 1.0])})
    assert "Optimum 2, random play −2." in table
    assert "| `sarsa` | 1.5 | 87.5% | 1 of 2 | 1 |" in table


def test_a_row_of_a_task_without_a_known_optimum_counts_what_is_solved(
    settings: ModuleType,
) -> None:
    found = item([-90.0, -110.0]) | {"optimum": None, "solved_from": -100.0, "random": -500.0}
    table = settings.table_of("Acrobot-v1", {"ppo": found})
    assert "Solved from −100, random play −500." in table
    assert "| `ppo` | −100 | — | 1 of 2 | 1 |" in table


def test_who_is_measured_in_classic_control_follows_from_the_registry(settings: ModuleType) -> None:
    found = set(settings.control_learners())
    assert {"semi_gradient_sarsa", "dqn", "reinforce", "ppo", "sac", "td3"} <= found
    assert not found & {"q_learning", "iql", "td_prediction", "grpo", "behavior_cloning"}


def test_only_what_always_gets_there_is_recommended_the_fastest_first(settings: ModuleType) -> None:
    """Within 2 % of an optimum of 2 counts: 1.96 does, 1.95 does not. Two seeds tell too little."""
    known = {
        "Maze-v0": {
            "sarsa": item([2.0, 1.96, 2.0], 3.0),
            "q_learning": item([2.0, 2.0, 2.0], 1.0),
            "dyna_q": item([2.0, 1.95, 2.0], 0.1),
            "mc_control": item([2.0, 2.0], 0.1),
        }
    }
    assert settings.solved_everywhere(known) == {"Maze-v0": ["q_learning", "sarsa"]}


def test_a_page_keeps_its_words(settings: ModuleType) -> None:
    text = "Before.\n<!-- defaults -->\nold\n<!-- end of defaults -->\nAfter.\n"
    again = settings.with_tables(text, {"Maze-v0": {"sarsa": item([2.0])}})
    assert re.fullmatch(
        r"Before\.\n<!-- defaults -->\n.*<!-- end of defaults -->\nAfter\.\n", again, re.S
    )
    assert "old" not in again and "Measured on here." in again
