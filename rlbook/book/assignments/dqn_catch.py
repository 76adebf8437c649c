"""The assignment dqn_catch: its rubric and hidden cases."""

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
    has_frequencies,
    has_properties,
    is_off_by_at_most,
    matches_solution,
    reaches,
)
from rlbook.book.assignments.worlds import (
    catch_world,
    endless_values,
    endless_world,
    greedy_policy,
    return_of,
)


def numbers(rng: Generator, *shape: int) -> Any:
    """Normal random numbers with two decimals, as lists."""
    return rng.normal(size=shape).round(2).tolist()


def batches(*, terminated: float, **more: float) -> Callable[[Generator], list[Case]]:
    """Draws batches of transitions, a share of them terminated.

    Args:
        terminated: the probability of each transition to be a last one.
        more: what is the same in all cases.
    """

    def draw(rng: Generator) -> list[Case]:
        return [
            {
                "weights": numbers(rng, 3, 4),
                "target_weights": numbers(rng, 3, 4),
                "obs": numbers(rng, size, 4),
                "action": rng.integers(3, size=size).tolist(),
                "reward": numbers(rng, size),
                "next_obs": numbers(rng, size, 4),
                "terminated": [*(rng.random(size - 1) < terminated).tolist(), terminated > 0],
                "gamma": round(float(rng.uniform(0.5, 0.99)), 2),
            }
            | more
            for size in (3, 6, 5, 8)
        ]

    return draw


def actions(rng: Generator) -> list[Case]:
    """Draws the arguments of calls to the policy: always greedy, never greedy, and in between."""
    return [
        {
            "weights": numbers(rng, 4, 5),
            "obs": numbers(rng, 5),
            "epsilon": epsilon,
            "draws": 3_000,
            "seed": int(rng.integers(1_000)),
        }
        for epsilon in (0.0, 1.0, 0.4)
    ]


def _shares(case: Case) -> np.ndarray:
    best = (np.array(case["weights"]) @ np.array(case["obs"])).argmax()
    return case["epsilon"] / 4 + (1 - case["epsilon"]) * (np.arange(4) == best)


def _updates(rng: Generator, sync_every: int) -> list[Case]:
    draw = batches(terminated=0.3, updates=7, sync_every=sync_every)
    return [case | {"seed": int(rng.integers(1_000))} for case in draw(rng)]


def _is_synced(cases: Sequence[Case], answers: Sequence[Any], right: Sequence[Any]) -> Score:
    for case, told in zip(cases, answers, strict=True):
        updates = range(1, case["updates"] + 1)
        for update, (is_copy, is_old) in zip(updates, told, strict=True):
            if is_copy != (update % case["sync_every"] == 0) or is_old == is_copy:
                said = "is the Q-network" if is_copy else "has changed, and is not the Q-network"
                said = "is what it was" if is_old else said
                return Score(
                    0.0,
                    f"with sync_every {case['sync_every']}, after update {update} the target"
                    f" network {said}",
                )
    return Score(1.0, "right")


def _games(rng: Generator) -> list[Case]:
    return [
        {
            "world": catch_world(rng),
            "steps": 6_000,
            "gamma": 0.99,
            "seed": int(rng.integers(1_000, 10_000)),
        }
        for _ in range(3)
    ]


def _draw_endless_world(rng: Generator) -> list[Case]:
    world = endless_world(rng, pixels=True)
    return [{"world": world, "steps": 5_000, "gamma": 0.7, "seed": int(rng.integers(1_000))}]


def _exact_values(case: Case) -> tuple[np.ndarray, tuple[slice | int, ...]]:
    return np.repeat(endless_values(case["gamma"])[:, None], 2, axis=1), (slice(None), slice(None))


def _catch_return(case: Case, found: np.ndarray) -> float:
    shape = (len(case["world"]["next_state"]), 3)
    return return_of(case["world"], greedy_policy(found)) if found.shape == shape else -np.inf


ASSIGNMENT = Assignment(
    name="dqn_catch",
    title="Deep Q-learning on Catch",
    week=6,
    chapters=("value-networks",),
    hours=6,
    rubric=(
        RubricLine(
            "targets",
            2,
            "td_target is r + γ max Q of the target network, one number a transition",
            "dqn_target",
            batches(terminated=0.0),
            matches_solution("a target is r + γ max over actions of the target network's values"),
        ),
        RubricLine(
            "terminal",
            3,
            "td_target is the reward alone where the episode terminated",
            "dqn_terminal",
            batches(terminated=0.6),
            matches_solution("after a terminated transition nothing follows, but after others"),
        ),
        RubricLine(
            "loss",
            2,
            "dqn_loss is the mean squared error of the actions that were taken",
            "dqn_loss",
            batches(terminated=0.3),
            matches_solution("the loss compares Q(obs, action) with the target, both [B]"),
        ),
        RubricLine(
            "gradient",
            2,
            "the gradient of dqn_loss reaches the Q-network alone",
            "dqn_gradient",
            batches(terminated=0.3),
            has_properties(
                (True, "no gradient reaches the Q-network"),
                (False, "the target is a constant, but a gradient reaches the target network"),
            ),
        ),
        RubricLine(
            "exploration",
            1,
            "act is ε-greedy",
            "dqn_act",
            actions,
            has_frequencies("with probability ε the action is uniform over all", _shares),
        ),
        RubricLine(
            "update",
            1,
            "update takes one step of the optimiser, from fresh gradients",
            "dqn_update",
            lambda rng: _updates(rng, sync_every=100),
            matches_solution("each update is a step of Adam on the gradient of its own batch"),
        ),
        RubricLine(
            "target network",
            3,
            "the target network takes over the weights after every sync_every updates, and keeps "
            "them in between",
            "dqn_sync",
            lambda rng: _updates(rng, sync_every=3),
            _is_synced,
        ),
        RubricLine(
            "time limit",
            3,
            "train bootstraps where the time limit cut an episode, from what the step led to",
            "dqn_train",
            _draw_endless_world,
            # an ending at the limit, or the reset's observation in its place, is off by 0.4 or more
            is_off_by_at_most(
                0.25, "where the time limit cut, the last state's value counts", _exact_values
            ),
            trains=True,
        ),
        RubricLine(
            "learns",
            3,
            "train catches nine balls of ten after 6 000 steps (a point for each of three runs, "
            "with the actions in another order)",
            "dqn_train",
            _games,
            reaches(0.8, 1, "the return", _catch_return),
            trains=True,
        ),
    ),
)
