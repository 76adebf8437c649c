"""Step labels by rollouts beside exact ones: how often they agree, and the quality of a judge
trained on them.

Model, solutions and judges are those of `process_judges`. Each step of the training solutions has an
exact label, by the task. By rollouts, K continuations from its end are written by the policy:

    soft    the share of them that come to the right answer; it agrees with the exact label if it
            is on the same side of 1/2
    hard    1 if at least one does

With one continuation the two are the same. A judge learns each kind of label and takes, of 16
solutions to held-out prompts, the one whose worst step it scores highest.

    found = run(seeds=3)
    found.same["hard 4"]      # [R], the share of the steps on which both labels agree
    found.right["hard 4"]     # [R], right answers among those that the judge takes

Source: Wang et al. 2023 (Math-Shepherd), arXiv:2312.08935, section 3.3 (labels) and 3.4 (the worst
step). Model, task and numbers are ours.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlbook.book.experiments.language_models.process_judges import (
    LEARNED_FROM,
    PROMPTS,
    SAMPLES,
    SINGLE,
    SUMS,
    VERIFIER,
    best_rows,
    fit_judge,
    rules_of,
    sample_solutions,
    training_solutions,
)
from rlbook.book.figures.standard_error import half_interval
from rlbook.evaluation.process_reward import find_steps, hard_labels, rollout_labels
from rlbook.interaction.threads import use_one_thread
from rlbook.seeding import rng_for

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Floats = NDArray[np.float64]
CONTINUATIONS = (1, 4, 16)
EXACT = "exact"


class StepLabels(NamedTuple):
    """Results by kind of labels, for R seeds each."""

    same: dict[str, Floats]  # [R], the share of all steps on which they agree with the exact ones
    lost: dict[str, Floats]  # [R], the share of right steps that they call wrong
    kept: dict[str, Floats]  # [R], the share of wrong steps that they call right
    right: dict[str, Floats]
    """Labels, verifier or one sample → [R], the share of correct answers among those that a judge
    with these labels selects."""


def run(seeds: int = 3, first: int = 0, **sizes: Any) -> StepLabels:
    """Everything with several seeds; `sizes` as for `run_one_seed`."""
    found = [run_one_seed(seed, **sizes) for seed in range(first, first + seeds)]
    return StepLabels(
        *(
            {name: np.concatenate([part[name] for part in field]) for name in field[0]}
            for field in zip(*found, strict=True)
        )
    )


def run_one_seed(
    seed: int, *, learned_from: int = LEARNED_FROM, prompts: int = PROMPTS
) -> StepLabels:
    """Everything with one seed; R is 1.

    Args:
        seed: of the model, the samples, the continuations and the judges.
        learned_from: training prompts, whose solutions are labelled.
        prompts: held-out ones.
    """
    trained = SUMS.clone(seed)
    agent: Any = trained.agent
    recipe, rng = trained.request.recipe, rng_for(seed, "planning")
    with use_one_thread():
        found, steps = training_solutions(trained, seed, learned_from)
        labels = {EXACT: steps.right}
        for count in CONTINUATIONS:
            share = rollout_labels(agent.policy, recipe, found, steps, count, rng)
            labels |= {f"soft {count}": share, f"hard {count}": hard_labels(share)}
        del labels["hard 1"]
        others = sample_solutions(trained, prompts, SAMPLES, seed)
        theirs = find_steps(others.finished, rules_of(recipe.for_evaluation()))
        score = {
            name: fit_judge(trained, found, steps, label, seed).judge(others, theirs, "min")
            for name, label in labels.items()
        }
    score |= {VERIFIER: others.reward, SINGLE: np.zeros(len(others.reward))}
    exact = steps.right[steps.mask] > 0
    told = {name: label[steps.mask] >= 0.5 for name, label in labels.items() if name != EXACT}
    return StepLabels(
        {name: (said == exact).mean()[None] for name, said in told.items()},
        {name: (~said[exact]).mean()[None] for name, said in told.items()},
        {name: said[~exact].mean()[None] for name, said in told.items()},
        {name: others.reward[best_rows(each)].mean()[None] for name, each in score.items()},
    )


def measurements(result: StepLabels) -> dict[str, float]:
    """The mean of each share over the seeds, and the difference in best-of-16 accuracy from the
    judge with exact labels; ± is half of the 95 % interval over the seeds."""
    shares = {
        **{f"{name}: agree": each for name, each in result.same.items()},
        **{f"{name}: right called wrong": each for name, each in result.lost.items()},
        **{f"{name}: wrong called right": each for name, each in result.kept.items()},
        **{f"{name}: best of 16": each for name, each in result.right.items()},
        **{
            f"{name}: best of 16, change": each - result.right[EXACT]
            for name, each in result.right.items()
            if name != EXACT
        },
    }
    numbers: dict[str, float] = {}
    for name, each in shares.items():
        numbers |= {name: float(each.mean()), f"{name}, ±": half_interval(each)}
    return numbers


def draw(result: StepLabels) -> Figure:
    """Left: how often labels by rollouts agree with exact ones. Right: best-of-16 accuracy with a
    judge trained on them. A dot is a seed."""
    from rlbook.book.figures.axes import curve_colour, label_axes
    from rlbook.plots.figure import new_figure

    known = (EXACT, VERIFIER, SINGLE)
    figure = new_figure(9.5, 3.4)
    sides = zip(
        figure.subplots(1, 2),
        (result.same, result.right),
        ("steps labelled as the task labels them", "right answers, best of 16 by worst step"),
        strict=True,
    )
    for axes, each, title in sides:
        label_axes(axes, "", "share", title)
        for across, (name, seeds) in enumerate(each.items()):
            axes.bar(across, seeds.mean(), 0.7, color=curve_colour(1 if name in known else 0))
            axes.plot([across] * len(seeds), seeds, "k.", markersize=3)
        axes.set_xticks(range(len(each)), [name.replace(" ", "\n") for name in each])
        axes.set_ylim(0.0, 1.0)
    return figure
