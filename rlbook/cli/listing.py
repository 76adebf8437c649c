"""What there is: the algorithms, the environments, and the table of which trains on which."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from rlbook.cli.output import fill_paragraph
from rlbook.errors import RequestError

if TYPE_CHECKING:
    from gymnasium.envs.registration import EnvCreator


def listing(what: str = "all") -> tuple[dict[str, Any], str]:
    """What `rlbook list` shows: as plain JSON types, and laid out for a terminal.

    Args:
        what: "algorithms", "envs", "recipes", or "all" for those and the table.

    Raises:
        RequestError: another word.
    """
    from rlbook.checks import did_you_mean

    allowed = ("algorithms", "envs", "recipes", "all")
    if what not in allowed:
        raise RequestError(
            f"list shows {', '.join(allowed)}, not {what!r}{did_you_mean(what, allowed)}"
        )
    parts = {"algorithms": _algorithms, "envs": _environments, "recipes": _recipes, "all": _table}
    shown = [what] if what != "all" else list(parts)
    found = [parts[name]() for name in shown]
    facts = {
        "table" if name == "all" else name: content
        for name, (content, _) in zip(shown, found, strict=True)
    }
    return facts, "\n\n".join(text for _, text in found)


def _algorithms() -> tuple[Any, str]:
    from rlbook.cli.explain import summary
    from rlbook.registry import ALGORITHMS

    facts = {name: summary(name) for name in ALGORITHMS}
    return facts, "Algorithms\n" + _columns(facts)


def _environments() -> tuple[Any, str]:
    from rlbook.interaction.environments import environments

    facts = {name: _first_sentence(spec.entry_point) for name, spec in environments().items()}
    return facts, "Environments\n" + _columns(facts)


def _recipes() -> tuple[Any, str]:
    from rlbook.recipes.recipe_file import recipes

    facts = recipes()
    return facts, "Recipes (rlbook recipe NAME)\n" + _columns(facts)


def _table() -> tuple[Any, str]:
    from rlbook.registry import table

    facts = table()
    alike: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for env in next(iter(facts.values())):
        refused = ((name, reasons[env]) for name, reasons in facts.items())
        alike.setdefault(
            tuple((name, _reason(reason, env, name)) for name, reason in refused if reason), []
        ).append(env)
    parts = [_exceptions(envs, refused, len(facts)) for refused, envs in alike.items()]
    return facts, "\n\n".join(["Which trains on which", *parts])


def _exceptions(envs: list[str], refused: tuple[tuple[str, str], ...], count: int) -> str:
    """Environments on which the same algorithms do not train, with the reasons."""
    by_reason: dict[str, list[str]] = {}
    for name, reason in refused:
        by_reason.setdefault(reason, []).append(name)
    trained = f"{count - len(refused)} of {count}"
    lines = [
        fill_paragraph(", ".join(envs), "  ", "  "),
        f"      {trained} algorithms" + (", not" if refused else ""),
    ]
    lines += [
        fill_paragraph(f"{', '.join(names)}: {reason}", "      ", "          ")
        for reason, names in by_reason.items()
    ]
    return "\n".join(lines)


def _reason(reason: str, env: str, algorithm: str) -> str:
    """The reason without the names and without how many are too many, so that those who share it
    can be named together."""
    counted = re.sub(r" \(at most [\d,]+\)", "", re.sub(r"\babout [\d,^]+", "too many", reason))
    return re.sub(
        rf"\b((rlbook/)?{re.escape(env)}|{re.escape(algorithm)})(?![\w-])", "it", counted
    ).rstrip(".")


def _columns(facts: dict[str, str]) -> str:
    width = max(map(len, facts)) + 4
    return "\n".join(
        fill_paragraph(text, f"  {name}".ljust(width), " " * width) if text else f"  {name}"
        for name, text in facts.items()
    )


def _first_sentence(entry_point: EnvCreator | str | None) -> str:
    """What an environment's class says of itself first; nothing where it cannot be imported."""
    import inspect

    from gymnasium.envs.registration import load_env_creator

    try:
        creator = load_env_creator(entry_point) if isinstance(entry_point, str) else entry_point
    except (ImportError, AttributeError):
        return ""
    paragraphs = [
        " ".join(part.split())
        for part in _strip_markdown(inspect.getdoc(creator) or "").split("\n\n")
    ]
    return next((part.split(". ")[0].rstrip(".") for part in paragraphs if part), "")


def _strip_markdown(markdown: str) -> str:
    """Without headings, and with links as their text."""
    return re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", re.sub(r"(?m)^#.*$", "", markdown))
