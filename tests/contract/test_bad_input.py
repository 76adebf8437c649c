"""A wrong request is answered with one sentence and leaves no trace; a NaN stops the run and leaves
the last good checkpoint."""

from __future__ import annotations

import errno
import math
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, NoReturn

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import rlbook
from rlbook.book.exercises.exercise import start
from rlbook.cli import main as cli
from rlbook.errors import is_out_of_memory
from rlbook.runs.episode_recording import record, record_examples
from rlbook.runs.storage.checkpoints import CheckpointError, latest_step
from rlbook.runs.storage.files import lock
from rlbook.sandbox.memory_limit import memory_limit

REQUESTS: list[tuple[str, str, dict[str, Any], str]] = [
    ("ppo", "Maze-v0", {"gamma": 1.5}, "gamma must be a number in [0, 1], got 1.5"),
    ("q_learning", "Maze-v0", {"gamma": math.nan}, "gamma must be a number in [0, 1], got nan"),
    ("ppo", "Maze-v0", {"clip": -0.2}, "clip must be a number above 0, got -0.2"),
    ("ppo", "Maze-v0", {"batch_size": 0}, "batch_size must be an integer of at least 1, got 0"),
    ("ppo", "Maze-v0", {"epochs": 2.0}, "epochs must be an integer of at least 1, got 2.0"),
    (
        "ppo",
        "Maze-v0",
        {"normalize_advantage": "yes"},
        "normalize_advantage must be true or false, got 'yes'",
    ),
    (
        "ppo",
        "Maze-v0",
        {"learning_rate": "fast"},
        "learning_rate must be a number above 0, got 'fast'",
    ),
    (
        "ppo",
        "Maze-v0",
        {"learning_rate": math.inf},
        "learning_rate must be a number above 0, got inf",
    ),
    (
        "ppo",
        "Maze-v0",
        {"hidden_sizes": [64, 0]},
        "hidden_sizes must be a tuple of integers of at least 1, got (64, 0)",
    ),
    (
        "q_learning",
        "Maze-v0",
        {"epsilon": 1.5},
        "epsilon must be a number in [0, 1] at all times, got 1.5",
    ),
    ("q_learning", "Maze-v0", {"alpha": 0}, "alpha must be a number in (0, 1] at all times, got 0"),
    (
        "value_iteration",
        "Maze-v0",
        {"tolerance": -1},
        "tolerance must be a number of at least 0, got -1",
    ),
    ("ppo", "Maze-v0", {"steps": 0}, "steps must be an integer of at least 1, got 0"),
    ("ppo", "Maze-v0", {"steps": True}, "steps must be an integer of at least 1, got True"),
    ("ppo", "Maze-v0", {"steps": "100"}, "steps must be an integer of at least 1, got '100'"),
    ("ppo", "Maze-v0", {"steps": 100.5}, "steps must be an integer of at least 1, got 100.5"),
    (
        "q_learning",
        "Maze-v0",
        {"episodes": -3},
        "episodes must be an integer of at least 1, got -3",
    ),
    ("ppo", "Maze-v0", {"num_envs": 0}, "num_envs must be an integer of at least 1, got 0"),
    ("ppo", "Maze-v0", {"seed": -1}, "seed must be an integer of at least 0, got -1"),
    ("ppo", "Maze-v0", {"seed": 1.5}, "seed must be an integer of at least 0, got 1.5"),
    ("ppo", "Maze-v0", {"eval_every": -1}, "eval_every must be an integer of at least 0, got -1"),
    (
        "ppo",
        "Maze-v0",
        {"eval_episodes": 0},
        "eval_episodes must be an integer of at least 1, got 0",
    ),
    (
        "q_learning",
        "Maze-v0",
        {"num_envs": 4},
        "q_learning learns from one environment; num_envs must be 1, got 4",
    ),
    ("ppo", "Maze-v0", {"gama": 0.9}, "ppo has no hyper-parameter 'gama'; did you mean 'gamma'?"),
    ("dqn", "Maze-v0", {"learningrate": 0.9}, "did you mean 'learning_rate'?"),
    (
        "grpo",
        "Maze-v0",
        {"num_envs": 12, "group_size": 8},
        "group_size must divide num_envs 12, got 8",
    ),
    (
        "dqn",
        "Maze-v0",
        {"buffer_size": 10**30},
        "dqn does not train on Maze-v0: buffer_size 1,000,000,000,000,000",
    ),
    ("dqn", "Maze-v0", {"buffer_size": 10**12}, " GB of memory, and this process can have "),
    (
        "ppo",
        "Maze-v0",
        {"hidden_sizes": [10**12]},
        "hidden_sizes: the number of weights 30,000,000,000,004 needs 480,000 GB",
    ),
    ("dqn", "Maze-v0", {"hidden_sizes": [10**30, 2]}, "hidden_sizes: the number of weights "),
    ("reward_model", "Maze-v0", {"hidden_sizes": [10**12]}, "hidden_sizes: the number of weights "),
    ("ppo", "Maze-v0", {"rollout_steps": 10**12}, "rollout_steps 1,000,000,000,000 needs "),
    (
        "ppo",
        "Maze-v0",
        {"num_envs": 100_000_000},
        "num_envs must be an integer of at most 1,048,576, got 100,000,000",
    ),
    ("ppo", "Maze-v0", {"steps": 10**30}, "steps must be an integer of at most"),
    (
        "ppo",
        "Maze-v0",
        {"eval_episodes": 10**12},
        "eval_episodes must be an integer of at most 10,000,000",
    ),
    ("pppo", "Maze-v0", {}, "unknown algorithm 'pppo'; did you mean 'ppo'?"),
    ("ppo", "Mase-v0", {}, "unknown environment 'Mase-v0'; did you mean 'Maze-v0'?"),
    ("q_learning", "Taxi-v3", {}, "environment 'Taxi-v3' does not exist in gymnasium"),
    ("q_learning", "Taxi-v3", {}, "use 'Taxi-v4'"),
    ("q_learning", "Maze-v7", {}, "environment 'Maze-v7' does not exist; use 'Maze-v0'"),
    ("ppo", "os:system", {}, "environment 'os:system' would import the module 'os'"),
    (
        "ppo",
        "Maze-v0",
        {"env_kwargs": {"slipp": 0.1}},
        "environment 'Maze-v0' has no argument 'slipp'; did you mean 'slip'?",
    ),
    (
        "q_learning",
        "FrozenLake-v1",
        {"env_kwargs": {"is_slippery": "maybe"}},  # which Python takes for true
        "environment 'FrozenLake-v1': is_slippery must be true or false, got 'maybe'",
    ),
    ("q_learning", "Maze-v0", {"env_kwargs": {"slip": 2.0}}, "slip"),
    ("q_learning", "Maze-v0", {"env_kwargs": {"layout": "S#G"}}, "goal"),
    ("ppo", "Maze-v0", {"env_kwargs": {3: 4}}, "env_kwargs must name its arguments, got 3"),
    (
        "q_learning",
        "Addition-v0",
        {},
        "q_learning does not train on Addition-v0: a table needs one row a state",
    ),
    (
        "value_iteration",
        "Maze-v0",
        {"env_kwargs": {"observation": "local"}},
        "value_iteration does not train on Maze-v0",
    ),
    (
        "value_iteration",
        "Reverse-v0",
        {},
        "value_iteration does not train on Reverse-v0: a table needs one row a state",
    ),
    (
        "value_iteration",
        "Pendulum-v1",
        {"bins": 1000},
        "value_iteration does not train on Pendulum-v1: a table needs one row a state",
    ),
]


@pytest.mark.parametrize(("algorithm", "env", "options", "sentence"), REQUESTS)
def test_a_wrong_request_is_one_sentence_and_nothing_is_written(
    algorithm: str, env: str, options: dict[str, Any], sentence: str, tmp_path: Path
) -> None:
    with pytest.raises(rlbook.RequestError) as error:
        rlbook.train(algorithm, env, out=tmp_path / "run", **options)
    assert sentence in str(error.value) and "\n" not in str(error.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("env", [None, 3, object(), gymnasium.make_vec("CartPole-v1", num_envs=2)])
def test_what_is_no_environment_is_refused(env: Any) -> None:
    with pytest.raises(
        rlbook.RequestError,
        match=r"env must be an environment id, a gymnasium\.Env, .* or a TabularMDP, got \w+",
    ):
        rlbook.train("ppo", env)


def test_numpy_integers_are_integers() -> None:
    run = rlbook.train("q_learning", "Maze-v0", steps=np.int64(20), seed=np.uint8(3), eval_every=0)  # type: ignore[arg-type]
    assert run.steps == 20 and type(run.request.seed) is int


@pytest.mark.parametrize(
    ("name", "value"), [("episodes", 0), ("episodes", True), ("seed", -1), ("seed", "1")]
)
def test_evaluating_checks_its_numbers(name: str, value: Any) -> None:
    run = rlbook.train("q_learning", "Maze-v0", steps=20, eval_every=0)
    with pytest.raises(rlbook.RequestError, match=f"{name} must be an integer"):
        rlbook.evaluate(run, **{name: value})
    with pytest.raises(
        rlbook.RequestError, match="an agent does not determine its environment; give env"
    ):
        rlbook.evaluate(run.agent)


def test_an_agent_is_not_judged_where_it_does_not_fit() -> None:
    run = rlbook.train("q_learning", "Maze-v0", steps=20, eval_every=0)
    with pytest.raises(rlbook.RequestError):
        rlbook.evaluate(run, "Addition-v0")
    with pytest.raises(
        rlbook.RequestError,
        match=r"FrozenLake-v1 shows Discrete\(16\), but the agent takes Discrete\(25\)",
    ):
        rlbook.evaluate(run, "FrozenLake-v1")
    ppo = rlbook.train("ppo", "CartPole-v1", steps=20, eval_every=0)
    with pytest.raises(rlbook.RequestError, match=r"Acrobot-v1 .* but the agent takes"):
        rlbook.evaluate(ppo, "Acrobot-v1")
    with pytest.raises(
        rlbook.RequestError,
        match=r"takes Discrete\(3\) as actions, but the agent chooses among Discrete\(2\)",
    ):
        rlbook.evaluate(ppo, Three())


class Three(gymnasium.Wrapper):
    """A cart that can also be left alone."""

    def __init__(self) -> None:
        super().__init__(gymnasium.make("CartPole-v1"))
        self.action_space = spaces.Discrete(3)


# ---- folders


def test_a_folder_that_holds_a_run_is_refused(tmp_path: Path) -> None:
    rlbook.train("q_learning", "Maze-v0", steps=20, out=tmp_path / "run")
    before = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    with pytest.raises(rlbook.RequestError, match="already holds a run; continue it with --resume"):
        rlbook.train("q_learning", "Maze-v0", steps=30, out=tmp_path / "run")
    assert {
        path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()
    } == before


@pytest.mark.parametrize("where", ["file/run", "/proc/no/such/run"])
def test_a_folder_that_cannot_be_written_is_one_sentence(where: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(rlbook.RequestError, match=r"^cannot (write to|read) \S+: .+$"):
        rlbook.train("q_learning", "Maze-v0", steps=20, out=tmp_path / where)


def test_a_folder_that_another_process_writes_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    with (
        lock(tmp_path / "run"),
        pytest.raises(rlbook.RequestError, match="is being written by another process"),
    ):
        rlbook.train("q_learning", "Maze-v0", steps=20, out=tmp_path / "run")
    assert not (tmp_path / "run" / "config.yaml").exists()
    rlbook.train("q_learning", "Maze-v0", steps=20, out=tmp_path / "run")
    with (
        lock(tmp_path / "run"),
        pytest.raises(rlbook.RequestError, match="is being written by another process"),
    ):
        rlbook.load(tmp_path / "run").resume(steps=40)


def test_a_run_keeps_other_processes_out_of_its_folder_until_it_ends(tmp_path: Path) -> None:
    turned_away = []

    def write_too(run: rlbook.Run) -> None:
        with pytest.raises(CheckpointError, match="another process"), lock(tmp_path / "run"):
            pass
        turned_away.append(run.steps)

    rlbook.train("q_learning", "Maze-v0", steps=20, out=tmp_path / "run", on_report=write_too)
    rlbook.load(tmp_path / "run").resume(steps=40, on_report=write_too)
    assert {20, 40} <= set(turned_away)
    with lock(tmp_path / "run"):
        pass


def test_resuming_and_loading_what_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(rlbook.RequestError, match="is not a run folder: it does not exist"):
        rlbook.load(tmp_path / "nothing")
    with pytest.raises(rlbook.RequestError, match="resume needs out, the folder"):
        rlbook.train("ppo", "Maze-v0", resume=True)
    with pytest.raises(rlbook.RequestError, match="has no folder to continue in"):
        rlbook.train("q_learning", "Maze-v0", steps=20).resume()


def test_a_damaged_checkpoint_is_refused_before_torch_is_imported(tmp_path: Path) -> None:
    run = rlbook.train("q_learning", "Maze-v0", steps=20, out=tmp_path / "run", eval_every=0)
    (tmp_path / "run" / "checkpoints" / str(run.steps) / "arrays.safetensors").write_bytes(
        b"cut short"
    )
    code = (
        "import sys, rlbook\ntry: rlbook.load(sys.argv[1])\nexcept RuntimeError as error:"
        " print(error, 'torch' in sys.modules)"
    )
    shown = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "run")],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "it is damaged, its bytes do not match their checksum. False" in shown


# ---- what is not finite


class Poisoned(gymnasium.Env):
    """CartPole-like numbers, until step `at` of all of them says `value` where `where` says."""

    action_space = spaces.Discrete(2)
    observation_space = spaces.Box(-1, 1, (2,), np.float32)

    def __init__(self, where: str = "reward", value: float = math.nan, at: int = 500) -> None:
        self.where, self.value, self.at, self.steps = where, value, at, 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.time = 0
        return self._shown("start"), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.steps, self.time = self.steps + 1, self.time + 1
        reward = self.value if self.where == "reward" and self.steps == self.at else 1.0
        return self._shown("observation"), reward, self.time == 10, False, {}

    def _shown(self, where: str) -> np.ndarray:
        poisoned = where == self.where and self.steps == self.at
        return np.array([self.value if poisoned else 0.5, self.time / 10], dtype=np.float32)


@pytest.mark.thorough(quick=1)
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("where", ["reward", "observation", "start"])
@pytest.mark.parametrize("algorithm", ["q_learning", "dqn", "ppo", "grpo"])
def test_a_number_that_is_not_finite_stops_the_run_at_its_step(
    algorithm: str, where: str, value: float, tmp_path: Path
) -> None:
    options: dict[str, Any] = (
        {"group_size": 2, "num_envs": 2} if algorithm == "grpo" else {"num_envs": 1}
    )
    step = 1000 if algorithm == "grpo" else 500  # two streams: two steps at once
    env = Poisoned(where, value)
    with pytest.raises(rlbook.TrainingError) as error:
        rlbook.train(algorithm, env, steps=2000, out=tmp_path / "run", eval_every=0, **options)
    what = "reward" if where == "reward" else "observation"
    assert str(error.value) == f"{what} at environment step {step} is not finite: {value}"
    good = latest_step(tmp_path / "run")
    assert good is not None and 0 < good < step
    assert rlbook.load(tmp_path / "run", env=Poisoned()).steps == good
    assert "NaN" not in (tmp_path / "run" / "metrics.jsonl").read_text()


@pytest.mark.thorough(quick=1)
@pytest.mark.parametrize(
    ("algorithm", "options"),
    [
        ("ppo", {"learning_rate": 1e30, "anneal_learning_rate": False}),
        ("dqn", {"learning_rate": 1e30, "learning_starts": 700}),
        ("grpo", {"learning_rate": 3e37, "epochs": 9, "num_envs": 16}),
        ("dpo", {"learning_rate": 3e37, "epochs": 9, "num_envs": 16}),
    ],
)
def test_weights_that_diverge_stop_the_run(
    algorithm: str, options: dict[str, Any], tmp_path: Path
) -> None:
    sentence = (
        r"^training diverged at step \d+: \w+ is -?(nan|inf), and /.* has NaN or infinite values"
    )
    with pytest.raises(rlbook.TrainingError, match=sentence):
        rlbook.train(
            algorithm, "CartPole-v1", steps=6000, out=tmp_path / "run", eval_every=0, **options
        )
    assert rlbook.load(tmp_path / "run").steps == latest_step(tmp_path / "run")
    with pytest.raises(rlbook.TrainingError, match="training diverged"):
        rlbook.train(algorithm, "CartPole-v1", steps=6000, eval_every=0, **options)


def test_an_evaluation_that_is_not_finite_is_an_error() -> None:
    run = rlbook.train("q_learning", Poisoned(at=10**9), steps=100, eval_every=0)
    with pytest.raises(
        rlbook.TrainingError, match="reward at environment step 5 is not finite: nan"
    ):
        rlbook.evaluate(run, Poisoned(at=5), episodes=2)


@pytest.mark.parametrize("where", ["reward", "observation"])
def test_an_evaluation_that_is_not_finite_stops_the_run_and_names_its_step(
    where: str, tmp_path: Path
) -> None:
    with pytest.raises(rlbook.TrainingError, match=rf"{where} .* not finite: nan") as error:
        # 20 evaluation episodes have 200 steps
        rlbook.train("q_learning", Poisoned(where, at=150), steps=1000, out=tmp_path / "run")
    assert "evaluation at step 100" in str(error.value)  # a tenth of the run
    assert rlbook.load(tmp_path / "run", env=Poisoned()).steps == latest_step(tmp_path / "run")


def test_a_full_disk_leaves_the_last_checkpoint_and_says_so(tmp_path: Path) -> None:
    """A limit on the size of files stands in for a full disk: the operating system refuses the
    write in the same place."""
    child = os.fork()
    if child == 0:
        os._exit(_train_with_little_space(tmp_path))
    assert os.WEXITSTATUS(os.waitpid(child, 0)[1]) == 0
    assert rlbook.load(tmp_path / "run").steps == latest_step(tmp_path / "run")


def _train_with_little_space(folder: Path) -> int:
    import resource
    import signal

    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (6000, 6000))
    try:
        rlbook.train("q_learning", "Maze-v0", steps=20_000, out=folder / "run", eval_every=0)
    except rlbook.TrainingError as error:
        return 0 if "file too large" in str(error).lower() and "\n" not in str(error) else 2
    return 3


def test_a_disk_that_is_full_at_step_0_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object, **__: object) -> NoReturn:
        raise OSError(errno.ENOSPC, "No space left on device")

    folder = tmp_path / "run"
    monkeypatch.setattr("rlbook.runs.storage.checkpoints.write_directory", full)
    assert cli.main(["train", "q_learning", "Maze-v0", "--steps", "20", "--out", str(folder)]) == 1
    reason = (
        f"The checkpoint {folder / 'checkpoints' / '0'} was not written (no space left on device)"
    )
    assert (
        capsys.readouterr().err.splitlines()[-1]
        == f"rlbook: {reason}; no earlier checkpoint was written"
    )


class Breaking(gymnasium.Env):
    """Raises in its fortieth step."""

    observation_space, action_space = gymnasium.spaces.Discrete(2), gymnasium.spaces.Discrete(2)

    def __init__(self) -> None:
        self.steps = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        return 0, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        if self.steps == 40:
            raise KeyError("gone")
        return 1, 0.0, False, self.steps % 10 == 0, {}


@pytest.mark.parametrize("algorithm", ["q_learning", "ppo"])
def test_an_environment_that_raises_costs_no_run(algorithm: str, tmp_path: Path) -> None:
    with pytest.raises(
        rlbook.TrainingError, match="the environment failed at step 40: KeyError: 'gone'"
    ):
        rlbook.train(
            algorithm, Breaking(), steps=100, num_envs=1, eval_every=0, out=tmp_path / "run"
        )
    assert (latest_step(tmp_path / "run") or 0) > 0


# ---- options that would have no effect


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"n_episodes": 7}, "evaluate has no option 'n_episodes'; did you mean 'episodes'?"),
        (
            {"checkpoint": "best"},
            (
                "checkpoint says how to load a run's folder, and evaluate was given a run that is"
                " loaded; give the folder"
            ),
        ),
        ({"allow_import": True}, "allow_import says how to load a run's folder"),
        ({"env_kwargs": {"slipp": 0.5}}, "has no argument 'slipp'; did you mean 'slip'?"),
        (
            {"episodes": 10**12},
            "episodes must be an integer of at most 10,000,000, got 1,000,000,000,000",
        ),
    ],
)
def test_evaluate_refuses_an_option_that_it_has_no_use_for(
    options: dict[str, Any], sentence: str
) -> None:
    run = rlbook.train("q_learning", "Maze-v0", steps=20, eval_every=0)
    with pytest.raises(rlbook.RequestError) as caught:
        rlbook.evaluate(run, **options)
    assert sentence in str(caught.value)


def test_evaluate_refuses_to_choose_a_checkpoint_of_an_agent() -> None:
    run = rlbook.train("q_learning", "Maze-v0", steps=20, eval_every=0)
    with pytest.raises(
        rlbook.RequestError,
        match="checkpoint says how to load a run's folder, and evaluate was given an agent",
    ):
        rlbook.evaluate(run.agent, "Maze-v0", checkpoint=20)


def test_evaluate_changes_no_environment_that_exists() -> None:
    run = rlbook.train("q_learning", "Maze-v0", steps=20, eval_every=0)
    with pytest.raises(
        rlbook.RequestError, match="cannot change an environment that already exists"
    ):
        rlbook.evaluate(run, rlbook.make("Maze-v0"), env_kwargs={"slip": 0.5})
    with pytest.raises(rlbook.RequestError, match="an agent does not determine its environment"):
        rlbook.evaluate(run.agent, env_kwargs={"slip": 0.5})


def test_evaluate_plays_in_the_environment_that_its_arguments_describe() -> None:
    run = rlbook.train("q_learning", "Maze-v0", steps=2000, eval_every=0)
    slipping = rlbook.evaluate(run, "Maze-v0", episodes=20, env_kwargs={"slip": 0.5})
    assert (
        len(set(slipping.returns))
        > 1
        == len(set(rlbook.evaluate(run, "Maze-v0", episodes=20).returns))
    )


def test_train_refuses_arguments_for_an_environment_that_is_made_already() -> None:
    with pytest.raises(
        rlbook.RequestError,
        match="env_kwargs apply only to an environment given by its id; slip cannot change an",
    ):
        rlbook.train("q_learning", rlbook.make("Maze-v0"), env_kwargs={"slip": 0.5})


def test_memory_that_the_system_refuses_is_told_with_what_there_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["train", "ppo", "CartPole-v1", "--steps", "500", "--eval-every", "0"]
    words += ["--hidden-sizes", "6000,6000", "--out", str(tmp_path / "run")]
    with memory_limit(70_000_000):  # the weights between the layers are twice that
        code = cli.main(words)
    said = capsys.readouterr().err.splitlines()[-1]
    assert code == 1 and not (tmp_path / "run").exists()
    assert re.fullmatch(
        r"rlbook: out of memory \(0\.1 GB more were asked for\): this process can have"
        r" [\d.]+ GB, as ulimit -v \d+ says",
        said,
    )


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        OSError(errno.ENOMEM, "Cannot allocate memory"),
        ImportError("libtorch_cpu.so: failed to map segment from shared object"),
    ],
)
def test_memory_is_refused_in_several_ways(error: Exception) -> None:
    assert is_out_of_memory(error) and not is_out_of_memory(ImportError("no module named x"))


@pytest.mark.parametrize("inside", ["", "run"])
def test_a_link_to_nothing_in_place_of_a_folder_is_named(tmp_path: Path, inside: str) -> None:
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "nothing")
    for write in (
        lambda: rlbook.train("q_learning", "Maze-v0", steps=20, eval_every=0, out=link / inside),
        lambda: record("Maze-v0", link / inside, episodes=1),
    ):
        with pytest.raises(rlbook.RequestError) as refused:
            write()
        assert str(refused.value) == (
            f"cannot write to {link / inside}: {link} is a link to {tmp_path / 'nothing'}, which"
            " does not exist"
        )
        assert [path.name for path in tmp_path.iterdir()] == ["link"]


def test_a_link_to_nothing_in_place_of_a_file_is_named(tmp_path: Path) -> None:
    link = tmp_path / "link.py"
    link.symlink_to(tmp_path / "nothing")
    for write in (
        lambda: record_examples("Addition-v0", link, episodes=1),
        lambda: start("returns", link),
    ):
        with pytest.raises(rlbook.RequestError, match=f": {link} is a link to .*/nothing, which"):
            write()
        assert [path.name for path in tmp_path.iterdir()] == ["link.py"]
