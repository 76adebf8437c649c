"""A run stopped anywhere ends with the bytes of one that was not; the same seed gives the same
bytes; evaluation changes nothing."""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from gymnasium import spaces
from warm_process import run_python

import rlbook
from rlbook.runs.processes.interrupts import Interrupted
from rlbook.runs.storage.checkpoints import latest_step
from rlbook.runs.storage.state_encoding import encode

DRIVER = Path(__file__).with_name("runs_in_parts.py")
SIGNALS = ("SIGINT", "SIGTERM", "SIGKILL")
Runs = dict[tuple[str, str], tuple[dict[str, Any], int]]

# (algorithm, environment) → options, and about how often the agent learns in the whole run (a
# planner: sweeps; a table: chunks of steps). The budgets end in the middle of an episode and of a
# rollout, and every run takes several updates, evaluations and checkpoints.
RUNS: Runs = {
    ("value_iteration", "Maze-v0"): ({"env_kwargs": {"slip": 0.2}, "gamma": 0.9}, 40),
    ("value_iteration", "CartPole-v1"): ({"sampled_steps": 1000, "bins": 6, "gamma": 0.9}, 100),
    ("certainty_equivalence", "CartPole-v1"): ({"steps": 1500, "bins": 6}, 1500),
    ("dyna_q", "CartPole-v1"): ({"steps": 1500, "bins": 6}, 100),
    ("dyna_q_plus", "DynaMaze-v0"): ({"steps": 3000, "env_kwargs": {"variant": "blocking"}}, 100),
    ("q_learning", "Maze-v0"): ({"steps": 1500, "env_kwargs": {"slip": 0.2}}, 100),
    ("q_learning", "CartPole-v1"): ({"steps": 1500, "bins": 6}, 100),
    ("alphazero", "Maze-v0"): (
        {"steps": 500, "simulations": 8, "gradient_steps": 4, "env_kwargs": {"slip": 0.2}},
        500,
    ),
    ("alphazero", "TicTacToe-v0"): (
        {
            "steps": 300,
            "simulations": 8,
            "train_every": 4,
            "buffer_size": 150,
            "env_kwargs": {"opponent": "self"},
        },
        300,
    ),
    ("semi_gradient_td", "Maze-v0"): (
        {"steps": 1500, "features": "aggregate", "n": 5, "env_kwargs": {"slip": 0.2}},
        1500,
    ),
    ("semi_gradient_td", "CartPole-v1"): (
        {"steps": 1500, "features": "fourier", "order": 1, "trace_decay": 0.9, "alpha": 0.01},
        1500,
    ),
    ("semi_gradient_sarsa", "Maze-v0"): ({"steps": 1500, "env_kwargs": {"slip": 0.2}}, 1500),
    ("semi_gradient_sarsa", "MountainCar-v0"): ({"steps": 1500}, 1500),
    ("semi_gradient_sarsa", "CartPole-v1"): ({"steps": 1500, "n": 4}, 1500),
    ("lstd", "Maze-v0"): ({"steps": 1500, "trace_decay": 0.5, "env_kwargs": {"slip": 0.2}}, 1500),
    ("lstd", "MountainCar-v0"): ({"steps": 1500, "bins": 4, "tilings": 2}, 1500),
    ("gradient_td", "Maze-v0"): (
        {"steps": 1500, "policy": "optimal", "env_kwargs": {"slip": 0.2}},
        1500,
    ),
    ("gradient_td", "MountainCar-v0"): (
        {"steps": 1500, "features": "fourier", "alpha": 0.01, "update": "gtd2"},
        1500,
    ),
    ("dqn", "Maze-v0"): (
        {"steps": 1200, "learning_starts": 100, "buffer_size": 700, "env_kwargs": {"slip": 0.2}},
        1200,
    ),
    ("dqn", "TMaze-v0"): (
        {
            "steps": 1200,
            "num_envs": 2,
            "recurrent": "lstm",
            "hidden_sizes": (8,),
            "sequence_length": 6,
            "overlap": 2,
            "burn_in": 3,
            "n_step": 2,
            "batch_size": 8,
            "learning_starts": 100,
            "buffer_size": 701,
        },
        600,
    ),
    ("dqn", "CartPole-v1"): (
        {
            "steps": 1200,
            "learning_starts": 100,
            "num_envs": 3,
            "target_period": 150,
            "train_every": 60,
            "gradient_steps": 8,
            "double": True,
            "dueling": True,
            "prioritized": True,
            "n_step": 3,
            "noisy": True,
            "distributional": True,
            "v_max": 100.0,
        },
        400,
    ),
    ("world_model", "CartPole-v1"): (
        {
            "steps": 700,
            "num_envs": 3,
            "learning_starts": 100,
            "train_every": 70,
            "gradient_steps": 5,
            "horizon": 5,
            "candidates": 10,
            "elites": 3,
            "buffer_size": 300,
            "iterations": 2,
            "eval_every": 300,
        },
        230,
    ),
    ("mbpo", "Pendulum-v1"): (
        {
            "steps": 400,
            "learning_starts": 50,
            "num_envs": 2,
            "hidden_sizes": (16,),
            "buffer_size": 300,
            "gradient_steps": 2,
            "horizon": 2,
            "members": 2,
            "model_every": 70,
            "model_steps": 5,
            "model_hidden_sizes": (16,),
        },
        200,
    ),
    ("mbpo", "CartPole-v1"): (
        {
            "steps": 400,
            "learning_starts": 50,
            "hidden_sizes": (16,),
            "buffer_size": 300,
            "gradient_steps": 2,
            "model_every": 70,
            "model_steps": 5,
        },
        400,
    ),
    ("ppo", "Maze-v0"): (
        {"steps": 2500, "num_envs": 5, "rollout_steps": 32, "env_kwargs": {"slip": 0.2}},
        500,
    ),
    ("ppo", "CartPole-v1"): (
        {
            "steps": 2500,
            "num_envs": 4,
            "rollout_steps": 50,
            "normalize_observation": True,
            "normalize_reward": True,
            "kl_coef": 0.1,
            "kl_target": 0.01,
            "normalize_over": "rollout",
            "whiten_reward": True,
        },
        625,
    ),
    ("a2c", "CartPole-v1"): (
        {"steps": 1200, "num_envs": 4, "normalize_observation": True, "normalize_reward": True},
        300,
    ),
    ("gail", "Maze-v0"): (
        {"steps": 1500, "num_envs": 5, "rollout_steps": 16, "demonstrations": 50},
        300,
    ),
    ("rejection_sampling", "Maze-v0"): (
        {"steps": 6000, "num_envs": 8, "group_size": 4, "keep": 1, "env_kwargs": {"slip": 0.2}},
        850,
    ),
    ("dagger", "Maze-v0"): (
        {"steps": 1500, "num_envs": 5, "beta": 0.5, "env_kwargs": {"slip": 0.2}},
        300,
    ),
    ("a2c", "Addition-v0"): ({"steps": 150, "num_envs": 8, "eval_every": 70}, 20),
    ("sac", "Pendulum-v1"): (
        {
            "steps": 400,
            "learning_starts": 50,
            "num_envs": 2,
            "hold": 3,
            "hidden_sizes": (16,),
            "buffer_size": 300,
        },
        200,
    ),
    ("td3", "Pendulum-v1"): (
        {
            "steps": 400,
            "learning_starts": 50,
            "num_envs": 2,
            "hidden_sizes": (16,),
            "buffer_size": 300,
        },
        200,
    ),
    ("ddpg", "Pendulum-v1"): (
        {"steps": 400, "learning_starts": 50, "hidden_sizes": (16,), "buffer_size": 300},
        400,
    ),
    ("sac", "CartPole-v1"): (
        {"steps": 400, "learning_starts": 50, "hidden_sizes": (16,), "buffer_size": 300},
        400,
    ),
    ("trpo", "CartPole-v1"): (
        {
            "steps": 2000,
            "num_envs": 4,
            "rollout_steps": 50,
            "normalize_observation": True,
            "normalize_reward": True,
        },
        500,
    ),
    ("trpo", "Addition-v0"): ({"steps": 150, "num_envs": 8, "eval_every": 70}, 20),
    ("reinforce", "Maze-v0"): (
        {"steps": 6000, "num_envs": 8, "baseline": "learned", "env_kwargs": {"slip": 0.2}},
        850,
    ),
    ("reinforce", "CartPole-v1"): (
        {
            "steps": 2500,
            "num_envs": 8,
            "group_size": 4,
            "normalize_observation": True,
            "normalize_reward": True,
        },
        500,
    ),
    ("grpo", "Maze-v0"): (
        {
            "steps": 6000,
            "num_envs": 8,
            "group_size": 4,
            "kl_coef": 0.01,
            "env_kwargs": {"slip": 0.2},
        },
        850,
    ),
    ("grpo", "CartPole-v1"): ({"steps": 2500, "num_envs": 8, "group_size": 4}, 500),
    ("dpo", "Maze-v0"): (
        {"steps": 6000, "num_envs": 8, "reference_period": 2, "env_kwargs": {"slip": 0.2}},
        850,
    ),
    ("dpo", "CartPole-v1"): (
        {"steps": 2500, "num_envs": 8, "group_size": 4, "preference_loss": "kto"},
        500,
    ),
    ("ppo", "Addition-v0"): ({"steps": 150, "num_envs": 8, "eval_every": 70}, 20),
    ("reinforce", "Addition-v0"): (
        {
            "steps": 150,
            "num_envs": 8,
            "eval_every": 70,
            "group_size": 4,
            "env_kwargs": {"reward": "edit"},
        },
        20,
    ),
    ("grpo", "Addition-v0"): (
        {
            "steps": 150,
            "num_envs": 8,
            "eval_every": 70,
            "group_size": 4,
            "env_kwargs": {"reward": "edit"},
        },
        20,
    ),
    ("grpo", "Reverse-v0"): (
        {
            "steps": 250,
            "num_envs": 8,
            "eval_every": 90,
            "group_size": 4,
            "refill": 4,
            "ratio": "sequence",
            "importance_cap": 2.0,
        },
        32,
    ),
    ("grpo", "Chat-v0"): (
        {
            "steps": 300,
            "num_envs": 8,
            "eval_every": 140,
            "group_size": 4,
            "env_kwargs": {"reward": "edit", "shots": 2, "stop": ["5"], "max_new_tokens": 6},
        },
        38,
    ),
    ("dpo", "Addition-v0"): (
        {
            "steps": 150,
            "num_envs": 8,
            "eval_every": 70,
            "env_kwargs": {"reward": "edit"},
            "nll_coef": 0.1,
        },
        20,
    ),
    ("dqn", "Addition-v0"): (
        {"steps": 200, "num_envs": 4, "eval_every": 90, "learning_starts": 50, "buffer_size": 150},
        50,
    ),
}


def cases(
    stops: dict[str, tuple[int, ...]], *, runs: Runs | None = None, seed: int = 0
) -> list[dict[str, Any]]:
    """One case for each run and signal, each stopped at random points: how many, `stops` says for
    each signal."""
    rng = random.Random(seed)
    listed = []
    for (algorithm, env), (options, length) in (runs or RUNS).items():
        for name_of_signal, counts in stops.items():
            for number in counts:
                at = rng.randrange(2, max(3, int(0.9 * length)))
                name = f"{algorithm}-{env}-{name_of_signal}-{number}"
                options = {"eval_episodes": 3} | options
                listed.append(
                    {
                        "name": name,
                        "algorithm": algorithm,
                        "env": env,
                        "options": options,
                        "signal": name_of_signal,
                        "at": at,
                    }
                )
    return listed


def drive(
    mode: str, root: Path, listed: list[dict[str, Any]], *, hash_seed: int | None = None
) -> None:
    """Runs the driver in another process, with a working directory of its own: a fresh one with
    this hash seed, or a fork of one that has rlbook imported, whose hash seed is random."""
    cwd = root / f"elsewhere-{mode}"
    cwd.mkdir(parents=True, exist_ok=True)
    words = [str(DRIVER), mode, str(root), json.dumps(listed)]
    if hash_seed is None:
        places = {"PYTHONPATH": os.pathsep.join([str(DRIVER.parents[2]), *sys.path])}
        done = run_python(words, cwd=cwd, env=os.environ | places, timeout=280.0)
    else:
        environment = os.environ | {"PYTHONHASHSEED": str(hash_seed), "OMP_NUM_THREADS": "1"}
        done = subprocess.run(
            [sys.executable, *words], cwd=cwd, env=environment, capture_output=True, text=True
        )
    assert done.returncode == 0, done.stderr[-3000:]


def contents(folder: Path) -> dict[str, str]:
    """What a run leaves behind, by name: its last checkpoint, its log and its config, as sha256."""
    names = ("metrics.jsonl", "episodes.csv", "config.yaml", "checkpoints/best.json")
    kept = [
        folder / name
        for name in names
        if name != "checkpoints/best.json" or (folder / name).exists()
    ]
    files = [*(folder / "checkpoints" / str(latest_step(folder))).iterdir(), *kept]
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in files
    }


def check(tmp_path: Path, listed: list[dict[str, Any]], *, fresh: bool = True) -> None:
    """The uninterrupted runs are this process's, whose hash seed is random."""
    for case in listed:
        reference = tmp_path / "whole" / f"{case['algorithm']}-{case['env']}"
        if not reference.exists():
            rlbook.train(case["algorithm"], case["env"], seed=3, out=reference, **case["options"])
    drive("stop", tmp_path / "parts", listed, hash_seed=2 if fresh else None)
    stopped = {case["name"]: latest_step(tmp_path / "parts" / case["name"]) for case in listed}
    drive("resume", tmp_path / "parts", listed, hash_seed=3 if fresh else None)
    for case in listed:
        expected = contents(tmp_path / "whole" / f"{case['algorithm']}-{case['env']}")
        assert contents(tmp_path / "parts" / case["name"]) == expected, (
            case["name"],
            case["at"],
            stopped[case["name"]],
        )


SMALLER: dict[tuple[str, str], tuple[str, dict[str, Any], int]] = {
    ("value_iteration", "Maze-v0"): ("SIGTERM", {}, 40),
    ("q_learning", "CartPole-v1"): ("SIGINT", {"steps": 600}, 100),
    ("dqn", "CartPole-v1"): (
        "SIGKILL",
        {"hidden_sizes": (16,), "num_atoms": 11, "steps": 600},
        200,
    ),
    ("ppo", "CartPole-v1"): ("SIGTERM", {"hidden_sizes": (16,), "steps": 900}, 225),
    ("grpo", "Addition-v0"): (
        "SIGKILL",
        {"model": {"hidden_size": 8, "intermediate_size": 8}},
        20,
    ),
}
"""Run → the signal that stops it, what makes it smaller, and how often its agent learns then: a
planner, a table, a buffer, a rollout and a round of texts."""


@pytest.mark.thorough
def test_a_run_stopped_anywhere_ends_with_the_bytes_of_an_uninterrupted_one(tmp_path: Path) -> None:
    runs = {
        pair: (RUNS[pair][0] | smaller, length) for pair, (_, smaller, length) in SMALLER.items()
    }
    listed = cases(dict.fromkeys(SIGNALS, (0,)), runs=runs)
    check(
        tmp_path,
        [case for case in listed if SMALLER[case["algorithm"], case["env"]][0] == case["signal"]],
        fresh=False,
    )


@pytest.mark.slow
@pytest.mark.parametrize(("algorithm", "env"), RUNS)
def test_every_agent_is_stopped_by_every_signal_at_many_points(
    algorithm: str, env: str, tmp_path: Path
) -> None:
    listed = cases({"SIGINT": (0, 1), "SIGTERM": (0,), "SIGKILL": (0, 1)}, seed=1)
    check(
        tmp_path, [case for case in listed if (case["algorithm"], case["env"]) == (algorithm, env)]
    )


@pytest.mark.slow
def test_a_run_may_be_stopped_again_and_again(tmp_path: Path) -> None:
    root, options = (
        tmp_path / "again",
        {"steps": 2500, "num_envs": 4, "rollout_steps": 50, "eval_episodes": 3},
    )
    case = {
        "name": "run",
        "algorithm": "ppo",
        "env": "CartPole-v1",
        "options": options,
        "signal": "SIGINT",
        "at": 77,
    }
    drive("stop", root, [case], hash_seed=1)
    for at, name in ((120, "SIGKILL"), (1, "SIGTERM"), (200, "SIGINT")):
        drive("stop_again", root, [case | {"at": at, "signal": name}], hash_seed=2)
    drive("resume", root, [case], hash_seed=3)
    rlbook.train("ppo", "CartPole-v1", seed=3, out=tmp_path / "whole", **options)
    assert contents(root / "run") == contents(tmp_path / "whole")


EVALUATED = {
    ("value_iteration", "Maze-v0"),
    ("dyna_q_plus", "DynaMaze-v0"),
    ("q_learning", "CartPole-v1"),
    ("alphazero", "Maze-v0"),
    ("semi_gradient_sarsa", "CartPole-v1"),
    ("lstd", "MountainCar-v0"),
    ("dqn", "TMaze-v0"),
    ("dqn", "CartPole-v1"),
    ("mbpo", "CartPole-v1"),
    ("ppo", "CartPole-v1"),
    ("ppo", "Addition-v0"),
    ("gail", "Maze-v0"),
    ("rejection_sampling", "Maze-v0"),
    ("dagger", "Maze-v0"),
    ("td3", "Pendulum-v1"),
    ("sac", "Pendulum-v1"),
    ("trpo", "CartPole-v1"),
    ("reinforce", "CartPole-v1"),
    ("dpo", "Maze-v0"),
}
"""What `make test` evaluates: of each kind of agent one, where the agent keeps the most that an
evaluation could touch."""


@pytest.mark.thorough(quick=1)
@pytest.mark.parametrize(
    ("algorithm", "env"),
    [
        pytest.param(*pair, marks=[] if pair in EVALUATED else pytest.mark.slow)
        for pair in RUNS
        if pair[1] != "Addition-v0" or pair[0] == "ppo"
    ],
)
def test_evaluating_changes_nothing_in_the_agent(algorithm: str, env: str) -> None:
    options = RUNS[algorithm, env][0] | {"steps": 120}
    states, checks = [], []

    def evaluate(run: rlbook.Run) -> None:
        if len(checks) == 6:  # as good as a hundred
            return
        before = snapshot(run)
        rlbook.evaluate(run, episodes=2)
        checks.append(before == snapshot(run))

    for on_report, every in ((None, 0), (evaluate, 40)):
        run = rlbook.train(
            algorithm,
            env,
            seed=3,
            **options | {"eval_every": every, "eval_episodes": 2},
            on_report=on_report,
        )
        states.append(snapshot(run))
    assert checks and all(checks)
    assert states[0] == states[1]


def snapshot(run: rlbook.Run) -> tuple[str, dict[str, bytes]]:
    skeleton, arrays = encode(run.agent.state_dict())
    return json.dumps(skeleton), {name: array.tobytes() for name, array in arrays.items()}


def test_an_environment_that_cannot_be_replayed_is_noticed(tmp_path: Path) -> None:
    env = Drifting()
    with pytest.raises(Interrupted):
        rlbook.train(
            "q_learning",
            env,
            steps=100,
            seed=0,
            out=tmp_path / "run",
            on_report=interrupt_at(50),
        )
    with pytest.raises(
        rlbook.TrainingError, match="replaying its actions led to a different observation"
    ):
        rlbook.load(tmp_path / "run", env=Drifting()).resume()


def test_a_run_in_memory_goes_on_from_its_folder_and_a_finished_one_stays_as_it_is(
    tmp_path: Path,
) -> None:
    run = rlbook.train("q_learning", "Maze-v0", steps=300, seed=0, out=tmp_path / "run")
    before = contents(tmp_path / "run")
    metrics = run.resume().metrics
    assert contents(tmp_path / "run") == before
    again = rlbook.train("q_learning", "Maze-v0", steps=300, out=tmp_path / "run", resume=True)
    assert (again.metrics, again.episode_returns) == (metrics, run.episode_returns)
    assert contents(tmp_path / "run") == before


def test_a_finished_run_can_be_given_a_larger_budget(tmp_path: Path) -> None:
    options: dict[str, Any] = {"seed": 0, "epsilon": 0.1, "eval_every": 0}
    rlbook.train("q_learning", "Maze-v0", steps=300, out=tmp_path / "run", **options)
    with pytest.raises(rlbook.RequestError, match="has already taken 300 steps"):
        rlbook.load(tmp_path / "run").resume(steps=300)
    longer = rlbook.load(tmp_path / "run").resume(steps=700)
    whole = rlbook.train("q_learning", "Maze-v0", steps=700, **options)
    assert longer.steps == 700 and longer.episode_returns == whole.episode_returns
    assert snapshot(longer) == snapshot(whole), (
        "nothing is scheduled here, so the budget does not matter"
    )
    assert rlbook.load(tmp_path / "run").request.budget.steps == 700


@pytest.mark.thorough(quick=1)
@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"steps": 400}, "steps"),
        ({"alpha": 0.3}, "alpha"),
        ({"seed": 5}, "seed"),
        ({"env_kwargs": {"slip": 0.1}}, "slip"),
    ],
)
def test_resuming_with_other_options_is_refused(
    tmp_path: Path, changes: dict[str, Any], name: str
) -> None:
    rlbook.train("q_learning", "Maze-v0", steps=300, out=tmp_path / "run")
    with pytest.raises(rlbook.RequestError, match=f"was started with {name}"):
        rlbook.train("q_learning", "Maze-v0", out=tmp_path / "run", resume=True, **changes)


def test_outside_the_main_thread_signals_are_left_alone() -> None:
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    seen: list[Any] = []

    def look(run: rlbook.Run) -> None:
        seen.append([signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)])

    thread = threading.Thread(
        target=lambda: rlbook.train("q_learning", "Maze-v0", steps=50, on_report=look)
    )
    thread.start()
    thread.join()
    assert seen and all(found == handlers for found in seen)
    rlbook.train("q_learning", "Maze-v0", steps=50, on_report=look)
    assert (
        seen[-1] != handlers
        and [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == handlers
    )


def interrupt_at(step: int) -> Any:
    def on_report(run: rlbook.Run) -> None:
        if run.steps >= step:
            signal.raise_signal(signal.SIGINT)

    return on_report


class Drifting(gymnasium.Env):
    """Counts its steps, and starts each new process's count elsewhere: state beside the generator,
    which no replay can know of."""

    observation_space, action_space = spaces.Discrete(1000), spaces.Discrete(2)
    made = 0

    def __init__(self) -> None:
        self.count = Drifting.made = Drifting.made + 100

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        return self.count, {}

    def step(self, action: Any) -> tuple[int, float, bool, bool, dict[str, Any]]:
        return self.count, 0.0, False, False, {}
