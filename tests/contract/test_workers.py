"""`--workers N`: environments in processes of their own; the same run to the byte, failures in one
sentence, and nobody left behind."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from warm_process import WarmProcess

import rlbook
from rlbook.cli import main as cli
from rlbook.errors import RequestError, TrainingError
from rlbook.interaction.environments import EnvRecipe
from rlbook.interaction.vector_envs.sync_vector import SyncVector
from rlbook.interaction.vector_envs.workers import Workers, WorkerVector
from rlbook.runs.storage.checkpoints import latest_step

HERE = Path(__file__).parent
SIGNS = "worlds_for_workers:Signs-v0"
OWN = {"allow_import": True, "num_envs": 4, "eval_episodes": 3}


@pytest.fixture(autouse=True)
def _worlds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(HERE)
    import worlds_for_workers  # noqa: F401 - registers its environment


def contents(folder: Path) -> dict[str, bytes]:
    """All files but the times, by their path in the folder."""
    files = {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
    return {name: data for name, data in files.items() if name != "seconds.json"}


def children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.fixture
def new_children() -> Callable[[], list[int]]:
    """The child processes that have come since the test began; a library that an earlier test used
    may have left one, such as a tracker's service."""
    before = children(os.getpid())
    return lambda: [pid for pid in children(os.getpid()) if pid not in before]


def recipe(env_id: str = "Signs-v0", **kwargs: Any) -> EnvRecipe:
    return EnvRecipe.from_env(env_id, kwargs=kwargs)


# ---- the same as in one process


def played(env: Any, steps: int, rng: np.random.Generator) -> Iterator[Any]:
    """Everything that an environment answers; ended episodes wait for a while."""
    yield env.reset(seed=[int(seed) for seed in rng.integers(100, size=env.num_envs)])
    for step in range(steps):
        answer = env.step(rng.integers(3, size=env.num_envs))
        yield answer
        over = answer[2] | answer[3]
        if step % 3 == 2 and over.any():
            yield env.reset(options={"reset_mask": over})


@pytest.mark.thorough
def test_workers_answer_what_one_process_answers_and_take_up_what_it_left() -> None:
    with Workers(2) as two, Workers(3) as three:
        one, envs = (
            SyncVector(recipe().make_many(5)),
            [WorkerVector(workers, recipe(), 5) for workers in (two, three)],
        )
        answers = [list(played(env, 40, np.random.default_rng(0))) for env in (one, *envs)]
        for other in answers[1:]:
            np.testing.assert_equal(other, answers[0])
        saved = one.snapshot()
        np.testing.assert_equal([env.snapshot() for env in envs], [saved, saved])
        actions = np.array([0, 1, 2, 0, 1])
        expected = [one.step(actions) for _ in range(4)]
        two.close()  # a new start makes the environments again
        for env in envs:
            env.restore(saved)
            np.testing.assert_equal([env.step(actions) for _ in range(4)], expected)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("algorithm", "env", "options"),
    [
        ("ppo", SIGNS, {"steps": 240, "rollout_steps": 20}),
        pytest.param(
            "reinforce",
            "CartPole-v1",
            {"steps": 1500, "num_envs": 4, "eval_episodes": 3},
            marks=pytest.mark.slow,
        ),
        pytest.param("ppo", "CartPole-v1", {"steps": 3000, "num_envs": 8}, marks=pytest.mark.slow),
        pytest.param("a2c", "Acrobot-v1", {"steps": 3000, "num_envs": 3}, marks=pytest.mark.slow),
        pytest.param(
            "dqn",
            "MountainCar-v0",
            {"steps": 1500, "num_envs": 2, "learning_starts": 200},
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "sac",
            "Pendulum-v1",
            {"steps": 500, "num_envs": 2, "learning_starts": 100},
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "dagger", "FrozenLake-v1", {"steps": 500, "num_envs": 2}, marks=pytest.mark.slow
        ),
    ],
)
def test_a_run_with_workers_leaves_the_same_bytes(
    algorithm: str,
    env: str,
    options: dict[str, Any],
    tmp_path: Path,
    new_children: Callable[[], list[int]],
) -> None:
    options = {"workers": 2, "seed": 3} | (OWN if env == SIGNS else {}) | options
    rlbook.train(algorithm, env, out=tmp_path / "one", **options | {"workers": 1})
    run = rlbook.train(algorithm, env, out=tmp_path / "many", **options)
    assert contents(tmp_path / "many") == contents(tmp_path / "one")
    if env == SIGNS:
        played = [
            rlbook.evaluate(run.folder, episodes=7, allow_import=True, workers=workers)
            for workers in (1, 2)
        ]  # type: ignore[arg-type]
        assert (
            played[0].returns.tolist() == played[1].returns.tolist()
            and played[0].lengths.tolist() == played[1].lengths.tolist()
        )
    assert not new_children()


@pytest.mark.slow
def test_a_run_may_be_resumed_with_another_number_of_workers(
    tmp_path: Path, new_children: Callable[[], list[int]]
) -> None:
    def stop(run: rlbook.Run) -> None:
        if run.steps >= 150:
            signal.raise_signal(signal.SIGTERM)

    options = {**OWN, "steps": 400, "rollout_steps": 20}
    rlbook.train("ppo", SIGNS, out=tmp_path / "whole", **options)
    with pytest.raises(KeyboardInterrupt):
        rlbook.train("ppo", SIGNS, out=tmp_path / "parts", **options, workers=3, on_report=stop)
    rlbook.train("ppo", SIGNS, out=tmp_path / "parts", **options, workers=2, resume=True)
    assert contents(tmp_path / "parts") == contents(tmp_path / "whole")
    assert not new_children()


@pytest.mark.thorough
def test_an_environment_without_an_id_is_sent_as_it_is() -> None:
    class Own(gymnasium.Wrapper):
        pass

    def returns(workers: int) -> list[float]:
        return rlbook.train(
            "ppo", Own(recipe().make()), steps=200, num_envs=4, workers=workers, eval_every=0
        ).episode_returns

    assert returns(2) == returns(1)
    holding = Own(recipe().make())
    holding.file = open(__file__)  # type: ignore[attr-defined]  # noqa: SIM115
    with (
        holding.file,
        pytest.raises(RequestError, match=r"cannot be sent to a worker process|cannot be copied"),
    ):  # type: ignore[attr-defined]
        rlbook.train("ppo", holding, steps=200, num_envs=4, workers=2)


# ---- what goes wrong


@pytest.mark.parametrize(
    "how", ["own", *(pytest.param(how, marks=pytest.mark.slow) for how in ("raise", "bad"))]
)
def test_what_an_environment_raises_is_said_as_in_one_process(
    how: str, new_children: Callable[[], list[int]]
) -> None:
    said = []
    for workers in (1, 2):
        with pytest.raises(TrainingError) as caught:
            rlbook.train(
                "ppo", SIGNS, steps=400, env_kwargs={"at": 9, "how": how}, workers=workers, **OWN
            )
        said.append(str(caught.value))
    assert said[0] == said[1] and "failed at step" in said[0]
    assert not new_children()


@pytest.mark.parametrize(
    ("how", "fate"),
    [
        ("kill", "was ended by SIGKILL"),
        pytest.param("exit", "ended with exit code 7", marks=pytest.mark.slow),
    ],
)
def test_a_worker_that_dies_ends_the_run_and_leaves_its_checkpoint(
    how: str,
    fate: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    new_children: Callable[[], list[int]],
) -> None:
    words = [
        "train",
        "ppo",
        SIGNS,
        "--allow-import",
        "--steps",
        "400",
        "--num-envs",
        "4",
        "--workers",
        "2",
        "--eval-every",
        "0",
    ]
    assert (
        cli.main([*words, "--env.at", "14", "--env.how", how, "--out", str(tmp_path / "run")]) == 1
    )
    said = capsys.readouterr().err.splitlines()[-1]
    assert (
        fate in said
        and said.startswith("rlbook: worker ")
        and "the last good checkpoint is" in said
    )
    assert latest_step(tmp_path / "run") is not None and not new_children()


@pytest.mark.parametrize(
    ("algorithm", "env", "options", "said"),
    [
        ("ppo", "CartPole-v1", {"workers": 0}, "workers must be an integer of at least 1, got 0"),
        ("ppo", "CartPole-v1", {"workers": -1}, "workers must be an integer of at least 1, got -1"),
        (
            "ppo",
            "CartPole-v1",
            {"num_envs": 2, "workers": 3},
            "workers must be at most num_envs, 2, got 3",
        ),
        (
            "ppo",
            "Maze-v0",
            {"workers": 2},
            "Maze-v0 steps all its copies together in one process; workers must be 1, got 2",
        ),
        (
            "grpo",
            "Addition-v0",
            {"workers": 2},
            "Addition-v0 steps all its copies together in one process; workers must be 1, got 2",
        ),
        (
            "q_learning",
            "CartPole-v1",
            {"workers": 2},
            "q_learning learns from one environment; workers must be 1, got 2",
        ),
        (
            "value_iteration",
            "FrozenLake-v1",
            {"workers": 2},
            "value_iteration steps no environments during training here; workers must be 1",
        ),
        (
            "behavior_cloning",
            "CartPole-v1",
            {"workers": 2},
            "behavior_cloning steps no environments during training here; workers must be 1",
        ),
    ],
)
def test_workers_that_would_have_nothing_to_do_are_refused(
    algorithm: str,
    env: str,
    options: dict[str, int],
    said: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = [
        word
        for name, value in options.items()
        for word in (f"--{name.replace('_', '-')}", str(value))
    ]
    assert cli.main(["train", algorithm, env, *words, "--out", str(tmp_path / "run")]) == 2
    assert said in capsys.readouterr().err and not (tmp_path / "run").exists()


# ---- signals


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("signum", "code"),
    [
        (signal.SIGINT, 130),
        pytest.param(signal.SIGTERM, 143, marks=pytest.mark.slow),
        pytest.param(signal.SIGKILL, -9, marks=pytest.mark.slow),
    ],
)
def test_workers_end_with_the_command_that_started_them(
    signum: signal.Signals, code: int, tmp_path: Path
) -> None:
    words = [
        "ppo",
        SIGNS,
        "--allow-import",
        "--steps",
        "1000000",
        "--num-envs",
        "2",
        "--workers",
        "2",
        "--env.seconds",
        "0.01",
    ]
    command = ["-m", "rlbook", "train", *words, "--eval-every", "0", "--out", tmp_path / "run"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    process = WarmProcess(command, env=environment, new_group=True)
    while not (workers := children(process.pid)) or latest_step(tmp_path / "run") is None:
        assert process.poll() is None
        time.sleep(0.02)
    time.sleep(0.5)
    os.killpg(process.pid, signum)
    said = process.communicate()[1]
    assert process.returncode == code, said
    if signum != signal.SIGKILL:
        assert said.splitlines()[-1].endswith(
            f"continue with: rlbook train --resume {tmp_path / 'run'} --workers 2 --allow-import"
        )
    deadline = time.monotonic() + 10
    while any(Path(f"/proc/{pid}").exists() for pid in workers):
        assert time.monotonic() < deadline, "a worker still runs"
        time.sleep(0.02)
