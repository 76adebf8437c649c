"""Learning to add from one's own certainty: the reward goes on rising, and the share of right answers rises first and then falls.

    found = run(seeds=3)
    found["entropy"].accuracy                # [R, K], greedy, on held-out prompts, after found["entropy"].rounds[r, k] updates
    found["entropy"].reward                  # [R, K], what the policy paid itself

Nobody says which answers are right. Being surer of what one mostly gets right makes it more often right; but the same reward is paid for
being sure of anything, and there is more of it to be had there.

Source: Zhao et al. 2025 (Intuitor), arXiv:2505.19590; Agarwal et al. 2025, arXiv:2505.15134.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

import rlbook

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from rlbook.algorithms.policy.grpo import GRPO
    from rlbook.runs.run import Run

Array = NDArray[np.float64]

ENVIRONMENT, PROMPTS, GROUP, ROUNDS, LOOKS = "Addition-v0", 32, 4, 100, 20
LEARNING_RATES = {"entropy": 3e-5}
TOKENS = 3.5                                 # of a completion, about: two or three digits and EOS


@dataclass(frozen=True)
class Found:
    """R runs, looked at K times; the first look is before the first round."""

    rounds: Array                            # [R, K], updates so far
    accuracy: Array                          # [R, K], share of the held-out prompts that is answered rightly, greedily
    reward: Array                            # [R, K], mean since the look before; NaN at the first


def run(seeds: int = 3, names: tuple[str, ...] = tuple(LEARNING_RATES)) -> dict[str, Found]:
    """Each reward from each seed."""
    return {name: Found(*map(np.array, zip(*(traced(name, seed) for seed in range(seeds)), strict=True))) for name in names}


def traced(name: str, seed: int, rounds: int = ROUNDS, looks: int = LOOKS) -> tuple[list[float], list[float], list[float]]:
    """Of one run, at each look: the number of updates, accuracy and reward."""
    seen: list[tuple[float, float, float]] = []
    paid: list[float] = []

    def look(run: Run) -> None:
        agent: GRPO = run.agent  # type: ignore[assignment]
        report = run.metrics[-1]
        paid.extend([report["episode_reward"]] if "episode_reward" in report else [])
        if report.get("eval_return") is not None:
            seen.append((float(agent.optimizer.state_dict()["steps"]), report["eval_return"], float(np.mean(paid))))
            paid.clear()

    steps = int(rounds * PROMPTS * GROUP * TOKENS)
    rlbook.train(
        "grpo", ENVIRONMENT, steps=steps, num_envs=PROMPTS * GROUP, group_size=GROUP, seed=seed, episode_reward=name,
        learning_rate=LEARNING_RATES[name], anneal_learning_rate=False, eval_every=steps // looks, eval_episodes=512,
        on_report=look,
    )  # fmt: skip
    untaught = rlbook.train("grpo", ENVIRONMENT, steps=1, seed=seed, eval_every=0)
    before = 0.0, rlbook.evaluate(untaught, episodes=512).mean, np.nan
    columns = zip(before, *seen, strict=True)
    return tuple(map(list, columns))  # type: ignore[return-value]


def measured(found: dict[str, Found]) -> dict[str, float]:
    """Means over the seeds."""
    numbers = {}
    for name, each in found.items():
        accuracy = each.accuracy.mean(axis=0)
        best = int(accuracy.argmax())
        numbers[f"{name}: accuracy before"] = float(accuracy[0])
        numbers[f"{name}: best accuracy on the way"] = float(accuracy[best])
        numbers[f"{name}: rounds until then"] = float(each.rounds[:, best].mean())
        numbers[f"{name}: accuracy at the end"] = float(accuracy[-1])
        numbers[f"{name}: reward at first"] = float(each.reward[:, 1].mean())
        numbers[f"{name}: reward at the end"] = float(each.reward[:, -1].mean())
    return numbers


def draw(found: dict[str, Found]) -> Figure:
    """Accuracy and reward beside each other; a thin line for each run."""
    from rlbook.book.figures.drawing import curve_colour, labelled, legend
    from rlbook.plots.figure import new_figure

    figure = new_figure(9.0, 3.6)
    accuracies, paid = figure.subplots(1, 2)
    labelled(accuracies, "rounds", "share of right answers, greedy")
    labelled(paid, "rounds", "reward, above its first value (nats)")
    for place, (name, each) in enumerate(found.items()):
        colour, gained = curve_colour(place), each.reward - each.reward[:, 1:2]
        for axes, values in ((accuracies, each.accuracy), (paid, gained)):
            axes.plot(each.rounds.T, values.T, color=colour, alpha=0.35, linewidth=1.0)
            axes.plot(each.rounds.mean(axis=0), values.mean(axis=0), color=colour, label=name)
        accuracies.axhline(each.accuracy[:, 0].mean(), color=curve_colour(3), linestyle="--", linewidth=1.0)
    accuracies.set_ylim(bottom=0)
    legend(paid, "upper left")
    return figure
