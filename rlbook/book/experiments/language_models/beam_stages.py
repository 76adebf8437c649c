"""The effect of each stage of beam post-training: the recipe `beams` for several seeds, on held-out
queries.

Sampled is what the policy earns when it draws its choices, greedy when it takes the likeliest; the
KL is that to the cloned policy, exact in the states that the policy itself reaches. Beside RCE
stands what as many passes of cloning all beams alike add at the same step size.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from rlbook.book.experiments.language_models.beams import correctness_without_shots, scores
from rlbook.llm.tasks.retrieval import RetrievalTask
from rlbook.llm.tasks.task import build_task

STAGES = ("sft", "rce", "grpo", "online")
NAMES = ("SFT", "RCE", "GRPO, recorded", "GRPO, online")
MEASURES = ("sampled_score", "greedy_score", "answered_rightly", "kl_to_sft")


class BeamStageMeans(NamedTuple):
    """Means over the held-out queries."""

    after: NDArray[np.float64]  # [K seeds, 4 stages, 4 measures]; the KL of SFT to itself is 0
    alike: NDArray[np.float64]  # [K], the sampled score after RCE's passes with equal weights
    # [K], the mean score of the best recorded beam of a training query
    best_beam: NDArray[np.float64]
    optimum: float  # the mean score of the best of all pairs


def run_one_seed(folder: Path, seed: int) -> NDArray[np.float64]:
    """Runs the recipe with one seed, or what is left of it in this folder: [4 stages, 4
    measures]."""
    from rlbook.recipes.recipe import Recipe
    from rlbook.recipes.run_recipe import run_recipe

    table = run_recipe(Recipe.find("beams", seed=seed), folder)["table"]
    means = {
        (row["stage"], row["measure"]): row["after"]["mean"]
        for row in table
        if row["after"] is not None
    }
    return np.array([[means.get((stage, name), 0.0) for name in MEASURES] for stage in STAGES])


def unweighted_score(folder: Path, seed: int) -> float:
    """The sampled score after RCE at a temperature that weights all beams equally, which is plain
    cloning."""
    import rlbook
    from rlbook.recipes.recipe import Recipe

    arguments = Recipe.find("beams", seed=seed).stage("rce").arguments
    kept = {
        name: arguments[name]
        for name in ("env_kwargs", "passes", "batch_size", "learning_rate", "eval_every")
    }
    run = rlbook.train(
        "rce",
        "Retrieval-v0",
        data=folder / "beams" / "data.jsonl",
        start=folder / "sft",
        seed=seed,
        score_temperature=1e6,
        **kept,
    )
    return float(scores(run).mean())


def run(seeds: int = 3, first: int = 0, home: str | Path | None = None) -> BeamStageMeans:
    """`run_one_seed` for the seeds `first`, `first` + 1, …; `home` keeps the folders, and stages finished
    there are not repeated."""
    with tempfile.TemporaryDirectory() as scratch:
        folders = {
            seed: Path(home or scratch) / f"seed-{seed}" for seed in range(first, first + seeds)
        }
        after = np.stack([run_one_seed(folder, seed) for seed, folder in folders.items()])
        alike = np.array([unweighted_score(folder, seed) for seed, folder in folders.items()])
        best = np.array(
            [_best_beam(folder / "beams" / "data.jsonl") for folder in folders.values()]
        )
    task = build_task(RetrievalTask)
    return BeamStageMeans(
        after,
        alike,
        best,
        float(np.mean([task.optimum(prompt) for prompt in task.held_out])),  # type: ignore[attr-defined]
    )


def _best_beam(path: Path) -> float:
    return float(
        np.mean([max(json.loads(line)["score_list"]) for line in path.read_text().splitlines()])
    )


def measurements(result: BeamStageMeans) -> dict[str, float]:
    """The numbers on the page: means over the runs, and each run's gain over SFT and KL to it."""
    sampled, greedy, right, kl = result.after.mean(0).T
    gain = result.after[:, 1:, 0] - result.after[:, :1, 0]  # [K, 3]
    numbers: dict[str, float] = {}
    for k, name in enumerate(NAMES):
        numbers |= {
            f"{name}: sampled": sampled[k],
            f"{name}: greedy": greedy[k],
            f"{name}: answered correctly": right[k],
        }
        if k:
            numbers |= {f"{name}: least gain of a seed": gain[:, k - 1].min(), f"{name}: KL": kl[k]}
            numbers |= {
                f"{name}: gain, run {number}": value
                for number, value in enumerate(gain[:, k - 1], start=1)
            }
            numbers |= {
                f"{name}: KL, run {number}": value
                for number, value in enumerate(result.after[:, k, 3], start=1)
            }
    extra = {
        "RCE's passes with equal weights: sampled": result.alike.mean(),
        "best recorded beam": result.best_beam.mean(),
        "optimum": result.optimum,
        "without shots": correctness_without_shots().mean(),
    }
    return {name: float(value) for name, value in (numbers | extra).items()}


def draw(result: BeamStageMeans) -> Figure:
    """The score after each stage, sampled and greedy; points are seeds, bars their means."""
    from rlbook.book.figures.axes import curve_colour, label_axes
    from rlbook.plots.figure import new_figure

    figure = new_figure(7.0, 3.4)
    axes: Any = figure.subplots()
    place = np.arange(len(STAGES))
    for k, (name, shift) in enumerate((("sampled", -0.18), ("greedy", 0.18))):
        values = result.after[:, :, k]  # [K, 4]
        axes.bar(
            place + shift, values.mean(0), width=0.34, color=curve_colour(k), alpha=0.6, label=name
        )
        axes.plot(
            np.tile(place + shift, (len(values), 1)).T, values.T, ".", color="black", markersize=4
        )
    axes.axhline(result.optimum, color="black", linewidth=1.0)
    axes.axhline(result.best_beam.mean(), color="black", linewidth=1.0, linestyle=":")
    axes.text(-0.45, result.optimum, "optimum", va="bottom", fontsize=8)
    axes.text(-0.45, result.best_beam.mean(), "best recorded beam", va="bottom", fontsize=8)
    lines = [name.replace(", ", ",\n") for name in NAMES]
    axes.set(xticks=place, xticklabels=lines, ylim=(0.0, 1.3 * result.optimum))
    label_axes(axes, "", "mean score of held-out queries")
    axes.legend(loc="upper right", ncols=2, fontsize=8)
    return figure
