"""`rlbook ablate`: an algorithm as it is, and with each of several parts switched off in turn, over
several seeds."""

from __future__ import annotations

import dataclasses
import shlex
import time
import types
import typing
from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any

from rlbook.cli.command_line import drop_options, option
from rlbook.cli.explain import default_text
from rlbook.cli.options import Ablate, parse
from rlbook.cli.output import comparison_summary, fail, note, show
from rlbook.cli.seeds import (
    Facts,
    cluster_note,
    facts_of,
    result_of,
    run_commands,
    seed_commands,
    suggest_resume,
)
from rlbook.cli.train import Training, command_of, free_folder, parse_train
from rlbook.cli.values import OptionText, convert, flag
from rlbook.errors import RequestError
from rlbook.hyperparameters import Hyperparameters, drop_idle, field_values
from rlbook.interaction.threads import cores
from rlbook.registry import ALGORITHMS, ALIASES
from rlbook.runs.other_libraries import unknown_hyperparameter
from rlbook.runs.processes.side_by_side import CommandResult
from rlbook.runs.storage.folder import seed_folder

SEEDS = 3
WHOLE = "whole"


def run_ablation(words: Sequence[str]) -> int:
    """Trains, compares and plots. Returns the exit code: 1 if a run failed.

    Raises:
        RequestError: the request was wrong; nothing has started.
    """
    if not words or {"-h", "--help"} & set(words):
        parse(Ablate, ["--help"], "rlbook ablate")
    start, off = time.monotonic(), option(list(words), "--off")
    shared = drop_options(words, "--off")
    if off is None:
        raise RequestError(
            "ablate needs --off NAME,NAME,..., such as: rlbook ablate ppo CartPole-v1 --off"
            " normalize_advantage"
        )
    after = list(words)[list(words).index("--off") + 2 :] if "--off" in words else []
    apart = list(takewhile(lambda text: not text.startswith("-"), after))
    if apart and apart[0] not in {*ALGORITHMS, *ALIASES} and ":" not in apart[0]:
        joined = ",".join([off.strip(","), *(text.strip(",") for text in apart)])
        raise RequestError(f"--off takes names with commas between them: --off {joined}")
    if option(shared, "--seeds") is None:
        shared += ["--seeds", str(SEEDS)]
    called = f"ablate --off {shlex.quote(off)}"
    training = parse_train(shared, command=called, helped_by="train")
    variants: list[tuple[str, list[str]]] = [(WHOLE, []), *_variants(training, off)]
    folder = Path(training.resume or training.out_folder or free_folder(training, "ablation"))
    if training.resume is not None and not folder.is_dir():
        raise RequestError(f"{folder} is not a folder; start the ablation without --resume")
    places: list[tuple[str, int, Path]] = []
    commands: list[list[str]] = []
    for name, added in variants:
        place, line = folder / name, [*shared, *added]
        seeds, runs = seed_commands(parse_train(line), line, place)
        places += [(name, seed, seed_folder(place, seed)) for seed in seeds]
        commands += runs
    cluster = training.several.cluster
    jobs = training.several.jobs or (cores() if cluster is None else len(commands))
    jobs = min(jobs, len(commands))
    note(
        f"training {len(variants)} variants, {len(commands)} runs, {jobs} at a time, in"
        f" {folder}{cluster_note(cluster)}"
    )
    facts: dict[int, Facts] = {}

    def report(item: CommandResult) -> None:
        name, seed, place = places[item.index]
        facts[item.index] = found = facts_of(item, seed, place)
        result = found.get("error") or result_of(found)
        note(f"{name}, seed {seed}: {result} ({len(facts)} of {len(commands)})")

    if stopped := run_commands(commands, jobs, cluster, report):
        return suggest_resume(stopped, ["ablate", *words], folder, as_json=training.run.json)
    failed = [places[index][:2] for index in sorted(facts) if "error" in facts[index]]
    finished = [str(places[index][2]) for index in sorted(facts) if "error" not in facts[index]]
    return _report(folder, finished, failed, time.monotonic() - start, as_json=training.run.json)


def _report(
    folder: Path,
    finished: list[str],
    failed: list[tuple[str, int]],
    seconds: float,
    *,
    as_json: bool,
) -> int:
    from rlbook.evaluation.comparison import compare, improvements, labels
    from rlbook.plots import plot_curves

    facts: dict[str, Any] = {"folder": str(folder), "seconds": round(seconds, 3), "written": []}
    facts["failed"], text = [f"{name}/seed-{seed}" for name, seed in failed], "no run has finished"
    if finished:
        rows = compare(finished)
        whole = labels([(row.world, row.algorithm, row.settings) for row in rows])[0]
        table, text = comparison_summary(
            rows, [item for item in improvements(rows) if item.better == whole]
        )
        facts |= table
        try:
            facts["written"] = [str(folder / "ablation.png")]
            plot_curves(finished, facts["written"][0])
        except RequestError as error:
            facts["written"] = []
            note(f"note: the curves were not drawn: {error}")
        text += "".join(f"\n\n  {path}" for path in facts["written"])
    if failed:
        facts |= {"error": f"{', '.join(facts['failed'])} failed", "exit_code": 1}
    show(as_json, (facts, text))
    return fail(1, facts["error"], as_json=False) if failed else 0


def _variants(training: Training, off: str) -> list[tuple[str, list[str]]]:
    """The variants requested by --off: for each part switched off its folder, and the options added
    to the command line. Raises RequestError if a part is unknown, or is off already."""
    request = training.build_request()
    (kinds, _), variants = command_of(training.algorithm), []
    for part in filter(None, off.split(",")):
        name, equals, given = part.partition("=")
        name = name.replace("-", "_")
        if name not in kinds:
            raise RequestError(f"--off: {unknown_hyperparameter(request.agent, name)}")
        held = getattr(request.config, name)
        value = given if equals else _off_value(name, held, kinds[name])
        off_value = convert(flag(name), OptionText((value,)), kinds[name])
        if off_value == held:
            raise RequestError(
                f"--off: {name} is already {value} on {request.recipe.name}; name another part"
            )
        added = [f"{flag(name)}={value}", *_idle_options(request.config, name, off_value)]
        variants.append((f"{name}={value}".replace("/", "-"), added))
    if not variants or len({name for name, _ in variants}) < len(variants):
        raise RequestError(f"--off must name hyper-parameters, each once, got {off!r}")
    return variants


def _idle_options(config: Hyperparameters, name: str, value: object) -> list[str]:
    """Options that set what nothing reads where `name` has this value back to its default."""
    settings = {**field_values(config), name: value}
    read = drop_idle(type(config), settings, keep=(name,))
    return [
        f"{flag(item.name)}={default_text(item)}"
        for item in dataclasses.fields(config)
        if item.name not in read
    ]


def _off_value(name: str, held: object, kind: object) -> str:
    """The value of a hyper-parameter that is switched off."""
    if isinstance(held, bool):
        return "false"
    if types.NoneType in typing.get_args(kind):
        return "none"
    if isinstance(held, str | tuple):
        raise RequestError(
            f"--off: {name} is {held!r}, which cannot be switched off; give a value: --off "
            f"{name}=VALUE"
        )
    return "0"
