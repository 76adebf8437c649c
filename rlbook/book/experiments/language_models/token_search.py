"""Inference-time search at the same budget, in three ways: a tree of tokens, best-of-n, and a vote
among n.

A small model is trained until it is right about every second time: on sums by PPO, which also
trains a critic; on reasoning by cloning. A value of finished and unfinished texts is learned from
what the model writes to training prompts (`rlbook.evaluation.outcome_value`). Then nothing is
learned any more, and the same networks are asked more often. The budget is what they read for a
prompt, in tokens, each counted once for each network that has to read it and as if all of them had
a KV cache: a completion is read by the model that writes it, and once more by a critic or a value
that judges it; a search reads each new text of its tree with both.

    found = run(seeds=3)
    found["sums"].accuracy["mcts, value"]                # [budgets, P], share of the seeds that got a prompt right

Of n completions, the first 2, 4, 8, … are also the completions of smaller n, so one set of samples
gives the whole curve.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

import rlbook
from rlbook.evaluation.best_of_n import (
    SampledCompletions,
    best_index,
    most_frequent,
    read_by,
    sample_completions,
    scores,
)
from rlbook.evaluation.outcome_value import OutcomeValue
from rlbook.evaluation.search import Judge, Search, evaluate_search
from rlbook.functional.intervals import t_interval
from rlbook.interaction.threads import use_one_thread
from rlbook.seeding import rng_for

Floats = NDArray[np.float64]

PPO: dict[str, Any] = {
    "num_envs": 128,
    "batch_size": 128,
    "epochs": 2,
    "gamma": 1.0,
    "truncation": "terminal",
    "learning_rate": 4e-4,
    "eval_every": 0,
}
CLONING: dict[str, Any] = {
    "steps": 600,
    "batch_size": 64,
    "eval_every": 10,
    "eval_episodes": 128,
    "stop_at_return": 0.5,
}
TASKS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "sums": ("ppo", "Addition-v0", PPO | {"steps": 20_000}),
    "reasoning": ("sft", "Reasoning-v0", CLONING),
}
"""Name → the training of the model: environment and settings."""
LEARNED = 0.5
"""A model with a lower greedy accuracy is left out of the means, because it has learned nothing to
search for."""
SAMPLES = SIMULATIONS = (1, 2, 4, 8, 16)
LEARNED_FROM = {"sums": (1_000, 4), "reasoning": (500, 4)}
"""The number of training prompts, and of completions for each, that the value learns from."""
PROMPTS = 512
SEARCHED = {"sums": 512, "reasoning": 128}
"""The number of trees grown, which takes a search at each token."""


@dataclass(frozen=True)
class SearchReturns:
    """The results of one task, by method ("best of n, critic", "majority", "mcts, verifier",
    "greedy")."""

    tokens: dict[str, Floats]  # [budgets], read for a prompt, mean over the seeds
    accuracy: dict[str, Floats]  # [budgets, P], share of the seeds that got each prompt right
    seeds: dict[str, Floats]  # [seeds, budgets], share of the prompts that each seed got right
    left_out: int  # models that did not learn the task


def model(task: str, seed: int) -> rlbook.Run:
    """The model used in the whole experiment."""
    algorithm, env, settings = TASKS[task]
    return rlbook.train(algorithm, env, seed=seed, **settings)


def value_of(run: rlbook.Run, task: str, seed: int) -> OutcomeValue:
    """A learned value of texts for this model, trained on its completions of training prompts."""
    agent: Any = run.agent
    prompts, each = LEARNED_FROM[task]
    starts = rng_for(seed, "comparisons").integers(2**31 - 1, size=prompts)
    value = OutcomeValue(agent.policy)
    with use_one_thread():
        found = sample_completions(
            agent,
            agent.policy,
            run.request.recipe,
            starts.tolist(),
            each,
            rng_for(seed, "exploration"),
        )
        value.fit(found, rng_for(seed, "minibatches"))
    return value


def try_methods(
    run: rlbook.Run,
    value: OutcomeValue,
    prompts: int = PROMPTS,
    trees: int = PROMPTS,
    seed: int = 0,
) -> dict[str, list[tuple[float, Floats]]]:
    """All methods with one model: method → for each budget, the tokens read per prompt and the
    reward of each prompt [P]."""
    agent: Any = run.agent
    recipe = run.request.recipe.for_evaluation()
    greedy = rlbook.evaluate(run, episodes=prompts, seed=seed)
    base = int(rng_for(seed, "evaluation").integers(2**31 - 1 - prompts))
    with use_one_thread():
        samples = sample_completions(
            agent,
            agent.policy,
            recipe,
            range(base, base + prompts),
            SAMPLES[-1],
            rng_for(seed, "noise"),
        )
    found = {
        "greedy": [(_prompt_tokens(samples) + float(greedy.lengths.mean()) - 1, greedy.returns)]
    }
    found["majority"] = [_majority_vote(samples, n) for n in SAMPLES]
    critic = {"critic": "critic"} if agent.critic else {}
    judges: dict[str, Any] = (
        {"log_prob": "log_prob"} | critic | {"value": value, "verifier": "verifier"}
    )
    for name, judge in judges.items():
        score = scores(judge, agent.policy, samples)
        found[f"best of n, {name}"] = [_best_answers(samples, score, judge, n) for n in SAMPLES]
    for name in [*critic, "value", "verifier"]:
        asked = [Search("mcts", simulations=count, judge=judges[name]) for count in SIMULATIONS]
        grown = [
            evaluate_search(
                agent, recipe, min(trees, prompts), seed, one, sampling={}, load=_refuse_judge
            )
            for one in asked
        ]
        found[f"mcts, {name}"] = [(float(tree.tokens or 0.0), tree.returns) for tree in grown]
    return found


def _refuse_judge(folder: object) -> Any:
    raise AssertionError("no run of a judge is available here")


def _prompt_tokens(samples: SampledCompletions) -> float:
    return float(samples.prompt.mean())


def _first_completions(
    samples: SampledCompletions, n: int
) -> tuple[SampledCompletions, NDArray[np.int64]]:
    """The first n completions of each prompt, and their rows [P, n]."""
    rows = samples.choices(SAMPLES[-1])[:, :n]
    flat = rows.ravel()
    part = SampledCompletions(
        *(field[flat] for field in samples[:5]),  # type: ignore[arg-type]
        [samples.finished[i] for i in flat],  # type: ignore[call-arg]
    )
    return part, rows


def _best_answers(
    samples: SampledCompletions, score: Floats, judge: Judge, n: int
) -> tuple[float, Floats]:
    part, rows = _first_completions(samples, n)
    chosen = np.take_along_axis(rows, best_index(score[rows])[:, None], axis=1)[:, 0]
    return read_by(judge if n > 1 else None, part, n), samples.reward[chosen]


def _majority_vote(samples: SampledCompletions, n: int) -> tuple[float, Floats]:
    part, rows = _first_completions(samples, n)
    chosen = [row[most_frequent([samples.finished[i] for i in row])] for row in rows]
    return read_by(None, part, n), samples.reward[chosen]


def run(
    seeds: int = 3, first: int = 0, tasks: tuple[str, ...] = tuple(TASKS), prompts: int = PROMPTS
) -> dict[str, SearchReturns]:
    """Task → all results, over several models."""
    return {
        task: _stack_models(
            [_results_of_seed(task, seed, prompts) for seed in range(first, first + seeds)]
        )
        for task in tasks
    }


def _results_of_seed(task: str, seed: int, prompts: int) -> dict[str, list[tuple[float, Floats]]]:
    trained = model(task, seed)
    return try_methods(trained, value_of(trained, task, seed), prompts, SEARCHED[task])


def _stack_models(each: list[dict[str, list[tuple[float, Floats]]]]) -> SearchReturns:
    able = [one for one in each if one["greedy"][0][1].mean() >= LEARNED]
    if not able:
        raise ValueError(f"none of {len(each)} models has learned the task")
    # [seeds, budgets, P]
    paid = {
        name: np.array([[returns for _, returns in one[name]] for one in able]) for name in able[0]
    }
    tokens = {
        name: np.array([[read for read, _ in one[name]] for one in able]).mean(0)
        for name in able[0]
    }
    accuracy, seeds = ({name: part.mean(axis) for name, part in paid.items()} for axis in (0, 2))
    return SearchReturns(tokens, accuracy, seeds, len(each) - len(able))


def measurements(result: dict[str, SearchReturns]) -> dict[str, float]:
    """The accuracy at the largest budget, and half of its 95 % interval; the budget is part of the
    name."""
    numbers: dict[str, float] = {}
    for task, each in result.items():
        numbers[f"{task}, models left out"] = float(each.left_out)
        for name, accuracy in each.accuracy.items():
            low, high = t_interval(accuracy[-1])
            numbers[f"{task}, {name}, {each.tokens[name][-1]:.0f} tokens"] = float(
                accuracy[-1].mean()
            )
            numbers[f"{task}, {name}, ±"] = (high - low) / 2
    return numbers


def draw(result: dict[str, SearchReturns]) -> Figure:
    """Accuracy over the budget, one panel per task; bars are 95 % intervals over prompts, dashed
    lines use the correct answer."""
    from rlbook.book.figures.axes import curve_colour, label_axes
    from rlbook.plots.figure import is_narrow, new_figure

    figure = new_figure(4.2 * len(result) + 1.4, 3.6)
    panels = np.atleast_1d(figure.subplots(1, len(result)))
    for axes, (task, each) in zip(panels, result.items(), strict=True):
        label_axes(axes, "tokens read for a prompt", "share of right answers")
        axes.set_xscale("log", base=2)
        axes.set_title(task, fontsize=10)
        colours = {
            name: place
            for place, name in enumerate(
                dict.fromkeys(name.split(",")[0] for name in each.accuracy)
            )
        }
        marks = {"critic": "x-", "log_prob": "^-", "value": "o-", "verifier": "s--"}
        for name, accuracy in each.accuracy.items():
            kind, _, judge = name.partition(", ")
            low, high = np.array([t_interval(share) for share in accuracy]).T
            mean = accuracy.mean(1)
            bars = np.stack([mean - low, high - mean])
            style = {
                "color": curve_colour(colours[kind]),
                "linewidth": 1.2,
                "markersize": 4,
                "capsize": 2,
                "label": name,
            }
            axes.errorbar(each.tokens[name], mean, bars, fmt=marks.get(judge, "d-"), **style)
    figure.legend(
        *panels[0].get_legend_handles_labels(),
        loc="outside lower center" if is_narrow() else "outside right center",
        ncols=2 if is_narrow() else 1,
        frameon=False,
        fontsize=8,
    )
    return figure
