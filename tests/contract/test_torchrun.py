"""`torchrun -m rlbook train`: one run in several processes, which writes and speaks once, goes on bit
for bit, and ends in all of them when it ends in one."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from gymnasium import spaces
from parallel_runs import finish, start
from warm_process import WarmProcess, run_python

import rlbook
from rlbook.cli import main as cli
from rlbook.errors import RequestError
from rlbook.interaction.process_group import ProcessGroup, is_follower, place
from rlbook.interaction.vector_envs.split_vector import join_observations, other_number
from rlbook.runs.processes.parallel import check_parallel
from rlbook.runs.request import Request
from rlbook.runs.run import Run
from rlbook.runs.storage.checkpoints import latest_step

PPO = ["-m", "rlbook", "train", "ppo", "CartPole-v1", "--num-envs", "4", "--rollout-steps", "32"]
SHORT = ["--eval-episodes", "4", "--seed", "5"]
LOST = "another of the 2 processes has ended, so no further step can be taken"


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """As in the first of two processes, which are not connected yet."""
    for name, value in (
        ("RANK", "0"),
        ("WORLD_SIZE", "2"),
        ("MASTER_ADDR", "127.0.0.1"),
        ("MASTER_PORT", "1"),
    ):
        monkeypatch.setenv(name, value)
    return monkeypatch


def test_without_a_launcher_there_is_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "8")  # a number that another program has left there
    monkeypatch.delenv("RANK", raising=False)
    assert place() == (0, 1) and not is_follower()


def test_only_training_runs_in_several_processes(
    launched: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["list"]) == 2
    assert "torchrun is for rlbook train; run rlbook list without it" in capsys.readouterr().err
    assert cli.main(["train", "ppo", "Maze-v0", "--seeds", "2"]) == 2
    assert "leave out torchrun or --seeds" in capsys.readouterr().err
    launched.setenv("RANK", "1")  # the others are silent
    assert cli.main(["list"]) == 2
    assert capsys.readouterr().err == ""
    launched.setenv("RANK", "2")
    assert cli.main(["list"]) == 2
    launched.setenv("WORLD_SIZE", "two")
    with pytest.raises(RequestError, match="must be numbers with 0 ≤ RANK < WORLD_SIZE, got '2'"):
        place()


@pytest.mark.parametrize(
    ("algorithm", "reason"),
    [
        ("q_learning", "it learns from one environment, a step at a time"),
        ("semi_gradient_sarsa", "it learns from one environment, a step at a time"),
        ("alphazero", "it learns from one environment, a step at a time"),
        ("value_iteration", "it plans in a model and takes no gradient step"),
    ],
)
def test_agents_without_minibatches_are_refused(algorithm: str, reason: str) -> None:
    run = Run(Request.build(algorithm, "Maze-v0"))
    with pytest.raises(RequestError) as refused:
        check_parallel(run.request, run._source, 2)
    assert str(refused.value) == (
        f"{algorithm} cannot be shared among 2 processes: {reason}; run it without torchrun"
    )


def test_groups_stay_in_one_process_and_rows_are_nobodys_twice() -> None:
    group = object.__new__(ProcessGroup)
    for size in (1, 2, 3, 5):
        group.size = size
        for count, neighbours in ((12, 4), (8, 1), (3, 1), (1, 1), (8, 8)):
            parts = group.parts(count, neighbours)
            rows = [row for part in parts for row in range(count)[part]]
            assert rows == list(range(count)) and len(parts) == size
            assert all(part.start % neighbours == part.stop % neighbours == 0 for part in parts)


def test_observations_of_processes_are_joined_by_their_space() -> None:
    space = spaces.Dict(
        {
            "place": spaces.Box(0, 1, (2,)),
            "both": spaces.Tuple([spaces.Discrete(3), spaces.Text(9)]),
        }
    )
    parts = [
        {"place": np.zeros((1, 2)), "both": (np.array([0]), ("a",))},
        {"place": np.ones((2, 2)), "both": (np.array([1, 2]), ("b", "c"))},
    ]
    found = join_observations(space, parts)
    assert found["place"].tolist() == [[0, 0], [1, 1], [1, 1]]
    assert found["both"][0].tolist() == [0, 1, 2] and found["both"][1] == ("a", "b", "c")


def test_a_run_says_by_how_many_processes_it_goes_on() -> None:
    assert other_number(2, 1) == (
        "its environments were saved by 2 processes, and now there is one; "
        "resume it with torchrun --nproc-per-node 2"
    )
    assert other_number(1, 4).endswith(
        "saved by one process, and now there are 4; resume it without torchrun"
    )


def contents(folder: Path) -> dict[str, bytes]:
    """All files but the times and the picture, by their path in the folder."""
    files = {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
    return {name: data for name, data in files.items() if name not in ("seconds.json", "curve.png")}


def cut_back(folder: Path, copy: Path) -> None:
    """A copy of a run as if it had been killed after its last checkpoint but one."""
    shutil.copytree(folder, copy)
    last = latest_step(copy)
    shutil.rmtree(copy / "checkpoints" / str(last))
    assert latest_step(copy) not in (last, None, 0)


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        [*PPO, "--steps", "1024"],
        "-m rlbook train grpo Addition-v0 --num-envs 8 --group-size 4 --steps 160".split(),
        "-m rlbook train dqn CartPole-v1 --num-envs 3 --steps 600 --learning-starts 100".split(),
        "-m rlbook train behavior_cloning Maze-v0 --passes 2".split(),
    ],
    ids=["ppo", "grpo on text", "dqn", "cloning"],
)
def test_two_processes_write_once_and_go_on_bit_for_bit(tmp_path: Path, words: list[str]) -> None:
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    leader, follower = finish(start(2, [*words, *SHORT, "--out", str(whole)]), 300)
    assert leader[0] == follower[0] == 0, leader
    assert "episodes" in leader[1] and follower[1:] == ("", "")
    cut_back(whole, cut)
    done = finish(start(2, ["-m", "rlbook", "train", "--resume", str(cut)]), 300)
    assert [code for code, _, _ in done] == [0, 0], done
    assert contents(cut) == contents(whole)
    assert rlbook.load(whole).evaluate(episodes=2).returns.shape == (2,)  # by one process alone
    if "behavior_cloning" not in words:  # which has no environments
        alone = run_python(["-m", "rlbook", "train", "--resume", cut, "--steps", "9999"])
        assert alone.returncode == 2 and "torchrun --nproc-per-node 2" in alone.stderr


def wait_for(folder: Path, started: list[WarmProcess]) -> None:
    """Until a run has written a checkpoint after its first."""
    end = time.monotonic() + 120
    while not (folder / "checkpoints").exists() or latest_step(folder) in (None, 0):
        assert time.monotonic() < end and all(process.poll() is None for process in started)
        time.sleep(0.1)


@pytest.mark.slow
@pytest.mark.parametrize("dies", [0, 1])
def test_a_process_that_dies_ends_the_other_with_one_sentence(tmp_path: Path, dies: int) -> None:
    folder = tmp_path / "run"
    long = ["--steps", "1000000", "--eval-every", "0", "--out", str(folder)]
    started = start(2, [*PPO, *long])
    try:
        while not (folder / "config.yaml").exists():
            time.sleep(0.1)
        time.sleep(1.0)
        started[dies].kill()
    finally:
        done = finish(started, 60)
    code, printed, said = done[1 - dies]
    assert code == 1 and printed == ""
    assert said.count("rlbook: ") == 1 and LOST in said and "the last good checkpoint is" in said


@pytest.mark.slow
@pytest.mark.parametrize("told", [0, 1])
def test_a_signal_to_one_stops_both_where_they_can_go_on(tmp_path: Path, told: int) -> None:
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    words = [*PPO, "--steps", "6144", "--eval-every", "0", "--seed", "5", "--out"]
    started = start(2, [*words, str(cut)])
    try:
        wait_for(cut, started)
        started[told].send_signal(signal.SIGTERM)
    finally:
        done = finish(started, 60)
    assert [code for code, _, _ in done] == [143, 143], done
    assert "continue with: torchrun --nproc-per-node 2 -m rlbook train --resume" in done[0][2]
    assert "rlbook: " not in done[1][2]
    assert 0 < (latest_step(cut) or 0) < 6144
    resumed = finish(start(2, ["-m", "rlbook", "train", "--resume", str(cut)]), 300)
    straight = finish(start(2, [*words, str(whole)]), 300)
    assert [code for code, _, _ in resumed + straight] == [0, 0, 0, 0]
    assert contents(whole)["metrics.jsonl"] == contents(cut)["metrics.jsonl"]
    last = "checkpoints/6144/"
    assert {n: d for n, d in contents(whole).items() if n.startswith(last)} == {
        n: d for n, d in contents(cut).items() if n.startswith(last)
    }


BROKEN = """
import gymnasium, numpy as np, os
from gymnasium import spaces

class Breaks(gymnasium.Env):
    observation_space, action_space = spaces.Box(-1, 1, (2,)), spaces.Discrete(2)
    steps = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.steps += 1
        if self.steps > 20 and os.environ["RANK"] == "1":
            raise ValueError("the left wheel came off")
        return np.zeros(2, np.float32), 0.0, False, self.steps % 10 == 0, {}

gymnasium.register("Breaks-v0", Breaks)
"""


@pytest.mark.slow
def test_an_environment_that_fails_in_one_process_is_told_once(tmp_path: Path) -> None:
    (tmp_path / "broken_world.py").write_text(BROKEN)
    words = [
        *PPO[:4],
        "broken_world:Breaks-v0",
        "--allow-import",
        "--num-envs",
        "4",
        "--steps",
        "999",
    ]
    environment = {"PYTHONPATH": f"{tmp_path}:{Path(rlbook.__file__).parents[1]}"}
    done = finish(start(2, [*words, "--out", str(tmp_path / "run")], environment), 120)
    assert [code for code, _, _ in done] == [1, 1], done
    said = done[0][2] + done[1][2]
    assert said.count("rlbook: ") == 1 and "the left wheel came off" in said


@pytest.mark.slow
def test_torchrun_starts_them(tmp_path: Path) -> None:
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    words = [*torchrun, *PPO, "--steps", "512", *SHORT, "--json", "--out", str(tmp_path / "run")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count('"steps": 512') == 1
    assert latest_step(tmp_path / "run") == 512
