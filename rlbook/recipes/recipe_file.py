"""The file of a recipe: its content, the changes from the command line, and the book's recipes."""

from __future__ import annotations

import copy
import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlbook.checks import did_you_mean
from rlbook.errors import RequestError, system_reason
from rlbook.runs.storage.files import CheckpointError, read_file
from rlbook.runs.storage.plain_yaml import parse_yaml

SHIPPED = Path(__file__).parent
LIMIT = 1_000_000  # bytes of a recipe
ENTRIES = ("title", "about", "seed", "defaults", "measure", "stages")
Tree = dict[str, Any]


def recipes() -> dict[str, str]:
    """The book's recipes: name → title."""
    return {path.stem: str(parse_recipe(path)["title"]) for path in sorted(SHIPPED.glob("*.yaml"))}


@functools.cache
def functions_of_the_book() -> frozenset[str]:
    """The functions that the book's recipes use."""
    trees = [parse_recipe(path) for path in sorted(SHIPPED.glob("*.yaml"))]
    made = [
        str(stage["make"]) for tree in trees for stage in tree["stages"].values() if "make" in stage
    ]
    return frozenset(
        made
        + [
            item["call"]
            for tree in trees
            for item in (tree.get("measure") or {}).values()
            if "call" in item
        ]
    )


def parse_recipe(path: Path) -> Tree:
    """The content of a recipe's file."""
    try:
        tree = parse_yaml(read_file(path, LIMIT, follow=True).decode())
    except OSError as error:
        raise RequestError(f"the recipe {path} cannot be read ({system_reason(error)})") from None
    except (CheckpointError, ValueError) as error:
        raise RequestError(f"the recipe {path} cannot be used: {error}") from None
    if not isinstance(tree, dict) or not isinstance(tree.get("stages"), dict) or not tree["stages"]:
        raise RequestError(f"the recipe {path} must hold 'stages', a mapping of names to stages")
    for key in tree:
        if key not in ENTRIES:
            hint = did_you_mean(key, ENTRIES)
            raise RequestError(
                f"the recipe {path} has an unknown entry {key!r}{hint} (known:"
                f" {', '.join(ENTRIES)})"
            )
    for key in ("defaults", "measure"):
        if not isinstance(tree.get(key) or {}, dict):
            raise RequestError(
                f"the recipe {path}: {key} must be a mapping, got {shorten_repr(tree[key])}"
            )
    return {"title": path.stem} | tree


def set_value(tree: Tree, path: list[str], value: object) -> None:
    """Sets a value from the command line in the recipe."""
    where, *keys = path
    if where == "measure" or where == "defaults":
        inside: Any = tree.setdefault(where, {})
    else:
        names = [*tree["stages"], "measure", "defaults"]
        if where not in tree["stages"]:
            hint = did_you_mean(where, names)
            raise RequestError(
                f"--{'.'.join(path)}: the recipe has no stage {where!r}{hint} (it has:"
                f" {', '.join(tree['stages'])})"
            )
        inside = tree["stages"][where]
    keys = [
        "env_kwargs" if key == "env" and len(keys) > 1 and index == 0 else key
        for index, key in enumerate(keys)
    ]
    for key in keys[:-1]:
        inside = inside.setdefault(key, {}) if isinstance(inside, dict) else None
    if not isinstance(inside, dict):
        raise RequestError(f"--{'.'.join(path)} sets an entry of something that is not a mapping")
    inside[keys[-1]] = value


def merge_arguments(defaults: Mapping[str, Any], own: Mapping[str, Any]) -> Tree:
    """A stage's arguments, completed by those of all stages; the environment's arguments are merged
    individually."""
    whole = {**copy.deepcopy(dict(defaults)), **own}
    inner = [tree.get("env_kwargs") for tree in (defaults, own)]
    if all(isinstance(item, Mapping) for item in inner):
        whole["env_kwargs"] = {**copy.deepcopy(inner[0]), **inner[1]}  # type: ignore[dict-item]
    return whole


def limit(tree: Tree, max_samples: int) -> None:
    """Sets each stage's `max_samples`."""
    limited = [
        stage
        for stage in tree["stages"].values()
        if isinstance(stage, dict) and "max_samples" in stage
    ]
    if not limited:
        raise RequestError("no stage of this recipe has max_samples")
    if max_samples < 1:
        raise RequestError(f"max_samples must be at least 1, got {max_samples}")
    for stage in limited:
        stage["max_samples"] = max_samples


def shorten_repr(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
