"""What each logged number means, which values are healthy, and what others say:
`rlbook explain entropy`, and `docs/logged-numbers.md`.

What an algorithm itself says about a number stands in its `METRICS`; how to read it stands in
glossary.yaml.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import yaml

from rlbook.registry import ALGORITHMS, agent_class


class Entry(NamedTuple):
    """How to read a number."""

    short: str  # what it is, in a few words, as a plot shows it
    unit: str
    healthy: str  # which values are
    otherwise: str  # what others mean
    source: str = ""  # where it comes from, where that is not this book


COMMON: dict[str, str] = {
    "step": (
        "environment steps so far, all environments together; a planner counts sweeps, an agent"
        " that learns from data minibatches"
    ),
    "episodes": "training episodes that have ended",
    "return": (
        "mean undiscounted return of the training episodes since the last line; the agent explores"
        " here"
    ),
    "length": "their mean length",
    "true_return": (
        "mean return of the same episodes in the environment's own reward, where a reward model"
        " pays in its place"
    ),
    "reward/NAME": (
        "mean of each of several rewards, where it applies; only on token tasks, and only where"
        " several were asked for"
    ),
    "eval_return": (
        "mean return of greedy episodes in an environment of their own; only on the lines where the"
        " agent was evaluated"
    ),
    "eval_episodes": (
        "how many those were, where an evaluation on the way was shortened because it would have"
        " taken more than four times the steps of the training before it; elsewhere as many as were"
        " asked for"
    ),
    "eval_unfinished": (
        "share of those episodes that were cut because they did not end, in an environment without"
        " a time limit; not where it is 0"
    ),
}
"""What every run logs."""

ENTRIES = Path(__file__).with_name("glossary.yaml")
GLOSSARY: dict[str, Entry] = {
    name: Entry(**said)
    for name, said in yaml.safe_load(ENTRIES.read_text(encoding="utf-8")).items()
}


def entry_of(name: str) -> str:
    """The name of the entry that a logged number has: that of `reward/exact` is `reward/NAME`."""
    return "reward/NAME" if name.startswith("reward/") else name


def said_by(name: str) -> dict[str, list[str]]:
    """What is said about a number → the algorithms that say it."""
    found: dict[str, list[str]] = {COMMON[name]: ["all"]} if name in COMMON else {}
    for algorithm in ALGORITHMS:
        meaning = agent_class(algorithm).METRICS.get(name)
        if meaning is not None:
            found.setdefault(meaning, []).append(algorithm)
    return found
