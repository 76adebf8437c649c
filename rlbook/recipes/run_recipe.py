"""Runs a recipe: each stage in its own folder, resumed where it was stopped, and measured before
and after.

RECIPE/recipe.json        what was asked; another recipe is refused in this folder
RECIPE/STAGE/             the folder of the stage's run or model, or of its data file
RECIPE/done/STAGE.json    what was measured, and whether the stage is finished
RECIPE/table.json         the table of all that has been measured so far
"""

from __future__ import annotations

import inspect
import json
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import rlbook
from rlbook.checks import did_you_mean
from rlbook.errors import (
    RequestError,
    TrainingError,
    WrongValue,
    request_errors,
    system_reason,
)
from rlbook.evaluation.samples import TOTAL, SampledEvaluation
from rlbook.recipes.recipe import Measure, Recipe, Stage
from rlbook.recipes.table import rows
from rlbook.runs.callbacks import Callbacks
from rlbook.runs.exporting import export
from rlbook.runs.request import Request
from rlbook.runs.run import SECONDS, SECONDS_LIMIT, Run
from rlbook.runs.storage.files import CheckpointError, read_file, replace_file
from rlbook.runs.storage.folder import CONFIG, check_free, lock_folder, report_disk_errors
from rlbook.runs.storage.plain_yaml import config_of, parse_yaml

RECIPE, TABLE, DONE = "recipe.json", "table.json", "done"
LIMIT = 100_000_000  # bytes of what the folder's JSON files hold at most
MeasuredValues = dict[str, list[float]]


@dataclass
class StageOutcome:
    """The known results of a stage."""

    finished: bool = False
    seconds: float = 0.0
    facts: dict[str, Any] = field(default_factory=dict)
    """A function's report about its data, or the last line of a run's log."""
    before: MeasuredValues | None = None
    after: MeasuredValues | None = None


def plan_stages(recipe: Recipe, folder: Path) -> list[dict[str, Any]]:
    """Every stage and what it would do, in order; nothing is written.

    Raises:
        RequestError: a stage's request is wrong, or the folder holds another recipe.
    """
    _check_held(recipe, folder)
    recipe.check(folder)
    return [_describe_stage(recipe, stage, folder) for stage in recipe.stages]


def run_recipe(
    recipe: Recipe,
    folder: str | Path,
    *,
    only: str | None = None,
    on_stage: Callable[[Stage, str], None] = lambda stage, what: None,
    on_report: Callable[[Run], None] | None = None,
) -> dict[str, Any]:
    """Runs the unfinished stages of a recipe.

    Args:
        recipe: a checked recipe.
        folder: its folder; one that holds another recipe is refused.
        only: the stage to run; None is all of them.
        on_stage: is told "skipped", "begins", "goes on" or "finished" of each stage.
        on_report: as in `rlbook.train`.

    Returns:
        Facts: the recipe, its folder, each stage, and the table; also written as table.json.

    Raises:
        RequestError: a wrong request, an earlier stage that `only` needs, or another process in
            this folder.
        TrainingError: a stage failed; what it has written stays.
        Interrupted: SIGINT or SIGTERM; the next call goes on from there.
    """
    folder = Path(folder)
    chosen = [recipe.stage(only)] if only is not None else list(recipe.stages)
    _check_held(recipe, folder)
    recipe.check(folder)
    _check_ready(recipe, chosen[0], folder)  # before anything is written
    try:
        (folder / DONE).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RequestError(f"cannot write to {folder}: {system_reason(error)}") from error
    with lock_folder(folder):
        _check_held(recipe, folder)
        with report_disk_errors(folder):
            _write(
                folder / RECIPE,
                {"recipe": recipe.name, "digest": recipe.digest, "tree": recipe.tree},
            )
        for stage in chosen:
            _check_ready(recipe, stage, folder)
            if _outcome(folder, stage).finished:
                on_stage(stage, "skipped")
                continue
            on_stage(stage, "goes on" if (folder / stage.name / CONFIG).exists() else "begins")
            _do(recipe, stage, folder, on_report)
            facts = _facts(recipe, folder)
            with report_disk_errors(folder):
                _write(folder / TABLE, facts)
            on_stage(stage, "finished")
        return _facts(recipe, folder)


def _do(
    recipe: Recipe, stage: Stage, folder: Path, on_report: Callable[[Run], None] | None
) -> None:
    """Runs one stage to its end."""
    found, start = _outcome(folder, stage), time.perf_counter()
    try:
        if stage.kind == "train":
            _train(recipe, stage, folder, found, on_report)
        else:
            with report_disk_errors(folder):
                if (folder / stage.name).exists():  # what an interrupted one has left
                    shutil.rmtree(folder / stage.name)
                found.facts = (
                    _make(recipe, stage, folder)
                    if stage.kind == "make"
                    else _export(recipe, stage, folder)
                )
            found.seconds = round(time.perf_counter() - start, 3)
    except TrainingError as error:
        raise TrainingError(f"stage {stage.name}: {error}") from error
    except (RequestError, CheckpointError) as error:
        raise RequestError(
            str(error) if str(error).startswith("stage ") else f"stage {stage.name}: {error}"
        ) from error
    found.finished = True
    _note(folder, stage, found)


def _train(
    recipe: Recipe,
    stage: Stage,
    folder: Path,
    outcome: StageOutcome,
    on_report: Callable[[Run], None] | None,
) -> None:
    """Trains a run, new or continued, and measures it before and after."""
    place, request = stage.place(folder), recipe.request(stage, folder)
    if (place / CONFIG).exists():
        _check_same(place, request)
        run = rlbook.load(place, allow_import=recipe.trusted).resume(
            on_report=on_report, quiet=True
        )
    else:
        check_free(place)
        run = Run(request).open()
        outcome.before = _measure(recipe, stage, run, folder)
        _note(folder, stage, outcome)
        run.claim(place)
        run.complete(Callbacks.collect(on_report=on_report))
    outcome.after = _measure(recipe, stage, run, folder)
    outcome.facts, outcome.seconds = run.metrics[-1] if run.metrics else {}, _seconds(place)


def _make(recipe: Recipe, stage: Stage, folder: Path) -> dict[str, Any]:
    """Calls a function that writes the stage's data file."""
    place = stage.place(folder)
    place.parent.mkdir()
    arguments = {
        key: value for key, value in stage.arguments.items() if key not in ("file", "seed")
    }
    function, seed = (
        recipe.function(stage.what, f"stage {stage.name}"),
        stage.arguments.get("seed", recipe.seed),
    )
    with request_errors(f"stage {stage.name}: ", kinds=(WrongValue,)):
        facts = function(place, seed=seed, **recipe.fill_places(arguments, folder))
    if not place.exists():
        raise RequestError(f"{stage.what} has not written {place}")
    return dict(facts or {})


def _export(recipe: Recipe, stage: Stage, folder: Path) -> dict[str, Any]:
    source = Path(recipe.fill_places(stage.what, folder))
    return export(source, stage.place(folder), allow_import=recipe.trusted, **stage.arguments)


def _measure(recipe: Recipe, stage: Stage, run: Run, folder: Path) -> MeasuredValues:
    """Each measurement of a run, one number per episode or item."""
    return {
        item.name: _values(recipe, item, run, folder)
        for item in recipe.measurements(stage, plays=run.agent.plays())
    }


def _values(recipe: Recipe, measure: Measure, run: Run, folder: Path) -> list[float]:
    arguments, where = recipe.fill_places(measure.arguments, folder), f"measure {measure.name}"
    try:
        if measure.call is not None:
            found: Any = recipe.function(measure.call, where)(run, **arguments)
        else:
            trust = {"allow_import": True} if recipe.trusted and "env" in arguments else {}
            result = rlbook.evaluate(run, **{"seed": 0} | arguments | trust)
            found = _evaluation_array(result, measure.value)
    except (RequestError, WrongValue) as error:
        raise RequestError(f"{where}: {error}") from None
    return np.asarray(found, dtype=np.float64).ravel().tolist()


def _evaluation_array(result: rlbook.Evaluation, name: str) -> object:
    """An array of an evaluation by its name; if a prompt has several completions, their mean."""
    named = (
        result.prompt_means()
        if isinstance(result, SampledEvaluation)
        else {
            "returns": result.mean_by_prompt(result.returns),
            "lengths": result.mean_by_prompt(result.lengths),
        }
    )
    if name == "returns" and TOTAL in named:
        return named[TOTAL]
    if name not in named:
        hint = did_you_mean(name, named)
        raise RequestError(f"an evaluation has no {name!r}{hint} (it has: {', '.join(named)})")
    return named[name]


def _check_same(place: Path, request: Request) -> None:
    """Raises RequestError if the run in a stage's folder was not started by this request; nothing
    that it names is imported."""
    held, asked = config_of(place), parse_yaml(request.as_yaml())
    for key in sorted((held.keys() | asked.keys()) - {"digests"}):
        if held.get(key) != asked.get(key):
            raise RequestError(
                f"the run in {place} was started with {key} {held.get(key)}, but the recipe says "
                f"{asked.get(key)}"
            )


def _check_held(recipe: Recipe, folder: Path) -> None:
    """Raises RequestError if the folder was started with another recipe."""
    held = _read_json(folder / RECIPE)
    if held is None:
        if (
            folder.is_dir()
            and any(item.name != ".lock" for item in folder.iterdir())
            and not (folder / DONE).is_dir()
        ):
            raise RequestError(f"{folder} is not empty and holds no recipe; choose another folder")
        return
    if held.get("digest") != recipe.digest:
        raise RequestError(
            f"{folder} was started with another recipe: "
            f"{_difference(held.get('tree'), recipe.tree)}; choose another --out"
        )


def _difference(stored: object, requested: object, way: str = "") -> str:
    """The first place where two recipes differ, in words."""
    if isinstance(stored, dict) and isinstance(requested, dict):
        for key in dict.fromkeys([*stored, *requested]):
            if stored.get(key) != requested.get(key):
                return _difference(
                    stored.get(key),
                    requested.get(key),
                    f"{way}.{key}".removeprefix(".").removeprefix("stages."),
                )
        return "its stages are in a different order"
    return f"{way or 'it'} was {stored!r} there, but is {requested!r} now"


def _check_ready(recipe: Recipe, stage: Stage, folder: Path) -> None:
    """Raises RequestError if a stage that this one needs is not finished."""
    wanted = [*stage.required_stages, *_needed_to_measure(recipe, stage)]
    missing = [
        name for name in dict.fromkeys(wanted) if not _outcome(folder, recipe.stage(name)).finished
    ]
    if missing:
        raise RequestError(
            f"stage {stage.name} needs {' and '.join(missing)}, not finished in {folder}; run"
            f" {missing[0]} first: the same command with --stage {missing[0]}"
        )


def _needed_to_measure(recipe: Recipe, stage: Stage) -> Sequence[str]:
    """The stages that the measurements of this one refer to."""
    asked = [
        item for item in recipe.measures if item.stages is not None and stage.name in item.stages
    ]
    return [
        name
        for item in asked
        for name in Stage(stage.name, "train", "", item.arguments, "").required_stages
        if name != stage.name
    ]


def _describe_stage(recipe: Recipe, stage: Stage, folder: Path) -> dict[str, Any]:
    """The entry of a stage in the plan."""
    found = _outcome(folder, stage)
    begun = (folder / stage.name / CONFIG).exists()
    facts: dict[str, Any] = {
        "stage": stage.name,
        "kind": stage.kind,
        "about": stage.about,
        "needs": list(stage.required_stages),
    }
    facts["state"] = "finished" if found.finished else "begun" if begun else "to do"
    if stage.kind != "train":
        return facts | {
            "what": stage.what
            if stage.kind == "make"
            else f"the model of {stage.required_stages[0]}"
        }
    request = recipe.request(stage, folder)
    budget = {name: value for name, value in vars(request.budget).items() if value is not None}
    return facts | {
        "what": f"{request.algorithm} on {request.recipe.name}",
        "budget": budget,
        "seed": request.seed,
    }


def _facts(recipe: Recipe, folder: Path) -> dict[str, Any]:
    """All results of a recipe so far."""
    outcomes = {stage.name: _outcome(folder, stage) for stage in recipe.stages}
    stages = [
        {
            "stage": stage.name,
            "kind": stage.kind,
            "finished": found.finished,
            "seconds": found.seconds,
            "facts": found.facts,
        }
        for stage in recipe.stages
        for found in [outcomes[stage.name]]
    ]
    table = rows(
        [(name, found.before or {}, found.after or {}) for name, found in outcomes.items()]
    )
    return {
        "recipe": recipe.name,
        "title": recipe.title,
        "seed": recipe.seed,
        "folder": str(folder),
        "stages": stages,
        "table": table,
    }


def _outcome(folder: Path, stage: Stage) -> StageOutcome:
    held = _read_json(folder / DONE / f"{stage.name}.json") or {}
    known = inspect.signature(StageOutcome).parameters
    return StageOutcome(**{key: value for key, value in held.items() if key in known})


def _note(folder: Path, stage: Stage, outcome: StageOutcome) -> None:
    with report_disk_errors(folder):
        _write(folder / DONE / f"{stage.name}.json", vars(outcome))


def _seconds(place: Path) -> float:
    """The time that a run took, by activity, summed over all times that it was resumed."""
    try:
        return round(sum(json.loads(read_file(place / SECONDS, SECONDS_LIMIT)).values()), 3)
    except (OSError, ValueError, CheckpointError):
        return 0.0


def _write(path: Path, content: dict[str, Any]) -> None:
    replace_file(path, json.dumps(content, indent=1, default=float).encode() + b"\n")


def _read_json(path: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(read_file(path, LIMIT))
    except FileNotFoundError:
        return None
    except (ValueError, CheckpointError) as error:
        raise RequestError(f"{path} is damaged: {error}") from None
    if not isinstance(found, dict):
        raise RequestError(f"{path} is damaged: it holds no mapping")
    return found
