"""Runs of rlbook in several processes, as torchrun would start them, for the tests.

python tests/parallel_runs.py FOLDER NAME…      one of the processes: makes these runs in turn
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence, ValuesView
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from warm_process import WarmProcess

import rlbook
from rlbook.interaction.process_group import place
from rlbook.runs.run import Run

SMOOTH = {"adam_eps": 1e-4}
"""Adam divides by √v + ε. With a small ε a weight whose gradient is rounding error alone moves as
far as any other; then two orders of one sum lead to two steps."""


class Asked(NamedTuple):
    """A run to make."""

    algorithm: str
    env: str
    settings: dict[str, Any]


TEXT = {"num_envs": 8, **SMOOTH}
ROUNDS = {"num_envs": 6, "rollout_steps": 16, "batch_size": 40}
OFF_POLICY = {"num_envs": 3, "learning_starts": 60, "batch_size": 33, "steps": 120}
DQN = {"train_every": 3, "gradient_steps": 1, "target_period": 30, **SMOOTH}
RUNS = {
    "ppo": Asked("ppo", "CartPole-v1", {"steps": 288, **ROUNDS}),
    "grpo text": Asked("grpo", "Addition-v0", {"steps": 100, "group_size": 4, **TEXT}),
    "dqn": Asked("dqn", "CartPole-v1", OFF_POLICY | DQN),
    "sac": Asked("sac", "Pendulum-v1", OFF_POLICY | {"hidden_sizes": (32, 32)}),
    "cloning": Asked("behavior_cloning", "Maze-v0", {"passes": 1, "demonstrations": 300}),
    # the slow test makes those below, too
    "ppo text": Asked("ppo", "Addition-v0", {"steps": 120, "kl_coef": 0.05, **TEXT}),
    "ppo box": Asked(
        "ppo",
        "Pendulum-v1",
        {
            "steps": 512,
            "num_envs": 4,
            "rollout_steps": 64,
            "normalize_reward": True,
            "normalize_observation": True,
            "micro_batch_size": 16,
            "target_kl": 0.01,
        },
    ),
    "ppo in one environment": Asked("ppo", "CartPole-v1", {"steps": 96, **ROUNDS, "num_envs": 1}),
    "ppo masked": Asked("ppo", "Gambler-v0", {"steps": 288, **ROUNDS}),
    "a2c": Asked("a2c", "CartPole-v1", {"steps": 300, "num_envs": 5, "optimizer": "rmsprop"}),
    "a2c text": Asked("a2c", "Addition-v0", {"steps": 100, **TEXT}),
    "reinforce": Asked("reinforce", "CartPole-v1", {"episodes": 20, "num_envs": 5}),
    "reinforce text": Asked("reinforce", "Addition-v0", {"steps": 100, **TEXT}),
    "trpo": Asked("trpo", "CartPole-v1", {"steps": 256, "num_envs": 4, "rollout_steps": 32}),
    "trpo text": Asked("trpo", "Addition-v0", {"steps": 40, **TEXT}),
    "grpo": Asked("grpo", "Maze-v0", {"steps": 2000, "num_envs": 12, "group_size": 4}),
    "grpo refill": Asked(
        "grpo",
        "Addition-v0",
        {
            "steps": 300,
            "group_size": 4,
            "refill": 2,
            "kl_coef": 0.04,
            "epochs": 2,
            "batch_size": 3,
            **TEXT,
        },
    ),
    "dpo": Asked("dpo", "Maze-v0", {"steps": 8000, "num_envs": 16}),
    "dpo text": Asked("dpo", "Addition-v0", {"steps": 200, "group_size": 4, **TEXT}),
    "kto text": Asked(
        "dpo", "Addition-v0", {"steps": 200, "group_size": 4, "preference_loss": "kto", **TEXT}
    ),
    "rejection sampling": Asked("rejection_sampling", "Maze-v0", {"steps": 9000}),
    "cloning text": Asked("behavior_cloning", "Addition-v0", {"passes": 1, "batch_size": 2048}),
    "rce": Asked("rce", "Maze-v0", {"passes": 1, "walks": 64}),
    "dagger": Asked("dagger", "Maze-v0", {"steps": 300, "gradient_steps": 5}),
    "co-distillation": Asked(
        "co_distillation", "Maze-v0", {"passes": 1, "demonstrations": 300, "batch_size": 50}
    ),
    "reward model": Asked("reward_model", "Maze-v0", {"passes": 1, "walks": 60}),
    "reward models": Asked(
        "reward_model", "Maze-v0", {"passes": 1, "walks": 60, "members": 2, "center_coef": 0.01}
    ),
    "rainbow": Asked(
        "dqn",
        "CartPole-v1",
        OFF_POLICY
        | DQN
        | {
            "prioritized": True,
            "n_step": 3,
            "double": True,
            "distributional": True,
            "noisy": True,
            "dueling": True,
        },
    ),
    "discrete sac": Asked("sac", "CartPole-v1", OFF_POLICY | {"hidden_sizes": (32, 32)}),
    "td3": Asked("td3", "Pendulum-v1", OFF_POLICY),
    "ddpg": Asked("ddpg", "Pendulum-v1", OFF_POLICY),
    "mbpo": Asked(
        "mbpo", "Pendulum-v1", OFF_POLICY | {"model_steps": 5, "steps": 80, "gradient_steps": 2}
    ),
    "world model": Asked(
        "world_model",
        "CartPole-v1",
        {"steps": 60, "gradient_steps": 20, "candidates": 16, "learning_starts": 20},
    ),
    "fitted q": Asked("fitted_q", "CartPole-v1", {"passes": 1}),
    "cql": Asked("cql", "CartPole-v1", {"passes": 1}),
    "iql": Asked("iql", "CartPole-v1", {"passes": 1}),
    "gail": Asked("gail", "Maze-v0", {"steps": 288, **ROUNDS, "demonstrations": 100}),
    "distillation": Asked("distillation", "Maze-v0", {"steps": 600, "num_envs": 6}),
    "distillation text": Asked("distillation", "Addition-v0", {"steps": 100, **TEXT}),
}
QUICK = ("ppo", "grpo text", "dqn", "cloning")


def make(name: str, **more: Any) -> Any:
    """Makes a run."""
    algorithm, env, settings = RUNS[name]
    if algorithm == "distillation":
        settings = settings | {"teacher": _teacher(env)}
    settings = {"eval_every": 0, "quiet": True, "seed": 3} | settings
    return rlbook.train(algorithm, env, **(settings | more))


def _teacher(env: str) -> Any:
    given: dict[str, Any] = {"passes": 1, "seed": 5, "eval_every": 0, "quiet": True}
    size: dict[str, Any] = {"batch_size": 4096} if env == "Addition-v0" else {"demonstrations": 200}
    return rlbook.train("behavior_cloning", env, **given, **size)


def weights_of(run: Any) -> np.ndarray:
    """All that the agent has learned, in one vector."""
    parts = [part for part in _parts_of(run.agent) if isinstance(part, torch.nn.Module)]
    every = [value for part in parts for value in part.parameters() if value.requires_grad]
    return torch.cat([value.detach().reshape(-1).double() for value in every]).numpy()


def _parts_of(agent: Any) -> Iterator[Any]:
    """What the agent holds, by itself or several under one name."""
    for part in vars(agent).values():
        several = part.values() if isinstance(part, dict) else part
        yield from several if isinstance(several, (tuple, ValuesView)) else (part,)


def log_of(run: Any) -> np.ndarray:
    """The numbers of all reports, line by line, by their names."""
    return np.array([line[name] for line in run.metrics for name in sorted(line)], dtype=float)


def untrained(run: Any) -> Any:
    """The same run before it has begun."""
    return Run(run.request)


def gradient_steps(run: Any) -> int:
    """How many gradient steps the agent has taken, of all its optimisers together."""
    found = [part for part in _parts_of(run.agent) if hasattr(part, "learning_rate")]
    return sum(int(part.steps) for part in found if hasattr(part, "steps"))


def start(
    processes: int, words: Sequence[str], environment: Mapping[str, str] = {}
) -> list[WarmProcess]:
    """Starts so many processes of `python WORDS`, numbered as torchrun would number them."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    shared = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "WORLD_SIZE": str(processes),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
        **environment,
    }
    return [
        WarmProcess(words, env=shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)})
        for rank in range(processes)
    ]


def finish(started: Sequence[WarmProcess], seconds: float) -> list[tuple[int, str, str]]:
    """The exit code, standard output and standard error of each process; those that are not done
    in time are ended, and the test fails."""
    try:
        found = [process.communicate(timeout=seconds) for process in started]
    finally:
        for process in started:
            process.kill()
    return [(process.wait(), *said) for process, said in zip(started, found, strict=True)]


def main() -> None:
    """Makes the runs and writes what they have learned to FOLDER/RANK.npz."""
    folder, names = Path(sys.argv[1]), sys.argv[2:]
    found = {}
    for name in names:
        run = make(name)
        found[name] = weights_of(run)
        found[f"{name} returns"] = np.array(run.episode_returns)
        found[f"{name} log"] = log_of(run)
    np.savez(folder / f"{place().rank}.npz", **found)


if __name__ == "__main__":
    main()
