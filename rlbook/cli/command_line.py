"""Processes a command line word by word before its options are known: positions, splitting off, and
spelling out."""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Collection, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from rlbook.cli.values import flag, may_import, scalar
from rlbook.errors import RequestError
from rlbook.registry import ALGORITHMS, ALIASES, agent_class
from rlbook.runs.options import FOLDERS

_VALUELESS = (
    "-h",
    "--help",
    "--json",
    "--tensorboard",
    "--allow-import",
    "--allow_import",
    "--debug",
    "--no-pruning",
    "--no_pruning",
)
_TEXTS = ("--resume", "--out", "--config", "--preset", *(flag(name) for name in FOLDERS))
_NUMBERS = re.compile(r"[\d.,_]*\d[\d.,_]*")


def take_env_arguments(words: list[str]) -> tuple[list[str], dict[str, Any]]:
    """Splits off `--env.KEY VALUE` and `--env.KEY=VALUE`."""
    return take_arguments(words, "env", "the environment")


def take_arguments(words: list[str], name: str, whose: str) -> tuple[list[str], dict[str, Any]]:
    """Splits off `--NAME.KEY VALUE`; a model's keys may be nested, as in adapter.r."""
    prefix = f"--{name}."
    rest: list[str] = []
    taken: dict[str, Any] = {}
    waiting = iter(words)
    for this in waiting:
        if not this.startswith(prefix):
            rest.append(this)
            continue
        key, equals, value = this.removeprefix(prefix).partition("=")
        if not equals:
            value = next(waiting, "--")
            if value.startswith("--"):
                raise RequestError(f"{prefix}{key} needs a value")
        key = key.replace("-", "_")
        if not all(part.isidentifier() for part in (key.split(".") if name == "model" else [key])):
            raise RequestError(f"{prefix}KEY must name an argument of {whose}, got {key!r}")
        taken[key] = scalar(os.path.expanduser(value) if value.startswith("~/") else value)
    return rest, taken


def drop_options(words: Sequence[str], *names: str) -> list[str]:
    """A command line without these options and their values; --json has no value, and --resume may
    have none."""
    rest: list[str] = []
    waiting = deque(words)
    while waiting:
        this = waiting.popleft()
        if this.startswith(("--env.", "--model.")) and "=" not in this:
            rest += [this, waiting.popleft()]
        elif this.partition("=")[0] not in names:
            rest.append(this)
        elif (
            "=" not in this
            and this not in _VALUELESS
            and waiting
            and not (this == "--resume" and _is_alone(waiting[0], words))
        ):
            waiting.popleft()
    return rest


def _is_alone(following: str, words: Sequence[str]) -> bool:
    """Whether --resume has no value before this word. The name of an algorithm is a value only
    where a folder has it and --out names no other."""
    if following not in {*ALGORITHMS, *ALIASES}:
        return following.startswith("-")
    return has_option(words, "--out") or not Path(following).is_dir()


def move_numbers_last(words: list[str]) -> list[str]:
    """`--hidden-sizes 64 64 Maze-v0` becomes `Maze-v0 --hidden-sizes=64,64`: an option with many
    numbers does not take a name for one of them."""
    rest: list[str] = []
    numbers: list[str] = []
    option = None  # what the next number belongs to
    for this in words:
        if option is not None and _NUMBERS.fullmatch(this):
            if option in rest[-1:]:
                numbers.append(rest.pop() + "=" + this)
            else:
                numbers[-1] += "," + this
            continue
        name, _, value = this.partition("=")
        takes_numbers = this.startswith("--") and name not in (*_VALUELESS, *_TEXTS)
        if takes_numbers and _NUMBERS.fullmatch(value):
            numbers.append(this)
        else:
            rest.append(this)
            if takes_numbers:  # given again, such as --target-kl none: the last one counts
                numbers = [each for each in numbers if each.partition("=")[0] != name]
        option = this if takes_numbers else None
    return rest + numbers


def join_names(words: list[str], option: str, names: Collection[str]) -> list[str]:
    """`--track tensorboard wandb ppo` becomes `--track=tensorboard,wandb ppo`: an option with many
    names takes the first word after it, and then any that are among its names."""
    joined: list[str] = []
    taking = False
    for this in words:
        first = joined[-1:] == [option]
        if (first and not this.startswith("-")) or (taking and this in names):
            joined[-1] += ("=" if first else ",") + this
            taking = True
        else:
            joined.append(this)
            taking = this.partition("=")[0] == option and "=" in this
    return joined


def mark_resume(words: list[str]) -> list[str]:
    """`--resume` may stand alone: its value becomes explicit, and empty if --out gives the
    folder."""
    marked: list[str] = []
    for this in words:
        if marked and marked[-1] == "--resume=" and not _is_alone(this, words):
            marked[-1] += this
        else:
            marked.append("--resume=" if this == "--resume" else this)
    return marked


def spell_out(words: list[str], kinds: dict[str, Any]) -> list[str]:
    """`--double` and `--no-double` become `--double=true` and `--double=false`."""
    switches = {flag(name) for name, kind in kinds.items() if kind is bool}
    spelt: list[str] = []
    for this, following in pairwise([*words, "--"]):
        option = "--" + this.removeprefix("--").replace("_", "-") if this.startswith("--") else this
        if option in switches and following.lower() not in ("true", "false"):
            value = (
                "" if not following.startswith("-") and _looks_like_value(following) else "=true"
            )
            spelt.append(option + value)
        elif option.startswith("--no-") and "--" + option.removeprefix("--no-") in switches:
            spelt.append("--" + option.removeprefix("--no-") + "=false")
        else:
            spelt.append(this)
    return spelt


def _looks_like_value(this: str) -> bool:
    """Whether a word was meant as true or false, such as yes, 1 or off; an algorithm's or
    environment's name is not."""
    return this.lower() in ("yes", "no", "on", "off", "0", "1", "none")


def take_algorithm(words: Sequence[str]) -> tuple[str | None, list[str]]:
    """Splits off the algorithm that the command line names; None if it names none.

    A word after an option is its value, unless it is an algorithm and nothing else names one, as in
    `--double dqn CartPole-v1`.

    Raises:
        RequestError: the first argument is not an algorithm.
    """
    plain: list[int] = []
    values: list[int] = []
    for place, (previous, this) in enumerate(pairwise(["", *words])):
        is_value = previous.startswith("--") and "=" not in previous and previous not in _VALUELESS
        if not this.startswith("-") and not (is_value and previous in _TEXTS):
            (values if is_value else plain).append(place)
    if not _names_algorithm([words[place] for place in plain], words):
        plain = [place for place in values if words[place] in {*ALGORITHMS, *ALIASES}] + plain
    if not plain:
        return None, list(words)
    first = plain[0]
    if words[first] not in ALGORITHMS:
        agent_class(words[first], allow_import=may_import(words))
    return words[first], [*words[:first], *words[first + 1 :]]


def _names_algorithm(plain: Sequence[str], words: Sequence[str]) -> bool:
    """Whether the algorithm is the first of the words that follow no option, or that of a file or
    a folder."""
    if has_option(words, "--config") or has_option(words, "--preset"):
        return True
    if not plain:
        return has_option(words, "--resume")
    return plain[0] in {*ALGORITHMS, *ALIASES} or (":" in plain[0] and len(plain) > 1)


def option(words: list[str], name: str) -> str | None:
    """The value of one option, before all options are known."""
    for this, following in pairwise([*words, "--"]):
        if this.startswith(name + "="):
            return this.partition("=")[2]
        if this == name and not following.startswith("--"):
            return following
    return None


def has_option(words: Sequence[str], name: str) -> bool:
    return any(this.partition("=")[0] == name for this in words)
