"""`rlbook tune`: search for hyper-parameters on some seeds, and evaluate the best on others."""

from __future__ import annotations

import dataclasses
import re
import shlex
import statistics
import sys
import time
import typing
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import arg

from rlbook.checks import four_digits, whole_number
from rlbook.cli.command_line import has_option, option
from rlbook.cli.options import Flag, Number, help_line, run_options, text
from rlbook.cli.output import (
    align_columns,
    fail,
    fill_paragraph,
    for_terminal,
    note,
    shell_path,
    show,
)
from rlbook.cli.seeds import cluster_note
from rlbook.cli.train import parse_train
from rlbook.errors import RequestError
from rlbook.interaction.threads import cores
from rlbook.runs.processes.interrupts import signal_of

if TYPE_CHECKING:
    from rlbook.recipes.tuning import Trial, Tuning
    from rlbook.recipes.tuning_plan import TuningPlan

DESCRIPTION = """\
Search for hyper-parameters: each trial trains with different values on a few seeds, and the best
is evaluated on fresh seeds that played no part in the choice. The result is a preset for rlbook
train --config. Run again, the command resumes, also with more --trials.

Examples:
  rlbook tune q_learning CliffWalking-v1 --trials 20
  rlbook tune ppo LunarLander-v3 --trials 50 --jobs 2
  rlbook tune ppo CartPole-v1 --search learning_rate clip=0.1..0.4"""
LEFT_OUT = ("resume", "schedules", "tensorboard", "track", "inspect")
"""Options of `rlbook train` that a search does not use."""
INSTEAD = {
    "out": "the search's folder (default: runs/ALGORITHM-ENV-tune)",
    "seeds": (
        "runs per trial, with consecutive seeds from --seed on; their mean is the trial's score"
        " (default: 3)"
    ),
    "jobs": "trials to run at a time (default: the number of cores)",
    "cluster": (
        "run the trials on the Ray cluster at this address, such as auto or 10.0.0.1:6379; its"
        " machines must have access to OUT"
    ),
    "seed": (
        "the first seed that trials are trained with; it also seeds the search itself (default: 0)"
    ),
    "config": (
        "read the algorithm, environment and fixed settings from a YAML file such as a run's"
        " config.yaml; the command line takes precedence"
    ),
}


@dataclass(frozen=True)
class TuneOptions:
    """The options of `rlbook tune` besides those of its runs."""

    trials: Number = None  # total number of trials (default: 50)
    # the hyper-parameters to vary, each over a range derived from its default, or over your own:
    # NAME=LOW..HIGH or NAME=A/B/C (default: the algorithm's usual ones)
    search: Annotated[Any, text("NAME", "*"), arg(help_behavior_hint="")] = None
    # runs that evaluate the best trial, with seeds from the next multiple of 10 on (default: 5)
    fresh_seeds: Number = None
    no_pruning: Flag = False  # let every trial finish, even if it is below the median


def tune_options() -> type:
    """The options of a search, and those of its runs."""
    from rlbook.cli.explain import comments

    kinds, meanings = typing.get_type_hints(TuneOptions, include_extras=True), comments(TuneOptions)
    fields: list[Any] = [
        (item.name, Annotated[kinds[item.name], help_line(meanings[item.name])], item.default)
        for item in dataclasses.fields(TuneOptions)
    ]
    for name, kind, default in run_options().values():
        if name in INSTEAD:
            kind = Annotated[kind, help_line(INSTEAD[name], "")]
        if name not in LEFT_OUT:
            fields.append((name, kind, default))
    return dataclasses.make_dataclass("TuneRunOptions", fields, frozen=True)


def run_tuning(words: Sequence[str]) -> int:
    """Searches, evaluates and prints. Returns the exit code.

    Raises:
        RequestError: the request was wrong; nothing has started.
        TrainingError: no trial was complete.
    """
    start, shared = time.monotonic(), _env_before_search(words)
    if has_option(shared, "--resume"):
        raise RequestError("tune takes no --resume: the same command, run again, continues")
    if option(shared, "--seeds") is None:
        shared += ["--seeds", "3"]
    training = parse_train(shared, command="tune", options=tune_options(), description=DESCRIPTION)
    from rlbook.recipes.tuning import FRESH_SEEDS, TRIALS, plan_folder, search_hyperparameters
    from rlbook.recipes.tuning_plan import TuningPlan

    run, several = training.run, training.several
    trials = whole_number("trials", TRIALS if run.trials is None else run.trials, 1)
    fresh = whole_number(
        "fresh_seeds", FRESH_SEEDS if run.fresh_seeds is None else run.fresh_seeds, 0
    )
    assert several.seeds is not None
    plan = TuningPlan.build(
        str(training.algorithm),
        str(training.env),
        training.options | training.hyperparameters,
        search=_search_words(run.search),
        seeds=several.seeds,
        prune=not run.no_pruning,
        env_kwargs=training.env_kwargs,
        allow_import=run.allow_import,
    )
    folder = plan_folder(plan) if training.out_folder is None else training.out_folder
    jobs = several.jobs or (cores() if several.cluster is None else trials)

    def report(trial: Trial, ended: int) -> None:
        line = _line(plan, trial, f"{ended} of {trials}")
        note(fill_paragraph(line, "", "  ") if sys.stderr.isatty() else line)

    note(
        f"{trials} trials of {len(plan.seeds)} runs, {min(jobs, trials)} at a time, in"
        f" {folder}{cluster_note(several.cluster)}"
    )
    for name, found in plan.space.items():
        note(f"  {name}: {found}")
    try:
        tuning = search_hyperparameters(
            plan,
            folder,
            trials=trials,
            fresh_seeds=fresh,
            jobs=jobs,
            cluster=several.cluster,
            allow_import=run.allow_import,
            on_trial=report,
        )
    except KeyboardInterrupt as stop:
        again = shlex.join(["rlbook", "tune", *words])
        return fail(128 + signal_of(stop), f"interrupted; continue with: {again}", run.json)
    show(run.json, _summary(plan, tuning, time.monotonic() - start))
    return 0


def _env_before_search(words: Sequence[str]) -> list[str]:
    """`ppo --search clip CartPole-v1` becomes `ppo CartPole-v1 --search clip`: an environment's id
    is not a hyper-parameter."""
    ordered: list[str] = []
    search: int | None = None  # where --search stands, while its names follow
    for word in words:
        if word.startswith("-"):
            search = len(ordered) if word == "--search" else None
        if search is not None and re.fullmatch(r"[^=]+-v\d+", word):
            ordered.insert(search, word)
            search += 1
        else:
            ordered.append(word)
    return ordered


def _search_words(option: Any) -> list[str]:
    """The names given to --search."""
    if option is None:
        return []
    words = [name for word in option.words for name in word.split() if name]
    if not words:
        raise RequestError("--search needs the names of hyper-parameters, such as learning_rate")
    return words


def _line(plan: TuningPlan, trial: Trial, count: str) -> str:
    """A line for a trial that has finished."""
    values = ", ".join(
        f"{name} {trial.hyperparameters[name]}"
        for name in plan.space
        if name in trial.hyperparameters
    )
    said = trial.state if trial.score is None else four_digits(trial.score)
    if trial.error is not None:
        said = f"stopped: {trial.error}"
    elif trial.state == "pruned":
        said = f"pruned at {trial.share:.0%}"
    return f"trial {trial.number}: {said} ({count}): {values}"


def _summary(plan: TuningPlan, tuning: Tuning, seconds: float) -> tuple[dict[str, Any], str]:
    from rlbook.recipes.tuning import seeds_in_words

    best, first = tuning.best, tuning.first
    states = [trial.state for trial in tuning.trials]
    counts = {state: states.count(state) for state in ("complete", "pruned", "interrupted")}
    facts: dict[str, Any] = {
        "algorithm": plan.algorithm,
        "env": plan.env,
        "folder": str(tuning.folder),
        "preset": str(tuning.preset),
        "seconds": round(seconds, 3),
        "trials": {"total": len(states), **counts},
        "seeds": tuning.seeds,
        "fresh_seeds": tuning.fresh_seeds,
        "hyperparameters": best.hyperparameters,
        "best": _facts_of(best, tuning),
        "first": None if first is None else _facts_of(first, tuning),
    }
    said = ", ".join(f"{count} {state}" for state, count in counts.items() if count)
    lines = [f"{plan.algorithm} on {plan.env}: {len(states)} trials ({said}), {seconds:.1f} s", ""]
    lines += [f"  {name} {best.hyperparameters[name]}" for name in plan.space]
    lines += ["", _table(tuning)]
    if tuning.fresh:
        lines += [
            "",
            fill_paragraph(
                "The best trial was chosen by its mean return on the tuning"
                f" {seeds_in_words(tuning.seeds)}, which is therefore too high on average; report"
                f" that on the fresh {seeds_in_words(tuning.fresh_seeds)}.",
                "",
                "",
            ),
        ]
    folders = [f"{shell_path(tuning.folder)}/trial-{number}" for number in tuning.fresh]
    commands = [["train", "--config", shell_path(tuning.preset)]]
    commands += [["compare", *folders]] if folders else []
    lines = [*map(for_terminal, "\n".join(lines).splitlines()), ""]
    return facts, "\n".join([*lines, *(f"  {shlex.join(['rlbook', *item])}" for item in commands)])


def _facts_of(trial: Trial, tuning: Tuning) -> dict[str, Any]:
    return {
        "trial": trial.number,
        "hyperparameters": trial.hyperparameters,
        "score": trial.score,
        "scores": trial.scores,
        "fresh_scores": tuning.fresh.get(trial.number, []),
    }


def _table(tuning: Tuning) -> str:
    """The best trial beside the first: on the tuning seeds, and on the fresh ones."""
    from rlbook.evaluation.comparison import mean_interval

    chosen = {"the best": tuning.best}
    if tuning.first is not None and tuning.first != tuning.best:
        chosen["without a search"] = tuning.first
    rows = [["trial", "tuning seeds", *(["fresh seeds", "95 % interval"] if tuning.fresh else [])]]
    for name, trial in chosen.items():
        row = [f"{trial.number}, {name}", four_digits(trial.score or 0.0)]
        if tuning.fresh:
            fresh = tuning.fresh[trial.number]
            low, high = mean_interval(fresh)
            row += [
                four_digits(statistics.fmean(fresh)),
                f"{four_digits(low)} to {four_digits(high)}",
            ]
        rows.append(row)
    return align_columns(rows)
