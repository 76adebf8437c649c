"""`rlbook train --seeds K --jobs J`: each seed's run is the one that its own command makes;
failures, interrupts and wrong requests."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType

import pytest

import rlbook
from rlbook.cli import main as cli
from rlbook.cli.command_line import drop_options
from rlbook.interaction.episodes import draw_seed
from rlbook.runs.storage.checkpoints import latest_step
from rlbook.runs.storage.folder import lock_folder
from rlbook.seeding import rng_for

ROOT = Path(__file__).parents[2]
SHORT = ["q_learning", "Maze-v0", "--steps", "600"]


def contents(folder: Path) -> dict[str, bytes]:
    """All files but the picture and the times, by their path in the folder."""
    files = {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
    return {
        name: data for name, data in files.items() if not name.endswith((".png", "seconds.json"))
    }


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def start(*words: str) -> subprocess.Popen[str]:
    """The real command, in a process group of its own, as a terminal starts it."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(
        [sys.executable, "-m", "rlbook", "train", *words], env=environment, process_group=0, **pipes
    )


@pytest.mark.thorough
def test_each_seed_is_the_run_of_its_own_command_to_the_byte(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for seed in ("4", "5"):
        assert cli.main(["train", *SHORT, "--seed", seed, "--out", f"single-{seed}"]) == 0
    capsys.readouterr()
    assert (
        cli.main(
            ["train", *SHORT, "--seeds", "2", "--jobs", "2", "--seed=4", "--out", "many", "--json"]
        )
        == 0
    )
    printed = capsys.readouterr()
    for seed in (4, 5):
        assert contents(here / f"many/seed-{seed}") == contents(here / f"single-{seed}")
        assert sum(line.startswith(f"seed {seed}: ") for line in printed.err.splitlines()) == 1
    facts = json.loads(printed.out)
    (row,) = rlbook.compare(["single-4", "single-5"])
    assert facts["scores"] == row.scores.tolist() and facts["mean"] == sum(facts["scores"]) / 2
    assert (facts["interquartile_mean"], tuple(facts["confidence_interval"])) == (
        row.interquartile_mean,
        row.confidence_interval,
    )
    assert [run["seed"] for run in facts["runs"]] == [4, 5] and facts["failed"] == []
    assert rlbook.compare("many")[0].folders == (str(Path("many/seed-4")), str(Path("many/seed-5")))
    assert cli.main(["plot", "many"]) == 0 and Path("many/curve.png").exists()


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        ([*SHORT, "--seeds", "0"], ["seeds", "at least 1", "0"]),
        ([*SHORT, "--jobs", "2"], ["jobs", "without seeds"]),
        ([*SHORT, "--cluster", "auto"], ["cluster", "without seeds, got 'auto'"]),
        ([*SHORT, "--seeds", "2", "--alpha", "-1"], ["alpha", "-1"]),
        (
            ["q_learning", "Addition-v0", "--seeds", "2"],
            ["q_learning does not train on Addition-v0"],
        ),
        (["--seeds", "2"], ["ALGORITHM"]),
        ([*SHORT, "--seeds", "2", "--out", "nowhere", "--resume"], ["nowhere", "not a folder"]),
    ],
)
def test_a_wrong_request_ends_with_2_before_any_seed_has_begun(
    words: list[str], parts: list[str], here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["train", *words]) == 2
    printed = capsys.readouterr()
    assert (
        not printed.out and not list(here.iterdir()) and all(part in printed.err for part in parts)
    ), printed.err


def test_folders_that_hold_runs_are_left_alone(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rlbook.train("q_learning", "Maze-v0", steps=50, out="single")
    rlbook.train("q_learning", "Maze-v0", steps=50, seed=1, out="many/seed-1")
    before = contents(here)
    for out, said in (("single", "holds a single run"), ("many", "already holds a run")):
        assert cli.main(["train", *SHORT, "--seeds", "2", "--out", out]) == 2
        assert said in capsys.readouterr().err
    assert cli.main(["train", *SHORT, "--seeds", "2", "--out", "many", "--resume"]) == 2
    assert "started with steps 50" in capsys.readouterr().err
    assert contents(here) == before


TRAPPED = """
import gymnasium
from rlbook.envs.gridworlds.maze import Maze

class Trapped(Maze):
    # fails where the first reset's seed is the trap's
    def __init__(self, trap=-1, **kwargs):
        super().__init__(**kwargs)
        self.trap, self.trapped = trap, False

    def reset(self, *, seed=None, options=None):
        self.trapped = self.trapped or seed == self.trap
        return super().reset(seed=seed, options=options)

    def step(self, action):
        obs, reward, terminated, truncated, info = super().step(action)
        return obs, float("nan") if self.trapped else reward, terminated, truncated, info

gymnasium.register("Trapped-v0", entry_point=Trapped, max_episode_steps=20)
"""


@pytest.mark.thorough
def test_a_failed_seed_is_named_and_stops_no_other(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("trapped_maze.py").write_text(TRAPPED)
    monkeypatch.syspath_prepend(here)
    trap = draw_seed(rng_for(1, "environment"))  # of the first reset of the run with seed 1
    words = [
        "sarsa",
        "trapped_maze:Trapped-v0",
        "--steps",
        "50",
        "--env.trap",
        str(trap),
        "--allow-import",
    ]
    assert cli.main(["train", *words, "--seeds", "2", "--out", "many", "--json"]) == 1
    printed = capsys.readouterr()
    facts = json.loads(printed.out)
    assert facts["failed"] == [1] and facts["exit_code"] == 1 and facts["error"] == "seed 1 failed"
    assert ["error" in run for run in facts["runs"]] == [False, True] and "reward" in facts["runs"][
        1
    ]["error"]
    assert len(facts["scores"]) == 1 and printed.err.splitlines()[-1] == "rlbook: seed 1 failed"


@pytest.mark.slow
def test_an_interrupt_stops_all_seeds_and_the_same_command_goes_on(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [
        "sarsa",
        "Maze-v0",
        "--simulate",
        "false",
        "--steps",
        "200000",
        "--seeds",
        "2",
        "--jobs",
        "2",
    ]
    folders = [Path(f"many/seed-{seed}") for seed in range(2)]
    process = start(*words, "--out", "many")
    # None, 0, and then more
    while not any(latest_step(folder) for folder in folders) and process.poll() is None:
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGINT)  # as Ctrl-C does: to the command and to its seeds
    out, err = process.communicate()
    assert (process.returncode, out) == (130, ""), err
    assert (
        err.splitlines()[-1]
        == f"rlbook: interrupted; continue with: rlbook train {' '.join(words)} --out many --resume"
    )
    assert any(0 < (latest_step(folder) or 0) < 200_000 for folder in folders)
    assert cli.main(["train", *words, "--out", "many", "--resume"]) == 0
    assert cli.main(["train", *words[:6], "--seed", "1", "--out", "single"]) == 0
    ours, single = contents(folders[1]), contents(Path("single"))
    assert {name for name in ours if ours[name] != single.get(name)} == set()


@pytest.mark.thorough
def test_seeds_obey_an_interrupt_that_the_shell_had_set_to_be_ignored(here: Path) -> None:
    """As `trap '' INT` does, and a script for what it starts with `&`. The signal goes to the
    command alone."""
    previous = signal.signal(signal.SIGINT, signal.SIG_IGN)  # which the process inherits
    try:
        process = start(
            "sarsa", "Maze-v0", "--steps", "1000000000", "--seeds", "1", "--out", "many"
        )
    finally:
        signal.signal(signal.SIGINT, previous)
    try:
        while latest_step(Path("many/seed-0")) is None and process.poll() is None:
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 130
    finally:
        process.kill()
        process.communicate()


@pytest.mark.thorough
def test_seeds_end_with_the_command_that_started_them(here: Path) -> None:
    process = start("sarsa", "Maze-v0", "--steps", "1000000000", "--seeds", "1", "--out", "many")
    while latest_step(Path("many/seed-0")) is None and process.poll() is None:
        time.sleep(0.02)
    process.kill()
    process.communicate()
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            with lock_folder(Path("many/seed-0")):
                return
        except rlbook.RequestError:
            time.sleep(0.02)
    raise AssertionError("the seed still runs")


def test_a_cluster_needs_ray_and_an_address_at_which_one_is(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["train", *SHORT, "--seeds", "2", "--cluster", "127.0.0.1:1"]
    for module, said in (
        (None, 'pip install "rlbook[scale]"'),
        (ModuleType("ray"), "no Ray cluster can be reached at '127.0.0.1:1'"),
    ):
        monkeypatch.setitem(sys.modules, "ray", module)
        assert cli.main(words) == 2 and said in capsys.readouterr().err and not list(here.iterdir())


@pytest.mark.slow
def test_seeds_on_a_cluster_are_the_runs_of_their_own_commands(here: Path) -> None:
    ray = pytest.importorskip("ray")
    address = os.environ.get("RAY_ADDRESS")
    if address is None:
        address = ray.init(
            "local", num_cpus=1, include_dashboard=False, logging_level="ERROR"
        ).address_info["gcs_address"]
    try:
        process = start(*SHORT, "--seeds", "2", "--out", "many", "--json", "--cluster", address)
        out, err = process.communicate(timeout=300)
    finally:
        ray.shutdown()
    assert process.returncode == 0, err
    assert [run["seed"] for run in json.loads(out)["runs"]] == [0, 1]
    assert cli.main(["train", *SHORT, "--seed", "1", "--out", "single"]) == 0
    assert contents(here / "many/seed-1") == contents(here / "single")


@pytest.mark.parametrize(
    ("words", "left"),
    [
        ("--seeds 3 ppo --seed=4 Maze-v0 --jobs 2", "ppo Maze-v0"),
        ("--resume ppo Maze-v0 --out a", "ppo Maze-v0"),
        ("ppo Maze-v0 --resume a --json --gamma 0.5", "ppo Maze-v0 --gamma 0.5"),
        (
            "ppo Maze-v0 --env.seed 3 --env.out=4 --resume --gamma 0.5",
            "ppo Maze-v0 --env.seed 3 --env.out=4 --gamma 0.5",
        ),
    ],
)
def test_the_words_of_a_seed_are_the_others(words: str, left: str) -> None:
    assert (
        drop_options(words.split(), "--seeds", "--jobs", "--seed", "--out", "--resume", "--json")
        == left.split()
    )
