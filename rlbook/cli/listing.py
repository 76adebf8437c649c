"""What there is: the algorithms, the environments, and the table of which trains on which."""

from __future__ import annotations

import re
import textwrap
from typing import TYPE_CHECKING, Any

from rlbook.errors import RequestError

if TYPE_CHECKING:
    from gymnasium.envs.registration import EnvCreator

WIDTH = 100


def listing(what: str = "all") -> tuple[dict[str, Any], str]:
    """What `rlbook list` shows: as plain JSON types, and laid out for a terminal.

    Args:
        what: "algorithms", "envs", or "all" for both and the table.

    Raises:
        RequestError: another word.
    """
    from rlbook.checks import nearest

    allowed = ("algorithms", "envs", "all")
    if what not in allowed:
        match = nearest(what, allowed)
        raise RequestError(f"list shows {', '.join(allowed)}, not {what!r}{f'; did you mean {match!r}?' if match else ''}")
    parts = {"algorithms": _algorithms, "envs": _environments, "all": _table}
    shown = [what] if what != "all" else list(parts)
    found = [parts[name]() for name in shown]
    facts = {"table" if name == "all" else name: content for name, (content, _) in zip(shown, found, strict=True)}
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


def _table() -> tuple[Any, str]:
    from rlbook.registry import ALGORITHMS, table

    facts = table()
    environments = list(next(iter(facts.values())))
    reasons: list[str] = []
    width = max(map(len, environments))
    lines = ["Which trains on which (a number is the reason why not)", " " * width + "".join(f"  {name:>5}" for name in ALGORITHMS)]
    for env in environments:
        cells = {algorithm: _cell(facts[algorithm][env], env, reasons) for algorithm in ALGORITHMS}
        lines.append(f"{env:<{width}}" + "".join(f"  {cell:>{max(len(name), 5)}}" for name, cell in cells.items()))
    notes = [textwrap.fill(reason, WIDTH, initial_indent=f"  {n:>2}  ", subsequent_indent=" " * 6) for n, reason in enumerate(reasons, 1)]
    return facts, "\n".join([*lines, "", *notes]).rstrip()


def _cell(reason: str | None, env: str, reasons: list[str]) -> str:
    """The table's entry: yes, or the number of the reason; environments share a number where they share the reason."""
    if reason is None:
        return "yes"
    reason = re.sub(rf"^(rlbook/)?{re.escape(env)}\b", "it", reason).rstrip(".")
    if reason not in reasons:
        reasons.append(reason)
    return str(reasons.index(reason) + 1)


def _columns(facts: dict[str, str]) -> str:
    width = max(map(len, facts)) + 4
    return "\n".join(
        textwrap.fill(text, WIDTH, initial_indent=f"  {name}".ljust(width), subsequent_indent=" " * width) if text else f"  {name}"
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
    paragraphs = [" ".join(part.split()) for part in _unlinked(inspect.getdoc(creator) or "").split("\n\n")]
    return next((part.split(". ")[0].rstrip(".") for part in paragraphs if part), "")


def _unlinked(markdown: str) -> str:
    """Without headings, and with links as their text."""
    return re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", re.sub(r"(?m)^#.*$", "", markdown))
