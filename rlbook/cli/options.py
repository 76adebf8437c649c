"""What may stand on the command line: one dataclass a command, read by tyro, which writes the help
from the comments."""

from __future__ import annotations

import codecs
import contextlib
import dataclasses
import functools
import inspect
import io
import re
import sys
import typing
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

import tyro
from tyro.conf import (
    FlagCreatePairsOff,
    OmitArgPrefixes,
    Positional,
    PositionalMetavarFromFieldName,
    arg,
)
from tyro.constructors import PrimitiveConstructorSpec

from rlbook.checks import did_you_mean
from rlbook.cli.output import fill_paragraph, fill_text
from rlbook.cli.values import Given, decimal, parse_integer
from rlbook.errors import RequestError

Command = TypeVar("Command")


def text(metavar: str, count: int | typing.Literal["*"] = 1) -> Any:
    """An option that tyro takes as text."""
    return PrimitiveConstructorSpec(
        nargs=count,
        metavar=metavar,
        instance_from_str=lambda words: Given(tuple(words)),
        is_instance=lambda value: True,
        str_from_instance=lambda value: str(value).split(" ") if count == "*" else [str(value)],
    )


_NO_DEFAULT = arg(help_behavior_hint="")
Number = Annotated[Any, text("N"), _NO_DEFAULT]
Folder = Annotated[Any, text("FOLDER"), _NO_DEFAULT]
File = Annotated[Any, text("FILE"), _NO_DEFAULT]
Word = Annotated[Any, text("NAME"), _NO_DEFAULT]
Folders = Annotated[Any, text("FOLDER", "*"), _NO_DEFAULT]
Flag = Annotated[bool, _NO_DEFAULT]
Tracker = Annotated[Any, text("{tensorboard,wandb}"), _NO_DEFAULT]


@dataclass(frozen=True)
class CommandOptions:
    """What `rlbook train` takes beside the options of the run: where to keep it, and how to
    talk."""

    out: Folder = None  # the run's folder (default: a new one under runs/)
    # continue the run in FOLDER, or in --out's, bit for bit from its last checkpoint
    resume: Folder = None
    config: File = None  # take everything from a YAML file such as a run's config.yaml; what the command line says goes first
    json: Flag = False  # print one JSON object on standard output, and nothing else there
    # where each report goes beside the run's folder: tensorboard (events in the folder), wandb
    # (WANDB_MODE=offline keeps it in the folder, too), or both
    track: Tracker = None
    tensorboard: Flag = False  # the same as --track tensorboard
    # let an algorithm, an environment or a reward of the form module:Name import that module, and
    # the reward code run programs
    allow_import: Flag = False
    debug: Flag = False  # show the traceback of an error


@functools.cache
def run_options() -> dict[str, tuple[str, Any, Any]]:
    """Name → (name, annotation, default) of the options of a run and of several, as
    `rlbook.runs.options` has them, and of those of the command."""
    from rlbook.cli.explain import comments
    from rlbook.runs.options import FOLDERS, LEAST, RETURNS, RunOptions, SeveralSeeds

    kinds = typing.get_type_hints(CommandOptions, include_extras=True)
    meanings = comments(CommandOptions) | comments(RunOptions) | comments(SeveralSeeds)
    # a class that is made here has no source in which tyro could look for the comments
    fields: dict[str, tuple[str, Any, Any]] = {
        item.name: (
            item.name,
            Annotated[kinds[item.name], arg(help=meanings[item.name])],
            item.default,
        )
        for item in dataclasses.fields(CommandOptions)
    }
    for item in (*dataclasses.fields(RunOptions), *dataclasses.fields(SeveralSeeds)):
        shown = (
            "N"
            if item.type in LEAST or item.name in RETURNS
            else "FOLDER"
            if item.name in FOLDERS
            else "NAME"
        )
        fields[item.name] = (
            item.name,
            Annotated[Any, text(shown), arg(help=meanings[item.name], help_behavior_hint="")],
            None,
        )
    return fields


@dataclass(frozen=True)
class Evaluate:
    """Play episodes with a trained agent, greedy ones unless --explore, and report the mean return
    with its 95 % confidence interval. Of a token run, --samples K completes each held-out prompt K
    times: pass@k, maj@k, perplexity, rewards, lengths. A reward model, or a column of a file of
    completions (--score), is measured as a classifier: confusion matrix, precision, recall, F1,
    ROC, AUC.

    Example:  rlbook evaluate runs/ppo-Maze-v0-0 --episodes 500
    """

    folder: Positional[Folder]  # a run's folder, or a file of completions
    episodes: Number = None  # how many episodes (default: 100); with --samples, how many prompts (default: all, 512 at most)
    samples: Number = None  # complete each held-out prompt so many times
    search: Word = None  # search before acting: mcts (with policy and critic), best_of_n or majority (of --samples completions)
    simulations: Number = None  # of --search mcts, for each move (default: 32)
    judge: Word = None  # what finished texts are worth in a search: critic, verifier, log_prob, or the run of a reward model
    out: File = None  # write the completions of --samples there, a JSON object a line; of a classifier, its curves as a picture
    compare: Folder = None  # set them beside those of another run or language model, or of this run before it learned: start
    data: File = None  # pairs that a reward model is measured on (default: those of its own that it has not learned from)
    score: Word = None  # the column, or the reward, of a file of completions that is measured
    label: Word = None  # the column that says what is true (default: right)
    threshold: Number = None  # what scores above it is called right (default: halfway between the mean scores of right and wrong)
    seed: Number = None  # decides the episodes' starts and the noise (default: the run's seed)
    explore: Flag = False  # act as in training instead of greedily: a policy samples
    temperature: Number = None  # a language model samples: its logits are divided by this, 0 takes the likeliest token
    top_p: Number = None  # it draws from the likeliest tokens that have this probability together
    top_k: Number = None  # it draws from so many of the likeliest tokens
    # it draws from tokens with this share of the likeliest one's probability at least
    min_p: Number = None
    # above 1, tokens that stand in the text already become less likely
    repetition_penalty: Number = None
    workers: Number = None  # processes that step the environments, for slow ones (default: 1)
    checkpoint: Word = None  # a step, or best (default: the last one)
    json: Flag = False  # print one JSON object on standard output, and nothing else there
    allow_import: Flag = False  # let an environment id of the form module:Name import that module
    debug: Flag = False  # show the traceback of an error


@dataclass(frozen=True)
class Watch:
    """Watch a trained agent act: in the terminal, or as a GIF. A terminal with colours shows what
    the environment draws, in half blocks; others show its numbers. Token runs print prompts and
    completions, each token coloured.

    Example:  rlbook watch runs/ppo-Maze-v0-0 --gif maze.gif
    """

    folder: Positional[Folder]  # a run's folder
    gif: File = None  # write a GIF there instead of playing in the terminal
    episodes: Number = None  # how many episodes (default: 1; token runs: 5)
    seed: Number = None  # decides the episodes' starts (default: the run's seed)
    checkpoint: Word = None  # a step, or best (default: the last one)
    allow_import: Flag = False  # let an environment id of the form module:Name import that module
    debug: Flag = False  # show the traceback of an error


@dataclass(frozen=True)
class Export:
    """Write the language model that a run has trained as a Hugging Face folder: model, tokenizer
    with its chat template, generation config.

    A run that trained LoRA gives the adapter alone, in peft's format, unless --merge adds it to the
    model. A reward model on texts becomes a sequence classifier with one label, its score.

    Examples:
      rlbook export runs/grpo-Addition-v0-0 model
      rlbook export runs/grpo-lora model --merge
    """

    folder: Positional[Folder]  # a run's folder
    out: Positional[Folder]  # the folder to write, a new one
    merge: Flag = False  # add the adapter to the model, and write that whole
    checkpoint: Word = None  # a step, or best (default: the last one)
    json: Flag = False  # print one JSON object on standard output, and nothing else there
    allow_import: Flag = False  # let an environment id of the form module:Name import that module
    debug: Flag = False  # show the traceback of an error


@dataclass(frozen=True)
class Plot:
    """Draw learning curves. Runs that differ only in their seed become one curve: their mean, with
    a 95 % bootstrap band.

    Example:  rlbook plot runs/ppo-Maze-v0-0 runs/ppo-Maze-v0-1 --out ppo.png
    """

    folders: Positional[Folders]  # one run's folder, or several, or one of several seeds
    # draw the value map instead of curves, with the policy as arrows, numbers or letters
    values: Flag = False
    tree: File = None  # of an mcts run: the .svg of its search at the start, or the .html or .gif that plays it, instead of curves
    out: File = None  # the .png, .svg or .pdf to write (default: curve.png in the run's folder; curves.png here for several)
    json: Flag = False  # print one JSON object on standard output, and nothing else there
    allow_import: Flag = False  # let an environment id of the form module:Name import that module
    debug: Flag = False  # show the traceback of an error


@dataclass(frozen=True)
class Inspect:
    """Write a page that shows what a policy does token by token, or step by step: probability,
    advantage, KL, entropy, value and ratio, by colour and on hover, at every report that
    `rlbook train ... --inspect N` recorded; else at the kept checkpoints. It needs no server.

    Example:  rlbook inspect runs/grpo-Addition-v0-0
    """

    folder: Positional[Folder]  # a run's folder
    out: File = None  # the .html to write (default: inspector.html in the folder)
    prompts: Number = None  # how many held-out starts (default: all that were recorded, or 4)
    json: Flag = False  # print one JSON object on standard output, and nothing else there
    allow_import: Flag = False  # let an environment id of the form module:Name import that module
    debug: Flag = False  # show the traceback of an error


@dataclass(frozen=True)
class Compare:
    """Compare runs: the interquartile mean of their last evaluations over seeds, with its 95 %
    bootstrap interval, how likely a run of one kind scores above one of another, and the learning
    curves.

    Example:  rlbook compare runs/ppo-Maze-v0-0 runs/ppo-Maze-v0-1 runs/dqn-Maze-v0-0
    """

    # run folders, or folders of several seeds; runs that differ only in their seed become one row
    folders: Positional[Folders]
    out: File = None  # the .png, .svg or .pdf to draw the curves into (default: compare.png here)
    json: Flag = False  # print one JSON object on standard output, and nothing else there
    debug: Flag = False  # show the traceback of an error


@dataclass(frozen=True)
class Doctor:
    """Say what is wrong with a run's folder, one line each; the exit code is 1 where something is.
    Of a sound folder, say what its log tells about the learning: a critic worse than the mean, an
    entropy that collapsed, and so on.

    Example:  rlbook doctor runs/ppo-Maze-v0-0
    """

    folder: Positional[Folder]  # a run's folder
    json: Flag = False  # print one JSON object on standard output, and nothing else there
    allow_import: Flag = False  # let an environment id of the form module:Name import that module
    debug: Flag = False  # show the traceback of an error


@dataclass(frozen=True)
class Verify:
    """Train presets again, as many as fit into the budget, and compare each with the result that
    was measured. The exit code is 1 where one comes out lower than 95 % of runs should, by more
    than its own evaluation can err.

    Examples:
      rlbook verify --budget 10min
      rlbook verify ppo Maze-v0
    """

    algorithm: Positional[Word] = None  # of this algorithm alone
    env: Positional[Word] = None  # on this environment alone
    # such as 90s, 10min or 1h (default: 10min)
    budget: Annotated[Any, text("TIME"), _NO_DEFAULT] = None
    jobs: Number = None  # how many train at a time (default: as many as there are cores)
    seed: Number = None  # of each run (default: 0)
    json: Flag = False  # print one JSON object on standard output, and nothing else there
    debug: Flag = False  # show the traceback of an error


@dataclass(frozen=True)
class Ablate:
    """Train an algorithm as it is, and once more for each NAME with that part switched off, over
    several seeds; print the interquartile means, how likely the whole is better than each variant,
    and draw the curves. All other options are those of rlbook train ALGORITHM.

    Example:
      rlbook ablate ppo CartPole-v1 --off normalize_advantage,clip=1e9
    """

    algorithm: Positional[Word]  # what to train
    env: Positional[Word]  # where
    # hyper-parameters: a switch that is on is turned off, a number becomes none where that is
    # allowed, or else 0; NAME=VALUE says what to put there instead
    off: Annotated[Any, text("NAME,NAME,..."), _NO_DEFAULT] = None
    seeds: Number = None  # runs of each variant (default: 3)
    jobs: Number = None  # how many train at a time (default: as many as there are cores)
    # where the runs go: FOLDER/whole/seed-0, FOLDER/NAME/seed-0, and the curves (default: a new one
    # under runs/)
    out: Folder = None
    resume: Flag = False  # go on where an earlier call with the same words was stopped
    json: Flag = False  # print one JSON object on standard output, and nothing else there
    debug: Flag = False  # show the traceback of an error


@dataclass(frozen=True)
class List:
    """Show the algorithms, the environments with their optimum and who reaches it, the recipes, and
    which algorithm trains on which environment, with the reason where not. With the name of one of
    them, show all about it: what it is, spaces, presets, what suits it, and the command to start.

    Examples:
      rlbook list envs
      rlbook list Maze-v0
      rlbook list ppo
    """

    what: Positional[Word] = (
        "all"  # algorithms, envs, recipes, the name of one of them, or nothing for all and the table
    )
    json: Flag = False  # print one JSON object on standard output, and nothing else there
    debug: Flag = False  # show the traceback of an error


@dataclass(frozen=True)
class Explain:
    """Explain an algorithm: the idea, the equation, every hyper-parameter with unit and default,
    every logged number, the source. Or explain a logged number: what it is, its unit, which values
    are healthy, and what others mean.

    Examples:
      rlbook explain ppo
      rlbook explain entropy
    """

    # an algorithm such as ppo (`rlbook list algorithms` names them all), or a logged number such as
    # entropy
    name: Positional[Word]
    json: Flag = False  # print one JSON object on standard output, and nothing else there
    debug: Flag = False  # show the traceback of an error


@dataclass(frozen=True)
class Figure:
    """Rerun the experiment of a figure of Sutton and Barto's book, draw it, and print what it shows
    in numbers; alone, list the figures.

    Example:  rlbook figure 6.5 --out bias.png
    """

    number: Positional[Word] = None  # as in the book's 2nd edition, such as 6.5
    out: File = None  # the .png, .svg or .pdf to write (default: figure-NUMBER.png)
    seed: Number = None  # of the first run; the others count on from it (default: 0)
    runs: Number = None  # how many to average over (default: as many as the site shows)
    json: Flag = False  # print one JSON object on standard output, and nothing else there
    debug: Flag = False  # show the traceback of an error


@dataclass(frozen=True)
class Demo:
    """See the whole arc: PPO solves a maze, and then a small language model learns to add, first
    from right answers and then from rewards. It writes no file.

    Example:  rlbook demo
    """

    debug: Flag = False  # show the traceback of an error


@dataclass(frozen=True)
class Play:
    """Write a page to play with: one file that works from the disk and on a phone, without a
    server.

    grid: draw a grid world, and watch nine methods solve it step by step, with the numbers of each
    update.

    tokens: a small language model writes sums token by token, is paid for its answers, and learns
    from them by GRPO.

    Examples:
      rlbook play
      rlbook play tokens
      rlbook play grid --out maze.html --open
    """

    page: Positional[Word] = "grid"  # which page
    out: File = None  # the .html to write (default: play-PAGE.html)
    open: Flag = False  # show it in the browser, too
    json: Flag = False  # print one JSON object on standard output, and nothing else there
    debug: Flag = False  # show the traceback of an error


def parse(
    command: type[Command], argv: Sequence[str], prog: str, description: str | None = None
) -> Command:
    """The command's options. `--help` prints and raises SystemExit(0).

    Raises:
        RequestError: an option that does not exist (the nearest is named), a value too many or one
            missing.
    """
    complaint, shown = io.StringIO(), _Shown()
    settings = {
        "prog": prog,
        "description": _PLACE,
        "config": (FlagCreatePairsOff, OmitArgPrefixes, PositionalMetavarFromFieldName),
    }
    try:
        with contextlib.redirect_stderr(complaint), contextlib.redirect_stdout(shown):
            options, unknown = tyro.cli(
                command, args=list(argv), return_unknown_args=True, **settings
            )
    except SystemExit as stop:
        if stop.code in (0, None):
            print(_lay_out_help(shown.getvalue(), description or inspect.getdoc(command) or ""))
            raise
        raise RequestError(f"{_sentence(complaint.getvalue())} ({prog} --help shows all)") from None
    if unknown:
        raise RequestError(_unknown_message(unknown[0], names(command), prog))
    return typing.cast(Command, options)


_ESCAPE = re.compile(r"\x1b\[[0-9;]*m")
_PLACE = "DESCRIPTION"
"""Stands in tyro's help for the description, whose lines tyro would not break."""


class _Shown(io.StringIO):
    """Takes what tyro prints, in colour where the terminal would have it so."""

    def __init__(self) -> None:
        super().__init__()
        self._stream = sys.stdout

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return codecs.lookup(self._stream.encoding or "utf-8").name  # tyro looks for "utf-8"

    def isatty(self) -> bool:
        return self._stream.isatty()


def _lay_out_help(shown: str, description: str) -> str:
    """The help with its usage and its description broken into lines; an example stays whole."""
    usage, _, rest = shown.rstrip("\n").partition("\n")
    before, _, after = rest.partition(_PLACE)
    usage = fill_paragraph(_ESCAPE.sub("", usage), "", "  ")  # colours have no width
    return f"{usage}\n{before}{fill_text(description)}{after}"


def names(command: type) -> list[str]:
    """Every option of a command, as it is typed."""
    found: list[str] = []
    for item in dataclasses.fields(command):  # type: ignore[arg-type]
        nested = (
            typing.get_args(item.type)[:1]
            if typing.get_origin(item.type) is Annotated
            else (item.type,)
        )
        inner = nested[0] if nested else None
        found += (
            names(inner)
            if isinstance(inner, type) and dataclasses.is_dataclass(inner)
            else ["--" + item.name.replace("_", "-")]
        )
    return found


def flatten(options: object) -> dict[str, Any]:
    """Option → value of what `parse` returned, whatever groups they stand in."""
    found: dict[str, Any] = {}
    for item in dataclasses.fields(options):  # type: ignore[arg-type]
        value = getattr(options, item.name)
        found |= (
            flatten(value)
            if dataclasses.is_dataclass(value) and not isinstance(value, Given)
            else {item.name: value}
        )
    return found


def _unknown_message(word: str, known: list[str], prog: str) -> str:
    if not word.startswith("-"):
        return f"unexpected argument {word!r} ({prog} --help shows what is allowed)"
    option = word.split("=")[0]
    hint = did_you_mean(option.replace("_", "-"), known)
    return f"unknown option {option!r}{hint} ({prog} --help shows all)"


def _sentence(box: str) -> str:
    """What stands in tyro's complaint, below its title and up to the next rule, as one line."""
    plain = _ESCAPE.sub("", box).splitlines()
    lines = [line.strip("│ ") for line in plain if not line.startswith(("╭", "╰"))]
    rules = [index for index, line in enumerate(lines) if line and not line.strip("─-")] + [
        len(lines)
    ] * 2
    # without a frame, where the terminal knows no more than ASCII, the title stands above a rule
    framed = "╭" in box
    lines = lines[: rules[0]] if framed else lines[rules[0] + 1 : rules[1]]
    sentence = re.sub(r"\.? *Expected \d+ values?\.?|\(required\)", "", " ".join(lines))
    return (
        " ".join(sentence.split())
        .replace("Missing from", "missing from")
        .replace("Missing value", "missing value")
    )


def action_of(command: str, given: Given | str | None, actions: Sequence[str]) -> str:
    """The first word behind a command that does several things; the first action where there is
    none. Raises RequestError."""
    action = word(given) or actions[0]
    if action not in actions:
        hint = did_you_mean(action, actions)
        raise RequestError(f"{command} knows no {action!r}{hint} (known: {', '.join(actions)})")
    return action


def word(option: Given | str | None) -> str | None:
    """The text of an option that takes one word; None where it was not given."""
    return option.words[0] if isinstance(option, Given) else None


def integer(name: str, option: Given | str | None) -> int | None:
    """The whole number of an option; 1e5 and 100_000 are whole numbers too."""
    given = word(option)
    return None if given is None else parse_integer(f"--{name.replace('_', '-')}", given)


def number(name: str, option: Given | str | None) -> float | None:
    """The number of an option."""
    given = word(option)
    return None if given is None else decimal(f"--{name.replace('_', '-')}", given)
