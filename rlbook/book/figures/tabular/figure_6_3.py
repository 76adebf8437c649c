"""Figure 6.3: SARSA, Q-learning and expected SARSA beside a cliff, for each step size: during
learning, and in the long run.

What the cliff teaches does not depend on chance once the policy is fixed, so expected SARSA may
take α = 1; SARSA's targets vary with the action that is drawn next, and it needs a small α to
average them.

Source: Sutton & Barto 2018, figure 6.3, after van Seijen et al. 2009,
doi:10.1109/ADPRL.2009.4927542. The book averages interim performance over 50 000 runs and
asymptotic performance over 10 runs of 100 000 episodes; here over 200 runs, and over the second
half of 10 runs of 5000 episodes, so that what was lost while learning does not count.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure

from rlbook.book.figures.axes import curve_colour, labelled_figure, legend
from rlbook.book.figures.cliff import LEARNERS, cliff_model, settings
from rlbook.book.figures.learners import learners
from rlbook.plots.figure import is_narrow, words

ALPHAS = tuple(tenth / 10 for tenth in range(1, 11))
INTERIM = 100
"""The number of episodes for interim performance."""
MARKERS = {"SARSA": "v", "Q-learning": "s", "Expected SARSA": "x"}


@dataclass(frozen=True)
class StepSizePerformance:
    """Figure 6.3. Sums of rewards an episode, in reward units, for K step sizes."""

    alphas: tuple[float, ...]  # [K], ascending
    interim: dict[str, np.ndarray]  # algorithm → [K, runs]: mean of a run's first 100 episodes
    # algorithm → [K, long runs]: mean of the second half of the episodes
    asymptotic: dict[str, np.ndarray]
    episodes: int  # of a long run


def run(
    seed: int = 0, runs: int = 200, episodes: int = 5_000, alphas: tuple[float, ...] = ALPHAS
) -> StepSizePerformance:
    """`runs` runs of 100 episodes, and a twentieth as many of `episodes`, with each step size."""
    interim = {name: _means(name, alphas, INTERIM, runs, seed) for name in LEARNERS}
    asymptotic = {
        name: _means(name, alphas, episodes, -(-runs // 20), seed, skip=episodes // 2)
        for name in LEARNERS
    }
    return StepSizePerformance(tuple(alphas), interim, asymptotic, episodes)


def _means(
    name: str, alphas: tuple[float, ...], episodes: int, runs: int, seed: int, skip: int = 0
) -> np.ndarray:
    kind, means = LEARNERS[name], np.empty((len(alphas), runs))
    for row, alpha in zip(means, alphas, strict=True):
        made = learners(
            kind, settings(kind, alpha), cliff_model(), episodes=episodes, runs=runs, seed=seed
        )
        row[:] = [finished[skip:, 0].mean() for _, finished in made]
    return means


def measurements(result: StepSizePerformance) -> dict[str, float]:
    """How much the step size matters in the long run, and the lead of expected SARSA over SARSA,
    over all step sizes."""
    expected, sarsa = (result.asymptotic[name].mean(axis=1) for name in ("Expected SARSA", "SARSA"))
    lead = result.interim["Expected SARSA"].mean(axis=1) - result.interim["SARSA"].mean(axis=1)
    numbers = {
        "expected SARSA, asymptotic, best": float(expected.max()),
        "expected SARSA, asymptotic, worst": float(expected.min()),
        "SARSA, asymptotic, best": float(sarsa.max()),
        "SARSA, asymptotic, worst": float(sarsa.min()),
        "expected SARSA above SARSA, interim, least": float(lead.min()),
        "expected SARSA above SARSA, asymptotic, least": float((expected - sarsa).min()),
    }
    best = {
        f"{name}, interim, best": float(means.mean(axis=1).max())
        for name, means in result.interim.items()
    }
    return numbers | best


def draw(result: StepSizePerformance) -> Figure:
    """Dashed during learning, solid in the long run."""
    figure, axes = labelled_figure(7.0, 5.6, "Step size α", "Sum of rewards per episode")
    half = result.episodes // 2
    titles = (
        f"interim: the first {INTERIM} episodes",
        f"asymptotic: episodes {half + 1} to {result.episodes}",
    )
    axes.set_title(("\n" if is_narrow() else " · ").join(titles), **words(fontsize=10, pad=8))
    for means, style, what in (
        (result.asymptotic, "-", "asymptotic"),
        (result.interim, "--", "interim"),
    ):
        for place, name in enumerate(LEARNERS):
            look = {
                "color": curve_colour(place),
                "marker": MARKERS[name],
                "markersize": 5,
                "linewidth": 1.4,
            }
            axes.plot(
                result.alphas, means[name].mean(axis=1), style, label=f"{name}, {what}", **look
            )
    axes.set(ylim=(-150, 0), xlim=(0.07, 1.03), xticks=result.alphas)
    legend(axes, loc="upper center", bbox_to_anchor=(0.5, -0.11), ncols=2, columnspacing=1.5)
    return figure
