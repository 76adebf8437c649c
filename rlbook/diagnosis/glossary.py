"""The meaning of each logged metric, its healthy values, and what other values indicate: `rlbook
explain entropy`, and `docs/logged-numbers.md`.

What an algorithm itself says about a number is in its `METRICS`; how to read it is in
glossary.yaml.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import yaml

from rlbook.registry import ALGORITHMS, agent_class


class Entry(NamedTuple):
    """How to read a logged metric."""

    short: str  # short description, as shown in plots
    unit: str
    healthy: str  # healthy values
    otherwise: str  # the meaning of other values
    source: str = ""  # its source, if that is not this book


COMMON: dict[str, str] = {
    "step": (
        "environment steps so far, summed over all environments; a planner counts sweeps, an agent"
        " that learns from recorded data counts minibatches"
    ),
    "episodes": "training episodes finished so far",
    "passes": "passes over the recorded data so far; only where an agent learns from them",
    "return": (
        "mean undiscounted return of the training episodes since the last line, in which the agent"
        " explores"
    ),
    "length": "mean length of the training episodes since the last line",
    "true_return": (
        "mean return of the same episodes in the environment's own reward, if a reward model"
        " replaces it in training"
    ),
    "reward/NAME": (
        "mean of each of several rewards over the episodes to which it applies; only on token"
        " tasks with several rewards"
    ),
    "eval_return": (
        "mean return of greedy episodes in a separate environment; only on lines with an evaluation"
    ),
    "eval_episodes": (
        "number of episodes in an evaluation that was shortened, because it would have taken more"
        " than four times the steps of the training before it; absent for full evaluations"
    ),
    "eval_unfinished": (
        "fraction of those episodes that were cut off because they did not end, in an environment"
        " without a time limit; absent if 0"
    ),
}
"""The metrics that every run logs."""

ENTRIES = Path(__file__).with_name("glossary.yaml")
GLOSSARY: dict[str, Entry] = {
    name: Entry(**said)
    for name, said in yaml.safe_load(ENTRIES.read_text(encoding="utf-8")).items()
}


def entry_of(name: str) -> str:
    """The name of a metric's entry: that of `reward/exact` is `reward/NAME`."""
    return "reward/NAME" if name.startswith("reward/") else name


def descriptions_of(name: str) -> dict[str, list[str]]:
    """The description of a metric → the algorithms that use it."""
    found: dict[str, list[str]] = {COMMON[name]: ["all"]} if name in COMMON else {}
    for algorithm in ALGORITHMS:
        meaning = agent_class(algorithm).METRICS.get(name)
        if meaning is not None:
            found.setdefault(meaning, []).append(algorithm)
    return found
