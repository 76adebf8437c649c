"""The small language model's starting weights: the command that trains them, and how the shipped
files are written.

    python -m rlbook.book.experiments.language_models.starting_weights            trains both with seed 0, about a minute, and writes
                                                                  rlbook/llm/models/weights/TASK.safetensors

Behaviour cloning on the task's right answers, from new weights, stopped at the first evaluation in
which 40 % of the held-out prompts are right. How long that takes differs from seed to seed (on five
of them 208 to 408 minibatches for sums, 64 to 86 for words), the share at which it stops differs
less (.45 to .52, and .41 to .52). Files hold 16-bit floats, half the size; models compute in 32.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable
from typing import Any

import torch
from safetensors.torch import save

import rlbook
from rlbook.llm.models.language_model import LanguageModelPolicy
from rlbook.llm.models.starting import WEIGHTS
from rlbook.runs.progress import progress
from rlbook.runs.run import Run

ENVIRONMENTS = {"addition": "Addition-v0", "reverse": "Reverse-v0"}
PACE = {"Addition-v0": (800, 8), "Reverse-v0": (200, 2)}
"""Environment → the budget, and the evaluation interval, in minibatches. Reversing is learned
within a few dozen of them."""
SHARED: dict[str, Any] = {
    "stop_at_return": 0.4,
    "anneal_learning_rate": False,
    "learning_rate": "cosine(0.003, 0.0, 1.0, warmup=0.1)",
}


def options(env: str) -> dict[str, Any]:
    """The arguments of `rlbook.train` besides the environment and the seed."""
    steps, every = PACE[env]
    return {"steps": steps, "eval_every": every} | SHARED


def command(env: str) -> str:
    """The same on the command line."""
    steps, every = PACE[env]
    start = (
        f"rlbook train sft {env} --env.model new --steps {steps} --eval-every {every}"
        " --stop-at-return 0.4"
    )
    return (
        f'{start} --anneal-learning-rate false --learning-rate "cosine(0.003, 0.0, 1.0,'
        ' warmup=0.1)"'
    )


def train_halfway(env: str, seed: int = 0, on_report: Callable[[Run], None] | None = None) -> Run:
    """A run that has trained a new model with this seed about halfway on a task."""
    return rlbook.train(
        "sft", env, seed=seed, env_kwargs={"model": "new"}, on_report=on_report, **options(env)
    )


def weights_of(run: Run) -> bytes:
    """The model of a run as the bytes of a safetensors file, in 16-bit floats."""
    policy = run.agent.policy  # type: ignore[attr-defined]
    assert isinstance(policy, LanguageModelPolicy)
    return save(
        {
            name: value.to(torch.float16).contiguous()
            for name, value in policy.model.state_dict().items()
        }
    )


def main() -> int:
    for task, env in ENVIRONMENTS.items():
        with progress() as report:
            run = train_halfway(env, on_report=report)
        data = weights_of(run)
        (WEIGHTS / f"{task}.safetensors").write_bytes(data)
        print(
            f"{task}: {run.metrics[-1]['eval_return']:.3f} after {run.steps} minibatches, sha256"
            f" {hashlib.sha256(data).hexdigest()}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
