"""The same agents in a maze and on a language model: one class each, and none of their files knows
what a language model is."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest

import rlbook
from rlbook.algorithms.imitation import distillation, rce, rejection_sampling
from rlbook.algorithms.policy import a2c, dpo, grpo, policy_agent, ppo, reinforce, trpo
from rlbook.llm.models.language_model import LanguageModelPolicy
from rlbook.networks.mlp import MLPPolicy

FOREIGN = {
    "language",
    "llm",
    "token",
    "tokens",
    "tokenizer",
    "text",
    "prompt",
    "prompts",
    "completion",
    "completions",
    "vocabulary",
    "transformers",
    "llama",
    "causal",
    "lm",
    "eos",
    "pad",
}
NAMES = {"per_token"}  # what the literature calls the mean over all elements


@pytest.mark.thorough(quick=1)
@pytest.mark.parametrize(
    ("algorithm", "agent"),
    [
        ("ppo", ppo.PPO),
        ("grpo", grpo.GRPO),
        ("dpo", dpo.DPO),
        ("reinforce", reinforce.Reinforce),
        ("a2c", a2c.A2C),
        ("trpo", trpo.TRPO),
        ("rejection_sampling", rejection_sampling.RejectionSampling),
    ],
)
def test_one_class_learns_in_the_maze_and_on_the_language_model(
    algorithm: str, agent: type
) -> None:
    options: dict[str, Any] = {"num_envs": 8, "eval_every": 0} | (
        {} if algorithm in ("a2c", "trpo", "ppo") else {"group_size": 4}
    )
    options |= {"threshold": -1000.0, "keep": 1} if algorithm == "rejection_sampling" else {}
    maze = rlbook.train(algorithm, "Maze-v0", steps=1100, **options)
    addition = rlbook.train(
        algorithm, "Addition-v0", steps=40, env_kwargs={"reward": "edit"}, **options
    )
    assert type(maze.agent) is type(addition.agent) is agent
    policies = [run.agent.policy for run in (maze, addition)]  # type: ignore[attr-defined]
    assert [type(policy) for policy in policies] == [MLPPolicy, LanguageModelPolicy]
    assert all(run.agent.optimizer.steps > 0 for run in (maze, addition))  # type: ignore[attr-defined]


MODULES = [
    a2c,
    trpo,
    ppo,
    grpo,
    dpo,
    reinforce,
    rejection_sampling,
    distillation,
    rce,
    policy_agent,
]


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__.rsplit(".", 1)[-1])
def test_its_code_names_nothing_of_a_language_model(module: Any) -> None:
    """Neither an import nor any identifier; docstrings and comments may."""
    tree = ast.parse(Path(module.__file__).read_text())
    nodes = [node for node in ast.walk(tree) if not isinstance(node, ast.Constant)]
    names = {value for node in nodes for value in vars(node).values() if isinstance(value, str)}
    assert "policy" in names
    words = {word for name in names - NAMES for word in re.split(r"[._]", name.lower())}
    assert not words & FOREIGN
    imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert not any(
        str(name).startswith(("rlbook.llm", "rlbook.envs", "transformers")) for name in imported
    )
