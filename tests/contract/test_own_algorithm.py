"""An algorithm that is not the book's trains, resumes, is evaluated and plotted like one that
is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlbook
from rlbook.agent import Agent, Metrics, State, Step
from rlbook.cli.main import main
from rlbook.cli.output import training_summary
from rlbook.errors import RequestError
from rlbook.registry import ALGORITHMS, refusal_reason, register

OWN = Path(__file__).with_name("own_algorithm.py")


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The module of `OWN`, as a user's script would import it; forgotten afterwards."""
    monkeypatch.syspath_prepend(str(OWN.parent))
    import own_algorithm

    yield own_algorithm
    sys.modules.pop("own_algorithm", None)


def test_a_class_trains_with_its_own_budget_and_presets(module: Any) -> None:
    run = rlbook.train(module.Bandit, "FrozenLake-v1")
    assert (
        len(run.episode_returns) == len(run.episode_lengths) == 7 and run.agent.config.alpha == 0.5
    )
    assert sum(run.episode_lengths) == run.steps and run.request.algorithm == "own_algorithm:Bandit"


def test_it_resumes_bit_for_bit(module: Any, tmp_path: Path) -> None:
    whole = rlbook.train(module.Bandit, "Maze-v0", steps=300, seed=1)
    rlbook.train(module.Bandit, "Maze-v0", steps=150, seed=1, out=tmp_path / "run")
    resumed = rlbook.load(tmp_path / "run").resume(steps=300)
    np.testing.assert_array_equal(resumed.agent.q, whole.agent.q)  # type: ignore[attr-defined]
    assert resumed.episode_returns == whole.episode_returns
    assert (
        rlbook.evaluate(tmp_path / "run", episodes=2).mean
        == rlbook.evaluate(whole, episodes=2).mean
    )


def test_it_is_explained(module: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "own_algorithm:Bandit", "--allow-import"]) == 0
    assert "rlbook train own_algorithm:Bandit FrozenLake-v1 --allow-import" in (
        capsys.readouterr().out
    )
    assert main(["train", "own_algorithm:Bandit", "--help", "--allow-import"]) == 0
    again = "rlbook train --resume runs/own_algorithm:Bandit-FrozenLake-v1-0 --allow-import\n"
    assert again in capsys.readouterr().out


def test_a_module_is_imported_only_where_that_is_allowed(module: Any, tmp_path: Path) -> None:
    run = rlbook.train(module.Bandit, "Maze-v0", steps=100, out=tmp_path / "run")
    again = f"rlbook evaluate {tmp_path / 'run'} --allow-import"
    assert again in training_summary(run, tmp_path / "run", 1.0)[1]
    del sys.modules["own_algorithm"]
    with pytest.raises(
        RequestError, match="would import the module 'own_algorithm'; give --allow-import"
    ):
        rlbook.load(tmp_path / "run")
    assert rlbook.load(tmp_path / "run", allow_import=True).steps == 100


def test_a_class_that_cannot_be_imported_is_given_again(tmp_path: Path) -> None:
    class Local(Still):
        pass

    rlbook.train(Local, "Maze-v0", steps=100, out=tmp_path / "run")
    with pytest.raises(RequestError, match="cannot be imported"):
        rlbook.load(tmp_path / "run")
    assert rlbook.load(tmp_path / "run", algorithm=Local).steps == 100
    with pytest.raises(RequestError, match=r"the run was made with .*Local, not with q_learning"):
        rlbook.load(tmp_path / "run", algorithm=rlbook.QLearning)


@pytest.mark.thorough
def test_from_the_command_line(tmp_path: Path) -> None:
    """From the folder where it is, by a command that, as an installed one does, begins without that
    folder on its path (-P)."""
    environment = os.environ | {"PYTHONPATH": str(Path(rlbook.__file__).parents[1])}
    words = [
        "own_algorithm:Bandit",
        "Maze-v0",
        "--allow-import",
        "--steps",
        "200",
        "--json",
        "--out",
        str(tmp_path / "run"),
    ]
    command = [sys.executable, "-P", "-m", "rlbook", "train", *words]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=OWN.parent)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["steps"] == 200 and (tmp_path / "run" / "curve.png").exists()


def test_the_command_refuses_a_module_that_it_may_not_import(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["train", "nowhere:Thing", "Maze-v0"]) == 2
    assert "would import the module 'nowhere'; give --allow-import" in capsys.readouterr().err
    assert main(["train", "nowhere:Thing", "Maze-v0", "--allow-import"]) == 2
    assert (
        "cannot be imported (ModuleNotFoundError: No module named 'nowhere')"
        in capsys.readouterr().err
    )


def test_a_registered_name_is_an_algorithm_like_any_other(
    module: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rlbook.registry.ALGORITHMS", dict(ALGORITHMS))
    register("bandit_of_mine", module.Bandit)
    assert (
        rlbook.algorithms()["bandit_of_mine"] is module.Bandit
        and refusal_reason("bandit_of_mine", "Maze-v0") is None
    )
    assert rlbook.train("bandit_of_mine", "Maze-v0", steps=50).request.algorithm == "bandit_of_mine"
    with pytest.raises(RequestError, match="algorithm name 'ppo' is taken"):
        register("ppo", module.Bandit)


class Still(Agent):
    """The least that is an agent: it never moves, and learns nothing."""

    observations = "index"
    actions = "discrete"

    def act(self, observation: int, *, explore: bool = True) -> int:
        return 0

    def learn(self, step: Step) -> Metrics:
        return {}

    def state_dict(self) -> State:
        return {}

    def load_state_dict(self, state: State) -> None:
        pass


def test_an_agent_needs_no_hyper_parameters_and_no_budget() -> None:
    # two episodes of 100 steps against the wall
    assert rlbook.train(Still, "Maze-v0", episodes=2).steps == 200
    with pytest.raises(RequestError, match=r"Still has no hyper-parameter 'gamma'"):
        rlbook.train(Still, "Maze-v0", gamma=0.9)


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (None, "learn must return a dict of numbers to log, .* got None"),
        (3.0, "learn must return a dict of numbers to log, .* got 3.0"),
        ({"loss": "high"}, "'loss' is to be logged, so it must be a number, got 'high'"),
        ({"loss": [1.0]}, r"'loss' is to be logged, .* got \[1.0\]"),
    ],
)
def test_what_learn_returns_is_refused_unless_it_can_be_logged(
    answer: Any, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Still, "learn", lambda self, step: answer)
    with pytest.raises(rlbook.TrainingError, match=sentence):
        rlbook.train(Still, "Maze-v0", steps=10)


def test_what_is_no_agent_is_refused_with_the_reason() -> None:
    class NeverLearns(Still):
        learn = Agent.learn

    class Incomplete(Agent):
        def learn(self, step: Step) -> Metrics:
            return {}

    class OddConfig(Still):
        Config = dict

    class OddBudget(Still):
        budget = {"epochs": 3}

    class OddActions(Still):
        actions = "discreet"

    class OddObservations(Still):
        observations = "image"

    sentences = {
        OddActions: r"OddActions.actions must be one of .*, got 'discreet'; did you mean 'discrete'",
        OddObservations: "OddObservations.observations must be one of 'index', .* got 'image'",
        NeverLearns: "NeverLearns never learns: it must define learn",
        Incomplete: "Incomplete learns from its own actions, so it must define act",
        OddConfig: "OddConfig.Config must be a dataclass of hyper-parameters, got the class dict",
        OddBudget: "OddBudget.budget must name steps, episodes, passes or eval_every, got 'epochs'",
        int: "algorithm must be a name or a class derived from rlbook.Agent, got the class int",
    }
    for kind, sentence in sentences.items():
        with pytest.raises(RequestError, match=sentence):
            rlbook.train(kind, "Maze-v0", steps=10)  # type: ignore[arg-type]


def test_three_ways_to_learn_are_told_apart_by_what_is_written() -> None:
    assert Still.sources() == ("environment",) and rlbook.ValueIteration.sources() == ("model",)
    assert rlbook.QLearning.plays() and Still.plays()


@pytest.mark.slow
@pytest.mark.parametrize("option", ["--allow-import", "--allow_import"])
def test_plot_imports_what_a_value_map_needs_where_it_may(option: str, tmp_path: Path) -> None:
    (tmp_path / "own_table.py").write_text(
        "import rlbook\n\n\nclass Table(rlbook.QLearning):\n    presets = {}\n", encoding="utf-8"
    )
    environment = os.environ | {"PYTHONPATH": str(Path(rlbook.__file__).parents[1])}

    def command(*words: str, module: str = "rlbook") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-P", "-m", module, *words],
            capture_output=True,
            text=True,
            env=environment,
            cwd=tmp_path,
        )

    trained = command(
        "train", "own_table:Table", "Maze-v0", option, "--steps", "200", "--out", "run"
    )
    assert trained.returncode == 0, trained.stderr
    refused = command("plot", "run", "--values")
    assert refused.returncode == 2 and "give --allow-import" in refused.stderr
    # the module that holds main() is a command, too
    drawn = command("plot", "run", "--values", option, module="rlbook.cli.main")
    assert (drawn.returncode, drawn.stdout) == (0, "run/value_map.png\n"), drawn.stderr
