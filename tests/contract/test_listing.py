"""`rlbook list`: quick, because it reads a file that is held to what is true, and all about one
algorithm or environment."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import rlbook
from rlbook.cli.listing import _shorten_list
from rlbook.cli.main import main
from rlbook.diagnosis.better_settings import default_solvers
from rlbook.envs.descriptions import DESCRIPTIONS, OF_OTHER_PACKAGES, STATED_OPTIMA
from rlbook.envs.extras import missing_package
from rlbook.envs.space_batches import space_text
from rlbook.evaluation.catalogue import (
    AlgorithmFacts,
    algorithm_facts,
    as_json,
    catalogue,
    env_facts,
    read_catalogue,
)
from rlbook.registry import ALGORITHMS, ALIASES

ROOT = Path(__file__).parents[2]
AGAIN = "`python -m rlbook.evaluation.catalogue` writes catalogue.json again"
TOKENS = [name for name, optimum in STATED_OPTIMA.items() if name != "CartPole-v1"]
SLOW = {*TOKENS, "Chat-v0", "CarRental-v0"} - {"Reverse-v0"}


def shown(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["list", *words]) == 0
    return capsys.readouterr().out


def facts_of(capsys: pytest.CaptureFixture[str], *words: str) -> dict:
    return json.loads(shown(capsys, *words, "--json"))


# The file


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else []) for name in DESCRIPTIONS],
)
def test_the_catalogue_says_what_an_environment_is(name: str) -> None:
    held, found = read_catalogue().environments[name], env_facts(name)
    assert held._replace(optimum=None) == found._replace(optimum=None), AGAIN
    assert (held.optimum is None) == (found.optimum is None), AGAIN
    if held.optimum is not None and found.optimum is not None:
        # both are rounded to six decimals
        assert abs(held.optimum - found.optimum) <= 1e-6, AGAIN


@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_catalogue_has_every_algorithms_presets(name: str) -> None:
    assert read_catalogue().algorithms[name] == algorithm_facts(name), AGAIN


def test_the_catalogue_is_written_as_it_is_read() -> None:
    path = Path(rlbook.__file__).parent / "evaluation/catalogue.json"
    assert as_json(read_catalogue()) == json.loads(path.read_text(encoding="utf-8"))


def test_every_environment_that_ships_is_described() -> None:
    ours = {name for name, spec in rlbook.environments().items() if spec.id.startswith("rlbook/")}
    assert ours <= set(DESCRIPTIONS) and len(set(DESCRIPTIONS.values())) == len(DESCRIPTIONS)
    page = (ROOT / "docs/environments/index.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `rlbook/([\w-]+)` \| (.*?) \| \[\]", page, flags=re.MULTILINE))
    assert rows == {name: DESCRIPTIONS[name] for name in rows} and set(rows) == ours


@pytest.mark.parametrize("name", TOKENS)
def test_a_stated_optimum_is_the_one_that_the_environments_docstring_has(name: str) -> None:
    from gymnasium.envs.registration import load_env_creator

    text = str(load_env_creator(rlbook.environments()[name].entry_point).__doc__)  # type: ignore[arg-type]
    ((stated,),) = [re.findall(r"Optimal return:[^.]*?(\d\.\d+)", text)]
    assert float(stated) == STATED_OPTIMA[name]


def test_cart_pole_pays_one_a_step_up_to_its_time_limit() -> None:
    env = gymnasium.make("CartPole-v1")
    env.reset(seed=0)
    assert env.step(0)[1] == 1.0 and env.spec is not None
    assert env.spec.max_episode_steps == STATED_OPTIMA["CartPole-v1"]


# What is shown


@pytest.mark.thorough(quick=1)
@pytest.mark.parametrize("words", ["", "ppo", "Maze-v0", "envs --json"])
def test_list_makes_nothing_and_loads_nothing_heavy(words: str) -> None:
    loaded = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "rlbook", "list", *words.split()],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=True,
    ).stderr
    for heavy in ("torch", "transformers", "matplotlib", "scipy", "numba"):
        assert f" {heavy}\n" not in loaded


def test_the_environments_have_texts_of_their_own_an_optimum_and_who_reaches_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    facts = facts_of(capsys, "envs")["envs"]
    texts = [entry["what"] for entry in facts.values()]
    assert all(texts) and len(set(texts)) == len(texts)
    assert facts["Maze-v0"]["optimum"] == 3.0 and facts["CartPole-v1"]["optimum"] == 500.0
    text, known = " ".join(shown(capsys, "envs").split()), catalogue()
    assert f"optimum 3; reached by {default_solvers()['Maze-v0'][0]}, " in text
    assert f"optimum 500; reached by {known.solvers('CartPole-v1')[0].algorithm}, " in text
    assert f"solved from -110; reached by {known.solvers('MountainCar-v0')[0].algorithm}" in text
    best = known.measurements("Addition-v0")[0]
    assert f"optimum 1; best measured: {best.algorithm} {best.value:.3g}, " in text


def expected(algorithm: str, value: float, seconds: float) -> dict[str, AlgorithmFacts]:
    held = {"value": value, "seeds": 10, "seconds": seconds}
    return {algorithm: AlgorithmFacts(("environment",), {"CartPole-v1": {"expected": held}})}


def test_who_reaches_the_optimum_has_come_within_two_hundredths_of_it() -> None:
    algorithms = expected("ppo", 500.0, 12.0) | expected("a2c", 490.0, 3.0)
    algorithms |= expected("sac", 489.0, 1.0)  # of 500, 490 is the least
    known = read_catalogue()._replace(algorithms=algorithms)
    assert [item.algorithm for item in known.solvers("CartPole-v1")] == ["a2c", "ppo"]  # by time
    best = [item.algorithm for item in known.measurements("CartPole-v1")]
    assert best == ["ppo", "a2c", "sac"]
    assert known.environments["MountainCar-v0"].target == -110.0  # gymnasium's, without an optimum
    assert known.environments["Chat-v0"].target is None and known.solvers("Chat-v0") == []


def test_the_table_says_who_trains_and_who_does_not(capsys: pytest.CaptureFixture[str]) -> None:
    text = " ".join(shown(capsys).split())
    count = len(ALGORITHMS)
    assert re.search(rf"MountainCar-v0 {count - 9} of {count} algorithms: policy_eval", text)
    assert "not rce, reward_model: it learns from random episodes" in text
    assert re.search(rf"Taxi-v4[\w, -]* {count - 3} of {count} algorithms: policy_eval", text)


def test_all_about_an_environment(capsys: pytest.CaptureFixture[str]) -> None:
    facts = facts_of(capsys, "Pendulum-v1")
    assert facts["actions"] == "Box(1,)" and facts["time_limit"] == 200
    assert "ddpg" in facts["trains"] and "fitted_q" in facts["refused"]
    best = catalogue().measurements("Pendulum-v1")[0].algorithm
    assert facts["commands"][0] == f"rlbook train {best} Pendulum-v1"
    assert facts == facts_of(capsys, "Pendulum-v1")
    assert "about 10^18 of them (at most " in " ".join(shown(capsys, "Addition-v0").split())
    # nobody reaches its optimum, so one begins with the best there is
    best = catalogue().measurements("Addition-v0")[0].algorithm
    assert facts_of(capsys, "Addition-v0")["commands"][0] == f"rlbook train {best} Addition-v0"
    text = shown(capsys, "rlbook/Maze-v0")
    assert text.startswith("Maze-v0  (rlbook/Maze-v0)\n")
    assert "observations  Discrete(25)" in text and "not distillation: it needs a teacher" in text
    assert f"  rlbook train {default_solvers()['Maze-v0'][0]} Maze-v0\n" in text


@pytest.mark.thorough(quick=1)
@pytest.mark.parametrize("name", [*ALGORITHMS, *ALIASES])
def test_all_about_an_algorithm(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    facts = facts_of(capsys, name)
    assert facts["algorithm"] == name and facts["what"] and facts["sources"]
    assert len(facts["trains"]) + len(facts["refused"]) == len(rlbook.environments())
    example = facts["commands"][0].removeprefix("rlbook train ").split()
    assert example[0] == name and (example[1] in facts["trains"] or example[2] == "--teacher")
    assert main(["explain", name]) == 0
    assert f"Try it:   rlbook train {' '.join(example)}\n" in capsys.readouterr().out + "\n"
    text = shown(capsys, name)
    assert text.startswith(f"{name}  (rlbook.algorithms.") and "\nStart\n" in text


def test_an_alias_says_what_it_stands_for(capsys: pytest.CaptureFixture[str]) -> None:
    text = " ".join(shown(capsys, "rloo").split())
    assert "the same as grpo with baseline leave-one-out" in text
    assert "came to" not in text  # that was measured of grpo
    assert "the same as behavior_cloning" in " ".join(shown(capsys, "sft").split())


def test_a_line_names_five_algorithms_or_four_and_how_many_more_there_are() -> None:
    assert _shorten_list("abcde") == "a, b, c, d, e"
    assert _shorten_list("abcdef") == "a, b, c, d and 2 more"


def test_a_recipe_is_named_with_its_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert "rlbook recipe rlhf" in shown(capsys, "rlhf")


class Switch(gymnasium.Env[int, int]):
    """A lamp after T. Edison that is on or off. Its second sentence.

    More about it.
    """

    observation_space = spaces.Discrete(2)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):  # type: ignore[no-untyped-def]
        super().reset(seed=seed)
        return 0, {}

    def step(self, action):  # type: ignore[no-untyped-def]
        return int(action), float(action), True, False, {}


def test_an_environment_of_ones_own_is_looked_at(capsys: pytest.CaptureFixture[str]) -> None:
    gymnasium.register("Switch-v0", entry_point=Switch, max_episode_steps=5)
    try:
        facts = facts_of(capsys, "Switch-v0")
        assert (
            facts["what"] == "A lamp after T. Edison that is on or off" and facts["optimum"] is None
        )
        assert "q_learning" in facts["trains"] and "ddpg" in facts["refused"]
        assert "Switch-v0" in shown(capsys, "envs")
        assert shown(capsys, "Switch-v0").startswith("Switch-v0\n")
    finally:
        del gymnasium.registry["Switch-v0"]


@pytest.mark.parametrize("env", OF_OTHER_PACKAGES)
def test_an_environment_of_another_package_is_there_and_described(env: str) -> None:
    assert env in gymnasium.registry or missing_package(env) or env in gymnasium.registry


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Mazee-v0", "did you mean 'Maze-v0'?"),
        ("pppo", "did you mean 'ppo'?"),
        ("algoritms", "did you mean 'algorithms'?"),
        ("CartPole-v9", "use 'CartPole-v1'"),
        ("LunarLander-v2", "use 'LunarLander-v3'"),  # with Box2D or without
        ("lunarlander", "did you mean 'LunarLander-v3'?"),
        ("dnq", "did you mean 'dqn'?"),
        ("module:Name-v0", "rlbook train takes it with --allow-import"),
    ],
)
def test_an_unknown_name_gets_the_nearest_one(
    name: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["list", name]) == 2
    captured = capsys.readouterr()
    assert said in captured.err and captured.err.count("\n") == 1 and captured.out == ""


@pytest.mark.filterwarnings("ignore:.*out of date")
def test_an_old_version_that_gymnasium_still_has_is_shown(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert "Discrete(2)" in shown(capsys, "CartPole-v0")


def test_seconds_have_all_digits_before_the_point(capsys: pytest.CaptureFixture[str]) -> None:
    assert re.search(r"287.5 \(3 seeds, 1,\d{3} s each\)", " ".join(shown(capsys, "ppo").split()))


@pytest.mark.thorough(quick=1)
@pytest.mark.parametrize("columns", [60, 80, 120])
@pytest.mark.parametrize("what", ["all", "Maze-v0", "Addition-v0", "ppo", "rloo"])
def test_what_is_listed_fits_the_terminal(
    columns: int, what: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    text = shown(capsys, what)
    assert max(map(len, text.splitlines())) <= columns


def test_a_space_in_a_few_words() -> None:
    tokens = spaces.MultiDiscrete(np.full(9, 26))
    both = spaces.Dict(length=spaces.Discrete(10), tokens=tokens)
    assert space_text(both) == "Dict(length=Discrete(10), tokens=MultiDiscrete(26, 9 times))"
    assert space_text(spaces.MultiDiscrete([2, 3])) == "MultiDiscrete([2, 3])"
    image = spaces.Box(0, 255, (10, 10, 3), np.uint8)
    assert space_text(spaces.Tuple([image])) == "Tuple(Box(10, 10, 3))"


class Unusable(gymnasium.Env):
    """An environment that cannot be made, or not be stepped: it lacks a screen or a server."""

    observation_space, action_space = spaces.Discrete(3), spaces.Discrete(2)

    def __init__(self, lacks: str) -> None:
        if lacks == "screen":
            raise OSError("no screen")

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[int, dict]:
        super().reset(seed=seed)
        return 0, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict]:
        raise RuntimeError("no server")


@pytest.mark.parametrize("lacks", ["screen", "server"])
def test_an_environment_that_does_not_work_here_leaves_the_list_as_it_is(lacks: str) -> None:
    before = catalogue().environments
    gymnasium.register("Unusable-v0", Unusable, kwargs={"lacks": lacks})
    try:
        after = catalogue()
    finally:
        del gymnasium.registry["Unusable-v0"]
    new = set(after.environments) - set(before)
    assert new == ({"Unusable-v0"} if lacks == "server" else set())
    reasons = after.refusals.get("Unusable-v0", {}).values()
    assert ("trying it raised RuntimeError: no server" in reasons) is (lacks == "server")
