"""The sidebar leads to every page but the modules, which the page of the API lists."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

pytest.importorskip("sphinx")
spec = importlib.util.spec_from_file_location(
    "short_navigation", Path(__file__).parents[2] / "docs" / "ext" / "short_navigation.py"
)
assert spec is not None and spec.loader is not None
short_navigation = importlib.util.module_from_spec(spec)
spec.loader.exec_module(short_navigation)


def entry(level: int, href: str, title: str, inside: str = "", here: str = "") -> str:
    """As Sphinx writes it."""
    link = f'<a class="{here}reference internal" href="{href}">{title}</a>'
    return f'<li class="toctree-l{level}{" current" if here else ""}">{link}{inside}</li>\n'


@pytest.mark.parametrize("folder", ["api/generated/", "../api/generated/", ""])
def test_modules_are_left_out_and_other_pages_stay(folder: str) -> None:
    title = '<code class="docutils literal"><span class="pre">rlbook.agent</span></code>'
    modules = entry(2, f"{folder}rlbook.agent.html", title) + entry(
        2, f"{folder}rlbook.html", "rlbook"
    )
    others = entry(1, "chapters/pixels.html", "Learning from pixels")
    whole = entry(1, "api.html", "API", "<ul>\n" + modules + "</ul>\n")
    found = short_navigation.without_modules(f"<ul>\n{others}{whole}</ul>\n")
    assert found == f"<ul>\n{others}{entry(1, 'api.html', 'API')}</ul>\n"


def test_the_module_that_is_the_page_stays() -> None:
    here = entry(2, "#", "rlbook.agent", here="current ")
    found = short_navigation.without_modules(
        f"<ul>\n{here}{entry(2, 'rlbook.html', 'rlbook')}</ul>"
    )
    assert found == f"<ul>\n{here}</ul>"


def test_a_modules_page_shows_its_own_part() -> None:
    def part(title: str, entries: str) -> str:
        return f'<p class="caption" role="heading"><span>{title}</span></p>\n<ul>\n{entries}</ul>\n'

    here = entry(
        1, "api.html", "API", "<ul>\n" + entry(2, "#", "rlbook", here="current ") + "</ul>"
    )
    here = here.replace('"toctree-l1"', '"toctree-l1 current"')
    mine, other = (
        part("Reference", here),
        part("Part I", entry(1, "chapters/planning.html", "Planning")),
    )
    assert short_navigation.own_part(other + mine + other) == mine
    assert short_navigation.own_part(other) == other
