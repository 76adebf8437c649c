"""How well a reward model judges the answers of a policy that is trained to maximise it.

The recipe `rlhf` runs, and during its two stages of PPO the policy answers held-out prompts several
times at each look. Of these answers the true scores are known, so the reward model can be examined
as a judge of them:

    found = run(seeds=3)
    found["too_far"].learned                 # [R, K], mean of what the reward model says, after found["too_far"].tokens[r, k] tokens
    found["too_far"].true                    # [R, K], mean true score
    found["too_far"].auc                     # [R, K], how often a good answer is scored above one that is not
    found["too_far"].pairs                   # [R, K], how often the better one of two answers to one prompt is

Both rates are ½ for a judge that guesses. Pairs are what the reward model was trained on: there
they were answers of the first policy.

Source: Gao et al. 2023, arXiv:2210.10760, whose gold score is the true score here; the area under
the ROC curve as a share of pairs: Hanley and McNeil 1982.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from rlbook.book.experiments.language_models.rlhf import true_score
from rlbook.evaluation.episodes import evaluate_samples
from rlbook.interaction.learned_reward import LOGGED as LEARNED
from rlbook.llm.rewards.composite import LOGGED
from rlbook.recipes.recipe import Recipe
from rlbook.recipes.run_recipe import run_recipe
from rlbook.runs.run import Run

Array = NDArray[np.float64]

STAGES = {"ppo": "with the KL penalty", "too_far": "without it"}
LOOKS, PROMPTS, SAMPLES = 10, 256, 8
GOOD = 0.75
"""The true score above which an answer counts as good: it has its unit, and a number that is wrong
by less than half of the tolerance."""


@dataclass(frozen=True)
class OverOptimisationCurves:
    """One stage of R recipes, evaluated K times; the first evaluation is after the first round, the
    last one at the end."""

    tokens: Array  # [R, K], written in training so far
    learned: Array  # [R, K], in the reward model's units
    true: Array  # [R, K], in [0, 1]
    auc: Array  # [R, K], in [0, 1]
    pairs: Array  # [R, K], in [0, 1]


class EvaluationPoint(NamedTuple):
    """The numbers of one evaluation, as in `OverOptimisationCurves`."""

    tokens: float
    learned: float
    true: float
    auc: float
    pairs: float


def ordering_accuracy(better: Array, worse: Array) -> float:
    """The share of all n · m pairs in which the score of `better` [n] is above that of `worse` [m];
    equal scores count one half. This is the AUC."""
    if not len(better) or not len(worse):
        return float("nan")
    difference = np.sign(better[:, None] - worse[None, :])  # [n, m]
    return float((difference.mean() + 1.0) / 2.0)


def judge_accuracy(learned: Array, true: Array) -> tuple[float, float]:
    """AUC over all answers, and the share of pairs of one prompt's answers with different true
    scores that are ordered correctly.

    Args:
        learned: [P, K], what the reward model says of K answers to each prompt.
        true: [P, K], their true scores.
    """
    good = true > GOOD
    one, other = np.triu_indices(true.shape[1], 1)
    order = np.sign(true[:, one] - true[:, other])  # [P, pairs]
    right = np.sign(learned[:, one] - learned[:, other]) * order
    pairs = float((right[order != 0].mean() + 1.0) / 2.0) if order.any() else float("nan")
    return ordering_accuracy(learned[good], learned[~good]), pairs


def look_at_policy(run: Run, tokens: float) -> EvaluationPoint:
    """The current policy's answers to held-out prompts; the run is not changed."""
    rows, names = (
        evaluate_samples(run, SAMPLES, prompts=PROMPTS, seed=0).samples,
        (LEARNED, LOGGED + true_score.__name__),
    )
    learned, true = (
        np.array([[each.rewards[name] for each in row] for row in rows], dtype=np.float64)
        for name in names
    )
    return EvaluationPoint(
        tokens, float(learned.mean()), float(true.mean()), *judge_accuracy(learned, true)
    )


def trace_recipe(folder: Path, seed: int, looks: int = LOOKS) -> dict[str, list[EvaluationPoint]]:
    """Runs the recipe with one seed: stage → its evaluations."""
    recipe, seen = Recipe.find("rlhf", seed=seed), dict[str, list[EvaluationPoint]]()

    def watch(run: Run) -> None:
        stage = Path(run.folder or "").name
        if (
            stage in STAGES
            and run.metrics[-1]["step"]
            >= len(seen.setdefault(stage, [])) * (run.request.options.steps or 0) / looks
        ):
            seen[stage].append(look_at_policy(run, float(run.metrics[-1]["step"])))

    run_recipe(recipe, folder, on_report=watch)
    return seen


def run(seeds: int = 3, first: int = 0) -> dict[str, OverOptimisationCurves]:
    """Stage → its results, for the seeds `first`, `first` + 1, …"""
    with tempfile.TemporaryDirectory() as scratch:
        each = [
            trace_recipe(Path(scratch) / str(seed), seed) for seed in range(first, first + seeds)
        ]
    return {stage: stack_runs([one[stage] for one in each]) for stage in STAGES}


def stack_runs(runs: list[list[EvaluationPoint]]) -> OverOptimisationCurves:
    """The evaluations of several runs, stacked up to the shortest run's number."""
    count = min(map(len, runs))
    table = np.array([looks[:count] for looks in runs], dtype=np.float64)  # [R, K, 5]
    return OverOptimisationCurves(*np.moveaxis(table, -1, 0))


def measurements(result: dict[str, OverOptimisationCurves]) -> dict[str, float]:
    """The numbers on the page: means over the seeds, at the first and the last evaluation.

    Where a policy has no good answer any more there is no AUC: that seed is left out of its mean.
    """
    numbers: dict[str, float] = {}
    for stage, each in result.items():
        shown = {
            "learned score": each.learned,
            "true score": each.true,
            "AUC": each.auc,
            "pairs": each.pairs,
        }
        for name, values in shown.items():
            first, last = values[:, 0], values[:, -1]
            numbers |= {
                f"{stage}: {name}, at first": float(np.nanmean(first)),
                f"{stage}: {name}, at the end": float(np.nanmean(last)),
            }
            if name in ("AUC", "pairs"):
                numbers[f"{stage}: {name}, least fall of a seed"] = float(np.nanmin(first - last))
        lost = np.isnan(each.auc[:, -1])
        numbers[f"{stage}: seeds without a good answer at the end"] = float(lost.sum())
    return numbers


def draw(result: dict[str, OverOptimisationCurves]) -> Figure:
    """The reward model's scores and how often it is right; thin lines are seeds."""
    from rlbook.book.figures.axes import curve_colour, draw_runs, label_axes, legend
    from rlbook.plots.figure import new_figure

    figure = new_figure(9.6, 3.4)
    panels = (
        ("mean learned score", "learned"),
        ("AUC of good answers", "auc"),
        ("pairs ordered rightly", "pairs"),
    )
    for axes, (label, name) in zip(figure.subplots(1, 3), panels, strict=True):
        label_axes(axes, "thousand tokens written", label)
        for place, (stage, title) in enumerate(STAGES.items()):
            steps, values = result[stage].tokens / 1_000, getattr(result[stage], name)
            draw_runs(axes, steps, values, curve_colour(place), title, thin=0.7, linewidth=2.0)
        if name == "learned":
            legend(axes, "lower right")
        else:
            axes.set_ylim(0.0, 1.0)
            axes.axhline(0.5, color="black", linewidth=0.8, linestyle=":")
    return figure
