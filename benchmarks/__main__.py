"""Runs all comparisons, or those named, such as `python -m benchmarks tabular mcts`; the names are
those of the files beside this one."""

from __future__ import annotations

import importlib
import os
import sys

NAMES = (
    "imports",
    "planning",
    "maze_steps",
    "many_environments",
    "ppo_cartpole",
    "recurrent_ppo",
    "a2c_cartpole",
    "dqn_cartpole",
    "dqn_pong",
    "sac_pendulum",
    "sampling",
    "training",
    "read_once",
    "memory",
    "grpo_step",
    "fit_steps",
    "tabular",
    "mcts",
    "packing",
    "workers",
    "serving",
)
BY_NAME = ("minatar", "mujoco", "gpu")
"""By name only: what was learned, not how fast, takes hours; and a GPU is not everywhere."""


def main() -> None:
    chosen = sys.argv[1:]
    if {"-h", "--help"} & {*chosen}:
        print(f"{__doc__}\n\n{', '.join(NAMES + BY_NAME)}")
        return
    unknown = [name for name in chosen if name not in NAMES + BY_NAME]
    if unknown:
        print(
            f"error: no comparison is called {unknown[0]!r}; there are {', '.join(NAMES + BY_NAME)}",
            file=sys.stderr,
        )
        sys.exit(2)
    # before numpy and torch are loaded: one thread for both sides
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    import torch

    torch.set_num_threads(1)
    header = f"{'':44} {'rlbook':>12} {'peer':>12} {'':12}  ratio\n"
    lacking = False
    for name in chosen or NAMES:
        try:
            for comparison in importlib.import_module(f"benchmarks.{name}").compare():
                print(header, comparison, sep="", flush=True)
                header = ""
        except ModuleNotFoundError as error:
            print(f"{name}: left out, it needs {error.name}; `make bench` installs the peers")
            lacking = True
    sys.exit(int(lacking))


if __name__ == "__main__":
    main()
