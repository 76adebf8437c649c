"""The `rlbook` command, as its users meet it: what it prints where, which exit code it returns, and
what it leaves behind."""

from __future__ import annotations

import io
import itertools
import json
import math
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from closeness import near
from warm_process import WarmProcess, run_python

import rlbook
from rlbook.cli import main as cli
from rlbook.cli.output import (
    _TolerantStream,
    align_columns,
    fill_sentence,
    report_interrupt,
    show,
)
from rlbook.cli.train import check_unchanged, parse_train
from rlbook.cli.values import convert, scalar
from rlbook.errors import RequestError, TrainingError
from rlbook.registry import ALGORITHMS
from rlbook.runs.processes.interrupts import Interrupted
from rlbook.runs.request import Request
from rlbook.runs.storage.checkpoints import CheckpointError, latest_step

ROOT = Path(rlbook.__file__).parents[1]
SMALL = [
    "--steps",
    "512",
    "--num-envs",
    "4",
    "--rollout-steps",
    "32",
    "--batch-size",
    "64",
    "--hidden-sizes",
    "16",
    "--eval-every",
    "0",
]


def variables() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "COLUMNS": "100"}


def command(*words: object) -> subprocess.Popen[str]:
    """The real command, from the first line of the interpreter on."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    given = [sys.executable, "-m", "rlbook", *map(str, words)]
    return subprocess.Popen(given, env=variables(), **pipes)


def run(*words: object) -> tuple[int, str, str]:
    done = run_python(["-m", "rlbook", *words], env=variables())
    return done.returncode, done.stdout, done.stderr


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    return tmp_path


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "ppo"
    assert cli.main(["train", "ppo", "Maze-v0", *SMALL, "--out", str(folder)]) == 0
    return folder


# Help


def test_help_names_every_command_and_loads_nothing_heavy() -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "rlbook", "--help"],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    loaded = done.stderr
    assert done.returncode == 0
    assert [line for line in loaded.splitlines() if not line.startswith("import time:")] == []
    for name in cli.COMMANDS:
        assert name in done.stdout
    for heavy in ("torch", "transformers", "gymnasium", "matplotlib", "scipy", "numba"):
        assert f" {heavy}\n" not in loaded


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_command_explains_its_options(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([name, "--help"]) == 0
    captured = capsys.readouterr()
    assert captured.err == "" and f"rlbook {name}" in captured.out and "--debug" in captured.out
    assert options_without_help(captured.out) == []


def options_without_help(text: str) -> list[str]:
    """The options after which nothing is said: no words on their line, and none on the next."""
    lines = [line.strip("│|").rstrip() for line in text.splitlines()]
    alone = re.compile(r" +--[a-z][\w-]*( [A-Z|{}, ]+)?")
    return [
        line.strip()
        for line, after in itertools.pairwise([*lines, ""])
        if alone.fullmatch(line) and not after.startswith("     ")
    ]


FAMILIES = {"bandit", "q_learning", "value_iteration", "mcts", "ppo", "sac", "grpo", "dpo"}
"""One algorithm of each kind. That each has a meaning for all of its options is tested in
tests/docs/test_site.py, and the help of all others in `make test-all`."""


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] * (name not in FAMILIES)) for name in ALGORITHMS],
)
def test_the_help_of_an_algorithm_teaches_each_hyperparameter(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    import dataclasses

    from rlbook.registry import agent_class

    assert cli.main(["train", name, "--help"]) == 0
    shown = capsys.readouterr().out
    assert options_without_help(shown) == []
    text = " ".join(shown.replace("│", " ").split())
    for field in dataclasses.fields(agent_class(name).Config):
        assert f"--{field.name.replace('_', '-')} " in text
    assert f"{name.replace('_', '-')} options" in text and "--env.KEY" in text


@pytest.mark.thorough(quick=1)
@pytest.mark.parametrize("name", ALGORITHMS)
def test_explain_shows_idea_hyperparameters_with_meaning_logged_numbers_and_source(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["explain", name, "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert "Source:" in facts["idea"]
    assert facts["hyperparameters"] and all(item["meaning"] for item in facts["hyperparameters"])
    assert facts["metrics"] and all(facts["metrics"].values())
    assert cli.main(["explain", name]) == 0
    text = capsys.readouterr().out
    assert all(item["name"] in text for item in facts["hyperparameters"])


@pytest.mark.parametrize("columns", [60, 80])
def test_tables_fit_the_terminal(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    cells = [
        ("algorithm", "environment", "interquartile mean", "95 % interval"),
        ("semi_gradient_sarsa", "Maze-v0", "3", "2.5 to 3"),
    ]
    table = align_columns(cells).splitlines()
    assert max(map(len, table)) <= columns
    assert len(table) == (3 if columns == 60 else 2)


def test_list_shows_algorithms_and_environments(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["list", "algorithms", "--json"]) == 0
    assert list(json.loads(capsys.readouterr().out)["algorithms"]) == list(ALGORITHMS)
    assert cli.main(["list", "envs"]) == 0
    assert {"Maze-v0", "Addition-v0", "Taxi-v4"} <= set(capsys.readouterr().out.split())


def test_plot_draws_the_search_of_an_mcts_run(
    trained: Path, empty_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main("train mcts Maze-v0 --episodes 1 --simulations 20 --out run".split()) == 0
    assert " steps, 1 episode, " in capsys.readouterr().out
    assert (
        cli.main("plot run --tree tree.svg".split()) == 0
        and cli.main("plot run --tree tree.html".split()) == 0
    )
    assert "<svg" in Path("tree.svg").read_text() and "simulation" in Path("tree.html").read_text()
    capsys.readouterr()
    for words, part in (
        (["run", "--tree", "tree.png"], ".svg, .html or .gif"),
        ([str(trained), "--tree", "t.svg"], "with ppo, not mcts"),
    ):
        assert cli.main(["plot", *words]) == 2
        assert part in capsys.readouterr().err


# Requests that are wrong


WRONG = {
    "tran": ["'tran'", "'train'"],
    "--gamma": ["'--gamma'"],
    "train": ["ALGORITHM", "ENV"],
    "train ppo": ["ENV"],
    "train dqqn Maze-v0": ["'dqqn'", "'dqn'"],
    "train --steps 5 dqqn Maze-v0": ["'dqqn'", "'dqn'"],
    "train ppo Mase-v0": ["'Mase-v0'", "'Maze-v0'"],
    "train ppo Taxi-v3": ["'Taxi-v3'", "'Taxi-v4'"],
    "train ppo os:system": ["'os'", "--allow-import"],
    "train ppo Maze-v0 extra": ["'extra'"],
    "train ppo Maze-v0 --gama 0.9": ["'--gama'", "'--gamma'"],
    "train ppo Maze-v0 --sed 1": ["'--sed'", "'--seed'"],
    "train ppo Maze-v0 --gamma": ["'--gamma'", "missing value"],
    "train ppo Maze-v0 --gamma high": ["--gamma", "'high'", "a number"],
    "train ppo Maze-v0 --gamma 1.5": ["gamma", "1.5", "[0, 1]"],
    "train ppo Maze-v0 --gamma nan": ["gamma", "nan", "[0, 1]"],
    "train ppo Maze-v0 --clip -0.2": ["clip", "-0.2", "above 0"],
    "train ppo Maze-v0 --batch-size 0": ["batch_size", "0", "at least 1"],
    "train ppo Maze-v0 --batch_size 2.5": ["--batch-size", "'2.5'", "whole number"],
    "train ppo Maze-v0 --normalize-reward maybe": ["'maybe'"],
    "train ppo Maze-v0 --normalize-reward yes": ["--normalize-reward", "'yes'", "true or false"],
    "train ppo Maze-v0 --kl-in rewad": ["kl_in", "'rewad'", "'reward'"],
    "train ppo Maze-v0 --steps 0": ["steps", "0", "at least 1"],
    "train ppo Maze-v0 --steps many": ["--steps", "'many'", "whole number"],
    "train ppo Maze-v0 --steps inf": ["--steps", "'inf'", "whole number"],
    "train ppo Maze-v0 --num-envs 0": ["num_envs", "0", "at least 1"],
    "train ppo Maze-v0 --seed -1": ["seed", "-1", "at least 0"],
    "train ppo Maze-v0 --env.slipp 0.1": ["'slipp'", "'slip'"],
    "train ppo Maze-v0 --env.slip 3": ["slip", "3", "[0, 1]"],
    "train ppo Maze-v0 --env.slip": ["--env.slip", "needs a value"],
    "train ppo Maze-v0 --config missing.yaml": ["missing.yaml", "does not exist"],
    "train ppo Maze-v0 --config .": ["--config takes a file", "'config.yaml'"],
    "train ppo Maze-v0 --out=": ["--out", "empty"],
    "train ppo Maze-v0 --no-gamma": ["'--no-gamma'", "'--gamma'"],
    "train --resume": ["--resume", "--out"],
    "train --resume nowhere": ["nowhere", "does not exist"],
    "train ppo Maze-v0 --out nowhere --resume": ["nowhere", "does not exist"],
    "train value_iteration Addition-v0": ["Addition-v0", "a table needs one row a state"],
    "evaluate": ["FOLDER"],
    "evaluate nowhere": ["nowhere", "not a run folder"],
    "evaluate nowhere --epsiodes 3": ["'--epsiodes'", "'--episodes'"],
    "evaluate nowhere --checkpoint worst": ["'worst'", "best"],
    "evaluate --episodes=3 --env= nowhere": ["--env", "empty"],
    "record Maze-v0 --out data --explore": ["explore", "a run's folder"],
    "verify q_learning --seed -1": ["seed", "-1", "at least 0"],
    "recipe --out runs": ["--out", "no effect"],
    "recipe --ppo.kl_coef 0": ["--ppo.kl_coef", "no effect"],
    "exercise list returns": ["returns has no effect"],
    "exercise start returns --trust": ["--trust", "no effect"],
    "course list --due 2026-10-01": ["--due", "no effect"],
    "course start class --jobs 2": ["--jobs", "no effect"],
    "plot": ["folder"],
    "course start ''": ["WHAT", "empty"],
    "compare nowhere ''": ["FOLDERS", "empty"],
    "compare": ["folder"],
    "inspect": ["FOLDER"],
    "inspect nowhere": ["nowhere", "not a run folder"],
    "inspect nowhere --out page.txt": [".html", "page.txt"],
    "inspect nowhere --promts 3": ["'--promts'", "'--prompts'"],
    "train ppo Maze-v0 --inspect 0": ["inspect", "0", "at least 1"],
    "doctor nowhere": ["nowhere", "is not a folder"],
    "tune sarsa Maze-v0 --resume": ["tune takes no --resume", "run again"],
    "compare nowhere": ["nowhere", "not a run folder"],
    "plot nowhere": ["nowhere"],
    "plot a b --values": ["--values", "2 folders"],
    "plot a b --tree tree.svg": ["--tree", "one run"],
    "plot nowhere --tree tree.svg": ["nowhere", "not a run folder"],
    "watch nowhere --episodes many": ["--episodes", "'many'"],
    "watch nowhere": ["nowhere", "not a run folder"],
    "animate value_iteration": ["ENV"],
    "animate": ["ALGORITHM"],
    "animate value_iteratoin Maze-v0": ["'value_iteratoin'", "'value_iteration'"],
    "animate value_iteration Maze-v0 --out film.mp4": [".gif or .html", "'film.mp4'"],
    "animate value_iteration Maze-v0 --frames 1": ["frames", "at least 2"],
    "animate value_iteration Maze-v0 --frames many": ["--frames", "'many'"],
    "animate value_iteration Maze-v0 --gama 0.9": ["'--gama'", "'--gamma'"],
    "animate value_iteration Maze-v0 --env.slipp 0.1": ["'slipp'", "'slip'"],
    "animate q_learning CartPole-v1": ["grid", "CartPole-v1"],
    "animate mcts Maze-v0 --out tree.png": ["tree.png", ".html"],
    "animate value_iteration Gambler-v0 --gamma 1": ["Gambler-v0", "curve"],
    "list algoritms": ["'algoritms'", "'algorithms'"],
    "explain pppo": ["'pppo'", "'ppo'"],
    "explain clip": ["'clip'", "a hyper-parameter of", "rlbook explain ppo"],
    "figure 6.44": ["'6.44'", "nearest"],
    "figure cliff": ["'cliff'", "6.4"],
    "figure 6.4 --out cliff.bmp": [".png", "'cliff.bmp'"],
    "figure 6.4 --runs 0": ["runs", "at least 1"],
    "figure 6.4 --seed some": ["--seed", "'some'"],
    "figure 3.2 --runs 5": ["3.2", "runs", "exactly"],
    "figure --runs 5": ["number", "6.4"],
}


@pytest.mark.thorough(quick=1)
@pytest.mark.parametrize("words", WRONG)
def test_a_wrong_request_gets_one_line_exit_code_2_and_writes_nothing(
    words: str, empty_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(shlex.split(words)) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1 and captured.err.startswith("rlbook: ")
    for part in WRONG[words]:
        assert part in captured.err
    assert list(empty_folder.iterdir()) == []


@pytest.mark.thorough
def test_a_wrong_request_to_the_real_command_shows_no_traceback(empty_folder: Path) -> None:
    process = command("train", "ppo", "Maze-v0", "--gamma", "1.5")
    said = process.communicate(timeout=120)
    assert said == ("", "rlbook: gamma must be a number in [0, 1], got 1.5\n")
    assert process.returncode == 2
    code, _, err = run("train", "ppo", "Maze-v0", "--gamma", "1.5", "--debug")
    assert code == 2 and "Traceback" in err
    assert list(empty_folder.iterdir()) == []


def test_json_has_null_for_what_it_has_no_number_for(capsys: pytest.CaptureFixture[str]) -> None:
    show(True, ({"scores": [1.0, math.nan], "best": {"return": -math.inf}}, ""))
    assert capsys.readouterr().out == '{"scores": [1.0, null], "best": {"return": null}}\n'


def test_with_json_an_error_is_one_object_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["evaluate", "nowhere", "--json"]) == 2
    facts = json.loads(capsys.readouterr().out)
    assert facts["exit_code"] == 2 and "nowhere" in facts["error"]


def test_a_folder_that_holds_a_run_is_not_overwritten(
    trained: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {path: path.stat().st_mtime_ns for path in trained.rglob("*")}
    assert cli.main(["train", "ppo", "Maze-v0", "--out", str(trained)]) == 2
    assert "--resume" in capsys.readouterr().err
    assert {path: path.stat().st_mtime_ns for path in trained.rglob("*")} == before


@pytest.mark.parametrize(
    ("stop", "code"),
    [
        (RequestError("no such thing"), 2),
        (CheckpointError("damaged"), 2),
        (TrainingError("NaN"), 1),
        (ZeroDivisionError("by zero"), 1),
        (KeyboardInterrupt(), 130),
        (Interrupted(signal.SIGINT), 130),
        (Interrupted(signal.SIGTERM), 143),
    ],
    ids=repr,
)
@pytest.mark.parametrize("as_json", [False, True])
def test_what_stops_a_command_has_an_exit_code_of_its_own(
    stop: BaseException,
    code: int,
    as_json: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """2 asks for another request, 1 says that it failed, and above 128 stands the signal that ended
    it; the JSON object has it, too."""

    def stopped(words: object) -> int:
        raise stop

    monkeypatch.setitem(cli.COMMANDS, "list", stopped)
    assert cli.main(["list", *(["--json"] if as_json else [])]) == code
    out, err = capsys.readouterr()
    assert err.startswith("rlbook: ") and err.count("\n") == 1
    assert json.loads(out)["exit_code"] == code if as_json else out == ""


def test_an_unforeseen_error_is_one_line_and_exit_code_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(words: Any) -> int:
        raise ZeroDivisionError("division\nby zero")

    monkeypatch.setitem(cli.COMMANDS, "list", broken)
    assert cli.main(["list"]) == 1
    assert (
        capsys.readouterr().err
        == "rlbook: unexpected ZeroDivisionError: division by zero (--debug shows where)\n"
    )


# Training and what follows


def test_training_prints_one_json_object_and_progress_elsewhere(empty_folder: Path) -> None:
    code, out, err = run("train", "ppo", "Maze-v0", *SMALL, "--json", "--out", "a")
    assert code == 0
    facts = json.loads(out)
    assert out.count("\n") == 1
    assert facts["steps"] == 512 and facts["algorithm"] == "ppo" and facts["folder"] == "a"
    assert "of 512 steps" in err and "steps/s" in err and "left" in err
    assert latest_step(empty_folder / "a") == 512


def test_without_out_each_run_gets_a_new_folder_under_runs(
    empty_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("ppo-Maze-v0-7", "ppo-Maze-v0-7-2"):
        assert cli.main(["train", "ppo", "Maze-v0", *SMALL, "--seed", "7"]) == 0
        assert f"rlbook evaluate runs/{name}" in capsys.readouterr().out
        assert latest_step(empty_folder / "runs" / name) == 512


def test_evaluate_reports_the_mean_with_its_interval(
    trained: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["evaluate", str(trained), "--episodes", "5", "--seed", "3", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["episodes"] == len(facts["returns"]) == 5
    assert facts["mean"] == near(sum(facts["returns"]) / 5, terms=5, size=10.0)
    assert facts["confidence_interval"][0] <= facts["mean"] <= facts["confidence_interval"][1]
    assert (
        cli.main(
            ["evaluate", str(trained), "--episodes", "5", "--seed", "3", "--checkpoint", "512"]
        )
        == 0
    )
    assert f"{facts['mean']:.4g}" in capsys.readouterr().out


def test_evaluate_can_explore_as_in_training(
    trained: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["evaluate", str(trained), "--episodes", "20", "--explore"]) == 0
    assert "20, exploring" in capsys.readouterr().out
    assert cli.main(["evaluate", str(trained), "--episodes", "20", "--explore", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["explore"] is True and len(set(facts["returns"])) > 1, (
        "greedy walks in the maze are all the same"
    )


def test_a_model_folder_is_remembered_by_its_absolute_path(empty_folder: Path) -> None:
    (empty_folder / "model").mkdir()
    given = {
        name: parse_train(["grpo", "Addition-v0", "--model", name]).options["model"]
        for name in ("model", "elsewhere")
    }
    assert given == {"model": str(empty_folder / "model"), "elsewhere": "elsewhere"}


def test_plot_writes_a_png(
    trained: Path, empty_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["plot", str(trained), "--out", "ppo.png"]) == 0
    assert capsys.readouterr().out == "ppo.png\n"
    assert (empty_folder / "ppo.png").read_bytes().startswith(b"\x89PNG")


def test_plot_of_one_maze_run_adds_its_value_map(
    empty_folder: Path, trained: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import shutil

    shutil.copytree(trained, empty_folder / "run")
    assert cli.main(["plot", "run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["written"] == ["run/curve.png", "run/value_map.png"]
    assert (empty_folder / "run" / "value_map.png").read_bytes().startswith(b"\x89PNG")
    assert cli.main(["plot", "run", "--values", "--out", "map.svg"]) == 0
    assert capsys.readouterr().out == "map.svg\n" and (empty_folder / "map.svg").exists()


def test_animate_writes_a_page_or_a_gif(
    empty_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        cli.main(["animate", "value_iteration", "Maze-v0", "--env.slip", "0.1", "--gamma", "0.9"])
        == 0
    )
    assert capsys.readouterr().out == "value_iteration-Maze-v0.html\n"
    assert (empty_folder / "value_iteration-Maze-v0.html").read_text().startswith("<!doctype html>")
    words = (
        "animate q_learning CliffWalking-v1 --episodes 3 --frames 4 --alpha 0.5 --out cliff.gif"
        " --json"
    )
    assert cli.main(words.split()) == 0
    assert json.loads(capsys.readouterr().out)["written"] == ["cliff.gif"]
    assert (empty_folder / "cliff.gif").read_bytes().startswith(b"GIF8")


def test_watch_plays_in_the_terminal_or_writes_a_gif(
    trained: Path, empty_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["watch", str(trained), "--episodes", "2"]) == 0
    text = capsys.readouterr().out
    assert "episode 1: return" in text and "episode 2: return" in text
    assert cli.main(["watch", str(trained), "--gif", "film.gif"]) == 0
    assert capsys.readouterr().out == "film.gif\n"
    assert (empty_folder / "film.gif").read_bytes().startswith(b"GIF8")


def test_a_finished_run_has_its_curve(trained: Path) -> None:
    assert (trained / "curve.png").read_bytes().startswith(b"\x89PNG")


def test_a_flag_goes_before_the_config_file_and_the_file_before_the_default(
    empty_folder: Path,
) -> None:
    (empty_folder / "run.yaml").write_text(
        yaml.safe_dump(
            {
                "algorithm": "ppo",
                "env": "Maze-v0",
                "steps": 512,
                "seed": 3,
                "env_kwargs": {"slip": 0.1, "rewards": "shaped"},
                "hyperparameters": {"gamma": 0.5, "hidden_sizes": [16], "gae_lambda": 0.3},
            }
        )
    )
    training = parse_train(
        ["--config", "run.yaml", "--seed", "4", "--gae-lambda", "0.2", "--env.slip", "0.2"]
    )
    assert (training.algorithm, training.env) == ("ppo", "Maze-v0")
    assert training.options == {"steps": 512, "seed": 4}
    assert training.env_kwargs == {"slip": 0.2, "rewards": "shaped"}
    assert training.hyperparameters == {"gamma": 0.5, "hidden_sizes": (16,), "gae_lambda": 0.2}


@pytest.mark.parametrize(
    ("content", "part"),
    [
        ("[1, 2]", "must hold entries"),
        ("{", "is not YAML"),
        ("algoritm: ppo", "'algorithm'"),
        ("algorithm: 3", "must be a name"),
        ("{algorithm: ppo, env: Maze-v0, hyperparameters: [1]}", "must be a mapping"),
        ("{algorithm: ppo, env: Maze-v0, hyperparameters: {gama: 1}}", "'gamma'"),
        ("{algorithm: ppo, env: Maze-v0, steps: many}", "steps must be an integer"),
        ("!!python/object/apply:os.system ['touch pwned']", "is not YAML"),
    ],
)
def test_a_config_file_that_is_wrong_is_one_line(
    content: str, part: str, empty_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (empty_folder / "run.yaml").write_text(content)
    assert cli.main(["train", "--config", "run.yaml"]) == 2
    error = capsys.readouterr().err
    assert part in error and error.count("\n") == 1
    assert [path.name for path in empty_folder.iterdir()] == ["run.yaml"]


def test_a_run_can_be_run_again_from_its_own_config(trained: Path, empty_folder: Path) -> None:
    assert cli.main(["train", "--config", str(trained / "config.yaml"), "--out", "again"]) == 0
    for name in ("config.yaml", "metrics.jsonl", "episodes.csv", "checkpoints/512/header.json"):
        assert (empty_folder / "again" / name).read_bytes() == (trained / name).read_bytes()


# Interrupting and going on


LONG = [
    "--steps",
    "4000",
    "--num-envs",
    "4",
    "--rollout-steps",
    "16",
    "--batch-size",
    "16",
    "--epochs",
    "4",
    "--hidden-sizes",
    "16",
]


def interrupted(signum: int, out: str, folder: Path) -> tuple[int, str, str]:
    """Starts a long run, and sends the signal once its log shows that it learns."""
    words = ["-m", "rlbook", "train", "ppo", "Maze-v0", *LONG, "--out", out]
    process = WarmProcess(words, cwd=folder, env=variables())
    log = folder / out / "metrics.jsonl"
    while process.poll() is None and not (log.exists() and log.stat().st_size > 0):
        time.sleep(0.02)
    process.send_signal(signum)
    stdout, stderr = process.communicate(timeout=60)
    return process.wait(), stdout, stderr


@pytest.mark.thorough
def test_an_interrupted_run_says_how_to_go_on_and_ends_as_an_uninterrupted_one(
    empty_folder: Path,
) -> None:
    assert cli.main(["train", "ppo", "Maze-v0", *LONG, "--out", "whole"]) == 0
    for signum, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
        out = f"stopped{code}"
        returned, stdout, stderr = interrupted(signum, out, empty_folder)
        step = latest_step(empty_folder / out)
        assert returned == code and stdout == "" and step is not None and step < 4000
        assert (
            stderr.splitlines()[-1]
            == f"rlbook: interrupted at step {step}; continue with: rlbook train --resume {out}"
        )
        assert "Traceback" not in stderr
    assert cli.main(["train", "--resume", "stopped130"]) == 0
    assert cli.main(["train", "ppo", "Maze-v0", *LONG, "--out", "stopped143", "--resume"]) == 0
    files = (
        "config.yaml",
        "metrics.jsonl",
        "episodes.csv",
        "checkpoints/4000/header.json",
        "checkpoints/4000/arrays.safetensors",
    )
    for out in ("stopped130", "stopped143"):
        for name in files:
            assert (empty_folder / out / name).read_bytes() == (
                empty_folder / "whole" / name
            ).read_bytes()


def test_a_finished_run_that_is_resumed_says_that_it_is_complete(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = Path(shutil.copytree(trained, tmp_path / "run"))
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert cli.main(["train", "--resume", str(folder)]) == 0
    said = capsys.readouterr()
    sentence = "is complete (512 of 512 steps); --steps 1024 extends it"
    assert (said.out, said.err) == (f"the run in {folder} {sentence}\n", "")
    after = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert before == after
    assert cli.main(["train", "--resume", str(folder), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["steps"] == 512  # as `train --seeds` reads it


def test_resume_refuses_to_change_the_run(
    trained: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for words, part in (
        (["--resume", str(trained), "--gamma", "0.5"], "gamma 0.99"),
        (["--resume", str(trained), "--seed", "1"], "seed 0"),
        (["--resume", str(trained), "--env.slip", "0.5"], "env.slip None"),
        (["dqn", "Maze-v0", "--out", str(trained), "--resume"], "algorithm ppo"),
        (["ppo", "Taxi-v4", "--out", str(trained), "--resume"], "env Maze-v0"),
    ):
        assert cli.main(["train", *words]) == 2
        assert part in capsys.readouterr().err
    again = parse_train(["ppo", "rlbook/Maze-v0", "--out", str(trained), "--resume"])
    check_unchanged(again, rlbook.load(trained).request, trained)  # the same by its whole name


def test_a_folder_that_is_being_written_is_left_alone(
    trained: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from rlbook.runs.storage.checkpoints import lock

    with lock(trained):
        assert cli.main(["train", "--resume", str(trained)]) == 2
    assert "being written by another process" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", ["evaluate", "watch --gif film.gif", "record --out data", "export model"]
)
def test_every_command_that_takes_a_checkpoint_looks_for_the_one_that_is_named(
    words: str, trained: Path, empty_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name, *more = words.split()
    assert cli.main([name, str(trained), *more, "--checkpoint", "7"]) == 2
    assert "it has no checkpoint of step 7; there are 464, 512" in capsys.readouterr().err
    assert list(empty_folder.iterdir()) == []


def test_what_is_said_at_an_interrupt_names_the_options_that_no_folder_holds(
    trained: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    held = {"workers": 2, "inspect": 3, "trackers": ["tensorboard", "wandb"]}
    code = report_interrupt(2, trained, as_json=True, allow_import=True, **held)
    shown = capsys.readouterr()
    more = "--workers 2 --inspect 3 --track tensorboard wandb --allow-import"
    again = f"rlbook train --resume {trained} {more}"
    assert code == 130 and shown.err.endswith(f"at step 512; continue with: {again}\n")
    assert json.loads(shown.out)["exit_code"] == 130


def test_a_command_at_the_end_of_a_sentence_stays_on_one_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    again = "rlbook train q_learning Maze-v0 --alpha 0.5"
    *said, last = fill_sentence(f"its default settings reach the optimum: {again}").splitlines()
    assert last == again and max(map(len, said)) <= 40


def test_a_path_keeps_its_spaces_in_a_sentence(
    trained: Path, empty_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(trained, empty_folder / "two  spaces")
    assert report_interrupt(2, Path("two  spaces"), as_json=False) == 130
    shown = capsys.readouterr().err.split("continue with: ")[1]
    assert cli.main(shlex.split(shown)[1:]) == 0


def test_no_curve_is_suggested_where_there_is_none(
    empty_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    short = ["--steps", "20", "--eval-every", "0"]
    assert cli.main(["train", "q_learning", "Maze-v0", *short, "--out", "run"]) == 0
    shown = capsys.readouterr().out
    assert "rlbook watch run" in shown and "rlbook plot" not in shown
    assert cli.main(["plot", "run"]) == 2


def test_a_damaged_checkpoint_is_one_line(
    trained: Path, empty_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import shutil

    shutil.copytree(trained, empty_folder / "copy")
    blob = empty_folder / "copy" / "checkpoints" / "512" / "arrays.safetensors"
    blob.write_bytes(blob.read_bytes()[:-1])
    assert cli.main(["evaluate", "copy"]) == 2
    error = capsys.readouterr().err
    assert "checksum" in error and error.count("\n") == 1


def test_failed_training_names_the_last_good_checkpoint(empty_folder: Path) -> None:
    (empty_folder / "broken_world.py").write_text(
        "import gymnasium, numpy as np\n"
        "class World(gymnasium.Env):\n"
        "    observation_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)\n"
        "    action_space = gymnasium.spaces.Discrete(2)\n"
        "    steps = 0\n"
        "    def reset(self, *, seed=None, options=None):\n"
        "        super().reset(seed=seed)\n"
        "        return np.zeros(1, np.float32), {}\n"
        "    def step(self, action):\n"
        "        self.steps += 1\n"
        "        reward = float('nan') if self.steps > 100 else 1.0\n"
        "        return np.zeros(1, np.float32), reward, self.steps % 10 == 0, False, {}\n"
        "gymnasium.register('World-v0', entry_point=World)\n"
    )
    words = ["train", "ppo", "broken_world:World-v0", *SMALL, "--allow-import", "--out", "a"]
    environment = variables() | {"PYTHONPATH": f"{ROOT}{os.pathsep}{empty_folder}"}
    done = run_python(["-m", "rlbook", *words], env=environment)
    assert done.returncode == 1 and done.stdout == "" and "Traceback" not in done.stderr
    last = done.stderr.splitlines()[-1]
    step = latest_step(empty_folder / "a")
    assert (
        last.startswith("rlbook: ")
        and "reward" in last
        and f"the last good checkpoint is a/checkpoints/{step}" in last
    )
    assert step is not None and step <= 400


def test_a_file_size_limit_ends_the_run_with_one_line(empty_folder: Path) -> None:
    limit = "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (4000, 4000))"
    code = f"{limit}; from rlbook.cli.main import main; sys.exit(main())"
    words = ["train", "ppo", "Maze-v0", *SMALL, "--out", "a"]
    done = run_python(["-c", code, *words], env=variables())
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert (
        "file too large" in done.stderr.splitlines()[-1].lower()
        and "no earlier checkpoint was written" in done.stderr.splitlines()[-1]
    )
    assert list((empty_folder / "a" / "checkpoints").iterdir()) == []


def test_tensorboard_events_are_written_where_asked_for(empty_folder: Path) -> None:
    assert cli.main(["train", "ppo", "Maze-v0", *SMALL, "--out", "a", "--tensorboard"]) == 0
    events = list((empty_folder / "a" / "tensorboard").iterdir())
    assert len(events) == 1 and b"policy_loss" in events[0].read_bytes()


def test_trackers_are_named_in_python_too(empty_folder: Path) -> None:
    asked: dict[str, Any] = {"steps": 200, "track": "tensorboard", "eval_episodes": 1}
    run = rlbook.train("ppo", "Maze-v0", out="a", **asked)
    rlbook.train("ppo", "Maze-v0", out="a", resume=True, **asked)
    events = [path.read_bytes() for path in (empty_folder / "a" / "tensorboard").iterdir()]
    assert run.folder is not None and any(b"eval_return" in found for found in events)
    with pytest.raises(rlbook.RequestError, match="there is none; give out"):
        rlbook.train("ppo", "Maze-v0", **asked)
    with pytest.raises(rlbook.RequestError, match="did you mean 'wandb'"):
        rlbook.train("ppo", "Maze-v0", out="b", track=["wandbb"])
    assert [path.name for path in empty_folder.iterdir()] == ["a"]


def test_without_tensorboard_installed_the_request_is_refused(
    empty_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    assert cli.main(["train", "ppo", "Maze-v0", *SMALL, "--out", "a", "--tensorboard"]) == 2
    assert "rlbook[log]" in capsys.readouterr().err
    assert list(empty_folder.iterdir()) == []


@pytest.mark.thorough
@pytest.mark.parametrize("words", ["explain ppo", "list --help"])
def test_a_reader_that_leaves_early_causes_no_noise(words: str) -> None:
    process = command(*words.split())
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    error = process.stderr.read()
    assert process.wait(timeout=60) == 0 and error == ""
    process.stderr.close()


# Values


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3),
        ("-3", -3),
        ("0.5", 0.5),
        ("1e-3", 1e-3),
        ("true", True),
        ("False", False),
        ("null", None),
        ("none", None),
        ("~", None),
        ("[1, 2]", [1, 2]),
        ("text", "text"),
        ("#..G", "#..G"),
        ("S.\n.G", "S.\n.G"),
        ("", ""),
        ("2020-01-01", "2020-01-01"),
        ("!!python/name:os.system", "!!python/name:os.system"),
        ("{a: 1}", {"a": 1}),
    ],
)
def test_an_environment_argument_is_a_plain_value_or_its_own_text(text: str, value: Any) -> None:
    assert scalar(text) == value and type(scalar(text)) is type(value)


def test_resume_takes_a_folder_or_stands_alone(empty_folder: Path) -> None:
    (empty_folder / "f").mkdir()
    (empty_folder / "f" / "config.yaml").write_text("{algorithm: ppo, env: Maze-v0}")
    assert parse_train(["--resume", "f"]).resume == "f"
    assert parse_train(["--resume=f", "--gae-lambda", "0.1"]).hyperparameters == {"gae_lambda": 0.1}
    assert parse_train(["ppo", "Maze-v0", "--resume", "--out", "f"]).resume == "f"
    assert parse_train(["--resume", "ppo", "Maze-v0", "--out", "f"]).resume == "f"
    assert parse_train(["ppo", "Maze-v0", "--out", "f"]).resume is None


def test_a_folder_may_have_the_name_of_an_algorithm(empty_folder: Path) -> None:
    (empty_folder / "ppo").mkdir()
    (empty_folder / "ppo" / "config.yaml").write_text("{algorithm: dqn, env: Maze-v0}")
    parsed = parse_train(["--resume", "ppo"])
    assert (parsed.algorithm, parsed.resume) == ("dqn", "ppo")
    parsed = parse_train(["--resume", "ppo", "Maze-v0", "--out", "f"])
    assert (parsed.algorithm, parsed.resume) == ("ppo", "f")


@pytest.mark.parametrize(
    ("words", "algorithm", "given"),
    [
        ("--out dqn ppo Maze-v0", "ppo", {}),
        ("--critic-start reward_model ppo Maze-v0", "ppo", {"critic_start": "reward_model"}),
        ("--preference-loss ipo dpo Maze-v0", "dpo", {"preference_loss": "ipo"}),
        ("--config dpo.yaml --preference-loss ipo", "dpo", {"preference_loss": "ipo"}),
        ("--mask-truncated dapo Maze-v0", "dapo", {"mask_truncated": True}),
        ("--normalize-reward ppo Maze-v0", "ppo", {"normalize_reward": True}),
    ],
)
def test_the_value_of_an_option_is_no_algorithm(
    words: str, algorithm: str, given: dict[str, Any], empty_folder: Path
) -> None:
    (empty_folder / "dpo.yaml").write_text("{algorithm: dpo, env: Maze-v0}")
    parsed = parse_train(words.split())
    assert (parsed.algorithm, parsed.env, parsed.hyperparameters) == (algorithm, "Maze-v0", given)


def test_a_home_folder_is_found_where_the_shell_leaves_its_sign(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HOME", "/home/ann")
    parsed = parse_train(["sft", "Chat-v0", "--out=~/run", "--data=~/rows.jsonl"])
    assert parsed.out_folder == "/home/ann/run"
    assert parsed.options == {"data": "/home/ann/rows.jsonl"}
    parsed = parse_train(["grpo", "Chat-v0", "--env.data=~/rows.jsonl", "--env.prompt", "~ {x}"])
    assert parsed.env_kwargs == {"data": "/home/ann/rows.jsonl", "prompt": "~ {x}"}


def test_switches_are_given_with_or_without_a_value() -> None:
    for words, value in (
        (["--normalize-reward"], True),
        (["--no-normalize-reward"], False),
        (["--normalize_reward", "true"], True),
        (["--normalize-reward=false"], False),
        (["--normalize-reward", "False"], False),
    ):
        given = parse_train(["ppo", "Maze-v0", *words, "--gae-lambda", "0.1"]).hyperparameters
        assert given == {"normalize_reward": value, "gae_lambda": 0.1}


def test_the_model_option_is_an_argument_of_the_environment_too() -> None:
    assert parse_train(["ppo", "Addition-v0", "--model", "folder"]).options == {"model": "folder"}
    assert Request.build("ppo", "Addition-v0", model="folder").recipe.kwargs == {"model": "folder"}


@pytest.mark.parametrize(
    "words",
    [
        ["--hidden-sizes", "8", "16", "ppo", "Maze-v0"],
        ["ppo", "--hidden-sizes", "8", "16", "Maze-v0", "--steps", "9"],
        ["--steps", "9", "ppo", "Maze-v0", "--hidden_sizes", "8,16"],
        ["ppo", "--hidden-sizes=8", "Maze-v0", "--hidden-sizes", "8", "16"],
    ],
)
def test_options_stand_before_between_or_after_the_names(words: list[str]) -> None:
    parsed = parse_train(words)
    assert (parsed.algorithm, parsed.env, parsed.hyperparameters) == (
        "ppo",
        "Maze-v0",
        {"hidden_sizes": (8, 16)},
    )


@pytest.mark.slow
def test_a_folder_with_spaces_is_quoted_where_a_command_is_shown(empty_folder: Path) -> None:
    _, _, stderr = interrupted(signal.SIGTERM, "a run; it's mine", empty_folder)
    shown = stderr.splitlines()[-1].split("continue with: ")[1]
    assert shlex.split(shown) == ["rlbook", "train", "--resume", "a run; it's mine"]
    assert cli.main(shlex.split(shown)[1:]) == 0


def test_what_an_environment_prints_is_not_mixed_with_json(
    empty_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [
        "q_learning",
        "Maze-v0",
        "--env.render_mode",
        "human",
        "--steps",
        "5",
        "--eval-every",
        "0",
        "--json",
        "--out",
        "a",
    ]
    assert cli.main(["train", *words]) == 0
    shown = capsys.readouterr()
    assert json.loads(shown.out)["steps"] == 5 and "A..#G" in shown.err


def test_a_tuple_is_written_with_spaces_or_commas() -> None:
    for words in (
        ["--hidden-sizes", "32", "16"],
        ["--hidden-sizes", "32,16"],
        ["--hidden_sizes=32,16"],
    ):
        assert parse_train(["ppo", "Maze-v0", *words]).hyperparameters == {"hidden_sizes": (32, 16)}


def test_a_number_that_is_none_of_the_allowed_types_is_refused() -> None:
    from rlbook.cli.values import OptionText

    assert convert("--x", OptionText(("none",)), float | None) is None
    assert convert("--x", OptionText(("1e3",)), int) == 1000
    with pytest.raises(RequestError, match="--x must be a number, got 'none'"):
        convert("--x", OptionText(("none",)), float)


# Streams that are closed, full or left


def shell(line: str, folder: Path) -> subprocess.Popen[str]:
    """A line of bash, in which `rlbook` is the command."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    defined = (
        f'set -o pipefail; rlbook() {{ {shlex.quote(sys.executable)} -m rlbook "$@"; }}; {line}'
    )
    return subprocess.Popen(
        ["bash", "-c", defined],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        cwd=folder,
    )


@pytest.mark.slow
def test_no_run_is_lost_for_what_its_output_leads_to(empty_folder: Path) -> None:
    streams = {
        "closed": ">&- 2>&- <&-",
        "full": ">/dev/full",
        "mute": "2>/dev/full",
        "left": "2>&1 | head -1",
    }
    train = "rlbook train q_learning Maze-v0 --steps 60 --eval-every 0 --out"
    started = {
        name: shell(f"{train} {name} {where}", empty_folder) for name, where in streams.items()
    }
    started["explained"] = shell("rlbook explain q_learning >/dev/full", empty_folder)
    errors = {name: process.communicate(timeout=120)[1] for name, process in started.items()}
    assert {name: process.returncode for name, process in started.items()} == dict.fromkeys(
        streams, 0
    ) | {"explained": 1}, errors
    for name in streams:
        assert latest_step(empty_folder / name) == 60
        lines = (empty_folder / name / "metrics.jsonl").read_text().splitlines()
        assert json.loads(lines[-1])["step"] == 60, "nothing was printed into the run's files"
        assert "Traceback" not in errors[name] and "Exception ignored" not in errors[name]
    assert (
        "the run is finished and stored in full; the result could not be printed (no space left on device)"
        in errors["full"]
    )
    assert (
        errors["explained"] == "rlbook: the result could not be printed (no space left on device)\n"
    )


@pytest.mark.slow
def test_a_result_that_nobody_got_is_no_success(empty_folder: Path) -> None:
    train = "rlbook train q_learning Maze-v0 --steps 60 --eval-every 0 --json --out"
    lost, closed = "the result could not be printed", "(standard output is closed)"
    expected = {
        f"{train} closed >&-": f"the run is finished and stored in closed; {lost} {closed}",
        f"{train} full >/dev/full": (
            f"the run is finished and stored in full; {lost} (no space left on device)"
        ),
        "rlbook evaluate closed --episodes 2 --json >&-": f"{lost} {closed}",
        "rlbook evaluate closed --episodes 2 --json | true": f"{lost} (broken pipe)",
        "rlbook list >&-": f"{lost} {closed}",
        "rlbook --version >&-": f"{lost} {closed}",
        "rlbook watch closed >/dev/full": f"{lost} (no space left on device)",
        "rlbook --help >/dev/full": f"{lost} (no space left on device)",
    }
    for line, sentence in expected.items():
        process = shell(line, empty_folder)
        said = process.communicate(timeout=120)[1]
        assert (process.returncode, said.splitlines()[-1]) == (1, f"rlbook: {sentence}"), line
        assert "Traceback" not in said and "Exception ignored" not in said
    for line, code in {"rlbook list | head -1": 0, "rlbook nonsense >&-": 2}.items():
        process = shell(line, empty_folder)
        assert "Traceback" not in process.communicate(timeout=120)[1] and process.returncode == code


def test_a_curve_that_cannot_be_drawn_is_a_note(
    empty_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (empty_folder / "run" / ".tmp-curve.png").mkdir(parents=True)  # in the way of the picture
    assert (
        cli.main("train q_learning Maze-v0 --episodes 2 --eval-every 0 --out run --json".split())
        == 0
    )
    shown = capsys.readouterr()
    assert json.loads(shown.out)["episodes"] == 2
    assert "note: the curve was not drawn: cannot write run/curve.png" in shown.err


def test_a_folder_whose_name_begins_like_an_option_is_named_so_that_commands_take_it() -> None:
    code, out, err = run(
        "train", "q_learning", "Maze-v0", "--steps", "50", "--eval-every", "0", "--out=--x"
    )
    assert code == 0, err
    shown = [shlex.split(line) for line in out.splitlines() if line.startswith("  rlbook ")]
    assert shown and all(words[2] == "./--x" for words in shown)
    assert run(*shown[0][1:], "--episodes", "1")[0] == 0


def test_standard_error_that_was_closed_is_no_terminal_to_who_asks_at_exit() -> None:
    """colorama does, where it is installed; a ValueError would be printed after the run."""
    stream = io.StringIO()
    forgiving = _TolerantStream(stream)
    assert not forgiving.isatty()
    stream.close()
    assert not forgiving.isatty()
