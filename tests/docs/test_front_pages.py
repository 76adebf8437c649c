"""What a reader sees first: the README on GitHub, and the first page of the site."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
INDEX = (ROOT / "docs" / "index.md").read_text()


def test_the_readme_links_only_pages_that_can_be_read_without_building_the_site() -> None:
    links = re.findall(r"\]\((docs/[^)#]+\.md)", README)
    assert len(links) >= 5 and "_build/html" not in "".join(re.findall(r"\]\(([^)]+)\)", README))
    for link in links:
        text = (ROOT / link).read_text()
        assert not re.search(r"^(?:`{3,}|:{3,})\{", text, flags=re.MULTILINE), f"{link} has a directive, which GitHub shows as it stands"
        assert not re.search(r"\{\w+\}`|\]\(\)|^\([\w-]+\)=$", text, flags=re.MULTILINE), f"{link} has what only MyST can read"


def test_the_readme_shows_the_maze_a_curve_and_tokens_and_says_how_to_make_them_again() -> None:
    pictures = re.findall(r"!\[[^]]+\]\(([^)]+)\)", README)
    assert [Path(picture).stem for picture in pictures] == ["maze-values", "curves-first", "token-inspector"]
    assert all((ROOT / picture).stat().st_size < 80_000 for picture in pictures)
    assert "`python docs/pictures.py`" in README and "`python docs/measure.py curves_first`" in README


def test_the_first_page_has_a_film_a_command_and_a_picture_of_each_part() -> None:
    before, _, parts = INDEX.split("## Install")[0].partition("{container} parts")
    assert "```{animation} " in before and before.count("```sh") == 1
    assert re.findall(r"\*\*\[Part (\w+): [^]]+\]\(chapters/", parts) == ["I", "II", "III"]
    assert len(re.findall(r"!\[[^]]+\]\(figures/", parts)) == 3
