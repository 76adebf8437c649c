"""What the search of a built site finds."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

from javascript import NODE

from rlbook.registry import ALGORITHMS, ALIASES

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
CHAPTERS = {
    "Q-learning": "temporal-difference",
    "SARSA": "temporal-difference",
    "value iteration": "planning",
    "Bellman equation": "decision-processes",
    "importance sampling": "monte-carlo",
    "DQN": "value-networks",
    "GAE": "policy-gradient",
    "TRPO": "trust-regions",
    "PPO": "trust-regions",
    "SAC": "maximum-entropy",
    "DPO": "preferences",
    "RLOO": "groups",
}
"""Which chapter is found first."""


def in_node(*arguments: object) -> Any:
    """What a program prints, as JSON."""
    command = [str(NODE), *map(str, arguments)]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def search_hits(site: Path, *queries: str) -> list[list[str]]:
    """Pages with their anchors for each query, best first."""
    return in_node(Path(__file__).parent / "search_hits.js", site, *queries)


def check_searches(site: Path) -> None:
    """On a built site: algorithms and terms by what they are called, and first the chapter that
    defines a word."""
    terms = re.search(
        r"```\{terms\}\n(.*?)```", (DOCS / "terms.md").read_text(encoding="utf-8"), flags=re.DOTALL
    )
    assert terms is not None
    defined = re.findall(r"^(\S[^:\n]*): ([\w-]+)", terms[1], flags=re.MULTILINE)
    assert 2 * len(defined) == len(terms[1].splitlines())  # each with its meaning below it
    wanted = {term: f"chapters/{chapter}" for term, chapter in defined}
    for name in (*ALGORITHMS, *ALIASES):
        wanted[name] = f"algorithms/{ALIASES.get(name, name)}"
    for algorithm in ALGORITHMS:
        title = (DOCS / "algorithms" / f"{algorithm}.md").read_text(encoding="utf-8")
        wanted.setdefault(title.splitlines()[0].removeprefix("# "), f"algorithms/{algorithm}")
    for (query, page), hits in zip(wanted.items(), search_hits(site, *wanted), strict=True):
        pages = list(dict.fromkeys(hit.partition("#")[0] for hit in hits))
        assert page in pages[:3], f"{query} leads to {hits[:5]}"
    for (query, page), hits in zip(CHAPTERS.items(), search_hits(site, *CHAPTERS), strict=True):
        assert hits[0].partition("#")[0] == f"chapters/{page}", f"{query} leads to {hits[:3]}"
