"""The assignment find_the_bug: the bugs that may be planted, and the hidden cases that reveal
them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.random import Generator

from rlbook.book.assignments.assignment import (
    Assignment,
    Bug,
    Case,
    RubricLine,
    Score,
    find_difference,
    is_off_by_at_most,
    match_frequencies,
    reaches,
)
from rlbook.book.assignments.dqn_catch import numbers
from rlbook.book.assignments.ppo_maze import (
    corridors,
    endings,
    endless_cases,
    exact_values,
    mazes,
    policies,
    policy_return,
    rollouts,
)
from rlbook.functional.bandits import softmax

BUGS = (
    Bug(
        "bootstraps through the end of an episode",
        "            following = torch.zeros(())\n",
        "            following = next_value[step]\n",
    ),
    Bug(
        "treats the time limit as an ending",
        "            following = next_value[step]\n        if terminated[step]:",
        "            following = torch.zeros(())\n        if terminated[step]:",
    ),
    Bug(
        "carries a return from one episode into another",
        "        if truncated[step]:\n",
        "        if step == len(reward) - 1:\n",
    ),
    Bug(
        "discounts the reward too",
        "reward[step] + gamma * following",
        "gamma * (reward[step] + following)",
    ),
    Bug(
        "lets the policy's loss train the critic",
        "(returns - value).detach()",
        "returns - value",
    ),
    Bug(
        "minimises the entropy",
        "critic - entropy_coef",
        "critic + entropy_coef",
    ),
    Bug(
        "takes the log-probability of the likeliest action",
        "log_probs.gather(1, action[:, None])[:, 0]",
        "log_probs.max(dim=1).values",
    ),
    Bug(
        "compares every return with every value",
        "((returns - value) ** 2)",
        "((returns[:, None] - value) ** 2)",
    ),
    Bug(
        "adds up the gradients of all updates",
        "        self.optimizer.zero_grad()\n",
        "",
    ),
    Bug(
        "stores the observation after the reset",
        "        rows.append((obs, action, float(reward), int(next_obs), terminated, truncated))\n"
        "        obs = int(next_obs)\n"
        "        if terminated or truncated:\n"
        "            obs = int(env.reset()[0])\n",
        "        before, obs = obs, int(next_obs)\n"
        "        if terminated or truncated:\n"
        "            obs = int(env.reset()[0])\n"
        "        rows.append((before, action, float(reward), obs, terminated, truncated))\n",
    ),
    Bug(
        "draws from another distribution than the policy",
        "torch.softmax(self.logits[obs].double(), dim=0)",
        "torch.softmax(2 * self.logits[obs].double(), dim=0)",
    ),
)


def _losses(rng: Generator) -> list[Case]:
    return [
        {
            "log_probs": (-rng.uniform(0.1, 2.0, (5, 3))).round(2).tolist(),
            "action": rng.integers(3, size=5).tolist(),
            "value": numbers(rng, 5),
            "returns": numbers(rng, 5),
            "entropy_coef": 0.5,
        }
        for _ in range(3)
    ]


def _parts(rng: Generator) -> list[Case]:
    """Cases of every function of the file, each with the name of its probe."""
    drawn = {
        "walk_returns": [
            *endings(terminated=True, truncated=False)(rng),
            *endings(terminated=True, truncated=True)(rng),
        ],
        "walk_loss": _losses(rng),
        "walk_update": [
            case | {"settings": {"entropy_coef": 0.5, "seed": 1}}
            for case in rollouts(rng, entropy_coef=0.5)
        ],
        "walk_act": policies(rng),
        "walk_collect": corridors(rng),
    }
    return [case | {"part": part} for part, cases in drawn.items() for case in cases]


HINTS = {
    "walk_returns": "n_step_returns does not do what it says",
    "walk_loss": "actor_critic_loss or its gradient is not what it says",
    "walk_update": "update is not one step of the optimiser on the loss of its rollout",
    "walk_act": "act does not draw from the policy",
    "walk_collect": "collect does not store what the steps led to",
}


def _judge_functions(cases: Sequence[Case], answers: Sequence[Any], right: Sequence[Any]) -> Score:
    for case, answer, wanted in zip(cases, answers, right, strict=True):
        if case["part"] != "walk_act":
            problem = find_difference(answer, wanted)
        else:
            probs = softmax(np.array(case["logits"]))
            right_shares = match_frequencies(answer, probs, case["draws"])
            problem = "" if right_shares else "the shares of the actions are others"
        if problem:
            return Score(0.0, f"{HINTS[case['part']]}: {problem}")
    return Score(1.0, "right")


ASSIGNMENT = Assignment(
    name="find_the_bug",
    title="Find the bug in an actor-critic",
    week=9,
    chapters=("policy-gradient", "trust-regions"),
    hours=3,
    bugs=BUGS,
    rubric=(
        RubricLine(
            "mended",
            10,
            "every function does what its docstring says",
            "walk_part",
            _parts,
            _judge_functions,
        ),
        RubricLine(
            "values",
            1,
            "the values of a world that only the time limit ends are right after training",
            "maze_train",
            endless_cases(20_480),
            # bootstrapping wrongly at the limit is off by 0.4 or more
            is_off_by_at_most(0.25, "the values at the time limit are wrong", exact_values),
            trains=True,
        ),
        RubricLine(
            "learns",
            1,
            "the policy's expected return is 1 of 3 after 40 960 steps, in each of three runs",
            "maze_train",
            mazes(40_960),
            reaches(1.0, 3, "the return", policy_return),
            trains=True,
        ),
    ),
)
