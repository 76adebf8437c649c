"""The command line of `rlbook record`: the policy, the environment, the number of episodes, and the
data set to write."""

from __future__ import annotations

import contextlib
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tyro.conf import Positional

from rlbook.checks import four_digits
from rlbook.cli.command_line import take_env_arguments
from rlbook.cli.options import (
    Checkpoint,
    Decimal,
    EnvironmentOptions,
    Flag,
    Folder,
    Number,
    Word,
    command_options,
    parse,
)
from rlbook.cli.output import Result, env_options, shell_path
from rlbook.errors import RequestError


@command_options
class Record(EnvironmentOptions):
    """Play episodes and write them as a Minari data set, from which
    `rlbook train behavior_cloning ENV --data DATA` can learn.

    Actions come from the agent of a run's FOLDER, or from --policy in an environment; --env.KEY
    VALUE passes an argument to the environment. --schema verl writes the examples of a token
    environment instead, as rows that verl and --env.data of Chat-v0 can read.

    Examples:
      rlbook record Maze-v0 --policy optimal --episodes 500 --out walks
      rlbook record Countdown-v0 --schema verl --env.split held_out --out test.parquet
    """

    source: Positional[Word]  # a run's folder, or an environment id
    # the data set to write: a new folder; for rows a new file, .parquet or JSON Lines
    out: Folder = None
    episodes: Number = None  # number of episodes (default: 100), or of examples (default: all)
    # write the environment's examples instead of episodes, as rows of this schema: verl
    schema: Word = None
    # policy in an environment: uniform, or optimal, from its model (default: uniform)
    policy: Word = None
    # probability of a uniformly random action instead, from 0 to 1 (default: 0)
    epsilon: Decimal = None
    seed: Number = None  # seed of the initial states and the random actions (default: 0)
    explore: Flag = False  # let a run's agent explore as in training instead of acting greedily
    checkpoint: Checkpoint = None  # a run's checkpoint: a step, or best (default: the last one)


def run_recording(words: Sequence[str]) -> tuple[bool, Result]:
    """Records what the command line asks for. Returns whether JSON is wanted, and what to print.

    Raises:
        RequestError: one sentence: what, which value, what is allowed.
    """
    rest, env_kwargs = take_env_arguments(list(words))
    options = parse(Record, rest, "rlbook record")
    source, out = options.source, options.out
    if source is None or out is None:
        raise RequestError(
            "record needs a run's folder or an environment, and --out DATA: rlbook record Maze-v0"
            " --out walks"
        )
    given: dict[str, Any] = {
        name: value
        for name in ("episodes", "seed", "epsilon", "checkpoint")
        if (value := getattr(options, name)) is not None
    }
    if options.schema is not None:
        return options.json, _rows(options, source, out, env_kwargs, given)
    from rlbook.runs.episode_recording import record

    with contextlib.redirect_stdout(sys.stderr):  # what an environment prints is not a result
        facts = record(
            source,
            Path(out),
            policy=options.policy,
            explore=options.explore,
            allow_import=options.allow_import,
            env_kwargs=env_kwargs or None,
            **given,
        )
    typed = ["rlbook", "train", "behavior_cloning", facts["env"]]
    typed += [*env_options(facts["env_kwargs"]), "--data", shell_path(out)]
    again = shlex.join(typed + ["--allow-import"] * options.allow_import)
    text = (
        f"{facts['episodes']} episodes of {facts['policy']} on {facts['env']}: {facts['steps']:,}"
        f" steps\nmean return   {four_digits(facts['return'])}\n\n  {again}"
    )
    return options.json, (facts, text)


def _rows(
    options: Record, source: str, out: str, env_kwargs: dict[str, Any], passed: dict[str, Any]
) -> tuple[dict[str, Any], str]:
    """Writes an environment's examples. Returns the facts, and what to print."""
    from rlbook.runs.episode_recording import record_examples

    idle = [
        name
        for name in ("policy", "epsilon", "seed", "checkpoint")
        if getattr(options, name) is not None
    ]
    idle += ["explore"] * options.explore
    if idle:
        raise RequestError(
            f"--schema writes examples and plays no episodes, so it has no use for --{idle[0]}"
        )
    with contextlib.redirect_stdout(sys.stderr):
        facts = record_examples(
            source,
            out,
            schema=options.schema,
            allow_import=options.allow_import,
            env_kwargs=env_kwargs or None,
            **passed,
        )
    note = f"note: {facts['note']}\n" if "note" in facts else ""
    said = f"{facts['rows']:,} rows of {facts['env']}, split {facts['split']}\n{note}"
    return facts, f"{said}\n  rlbook train grpo Chat-v0 --env.data {shlex.quote(shell_path(out))}"
