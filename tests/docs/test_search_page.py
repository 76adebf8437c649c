"""The table of the page on search is that of docs/results.json."""

import json
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def test_the_table_states_what_was_measured() -> None:
    measured = json.loads((DOCS / "results.json").read_text(encoding="utf-8"))["measurements"][
        "token_search"
    ]["measured"]
    lines = (
        (DOCS / "llm" / "search.md")
        .read_text(encoding="utf-8")
        .split("| n = 16 samples")[1]
        .split("\n\n")[0]
        .splitlines()[2:]
    )
    stated = 0
    for name, *cells in ([cell.strip() for cell in line.strip("|").split("|")] for line in lines):
        for task, cell in zip(("sums", "reasoning"), cells, strict=True):
            if cell != "–":
                share, _, half, budget = cell.split(" ", 3)
                budget = budget.strip("()")
                assert f"{measured[f'{task}, {name}, {budget}']:.2f}" == share
                assert f"{measured[f'{task}, {name}, ±']:.2f}" == half
                stated += 1
    assert stated == sum(name.endswith(" tokens") for name in measured)
