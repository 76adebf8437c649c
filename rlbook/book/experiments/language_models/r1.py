"""R1-Zero and R1 on sums in several steps: the training data of the stages, and their results.

The environment is `Mixture-v0`: "4+7+8+5=" asks for the last digit of the sum, "ab<cde>fgh=" for
the word between the tags as "[CDE]". Steps may be written in Latin or in Greek letters, a to j or α
to κ for 0 to 9. A right answer is right in either; readers want Latin.

    corpus       what a base model has read: sums whose answer stands alone, and sums with steps, in which both scripts are mixed
    examples     few and clean: sums with steps in Latin letters
    kept         what a trained model has written itself, without what is wrong, mixed or too long; and copies beside it

`rlbook recipe r1_zero` and `rlbook recipe r1` train the stages. `run` does both for several seeds,
and `draw` is the picture of the page.

Source: DeepSeek-AI 2025, arXiv:2501.12948, section 2. Tasks, model and numbers are ours.
"""

from __future__ import annotations

import itertools
import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import rlbook
from rlbook.book.figures.standard_error import half_interval
from rlbook.checks import check, non_negative_int, optional, positive_int, unit_interval
from rlbook.llm.environments.task_envs import TWO, mixture
from rlbook.llm.rewards import Completion, correct, language, think
from rlbook.llm.tasks import ReasoningTask
from rlbook.llm.tokenizers.trained_codec import SPECIAL
from rlbook.recipes.recipe import Recipe
from rlbook.recipes.run_recipe import run_recipe
from rlbook.seeding import rng_for

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ENV = "Mixture-v0"
SUMS, COPIES = "reasoning", "tagged_copy"
LANGUAGES = ("latin", "greek")


def write_corpus(
    out: Path, *, seed: int, rows: int = 7_000, alone: float = 0.4, switch: float = 0.2
) -> dict[str, int]:
    """Writes the base model's training data as JSON lines: sums.

    Args:
        out: the file.
        seed: draws the prompts, and how each is answered.
        rows: how many there are.
        alone: the share whose answer stands alone.
        switch: of the steps after the first, the share that change the script.
    """
    check("rows", rows, positive_int)
    check("alone", alone, unit_interval)
    check("switch", switch, unit_interval)
    task, rng = sums(), rng_for(seed, "data")
    found: list[tuple[str, str]] = []
    for prompt in draw_prompts(task.train, rows, rng):
        changes = np.cumsum(rng.random(task.terms) < np.where(np.arange(task.terms), switch, 0.5))
        text = task.worked_answer(prompt, [LANGUAGES[count % 2] for count in changes])
        found.append((prompt, task.answer(prompt) if rng.random() < alone else text))
    return {"rows": write(out, found)}


def write_examples(out: Path, *, seed: int, rows: int = 256) -> dict[str, int]:
    """Writes the cold-start examples: sums with steps in Latin letters."""
    check("rows", rows, positive_int)
    task = sums()
    return {
        "rows": write(
            out,
            [
                (prompt, task.demonstration(prompt))
                for prompt in draw_prompts(task.train, rows, rng_for(seed, "pairs"))
            ],
        )
    }


def write_kept(
    out: Path,
    *,
    run: str,
    seed: int,
    samples: int = 4_096,
    copies: int = 4_000,
    longest: int | None = None,
) -> dict[str, int]:
    """Writes the filtered completions of a run's agent, and copies with their correct answers, in a
    random order.

    Args:
        out: the file.
        run: the folder of the run.
        seed: draws the prompts and the order.
        samples: how many sums are sampled, each to a newly drawn prompt.
        copies: how many copies stand beside what is kept.
        longest: tokens of a completion, EOS among them, above which it is too long; None takes any
            that has come to its end.

    Returns:
        How many were written, how many are right, how many of these in one language and not too
        long, and how many of these differ.
    """
    check("samples", samples, positive_int)
    check("copies", copies, non_negative_int)
    check("longest", longest, optional(positive_int))
    found = sample_completions(rlbook.load(run), samples, seed)
    right = [each for each in found if correct(each) == 1.0]
    clean = [each for each in right if is_readable(each, longest)]
    kept = list(dict.fromkeys((each.prompt, each.text) for each in clean))
    rng, other = rng_for(seed, "data"), mixture(TWO).tasks[COPIES]
    rows = kept + [
        (prompt, other.answer(prompt)) for prompt in draw_prompts(other.train, copies, rng)
    ]
    write(out, [rows[i] for i in rng.permutation(len(rows))])
    return {
        "written": len(found),
        "right": len(right),
        "clean": len(clean),
        "kept": len(kept),
        "rows": len(rows),
    }


def is_readable(completion: Completion, longest: int | None) -> bool:
    """Whether a text has steps between the tags, in Latin letters only, within the token limit, and
    no special token."""
    short = longest is None or len(completion.ids) <= longest
    clean = not has_special_token(completion)
    return short and clean and think(completion) == language(completion) == 1.0


def has_special_token(completion: Completion) -> bool:
    """Whether a token that is no text was sampled before the end, such as `<pad>`: no row of
    training data can contain it."""
    return any(token in completion.text for token in SPECIAL)


def sample_completions(
    run: rlbook.Run,
    samples: int,
    seed: int,
    *,
    only: str = SUMS,
    split: str = "train",
    temperature: float | None = None,
) -> list[Completion]:
    """Completions that a run's agent samples for prompts of one of the tasks; a temperature of None
    is the agent's own."""
    found: list[Completion] = []

    def keep(completion: Completion) -> float:
        found.append(completion)
        return 0.0

    kwargs = {"only": only, "split": split, "reward": keep}
    rlbook.evaluate(
        run, ENV, samples, seed, explore=True, env_kwargs=kwargs, temperature=temperature
    )
    return found


def sums() -> ReasoningTask:
    """The reasoning task, with steps in Latin letters."""
    task = mixture(TWO).tasks[SUMS]
    assert isinstance(task, ReasoningTask)
    return task


def draw_prompts(prompts: Sequence[str], count: int, rng: np.random.Generator) -> list[str]:
    """Distinct random prompts in a random order; all of them if there are fewer."""
    return [prompts[int(i)] for i in rng.permutation(len(prompts))[:count]]


def write(out: Path, rows: Sequence[tuple[str, str]]) -> int:
    """Writes prompts and completions as JSON lines. Returns their number."""
    lines = [
        json.dumps({"prompt": prompt, "completion": text}, ensure_ascii=False)
        for prompt, text in rows
    ]
    out.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return len(rows)


STAGES = ("base", "cold_start", "reasoning_rl", "second_sft", "all_tasks_rl")
SMALL = ("small_cold_start", "small_rl", "distilled")
SIDES = {"sampled": "right sums", "latin": "Latin letters in them", "copies": "right copies"}
CURVES = {"reward/correct": "right", "reward/think": "with steps"}
BINS = 20


class R1Measures(NamedTuple):
    """Results of R seeds."""

    after: dict[str, dict[str, NDArray[np.float64]]]
    """Stage → measure → [R, 512], one number for each held-out prompt."""
    # [R, 3]: right, then in one language, then different, of what was written
    kept: NDArray[np.float64]
    zero: NDArray[np.float64]  # [R, 2, BINS], while R1-Zero trains: right, and with steps, sampled
    seconds: dict[str, NDArray[np.float64]]  # stage → [R], of training alone


def run(seeds: int = 3, first: int = 0, overrides: Mapping[str, Any] | None = None) -> R1Measures:
    """Both recipes for several seeds; `overrides` as in `rlbook.recipes.recipe.Recipe.find`, for
    the stages that a recipe has."""
    with tempfile.TemporaryDirectory() as folder:
        return concatenate(
            [
                run_one_seed(seed, Path(folder) / str(seed), overrides or {})
                for seed in range(first, first + seeds)
            ]
        )


def run_one_seed(seed: int, folder: Path, overrides: Mapping[str, Any]) -> R1Measures:
    """Both recipes with one seed; R is 1."""
    after: dict[str, dict[str, NDArray[np.float64]]] = {}
    seconds: dict[str, NDArray[np.float64]] = {}
    facts: dict[str, Any] = {}
    for name in ("r1_zero", "r1"):
        whole = Recipe.find(name).stages
        theirs = {
            key: value
            for key, value in overrides.items()
            if key.split(".")[0] in [stage.name for stage in whole]
        }
        for stage in run_recipe(Recipe.find(name, theirs, seed=seed), folder / name)["stages"]:
            done = json.loads(
                (folder / name / "done" / f"{stage['stage']}.json").read_text(encoding="utf-8")
            )
            facts[stage["stage"]] = done["facts"]
            if done["after"]:
                after[stage["stage"]] = {
                    key: np.array([values]) for key, values in done["after"].items()
                }
                seconds[stage["stage"]] = np.array([done["seconds"]])
    kept = (
        np.array([[facts["kept"][key] for key in ("right", "clean", "kept")]])
        / facts["kept"]["written"]
    )
    return R1Measures(after, kept, curve(folder / "r1_zero" / "zero")[None], seconds)


def concatenate(results: Sequence[R1Measures]) -> R1Measures:
    """Several seeds as one result."""
    after = {
        stage: {
            key: np.concatenate([each.after[stage][key] for each in results]) for key in measures
        }
        for stage, measures in results[0].after.items()
    }
    kept, zero = (
        np.concatenate([each.kept for each in results]),
        np.concatenate([each.zero for each in results]),
    )
    return R1Measures(
        after,
        kept,
        zero,
        {
            stage: np.concatenate([each.seconds[stage] for each in results])
            for stage in results[0].seconds
        },
    )


def curve(folder: Path) -> NDArray[np.float64]:
    """The rewards of a run's training episodes, [2, BINS]: means over equal parts of its budget, NaN
    for parts without a report."""
    lines = [
        json.loads(line)
        for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    end = lines[-1]["step"] + 1
    lines = [line for line in lines if line.get("return") is not None]
    place = np.array([min(int(BINS * line["step"] / end), BINS - 1) for line in lines])
    ended = np.diff([line["episodes"] for line in lines], prepend=0)
    values = np.array([[line.get(name) or 0.0 for line in lines] for name in CURVES])
    means = np.full((len(CURVES), BINS), np.nan)
    for k in np.unique(place[ended > 0]):
        means[:, k] = np.average(values[:, place == k], axis=1, weights=ended[place == k])
    return means


def mean_and_half(seeds: NDArray[np.float64]) -> tuple[float, float]:
    """The mean of [R] numbers, one for each seed, and half of its 95 % interval over seeds."""
    return float(seeds.mean()), half_interval(seeds)


def measurements(result: R1Measures) -> dict[str, float]:
    """The numbers on the page: means over the seeds, and the gain of each stage over the previous
    one, on the same prompts; ± is half of the 95 % interval over seeds."""
    told = {
        "sums": "sums, greedy",
        "sampled": "sums, sampled",
        "latin": "Latin, sampled",
        "copies": "copies, greedy",
    }
    numbers: dict[str, float] = {}

    def add(name: str, seeds: NDArray[np.float64]) -> None:
        numbers[name], numbers[f"{name}, ±"] = mean_and_half(seeds)

    for stage in ("base", "zero", *STAGES[1:], *SMALL):
        shown = [
            key
            for key in told
            if key in result.after[stage] and (key != "copies" or stage in (*STAGES[3:], *SMALL))
        ]
        for key in shown:
            add(f"{stage}: {told[key]}", result.after[stage][key].mean(1))
    for before, after in (
        ("base", "zero"),
        ("zero", "reasoning_rl"),
        *itertools.pairwise(STAGES),
        ("small_rl", "distilled"),
    ):
        for key in ("sums", "sampled"):
            gain = result.after[after][key].mean(1) - result.after[before][key].mean(1)
            add(f"{after} - {before}: {told[key]}", gain)
    copies = (result.after[stage]["copies"].mean(1) for stage in ("all_tasks_rl", "second_sft"))
    add("all_tasks_rl - second_sft: copies, greedy", np.subtract(*copies))
    for stage in ("zero", "reasoning_rl", "all_tasks_rl", "small_rl", "distilled"):
        seeds = result.after[stage]["sampled"].mean(1)
        numbers[f"{stage}: sums, sampled, lowest"] = float(seeds.min())
        numbers[f"{stage}: sums, sampled, seeds above 90 %"] = float((seeds > 0.9).sum())
    final, cold = (
        result.after[stage]["sampled"].mean(1) for stage in ("all_tasks_rl", "cold_start")
    )
    numbers["all_tasks_rl / cold_start: sums, sampled, least of the seeds"] = float(
        (final / cold).min()
    )
    numbers |= dict(
        zip(
            ("written: right", "written: clean too", "written: different too"),
            map(float, result.kept.mean(0)),
            strict=True,
        )
    )
    return numbers | {
        f"{stage}: seconds": float(result.seconds[stage].mean())
        for stage in ("small_rl", "distilled")
    }


def draw(result: R1Measures) -> Figure:
    """Left: R1-Zero's accuracy and use of steps during training. Right: the result of each stage. A
    dot is a seed."""
    from rlbook.book.figures.axes import curve_colour, draw_runs, label_axes, legend
    from rlbook.plots.figure import is_narrow, new_figure, words

    figure = new_figure(10.5, 3.6)
    left, right = figure.subplots(1, 2, width_ratios=(2, 3))
    label_axes(left, "share of the training", "share of the samples", "R1-Zero")
    for place, told in enumerate(CURVES.values()):
        middles = (np.arange(BINS) + 0.5) / BINS
        draw_runs(left, middles, result.zero[:, place], curve_colour(place), told, thin=0.7)
    label_axes(right, "", "share, held out", "R1")
    for place, (key, told) in enumerate(SIDES.items()):
        for across, stage in enumerate([*STAGES, *SMALL]):
            seeds = result.after[stage][key].mean(1)
            right.bar(
                across + 0.27 * (place - 1),
                seeds.mean(),
                0.25,
                color=curve_colour(place),
                label=told if not across else None,
            )
            right.plot([across + 0.27 * (place - 1)] * len(seeds), seeds, "k.", markersize=3)
    right.set_xticks(
        range(len(STAGES) + len(SMALL)),
        [stage.replace("_", " " if is_narrow() else "\n") for stage in (*STAGES, *SMALL)],
        fontsize=8,
        rotation=90 if is_narrow() else 0,
    )
    for axes in (left, right):
        axes.set_ylim(0.0, 1.05)
    legend(left, "lower right")
    figure.legend(
        *right.get_legend_handles_labels(),
        loc="outside lower center",
        ncols=1 if is_narrow() else 3,
        frameon=False,
        labelcolor=words()["color"],
        fontsize=9,
    )
    return figure
