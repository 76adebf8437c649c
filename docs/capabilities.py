"""Writes the README's table of what each algorithm learns from, which actions it can take and what
else it takes, from the classes: `python docs/capabilities.py`."""

from __future__ import annotations

import re
from pathlib import Path

from rlbook.agent import Agent, takes_action_mask
from rlbook.registry import ALGORITHMS, ALIASES, agent_class

README = Path(__file__).parents[1] / "README.md"
HEADER = (
    "",
    "algorithms",
    "learns from",
    "discrete actions",
    "continuous actions",
    "recurrent",
    "action masks",
    "recorded data",
)
YES, NO = "✓", "–"
CONTINUOUS = {
    "discrete": "in bins",
    "discrete only": NO,
    "any": YES,
    "scaled": YES,
    "scaled box": YES,
}
DATA = {
    "Episodes": "episodes",
    "Steps": "steps",
    "Pairs": "pairs",
    "Groups": "groups",
    "LabelledEpisodes": "labels",
}


def capabilities(agent: type[Agent]) -> tuple[str, ...]:
    """The cells after the name."""
    # GAIL compares single steps, and a text is judged as a whole
    reads_text = agent.observations == "policy" and "demonstrations" not in agent.uses
    remembers = _has_memory(agent.Config)
    masks = agent.plays() and takes_action_mask(agent.act) and agent.actions != "scaled box"
    return (
        " or ".join(agent.sources()),
        NO if agent.actions == "scaled box" else YES,
        CONTINUOUS[agent.actions],
        ", ".join(["gru, lstm"] * remembers + ["transformer"] * reads_text) or NO,
        YES if masks else NO,
        ", ".join(DATA[kind] for kind in agent.data_kinds) or NO,
    )


def _has_memory(config: type) -> bool:
    try:
        config(recurrent="gru")
    except (TypeError, ValueError):
        return False
    return True


def capability_table() -> str:
    """Algorithms of one folder that have all cells in common share a row."""
    rows: dict[str, dict[tuple[str, ...], list[str]]] = {}
    for name, home in ALGORITHMS.items():
        path = home.partition(":")[0].replace(".", "/") + ".py"
        family = Path(path).parts[2].replace("_", "-")  # rlbook/algorithms/FAMILY
        cells = capabilities(agent_class(name))
        rows.setdefault(family, {}).setdefault(cells, []).append(f"[`{name}`]({path})")
    lines = [HEADER, ("---",) * len(HEADER)]
    for family, kinds in rows.items():
        for place, (cells, names) in enumerate(kinds.items()):
            lines.append((family * (place == 0), ", ".join(names), *cells))
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    by_name: dict[str, list[str]] = {}
    for alias, name in ALIASES.items():
        by_name.setdefault(name, []).append(f"`{alias}`")
    aliases = "; ".join(f"{', '.join(found)} ({name})" for name, found in by_name.items())
    return f"{table}\n\nNames from the literature work too: {aliases}."


def with_table(text: str) -> str:
    """The README's text with the table made anew, between its two marks."""
    return re.sub(
        r"(<!-- capabilities -->\n).*?(<!-- end of capabilities -->)",
        lambda marks: f"{marks[1]}{capability_table()}\n{marks[2]}",
        text,
        flags=re.DOTALL,
    )


if __name__ == "__main__":
    README.write_text(with_table(README.read_text(encoding="utf-8")), encoding="utf-8")
