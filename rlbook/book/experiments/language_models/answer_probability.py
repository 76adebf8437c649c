"""Learning to reason from the probability of the reference answer (RLPR), beside learning from a
verifier.

    found = run(seeds=3)
    found["answer"].accuracy                 # [R, K], greedy, on held-out prompts, after found["answer"].rounds[r, k] updates

The task is `Reasoning-v0`: sums of four digits in written steps. A model is shown demonstrations
until it answers at least half of the held-out sums correctly; from there `grpo` goes on twice, with
the same settings and as many tokens, but for RLPR's filter of groups in the second. In one run a
program compares the answer (1 or 0). In the other nothing is compared: the reward is what the
written steps add to the probability that the model itself gives the reference answer.

Source: Yu et al. 2025 (RLPR), arXiv:2506.18254.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

import rlbook
from rlbook.algorithms.policy.grpo import GRPO
from rlbook.runs.run import Run

Array = NDArray[np.float64]

ENVIRONMENT, TERMS, ROUNDS, LOOKS, HELD_OUT = "Reasoning-v0", 4, 75, 5, 512
EPISODES = 128
# tokens of a demonstration: the partial sums and their commas, two tags, answer and EOS
LENGTH = 2 * TERMS + 3
START: dict[str, Any] = {
    "steps": 600,
    "eval_every": 6,
    "eval_episodes": 128,
    "stop_at_return": 0.5,
    "anneal_learning_rate": False,
    "learning_rate": 2e-3,
}
GROUPS: dict[str, Any] = {"num_envs": EPISODES, "group_size": 8, "learning_rate": 3e-4}
REWARDS: dict[str, dict[str, Any]] = {
    "verifier": {},
    "answer": {"episode_reward": "answer", "min_spread": 0.5},
}


@dataclass(frozen=True)
class AnswerProbabilityCurves:
    """R runs, evaluated K times; the first evaluation is before the first round."""

    rounds: Array  # [R, K], updates so far
    accuracy: Array  # [R, K], share of the held-out prompts whose most likely completion is correct


def run(
    seeds: int = 3, first: int = 0, rounds: int = ROUNDS, start: dict[str, Any] | None = None
) -> dict[str, AnswerProbabilityCurves]:
    """Trains with each reward from each seed's initial model.

    Args:
        seeds: R.
        first: the lowest seed.
        rounds: of `EPISODES` completions, about.
        start: settings of the demonstrations' run.
    """
    traces: dict[str, list[tuple[list[float], list[float]]]] = {name: [] for name in REWARDS}
    world = {"terms": TERMS, "model": "new"}
    for seed in range(first, first + seeds):
        shown = rlbook.train(
            "sft", ENVIRONMENT, env_kwargs=world, seed=seed, **START | (start or {})
        )
        before = rlbook.evaluate(shown, episodes=HELD_OUT).mean
        for name, reward in REWARDS.items():
            counts, shares = [0.0], [before]

            def record_report(
                run: Run, counts: list[float] = counts, shares: list[float] = shares
            ) -> None:
                agent: GRPO = run.agent  # type: ignore[assignment]
                if (found := run.metrics[-1].get("eval_return")) is not None:
                    counts.append(float(agent.optimizer.state_dict()["steps"]))
                    shares.append(found)

            steps = rounds * EPISODES * LENGTH
            rlbook.train(
                "grpo",
                ENVIRONMENT,
                env_kwargs=world,
                start=shown,
                seed=seed,
                steps=steps,
                eval_every=steps // LOOKS,
                eval_episodes=HELD_OUT,
                on_report=record_report,
                **GROUPS,
                **reward,
            )
            traces[name].append((counts, shares))
    return {
        name: AnswerProbabilityCurves(*map(np.array, zip(*each, strict=True)))
        for name, each in traces.items()
    }


def measurements(result: dict[str, AnswerProbabilityCurves]) -> dict[str, float]:
    """Means over the runs, each run's final result, and how many runs improved."""
    numbers = {"before": float(result["verifier"].accuracy[:, 0].mean())}
    for name, each in result.items():
        numbers[f"{name}, mean"] = float(each.accuracy[:, -1].mean())
        numbers |= {
            f"{name}, run {number}": float(end)
            for number, end in enumerate(each.accuracy[:, -1], start=1)
        }
        gains = each.accuracy[:, -1] - each.accuracy[:, 0]
        numbers[f"{name}, runs that gained"] = float((gains > 0).sum())
    less = result["answer"].accuracy[:, -1] - result["verifier"].accuracy[:, -1]
    numbers["answer less verifier, median"] = float(np.median(less))
    return numbers


def draw(result: dict[str, AnswerProbabilityCurves]) -> Figure:
    """The share of correct answers over rounds; a thin line for each run."""
    from rlbook.book.figures.axes import curve_colour, draw_runs, labelled_figure, legend

    figure, axes = labelled_figure(6.0, 3.6, "rounds", "share of right answers")
    for place, (name, each) in enumerate(result.items()):
        draw_runs(axes, each.rounds, each.accuracy, curve_colour(place), name)
    axes.set_ylim(0, 1)
    legend(axes, "lower right")
    return figure
