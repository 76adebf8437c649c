"""The assignment ppo_maze: its rubric and hidden cases."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.random import Generator

from rlbook.book.assignments.assignment import (
    Assignment,
    Case,
    RubricLine,
    Score,
    has_properties,
    match_frequencies,
    matches_solution,
    reaches,
)
from rlbook.book.assignments.dqn_catch import numbers
from rlbook.book.assignments.worlds import (
    endless_values,
    endless_world,
    maze_world,
    return_of,
)
from rlbook.functional.bandits import softmax


def endings(*, terminated: bool, truncated: bool) -> Callable[[Generator], list[Case]]:
    """Draws rollouts in the middle of which an episode ends in each of the required ways."""

    def draw(rng: Generator) -> list[Case]:
        return [
            {
                "reward": numbers(rng, length),
                "value": numbers(rng, length),
                "next_value": numbers(rng, length),
                "terminated": [terminated and step == length // 2 for step in range(length)],
                "truncated": [truncated and step == length // 3 for step in range(length)],
                "gamma": 0.9,
                "lam": lam,
            }
            for length, lam in ((4, 0.8), (7, 0.95), (6, 0.0), (6, 1.0))
        ]

    return draw


def ratios(rng: Generator) -> list[Case]:
    """Log-probabilities of two policies, close together and far apart, with advantages of both
    signs."""
    return [
        {
            "log_prob": numbers(rng, 6),
            "old_log_prob": numbers(rng, 6),
            "advantage": [1.5, -0.5, *numbers(rng, 4)],
            "clip": clip,
        }
        for clip in (0.2, 0.2, 0.5)
    ]


def rollouts(rng: Generator, *, entropy_coef: float, **more: float) -> list[Case]:
    """Rollouts collected by another policy, in a world of three states and two actions."""
    return [
        {
            "logits": numbers(rng, 3, 2),
            "values": numbers(rng, 3),
            "obs": rng.integers(3, size=8).tolist(),
            "action": rng.integers(2, size=8).tolist(),
            "log_prob": (-rng.uniform(0.1, 2.5, 8)).round(2).tolist(),
            "reward": numbers(rng, 8),
            "next_obs": rng.integers(3, size=8).tolist(),
            "terminated": [step == 4 for step in range(8)],
            "truncated": [step == 1 for step in range(8)],
            "settings": {"entropy_coef": entropy_coef, "seed": 1} | more,
        }
        for _ in range(3)
    ]


def policies(rng: Generator) -> list[Case]:
    """Policies to draw from."""
    return [
        {"logits": numbers(rng, 4), "draws": 3_000, "seed": int(rng.integers(1_000))}
        for _ in range(2)
    ]


def _draws(cases: Sequence[Case], answers: Sequence[Any], right: Sequence[Any]) -> Score:
    del right
    for case, (shares, log_probs) in zip(cases, answers, strict=True):
        wanted = softmax(np.array(case["logits"]))
        if not match_frequencies(shares, wanted, case["draws"]):
            return Score(0.0, "act draws each action with its probability under the policy")
        # float32 keeps 7 digits
        if (np.abs(np.asarray(log_probs) - np.log(wanted)) > 1e-4).any():
            return Score(0.0, "act returns the log-probability of the action that it has drawn")
    return Score(1.0, "right")


def mazes(steps: int) -> Callable[[Generator], list[Case]]:
    """Draws mazes with the actions in other orders, to train in."""
    return lambda rng: [
        {
            "world": maze_world(rng),
            "steps": steps,
            "gamma": 0.97,
            "seed": int(rng.integers(1_000, 10_000)),
        }
        for _ in range(3)
    ]


def endless_cases(steps: int) -> Callable[[Generator], list[Case]]:
    """Draws a world in which only the time limit ends an episode."""
    return lambda rng: [
        {
            "world": endless_world(rng, pixels=False),
            "steps": steps,
            "gamma": 0.7,
            "seed": int(rng.integers(1_000)),
        }
    ]


def corridors(rng: Generator) -> list[Case]:
    """Five states in a row with one action that moves forward; the limit truncates one trajectory,
    the end terminates another."""
    found = []
    for limit in (3, 9):
        world = {
            "next_state": [[1], [2], [3], [4], [4]],
            "reward": [[reward] for reward in numbers(rng, 5)],
            "terminated": [[False], [False], [False], [True], [True]],
            "initial": [1.0, 0.0, 0.0, 0.0, 0.0],
            "limit": limit,
        }
        found.append({"world": world, "steps": 10})
    return found


def exact_values(case: Case) -> tuple[np.ndarray, tuple[slice | int, ...]]:
    """The values of the endless world, and their place in the report of `maze_train`."""
    return endless_values(case["gamma"]), (slice(None), -1)


def policy_return(case: Case, answer: np.ndarray) -> float:
    """The expected return of a stochastic policy."""
    shape = (len(case["world"]["next_state"]), 5)
    policy = softmax(answer[:, :-1]) if answer.shape == shape else np.zeros((0, 0))
    return return_of(case["world"], policy) if len(policy) else -np.inf


ASSIGNMENT = Assignment(
    name="ppo_maze",
    title="Proximal policy optimisation on the maze",
    week=7,
    chapters=("policy-gradient", "trust-regions"),
    hours=7,
    rubric=(
        RubricLine(
            "advantages",
            2,
            "gae adds up the TD errors, each discounted by γλ a step",
            "ppo_gae",
            endings(terminated=False, truncated=False),
            matches_solution("without an ending, A_t = δ_t + γ λ A_{t+1}"),
        ),
        RubricLine(
            "terminal",
            2,
            "in gae nothing follows a terminated step, neither its value nor the next row",
            "ppo_terminal",
            endings(terminated=True, truncated=False),
            has_properties(
                (True, "after a terminated step no value follows, but next_value counts there"),
                (True, "the sum of errors ends at a terminated step, but later rows count in it"),
                (True, "the reward of a terminated step counts, but it changes nothing"),
            ),
        ),
        RubricLine(
            "time limit",
            3,
            "in gae the value of the last state counts where the time limit cut, and the sum "
            "begins anew",
            "ppo_time_limit",
            endings(terminated=False, truncated=True),
            has_properties(
                (True, "where the time limit cut, next_value counts, but it changes nothing"),
                (True, "the sum of errors ends at the time limit, but the next episode counts"),
            ),
        ),
        RubricLine(
            "clipped loss",
            2,
            "policy_loss is the clipped surrogate, with the ratio of new to old",
            "ppo_loss",
            ratios,
            matches_solution("ρ = exp(log_prob − old_log_prob), and the smaller of two products"),
        ),
        RubricLine(
            "gradient",
            2,
            "the gradient of policy_loss flows through log_prob alone",
            "ppo_gradient",
            ratios,
            has_properties(
                (True, "no gradient reaches log_prob"),
                (False, "the old log-probabilities are constants, but a gradient reaches them"),
                (False, "the advantages are constants, but a gradient reaches them"),
            ),
        ),
        RubricLine(
            "acting",
            1,
            "act draws from the policy and tells the log-probability of what it drew",
            "ppo_act",
            policies,
            _draws,
        ),
        RubricLine(
            "update",
            3,
            "update takes the log-probabilities of the policy that acted, computes the advantages "
            "once, and makes every epoch's step",
            "ppo_update",
            lambda rng: rollouts(rng, entropy_coef=0.0),
            matches_solution("the ratio is to the rollout's log_prob, in each of the epochs"),
        ),
        RubricLine(
            "entropy",
            1,
            "the entropy bonus makes the policy more uniform",
            "ppo_update",
            lambda rng: rollouts(rng, entropy_coef=2.0, epochs=1),
            matches_solution("minus the entropy is minimised"),
        ),
        RubricLine(
            "episodes",
            1,
            "train stores what a step led to, not the observation after the reset",
            "ppo_collect",
            corridors,
            matches_solution("next_obs is the last one of its own episode"),
        ),
        RubricLine(
            "learns",
            3,
            "the policy's expected return is 2.5 of 3 after 20 480 steps (a point for each of "
            "three runs, with the actions in another order)",
            "maze_train",
            mazes(20_480),
            reaches(2.5, 3, "the return", policy_return),
            trains=True,
        ),
    ),
)
