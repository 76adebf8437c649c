"""Presets: every one can be trained, says about its result what was measured, and `rlbook verify`
tells when that no longer holds."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from closeness import near

from rlbook.agent import read_presets
from rlbook.algorithms.policy.ppo import PPO
from rlbook.cli import main as cli
from rlbook.cli.verify import seconds_of
from rlbook.envs.extras import missing_package
from rlbook.errors import RequestError
from rlbook.evaluation import verification
from rlbook.evaluation.verification import (
    ExpectedResult,
    VerifiablePreset,
    prediction_interval,
    proofs,
    select_installed,
    select_within,
)
from rlbook.interaction.play_episodes import Evaluation
from rlbook.registry import ALGORITHMS, EXPECTED, agent_class, preset, presets
from rlbook.runs.request import Request

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "docs"))  # measure.py imports a module beside it
SPEC = importlib.util.spec_from_file_location("measure", ROOT / "docs" / "measure.py")
assert SPEC is not None and SPEC.loader is not None
measure = importlib.util.module_from_spec(SPEC)


@pytest.fixture(scope="module", autouse=True)
def _loaded() -> None:
    sys.modules["measure"] = measure  # where its dataclasses look for their module
    assert SPEC is not None and SPEC.loader is not None
    SPEC.loader.exec_module(measure)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_preset_can_be_asked_for(algorithm: str) -> None:
    for env, settings in presets(agent_class(algorithm)).items():
        if env != "TabularMDP" and missing_package(env) is None:  # a model is made, not named
            Request.build(algorithm, env)
        assert not [name for name, value in settings.items() if is_number(value)], (
            "YAML reads 1e-3 as a text; write 0.001"
        )
        if EXPECTED in settings:
            assert ExpectedResult.from_entry(settings[EXPECTED], env).entry() == settings[EXPECTED]


def test_what_presets_are_expected_to_come_to_is_what_was_measured() -> None:
    known = json.loads((ROOT / "docs" / "results.json").read_text())["measurements"]
    found = measure.expected_results(known)
    assert {"ppo", "dqn", "q_learning"} <= found.keys()
    for algorithm, results in found.items():
        written = yaml.safe_load(measure.presets_file(algorithm).read_text())
        assert {
            env: settings[EXPECTED] for env, settings in written.items() if EXPECTED in settings
        } == results, "run docs/measure.py -"


def test_every_result_has_as_many_seeds_as_its_time_allows_and_none_that_chose_a_setting() -> None:
    known = json.loads((ROOT / "docs" / "results.json").read_text())["measurements"]
    trained = {
        name: item
        for name, item in known.items()
        if isinstance(measure.MEASUREMENTS[name], measure.Measurement)
    }
    several = {
        name: item for name, item in trained.items() if item["seeds"][0] >= measure.FIRST_SEED
    }
    assert len(several) >= 78, (
        "the others are still told for seeds that helped to choose: run docs/measure.py"
    )
    for name, item in several.items():
        first = measure.MEASUREMENTS[name].first
        assert first >= measure.FIRST_SEED
        assert item["seeds"] == list(range(first, first + len(item["seeds"]))), name
        assert len(item["seeds"]) >= measure.seeds_asked(item["seconds"]), (
            f"{name}: one run takes {item['seconds']} s"
        )
        assert (
            "mean" not in item["result"]
            or "±" in item["result"]
            or "from each of" in item["result"]
        ), name


def test_the_settings_of_the_books_algorithms_stand_in_files_alone() -> None:
    assert [name for name in ALGORITHMS if "presets" in vars(agent_class(name))] == []


def is_number(value: object) -> bool:
    """Whether this is a text that was meant as a number."""
    try:
        return isinstance(value, str) and float(value) is not None
    except ValueError:
        return False


def test_what_was_measured_is_put_beside_the_settings_and_changes_nothing_else() -> None:
    text = (
        "# Why.\nA-v0:\n  # Fast.\n  steps: 3  # three\n  expected:\n    value: 1.0\n  gamma:"
        " 0.5\n\n# Slow.\nB-v0:\n  steps: 4\n"
    )
    again = measure.with_expected(text, "A-v0", {"value": 2.0, "interval": [1.0, 3.0]})
    again = measure.with_expected(again, "C-v0", {"interval": [0.0, 0.0]})
    entry = "  expected:\n    value: 2.0\n    interval: [1.0, 3.0]\n"
    assert (
        again
        == text.replace("  expected:\n    value: 1.0\n  gamma: 0.5\n", f"  gamma: 0.5\n{entry}")
        + "C-v0:\n  expected:\n    interval: [0.0, 0.0]\n"
    )


def test_the_interval_of_one_more_run_by_hand() -> None:
    """Of 1, 2, 3: mean 2, deviation 1, t(0.975, 2) = 4.302653, √(1 + 1/3) = 1.154701."""
    assert prediction_interval([1.0, 2.0, 3.0]) == near(
        (2 - 4.302653 * 1.154701, 2 + 4.302653 * 1.154701), decimals=5
    )
    assert prediction_interval([3.0] * 5) == (3.0, 3.0)


def test_a_run_may_be_better_than_expected_and_not_worse() -> None:
    expected = ExpectedResult(-200.0, (-220.0, -180.0), 3, 50, 9.0)
    assert [expected.is_consistent(value) for value in (-150.0, -220.0, -220.01, -221.0)] == [
        True,
        True,
        True,
        False,
    ]


def error_of(returns: list[float]) -> float:
    return Evaluation(np.array(returns), np.ones(len(returns))).standard_error


def test_a_point_has_the_margin_of_the_evaluation_that_is_judged() -> None:
    """49 times 500 and once 490: mean 499.8, deviation √(49 · 0.2² + 9.8²) / 7 = √2, standard error
    √2 / √50 = 0.2; 499.8 + 0.329 > 500."""
    point = ExpectedResult(500.0, (500.0, 500.0), 3, 50, 9.0)
    assert error_of([500.0] * 49 + [490.0]) == near(0.2, terms=50, size=500.0)
    assert (
        point.is_consistent(499.8, 0.2)
        and not point.is_consistent(499.8)
        and not point.is_consistent(490.0, 3.0)
    )
    assert point.is_consistent(500.0, 0.0) and error_of([3.0]) == 0.0
    assert not ExpectedResult(3.0, (3.0, 3.0), 10, 20, 1.0).is_consistent(
        -100.0, error_of([-100.0] * 20)
    ), "the maze: no noise, no margin"


def test_as_many_as_fit_into_the_budget_are_chosen() -> None:
    found = [
        VerifiablePreset("ppo", str(seconds), ExpectedResult(0, (0, 0), 3, 1, seconds))
        for seconds in (100.0, 16.0, 6.0)
    ]
    chosen = [proof.env for proof in select_within(found, 30.0, jobs=1)]
    assert chosen == ["6.0", "16.0"], "6 + 4 + 16 + 4 s"
    assert [proof.env for proof in select_within(found, 29.0, jobs=1)] == ["6.0"]
    assert [proof.env for proof in select_within(found, 29.0, jobs=2)] == ["6.0", "16.0"]
    with pytest.raises(
        RequestError,
        match=r"budget must be at least 10 s, the time that ppo on 6\.0 takes, got 9 s",
    ):
        select_within(found, 9.0, jobs=4)


@pytest.mark.parametrize(
    ("given", "seconds"), [("90", 90.0), ("90s", 90.0), ("1.5min", 90.0), ("2h", 7200.0)]
)
def test_a_budget_is_a_time(given: str, seconds: float) -> None:
    assert seconds_of(given) == seconds


def test_a_file_of_presets_stands_beside_the_module_that_it_is_for() -> None:
    files = sorted((ROOT / "rlbook" / "algorithms").rglob("presets/*.yaml"))
    alone = [path for path in files if not (path.parent.parent / f"{path.stem}.py").is_file()]
    assert len(files) > 30 and alone == []


def test_presets_stand_in_the_class_or_in_its_file(tmp_path: Path) -> None:
    class Mine(PPO):
        pass

    class Other(PPO):
        presets = {"Maze-v0": {"steps": 7}}

    assert preset(Mine, "Maze-v0") == preset(PPO, "Maze-v0") and EXPECTED in presets(PPO)["Maze-v0"]
    assert EXPECTED not in presets(Mine)["Maze-v0"], "what another class comes to is not known"
    assert presets(Other) == {"Maze-v0": {"steps": 7}} and preset(Other, "Maze-v0") == {"steps": 7}
    for text, said in (
        ("- 1", "must hold settings by environment"),
        ("a: [", "is not YAML"),
        ("Maze-v0: 3", "must hold settings"),
    ):
        (tmp_path / "wrong.yaml").write_text(text)
        read_presets.cache_clear()
        with pytest.raises(RequestError, match=said):
            read_presets(tmp_path / "wrong.yaml")


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        (3, "expected must hold value, interval"),
        ({"value": 3}, "lacks 'interval'"),
        ({"valu": 3}, "unknown entry 'valu'; did you mean 'value'"),
    ],
)
def test_a_wrong_expectation_is_told_in_one_sentence(entry: Any, said: str) -> None:
    with pytest.raises(RequestError, match=said):
        ExpectedResult.from_entry(entry, "the preset of ppo on Maze-v0")


@pytest.mark.slow
def test_verify_trains_again_and_tells_what_is_lower(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The optimum of the maze is 3; a preset that promises 4 is found out."""
    promised = {"value": 4.0, "interval": [4.0, 4.0], "seeds": 3, "episodes": 5, "seconds": 1.0}
    kept = promised | {"value": 3.0, "interval": [3.0, 3.0], "seconds": 2.0}
    entries = {"certainty_equivalence": promised, "sarsa": kept}
    known = {agent_class(name): {"Maze-v0": {EXPECTED: entry}} for name, entry in entries.items()}
    monkeypatch.setattr(verification, "presets", lambda agent: known.get(agent, {}))
    assert cli.main(["verify", "--budget", "5min", "--jobs", "1", "--json"]) == 1
    printed = capsys.readouterr()
    first, second = json.loads(printed.out)["presets"]
    assert (first["algorithm"], first["return"], first["holds"]) == (
        "certainty_equivalence",
        3.0,
        False,
    )
    assert (second["algorithm"], second["return"], second["holds"]) == ("sarsa", 3.0, True)
    assert "sarsa on Maze-v0: 3 (2 of 2)" in printed.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["srsa"], "did you mean 'sarsa'"),
        (["sarsa", "Maze-v1"], "on: Maze-v0"),
        (["--budget", "soon"], "must be a time"),
        (["--budgte", "1h"], "did you mean '--budget'"),
        (["sarsa", "--budget", "1s"], "budget must be at least"),
        (["--jobs", "0"], "jobs"),
    ],
)
def test_a_wrong_request_is_one_sentence(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["verify", *words]) == 2
    assert said in capsys.readouterr().err


def test_proofs_are_those_that_were_measured() -> None:
    found = {(proof.algorithm, proof.env) for proof in proofs()}
    assert {("ppo", "CartPole-v1"), ("q_learning", "Maze-v0")} <= found and len(found) >= 20


def test_verify_leaves_out_what_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    here, away = (
        VerifiablePreset("ppo", env, ExpectedResult(0, (0, 0), 3, 1, 1.0))
        for env in ("Maze-v0", "LunarLander-v3")
    )
    monkeypatch.setitem(sys.modules, "Box2D", None)  # importing it raises ImportError
    chosen, missing = select_installed([here, away])
    assert chosen == [here] and len(missing) == 1 and 'pip install "rlbook[box2d]"' in missing[0]
    with pytest.raises(RequestError, match=r"rlbook\[box2d\]"):
        select_installed([away])
    assert cli.main(["verify", "ppo", "LunarLander-v3"]) == 2, "a wrong request, not a lower result"


def test_the_table_beside_the_zoo_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 1, 2, 3: mean 2, half of the interval 4.302653 · 1 / √3 = 2.484; a goal of 2 is reached by
    it, and one of 2.5 is missed."""
    item = {"means": [1.0, 2.0, 3.0], "sampled_means": [2.0] * 3, "seconds": 9.0, "machine": "here"}
    text = "Before.\n<!-- zoo -->\nold\n<!-- end of zoo -->\nAfter.\n"
    for goal, said in ((2.0, "at least 2"), (2.5, "at least 2.5, missed")):
        monkeypatch.setattr(measure, "GOALS", {"ppo_lander": (goal, "242 ± 32")})
        again = measure.with_results(text, {"ppo_lander": item})
        assert (
            "| `rlbook train ppo LunarLander-v3`, 9 s | 2 ± 2.484 (3 seeds: 1 to 3) |"
            f" 2 from each of 3 seeds | {said} | 242 ± 32 |" in again
        )
        assert again.startswith("Before.") and again.endswith("After.\n") and "old" not in again
