"""Reads the pages for slips of English: `python docs/prose.py`, a part of `make check`.

proselint knows the slips of English writers; `SLIPS` are those that this book made. Code, formulas,
tables of numbers and the targets of links are left out. Of a notebook the text cells are read, and
of an exhibit of the bug museum what it says; lines are then counted in these texts one after the
other. The comments and docstrings of the library are read for `SLIPS` alone.
"""

from __future__ import annotations

import ast
import io
import json
import re
import sys
import tokenize
from pathlib import Path

import yaml
from proselint.checks import __register__
from proselint.config import DEFAULT
from proselint.registry import CheckRegistry
from proselint.tools import LintFile

CheckRegistry().register_many(__register__)
ROOT = Path(__file__).parents[1]
PAGES = sorted(
    path
    for path in [
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "notebooks").glob("*.ipynb"),
        *(ROOT / "rlbook" / "book" / "museum" / "exhibits").rglob("*.yaml"),
    ]
    if not {"_build", "generated", "jupyter_execute"} & set(path.parts)
)
MODULES = sorted((ROOT / "rlbook").rglob("*.py"))
SAID = ("title", "symptom", "question", "why", "notice")
LEFT_ALONE = (
    "typography",  # straight quotes are what a terminal shows
    "annotations",
    "dates_times",
    "weasel_words.very",
)
# the same number twice in a table, the same word at the end of one paragraph and in the next one
NO_NEIGHBOURS = re.compile(r"illusion in '(?:[\d\s.·|-]+'|[^']*\n)")
SLIPS = {
    r"\bin the mean\b(?! (?:and|of|over)\b)": "on average",
    r"\blikest\b": "most similar, or most likely",
    r"(?:^|[.!?:] )Whoever\b": "say who: an agent, a reader, anyone who",
    r"\blargest but for one\b": "second-largest",
    r"\bolder sister\b": "counterpart",
    r"\b(?:stands?|counts|follows|comes?|lies?|lay|laid|puts?|one) behind\b": "after",
    r"\bbehind (?:each other|one another|prompts|·|the (?:last|first|end|ending|prompts?|steps?"
    r"|tokens?|completion|prefix|tags?|name|title|others?)\b)": "after",
    r"\banew\b": "again",
    r"\bto and fro\b": "back and forth",
    r"\bthe own (?:one|return|value|answer)\b": "its own, or name whose it is",
    r"\bfinds? back\b": "find the way back",
    r"\bin the place of\b": "in place of, or instead of",
    r"\brightly\b(?! so\b)": "correctly",
    r"\bshortest ways?\b": "shortest path",
    r"\bwithout chance\b": "deterministic",
    r"\bma(?:kes?|de|king) (?:a|one|its|no|another|two|three|\d+) (?:gradient |real )?steps?\b": (
        "take"
    ),
    r"\band so (?:allows|can|calls|rarely|rather|trains?|stops|takes|finds|the|its?|they|there"
    r"|no)\b(?! (?:it|they)\b)": "so, at the start of a clause with a subject",
    r"(?<!here[ \n])\b(?:is|are) no (?:distance|end|ending|termination|error|bound|part|number"
    r"|array|action|answer|result|distribution|images?|repair|obstacle|verifier|reward|model|policy"
    r"|failure)\b": "not a",
}
BLOCKS = (
    re.compile(r"^(?P<fence>`{3,}).*?^(?P=fence)$", re.M | re.S),  # code, and directives
    re.compile(r"^:(?!states|assumes|exercise)\w+: .*$", re.M),
    re.compile(r"^## Read on$.*", re.M | re.S),  # titles, which are others' words
    re.compile(r"\$\$.*?\$\$", re.S),
)
INLINE = (
    re.compile(r"\$[^$\n]+\$"),
    re.compile(r"`[^`\n]+`"),
    re.compile(r"\]\([^)\n]*\)"),
    re.compile(r"<[^>\n]+>"),
)


def prose(text: str) -> str:
    """The text with everything else blank, so that places stay where they are; what stands within
    a sentence leaves a mark, so that the words around it are not neighbours."""
    for patterns, mark in ((BLOCKS, " "), (INLINE, "·")):
        for pattern in patterns:
            text = pattern.sub(lambda found, mark=mark: re.sub(r"[^\n]", mark, found[0]), text)
    return text


def slips(text: str) -> list[tuple[int, str]]:
    """Line numbers, and what stands there."""
    words = prose(text)
    checks = dict.fromkeys(LEFT_ALONE, False)  # the first name that fits decides
    checks |= {name: on for name, on in DEFAULT["checks"].items() if name not in checks}
    linted = [
        (item.pos[0], item.check_result.message)
        for item in LintFile("page", words).lint({"max_errors": 1000, "checks": checks})
        if not NO_NEIGHBOURS.search(item.check_result.message)
    ]
    return sorted(own_slips(words) + linted)


def words_of(module: str) -> str:
    """A module's comments and docstrings at their places, with everything else blank."""
    strings = {
        (node.body[0].lineno, node.body[0].col_offset)
        for node in ast.walk(ast.parse(module))
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node)
    }
    lines = [""] * (module.count("\n") + 1)
    for token in tokenize.generate_tokens(io.StringIO(module).readline):
        if token.type == tokenize.COMMENT or token.start in strings:
            for row, line in enumerate(token.string.split("\n"), token.start[0] - 1):
                lines[row] += line.lstrip(" #")
    return "\n".join(lines)


def own_slips(words: str) -> list[tuple[int, str]]:
    """Line numbers, and which of `SLIPS` stands there."""
    return [
        (words.count("\n", 0, match.start()) + 1, f"{match[0].strip()!r}: {better}")
        for pattern, better in SLIPS.items()
        for match in re.finditer(pattern, words, re.M)
    ]


def page_text(path: Path) -> str:
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".ipynb":
        cells = json.loads(text)["cells"]
        return "\n\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "markdown")
    if path.suffix == ".yaml":
        exhibit = yaml.safe_load(text)
        return "\n\n".join(exhibit[part] for part in SAID)
    return text


def main() -> int:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {said}"
        for path in PAGES
        for line, said in slips(page_text(path))
    ] + [
        f"{path.relative_to(ROOT)}:{line}: {said}"
        for path in MODULES
        for line, said in own_slips(prose(words_of(path.read_text(encoding="utf-8"))))
    ]
    print("\n".join(found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
