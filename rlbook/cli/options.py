"""The options of each command, as a dataclass; tyro parses them and writes the help from the
comments."""

from __future__ import annotations

import codecs
import contextlib
import dataclasses
import inspect
import io
import re
import sys
import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

import tyro
from tyro.conf import (
    FlagCreatePairsOff,
    HelptextFromCommentsOff,
    OmitArgPrefixes,
    Positional,
    PositionalMetavarFromFieldName,
    arg,
)
from tyro.constructors import PrimitiveConstructorSpec

from rlbook.ascii_signs import printable
from rlbook.checks import did_you_mean, synonyms
from rlbook.cli.output import fill_paragraph, fill_text
from rlbook.cli.values import (
    OptionText,
    flag,
    parse_boolean,
    parse_checkpoint,
    parse_integer,
    parse_number,
    take_path,
    take_resumed,
    take_text,
)
from rlbook.errors import RequestError
from rlbook.hyperparameters import field_names

Command = TypeVar("Command")


def text(
    metavar: str,
    count: int | typing.Literal["*"] = 1,
    read: Callable[[str, str], Any] | None = take_text,
) -> Any:
    """An option that tyro takes as text, and `parse` converts with `read`; without `read`, and for
    several words, it stays `OptionText`."""
    return PrimitiveConstructorSpec(
        nargs=count,
        metavar=metavar,
        instance_from_str=lambda words: OptionText(tuple(words), read if count == 1 else None),
        is_instance=lambda value: True,
        str_from_instance=lambda value: str(value).split(" ") if count == "*" else [str(value)],
    )


NO_DEFAULT = arg(help_behavior_hint="")
POSITIONAL = typing.get_args(Positional[int])[1]
"""What marks an option's annotation as that of a word without a name."""
Number = Annotated[Any, text("N", read=parse_integer), NO_DEFAULT]
Decimal = Annotated[Any, text("N", read=parse_number), NO_DEFAULT]
Folder = Annotated[Any, text("FOLDER", read=take_path), NO_DEFAULT]
Resumed = Annotated[Any, text("FOLDER", read=take_resumed), NO_DEFAULT]
File = Annotated[Any, text("FILE", read=take_path), NO_DEFAULT]
Word = Annotated[Any, text("NAME"), NO_DEFAULT]
Checkpoint = Annotated[Any, text("NAME", read=parse_checkpoint), NO_DEFAULT]
Folders = Annotated[Any, text("FOLDER", "*"), NO_DEFAULT]
Flag = Annotated[bool, NO_DEFAULT]
Tracker = Annotated[Any, text("{tensorboard,wandb}"), NO_DEFAULT]
Schedules = Annotated[Any, text("{stretch,hold}"), NO_DEFAULT]
Preset = Annotated[Any, text("{atari_dqn,atari_ppo,dapo,gsm8k,sft_full,sft_lora}"), NO_DEFAULT]


@typing.dataclass_transform(frozen_default=True)
def command_options(cls: type[Command]) -> type[Command]:
    """A frozen dataclass that lists its own fields before those of its base, as the help does."""
    made = dataclass(frozen=True)(cls)
    fields = made.__dataclass_fields__  # type: ignore[attr-defined]
    made.__dataclass_fields__ = {name: fields[name] for name in field_names(made)}  # type: ignore[attr-defined]
    return made


@dataclass(frozen=True, kw_only=True)
class PrintingOptions:
    """The options of every command that prints a result."""

    json: Flag = False  # print a single JSON object to standard output, and nothing else
    debug: Flag = False  # show the full traceback of an error


@dataclass(frozen=True, kw_only=True)
class EnvironmentOptions:
    """The options of a command that also makes an environment."""

    json: Flag = False  # print a single JSON object to standard output, and nothing else
    # allow an algorithm, an environment or a reward of the form module:Name to import that module,
    # and the reward `code` to run programs
    allow_import: Flag = False
    debug: Flag = False  # show the full traceback of an error


@dataclass(frozen=True)
class CommandOptions:
    """The options of `rlbook train` besides those of the run: where to store it, and what to
    print."""

    out: Folder = None  # the run's folder (default: a new one under runs/)
    # continue the run in FOLDER, or in that of --out, bit for bit from its last checkpoint
    resume: Resumed = None
    # what schedules do when --resume is given a larger budget: stretch over it, or hold their last
    # values (default: stretch)
    schedules: Schedules = None
    # read all settings from a YAML file such as a run's config.yaml; the command line takes
    # precedence
    config: File = None
    # settings of a published recipe by name; --config and the command line take precedence
    preset: Preset = None
    json: Flag = False  # print a single JSON object to standard output, and nothing else
    # also log to tensorboard (event files in the run's folder), wandb (WANDB_MODE=offline keeps it
    # in the folder, too), or both
    track: Tracker = None
    tensorboard: Flag = False  # the same as --track tensorboard
    # allow an algorithm, an environment or a reward of the form module:Name to import that module,
    # and the reward `code` to run programs
    allow_import: Flag = False
    debug: Flag = False  # show the full traceback of an error


def help_line(meaning: str, behavior_hint: str | None = None) -> Any:
    """An option's line in the help, spelled for the terminal before tyro wraps it by its length."""
    return arg(help=printable(meaning), help_behavior_hint=behavior_hint)


def run_options() -> dict[str, tuple[str, Any, Any]]:
    """Name → (name, annotation, default) of the options of a run and of several, as
    `rlbook.runs.options` has them, and of those of the command."""
    from rlbook.cli.explain import comments
    from rlbook.runs.options import FOLDERS, LEAST, RETURNS, SWITCHES, RunOptions, SeedOptions

    kinds = typing.get_type_hints(CommandOptions, include_extras=True)
    meanings = comments(CommandOptions) | comments(RunOptions) | comments(SeedOptions)
    # a class that is made here has no source in which tyro could look for the comments
    fields: dict[str, tuple[str, Any, Any]] = {
        item.name: (
            item.name,
            Annotated[kinds[item.name], help_line(meanings[item.name])],
            item.default,
        )
        for item in dataclasses.fields(CommandOptions)
    }
    for item in (*dataclasses.fields(RunOptions), *dataclasses.fields(SeedOptions)):
        if item.type in LEAST:
            spec = text("N", read=parse_integer)
        elif item.name in RETURNS:
            spec = text("N", read=parse_number)
        elif item.name in SWITCHES:
            spec = text("{true,false}", read=parse_boolean)
        else:
            folder = item.name in FOLDERS
            spec = text("FOLDER", read=take_path) if folder else text("NAME")
        kind = Annotated[Any, spec, help_line(meanings[item.name], "")]
        fields[item.name] = (item.name, kind, None)
    return fields


@command_options
class Evaluate(EnvironmentOptions):
    """Play episodes with a trained agent, greedily unless --explore, and report the mean return
    with its 95 % confidence interval. For a token run, --samples K completes each held-out prompt K
    times: pass@k, maj@k, perplexity, rewards, lengths. A reward model, or a column of a file of
    completions (--score), is evaluated as a classifier: confusion matrix, precision, recall, F1,
    ROC, AUC.

    --env ID names another environment, and --env.KEY VALUE changes an argument of it or of the run's
    own: --env.data FILE other prompts, all of its rows, --env.reward NAME another reward. A local
    Hugging Face model is evaluated in the environment that --env names; --model.KEY VALUE says how
    it is read (device, dtype, adapter).

    Examples:
      rlbook evaluate runs/ppo-Maze-v0-0 --episodes 500
      rlbook evaluate runs/grpo-Chat-v0-0 --samples 8 --env.data other.jsonl --env.reward numeric
      rlbook evaluate smollm2 --env Chat-v0 --env.data rows.jsonl --env.reward numeric
    """

    # a run's folder, a local Hugging Face model (with --env), or a file of completions
    folder: Positional[Folder]
    # environment to evaluate in (default: the run's own, on its held-out prompts)
    env: Word = None
    # number of episodes (default: 100); with --samples or --env.data, of prompts (default: all, at
    # most 512)
    episodes: Number = None
    samples: Number = None  # number of completions of each held-out prompt
    # number of choices: the right answer of each held-out prompt among those of other prompts, by
    # likelihood (acc, and acc_norm per character)
    choices: Number = None
    # inference-time search: mcts (with policy and critic), best_of_n or majority (of --samples
    # completions), beam (with --samples beams)
    search: Word = None
    simulations: Number = None  # with --search mcts: simulations per move (default: 32)
    # how a search scores finished texts: critic, verifier, log_prob, or the run of a reward model
    judge: Word = None
    # write the completions of --samples to this file, one JSON object per line; for a classifier, a
    # plot of its curves
    out: File = None
    # another run or language model to compare with, or start: this run before training
    compare: Folder = None
    data: File = None  # pairs on which to evaluate a reward model (default: its held-out pairs)
    score: Word = None  # the column, or reward, of a file of completions to evaluate
    label: Word = None  # the column with the true labels (default: right)
    # scores above this are classified as right (default: halfway between the mean scores of right
    # and wrong)
    threshold: Decimal = None
    seed: Number = None  # seed of the initial states and of sampling (default: the run's seed)
    # explore as in training instead of acting greedily: sample from the policy
    explore: Flag = False
    # sampling temperature of a language model, the divisor of its logits; 0 is greedy
    temperature: Decimal = None
    # sample from the smallest set of most likely tokens with this total probability
    top_p: Decimal = None
    top_k: Number = None  # sample from this many of the most likely tokens
    # sample from tokens with at least this fraction of the most likely token's probability
    min_p: Decimal = None
    # above 1, tokens that already occur in the text become less likely
    repetition_penalty: Decimal = None
    # processes that step the environments, useful if they are slow (default: 1)
    workers: Number = None
    checkpoint: Checkpoint = None  # a step, or best (default: the last one)


@dataclass(frozen=True)
class Watch:
    """Watch a trained agent act: in the terminal, or as a GIF. A terminal with colours shows the
    environment's picture in half-block characters; others print its numbers. Token runs print
    prompts and completions, each token coloured.

    Example:  rlbook watch runs/ppo-Maze-v0-0 --gif maze.gif
    """

    folder: Positional[Folder]  # a run's folder
    env: Word = None  # environment to watch it in (default: the run's own)
    gif: File = None  # write a GIF to this file instead of playing in the terminal
    episodes: Number = None  # number of episodes (default: 1; token runs: 5)
    seed: Number = None  # seed of the initial states (default: the run's seed)
    checkpoint: Checkpoint = None  # a step, or best (default: the last one)
    # allow an algorithm, an environment or a reward of the form module:Name to import that module,
    # and the reward `code` to run programs
    allow_import: Flag = False
    debug: Flag = False  # show the full traceback of an error


@command_options
class Export(EnvironmentOptions):
    """Export a run's trained language model as a Hugging Face folder: model, tokenizer with its
    chat template, generation config.

    A LoRA run exports only the adapter, in peft's format, unless --merge adds it to the model. A
    reward model on texts becomes a sequence classifier with one label, its score. --job writes what
    another library needs to train with the same method: a script or a config file, rows, rewards,
    the first weights and a README.

    Examples:
      rlbook export runs/grpo-Addition-v0-0 model
      rlbook export runs/grpo-lora model --merge --shard-size 500MB
      rlbook export runs/grpo-Addition-v0-0 job --job trl
    """

    folder: Positional[Folder]  # a run's folder; with --job also a config file
    out: Positional[Folder]  # the folder to write; must not exist yet
    merge: Flag = False  # merge the adapter into the model, and write the whole model
    # largest file of weights, such as 500MB or 2GB (default: 50GB); more become several files with
    # an index
    shard_size: Word = None
    # write a job for another library instead: trl, verl or llamafactory
    job: Word = None
    # a step, or best (default: the last one; with --job the weights that the run began with)
    checkpoint: Checkpoint = None


@command_options
class Plot(EnvironmentOptions):
    """Draw learning curves. Runs that differ only in their seed become one curve: their mean, with
    a 95 % bootstrap band.

    Example:  rlbook plot runs/ppo-Maze-v0-0 runs/ppo-Maze-v0-1 --out ppo.png
    """

    folders: Positional[Folders]  # one or more folders of runs, or a folder of several seeds
    # plot the value map instead of curves, with the policy as arrows, numbers or letters
    values: Flag = False
    # moving mean over this many reports, with the curves as they were logged faint behind it
    smooth: Number = None
    # of an mcts run, instead of curves: write the search tree at the start as .svg, or animated as
    # .html or .gif
    tree: File = None
    # the .png, .svg or .pdf to write (default: curve.png in the run's folder; for several runs
    # curves.png in the current one)
    out: File = None


@command_options
class Inspect(EnvironmentOptions):
    """Write a page that shows a policy token by token, or step by step: probability, advantage, KL,
    entropy, value and ratio, by colour and on hover, at every report that `rlbook train ...
    --inspect N` recorded, or else at the stored checkpoints. It needs no server.

    Example:  rlbook inspect runs/grpo-Addition-v0-0
    """

    folder: Positional[Folder]  # a run's folder
    out: File = None  # the .html to write (default: inspector.html in the folder)
    prompts: Number = None  # number of held-out starts (default: all that were recorded, or 4)


@command_options
class Compare(PrintingOptions):
    """Compare runs: the interquartile mean of their last evaluations over seeds, with its 95 %
    bootstrap interval, the probability that a run of one kind scores above one of another, and the
    learning curves.

    Example:  rlbook compare runs/ppo-Maze-v0-0 runs/ppo-Maze-v0-1 runs/dqn-Maze-v0-0
    """

    # run folders, or folders of several seeds; runs that differ only in their seed become one row
    folders: Positional[Folders]
    # the .png, .svg or .pdf to plot the curves to (default: compare.png in the current folder)
    out: File = None


@command_options
class Doctor(EnvironmentOptions):
    """Diagnose a run: report what is wrong with its folder, one line each, with exit code 1 if
    anything is. For a sound folder, report what its log says about the learning: a critic worse
    than the mean, a collapsed entropy, and so on.

    Example:  rlbook doctor runs/ppo-Maze-v0-0
    """

    folder: Positional[Folder]  # the folder of a run, or of several seeds
    # the environment, for a run whose environment was made without an id or in wrappers
    env: Word = None


@command_options
class Verify(PrintingOptions):
    """Retrain presets, as many as fit into the budget, and compare each with its recorded result.
    The exit code is 1 if one scores lower than 95 % of runs should, by more than the error of its
    own evaluation.

    Examples:
      rlbook verify --budget 10min
      rlbook verify ppo Maze-v0
    """

    algorithm: Positional[Word] = None  # only this algorithm's presets
    env: Positional[Word] = None  # only presets for this environment
    # time budget, such as 90s, 10min or 1h (default: 10min)
    budget: Annotated[Any, text("TIME"), NO_DEFAULT] = None
    jobs: Number = None  # runs to train at a time (default: the number of cores)
    seed: Number = None  # seed of each run (default: 0)


@command_options
class Ablate(PrintingOptions):
    """Train an algorithm as it is, and again for each NAME with that part switched off, over
    several seeds; print the interquartile means and the probability that the whole is better than
    each variant, and plot the curves. All other options are those of rlbook train ALGORITHM.

    Example:
      rlbook ablate ppo CartPole-v1 --off normalize_advantage,clip=1e9
    """

    algorithm: Positional[Word]  # the algorithm to train
    env: Positional[Word]  # the environment to train on
    # hyper-parameters to switch off: true becomes false, a number becomes none if that is allowed,
    # otherwise 0; NAME=VALUE sets another value
    off: Annotated[Any, text("NAME,NAME,..."), NO_DEFAULT] = None
    seeds: Number = None  # runs per variant (default: 3)
    jobs: Number = None  # runs to train at a time (default: the number of cores)
    # folder for the runs, FOLDER/whole/seed-0 and FOLDER/NAME/seed-0, and the curves (default: a
    # new one under runs/)
    out: Folder = None
    resume: Flag = False  # resume an interrupted call with the same arguments


@command_options
class List(PrintingOptions):
    """List the algorithms, the environments with their optimum and the algorithms that reach it,
    the recipes, and which algorithm trains on which environment, with the reason if it does not.
    Given a name, show its details: description, spaces, presets, what it suits, and a command to
    start.

    Examples:
      rlbook list envs
      rlbook list Maze-v0
      rlbook list ppo
    """

    # algorithms, envs, recipes, or the name of one of them; by default all, and the table
    what: Positional[Word] = "all"


@command_options
class Explain(EnvironmentOptions):
    """Explain an algorithm: the idea, the equation, every hyper-parameter with its unit and
    default, every logged metric, the source. Or explain a logged metric: what it is, its unit, its
    healthy values, and what other values mean.

    Examples:
      rlbook explain ppo
      rlbook explain entropy
    """

    # an algorithm such as ppo (`rlbook list algorithms` lists them all), or a logged metric such as
    # entropy
    name: Positional[Word]


@command_options
class Figure(PrintingOptions):
    """Rerun the experiment behind a figure of Sutton and Barto's book, or of this one, plot it, and
    print its numbers; without a number, list the figures.

    Example:  rlbook figure 6.5 --out bias.png
    """

    # the figure's number in the book's 2nd edition, such as 6.5, or the name of an experiment of
    # this book, such as translation
    number: Positional[Word] = None
    out: File = None  # the .png, .svg or .pdf to write (default: figure-NUMBER.png)
    # seed of the first run; the others follow consecutively (default: as on the site)
    seed: Number = None
    runs: Number = None  # number of runs to average over (default: as on the site)


@dataclass(frozen=True)
class Demo:
    """A tour in one minute: PPO solves a maze, then a small language model learns to add, first
    from correct answers and then from rewards. Writes no files.

    Example:  rlbook demo
    """

    debug: Flag = False  # show the full traceback of an error


@command_options
class Play(PrintingOptions):
    """Write an interactive page: a single file that opens from disk and on a phone, without a
    server.

    grid: draw a grid world, and watch nine methods solve it step by step, with the numbers of each
    update.

    tokens: a small language model solves sums token by token, is rewarded for its answers, and
    learns from them by GRPO.

    clip, gae, kl, softmax, belief, bandits: one formula each, with sliders and its numbers.

    Examples:
      rlbook play
      rlbook play tokens
      rlbook play clip
      rlbook play grid --out maze.html --open
    """

    # the page: grid, tokens, clip, gae, kl, softmax, belief or bandits
    page: Positional[Word] = "grid"
    out: File = None  # the .html to write (default: play-PAGE.html)
    open: Flag = False  # also open it in the browser


def parse(
    command: type[Command],
    argv: Sequence[str],
    prog: str,
    description: str | None = None,
    *,
    comments: bool = False,
) -> Command:
    """The command's options. `--help` prints and raises SystemExit(0).

    Args:
        comments: read what the options mean in any case, not only where help is asked for or
            something is wrong: it takes longer than all the rest.

    Raises:
        RequestError: an option that does not exist (the nearest is named), a value too many, one
            missing, or one that is not a number where a number belongs.
    """
    complaint, shown = io.StringIO(), _HelpStream()
    settings: dict[str, Any] = {
        "prog": prog,
        "description": _PLACE,
        "config": (FlagCreatePairsOff, OmitArgPrefixes, PositionalMetavarFromFieldName),
    }
    comments = comments or asks_for_help(argv)
    if not comments:
        settings["config"] += (HelptextFromCommentsOff,)
    try:
        with contextlib.redirect_stderr(complaint), contextlib.redirect_stdout(shown):
            options, unknown = tyro.cli(
                command, args=list(argv), return_unknown_args=True, **settings
            )
    except SystemExit as stop:
        if stop.code in (0, None):
            print(_lay_out_help(shown.getvalue(), description or inspect.getdoc(command) or ""))
            raise
        if not comments:
            return parse(command, argv, prog, description, comments=True)
        raise RequestError(f"{_sentence(complaint.getvalue())} ({prog} --help shows all)") from None
    if unknown:
        raise RequestError(_unknown_message(unknown[0], names(command), prog))
    return typing.cast(Command, _with_values(options))


def asks_for_help(argv: Sequence[str]) -> bool:
    """Whether the words may lead to the help, which shows what the options mean."""
    return not {"-h", "--help"}.isdisjoint(argv)


def _with_values(options: Any) -> Any:
    """The options, including those of their groups, with values in place of texts that can be
    converted already."""
    read: dict[str, Any] = {}
    hints = typing.get_type_hints(type(options), include_extras=True)
    for item in dataclasses.fields(options):
        value = getattr(options, item.name)
        is_positional = POSITIONAL in typing.get_args(hints[item.name])
        name = item.name.upper() if is_positional else flag(item.name)
        several = value.words if isinstance(value, OptionText) else value
        if is_positional and isinstance(several, tuple):
            for word in several:
                take_text(name, word)
        if not isinstance(value, OptionText):
            read[item.name] = _with_values(value) if dataclasses.is_dataclass(value) else value
        elif value.read is not None:
            read[item.name] = value.read(name, value.words[0])
    return dataclasses.replace(options, **read)


_ESCAPE = re.compile(r"\x1b\[[0-9;]*m")
_EMPTY_ROW = re.compile(
    r"^(?:\x1b\[[0-9;]*m)*│(?:\x1b\[[0-9;]*m| )*│(?:\x1b\[[0-9;]*m)*\n", re.MULTILINE
)
"""The text that tyro puts below a description that fills its line, for a default that is not
shown."""
_PLACE = "DESCRIPTION"
"""A placeholder for the description in tyro's help, whose lines tyro would not wrap."""


class _HelpStream(io.StringIO):
    """A stream for what tyro prints, coloured if the terminal is."""

    def __init__(self) -> None:
        super().__init__()
        self._stream = sys.stdout

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return codecs.lookup(self._stream.encoding or "utf-8").name  # tyro looks for "utf-8"

    def isatty(self) -> bool:
        return self._stream.isatty()


def _lay_out_help(shown: str, description: str) -> str:
    """The help with its usage and its description wrapped; an example is not broken."""
    usage, _, rest = _EMPTY_ROW.sub("", shown.rstrip("\n")).partition("\n")
    before, _, after = rest.partition(_PLACE)
    usage = fill_paragraph(_ESCAPE.sub("", usage), "", "  ")  # colours have no width
    whole = f"{usage}\n{before}{fill_text(description)}{after}"
    spelled = printable(whole)
    if spelled == whole:
        return whole
    return "\n".join(line.rstrip() for line in spelled.splitlines())  # longer than tyro knew


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
            else [flag(item.name)]
        )
    return found


def flatten(options: object) -> dict[str, Any]:
    """Option → value of the result of `parse`, whichever group it is in."""
    found: dict[str, Any] = {}
    for item in dataclasses.fields(options):  # type: ignore[arg-type]
        value = getattr(options, item.name)
        found |= (
            flatten(value)
            if dataclasses.is_dataclass(value) and not isinstance(value, OptionText)
            else {item.name: value}
        )
    return found


ALWAYS = ("folder", "action", "json", "allow_import", "debug")
"""Options that have an effect whatever the others are."""


def refuse_idle(
    options: object, what: str, used: Sequence[str], elsewhere: Sequence[str] = ()
) -> None:
    """Raises RequestError for an option that would have no effect.

    Args:
        options: what `parse` returned.
        what: what is done with it.
        used: the options that have an effect on that.
        elsewhere: names of options that were given but are not among `options`.
    """
    if elsewhere:
        raise RequestError(f"--{elsewhere[0]} has no effect on {what}")
    for item in dataclasses.fields(options):  # type: ignore[arg-type]
        value = getattr(options, item.name)
        if item.name not in (*used, *ALWAYS) and value != item.default:
            said = " ".join(value) if isinstance(value, tuple) else flag(item.name)
            raise RequestError(f"{said} has no effect on {what}")


QUIET = "; the results go to standard output and the progress to standard error: 2> FILE hides it"


def _unknown_message(word: str, known: list[str], prog: str) -> str:
    from rlbook.runs.other_libraries import hint_of  # gymnasium, which some commands do without

    if not word.startswith("-"):
        steps = (
            f"; name it, as in --steps {word}" if word.isdecimal() and "--steps" in known else ""
        )
        return f"unexpected argument {word!r}{steps} ({prog} --help shows what is allowed)"
    option = word.split("=")[0]
    known = [name for name in known if name != option]  # it is no option but a place
    nested = ["--" + name.replace("_", "-") for name in synonyms(option) if "." in name]
    known = [*known, *nested] if "--model" in known else known
    meant = re.sub("^--no-", "--", option.replace("_", "-"))
    quiet = meant.removeprefix("--") in ("quiet", "silent", "verbose", "progress-bar")
    hint = QUIET if quiet else hint_of(meant, known, prog.split()[-1])
    return f"unknown option {option!r}{hint} ({prog} --help shows all)"


def _sentence(box: str) -> str:
    """The text of tyro's error message, below its title and up to the next rule, on one line."""
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


def action_of(command: str, word: str | None, actions: Sequence[str]) -> str:
    """The first word after a command with several actions; without one, the first action. Raises
    RequestError."""
    action = word or actions[0]
    if action not in actions:
        hint = did_you_mean(action, actions)
        raise RequestError(f"{command} knows no {action!r}{hint} (known: {', '.join(actions)})")
    return action
