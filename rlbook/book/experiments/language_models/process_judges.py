"""A process reward model beside an outcome reward model: which of 16 solutions each selects, and
what a policy trained on its reward does.

A small model has cloned sums of three terms in steps (`Reasoning-v0`) for a short while. It writes
solutions to training prompts, and two judges of the same form learn from the same solutions:

    process   each step's label is whether that step is right
    outcome   each step's label is whether the answer at the end is right

A solution's score is the outcome judge's for the last step, or the process judge's for the last, the
worst (min), all (product), the mean or the sum of its steps. GRPO is then paid by such a score alone.
`countdown_judges` does the same on Countdown, where a third judge learns labels by rollouts.

    found = run(seeds=3)
    found.chosen["process, min"].right      # [R, P], of the solution that was taken of 16
    found.trained["process, sum"].steps     # [R, P], in a solution of the policy that was paid so

Source: Lightman et al. 2023, arXiv:2305.20050, section 3 (both judges, best of n). Model, task and
numbers are ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

import rlbook
from rlbook.book.figures.standard_error import half_interval
from rlbook.evaluation.best_of_n import SampledCompletions, best_index, sample_completions
from rlbook.evaluation.process_reward import (
    ProcessReward,
    TextSteps,
    find_steps,
    rollout_labels,
)
from rlbook.functional.post_training.process_rewards import aggregate_steps
from rlbook.interaction.threads import use_one_thread
from rlbook.seeding import rng_for

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Floats = NDArray[np.float64]
SOLUTIONS = 4  # of each training prompt
LEARNED_FROM = 400  # training prompts
PROMPTS = 128  # held out
SAMPLES = 16  # of each
FIT: dict[str, Any] = {"passes": 4, "learning_rate": 3e-3}
TRAIN: dict[str, Any] = {
    "steps": 20_000,
    "num_envs": 64,
    "group_size": 8,
    "learning_rate": 4e-4,
    "eval_every": 0,
}
"""GRPO's settings, for every judge."""
JUDGES = {
    "outcome": ("outcome", "last"),
    **{f"process, {how}": ("process", how) for how in ("last", "min", "product", "mean", "sum")},
}
"""Name → the labels that the judge learned from, and how the scores of the steps are aggregated."""
PAID = ("process, min", "process, sum")
BEFORE, VERIFIER, SINGLE = "before", "verifier", "one sample"


class Problem(NamedTuple):
    """The task whose solutions are judged."""

    env: str
    task: dict[str, Any]
    minibatches: int  # of cloning
    judges: dict[str, tuple[str, str]]
    """Name → the labels that the judge learned from, and how the scores of the steps are
    aggregated."""
    continuations: int = 0  # of each step, for labels by rollouts; 0: there are none

    def clone(self, seed: int) -> rlbook.Run:
        """A model after a short period of cloning solutions."""
        how: dict[str, Any] = {"batch_size": 64, "learning_rate": 1e-3, "eval_every": 0}
        how |= {"steps": self.minibatches, "env_kwargs": self.task, "seed": seed, "quiet": True}
        return rlbook.train("sft", self.env, **how)


SUMS = Problem("Reasoning-v0", {"terms": 3}, 150, JUDGES)


class Solutions(NamedTuple):
    """One solution for each of P prompts and R seeds."""

    right: Floats  # [R, P], its answer: 1 or 0
    steps: Floats  # [R, P], how many it has


class JudgedSolutions(NamedTuple):
    """The results for all judges."""

    chosen: dict[str, Solutions]
    """Judge, verifier or one sample → the solution of `SAMPLES` that it selects."""
    trained: dict[str, Solutions]
    """The judge that gave the reward, or before → a sampled solution of the policy."""
    score: dict[str, Floats]
    """For `PAID` → [R, 2], the mean score before and after, by the judge that gave the reward."""


def run(seeds: int = 3, first: int = 0, **sizes: Any) -> JudgedSolutions:
    """Everything with several seeds; `sizes` as for `run_one_seed`."""
    return concatenate([run_one_seed(seed, **sizes) for seed in range(first, first + seeds)])


def run_one_seed(
    seed: int,
    *,
    problem: Problem = SUMS,
    learned_from: int = LEARNED_FROM,
    prompts: int = PROMPTS,
    train: dict[str, Any] | None = None,
    paid: Sequence[str] = (VERIFIER, *PAID),
) -> JudgedSolutions:
    """Everything with one seed; R is 1.

    Args:
        seed: of the model, the samples, the judges and the training.
        problem: whose solutions are judged.
        learned_from: training prompts whose solutions the judges learn from.
        prompts: held-out ones.
        train: in place of some of `TRAIN`.
        paid: who pays a policy.
    """
    trained = problem.clone(seed)
    recipe = trained.request.recipe.for_evaluation()
    with use_one_thread():
        judges = learned_judges(trained, seed, learned_from, problem.continuations)
        found = sample_solutions(trained, prompts, SAMPLES, seed)
        steps = find_steps(found.finished, rules_of(recipe))
        said = {name: torch.from_numpy(judge.score(found, steps)) for name, judge in judges.items()}
        there = torch.from_numpy(steps.mask)
        score = {
            name: aggregate_steps(said[who], there, how).numpy()
            for name, (who, how) in problem.judges.items()
        }
    score |= {VERIFIER: found.reward, SINGLE: np.zeros(len(found.reward))}
    chosen = {
        name: _solutions_of_rows(found, steps, best_rows(values)) for name, values in score.items()
    }
    after = {BEFORE: chosen[SINGLE]}
    changed: dict[str, Floats] = {}
    for name in paid:
        reward: Any = "correct"
        if name != VERIFIER:
            who, how = problem.judges[name]
            reward = judges[who].reward(rules_of(recipe), how)
        policy = rlbook.train(
            "grpo",
            problem.env,
            env_kwargs=problem.task | {"reward": reward},
            start=trained,
            seed=seed,
            quiet=True,
            **TRAIN | (train or {}),
        )
        with use_one_thread():
            other = sample_solutions(policy, prompts, 1, seed)
            theirs = find_steps(other.finished, rules_of(recipe))
            after[name] = _solutions_of_rows(other, theirs, np.arange(prompts))
            if name != VERIFIER:
                now = judges[who].judge(other, theirs, how).mean()
                changed[name] = np.array([[score[name].mean(), now]])
    return JudgedSolutions(chosen, after, changed)


def learned_judges(
    run: rlbook.Run, seed: int, prompts: int, continuations: int = 0
) -> dict[str, ProcessReward]:
    """A judge for each kind of labels, trained on the same solutions to training prompts in the
    same order."""
    found, steps = training_solutions(run, seed, prompts)
    outcome = np.repeat(found.reward[:, None], steps.mask.shape[1], axis=1)
    labels = {"process": steps.right, "outcome": outcome}
    if continuations:
        agent: Any = run.agent
        recipe, rng = run.request.recipe, rng_for(seed, "planning")
        labels["rollouts"] = rollout_labels(agent.policy, recipe, found, steps, continuations, rng)
    return {name: fit_judge(run, found, steps, label, seed) for name, label in labels.items()}


def training_solutions(
    run: rlbook.Run, seed: int, prompts: int
) -> tuple[SampledCompletions, TextSteps]:
    """`SOLUTIONS` solutions of each of some training prompts, and their steps."""
    agent: Any = run.agent
    starts = rng_for(seed, "comparisons").integers(2**31 - 1, size=prompts).tolist()
    rng, recipe = rng_for(seed, "exploration"), run.request.recipe
    found = sample_completions(agent, agent.policy, recipe, starts, SOLUTIONS, rng)
    return found, find_steps(found.finished, rules_of(recipe))


def fit_judge(
    run: rlbook.Run, completions: SampledCompletions, steps: TextSteps, label: Floats, seed: int
) -> ProcessReward:
    """A judge trained on these labels [N, S]."""
    agent: Any = run.agent
    judge = ProcessReward(agent.policy, rng_for(seed, "initialisation"))
    judge.fit(completions, steps, label, rng_for(seed, "minibatches"), **FIT)
    return judge


def sample_solutions(run: rlbook.Run, prompts: int, n: int, seed: int) -> SampledCompletions:
    """n solutions of each held-out prompt, scored by the verifier."""
    agent: Any = run.agent
    recipe = run.request.recipe.for_evaluation()
    rng = rng_for(seed, "noise")
    return sample_completions(agent, agent.policy, recipe, range(prompts), n, rng)


def rules_of(recipe: Any) -> Any:
    """The rules of the environment's texts."""
    return recipe.make().unwrapped.rules


def best_rows(score: Floats) -> NDArray[np.int64]:
    """The row of the best solution of each prompt, the first among ties: [P]."""
    return best_index(score.reshape(-1, SAMPLES)) + np.arange(0, len(score), SAMPLES)


def _solutions_of_rows(
    completions: SampledCompletions, steps: TextSteps, rows: NDArray[np.int64]
) -> Solutions:
    right, count = completions.reward[rows], steps.mask[rows].sum(axis=1).astype(np.float64)
    return Solutions(right[None], count[None])


def concatenate(results: Sequence[JudgedSolutions]) -> JudgedSolutions:
    """Several seeds as one result."""

    def join(parts: Sequence[dict[str, Solutions]]) -> dict[str, Solutions]:
        return {
            name: Solutions(*(np.concatenate(field) for field in zip(*each, strict=True)))
            for name in parts[0]
            for each in [[part[name] for part in parts]]
        }

    score = {
        name: np.concatenate([each.score[name] for each in results]) for name in results[0].score
    }
    return JudgedSolutions(
        join([each.chosen for each in results]), join([each.trained for each in results]), score
    )


def measurements(result: JudgedSolutions) -> dict[str, float]:
    """The share of right answers and the mean number of steps, and the change of both against a
    single sample or the policy before, with half of its 95 % interval over seeds."""
    numbers: dict[str, float] = {}
    for kind, known, base in (
        ("best of 16", result.chosen, result.chosen[SINGLE]),
        ("paid by", result.trained, result.trained[BEFORE]),
    ):
        for name, solutions in known.items():
            told = f"{kind}, {name}"
            numbers[told] = float(solutions.right.mean())
            numbers[f"{told}: steps"] = float(solutions.steps.mean())
            if solutions is not base:
                changes = [after - before for after, before in zip(solutions, base, strict=True)]
                for what, each in zip(("gain", "steps more"), changes, strict=True):
                    change = each.mean(axis=1)  # [R]
                    numbers[f"{told}: {what}"] = float(change.mean())
                    numbers[f"{told}: {what}, ±"] = half_interval(change)
    for name, change in result.score.items():
        for when, value in zip(("before", "after"), change.mean(0), strict=True):
            numbers[f"{name}: score {when}"] = float(value)
        right = result.trained[name].right.mean(axis=1)
        numbers[f"{name}: score, least rise of a seed"] = float((change[:, 1] - change[:, 0]).min())
        numbers[f"{name}: right, most of a seed"] = float(right.max())
        numbers[f"{name}: right, least fall of a seed"] = float(
            (result.trained[BEFORE].right.mean(axis=1) - right).min()
        )
    return numbers


def draw(result: JudgedSolutions) -> Figure:
    """Left: the solution of 16 that each judge selects. Right: the policy after training on a
    judge's reward. Bars are shares of correct answers, a dot is a seed; the number is that of the
    steps."""
    from rlbook.book.figures.axes import curve_colour, label_axes
    from rlbook.plots.figure import new_figure

    figure = new_figure(10.5, 3.6)
    sides = zip(
        figure.subplots(1, 2, width_ratios=(8, 5)),
        (result.chosen, result.trained),
        ("best of 16", "paid by"),
        strict=True,
    )
    for axes, each, title in sides:
        label_axes(axes, "", "share of right answers, held out", title)
        for across, (name, solutions) in enumerate(each.items()):
            seeds = solutions.right.mean(axis=1)
            known = name in (VERIFIER, SINGLE, BEFORE)
            axes.bar(across, seeds.mean(), 0.7, color=curve_colour(1 if known else 0))
            axes.plot([across] * len(seeds), seeds, "k.", markersize=3)
            axes.text(across, 1.04, f"{solutions.steps.mean():.1f}", ha="center", fontsize=8)
        axes.set_xticks(range(len(each)), [name.replace(", ", "\n") for name in each], fontsize=8)
        axes.set_ylim(0.0, 1.08)
    return figure
