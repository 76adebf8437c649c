"""`rlbook tune`: what a search finds, goes on with after a stop, and measures on fresh seeds; wrong
requests."""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import rlbook
from rlbook.cli import main as cli
from rlbook.cli.tune import _env_before_search, _table
from rlbook.errors import TrainingError
from rlbook.recipes.pruning import PruningCallback
from rlbook.recipes.study import JOURNAL
from rlbook.recipes.tuning import Trial, Tuning, next_fresh_seeds, tune
from rlbook.recipes.tuning_plan import TuningPlan
from rlbook.runs.processes.interrupts import Interrupted
from rlbook.runs.request import Request
from rlbook.runs.storage.log import read_metrics
from rlbook.runs.storage.plain_yaml import parse_yaml

ROOT = Path(__file__).parents[2]
SHORT = ["q_learning", "FrozenLake-v1", "--steps", "1000", "--eval-episodes", "20"]
STEPS: dict[str, Any] = {"steps": 1000, "seeds": 2, "eval_episodes": 20}
"""Each report evaluates, for the pruning; with the hundred episodes of the default that takes most
of the time."""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    pytest.importorskip("optuna")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def values(tuning: Tuning) -> list[tuple[dict[str, Any], str, list[float]]]:
    return [(trial.hyperparameters, trial.state, trial.scores) for trial in tuning.trials]


def start(*words: str) -> subprocess.Popen[str]:
    """The real command, in a process group of its own, as a terminal starts it."""
    places = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(places)}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(
        [sys.executable, "-m", "rlbook", "tune", *words], env=environment, process_group=0, **pipes
    )


@pytest.mark.thorough
def test_a_score_is_the_mean_of_runs_that_anybody_can_repeat(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["tune", *SHORT, "--trials", "4", "--seeds", "2", "--fresh-seeds", "2", "--jobs", "1"]
    assert cli.main([*words, "--out", "a", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    best = facts["best"]
    again = [
        rlbook.train(
            *SHORT[:2], steps=1000, eval_episodes=20, seed=seed, **best["hyperparameters"]
        ).metrics[-1]
        for seed in (0, 1)
    ]
    assert best["scores"] == [report["eval_return"] for report in again]
    assert best["score"] == statistics.fmean(best["scores"])
    assert (facts["seeds"], facts["fresh_seeds"]) == ([0, 1], [10, 11])
    for chosen in (best, facts["first"]):
        folders = [here / f"a/trial-{chosen['trial']}/seed-{seed}" for seed in (10, 11)]
        assert chosen["fresh_scores"] == [
            read_metrics(folder)[-1]["eval_return"] for folder in folders
        ]
    plain = Request.build(*SHORT[:2], steps=1000).hyperparameters  # those of `rlbook train`
    searched = {name: plain[name] for name in ("alpha", "epsilon", "gamma")}
    found = facts["first"]["hyperparameters"]
    assert {name: str(value) for name, value in found.items()} == {
        name: str(value) for name, value in searched.items()
    }


@pytest.mark.thorough
def test_the_preset_trains_the_run_that_was_measured(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = tune(*SHORT[:2], out="a", trials=4, fresh_seeds=1, confidence=3.0, **STEPS)
    assert cli.main(["train", "--config", "a/tuned.yaml", "--seed", "10", "--out", "b"]) == 0
    folder = here / f"a/trial-{found.best.number}/seed-10"
    assert (here / "b/metrics.jsonl").read_bytes() == (folder / "metrics.jsonl").read_bytes()
    preset = parse_yaml(found.preset.read_text())
    assert preset["steps"] == 1000 and preset["hyperparameters"] == found.hyperparameters
    assert found.hyperparameters["confidence"] == 3.0 and "seed" not in preset
    said = found.preset.read_text().splitlines()
    assert said[0].startswith(f"# trial {found.best.number} of 4, chosen by its mean return on")
    assert said[1].startswith("# mean return on seed 10, which had no part in choosing: ")


@pytest.mark.thorough
def test_the_same_command_again_goes_on(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["tune", *SHORT, "--seeds", "1", "--fresh-seeds", "1", "--jobs", "1"]
    assert cli.main([*words, "--trials", "3"]) == 0
    first = capsys.readouterr()
    assert cli.main([*words, "--trials", "3"]) == 0
    second = capsys.readouterr()
    assert first.err.count("trial ") == 3 and second.err.count("trial ") == 0
    assert second.out.splitlines()[1:] == first.out.splitlines()[1:]  # but the seconds
    assert cli.main([*words, "--trials", "5"]) == 0
    assert [line[:8] for line in capsys.readouterr().err.splitlines() if line[:6] == "trial "] == [
        "trial 3:",
        "trial 4:",
    ]
    assert cli.main([*words, "--trials", "3", "--alpha", "0.2"]) == 0  # another search
    assert (here / "runs/q_learning-FrozenLake-v1-tune-2").is_dir()


@pytest.mark.thorough
def test_an_interrupted_search_finds_what_an_uninterrupted_one_finds(here: Path) -> None:
    options = STEPS | {"seeds": 1, "fresh_seeds": 1, "trials": 13}
    whole = tune(*SHORT[:2], out="whole", **options)

    def stop(trial: Trial, ended: int) -> None:
        if ended in (2, 11):
            raise Interrupted(signal.SIGINT)

    for _ in range(2):
        with pytest.raises(Interrupted):
            tune(*SHORT[:2], out="parts", on_trial=stop, **options)
    parts = tune(*SHORT[:2], out="parts", **options)
    assert values(parts) == values(whole) and parts.fresh == whole.fresh
    assert len({str(trial.hyperparameters) for trial in whole.trials}) == 13


def test_a_trial_that_was_killed_is_tried_again(here: Path) -> None:
    """With half a line at the study's end and its lock left behind, as a kill leaves them."""
    from rlbook.recipes.study import open_study

    search = {"search": ["gamma=0.5..0.9"], "fresh_seeds": 0, **STEPS}
    tune(*SHORT[:2], out="a", trials=2, **search)
    with open_study(here / "a", 0, 2) as study:
        drawn = study.ask().suggest_float("gamma", 0.5, 0.9)
    with (here / "a" / JOURNAL).open("ab") as file:
        file.write(b'{"op_code":5,"work')
    os.symlink("nowhere", here / "a" / f"{JOURNAL}.lock")
    found = tune(*SHORT[:2], out="a", trials=3, **search)
    assert [trial.state for trial in found.trials] == [
        "complete",
        "complete",
        "interrupted",
        "complete",
    ]
    assert found.trials[3].hyperparameters == {"gamma": float(f"{drawn:.3g}")}


@pytest.mark.thorough
def test_a_trial_below_the_median_is_pruned(here: Path) -> None:
    settings: dict[str, Any] = {"steps": 3000, "seeds": 2, "trials": 12, "fresh_seeds": 0}
    settings |= {"eval_episodes": 1}  # nothing in the maze is left to chance
    search = {"search": ["alpha=0.0001/0.2/0.4/0.6"]}  # with the first it learns nothing
    found = tune("q_learning", "Maze-v0", out="a", **search, **settings)
    pruned = [trial for trial in found.trials if trial.state == "pruned"]
    assert pruned and all(trial.error is None and trial.score is None for trial in pruned)
    assert all(0.125 <= trial.share < 1 for trial in pruned)  # a quarter of the first of two runs
    assert found.best.scores == [3.0, 3.0]  # the optimum
    whole = tune("q_learning", "Maze-v0", out="b", prune=False, **search, **settings)
    assert all(trial.state == "complete" and trial.share == 1 for trial in whole.trials)


@pytest.mark.thorough
def test_a_trial_that_diverges_is_given_up_and_the_search_goes_on(here: Path) -> None:
    settings: dict[str, Any] = {"steps": 400, "num_envs": 2, "rollout_steps": 16}
    settings |= {"anneal_learning_rate": False, "seeds": 1, "fresh_seeds": 0}
    search = ["learning_rate=1e-3/1e30"]
    found = tune("ppo", "Maze-v0", out="a", trials=4, search=search, **settings)
    failed = [trial for trial in found.trials if trial.hyperparameters["learning_rate"] == 1e30]
    assert failed and all("diverged" in (trial.error or "") for trial in failed)
    assert found.hyperparameters["learning_rate"] == 1e-3
    with pytest.raises(
        TrainingError, match=r"no trial was complete; the last one said: .*diverged"
    ):
        tune("ppo", "Maze-v0", out="b", trials=1, search=["learning_rate=1e30/1e31"], **settings)


@pytest.mark.slow
def test_two_processes_share_a_search(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["tune", *SHORT, "--seeds", "1", "--fresh-seeds", "2", "--jobs", "2"]
    assert cli.main([*words, "--trials", "3", "--out", "a"]) == 0
    printed = capsys.readouterr()
    assert sorted(line[:8] for line in printed.err.splitlines() if line.startswith("trial")) == [
        "trial 0:",
        "trial 1:",
        "trial 2:",
    ]
    assert "3 trials (3 complete)" in printed.out
    assert (
        "that on the fresh seeds 10 to 11." in printed.out
        and "--config a/tuned.yaml" in printed.out
    )
    for folder in (here / "a").glob("trial-*/seed-*"):
        assert rlbook.load(folder).steps == 1000


@pytest.mark.slow
def test_the_machines_of_a_cluster_share_a_search(here: Path) -> None:
    ray = pytest.importorskip("ray")
    address = ray.init(
        "local", num_cpus=1, include_dashboard=False, logging_level="ERROR"
    ).address_info["gcs_address"]
    words = ["--trials", "3", "--seeds", "1", "--fresh-seeds", "2", "--out", "a", "--json"]
    try:
        process = start(*SHORT, *words, "--cluster", address)
        out, err = process.communicate(timeout=300)
    finally:
        ray.shutdown()
    assert process.returncode == 0, err
    facts = json.loads(out)
    assert facts["trials"] == {"total": 3, "complete": 3, "pruned": 0, "interrupted": 0}
    again = rlbook.train(
        *SHORT[:2], steps=1000, eval_episodes=20, seed=0, **facts["hyperparameters"]
    )
    assert facts["best"]["scores"] == [again.metrics[-1]["eval_return"]]
    assert len(facts["best"]["fresh_scores"]) == 2


@pytest.mark.slow
def test_ctrl_c_leaves_a_search_that_goes_on(here: Path) -> None:
    words = ["ppo", "CartPole-v1", "--steps", "20000", "--trials", "2", "--seeds", "1"]
    words += ["--fresh-seeds", "1", "--jobs", "2", "--out", "a", "--search", "clip"]
    process = start(*words)
    journal, deadline = here / "a" / JOURNAL, time.monotonic() + 120
    while time.monotonic() < deadline and not (
        journal.exists() and b"hyperparameters" in journal.read_bytes()
    ):
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130 and out == "" and "Traceback" not in err
    assert err.splitlines()[-1] == (
        f"rlbook: interrupted; continue with: rlbook tune {' '.join(words)}"
    )
    process = start(*words)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    preset = parse_yaml((here / "a/tuned.yaml").read_text())
    assert preset["algorithm"] == "ppo" and 0.05 <= preset["hyperparameters"]["clip"] <= 0.8


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["tune"], ["tune needs an ALGORITHM and an ENV"]),
        (["tune", "q_learning"], ["tune needs an ENV too"]),
        (["tune", *SHORT, "--search", "alpa"], ["no hyper-parameter 'alpa'", "'alpha'"]),
        (["tune", *SHORT, "--search"], ["--search needs the names"]),
        (["tune", *SHORT, "--search", "alpha=0.1..2"], ["alpha must be a number in (0, 1]", "2"]),
        (["tune", *SHORT, "--search", "alpha", "--alpha", "0.5"], ["alpha is given"]),
        (["tune", *SHORT, "--trials", "0"], ["trials must be an integer of at least 1", "0"]),
        (["tune", "ppo", "--search", "clipp", "CartPole-v1"], ["no hyper-parameter 'clipp'"]),
        (["tune", *SHORT, "--trials", "many"], ["--trials must be a whole number", "'many'"]),
        (["tune", *SHORT, "--trial", "3"], ["'--trial'", "'--trials'"]),
        (["tune", *SHORT, "--fresh-seeds", "-1"], ["fresh_seeds must be", "-1"]),
        (["tune", *SHORT, "--resume"], ["--resume"]),
        (["tune", "td_prediction", "Maze-v0"], ["td_prediction has no return"]),
        (["tune", "q_learning", "Maze-v9"], ["Maze-v9"]),
        (["tune", "sarsa", "Addition-v0"], ["sarsa"]),
        (["tune", *SHORT, "--cluster", "127.0.0.1:1"], ["luster"]),
    ],
)
def test_a_wrong_search_is_refused_in_a_sentence_and_nothing_is_written(
    here: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: list[str]
) -> None:
    assert cli.main(words) == 2
    printed = capsys.readouterr()
    last = printed.err.splitlines()[-1]
    assert all(part in last for part in said), last
    assert "trials of" not in printed.err or "--cluster" in words
    assert printed.out == "" and not list(here.iterdir())


PLAN = TuningPlan("q_learning", "Maze-v0", {}, {"workers": 2, "steps": 100}, {}, {}, range(8, 11))


def test_fresh_seeds_begin_at_the_next_ten_and_repeat_no_tuning_seed() -> None:
    assert next_fresh_seeds(PLAN, 3) == [20, 21, 22]  # after 8, 9 and 10
    assert next_fresh_seeds(replace(PLAN, seeds=range(3)), 2) == [10, 11]


@pytest.mark.thorough
def test_the_first_trial_is_found_beside_settings_that_a_file_holds_otherwise(here: Path) -> None:
    """A tuple is a list in the study, and a schedule is text."""
    fixed: dict[str, Any] = {"hidden_sizes": (8,), "entropy_coef": "linear(0.1, 0.01)"}
    counts = {"trials": 1, "seeds": 1, "fresh_seeds": 0, "steps": 100, "eval_episodes": 1}
    found = tune("reinforce", "CartPole-v1", out="a", search=["gamma"], **counts, **fixed)
    assert found.first == found.best


def test_a_preset_holds_what_the_result_depends_on() -> None:
    assert parse_yaml(PLAN.as_preset({"alpha": 0.5})) == {
        "algorithm": "q_learning",
        "env": "Maze-v0",
        "steps": 100,
        "hyperparameters": {"alpha": 0.5},
    }


def test_a_trial_is_pruned_by_the_mean_of_its_seeds_so_far() -> None:
    """Halfway through its second run, which is at 4 after a first one that came to 2. Without
    evaluations every tenth of a run counts."""
    study = pytest.importorskip("optuna").create_study(direction="maximize")
    trial = study.ask()
    watch = PruningCallback(trial, [2.0], prune=True)
    run: Any = SimpleNamespace(
        agent=SimpleNamespace(progress=0.5),
        metrics=[{"return": 1.0, "eval_return": 4.0}],
        request=SimpleNamespace(eval_every=100),
    )
    watch(run)
    run.request.eval_every, run.metrics = 0, [{"return": 6.0}]
    for run.agent.progress in (0.55, 0.59, 0.6, 0.65):
        watch(run)
    assert study.get_trials()[0].intermediate_values == {150: 3.0, 160: 4.0}


def test_the_table_has_the_interval_of_the_fresh_seeds_and_each_trial_once() -> None:
    best = Trial(3, "complete", {}, [5.0, 9.0])
    first = replace(best, number=0, scores=[1.0, 1.0])
    folder = Path("tuned")
    tuning = Tuning(folder, folder, [first, best], best, first, [0, 1], [10, 11])
    tuning = replace(tuning, fresh={3: [4.0, 4.0], 0: [1.0, 1.0]})
    _, *rows = (line.split() for line in _table(tuning).splitlines())
    assert [row[0] for row in rows] == ["3,", "0,"]
    assert rows[0] == ["3,", "the", "best", "7", "4", "4", "to", "4"]
    assert len(_table(replace(tuning, first=best)).splitlines()) == 2


def test_an_environment_after_the_names_to_search_is_no_name() -> None:
    for env in ("CartPole-v1", "Elsewhere-v10"):
        words = ["ppo", "--search", "clip", env, "--trials", "3"]
        assert _env_before_search(words) == ["ppo", env, "--search", "clip", "--trials", "3"]


def test_a_folder_that_holds_something_else_is_refused(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["train", *SHORT, "--out", "run"]) == 0
    tune(*SHORT[:2], out="search", trials=1, fresh_seeds=0, **STEPS)
    (here / "linked").mkdir()
    os.symlink(here / "search" / JOURNAL, here / "linked" / JOURNAL)
    words = ["tune", *SHORT, "--seeds", "2", "--trials", "1", "--out"]
    for folder, more, said in (
        ("run", [], "run already holds a run"),
        ("search", ["--steps", "999"], "search holds a search that was started with options"),
        ("linked", [], "is a link, which is not followed"),
    ):
        assert cli.main([*words, folder, *more]) == 2
        assert said in capsys.readouterr().err.splitlines()[-1]


def test_without_optuna_a_sentence_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "optuna", None)
    assert cli.main(["tune", *SHORT]) == 2
    assert 'tune needs Optuna: pip install "rlbook[tune]"' in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_search_finds_a_step_size_that_learns(here: Path) -> None:
    """On fresh seeds, too: half of the step sizes that are searched, on the logarithm, are too small
    for SARSA to get off the cliff in 10 000 steps."""
    settings: dict[str, Any] = {"steps": 10_000, "seeds": 2, "fresh_seeds": 3, "epsilon": 0.1}
    found = tune(
        "sarsa", "CliffWalking-v1", out="a", trials=15, search=["alpha=0.0001..1"], **settings
    )
    assert statistics.fmean(found.fresh[found.best.number]) >= -25  # optimum -13, a detour is -17
    assert found.hyperparameters["alpha"] > 0.01
