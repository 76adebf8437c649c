"""`rlbook recipe`: several trainings in order, each from what the earlier ones have made, with a
table before and after."""

from __future__ import annotations

import contextlib
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tyro.conf import Positional

from rlbook.cli.options import Flag, Folder, Number, Word, integer, parse, word
from rlbook.cli.output import Result, align_columns, fail, fill_paragraph, note
from rlbook.cli.values import scalar
from rlbook.errors import RequestError
from rlbook.runs.interrupts import signal_of

if TYPE_CHECKING:
    from rlbook.recipes.recipe import Recipe, Stage
    from rlbook.runs.run import Run


@dataclass(frozen=True)
class RecipeOptions:
    """Train in stages: each from what the earlier ones have made, each in a folder of its own, with
    a table before and after.

    Typed again, the command skips the stages that are finished and goes on with the one that was
    interrupted, bit for bit. --STAGE.KEY VALUE changes what the recipe says of a stage, and
    --measure.NAME.KEY VALUE of what is measured.

    Examples:
      rlbook recipe rlhf
      rlbook recipe rlhf --out runs/free --ppo.kl_coef 0
      rlbook recipe beams --max-samples 64 --dry-run
    """

    # a recipe of the book, or a .yaml file; without one, the book's are listed
    name: Positional[Word] = None
    out: Folder = None  # the recipe's folder (default: runs/recipe-NAME-SEED)
    stage: Word = None  # run this stage alone
    seed: Number = None  # of every stage (default: the recipe's)
    # rows that a stage makes at most, of each stage that says max_samples
    max_samples: Number = None
    dry_run: Flag = False  # check every stage's request, print the plan, and write nothing
    json: Flag = False  # print one JSON object on standard output, and nothing else there
    allow_import: Flag = False  # let a recipe of your own import the modules that it names
    debug: Flag = False  # show the traceback of an error


def recipe(words: Sequence[str]) -> tuple[bool, Result] | int:
    """Does what the command line asks for. Returns whether JSON is wanted and what to print, or an
    exit code.

    Raises:
        RequestError: one sentence: what, which value, what is allowed.
    """
    rest, overrides = take_overrides(words)
    options = parse(RecipeOptions, rest, "rlbook recipe")
    name, seed = word(options.name), integer("seed", options.seed)
    from rlbook.recipes.recipe import Recipe
    from rlbook.recipes.recipe_file import recipes

    if name is None:
        known = recipes()
        return options.json, ({"recipes": known}, align_columns([*known.items()]))
    found = Recipe.find(
        name,
        overrides,
        seed=seed,
        max_samples=integer("max_samples", options.max_samples),
        allow_import=options.allow_import,
    )
    folder = Path(word(options.out) or f"runs/recipe-{found.name}-{found.seed}")
    if options.dry_run:
        from rlbook.recipes.run_recipe import plan_stages

        stages = plan_stages(found, folder)
        if word(options.stage) is not None:
            stages = [
                item
                for item in stages
                if item["stage"] == found.stage(str(word(options.stage))).name
            ]
        facts = {"recipe": found.name, "folder": str(folder), "seed": found.seed, "stages": stages}
        return options.json, (facts, _plan(found, folder, stages))
    from rlbook.recipes.run_recipe import run_recipe

    display = _Display()
    try:
        with contextlib.redirect_stdout(sys.stderr):  # what an environment prints is no result
            facts = run_recipe(
                found,
                folder,
                only=word(options.stage),
                on_stage=display.stage,
                on_report=display.report,
            )
    except KeyboardInterrupt as stop:
        again = shlex.join(
            ["rlbook", "recipe", *words, *([] if word(options.out) else ["--out", str(folder)])]
        )
        return fail(
            128 + signal_of(stop),
            f"interrupted in stage {display.now}; continue with: {again}",
            options.json,
        )
    finally:
        display.close()
    return options.json, (facts, _table(facts))


def take_overrides(words: Sequence[str]) -> tuple[list[str], dict[str, Any]]:
    """Splits off `--STAGE.KEY VALUE` and `--STAGE.KEY=VALUE`."""
    rest: list[str] = []
    taken: dict[str, Any] = {}
    waiting = iter(words)
    for this in waiting:
        key, equals, value = this.removeprefix("--").partition("=")
        if not this.startswith("--") or "." not in key:
            rest.append(this)
            continue
        if not equals:
            value = next(waiting, "--")
            if value.startswith("--"):
                raise RequestError(f"{this} needs a value")
        if not all(key.split(".")):
            raise RequestError(f"--STAGE.KEY names a stage and what is changed of it, got {this!r}")
        taken[key] = scalar(value)
    return rest, taken


class _Display:
    """What is said on standard error while a recipe runs."""

    def __init__(self) -> None:
        self.now, self._open = "", contextlib.ExitStack()
        self._report: Any = None

    def stage(self, stage: Stage, what: str) -> None:
        """Of `run_recipe`."""
        from rlbook.runs.progress import progress

        self.close()
        self.now = stage.name
        note(f"stage {stage.name}: {what}")
        if what in ("begins", "goes on"):
            self._report = self._open.enter_context(progress())

    def report(self, run: Run) -> None:
        """Of `run_recipe`."""
        self._report(run)

    def close(self) -> None:
        """Ends the bar of a stage."""
        self._open.close()


def _plan(recipe: Recipe, folder: Path, stages: Sequence[Mapping[str, Any]]) -> str:
    """What --dry-run prints."""
    table = [("", "stage", "does", "from", "")]
    for number, item in enumerate(stages, start=1):
        budget = "".join(f", {value:,} {name}" for name, value in item.get("budget", {}).items())
        does = str(item["what"]).rpartition(":")[2] + budget
        table.append((str(number), item["stage"], does, ", ".join(item["needs"]), item["state"]))
    measured = ", ".join(item.name.replace("_", " ") for item in recipe.measures) or "nothing"
    listed = fill_paragraph(measured, "measured  ", " " * 10)
    about = [fill_paragraph(recipe.about, "", ""), ""] if recipe.about else []
    head = [
        f"{recipe.title} (recipe {recipe.name}, seed {recipe.seed})",
        *about,
        f"folder    {folder}",
        listed,
        "",
    ]
    return "\n".join([*head, align_columns(table)])


def _table(facts: Mapping[str, Any]) -> str:
    """The stages, and what they have changed."""
    from rlbook.recipes.table import cells

    lines = [f"{facts['title']}, seed {facts['seed']}", ""]
    if facts["table"]:
        lines += [
            align_columns(
                [("stage", "measure", "before", "after", "gain"), *map(cells, facts["table"])]
            ),
            "",
        ]
        lines += ["means with half of their 95 % interval", ""]
    done = [item for item in facts["stages"] if item["finished"]]
    left = [item["stage"] for item in facts["stages"] if not item["finished"]]
    lines.append(
        f"{len(done)} of {len(facts['stages'])} stages are finished,"
        f" {sum(item['seconds'] for item in done):.0f} s"
        + (f"; to do: {', '.join(left)}" if left else "")
    )
    return "\n".join([*lines, f"folder  {facts['folder']}"])
