"""Learning to add from one's own certainty: the share of correct answers falls, and no rise before
that is statistically significant.

    found = run(seeds=3)
    found["entropy"].accuracy                # [R, K], greedy, on held-out prompts, after found["entropy"].rounds[r, k] updates
    found["entropy"].sampled                 # [R, K], the same of answers that are drawn
    found["entropy"].reward                  # [R, K], what the policy paid itself

Nothing says which answers are right. A policy that becomes surer of answers that are mostly right
could be right more often; but the same reward is paid for being sure of anything else, and more of
it can be earned there.

Source: Zhao et al. 2025 (Intuitor), arXiv:2505.19590; Agarwal et al. 2025, arXiv:2505.15134.
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

ENVIRONMENT, HELD_OUT, PROMPTS, GROUP, ROUNDS, LOOKS = "Addition-v0", 512, 32, 4, 100, 10
LEARNING_RATES = {"entropy": 3e-5, "trajectory": 1e-4}
TOKENS = 3.5  # of a completion, about: two or three digits and EOS


@dataclass(frozen=True)
class IntrinsicRewardCurves:
    """R runs, evaluated K times; the first evaluation is before the first round."""

    rounds: Array  # [R, K], updates so far
    accuracy: Array  # [R, K], share of the held-out prompts that is answered correctly, greedily
    sampled: Array  # [R, K], the same of answers that are drawn
    reward: Array  # [R, K], mean since the look before; NaN at the first


def run(
    seeds: int = 3, first: int = 0, names: tuple[str, ...] = tuple(LEARNING_RATES)
) -> dict[str, IntrinsicRewardCurves]:
    """Trains with each reward from each seed."""
    return {
        name: IntrinsicRewardCurves(
            *map(
                np.array,
                zip(*(trace_run(name, seed) for seed in range(first, first + seeds)), strict=True),
            )
        )
        for name in names
    }


def trace_run(
    name: str, seed: int, rounds: int = ROUNDS, looks: int = LOOKS
) -> tuple[list[float], ...]:
    """For one run, at each evaluation: the number of updates, both accuracies and the reward."""
    seen: list[tuple[float, ...]] = []
    paid: list[float] = []

    def record_report(run: Run) -> None:
        agent: GRPO = run.agent  # type: ignore[assignment]
        report = run.metrics[-1]
        paid.extend([report["episode_reward"]] if "episode_reward" in report else [])
        if report.get("eval_return") is not None:
            seen.append(
                (
                    float(agent.optimizer.state_dict()["steps"]),
                    report["eval_return"],
                    sampled_accuracy(run),
                    float(np.mean(paid)),
                )
            )
            paid.clear()

    steps = int(rounds * PROMPTS * GROUP * TOKENS)
    rewarded: dict[str, Any] = {"episode_reward": name}
    rlbook.train(
        "grpo",
        ENVIRONMENT,
        steps=steps,
        num_envs=PROMPTS * GROUP,
        group_size=GROUP,
        seed=seed,
        **rewarded,
        learning_rate=LEARNING_RATES[name],
        anneal_learning_rate=False,
        eval_every=steps // looks,
        eval_episodes=HELD_OUT,
        on_report=record_report,
    )
    untaught = rlbook.train("grpo", ENVIRONMENT, steps=1, seed=seed, eval_every=0)
    before = (
        0.0,
        rlbook.evaluate(untaught, episodes=HELD_OUT).mean,
        sampled_accuracy(untaught),
        np.nan,
    )
    return tuple(map(list, zip(before, *seen, strict=True)))


def sampled_accuracy(run: Run) -> float:
    """The share of held-out prompts whose sampled answer is correct."""
    return rlbook.evaluate(run, episodes=HELD_OUT, explore=True).mean


def measurements(result: dict[str, IntrinsicRewardCurves]) -> dict[str, float]:
    """Means over the seeds."""
    numbers = {}
    for name, each in result.items():
        for kind, shares in (("drawn", each.sampled), ("greedy", each.accuracy)):
            best = int(shares.mean(axis=0).argmax())
            numbers[f"{name}: {kind}, before"] = float(shares[:, 0].mean())
            numbers[f"{name}: {kind}, best on the way"] = float(shares[:, best].mean())
            numbers[f"{name}: {kind}, rounds until then"] = float(each.rounds[:, best].mean())
            numbers[f"{name}: {kind}, at the end"] = float(shares[:, -1].mean())
            numbers[f"{name}: {kind}, least rise of a seed"] = float(
                (shares.max(axis=1) - shares[:, 0]).min()
            )
        numbers[f"{name}: reward at first"] = float(each.reward[:, 1].mean())
        numbers[f"{name}: reward at the end"] = float(each.reward[:, -1].mean())
    return numbers


def draw(result: dict[str, IntrinsicRewardCurves]) -> Figure:
    """Accuracy and reward side by side; a thin line for each run, and a dashed one for the mean
    initial value."""
    from rlbook.book.figures.axes import curve_colour, draw_runs, label_axes, legend
    from rlbook.plots.figure import new_figure

    figure = new_figure(9.0, 3.6)
    accuracies, paid = figure.subplots(1, 2)
    label_axes(accuracies, "rounds", "share of right answers")
    label_axes(paid, "rounds", "reward, above its first value (nats)")
    for place, (name, each) in enumerate(result.items()):
        gained = each.reward - each.reward[:, 1:2]
        curves = (
            (accuracies, each.sampled, f"{name}, drawn", 0),
            (accuracies, each.accuracy, f"{name}, likeliest", 1),
            (paid, gained, name, 0),
        )
        for axes, values, label, shade in curves:
            draw_runs(axes, each.rounds, values, curve_colour(2 * place + shade), label)
        for shade, values in enumerate((each.sampled, each.accuracy)):
            accuracies.axhline(
                values[:, 0].mean(),
                color=curve_colour(2 * place + shade),
                linestyle="--",
                linewidth=1.0,
            )
    accuracies.set_ylim(bottom=0)
    legend(accuracies, "upper right")
    legend(paid, "upper left")
    return figure
