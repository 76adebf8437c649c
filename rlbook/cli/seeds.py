"""`rlbook train --seeds K --jobs J`: K commands that differ only in their seed, each in a process
and a folder of its own.

Each process runs the command that a reader would type for that seed, so a run is the same to the
byte as one started alone.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rlbook.checks import four_digits
from rlbook.cli.command_line import drop_options
from rlbook.cli.output import comparison_summary, fail, note, shell_command, shell_path, show
from rlbook.cli.train import Training, check_unchanged, free_folder
from rlbook.errors import RequestError
from rlbook.evaluation.comparison import Row
from rlbook.interaction.threads import cores
from rlbook.runs.processes.interrupts import signal_of
from rlbook.runs.processes.on_cluster import start_commands
from rlbook.runs.processes.side_by_side import CommandResult, reason_of_end
from rlbook.runs.request import Request
from rlbook.runs.storage.folder import CONFIG, check_free, read_config, seed_folder

Facts = dict[str, Any]
ONE_SEED = "rlbook.cli.one_seed"
"""The module whose process trains one seed."""
INTERRUPTED = (128 + signal.SIGINT, 128 + signal.SIGTERM)
"""Exit codes of a command that was stopped and can go on."""


def train_seeds(training: Training, words: Sequence[str]) -> int:
    """Trains each seed, and prints the results. Returns the exit code: 1 if one of them failed.

    Raises:
        RequestError: the request was wrong; nothing has started.
    """
    start = time.monotonic()
    folder = Path(training.resume or training.out_folder or free_folder(training, "seeds"))
    if training.resume is not None and not folder.is_dir():
        raise RequestError(f"{folder} is not a folder; start the seeds without --resume")
    seeds, commands = seed_commands(training, words, folder)
    facts: dict[int, Facts] = {}
    cluster = training.several.cluster
    jobs = min(training.several.jobs or (cores() if cluster is None else len(seeds)), len(seeds))
    note(f"training {len(seeds)} seeds, {jobs} at a time, in {folder}{cluster_note(cluster)}")

    def report(item: CommandResult) -> None:
        seed = seeds[item.index]
        facts[seed] = facts_of(item, seed, seed_folder(folder, seed))
        note(_line(facts[seed], f"{len(facts)} of {len(seeds)}"))

    if stopped := run_commands(commands, jobs, cluster, report):
        return suggest_resume(stopped, ["train", *words], folder, as_json=training.run.json)
    return _report(
        folder, [facts[seed] for seed in seeds], time.monotonic() - start, as_json=training.run.json
    )


def run_commands(
    commands: Sequence[Sequence[str]],
    jobs: int,
    cluster: str | None,
    report: Callable[[CommandResult], None],
) -> int:
    """Trains each command's seed, `jobs` at a time, and reports each that has ended. Returns 0, or
    the exit code if a signal stopped this command or one of them."""
    stopped = 0
    try:
        with contextlib.closing(start_commands(ONE_SEED, commands, jobs, cluster)) as ended:
            for item in ended:
                report(item)
                stopped = item.code if item.code in INTERRUPTED else stopped
    except KeyboardInterrupt as stop:
        return 128 + signal_of(stop)
    return stopped


def suggest_resume(code: int, words: Sequence[str], folder: Path, *, as_json: bool) -> int:
    """Says how to continue a command that trains several runs; `words` are those after `rlbook`."""
    resume = ["--resume"] if folder.is_dir() else []
    kept = drop_options(words, "--out", "--resume")
    again = shlex.join(["rlbook", *kept, "--out", shell_path(folder), *resume])
    return fail(code, f"interrupted; continue with: {again}", as_json)


def cluster_note(cluster: str | None) -> str:
    """Ends a note about what is trained."""
    return "" if cluster is None else f", on the Ray cluster at {cluster}"


def seed_commands(
    training: Training, words: Sequence[str], folder: Path
) -> tuple[list[int], list[list[str]]]:
    """The seeds and, for each, the words after `rlbook`; everything that can be checked before the
    first one starts is checked."""
    request = training.build_request()
    assert training.several.seeds is not None
    seeds = list(range(request.seed, request.seed + training.several.seeds))
    if os.path.lexists(folder / CONFIG):
        raise RequestError(f"{folder} holds a single run; choose another folder for several seeds")
    shared = drop_options(
        words, "--seeds", "--jobs", "--cluster", "--seed", "--out", "--resume", "--json"
    )
    commands = []
    for seed in seeds:
        place = seed_folder(folder, seed)
        begun = training.resume is not None and os.path.lexists(place / CONFIG)
        if begun:
            held = Request.from_yaml(read_config(place)[0], allow_import=training.run.allow_import)
            check_unchanged(
                replace(training, options=training.options | {"seed": seed}), held, place
            )
        else:
            check_free(place)
        commands.append(
            [
                "train",
                *shared,
                "--seed",
                str(seed),
                "--out",
                str(place),
                "--json",
                *(["--resume"] if begun else []),
            ]
        )
    _check_trains(request)
    return seeds, commands


def _check_trains(request: Request) -> None:
    """Raises RequestError if the environment, a named run or the data do not fit, as a run would
    before it writes anything."""
    from rlbook.runs.run import Run

    with contextlib.redirect_stdout(sys.stderr):
        Run(request).open()


def facts_of(ended: CommandResult, seed: int, folder: Path) -> Facts:
    """What a seed's command printed, with `error` if it failed."""
    try:
        facts = json.loads(ended.out)
    except ValueError:
        facts = {}
    if ended.code == 0 and "error" not in facts:
        return facts
    error = facts.get("error") or reason_of_end(ended)
    return {"seed": seed, "folder": str(folder), "error": str(error), "exit_code": ended.code}


def _line(facts: Facts, count: str) -> str:
    """A line for a seed that has finished."""
    if "error" in facts:
        return f"seed {facts['seed']} failed: {facts['error']} ({count})"
    return f"seed {facts['seed']}: {result_of(facts)} ({count})"


def result_of(facts: Facts) -> str:
    """The result of a finished run, in a few words."""
    numbers = {"return": "return", "eval_return": "greedy return"}
    parts = [
        f"{shown} {four_digits(facts[name])}"
        for name, shown in numbers.items()
        if facts.get(name) is not None
    ]
    return ", ".join([*parts, f"{facts['seconds']:.1f} s"])


def _report(folder: Path, runs: list[Facts], seconds: float, *, as_json: bool) -> int:
    """Prints the table. Returns the exit code."""
    finished = [run for run in runs if "error" not in run]
    failed = [run["seed"] for run in runs if "error" in run]
    for line in dict.fromkeys(text for run in finished for text in run["notes"]):
        note(f"note: {line}")
    row = _comparison_row([str(run["folder"]) for run in finished])
    facts: Facts = {
        "folder": str(folder),
        "seconds": round(seconds, 3),
        "runs": runs,
        "failed": failed,
    }
    lines = [f"{len(finished)} of {len(runs)} seeds, {seconds:.1f} s"]
    if row is None:
        lines.append("no episode has finished, so there are no returns to compare")
    else:
        rows, table = comparison_summary([row], mean=True)
        facts |= rows["rows"][0]
        lines += ["", table]
        lines += [
            "",
            f"  {shell_command('plot', folder)}",
            f"  {shell_command('compare', folder)}",
        ]
    error = f"seed{'s' if len(failed) > 1 else ''} {', '.join(map(str, failed))} failed"
    if failed:
        facts |= {"error": error, "exit_code": 1}
    show(as_json, (facts, "\n".join(lines)))
    return fail(1, error, as_json=False) if failed else 0


def _comparison_row(folders: list[str]) -> Row | None:
    """The comparison row of runs that differ only in the seed; None if there is none, or no episode
    has finished."""
    import rlbook

    try:
        return rlbook.compare(folders)[0]
    except RequestError:
        return None
