"""Settings that were measured with several seeds to reach the optimum where a run did not."""

from __future__ import annotations

import shlex
from functools import cache
from pathlib import Path

import yaml

from rlbook.evaluation.catalogue import read_catalogue
from rlbook.runs.request import Request

PATH = Path(__file__).with_name("solved_by_default.yaml")
PREFERRED = "q_learning"  # it learns from steps as most others do
SAMPLED = ("ShortCorridor-v0",)
"""Environments whose optimal policy is random, so that greedy play is not meaningful."""
PLANNERS = ("value_iteration",)  # where nothing that learns gets there
REMEMBERING = {
    "TMaze-v0": "dqn TMaze-v0 --recurrent gru --steps 10000 --hidden-sizes 32 --batch-size 16"
    " --learning-rate 2e-3"
}
"""Environment → a command that was measured to solve it, where no policy without a memory can."""


@cache
def default_solvers() -> dict[str, list[str]]:
    """Environment → the algorithms whose default settings reached its optimum, or its solution
    threshold, with each seed; `docs/defaults.md` has the numbers."""
    return yaml.safe_load(PATH.read_text(encoding="utf-8"))


def better_settings(request: Request) -> str | None:
    """A sentence with a command that reaches the optimum, or the return at which the environment
    counts as solved, for a run that did not; None if none was measured for this environment and its
    arguments."""
    env, algorithm = request.recipe.name, request.algorithm
    if request.recipe.kwargs:
        return None
    if env in REMEMBERING:
        return (
            "its observations hide the state, but a network with a memory solves it: rlbook "
            f"train {REMEMBERING[env]}"
        )
    known = default_solvers().get(env, [])
    if not known:
        return _better_preset(request)
    if algorithm in known and (env in SAMPLED or uses_defaults(request)):
        return None
    if env in SAMPLED:
        return (
            f"its observations hide the state, so the best policy is random, and {known[0]} "
            f"learns one: {_command(known[0], env)}, then rlbook evaluate --explore"
        )
    if algorithm in known:
        solve = "reach the optimum" if _has_exact_optimum(env) else "solve it"
        return f"its default settings {solve}: {_command(algorithm, env)}"
    learners = [name for name in known if name not in PLANNERS] or known
    other = PREFERRED if PREFERRED in learners else learners[0]
    if getattr(request.agent, "on_policy", False) and other == PREFERRED:
        told = (
            f"{algorithm} learns the values of its own policy, random steps included, and {other}"
            " those of the best one"
        )
    else:
        solves = "reaches the optimum" if _has_exact_optimum(env) else "solves it"
        told = f"{other} {solves} with its default settings"
    return f"{told}: {_command(other, env)}"


def _better_preset(request: Request) -> str | None:
    """The same for environments where presets were measured but no default settings: the run's own
    algorithm's, or the fastest that solves the environment."""
    env, known = request.recipe.name, read_catalogue()
    solvers = [found.algorithm for found in known.solvers(env)] if env in known.environments else []
    if request.algorithm in solvers:
        own = f"its preset solves it: {_command(request.algorithm, env)}"
        return None if uses_defaults(request) else own
    return (
        f"{solvers[0]} solves it with its preset: {_command(solvers[0], env)}" if solvers else None
    )


def _has_exact_optimum(env: str) -> bool:
    facts = read_catalogue().environments.get(env)
    return facts is None or (facts.optimum is not None and not facts.is_near_optimal)


def solving_threshold(request: Request) -> float | None:
    """The mean return at which the run's environment counts as solved; None if no threshold is
    stated, or its arguments were changed."""
    facts = read_catalogue().environments.get(request.recipe.name)
    return None if facts is None or request.recipe.kwargs else facts.target


def uses_defaults(request: Request) -> bool:
    """Whether only the seed was set."""
    return request == Request.build(request.agent, request.recipe.name, seed=request.seed)


def _command(algorithm: str, env: str) -> str:
    return shlex.join(["rlbook", "train", algorithm, env])
