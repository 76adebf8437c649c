"""Text from the command line → values, so that every mistake is one sentence; ranges are the
config's business."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import types
import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlbook.checks import parse_json
from rlbook.errors import RequestError
from rlbook.runs.storage.files import CheckpointError, read_file
from rlbook.runs.storage.plain_yaml import parse_yaml

FILE_LIMIT = 2**26  # bytes of a .json file that is named for a value


@dataclass(frozen=True)
class OptionText:
    """Text from the command line; any other value is a default."""

    words: tuple[str, ...]
    # option and text → the value; None leaves the conversion to code that knows the type
    read: Callable[[str, str], Any] | None = None


def flag(name: str) -> str:
    """An option's name as it is typed."""
    return "--" + name.replace("_", "-")


def take_text(name: str, text: str) -> str:
    """The text of an option, unchanged; it may not be empty, as that of an unset variable is."""
    if not text:
        raise RequestError(f"{name} must not be empty")
    return text


def take_path(name: str, text: str) -> str:
    """A path, with ~ spelled out where the shell has not done it, as after the = of --out=~/run."""
    return os.path.expanduser(take_text(name, text))


def take_resumed(name: str, text: str) -> str:
    """The folder to resume, which is empty where --resume stands alone."""
    return os.path.expanduser(text)


def parse_checkpoint(name: str, text: str) -> int | str | None:
    """The checkpoint that an option names: a step, "best", or None for the last."""
    if text == "last":
        return None
    if text != "best" and not text.isdecimal():
        raise RequestError(f"{name} must be a step, best or last, got {text!r}")
    return text if text == "best" else int(text)


def parse_integer(name: str, text: str) -> int:
    """The text of an option as a whole number."""
    try:
        number = float(text) if re.search("[.e]", text.lower()) else int(text)
        if number == int(number):
            return int(number)
    except (ValueError, OverflowError):
        pass
    hint = "; it says how many, from --seed on: --seed 0 --seeds 5" if name == "--seeds" else ""
    raise RequestError(f"{name} must be a whole number, got {text!r}{hint}")


def parse_number(name: str, text: str) -> float:
    """The text of an option as a number."""
    try:
        return float(text)
    except ValueError:
        raise RequestError(f"{name} must be a number, got {text!r}") from None


def parse_boolean(name: str, text: str) -> bool:
    """The text of an option as true or false."""
    if text.lower() not in ("true", "false"):
        raise RequestError(f"{name} must be true or false, got {text!r}")
    return text.lower() == "true"


def convert(name: str, text: OptionText, annotation: object) -> Any:
    """A hyper-parameter's text as the type its config declares; a range is checked by the config
    itself."""
    kinds = typing.get_args(annotation) if _is_union(annotation) else (annotation,)
    if text.words == ("none",) and types.NoneType in kinds:
        return None
    sequence = next((kind for kind in kinds if typing.get_origin(kind) is tuple), None)
    if text.words == ("none",) and sequence is not None:
        return ()
    if sequence is not None and str in kinds:
        return _name_or_numbers(name, " ".join(text.words))
    if sequence is not None:
        return tuple(
            _parse_one(name, part, typing.get_args(sequence)[:1])
            for words in text.words
            for part in re.split(r"[\[\](), ]+", words)
            if part
        )
    return _parse_one(name, " ".join(text.words), kinds)


def _name_or_numbers(name: str, text: str) -> Any:
    """`1,0,2` as a tuple, the content of a .json file, or else the text itself."""
    if re.fullmatch(r"\d[\d,]*", text):
        return tuple(int(part) for part in text.split(",") if part)
    if not text.endswith(".json"):
        return text
    try:
        return parse_json(read_file(Path(text), FILE_LIMIT, follow=True))
    except (OSError, ValueError, RecursionError, CheckpointError) as error:
        raise RequestError(
            f"{name} must name a JSON file that can be read, got {text!r}:"
            f" {' '.join(str(error).split())}"
        ) from None


def _parse_one(name: str, text: str, kinds: tuple[Any, ...]) -> Any:
    if any(
        dataclasses.is_dataclass(kind) or kind is str or typing.get_origin(kind) is typing.Literal
        for kind in kinds
    ):
        return text
    for kind, reader in ((bool, parse_boolean), (float, parse_number), (int, parse_integer)):
        if kind in kinds:
            return reader(name, text)
    return text


def _is_union(annotation: object) -> bool:
    return typing.get_origin(annotation) in (typing.Union, types.UnionType)


def metavar(annotation: object) -> str:
    """What the help shows for a value of this type."""
    kinds = [
        kind
        for kind in (typing.get_args(annotation) if _is_union(annotation) else (annotation,))
        if kind is not types.NoneType
    ]
    if any(dataclasses.is_dataclass(kind) for kind in kinds):
        return "NUMBER|SCHEDULE"
    if str in kinds and any(typing.get_origin(kind) is tuple for kind in kinds):
        return "NAME|NUMBERS|FILE.json"
    kind = kinds[0]
    if typing.get_origin(kind) is typing.Literal:
        return "{" + ",".join(map(str, typing.get_args(kind))) + "}"
    if typing.get_origin(kind) is tuple:
        return metavar(typing.get_args(kind)[0])
    return {bool: "{true,false}", int: "INT", float: "FLOAT"}.get(kind, "TEXT")


def scalar(text: str) -> Any:
    """The value of an `--env.KEY`: a number, true or false, null, a [list], or else the text
    itself."""
    for reader in (int, float):
        with contextlib.suppress(ValueError):
            return reader(text)
    try:
        value = parse_yaml(text)
    except ValueError:
        return text
    plain = isinstance(value, bool | list | dict) or text.strip().lower() in ("null", "none", "~")
    return (None if text.strip().lower() == "none" else value) if plain else text


def may_import(words: Sequence[str]) -> bool:
    """Whether the command line allows importing the modules that it or a run's folder names."""
    return "--allow-import" in words or "--allow_import" in words
