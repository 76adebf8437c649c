"""The page of the book's figures shows each of them, as it is drawn now."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from closeness import near

from rlbook.book.figures import FIGURES, figure, figure_module, measurements, options_of

DOCS = Path(__file__).parents[2] / "docs"
KNOWN = json.loads((DOCS / "figures" / "figures.json").read_text())["figures"]
EXACT = [number for number in FIGURES if not options_of(number)]


@pytest.mark.parametrize("number", FIGURES)
def test_the_site_shows_every_figure_with_the_defaults_of_its_experiment(number: str) -> None:
    facts = KNOWN[number]
    assert facts["title"] == FIGURES[number] and facts["measured"]
    assert facts["options"] == json.loads(json.dumps(options_of(number))), (
        f"python docs/measure.py figure_{number}"
    )
    assert (DOCS / "figures" / facts["written"]).stat().st_size < 80_000
    chapter = number.split(".")[0]
    page = (DOCS / "book-figures" / f"chapter-{chapter}.md").read_text()
    assert f"```{{book-figures}} {chapter}\n" in page
    assert f"\nchapter-{chapter}\n" in (DOCS / "book-figures" / "index.md").read_text()
    text = figure_module(number).__doc__ or ""
    assert text.startswith(f"Figure {number}") and "Source: Sutton & Barto 2018" in text


@pytest.mark.parametrize("number", EXACT)
def test_the_numbers_on_the_site_are_those_of_the_code(number: str) -> None:
    found = measurements(number, figure(number))
    # equations of at most 441 states, their condition below 100
    size = 100 * max(map(abs, found.values()))
    assert KNOWN[number]["measured"] == near(found, terms=441, size=size)


def test_the_averages_on_the_site_are_those_of_the_code() -> None:
    assert KNOWN["6.4"]["measured"] == near(measurements("6.4", figure("6.4")), terms=100 * 100)
