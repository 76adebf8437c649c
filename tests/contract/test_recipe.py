"""`rlbook recipe`: stages that are skipped, resumed bit for bit, refused, planned without a trace,
and measured before and after."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import yaml
from closeness import near

import rlbook
from rlbook.cli import main as command_line
from rlbook.errors import RequestError
from rlbook.recipes.recipe import Recipe
from rlbook.recipes.recipe_file import recipes
from rlbook.recipes.run_recipe import plan_stages, run_recipe
from rlbook.recipes.table import cells, rows
from rlbook.runs.processes.interrupts import Interrupted
from rlbook.runs.run import Run
from rlbook.runs.storage.files import lock

TREE = {
    "title": "A teacher and its pupil",
    "defaults": {"env": "Maze-v0", "eval_every": 0},
    "measure": {"walks": {"env": "Maze-v0", "episodes": 5}},
    "stages": {
        "teacher": {"train": "q_learning", "steps": 600},
        "note": {"make": "notes:write", "words": 3, "run": {"stage": "teacher"}},
        "pupil": {
            "train": "behavior_cloning",
            "expert": {"stage": "teacher"},
            "steps": 40,
            "batch_size": 8,
            "hidden_sizes": [8],
        },
    },
}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "notes.py").write_text(
        "def write(out, run, *, words, seed):\n    out.write_text(f'{words} {seed}')\n    return"
        " {'words': words}\n\ndef steps(run, *, times=1):\n    return [times * run.steps]\n"
    )
    write(TREE)
    return tmp_path


def write(tree: object, name: str = "own.yaml") -> None:
    Path(name).write_text(yaml.safe_dump(tree, sort_keys=False))


def changed(path: str, value: object) -> dict[str, object]:
    """`TREE` with one entry changed; its keys stand between the dots."""
    tree = json.loads(json.dumps(TREE))
    *keys, last = path.split(".")
    inside = tree
    for key in keys:
        inside = inside[key]
    inside[last] = value
    return tree


def own(**overrides: object) -> Recipe:
    return Recipe.find(
        "own.yaml",
        {key.replace("__", "."): value for key, value in overrides.items()},
        allow_import=True,
    )


def contents(folder: Path) -> dict[str, bytes]:
    """What a recipe has written, without the places it was written to and the times it took."""
    left_out = ("seconds.json", ".lock", "config.yaml", "table.json")
    files = [
        path
        for path in folder.rglob("*")
        if path.is_file() and path.name not in left_out and "checkpoints" not in path.parts
    ]
    found = {
        str(path.relative_to(folder)): path.read_bytes()
        for path in files
        if path.parent.name != "done"
    }
    blobs = {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("checkpoints/*/*")
        if path.name != "header.json"
    }
    done = {path.name: json.loads(path.read_text()) for path in (folder / "done").iterdir()}
    return (
        found
        | blobs
        | {name: repr((item["before"], item["after"])).encode() for name, item in done.items()}
    )


def stop_in(
    name: str, signum: int = signal.SIGTERM, reports: int = 20
) -> tuple[list[tuple[str, str]], dict[str, object]]:
    """What a recipe tells of its stages, and callbacks that stop it in the middle of one."""
    told: list[tuple[str, str]] = []
    count = iter(range(10_000))

    def on_report(run: Run) -> None:
        if told[-1][0] == name and next(count) == reports:
            os.kill(os.getpid(), signum)

    return told, {
        "on_stage": lambda stage, what: told.append((stage.name, what)),
        "on_report": on_report,
    }


def test_a_recipe_skips_what_is_finished_and_resumes_bit_for_bit_what_was_stopped(
    here: Path,
) -> None:
    run_recipe(own(), here / "whole")
    told, callbacks = stop_in("pupil")
    with pytest.raises(Interrupted):
        run_recipe(own(), here / "parts", **callbacks)  # type: ignore[arg-type]
    assert told == [
        ("teacher", "begins"),
        ("teacher", "finished"),
        ("note", "begins"),
        ("note", "finished"),
        ("pupil", "begins"),
    ]
    assert not json.loads((here / "parts" / "done" / "pupil.json").read_text())["finished"]
    told, callbacks = stop_in("none")
    facts = run_recipe(own(), here / "parts", **callbacks)  # type: ignore[arg-type]
    assert told == [
        ("teacher", "skipped"),
        ("note", "skipped"),
        ("pupil", "goes on"),
        ("pupil", "finished"),
    ]
    whole, parts = contents(here / "whole"), contents(here / "parts")
    assert (
        whole.keys() == parts.keys()
        and [name for name in whole if whole[name] != parts[name]] == []
    )
    assert any("checkpoints" in name for name in whole)
    assert json.loads((here / "parts" / "table.json").read_text())["table"] == facts["table"]
    teacher, pupil = facts["table"]
    assert (teacher["stage"], pupil["stage"], pupil["measure"]) == ("teacher", "pupil", "walks")
    assert (
        teacher["after"]["count"] == 5
        and pupil["gain"]["mean"] == pupil["after"]["mean"] - pupil["before"]["mean"]
    )
    note = facts["stages"][1]
    assert (
        note["facts"] == {"words": 3}
        and (here / "parts" / "note" / "data.jsonl").read_text() == "3 0"
    )


def test_another_recipe_is_refused_in_the_folder_of_one(here: Path) -> None:
    run_recipe(own(), here / "run", only="teacher")
    before = contents(here / "run")
    with pytest.raises(
        RequestError, match=r"teacher\.steps was 600 there, but is 700 now; choose another --out"
    ):
        run_recipe(own(teacher__steps=700), here / "run")
    write(changed("stages.pupil.batch_size", 4))
    with pytest.raises(RequestError, match=r"pupil\.batch_size was 8 there, but is 4 now"):
        plan_stages(own(), here / "run")
    assert contents(here / "run") == before
    (here / "full").mkdir()
    (here / "full" / "letter").write_text("mine")
    with pytest.raises(RequestError, match="is not empty and holds no recipe"):
        run_recipe(own(), here / "full")


def test_a_stage_alone_says_which_earlier_one_is_missing(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["recipe", "own.yaml", "--allow-import", "--out", "alone", "--stage"]
    assert command_line.main([*words, "pupil"]) == 2
    assert (
        "stage pupil needs teacher, not finished in alone; run teacher first"
        in capsys.readouterr().err
    )
    assert not Path("alone").exists()
    assert command_line.main([*words, "teacher"]) == 0
    assert "1 of 3 stages are finished" in capsys.readouterr().out
    assert command_line.main([*words, "pupel"]) == 2
    assert (
        "has no stage 'pupel'; did you mean 'pupil'? (it has: teacher, note, pupil)"
        in capsys.readouterr().err
    )


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_the_command_and_says_how_to_go_on(
    signum: int, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    @contextlib.contextmanager
    def stopping() -> Iterator[object]:
        yield (
            lambda run: (
                os.kill(os.getpid(), signum)
                if run.request.algorithm == "behavior_cloning" and run.steps == 9
                else None
            )
        )

    monkeypatch.setattr("rlbook.runs.progress.progress", stopping)
    assert command_line.main(["recipe", "own.yaml", "--allow-import"]) == code
    wanted = (
        "interrupted in stage pupil; continue with: rlbook recipe own.yaml --allow-import --out"
        " runs/recipe-own-0"
    )
    assert wanted in capsys.readouterr().err


@pytest.mark.parametrize(
    ("path", "value", "sentence"),
    [
        (
            "stages.pupil.batch_sise",
            8,
            (
                r"stage pupil: behavior_cloning has no hyper-parameter 'batch_sise'; did you mean"
                r" 'batch_size'"
            ),
        ),
        ("stages.pupil.steps", 0, r"stage pupil: steps must be an integer of at least 1, got 0"),
        ("stages.pupil.env", "Mase-v0", r"stage pupil: .*Maze-v0"),
        ("stages.pupil.env_kwargs", {"slipp": 1}, r"stage pupil: .*slip"),
        ("stages.pupil.train", "behaviour_cloning", r"stage pupil: .*behavior_cloning"),
        (
            "stages.pupil.expert",
            {"stage": "techer"},
            r"stage pupil names 'techer', but no earlier stage has that name; did you mean",
        ),
        (
            "stages.pupil.expert",
            {"stage": "note"},
            r"stage pupil: expert names note, which makes data; name a stage that trains",
        ),
        (
            "stages.pupil.data",
            {"stage": "teacher"},
            r"stage pupil: data names teacher, which trains; name a stage that makes data",
        ),
        ("stages.note.wrds", 3, r"stage note: notes:write: .*'wrds'.*it takes: run, words"),
        ("stages.note.make", "notes:right", r"notes:right of stage note' cannot be imported"),
        (
            "stages.note.file",
            "../elsewhere",
            r"stage note: file must be a file name without folders",
        ),
        ("stages.extra", {"steps": 3}, r"stage extra must say one of train, make, export"),
        (
            "stages.model",
            {"export": {"stage": "note"}},
            r"export names note, which makes data; name a stage that trains",
        ),
        ("stages.measure", {"train": "ppo"}, r"none of measure, defaults, done; got 'measure'"),
        (
            "stages.extra",
            {"like": "pupel"},
            r"stage extra: like must be an earlier stage \(teacher, note, pupil\), got 'pupel'",
        ),
        ("measur", {}, r"unknown entry 'measur'; did you mean 'measure'"),
        ("measure.walks.stages", ["pupel"], r"no stage 'pupel'; did you mean 'pupil'"),
        ("measure.walks.call", "notes:steps", r"measure walks: notes:steps: .*it takes: times"),
        (
            "measure.walks.checkpoint",
            {"stage": "teacher"},
            r"measure walks names a stage, so it must say whose runs are measured",
        ),
        ("seed", "two", r"seed must be an integer of at least 0, got 'two'"),
        ("stages", {}, r"must hold 'stages'"),
    ],
)
def test_a_wrong_recipe_is_one_sentence_and_leaves_nothing(
    path: str, value: object, sentence: str, here: Path
) -> None:
    write(changed(path, value))
    with pytest.raises(RequestError, match=sentence):
        run_recipe(own(), here / "run")
    assert not (here / "run").exists()


def test_names_of_modules_need_the_permission_of_the_user(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command_line.main(["recipe", "own.yaml"]) == 2
    assert "give --allow-import" in capsys.readouterr().err
    assert not (here / "runs").exists()


def test_a_dry_run_prints_the_plan_and_writes_nothing(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(here.rglob("*.*"))
    assert (
        command_line.main(
            [
                "recipe",
                "own.yaml",
                "--allow-import",
                "--dry-run",
                "--pupil.steps",
                "7",
                "--seed",
                "3",
            ]
        )
        == 0
    )
    out = capsys.readouterr().out
    assert (
        "behavior_cloning on Maze-v0, 7 steps  teacher" in out
        and "seed 3" in out
        and "runs/recipe-own-3" in out
    )
    assert [path for path in sorted(here.rglob("*.*")) if "__pycache__" not in path.parts] == before
    assert max(map(len, out.splitlines())) <= 80


def test_what_the_command_line_changes_is_recorded(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [
        "--stage",
        "teacher",
        "--teacher.steps",
        "30",
        "--teacher.env.slip=0.2",
        "--measure.walks.episodes",
        "2",
        "--json",
    ]
    assert command_line.main(["recipe", "own.yaml", "--allow-import", "--out", "run", *words]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["table"][0]["after"]["count"] == 2 and facts["seed"] == 0
    tree = json.loads((here / "run" / "recipe.json").read_text())["tree"]
    assert tree["stages"]["teacher"] == {
        "train": "q_learning",
        "steps": 30,
        "env_kwargs": {"slip": 0.2},
    }
    config = yaml.safe_load((here / "run" / "teacher" / "config.yaml").read_text())
    assert (
        config["steps"] == 30
        and config["env_kwargs"] == {"slip": 0.2}
        and "alpha" in config["hyperparameters"]
    )
    assert command_line.main(["recipe", "own.yaml", "--allow-import", "--techer.steps", "3"]) == 2
    assert "has no stage 'techer'; did you mean 'teacher'?" in capsys.readouterr().err


def test_a_stage_may_be_like_an_earlier_one_and_follows_what_is_changed_there(here: Path) -> None:
    write(changed("stages.other", {"like": "pupil", "steps": 9, "env_kwargs": {"slip": 0.1}}))
    found = own(pupil__batch_size=4, defaults__env_kwargs={"slip": 0.3}).stage("other")
    assert (
        found.kind == "train"
        and found.what == "behavior_cloning"
        and found.required_stages == ("teacher",)
    )
    assert found.arguments == {
        "env": "Maze-v0",
        "eval_every": 0,
        "env_kwargs": {"slip": 0.1},
        "expert": {"stage": "teacher"},
        "steps": 9,
        "batch_size": 4,
        "hidden_sizes": [8],
    }


def test_a_value_that_a_stages_function_refuses_is_one_sentence(here: Path) -> None:
    recipe = Recipe.find("grpo_notebook_small", {"rows.kind": "some"})
    with pytest.raises(RequestError, match=r"^stage rows: kind must be one of 'words', 'sums'"):
        run_recipe(recipe, here / "run", only="rows")


def test_the_measures_of_several_samples_may_stand_in_the_table(here: Path) -> None:
    few = {"samples": 2, "episodes": 8}
    write(
        {
            "measure": {
                "once": few | {"value": "pass@1"},
                "twice": few | {"value": "pass@2"},
                "reward": few,
                "wrong": few | {"value": "pas@2"},
            },
            "stages": {
                "sft": {
                    "train": "sft",
                    "env": "Addition-v0",
                    "steps": 1,
                    "batch_size": 8,
                    "eval_every": 0,
                }
            },
        }
    )
    with pytest.raises(
        RequestError, match=r"measure wrong: an evaluation has no 'pas@2'; did you mean 'pass@2'"
    ):
        run_recipe(own(), here / "wrong")
    tree = yaml.safe_load(Path("own.yaml").read_text())
    del tree["measure"]["wrong"]
    write(tree)
    once, twice, reward = run_recipe(own(), here / "run")["table"]
    # prompts, not completions
    assert once["after"]["count"] == twice["after"]["count"] == reward["after"]["count"] == 8
    assert once["after"]["mean"] <= twice["after"]["mean"] <= 2 * once["after"]["mean"]
    assert once["after"]["mean"] == reward["after"]["mean"]


def test_two_writers_are_refused(here: Path) -> None:
    (here / "run" / "done").mkdir(parents=True)
    with (
        lock(here / "run"),
        pytest.raises(RequestError, match="is being written by another process"),
    ):
        run_recipe(own(), here / "run")


def test_the_books_recipes_are_listed_planned_and_found_by_a_name_that_is_nearly_right(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command_line.main(["recipe"]) == 0
    assert "rlhf" in recipes() and "RLHF in four models" in capsys.readouterr().out
    assert command_line.main(["list", "recipes"]) == 0
    assert "RLHF in four models" in capsys.readouterr().out
    assert command_line.main(["recipe", "rlfh"]) == 2
    assert "there is no recipe 'rlfh'; did you mean 'rlhf'?" in capsys.readouterr().err


@pytest.mark.thorough(quick=1)
@pytest.mark.parametrize("name", recipes())
def test_a_recipe_of_the_book_is_a_sound_plan(name: str, here: Path) -> None:
    found = plan_stages(Recipe.find(name), here / "run")
    assert (
        found and all(stage["state"] == "to do" for stage in found) and not (here / "run").exists()
    )


def test_a_run_that_the_recipe_did_not_start_is_refused(here: Path) -> None:
    _, callbacks = stop_in("teacher", reports=5)
    with pytest.raises(Interrupted):
        run_recipe(own(), here / "run", **callbacks)  # type: ignore[arg-type]
    config = here / "run" / "teacher" / "config.yaml"
    config.write_text(config.read_text().replace("algorithm: q_learning", "algorithm: notes:Agent"))
    with pytest.raises(
        RequestError,
        match=r"config.yaml was changed or damaged: its checkpoint belongs to another one",
    ):
        run_recipe(own(), here / "run")
    shutil.rmtree(here / "run" / "teacher")
    rlbook.train("sarsa", "Maze-v0", steps=50, out=here / "run" / "teacher")
    with pytest.raises(
        RequestError, match=r"was started with algorithm sarsa, but the recipe says q_learning"
    ):
        run_recipe(own(), here / "run")


def test_the_tables_intervals_are_of_the_differences_where_the_prompts_are_the_same() -> None:
    [row] = rows([("ppo", {"score": [0.0, 1.0, 0.0, 1.0]}, {"score": [0.5, 1.5, 0.5, 1.5]})])
    # all rose alike
    assert row["gain"] == {
        "mean": 0.5,
        "confidence_interval": [0.5, 0.5],
        "count": 4,
    }
    low, high = row["before"]["confidence_interval"]
    half = 3.182446 * np.std([0, 1, 0, 1], ddof=1) / 2  # Student's t for 3 degrees of freedom
    assert (low, high) == near((0.5 - half, 0.5 + half), decimals=6)
    assert cells(row) == ("ppo", "score", "0.50 ± 0.92", "1.00 ± 0.92", "+0.500 ± 0.000")
    [row] = rows([("rm", {}, {"visible": [1.0, 1.0]})])
    assert (
        row["before"] is None
        and row["gain"] is None
        and cells(row)[2:] == ("-", "1.000 ± 0.000", "-")
    )
