"""A subclass replaces the loss of an algorithm by one attribute, whichever way it learns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import rlbook
from rlbook.networks.optimizer import LossOutput
from rlbook.registry import agent_class

WAYS: dict[str, dict[str, Any]] = {
    "ppo": {"steps": 300, "num_envs": 2},
    "a2c": {"steps": 100, "num_envs": 2},
    "reinforce": {"steps": 300, "num_envs": 2},
    "grpo": {"steps": 900, "num_envs": 4, "group_size": 2},
    "dpo": {"steps": 2000, "num_envs": 8},
    "rejection_sampling": {"steps": 900, "num_envs": 4, "group_size": 2, "keep": 1},
    "behavior_cloning": {"passes": 1, "demonstrations": 200},
    "co_distillation": {"passes": 1, "demonstrations": 200},
    "rce": {"passes": 1, "walks": 64},
    "reward_model": {"passes": 1, "walks": 20},
    "dagger": {"steps": 200, "rollout_steps": 20, "gradient_steps": 5},
    "distillation": {"steps": 900, "num_envs": 4},
}


@pytest.mark.thorough(quick=1)
@pytest.mark.parametrize("name", WAYS)
def test_a_subclass_replaces_the_loss_by_one_attribute(name: str, tmp_path: Path) -> None:
    """The loss times 0 has no gradient; the library's own has one."""
    base: Any = agent_class(name)
    more: dict[str, Any] = {}
    if name == "distillation":
        rlbook.train("reinforce", "Maze-v0", steps=1, num_envs=2, out=tmp_path / "teacher")
        more["teacher"] = tmp_path / "teacher"

    def nothing(*args: Any, **options: Any) -> LossOutput:
        output = base.loss(*args, **options)
        return output._replace(loss=0.0 * output.loss)

    for agent in (base, type("Mine", (base,), {"loss": staticmethod(nothing)})):
        run = rlbook.train(agent, "Maze-v0", eval_every=0, **WAYS[name], **more)
        norms = [report["grad_norm"] for report in run.metrics if "grad_norm" in report]
        assert norms and (max(norms) > 0.0) == (agent is base)
