"""What supervised learning and learning from a reward do for a model that has several attempts.

    found = run(seeds=3)
    found.passed["grpo"]                     # [R, K], pass@k on held-out prompts for k in found.tries

Supervised fine-tuning is shown answers that the model could not give, so that prompts which were
hopeless become possible: pass@k rises for every k. A reward can only make likelier what was tried:
pass@1 rises towards what pass@k was before, and pass@k for a large k hardly.

Source: Yue et al. 2025, "Does reinforcement learning really incentivize reasoning capacity in LLMs
beyond the base model?", arXiv:2504.13837, figure 2. Difference: a model of 0.1 M parameters that
adds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

import rlbook
from rlbook.evaluation.episodes import evaluate_samples
from rlbook.evaluation.samples import SampledEvaluation
from rlbook.runs.request import Request
from rlbook.runs.run import Run

ENVIRONMENT, SAMPLES, PROMPTS = "Addition-v0", 64, 256
TRAINED: dict[str, dict[str, Any]] = {"sft": {"passes": 5}, "grpo": {"steps": 150_000}}
LEARNERS = ("start", *TRAINED)


@dataclass(frozen=True)
class PassRates:
    """R seeds, K numbers of attempts."""

    tries: Sequence[int]  # [K]
    passed: dict[str, NDArray[np.float64]]  # learner → [R, K], pass@k
    voted: dict[str, NDArray[np.float64]]  # learner → [R], maj@k of all samples
    perplexity: dict[str, NDArray[np.float64]]  # learner → [R], of the right answers


def run(seeds: int = 3, first: int = 0) -> PassRates:
    """Evaluates the shipped model and what two learners make of it, for each seed."""
    seen = {
        name: [evaluate_learner(name, seed) for seed in range(first, first + seeds)]
        for name in LEARNERS
    }
    tries = [2**i for i in range(SAMPLES.bit_length())]

    def values_of(measure: str) -> dict[str, NDArray[np.float64]]:
        return {
            name: np.array([one.measures()[measure].value for one in found])
            for name, found in seen.items()
        }

    passed = [values_of(f"pass@{k}") for k in tries]
    stacked = {name: np.stack([column[name] for column in passed], axis=1) for name in LEARNERS}
    return PassRates(tries, stacked, values_of(f"maj@{SAMPLES}"), values_of("perplexity"))


def evaluate_learner(name: str, seed: int) -> SampledEvaluation:
    """Completions by a learner, or by the initial model."""
    if name not in TRAINED:
        learned = Run(Request.build("grpo", ENVIRONMENT, seed=seed))
    else:
        learned = rlbook.train(
            name,
            ENVIRONMENT,
            seed=seed,
            eval_every=0,
            **TRAINED[name],
        )
    return evaluate_samples(learned, SAMPLES, prompts=PROMPTS, seed=seed)


def measurements(result: PassRates) -> dict[str, float]:
    """Means over the seeds."""
    shown = (1, 8, SAMPLES)
    numbers = {
        f"{name}: pass@{k}": float(result.passed[name][:, list(result.tries).index(k)].mean())
        for name in LEARNERS
        for k in shown
    }
    voted = {f"{name}: maj@{SAMPLES}": float(result.voted[name].mean()) for name in LEARNERS}
    return (
        numbers
        | voted
        | {f"{name}: perplexity": float(result.perplexity[name].mean()) for name in LEARNERS}
    )


def draw(result: PassRates) -> Figure:
    """pass@k against k, a thin line for each seed."""
    from rlbook.book.figures.axes import curve_colour, draw_runs, labelled_figure, legend

    figure, axes = labelled_figure(6.0, 3.6, "k, tries of each prompt", "pass@k")
    for place, name in enumerate(LEARNERS):
        draw_runs(axes, result.tries, result.passed[name], curve_colour(place), name)
    axes.set_xscale("log", base=2)
    axes.set_ylim(0.0, 1.02)
    legend(axes, "lower right")
    return figure
